//! A request: access, and which of the services it is for.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::Body;
use http_body_util::Full;
use tonic::body::Body as TonicBody;
use tonic::codegen::StdError;
use tower_service::Service;

use super::access::Access;
use super::grpc::Grpc;
use super::{REQUEST_BYTES_MAX, json};
use crate::control::Control;
use crate::proto::control_server::ControlServer;

/// The length of what precedes a message in a body of gRPC.
const PREFIX_BYTES: usize = 5;

/// The service of a port of control, for any number of connections: gRPC calls of `revstore.control.v1.Control`, and
/// their JSON form, `POST /control/v1/METHOD`.
///
/// Clones share the control. A request has at most [`REQUEST_BYTES_MAX`](super::REQUEST_BYTES_MAX) bytes, and arrives within
/// 10 s, except for the files of `StoreLoad` and `StoreImport`, whose parts do. Needs a tokio runtime with time.
#[derive(Clone, Debug)]
pub struct ControlService {
    control: Control,
    grpc: ControlServer<Grpc>,
    access: Arc<Access>,
}

impl ControlService {
    /// Creates the service of a control.
    pub fn new(control: Control, access: Access) -> Self {
        let grpc = ControlServer::new(Grpc::new(control.clone()));
        Self {
            control,
            grpc: grpc.max_decoding_message_size(REQUEST_BYTES_MAX),
            access: Arc::new(access),
        }
    }

    async fn respond<B>(mut self, request: Request<B>) -> Response<TonicBody>
    where
        B: Body<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
    {
        let is_grpc = is_grpc(&request);
        let access = self.access.clone();
        let (parts, body) = request.into_parts();
        let checked = {
            let (uri, headers) = (parts.uri.clone(), parts.headers.clone());
            // The token file is read.
            tokio::task::spawn_blocking(move || access.check(&uri, &headers)).await
        };
        let checked =
            checked.unwrap_or_else(|_| Err(tonic::Status::internal("control has failed")));
        match checked {
            Err(status) if is_grpc => status.into_http(),
            Err(status) => json::refusal(&status),
            Ok(()) if is_grpc => {
                let path = parts.uri.path();
                if path.ends_with("/StoreLoad") || path.ends_with("/StoreImport") {
                    // A file, each chunk of which has limits of its own.
                    let request = Request::from_parts(parts, body);
                    let Ok(response) = self.grpc.call(request).await;
                    return response;
                }
                match json::read(body, PREFIX_BYTES + REQUEST_BYTES_MAX).await {
                    Ok(body) => {
                        let request = Request::from_parts(parts, Full::new(body));
                        let Ok(response) = self.grpc.call(request).await;
                        response
                    }
                    Err(refusal) => refusal.status().into_http(),
                }
            }
            Ok(()) => json::respond(&self.control, self.grpc, &parts, body).await,
        }
    }
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|it| it.as_bytes().starts_with(b"application/grpc"))
}

impl<B> Service<Request<B>> for ControlService
where
    B: Body<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
{
    type Response = Response<TonicBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<TonicBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.respond(request).await) })
    }
}
