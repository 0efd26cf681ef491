//! The JSON gateway: etcd's services for those who speak HTTP and JSON (HT-20 to HT-23).
//!
//! | file | noun |
//! |---|---|
//! | `routes.rs` | which path is which method |
//! | `objects.rs` | the JSON objects of a request body |
//! | `raw_codec.rs` | a codec that leaves messages encoded |
//! | `transcode.rs` | JSON ↔ protobuf, by the descriptors |
//! | `answer.rs` | what goes back: one object, a line for each, or an error |
//!
//! A request becomes the gRPC call that it stands for, with every message encoded as on a
//! connection, and what comes back becomes JSON. So limits, auth and errors are those of the
//! services; nothing is decided here.

mod answer;
mod objects;
mod raw_codec;
mod routes;
mod transcode;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body as HttpBody;
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codegen::{BoxFuture, StdError};
use tonic::metadata::{AsciiMetadataKey, MetadataMap, MetadataValue};
use tonic::{Status, Streaming};

use self::answer::Lines;
use self::objects::Objects;
use self::raw_codec::RawCodec;
use self::routes::Route;
use crate::request::limits::Limits;
use crate::status;

/// How much longer than the message that it stands for a JSON object may be: enough for base64, for
/// names in place of numbers, and for some blanks.
const JSON_BYTES_PER_MESSAGE_BYTE: usize = 4;

/// What the names of headers begin with that are metadata for the services.
const METADATA_PREFIX: &str = "grpc-metadata-";

/// etcd's JSON gateway over gRPC services, as an HTTP service for paths that begin with `/v3/` or
/// `/v3beta/`.
///
/// `S` is [`Services`](crate::Services), or something around it. Clones cost what clones of it cost.
/// A call costs two more encodings of each message than it does over gRPC, and holds the whole of a
/// message as JSON for as long as it is written.
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
    /// A gateway to `services`, which have these limits.
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
    S::ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let call = self.clone().answer(request);
        Box::pin(async move { Ok(call.await) })
    }
}

impl<S> Gateway<S>
where
    S: GrpcService<Body>,
    S::ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
{
    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
    {
        let (head, body) = request.into_parts();
        let Some(route) = Route::of_path(head.uri.path()) else {
            return answer::error(&status::no_route());
        };
        if head.method != Method::POST {
            return answer::error(&status::only_post());
        }
        let metadata = metadata(&head.headers);
        let objects = Objects::new(body, self.object_bytes_max);
        if route.method.is_server_streaming() {
            match self.streaming(route, metadata, objects).await {
                Ok(answered) => answered,
                Err(refused) => answer::stream_error(&refused),
            }
        } else {
            match self.unary(route, metadata, objects).await {
                Ok(answered) => answered,
                Err(refused) => answer::error(&refused),
            }
        }
    }

    async fn unary<B>(
        self,
        route: &Route,
        metadata: MetadataMap,
        objects: Objects<B>,
    ) -> Result<Response<Body>, Status>
    where
        B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
    {
        let request = only_message(route, objects).await?;
        let mut grpc = self.ready().await?;
        let request = tonic::Request::from_parts(metadata, http::Extensions::new(), request);
        let answered = grpc
            .unary(request, route.grpc_path.clone(), RawCodec)
            .await?;
        answer::object(&route.method.output(), answered.into_inner())
    }

    async fn streaming<B>(
        self,
        route: &Route,
        metadata: MetadataMap,
        objects: Objects<B>,
    ) -> Result<Response<Body>, Status>
    where
        B: HttpBody<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
    {
        let (lost, is_lost) = oneshot::channel();
        let messages = if route.method.is_client_streaming() {
            Messages::Many {
                objects,
                route: route.clone(),
                lost: Some(lost),
            }
        } else {
            Messages::One(Some(only_message(route, objects).await?))
        };
        let mut grpc = self.ready().await?;
        let request = tonic::Request::from_parts(metadata, http::Extensions::new(), messages);
        let answered = grpc
            .streaming(request, route.grpc_path.clone(), RawCodec)
            .await;
        let messages: Streaming<Bytes> = answered?.into_inner();
        let mut lines = Lines::new(messages, is_lost, route.method.output());
        // Waited for here, because an error is to be the status of the answer.
        lines.wait_for_first().await?;
        Ok(answer::lines(lines))
    }

    async fn ready(self) -> Result<Grpc<S>, Status> {
        // Answers are not limited (LI-3); requests are, by the services.
        let mut grpc = Grpc::new(self.services).max_decoding_message_size(usize::MAX);
        let ready = grpc.ready().await;
        ready.map_err(|error| status::gateway_broken(error.into().as_ref()))?;
        Ok(grpc)
    }
}

/// The message of a method that takes only one: the first object, whatever follows, and the empty
/// one if there is none (HT-21).
async fn only_message<B>(route: &Route, mut objects: Objects<B>) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    let object = std::future::poll_fn(|context| objects.poll_next(context)).await;
    match object.transpose()? {
        Some(json) => transcode::to_message(&route.method.input(), &json),
        None => Ok(Bytes::new()),
    }
}

/// The messages that a request stands for.
#[derive(Debug)]
enum Messages<B> {
    One(Option<Bytes>),
    /// An object for each. One that is none ends the client's side, as if no more were to come: what
    /// follows is read and dropped, so that a connection that ends does not go unnoticed.
    Many {
        objects: Objects<B>,
        route: Route,
        /// Told if the client has gone, with which the call ends; otherwise its own side may be over
        /// long before (WA-16).
        lost: Option<oneshot::Sender<()>>,
    },
}

impl<B> Stream for Messages<B>
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
                lost,
            } => loop {
                let Some(object) = std::task::ready!(objects.poll_next(context)) else {
                    return Poll::Ready(None);
                };
                match object.and_then(|json| transcode::to_message(&route.method.input(), &json)) {
                    Ok(message) => return Poll::Ready(Some(message)),
                    Err(_no_message) => objects.drop_rest(),
                }
                if objects.is_lost()
                    && let Some(lost) = lost.take()
                {
                    // Nobody hears it if the call is over already.
                    let _ = lost.send(());
                    return Poll::Ready(None);
                }
            },
        }
    }
}

/// What the headers say that the services are to know. Who sends the request they learn from the
/// token alone: what the connection knows of the client is not handed on, as in etcd (TL-2).
fn metadata(headers: &HeaderMap) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    for (name, value) in headers {
        let name = match name.as_str().strip_prefix(METADATA_PREFIX) {
            Some(name) => name,
            None if *name == http::header::AUTHORIZATION => name.as_str(),
            None => continue,
        };
        // Names and values that no metadata can have nobody asks for.
        let Ok(name) = AsciiMetadataKey::from_bytes(name.as_bytes()) else {
            continue;
        };
        if let Ok(value) = MetadataValue::try_from(value.as_bytes()) {
            metadata.append(name, value);
        }
    }
    metadata
}
