//! The health service.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use revstore_proto::health::health_check_response::ServingStatus;
use revstore_proto::health::health_server::Health;
use revstore_proto::health::{HealthCheckRequest, HealthCheckResponse};
use tonic::{Request, Response, Status};

use crate::node::Node;
use crate::node::shutdown::Begun;
use crate::status::EtcdError;

/// `grpc.health.v1.Health`, of the server as a whole: no service is ill alone (HL-1).
#[derive(Debug)]
pub(crate) struct HealthService {
    node: Arc<Node>,
}

impl HealthService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        check_service(request.get_ref())?;
        Ok(Response::new(serving()))
    }

    type WatchStream = HealthWatch;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthWatch>, Status> {
        check_service(request.get_ref())?;
        Ok(Response::new(HealthWatch {
            told: false,
            stopped: Some(self.node.shutdown.begun()),
        }))
    }
}

/// Tells that the server serves, and ends when it stops.
#[derive(Debug)]
pub(crate) struct HealthWatch {
    told: bool,
    /// Nothing behind the end of the stream.
    stopped: Option<Begun>,
}

impl Stream for HealthWatch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(stopped) = &mut self.stopped else {
            return Poll::Ready(None);
        };
        if Pin::new(stopped).poll(context).is_ready() {
            self.stopped = None;
            return Poll::Ready(Some(Err(EtcdError::Stopped.to_status())));
        }
        if std::mem::replace(&mut self.told, true) {
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

fn check_service(request: &HealthCheckRequest) -> Result<(), EtcdError> {
    if request.service.is_empty() {
        Ok(())
    } else {
        Err(EtcdError::UnknownHealthService)
    }
}
