//! The Cluster service of a cluster that always has one member.

use std::sync::Arc;

use parking_lot::Mutex;
use revstore_proto::etcdserverpb::cluster_server::Cluster;
use revstore_proto::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse, ResponseHeader,
};
use tonic::{Request, Response, Status};

use crate::methods;
use crate::node::Node;
use crate::status::EtcdError;

/// `etcdserverpb.Cluster`; etcd's `ClusterServer`.
#[derive(Debug)]
pub(crate) struct ClusterService {
    node: Arc<Node>,
    /// The peer URLs, which `MemberUpdate` replaces. A leaf lock, held to copy or replace them.
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

    /// Returns the error of a request to add a member. A second voting member would leave the
    /// cluster without a quorum, and the maximum number of learners is 0 (CL-3).
    fn add_error(&self, request: &MemberAddRequest) -> EtcdError {
        let urls = &request.peer_ur_ls;
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

    /// CL-5: the only member cannot be removed.
    fn remove_error(&self, id: u64) -> EtcdError {
        match self.check_member(id) {
            Ok(()) => EtcdError::LastMember,
            Err(error) => error,
        }
    }

    /// Replaces the peer URLs without validating them, as etcd does.
    fn update(&self, request: MemberUpdateRequest) -> Result<MemberUpdateResponse, EtcdError> {
        self.check_member(request.id)?;
        *self.peer_urls.lock() = request.peer_ur_ls;
        Ok(MemberUpdateResponse {
            header: Some(self.header()),
            members: self.members(),
        })
    }

    /// CL-4: the only member is not a learner.
    fn promote_error(&self, id: u64) -> EtcdError {
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
        let request = self.node.accept::<methods::cluster::MemberAdd>(request)?;
        Err(self.add_error(&request).to_status())
    }

    async fn member_remove(
        &self,
        request: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        let request = self
            .node
            .accept::<methods::cluster::MemberRemove>(request)?;
        Err(self.remove_error(request.id).to_status())
    }

    async fn member_update(
        &self,
        request: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        let request = self
            .node
            .accept::<methods::cluster::MemberUpdate>(request)?;
        Ok(Response::new(self.update(request)?))
    }

    async fn member_list(
        &self,
        request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        self.node.accept::<methods::cluster::MemberList>(request)?;
        Ok(Response::new(MemberListResponse {
            header: Some(self.header()),
            members: self.members(),
        }))
    }

    async fn member_promote(
        &self,
        request: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        let request = self
            .node
            .accept::<methods::cluster::MemberPromote>(request)?;
        Err(self.promote_error(request.id).to_status())
    }
}
