//! The lease service.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use revstore_engine::LeaseId;
use revstore_proto::etcdserverpb::lease_server::Lease;
use revstore_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseStatus,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use tonic::{Request, Response, Status, Streaming};

use crate::auth::authorize::{self, Credentials};
use crate::node::shutdown::Begun;
use crate::node::{Node, Proposal};
use crate::request::convert;
use crate::status::EtcdError;

/// `etcdserverpb.Lease`.
#[derive(Debug)]
pub(crate) struct LeaseService {
    node: Arc<Node>,
}

impl LeaseService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    fn grant(&self, request: LeaseGrantRequest) -> Result<LeaseGrantResponse, EtcdError> {
        self.node.propose(Proposal {
            request_bytes: 0,
            grows_bytes: Some(0),
        })?;
        // LE-3: zero lets the engine pick.
        let granted = self
            .node
            .engine
            .grant(LeaseId::new(request.id), request.ttl)?;
        Ok(LeaseGrantResponse {
            header: Some(self.node.current_header()),
            id: granted.id.get(),
            ttl: convert::seconds(granted.ttl),
            error: String::new(),
        })
    }

    fn revoke(&self, request: LeaseRevokeRequest) -> Result<LeaseRevokeResponse, EtcdError> {
        self.node.propose(Proposal::default())?;
        let lease = LeaseId::new(request.id).ok_or(EtcdError::LeaseNotFound)?;
        let revision = self.node.engine.revoke(lease)?;
        Ok(LeaseRevokeResponse {
            header: Some(self.node.headers.at(revision)),
        })
    }

    fn time_to_live(&self, request: LeaseTimeToLiveRequest) -> LeaseTimeToLiveResponse {
        let lease = LeaseId::new(request.id);
        let status = lease.and_then(|lease| self.node.engine.lease(lease, request.keys).ok());
        let (ttl, granted_ttl, keys) = match status {
            Some(status) => (
                convert::seconds(status.remaining),
                convert::seconds(status.granted_ttl),
                status.keys,
            ),
            // LE-10
            None => (-1, 0, Vec::new()),
        };
        LeaseTimeToLiveResponse {
            header: Some(self.node.current_header()),
            id: request.id,
            ttl,
            granted_ttl,
            keys,
        }
    }

    fn leases(&self) -> LeaseLeasesResponse {
        let leases = self.node.engine.leases().into_iter();
        LeaseLeasesResponse {
            header: Some(self.node.current_header()),
            leases: leases
                .map(|lease| LeaseStatus { id: lease.get() })
                .collect(),
        }
    }
}

#[tonic::async_trait]
impl Lease for LeaseService {
    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        self.node.guard(&request, authorize::user)?;
        Ok(Response::new(self.grant(request.into_inner())?))
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        self.node.guard(&request, |request, sender| {
            authorize::lease_revoke(request.id, sender)
        })?;
        Ok(Response::new(self.revoke(request.into_inner())?))
    }

    type LeaseKeepAliveStream = KeepAlives;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<KeepAlives>, Status> {
        Ok(Response::new(KeepAlives {
            stopped: Some(self.node.shutdown.begun()),
            credentials: Credentials::of(&request),
            requests: request.into_inner(),
            node: self.node.clone(),
        }))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        self.node.guard(&request, authorize::lease_time_to_live)?;
        Ok(Response::new(self.time_to_live(request.into_inner())))
    }

    async fn lease_leases(
        &self,
        request: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        self.node.guard(&request, authorize::lease_leases)?;
        Ok(Response::new(self.leases()))
    }
}

/// Renewals: one reply for each request, in order (LE-8), when the client takes it.
#[derive(Debug)]
pub(crate) struct KeepAlives {
    node: Arc<Node>,
    requests: Streaming<LeaseKeepAliveRequest>,
    credentials: Credentials,
    /// Nothing behind the end of the stream.
    stopped: Option<Begun>,
}

impl KeepAlives {
    fn renew(&self, request: LeaseKeepAliveRequest) -> Result<LeaseKeepAliveResponse, EtcdError> {
        authorize::keep_alive(&self.node, request.id, &self.credentials)?;
        // DM-26: from before the renewal.
        let header = self.node.current_header();
        let lease = LeaseId::new(request.id);
        let renewed = lease.and_then(|lease| self.node.engine.keep_alive(lease).ok());
        Ok(LeaseKeepAliveResponse {
            header: Some(header),
            id: request.id,
            ttl: renewed.map_or(0, convert::seconds),
        })
    }
}

impl Stream for KeepAlives {
    type Item = Result<LeaseKeepAliveResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(stopped) = &mut self.stopped else {
            return Poll::Ready(None);
        };
        let end = if Pin::new(stopped).poll(context).is_ready() {
            Some(EtcdError::Stopped.to_status())
        } else {
            match Pin::new(&mut self.requests).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(request))) => match self.renew(request) {
                    Ok(renewed) => return Poll::Ready(Some(Ok(renewed))),
                    Err(denied) => Some(denied.to_status()),
                },
                Poll::Ready(Some(Err(status))) => Some(status),
                Poll::Ready(None) => None,
            }
        };
        self.stopped = None;
        Poll::Ready(end.map(Err))
    }
}
