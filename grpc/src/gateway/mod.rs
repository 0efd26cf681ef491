//! The JSON gateway: etcd's services over HTTP and JSON (HT-20 to HT-23).
//!
//! The gateway converts a request into a gRPC call with encoded messages, as on a connection, and converts
//! the response to JSON. So limits, auth and errors are those of the services. etcd uses grpc-gateway for
//! this.
//!
//! | file | contents |
//! |---|---|
//! | `routes.rs` | the method of each path |
//! | `json_objects.rs` | a splitter of a request body into JSON objects |
//! | `transcode.rs` | conversion between JSON and protobuf messages |
//! | `nested_txn.rs` | the same for transactions that are nested deeply |
//! | `json_answer.rs`, `json_writer.rs` | large answers, converted while they are sent |
//! | `raw_codec.rs` | a codec for messages that stay encoded |
//! | `http_response.rs` | HTTP responses: one object, a line for each message, or an error |

mod http_response;
mod json_answer;
mod json_objects;
mod json_writer;
mod nested_txn;
mod raw_codec;
mod routes;
mod transcode;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Body as HttpBody;
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codegen::{BoxFuture, StdError};
use tonic::metadata::{Ascii, AsciiMetadataKey, MetadataMap, MetadataValue};
use tonic::{Status, Streaming};

use self::http_response::JsonLines;
use self::json_objects::JsonObjects;
use self::raw_codec::RawCodec;
use self::routes::Route;
use crate::deadline::{self, TIMEOUT_HEADER};
use crate::node::admission::Limits;
use crate::status;

/// The maximum length of a JSON object, as a multiple of the maximum message length. The factor allows for
/// base64, field names and whitespace.
const JSON_BYTES_PER_MESSAGE_BYTE: usize = 4;

/// The prefix of the names of headers that are passed to the services as metadata.
const METADATA_PREFIX: &str = "grpc-metadata-";

/// etcd's JSON gateway over gRPC services, as an HTTP service for paths that begin with `/v3/` or
/// `/v3beta/`.
///
/// `S` is [`Services`](crate::Services) or a service that wraps it. A clone costs one clone of `S`. Compared
/// with gRPC, a call encodes each message two more times. Large answers with key-values are converted while they
/// are sent.
///
/// ```
/// use http::Request;
/// use revstore_engine::Engine;
/// use revstore_grpc::{Gateway, Limits, Services};
/// use tower_service::Service;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let services = Services::builder(Engine::builder().build()).build();
/// let mut gateway = Gateway::new(services, &Limits::default());
/// let put = Request::post("/v3/kv/put").body(r#"{"key": "a2V5", "value": "dmFsdWU="}"#.to_owned())?;
/// assert_eq!(gateway.call(put).await?.status(), 200);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gateway<S> {
    services: S,
    object_bytes_max: usize,
}

impl<S> Gateway<S> {
    /// Creates a gateway to `services`. `limits` are the limits of the services, which also limit
    /// the JSON objects in requests.
    pub fn new(services: S, limits: &Limits) -> Self {
        let message_bytes_max = limits.message_bytes_max();
        Self {
            services,
            object_bytes_max: message_bytes_max.saturating_mul(JSON_BYTES_PER_MESSAGE_BYTE),
        }
    }
}

impl<S, B> tower_service::Service<Request<B>> for Gateway<S>
where
    S: GrpcService<Body, Future: Send> + Clone + Send + 'static,
    S::ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + Unpin + 'static,
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let response = self.clone().respond(request);
        Box::pin(async move { Ok(response.await) })
    }
}

impl<S> Gateway<S>
where
    S: GrpcService<Body>,
    S::ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + Unpin + 'static,
{
    async fn respond<B>(self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
    {
        let (head, body) = request.into_parts();
        let Some(route) = Route::of_path(head.uri.path()) else {
            return http_response::error(&status::no_route());
        };
        if head.method != Method::POST {
            return http_response::error(&status::only_post());
        }
        let metadata = match metadata(&head.headers) {
            Ok(metadata) => metadata,
            Err(status) => return http_response::error(&status),
        };
        let objects = JsonObjects::new(body, self.object_bytes_max);
        if route.method.is_server_streaming() {
            match self.streaming(route, metadata, objects).await {
                Ok(response) => response,
                Err(status) => http_response::stream_error(&status),
            }
        } else {
            match self.unary(route, metadata, objects).await {
                Ok(response) => response,
                Err(status) => http_response::error(&status),
            }
        }
    }

    async fn unary<B>(
        self,
        route: &Route,
        metadata: MetadataMap,
        objects: JsonObjects<B>,
    ) -> Result<Response<Body>, Status>
    where
        B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
    {
        let request = only_message(route, objects).await?;
        if let Some(layout) = &route.layout {
            return json_answer::call(self.services, route, layout, metadata, request).await;
        }
        let mut grpc = self.ready().await?;
        let request = tonic::Request::from_parts(metadata, http::Extensions::new(), request);
        let response = grpc
            .unary(request, route.grpc_path.clone(), RawCodec)
            .await?;
        http_response::object(&route.method.output(), response.into_inner())
    }

    async fn streaming<B>(
        self,
        route: &Route,
        metadata: MetadataMap,
        objects: JsonObjects<B>,
    ) -> Result<Response<Body>, Status>
    where
        B: HttpBody<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
    {
        let (disconnect, disconnected) = oneshot::channel();
        let messages = if route.method.is_client_streaming() {
            RequestMessages::Many {
                objects,
                route: route.clone(),
                disconnect: Some(disconnect),
            }
        } else {
            RequestMessages::One(Some(only_message(route, objects).await?))
        };
        let mut grpc = self.ready().await?;
        let request = tonic::Request::from_parts(metadata, http::Extensions::new(), messages);
        let response = grpc
            .streaming(request, route.grpc_path.clone(), RawCodec)
            .await;
        let messages: Streaming<Bytes> = response?.into_inner();
        let mut lines = JsonLines::new(messages, disconnected, route.method.output());
        // An error before the first message determines the status code of the HTTP response.
        lines.wait_for_first().await?;
        Ok(http_response::lines(lines))
    }

    /// Waits until the services accept a call.
    async fn ready(self) -> Result<Grpc<S>, Status> {
        // Responses have no size limit (LI-3). The services limit requests.
        let mut grpc = Grpc::new(self.services).max_decoding_message_size(usize::MAX);
        let ready = grpc.ready().await;
        ready.map_err(|error| status::gateway_broken(error.into().as_ref()))?;
        Ok(grpc)
    }
}

/// Returns the message of a method with a single request message: the first object of the body, or
/// the empty message if there is none. Further objects are ignored (HT-21).
async fn only_message<B>(route: &Route, mut objects: JsonObjects<B>) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    let object = std::future::poll_fn(|context| objects.poll_next(context)).await;
    match object.transpose()? {
        Some(json) => transcode::to_message(&route.method.input(), &json),
        None => Ok(Bytes::new()),
    }
}

/// The request messages of a call.
#[derive(Debug)]
enum RequestMessages<B> {
    /// The message of a method with a single request message.
    One(Option<Bytes>),
    /// One message for each object of the body. An invalid object ends the request messages. The
    /// rest of the body is read and discarded, so that the end of the connection is detected.
    Many {
        objects: JsonObjects<B>,
        route: Route,
        /// Notified when the client disconnects, which ends the call. The end of the body alone
        /// does not (WA-16).
        disconnect: Option<oneshot::Sender<()>>,
    },
}

impl<B> Stream for RequestMessages<B>
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self.get_mut() {
            Self::One(message) => Poll::Ready(message.take()),
            Self::Many {
                objects,
                route,
                disconnect,
            } => loop {
                let Some(object) = std::task::ready!(objects.poll_next(context)) else {
                    return Poll::Ready(None);
                };
                match object.and_then(|json| transcode::to_message(&route.method.input(), &json)) {
                    Ok(message) => return Poll::Ready(Some(message)),
                    Err(_invalid) => objects.discard_rest(),
                }
                if objects.is_disconnected()
                    && let Some(disconnect) = disconnect.take()
                {
                    // Sending fails if the call has already ended.
                    let _ = disconnect.send(());
                    return Poll::Ready(None);
                }
            },
        }
    }
}

/// Returns the metadata for the services from the headers. The certificate of the connection is not passed
/// on, so only the token identifies the client, as in etcd (TL-2).
///
/// # Errors
/// The timeout is malformed.
fn metadata(headers: &HeaderMap) -> Result<MetadataMap, Status> {
    let mut metadata = MetadataMap::new();
    for (name, value) in headers {
        let name = match name.as_str().strip_prefix(METADATA_PREFIX) {
            // Only the gateway sets the headers of gRPC itself.
            Some(name) if name.starts_with("grpc-") => continue,
            Some(name) => name,
            None if *name == http::header::AUTHORIZATION => name.as_str(),
            None => continue,
        };
        // Names and values that are invalid in metadata are ignored.
        let Ok(name) = AsciiMetadataKey::from_bytes(name.as_bytes()) else {
            continue;
        };
        if let Ok(value) = MetadataValue::try_from(value.as_bytes()) {
            metadata.append(name, value);
        }
    }
    if let Some(timeout) = timeout(headers)? {
        metadata.insert(TIMEOUT_HEADER, timeout);
    }
    Ok(metadata)
}

/// Returns the timeout of a call as the services receive it (LI-9). Other than over gRPC, a timeout of zero or
/// an empty one is none, and the number may have more digits.
fn timeout(headers: &HeaderMap) -> Result<Option<MetadataValue<Ascii>>, Status> {
    let value = headers.get(TIMEOUT_HEADER).map(HeaderValue::as_bytes);
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let Ok(timeout) = deadline::parse(value) else {
        return Err(status::invalid_gateway_timeout(value));
    };
    if timeout.is_zero() && !value.starts_with(b"-") {
        return Ok(None);
    }
    // Sets the metadata in the form of gRPC, with at most eight digits.
    let mut request = tonic::Request::new(());
    request.set_timeout(timeout);
    Ok(request.metadata().get(TIMEOUT_HEADER).cloned())
}
