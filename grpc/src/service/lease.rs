//! The Lease service.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use prost::Message;
use revstore_engine::LeaseId;
use revstore_proto::etcdserverpb::lease_server::Lease;
use revstore_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseStatus,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use tonic::{Request, Response, Status, Streaming};

use crate::auth::credentials::Credentials;
use crate::deadline::WriteStart;
use crate::encode::large_answer::{InParts, LargeAnswer};
use crate::heavy::{ANSWER_BYTES, Cost, Reservation};
use crate::methods;
use crate::node::Node;
use crate::node::admission::Proposal;
use crate::node::shutdown::ShutdownBegun;
use crate::node::slow::ApplyOp;
use crate::status::EtcdError;

/// `etcdserverpb.Lease`; etcd's `LeaseServer` and `quotaLeaseServer`.
#[derive(Debug)]
pub(crate) struct LeaseService {
    node: Arc<Node>,
}

impl LeaseService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// Runs a request, on a worker if it is heavy.
    async fn run<T: Send + 'static>(
        &self,
        cost: Cost,
        work: impl FnOnce(&Node, Option<Reservation>) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        if cost.is_quick() {
            return work(&self.node, None);
        }
        Box::pin(self.node.run_slowly(cost, work)).await
    }

    /// Returns the response with a message that may be large, which is encoded at once in that case.
    fn respond<M: Message + InParts>(
        node: &Node,
        message: M,
        items: usize,
        reservation: Option<Reservation>,
    ) -> Result<Response<M>, EtcdError> {
        let encoded_len = message.encoded_len();
        if !LargeAnswer::is_large(encoded_len, items) {
            return Ok(Response::new(message));
        }
        let bytes = ANSWER_BYTES + encoded_len as u64;
        let reservation = match reservation {
            Some(mut reservation) => {
                reservation.resize(bytes);
                reservation
            }
            // A response of this size needs no worker. Without memory for it, it is sent as it is.
            None => match node.heavy.memory.try_reserve(bytes) {
                Some(reservation) => reservation,
                None => return Ok(Response::new(message)),
            },
        };
        LargeAnswer::respond(message, encoded_len, reservation, &node.heavy)
    }

    fn grant(&self, request: LeaseGrantRequest) -> Result<LeaseGrantResponse, EtcdError> {
        self.node.admit(Proposal {
            request_bytes: 0,
            growth_bytes: Some(0),
        })?;
        let (engine, slow) = (&self.node.engine, &self.node.slow);
        let times = slow.times();
        // LE-3: with the id 0 the engine chooses one.
        let granted = engine.grant(LeaseId::new(request.id), request.ttl);
        slow.observe(ApplyOp::LeaseGrant, times, granted.is_ok());
        let granted = granted?;
        Ok(LeaseGrantResponse {
            header: Some(self.node.current_header()),
            id: granted.id.get(),
            ttl: seconds(granted.ttl),
            error: String::new(),
        })
    }
}

fn revoke(node: &Node, request: LeaseRevokeRequest) -> Result<LeaseRevokeResponse, EtcdError> {
    node.admit(Proposal::default())?;
    let lease = LeaseId::new(request.id).ok_or(EtcdError::LeaseNotFound)?;
    let times = node.slow.times();
    let revision = node.engine.revoke(lease);
    node.slow
        .observe(ApplyOp::LeaseRevoke, times, revision.is_ok());
    Ok(LeaseRevokeResponse {
        header: Some(node.headers.at(revision?)),
    })
}

fn time_to_live(node: &Node, request: LeaseTimeToLiveRequest) -> LeaseTimeToLiveResponse {
    let lease = LeaseId::new(request.id);
    let status = lease.and_then(|lease| node.engine.lease(lease, request.keys).ok());
    let (ttl, granted_ttl, keys) = match status {
        Some(status) => (
            seconds(status.remaining),
            seconds(status.granted_ttl),
            status.keys,
        ),
        // LE-10
        None => (-1, 0, Vec::new()),
    };
    LeaseTimeToLiveResponse {
        header: Some(node.current_header()),
        id: request.id,
        ttl,
        granted_ttl,
        keys,
    }
}

fn leases(node: &Node) -> LeaseLeasesResponse {
    let leases = node.engine.leases().into_iter();
    LeaseLeasesResponse {
        header: Some(node.current_header()),
        leases: leases
            .map(|lease| LeaseStatus { id: lease.get() })
            .collect(),
    }
}

#[tonic::async_trait]
impl Lease for LeaseService {
    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let request = self.node.accept::<methods::lease::LeaseGrant>(request)?;
        Ok(Response::new(self.grant(request)?))
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        let start = request.extensions().get::<WriteStart>().cloned();
        let cost = Cost::of_lease_revoke(&self.node.engine, *request.get_ref());
        // AU-7: the authorization visits the keys, too.
        let work = move |node: &Node, _memory| {
            let request = node.accept::<methods::lease::LeaseRevoke>(request)?;
            WriteStart::check(start.as_ref())?;
            Ok(Response::new(revoke(node, request)?))
        };
        if cost.is_quick()
            && let Some(_open) = self.node.heavy.write_gate.try_pass()
        {
            return work(&self.node, None);
        }
        Box::pin(self.node.write_slowly(cost, work)).await
    }

    type LeaseKeepAliveStream = KeepAliveStream;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<KeepAliveStream>, Status> {
        Ok(Response::new(KeepAliveStream {
            shutdown: Some(self.node.shutdown.begun()),
            credentials: Credentials::of(&request),
            requests: request.into_inner(),
            node: self.node.clone(),
        }))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        let cost = Cost::of_lease_time_to_live(&self.node.engine, request.get_ref());
        let work = move |node: &Node, reservation| {
            let request = node.accept::<methods::lease::LeaseTimeToLive>(request)?;
            let response = time_to_live(node, request);
            let keys = response.keys.len();
            Ok(Self::respond(node, response, keys, reservation)?)
        };
        self.run(cost, work).await
    }

    async fn lease_leases(
        &self,
        request: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        let cost = Cost::of_lease_leases(&self.node.engine);
        let work = move |node: &Node, reservation| {
            node.accept::<methods::lease::LeaseLeases>(request)?;
            let response = leases(node);
            let leases = response.leases.len();
            Ok(Self::respond(node, response, leases, reservation)?)
        };
        self.run(cost, work).await
    }
}

/// The stream of keep-alive responses. Each request has one response, in the order of the requests
/// (LE-8). A request is handled when the stream is polled.
#[derive(Debug)]
pub(crate) struct KeepAliveStream {
    node: Arc<Node>,
    requests: Streaming<LeaseKeepAliveRequest>,
    credentials: Credentials,
    /// `None` after the end of the stream.
    shutdown: Option<ShutdownBegun>,
}

impl KeepAliveStream {
    fn keep_alive(
        &self,
        request: LeaseKeepAliveRequest,
    ) -> Result<LeaseKeepAliveResponse, EtcdError> {
        self.node
            .accept_on_stream::<methods::lease::LeaseKeepAlive>(&request, &self.credentials)?;
        // DM-26: the header has the revision from before the keep-alive.
        let header = self.node.current_header();
        let lease = LeaseId::new(request.id);
        let ttl = lease.and_then(|lease| self.node.engine.keep_alive(lease).ok());
        Ok(LeaseKeepAliveResponse {
            header: Some(header),
            id: request.id,
            ttl: ttl.map_or(0, seconds),
        })
    }
}

impl Stream for KeepAliveStream {
    type Item = Result<LeaseKeepAliveResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(shutdown) = &mut self.shutdown else {
            return Poll::Ready(None);
        };
        let end = if Pin::new(shutdown).poll(context).is_ready() {
            Some(EtcdError::Stopped.to_status())
        } else {
            match Pin::new(&mut self.requests).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(request))) => match self.keep_alive(request) {
                    Ok(response) => return Poll::Ready(Some(Ok(response))),
                    Err(error) => Some(error.to_status()),
                },
                Poll::Ready(Some(Err(status))) => Some(status),
                Poll::Ready(None) => None,
            }
        };
        self.shutdown = None;
        Poll::Ready(end.map(Err))
    }
}

/// Converts a duration to whole seconds, rounded down (LE-10).
fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn le_10_fractions_of_a_second_are_dropped() {
        assert_eq!(seconds(Duration::from_millis(9999)), 9);
        assert_eq!(seconds(Duration::MAX), i64::MAX);
    }
}
