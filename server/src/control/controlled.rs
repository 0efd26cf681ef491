//! The service of the connections of a port.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{Router, body::Body, response::IntoResponse};
use http::{HeaderMap, Request, Response, StatusCode};
use parking_lot::Mutex;
use revstore_control::{
    call::client_name,
    open::{Connection, Work},
};
use revstore_grpc::CertifiedName;
use revstore_host::net::ClientIdentity;
use tokio::task_local;
use tower_service::Service;

use super::{
    responses::{HttpBody, Opaque},
    services::ControlledServices,
    stage::{Stage, StagedNode},
};
use crate::{
    http::{Dispatch, is_grpc},
    node::PortKind,
};

task_local! {
    /// The sender of the HTTP request that the gateway converts to a call.
    static CALLER: Arc<Caller>;
}

/// The service of a port of a server with control.
#[derive(Clone, Debug)]
pub(crate) struct Controlled {
    stage: Stage,
    kind: PortKind,
    is_tls: bool,
    connection: ConnectionClient,
}

/// The client of a connection.
#[derive(Clone, Debug, Default)]
struct ConnectionClient {
    connection: Option<Arc<Connection>>,
    certified: Option<CertifiedName>,
    address: Option<std::net::SocketAddr>,
}

/// The sender of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) certified: Option<CertifiedName>,
    /// The address for the log, of a call over gRPC.
    pub(super) address: Option<std::net::SocketAddr>,
    /// The name of the client.
    pub(super) client: Option<Arc<str>>,
    /// Of a request that the gateway converts: what counts it until its call begins.
    pub(super) http: Option<HttpWork>,
    /// Of a request that the gateway converts: the node that answers it.
    pub(super) node: Option<Arc<StagedNode>>,
}

/// What counts a request that is not a call for automatic time. A leaf lock, held for a change.
pub(super) type HttpWork = Arc<Mutex<Work>>;

impl Caller {
    /// Returns the sender of the HTTP request that the gateway converts now.
    pub(super) fn of_gateway() -> Self {
        let caller = CALLER.try_with(|caller| (**caller).clone());
        Self {
            // The gateway does not pass the certificate on (TL-2), nor the address.
            certified: None,
            address: None,
            ..caller.unwrap_or_default()
        }
    }
}

impl Controlled {
    pub(crate) fn new(stage: Stage, kind: PortKind, is_tls: bool) -> Self {
        Self {
            stage,
            kind,
            is_tls,
            connection: ConnectionClient::default(),
        }
    }

    /// Returns the service of a connection with this client.
    pub(crate) fn for_client(&self, client: ClientIdentity) -> Dispatch {
        let open = &self.stage.interceptor().open;
        let connection = client.connection.and_then(|id| open.connection(id).ok());
        let controlled = Self {
            connection: ConnectionClient {
                connection,
                certified: client.common_name.clone().map(CertifiedName::new),
                address: client.address,
            },
            ..self.clone()
        };
        let router = Router::new().fallback_service(controlled);
        Dispatch::new(None, Some(router)).for_client(client)
    }

    fn caller(&self, headers: &HeaderMap) -> Caller {
        let connection = &self.connection;
        let client = client_name(headers);
        if let Some(connection) = &connection.connection {
            connection.count_request(client.as_ref());
        }
        Caller {
            connection: connection.connection.clone(),
            certified: connection.certified.clone(),
            address: connection.address,
            client,
            http: None,
            node: None,
        }
    }
}

impl Service<Request<Body>> for Controlled {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let node = self.stage.current();
        let caller = self.caller(request.headers());
        let (grpc, http) = node.of_port(self.kind, self.is_tls);
        match (grpc, http) {
            (Some(grpc), _) if is_grpc(&request) => {
                let services = ControlledServices::new(
                    grpc.clone(),
                    self.stage.interceptor().clone(),
                    node.engine.clone(),
                    node.shutdown.clone(),
                    self.stage.message_bytes_max(),
                );
                let mut services = services.on_node(&node, caller);
                let response = services.call(request);
                Box::pin(async move {
                    let response = response.await?;
                    Ok(response.map(|body| Body::new(Opaque(body))))
                })
            }
            (_, Some(http)) => {
                let mut http = http.clone();
                let activity = self.stage.interceptor().open.activity();
                let work: HttpWork = Arc::new(Mutex::new(activity.start()));
                let caller = Caller {
                    http: Some(work.clone()),
                    node: Some(node.clone()),
                    ..caller
                };
                let response = CALLER.scope(Arc::new(caller), async move {
                    // Called in the scope.
                    http.call(request).await
                });
                Box::pin(async move {
                    let response = response.await?;
                    Ok(response.map(|body| Body::new(HttpBody::new(body, work, node))))
                })
            }
            // HT-4
            (_, None) => Box::pin(async { Ok(StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response()) }),
        }
    }
}
