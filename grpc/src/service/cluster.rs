//! The cluster service, of a cluster that has one member and stays that way.

use std::sync::Arc;

use parking_lot::Mutex;
use revstore_proto::etcdserverpb::cluster_server::Cluster;
use revstore_proto::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse, ResponseHeader,
};
use tonic::{Request, Response, Status};

use crate::auth::authorize;
use crate::node::Node;
use crate::request::peer_url;
use crate::status::EtcdError;

/// `etcdserverpb.Cluster`.
#[derive(Debug)]
pub(crate) struct ClusterService {
    node: Arc<Node>,
    /// What the member may be told to change. A leaf lock, held to copy or replace.
    peer_urls: Mutex<Vec<String>>,
}

impl ClusterService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        let peer_urls = Mutex::new(node.identity.peer_urls.clone());
        Self { node, peer_urls }
    }

    /// DM-27
    fn header(&self) -> ResponseHeader {
        self.node.headers.without_revision()
    }

    fn members(&self) -> Vec<Member> {
        let identity = &self.node.identity;
        vec![Member {
            id: identity.member_id,
            name: identity.name.clone(),
            peer_ur_ls: self.peer_urls.lock().clone(),
            client_ur_ls: identity.client_urls.clone(),
            is_learner: false,
        }]
    }

    fn check_member(&self, id: u64) -> Result<(), EtcdError> {
        if id == self.node.identity.member_id {
            Ok(())
        } else {
            Err(EtcdError::MemberNotFound)
        }
    }

    /// Why no member joins. A second voter would cost the only one its quorum, and learners are
    /// refused as by a cluster that takes none (CL-3).
    fn add(&self, request: &MemberAddRequest) -> EtcdError {
        let urls = &request.peer_ur_ls;
        if !peer_url::are_valid(urls) {
            return EtcdError::BadMemberUrls;
        }
        let known = self.peer_urls.lock();
        if urls
            .iter()
            .any(|url| known.iter().any(|known| known == url.trim()))
        {
            return EtcdError::PeerUrlExists;
        }
        if request.is_learner {
            EtcdError::TooManyLearners
        } else {
            EtcdError::NotEnoughStartedMembers
        }
    }

    /// CL-5: the only member stays.
    fn remove(&self, id: u64) -> EtcdError {
        match self.check_member(id) {
            Ok(()) => EtcdError::LastMember,
            Err(error) => error,
        }
    }

    /// As etcd does, without a look at the URLs.
    fn update(&self, request: MemberUpdateRequest) -> Result<MemberUpdateResponse, EtcdError> {
        self.check_member(request.id)?;
        *self.peer_urls.lock() = request.peer_ur_ls;
        Ok(MemberUpdateResponse {
            header: Some(self.header()),
            members: self.members(),
        })
    }

    /// CL-4: the only member votes.
    fn promote(&self, id: u64) -> EtcdError {
        match self.check_member(id) {
            Ok(()) => EtcdError::MemberNotLearner,
            Err(error) => error,
        }
    }
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_add(
        &self,
        request: Request<MemberAddRequest>,
    ) -> Result<Response<MemberAddResponse>, Status> {
        self.node.guard(&request, |request, sender| {
            // The URLs are looked at first.
            if !peer_url::are_valid(&request.peer_ur_ls) {
                return Err(EtcdError::BadMemberUrls);
            }
            sender.check_admin()
        })?;
        Err(self.add(request.get_ref()).to_status())
    }

    async fn member_remove(
        &self,
        request: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        self.node.guard(&request, authorize::admin)?;
        Err(self.remove(request.get_ref().id).to_status())
    }

    async fn member_update(
        &self,
        request: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        self.node.guard(&request, authorize::admin)?;
        Ok(Response::new(self.update(request.into_inner())?))
    }

    async fn member_list(
        &self,
        request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        // AU-5
        self.node.guard(&request, authorize::user)?;
        Ok(Response::new(MemberListResponse {
            header: Some(self.header()),
            members: self.members(),
        }))
    }

    async fn member_promote(
        &self,
        request: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        self.node.guard(&request, authorize::admin)?;
        Err(self.promote(request.get_ref().id).to_status())
    }
}
