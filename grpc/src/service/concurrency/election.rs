//! The election service.

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

use crate::auth::authorize;
use crate::node::Node;
use crate::node::shutdown::Begun;
use crate::service::concurrency::wait_queue::{self, Candidate, Out, Place};
use crate::status::{self, EtcdError};

/// `v3electionpb.Election`: who has stood in line for longest leads, and shows a value.
#[derive(Debug)]
pub(crate) struct ElectionService {
    node: Arc<Node>,
}

impl ElectionService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// Waits for leadership. Dropped while it waits, it takes the key back (EL-4).
    async fn campaign(&self, request: CampaignRequest) -> Result<CampaignResponse, EtcdError> {
        let CampaignRequest { name, lease, value } = request;
        let lease = LeaseId::new(lease);
        let entered = Candidate::enter(&self.node, &name, lease, value.clone())?;
        let candidate = entered.candidate;
        // EL-6: who stands in line already changes the value that it shows.
        if entered.present.is_some_and(|kv| kv.value() != &*value) {
            let shown = candidate
                .place()
                .show(&self.node, value, Some(candidate.lease()))?;
            shown.ok_or(EtcdError::ElectionNotLeader)?;
        }
        candidate.reach_front().await.map_err(|out| match out {
            // EL-5
            Out::Lost => EtcdError::ElectionNotLeader,
            Out::Error(error) => error,
        })?;
        let Place { key, created } = candidate.place().clone();
        let lease = candidate.lease();
        candidate.stay();
        Ok(CampaignResponse {
            // That of the key, not that of the victory.
            header: Some(self.node.headers.at(entered.revision)),
            leader: Some(LeaderKey {
                name,
                key,
                rev: created.0,
                lease: lease.get(),
            }),
        })
    }

    fn proclaim(&self, request: ProclaimRequest) -> Result<ProclaimResponse, EtcdError> {
        let (place, lease) = place(request.leader)?;
        let shown = place.show(&self.node, request.value, lease)?;
        let revision = shown.ok_or(EtcdError::ElectionNotLeader)?;
        Ok(ProclaimResponse {
            header: Some(self.node.headers.at(revision)),
        })
    }

    fn leader(&self, request: &LeaderRequest) -> Result<LeaderResponse, EtcdError> {
        let (revision, leader) = wait_queue::front(&self.node, &wait_queue::line(&request.name))?;
        let leader = leader.ok_or(EtcdError::NoElectionLeader)?;
        Ok(response(&self.node, revision, &leader))
    }

    fn guard_line(&self, request: &Request<LeaderRequest>) -> Result<(), EtcdError> {
        self.node.guard(request, |request, sender| {
            sender
                .access()?
                .check_read_of(&wait_queue::line(&request.name))
        })
    }

    fn resign(&self, request: ResignRequest) -> Result<ResignResponse, EtcdError> {
        let (place, _) = place(request.leader)?;
        let revision = place.give_up(&self.node)?;
        Ok(ResignResponse {
            header: Some(self.node.headers.at(revision)),
        })
    }
}

fn leader_key(leader: Option<&LeaderKey>) -> &[u8] {
    leader.map_or(&[], |leader| &leader.key)
}

/// What a proof of leadership stands for; its name does not matter.
fn place(leader: Option<LeaderKey>) -> Result<(Place, Option<LeaseId>), EtcdError> {
    let leader = leader.ok_or(EtcdError::LeaderNotGiven)?;
    if leader.key.is_empty() {
        return Err(EtcdError::EmptyKey);
    }
    let place = Place {
        key: leader.key,
        created: Revision(leader.rev),
    };
    Ok((place, LeaseId::new(leader.lease)))
}

fn response(node: &Node, revision: Revision, leader: &KeyValue) -> LeaderResponse {
    LeaderResponse {
        header: Some(node.headers.at(revision)),
        kv: Some(key_value(leader)),
    }
}

/// The pair as a message of its own: elections are few, so nothing is gained by sharing.
fn key_value(kv: &KeyValue) -> mvccpb::KeyValue {
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
        let guarded = self.node.guard(&request, |request, sender| {
            wait_queue::guard(&request.name, request.lease, sender)
        });
        guarded.map_err(status::of_recipe)?;
        let elected = self.campaign(request.into_inner()).await;
        elected.map(Response::new).map_err(status::of_recipe)
    }

    async fn proclaim(
        &self,
        request: Request<ProclaimRequest>,
    ) -> Result<Response<ProclaimResponse>, Status> {
        let guarded = self.node.guard(&request, |request, sender| {
            let lease = request.leader.as_ref().map_or(0, |leader| leader.lease);
            authorize::place(leader_key(request.leader.as_ref()), lease, sender)
        });
        guarded.map_err(status::of_recipe)?;
        let proclaimed = self.proclaim(request.into_inner());
        proclaimed.map(Response::new).map_err(status::of_recipe)
    }

    async fn leader(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<LeaderResponse>, Status> {
        self.guard_line(&request).map_err(status::of_recipe)?;
        let leader = self.leader(request.get_ref());
        leader.map(Response::new).map_err(status::of_recipe)
    }

    type ObserveStream = Observation;

    async fn observe(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<Observation>, Status> {
        self.guard_line(&request).map_err(status::of_recipe)?;
        let line = wait_queue::line(&request.get_ref().name);
        let observation = Observation::begin(self.node.clone(), line);
        observation.map(Response::new).map_err(status::of_recipe)
    }

    async fn resign(
        &self,
        request: Request<ResignRequest>,
    ) -> Result<Response<ResignResponse>, Status> {
        let guarded = self.node.guard(&request, |request, sender| {
            authorize::place(leader_key(request.leader.as_ref()), 0, sender)
        });
        guarded.map_err(status::of_recipe)?;
        let resigned = self.resign(request.into_inner());
        resigned.map(Response::new).map_err(status::of_recipe)
    }
}

/// Who leads: now, and at every change (EL-9).
///
/// A watch over the line tells when something may have changed for the leader; who leads since is
/// read at the very revision of that. What is still to be told is bounded by what one response of
/// the watch holds.
#[derive(Debug)]
pub(crate) struct Observation {
    node: Arc<Node>,
    line: KeyRange,
    watches: WatchStream,
    /// The leader, as it was told last.
    leader: Option<KeyValue>,
    untold: VecDeque<LeaderResponse>,
    /// Nothing behind the end of the stream.
    stopped: Option<Begun>,
}

impl Observation {
    fn begin(node: Arc<Node>, line: KeyRange) -> Result<Self, EtcdError> {
        let mut observation = Self {
            watches: node.engine.watch_stream(),
            line,
            leader: None,
            untold: VecDeque::new(),
            stopped: Some(node.shutdown.begun()),
            node,
        };
        observation.look_afresh()?;
        Ok(observation)
    }

    /// Begins at the present, leaving out what may have been before.
    fn look_afresh(&mut self) -> Result<(), EtcdError> {
        let (revision, leader) = wait_queue::front(&self.node, &self.line)?;
        self.watches = self.node.engine.watch_stream();
        let line = WatchOptions::of(self.line.clone()).from(Revision(revision.0 + 1));
        self.watches.watch(line).map_err(|_| EtcdError::Internal)?;
        self.follow(revision, leader);
        Ok(())
    }

    fn follow(&mut self, revision: Revision, leader: Option<KeyValue>) {
        if let Some(leader) = leader.as_ref().filter(|_| self.leader != leader) {
            self.untold
                .push_back(response(&self.node, revision, leader));
        }
        self.leader = leader;
    }

    fn take_in(&mut self, told: WatchResponse) -> Result<(), EtcdError> {
        let events = match told {
            WatchResponse::Events { events, .. } => events,
            WatchResponse::Progress { .. } => return Ok(()),
            WatchResponse::Compacted { .. } => return self.look_afresh(),
        };
        let same_revision =
            |one: &Event, next: &Event| one.kv.mod_revision() == next.kv.mod_revision();
        for events in events.chunk_by(same_revision) {
            let concerns_leader = |event: &Event| match &self.leader {
                Some(leader) => leader.key() == event.kv.key(),
                None => true,
            };
            if !events.iter().any(concerns_leader) {
                continue;
            }
            let revision = events[0].kv.mod_revision();
            match wait_queue::front_at(&self.node, &self.line, revision) {
                Ok((_, leader)) => self.follow(revision, leader),
                Err(EtcdError::Compacted) => return self.look_afresh(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Stream for Observation {
    type Item = Result<LeaderResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let observation = &mut *self;
        let Some(stopped) = &mut observation.stopped else {
            return Poll::Ready(None);
        };
        let error = if Pin::new(stopped).poll(context).is_ready() {
            EtcdError::Stopped
        } else {
            loop {
                if let Some(response) = observation.untold.pop_front() {
                    return Poll::Ready(Some(Ok(response)));
                }
                let Poll::Ready(told) = observation.watches.poll_response(context) else {
                    return Poll::Pending;
                };
                if let Err(error) = observation.take_in(told) {
                    break error;
                }
            }
        };
        observation.stopped = None;
        Poll::Ready(Some(Err(status::of_recipe(error))))
    }
}
