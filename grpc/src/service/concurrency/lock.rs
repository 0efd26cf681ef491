//! The lock service.

use std::sync::Arc;

use bytes::Bytes;
use revstore_engine::{KeyRange, LeaseId};
use revstore_proto::v3lockpb::lock_server::Lock;
use revstore_proto::v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};
use tonic::{Request, Response, Status};

use crate::node::{Node, Proposal};
use crate::service::concurrency::wait_queue::{self, Candidate, Out};
use crate::status::{self, EtcdError};

/// `v3lockpb.Lock`: a lock is held by who has stood in line for longest.
#[derive(Debug)]
pub(crate) struct LockService {
    node: Arc<Node>,
}

impl LockService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// Waits for the lock. Dropped while it waits, it takes the key back (EL-4).
    async fn lock(&self, request: LockRequest) -> Result<LockResponse, EtcdError> {
        let lease = LeaseId::new(request.lease);
        let entered = Candidate::enter(&self.node, &request.name, lease, Bytes::new())?;
        let candidate = entered.candidate;
        let revision = candidate.reach_front().await.map_err(|out| match out {
            // EL-5
            Out::Lost => EtcdError::LockSessionExpired,
            Out::Error(error) => error,
        })?;
        let key = candidate.place().key.clone();
        candidate.stay();
        Ok(LockResponse {
            header: Some(self.node.headers.at(revision)),
            key,
        })
    }

    /// EL-3: whoever knows the key may.
    fn unlock(&self, request: UnlockRequest) -> Result<UnlockResponse, EtcdError> {
        if request.key.is_empty() {
            return Err(EtcdError::EmptyKey);
        }
        self.node.propose(Proposal {
            request_bytes: request.key.len(),
            grows_bytes: None,
        })?;
        let done = self.node.engine.delete(&KeyRange::One(request.key));
        Ok(UnlockResponse {
            header: Some(self.node.headers.at(done.revision)),
        })
    }
}

#[tonic::async_trait]
impl Lock for LockService {
    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        let guarded = self.node.guard(&request, |request, sender| {
            wait_queue::guard(&request.name, request.lease, sender)
        });
        guarded.map_err(status::of_recipe)?;
        let locked = self.lock(request.into_inner()).await;
        locked.map(Response::new).map_err(status::of_recipe)
    }

    async fn unlock(
        &self,
        request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        let guarded = self.node.guard(&request, |request, sender| {
            sender.access()?.check_write(&request.key, b"")
        });
        guarded.map_err(status::of_recipe)?;
        let unlocked = self.unlock(request.into_inner());
        unlocked.map(Response::new).map_err(status::of_recipe)
    }
}
