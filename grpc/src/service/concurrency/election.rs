//! The Election service.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use revstore_engine::{
    Event, KeyRange, KeyValue, LeaseId, Revision, WatchOptions, WatchResponse, WatchStream,
};
use revstore_proto::mvccpb;
use revstore_proto::v3electionpb::election_server::Election;
use revstore_proto::v3electionpb::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest,
    ProclaimResponse, ResignRequest, ResignResponse,
};
use tonic::{Request, Response, Status};

use super::wait_queue::{self, WaitError, Waiter, WaiterKey};
use crate::methods;
use crate::node::Node;
use crate::node::shutdown::ShutdownBegun;
use crate::status::{self, EtcdError};

/// `v3electionpb.Election`: the waiter with the oldest key is the leader, and the value of that key is the
/// proclaimed value. etcd's `electionServer`.
#[derive(Debug)]
pub(crate) struct ElectionService {
    node: Arc<Node>,
}

impl ElectionService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// Waits for leadership. If the future is dropped before that, the waiter's key is deleted (EL-4).
    async fn campaign(&self, request: CampaignRequest) -> Result<CampaignResponse, EtcdError> {
        let CampaignRequest { name, lease, value } = request;
        let lease = LeaseId::new(lease);
        let joined = Waiter::join(&self.node, &name, lease, value.clone())?;
        let waiter = joined.waiter;
        // EL-6: if the lease is in the queue already, its key gets the new value.
        if joined.existing.is_some_and(|kv| kv.value() != &*value) {
            let changed = waiter
                .key()
                .set_value(&self.node, value, Some(waiter.lease()))?;
            changed.ok_or(EtcdError::ElectionNotLeader)?;
        }
        waiter.reach_front().await.map_err(|error| match error {
            // EL-5
            WaitError::KeyLost => EtcdError::ElectionNotLeader,
            WaitError::Failed(error) => error,
        })?;
        let WaiterKey { key, created } = waiter.key().clone();
        let lease = waiter.lease();
        waiter.keep();
        Ok(CampaignResponse {
            // The revision at which the waiter joined the queue, not the one at which it was elected.
            header: Some(self.node.headers.at(joined.revision)),
            leader: Some(LeaderKey {
                name,
                key,
                rev: created.0,
                lease: lease.get(),
            }),
        })
    }

    fn proclaim(&self, request: ProclaimRequest) -> Result<ProclaimResponse, EtcdError> {
        let (key, lease) = convert_leader(request.leader)?;
        let changed = key.set_value(&self.node, request.value, lease)?;
        let revision = changed.ok_or(EtcdError::ElectionNotLeader)?;
        Ok(ProclaimResponse {
            header: Some(self.node.headers.at(revision)),
        })
    }

    fn leader(&self, request: &LeaderRequest) -> Result<LeaderResponse, EtcdError> {
        let queue = wait_queue::range(&request.name);
        let (revision, leader) = wait_queue::front(&self.node, &queue)?;
        let leader = leader.ok_or(EtcdError::NoElectionLeader)?;
        Ok(leader_response(&self.node, revision, &leader))
    }

    fn resign(&self, request: ResignRequest) -> Result<ResignResponse, EtcdError> {
        let (key, _) = convert_leader(request.leader)?;
        let revision = key.delete(&self.node)?;
        Ok(ResignResponse {
            header: Some(self.node.headers.at(revision)),
        })
    }
}

/// Converts a leader's key and lease; the name of the election is not needed.
fn convert_leader(leader: Option<LeaderKey>) -> Result<(WaiterKey, Option<LeaseId>), EtcdError> {
    let leader = leader.ok_or(EtcdError::LeaderNotGiven)?;
    let key = WaiterKey {
        key: leader.key,
        created: Revision(leader.rev),
    };
    Ok((key, LeaseId::new(leader.lease)))
}

fn leader_response(node: &Node, revision: Revision, leader: &KeyValue) -> LeaderResponse {
    LeaderResponse {
        header: Some(node.headers.at(revision)),
        kv: Some(copy_kv(leader)),
    }
}

/// Copies a record into the generated message. Elections are rare, so the cost is not relevant.
fn copy_kv(kv: &KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: Bytes::copy_from_slice(kv.key()),
        create_revision: kv.create_revision().0,
        mod_revision: kv.mod_revision().0,
        version: kv.version(),
        value: Bytes::copy_from_slice(kv.value()),
        lease: kv.lease().map_or(0, LeaseId::get),
    }
}

#[tonic::async_trait]
impl Election for ElectionService {
    async fn campaign(
        &self,
        request: Request<CampaignRequest>,
    ) -> Result<Response<CampaignResponse>, Status> {
        let request = self.node.accept::<methods::election::Campaign>(request)?;
        self.node.wait_for_large_write().await;
        let response = self.campaign(request).await;
        response.map(Response::new).map_err(status::of_recipe)
    }

    async fn proclaim(
        &self,
        request: Request<ProclaimRequest>,
    ) -> Result<Response<ProclaimResponse>, Status> {
        let request = self.node.accept::<methods::election::Proclaim>(request)?;
        self.node.wait_for_large_write().await;
        let response = self.proclaim(request);
        response.map(Response::new).map_err(status::of_recipe)
    }

    async fn leader(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<LeaderResponse>, Status> {
        let request = self.node.accept::<methods::election::Leader>(request)?;
        let response = self.leader(&request);
        response.map(Response::new).map_err(status::of_recipe)
    }

    type ObserveStream = LeaderStream;

    async fn observe(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<LeaderStream>, Status> {
        let request = self.node.accept::<methods::election::Observe>(request)?;
        let stream = LeaderStream::start(self.node.clone(), wait_queue::range(&request.name));
        stream.map(Response::new).map_err(status::of_recipe)
    }

    async fn resign(
        &self,
        request: Request<ResignRequest>,
    ) -> Result<Response<ResignResponse>, Status> {
        let request = self.node.accept::<methods::election::Resign>(request)?;
        self.node.wait_for_large_write().await;
        let response = self.resign(request);
        response.map(Response::new).map_err(status::of_recipe)
    }
}

/// The stream of Observe: the current leader, then each change of the leader or its value (EL-9).
///
/// A watcher over the queue reports the revisions at which the leader may have changed. The leader is then
/// read at exactly that revision. The number of pending responses is bounded by the number of events in one
/// watch response.
#[derive(Debug)]
pub(crate) struct LeaderStream {
    node: Arc<Node>,
    queue: KeyRange,
    watches: WatchStream,
    /// The leader in the last response.
    leader: Option<KeyValue>,
    pending: VecDeque<LeaderResponse>,
    /// `None` after the end of the stream.
    shutdown: Option<ShutdownBegun>,
}

impl LeaderStream {
    fn start(node: Arc<Node>, queue: KeyRange) -> Result<Self, EtcdError> {
        let mut stream = Self {
            watches: node.engine.watch_stream(),
            queue,
            leader: None,
            pending: VecDeque::new(),
            shutdown: Some(node.shutdown.begun()),
            node,
        };
        stream.restart()?;
        Ok(stream)
    }

    /// Starts again at the current revision and skips the changes before it.
    fn restart(&mut self) -> Result<(), EtcdError> {
        let (revision, leader) = wait_queue::front(&self.node, &self.queue)?;
        self.watches = self.node.engine.watch_stream();
        let changes = WatchOptions::of(self.queue.clone()).from(Revision(revision.0 + 1));
        let created = self.watches.watch(changes);
        created.map_err(|_| EtcdError::Internal)?;
        self.set_leader(revision, leader);
        Ok(())
    }

    fn set_leader(&mut self, revision: Revision, leader: Option<KeyValue>) {
        if let Some(leader) = leader.as_ref().filter(|_| self.leader != leader) {
            let response = leader_response(&self.node, revision, leader);
            self.pending.push_back(response);
        }
        self.leader = leader;
    }

    fn apply(&mut self, response: WatchResponse) -> Result<(), EtcdError> {
        let events = match response {
            WatchResponse::Events { events, .. } => events,
            WatchResponse::Progress { .. } => return Ok(()),
            WatchResponse::Compacted { .. } => return self.restart(),
        };
        let is_same_revision =
            |one: &Event, next: &Event| one.kv.mod_revision() == next.kv.mod_revision();
        for events in events.chunk_by(is_same_revision) {
            let may_change_leader = |event: &Event| match &self.leader {
                Some(leader) => leader.key() == event.kv.key(),
                None => true,
            };
            if !events.iter().any(may_change_leader) {
                continue;
            }
            let revision = events[0].kv.mod_revision();
            match wait_queue::front_at(&self.node, &self.queue, revision) {
                Ok((_, leader)) => self.set_leader(revision, leader),
                Err(EtcdError::Compacted) => return self.restart(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Stream for LeaderStream {
    type Item = Result<LeaderResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        let Some(shutdown) = &mut stream.shutdown else {
            return Poll::Ready(None);
        };
        let error = if Pin::new(shutdown).poll(context).is_ready() {
            EtcdError::Stopped
        } else {
            loop {
                if let Some(response) = stream.pending.pop_front() {
                    return Poll::Ready(Some(Ok(response)));
                }
                let Poll::Ready(response) = stream.watches.poll_response(context) else {
                    return Poll::Pending;
                };
                if let Err(error) = stream.apply(response) {
                    break error;
                }
            }
        };
        stream.shutdown = None;
        Poll::Ready(Some(Err(status::of_recipe(error))))
    }
}
