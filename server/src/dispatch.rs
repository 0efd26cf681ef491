//! Which of the two worlds a request belongs to: gRPC, or the HTTP endpoints.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::Router;
use bytes::Bytes;
use http::{Request, Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use revstore_grpc::{CertifiedName, ResponseFuture, Services};
use revstore_host::net::ClientIdentity;
use tower_service::Service;

use crate::calls::{Call, Calls, Received, Sent};

/// Sends requests to the gRPC services or to the HTTP endpoints. Created once for each kind of port;
/// connections have clones.
#[derive(Clone)]
pub(crate) struct Dispatch {
    grpc: Option<Grpc>,
    http: Option<Router>,
    /// The user in the certificate of the connection's client.
    user: Option<CertifiedName>,
}

/// The services and what counts their calls, also those that the gateway makes.
#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    pub(crate) services: Services,
    pub(crate) calls: Calls,
}

impl<B> Service<Request<B>> for Grpc
where
    B: Body<Data = Bytes, Error: Into<AnyError>> + Send + Unpin + 'static,
{
    type Response = Response<Sent<tonic::body::Body>>;
    type Error = Infallible;
    type Future = BoxAnswer<Sent<tonic::body::Body>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let call = self.calls.start(request.uri().path());
        let request = request.map(|body| call.receive(body));
        let answer = self.services.call(request);
        Box::pin(async move { Ok(call.send(answer.await?)) })
    }
}

impl Dispatch {
    /// Serves what is given. At least one should be.
    pub(crate) fn new(grpc: Option<Grpc>, http: Option<Router>) -> Self {
        let user = None;
        Self { grpc, http, user }
    }

    /// Returns the service of a connection with this client.
    pub(crate) fn for_client(&self, client: ClientIdentity) -> Self {
        Self {
            user: client.common_name.map(CertifiedName::new),
            ..self.clone()
        }
    }

    /// Returns whether requests other than gRPC calls are refused (HT-13).
    pub(crate) fn is_only_grpc(&self) -> bool {
        self.http.is_none()
    }
}

impl hyper::service::Service<Request<Incoming>> for Dispatch {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, mut request: Request<Incoming>) -> Answer {
        if let Some(user) = &self.user {
            request.extensions_mut().insert(user.clone());
        }
        match (&self.grpc, &self.http) {
            (Some(grpc), _) if is_grpc(&request) => {
                let call = grpc.calls.start(request.uri().path());
                // As `Grpc` does, with one box less.
                let request: Request<Received<_>> = request.map(|body| call.receive(body));
                Answer::Grpc {
                    answer: grpc.services.clone().call(request),
                    call: Some(call),
                }
            }
            (_, Some(http)) => Answer::Http(Box::pin(http.clone().call(request))),
            (_, None) => Answer::NotGrpc,
        }
    }
}

/// As etcd tells them apart (HT-1).
fn is_grpc<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_2
        && request
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|it| it.as_bytes().starts_with(b"application/grpc"))
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

type BoxAnswer<B> = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>;

/// The future of an answer.
pub(crate) enum Answer {
    Grpc {
        answer: ResponseFuture,
        /// Taken when the answer is there.
        call: Option<Call>,
    },
    Http(BoxAnswer<axum::body::Body>),
    /// HT-13: a port for gRPC alone.
    NotGrpc,
}

impl Future for Answer {
    type Output = Result<Response<AnswerBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.get_mut() {
            Self::Grpc { answer, call } => {
                let answer = ready!(Pin::new(answer).poll(context))?;
                Ok(match call.take() {
                    Some(call) => call.send(answer).map(AnswerBody::Grpc),
                    // Polled after it was done: not what futures are for, but no harm either.
                    None => not_grpc(),
                })
            }
            Self::Http(answer) => Ok(ready!(answer.as_mut().poll(context))?.map(AnswerBody::Http)),
            Self::NotGrpc => Ok(not_grpc()),
        })
    }
}

/// HT-4.
fn not_grpc() -> Response<AnswerBody> {
    let mut answer = Response::new(AnswerBody::Http(axum::body::Body::empty()));
    *answer.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    answer
}

/// The body of an answer from either world, without another box around it.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    Grpc(Sent<tonic::body::Body>),
    Http(axum::body::Body),
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Grpc(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Self::Http(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Grpc(body) => body.is_end_stream(),
            Self::Http(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Grpc(body) => body.size_hint(),
            Self::Http(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch")
            .field("grpc", &self.grpc.is_some())
            .field("http", &self.http.is_some())
            .field("user", &self.user)
            .finish()
    }
}
