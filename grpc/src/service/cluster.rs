//! The Cluster service of a cluster in which one member runs.

use std::sync::Arc;
use std::time::SystemTime;

use revstore_proto::etcdserverpb::cluster_server::Cluster;
use revstore_proto::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse, ResponseHeader,
};
use tonic::{Request, Response, Status};

use crate::methods;
use crate::node::Node;
use crate::node::members::ClusterMember;
use crate::status::EtcdError;

/// `etcdserverpb.Cluster`; etcd's `ClusterServer`.
#[derive(Debug)]
pub(crate) struct ClusterService {
    node: Arc<Node>,
}

impl ClusterService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// DM-27
    fn header(&self) -> ResponseHeader {
        self.node.headers.without_revision()
    }

    fn add(&self, request: &MemberAddRequest) -> Result<MemberAddResponse, EtcdError> {
        let Node {
            members,
            raft_index,
            ..
        } = &*self.node;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let (added, members) =
            members.add(raft_index, &request.peer_ur_ls, request.is_learner, now)?;
        Ok(MemberAddResponse {
            header: Some(self.header()),
            member: Some(added.into()),
            members: to_messages(members),
        })
    }
}

fn to_messages(members: Vec<ClusterMember>) -> Vec<Member> {
    members.into_iter().map(Member::from).collect()
}

impl From<ClusterMember> for Member {
    fn from(member: ClusterMember) -> Self {
        Self {
            id: member.id,
            name: member.name,
            peer_ur_ls: member.peer_urls,
            client_ur_ls: member.client_urls,
            is_learner: member.is_learner,
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
        Ok(Response::new(self.add(&request)?))
    }

    async fn member_remove(
        &self,
        request: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        let request = self
            .node
            .accept::<methods::cluster::MemberRemove>(request)?;
        let Node {
            members,
            raft_index,
            ..
        } = &*self.node;
        Ok(Response::new(MemberRemoveResponse {
            members: to_messages(members.remove(raft_index, request.id)?),
            header: Some(self.header()),
        }))
    }

    async fn member_update(
        &self,
        request: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        let request = self
            .node
            .accept::<methods::cluster::MemberUpdate>(request)?;
        let Node {
            members,
            raft_index,
            ..
        } = &*self.node;
        let members = members.update(raft_index, request.id, &request.peer_ur_ls)?;
        Ok(Response::new(MemberUpdateResponse {
            header: Some(self.header()),
            members: to_messages(members),
        }))
    }

    async fn member_list(
        &self,
        request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        self.node.accept::<methods::cluster::MemberList>(request)?;
        Ok(Response::new(MemberListResponse {
            header: Some(self.header()),
            members: to_messages(self.node.members.list()),
        }))
    }

    async fn member_promote(
        &self,
        request: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        let request = self
            .node
            .accept::<methods::cluster::MemberPromote>(request)?;
        let Node {
            members,
            raft_index,
            ..
        } = &*self.node;
        Err(members.promote_error(raft_index, request.id).to_status())
    }
}
