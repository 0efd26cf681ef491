//! The Lock service.

use std::sync::Arc;

use bytes::Bytes;
use revstore_engine::{KeyRange, LeaseId};
use revstore_proto::v3lockpb::lock_server::Lock;
use revstore_proto::v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};
use tonic::{Request, Response, Status};

use super::wait_queue::{WaitError, Waiter};
use crate::methods;
use crate::node::Node;
use crate::node::admission::Proposal;
use crate::status::{self, EtcdError};

/// `v3lockpb.Lock`: the waiter with the oldest key holds the lock. etcd's `lockServer`.
#[derive(Debug)]
pub(crate) struct LockService {
    node: Arc<Node>,
}

impl LockService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// Waits for the lock. If the future is dropped before that, the waiter's key is deleted
    /// (EL-4).
    async fn lock(&self, request: LockRequest) -> Result<LockResponse, EtcdError> {
        let lease = LeaseId::new(request.lease);
        let joined = Waiter::join(&self.node, &request.name, lease, Bytes::new())?;
        let waiter = joined.waiter;
        let revision = waiter.reach_front().await.map_err(|error| match error {
            // EL-5
            WaitError::KeyLost => EtcdError::LockSessionExpired,
            WaitError::Failed(error) => error,
        })?;
        let key = waiter.key().key.clone();
        waiter.keep();
        Ok(LockResponse {
            header: Some(self.node.headers.at(revision)),
            key,
        })
    }

    /// EL-3: any client may unlock with the key.
    fn unlock(&self, request: UnlockRequest) -> Result<UnlockResponse, EtcdError> {
        self.node.admit(Proposal {
            request_bytes: request.key.len(),
            growth_bytes: None,
        })?;
        let result = self.node.engine.delete(&KeyRange::One(request.key))?;
        Ok(UnlockResponse {
            header: Some(self.node.headers.at(result.revision)),
        })
    }
}

#[tonic::async_trait]
impl Lock for LockService {
    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        let request = self.node.accept::<methods::lock::Lock>(request)?;
        self.node.wait_for_large_write().await;
        let response = self.lock(request).await;
        response.map(Response::new).map_err(status::of_recipe)
    }

    async fn unlock(
        &self,
        request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        let request = self.node.accept::<methods::lock::Unlock>(request)?;
        self.node.wait_for_large_write().await;
        let response = self.unlock(request);
        response.map(Response::new).map_err(status::of_recipe)
    }
}
