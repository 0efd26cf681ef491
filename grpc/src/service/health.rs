//! gRPC's health service.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use revstore_proto::health::health_check_response::ServingStatus;
use revstore_proto::health::health_server::Health;
use revstore_proto::health::{HealthCheckRequest, HealthCheckResponse};
use tonic::{Request, Response, Status};

use crate::methods;
use crate::node::Node;
use crate::node::admission::Limits;
use crate::node::shutdown::ShutdownBegun;
use crate::status::EtcdError;

/// `grpc.health.v1.Health`, for the server as a whole: there is no status per service (HL-1).
#[derive(Debug)]
pub(crate) struct HealthService {
    node: Arc<Node>,
}

impl HealthService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }
}

/// HL-1: only the empty name, which means the whole server, has a status.
pub(crate) fn validate_check(request: &HealthCheckRequest, _: &Limits) -> Result<(), EtcdError> {
    if request.service.is_empty() {
        Ok(())
    } else {
        Err(EtcdError::UnknownHealthService)
    }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.node.accept::<methods::health::Check>(request)?;
        Ok(Response::new(serving()))
    }

    type WatchStream = HealthStream;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthStream>, Status> {
        self.node.accept::<methods::health::Watch>(request)?;
        Ok(Response::new(HealthStream {
            is_sent: false,
            shutdown: Some(self.node.shutdown.begun()),
        }))
    }
}

/// A stream that reports SERVING once and ends when the server stops.
#[derive(Debug)]
pub(crate) struct HealthStream {
    is_sent: bool,
    /// `None` after the end of the stream.
    shutdown: Option<ShutdownBegun>,
}

impl Stream for HealthStream {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(shutdown) = &mut self.shutdown else {
            return Poll::Ready(None);
        };
        if Pin::new(shutdown).poll(context).is_ready() {
            self.shutdown = None;
            return Poll::Ready(Some(Err(EtcdError::Stopped.to_status())));
        }
        if std::mem::replace(&mut self.is_sent, true) {
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(serving())))
    }
}

fn serving() -> HealthCheckResponse {
    HealthCheckResponse {
        status: ServingStatus::Serving.into(),
    }
}
