//! Dispatch of requests: gRPC calls to the services, all others to the HTTP endpoints.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::Router;
use bytes::Bytes;
use http::{Request, Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use revstore_grpc::{CertifiedName, CoarseInstant, EtcdError, ResponseFuture, Services};
use revstore_host::{
    net::{BoxError, ClientIdentity, RequestBody},
    panics,
};
use tower_service::Service;

use super::{
    calls::{CallCounters, CountedCall, CountedRequest, CountedResponse},
    request_timer::RequestTimer,
};

/// The HTTP service of a connection: sends gRPC calls to the services and other requests to the HTTP
/// endpoints. It is created once for each kind of port and cloned for each connection.
#[derive(Clone)]
pub(crate) struct Dispatch {
    grpc: Option<CountedServices>,
    http: Option<Router>,
    /// The user in the client certificate of the connection.
    user: Option<CertifiedName>,
    /// The address of the client.
    address: Option<SocketAddr>,
}

/// The gRPC services with the counters of their calls. Connections and the gateway use them.
#[derive(Clone, Debug)]
pub(crate) struct CountedServices {
    pub(crate) services: Services,
    pub(crate) calls: CallCounters,
    /// The time above which a unary call is logged.
    pub(crate) warning_duration: Duration,
}

impl<B> Service<Request<B>> for CountedServices
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    type Response = Response<CountedResponse<tonic::body::Body>>;
    type Error = Infallible;
    type Future = CountedFuture<ResponseFuture>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.count(request, None)
    }
}

impl CountedServices {
    fn count<B>(
        &self,
        request: Request<B>,
        address: Option<SocketAddr>,
    ) -> CountedFuture<ResponseFuture>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        self.count_with(request, address, |request| {
            self.services.clone().call(request)
        })
    }

    /// Counts a call, whose response `respond` makes of the request.
    pub(crate) fn count_with<B, F>(
        &self,
        request: Request<B>,
        address: Option<SocketAddr>,
        respond: impl FnOnce(Request<CountedRequest<B>>) -> F,
    ) -> CountedFuture<F> {
        let call = self.calls.start(request.uri().path(), request.headers());
        let request = request.map(|body| call.count_request(body));
        CountedFuture {
            response: Some(respond(request)),
            call: Some(call),
            timer: RequestTimer {
                start: CoarseInstant::now(),
                warning_duration: self.warning_duration,
                address,
            },
        }
    }
}

/// The future of a counted call. A panic of the call is a response with the code INTERNAL.
#[derive(Debug)]
pub(crate) struct CountedFuture<F> {
    /// `None` after a panic.
    response: Option<F>,
    /// Taken when the response is ready.
    call: Option<CountedCall>,
    timer: RequestTimer,
}

impl<F> Future for CountedFuture<F>
where
    F: Future<Output = Result<Response<tonic::body::Body>, Infallible>> + Unpin,
{
    type Output = Result<Response<CountedResponse<tonic::body::Body>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let future = &mut *self;
        let (Some(response), Some(call)) = (&mut future.response, &future.call) else {
            // The future was polled after it had completed.
            return Poll::Pending;
        };
        let poll = || Pin::new(response).poll(context);
        let polled = panics::catch_within_request(call.name(), poll);
        let response = if let Ok(polled) = polled {
            ready!(polled)?
        } else {
            future.response = None;
            EtcdError::Internal.to_status().into_http()
        };
        match future.call.take() {
            Some(call) => {
                if call.is_unary() {
                    future.timer.log_if_slow(call.name(), response.extensions());
                }
                Poll::Ready(Ok(call.count_response(response)))
            }
            None => Poll::Pending,
        }
    }
}

impl Dispatch {
    /// Dispatches to the services, the endpoints, or both.
    pub(crate) fn new(grpc: Option<CountedServices>, http: Option<Router>) -> Self {
        Self {
            grpc,
            http,
            user: None,
            address: None,
        }
    }

    /// Returns the service of a connection with this client.
    pub(crate) fn for_client(&self, client: ClientIdentity) -> Self {
        Self {
            user: client.common_name.map(CertifiedName::new),
            address: client.address,
            ..self.clone()
        }
    }
}

impl hyper::service::Service<Request<RequestBody>> for Dispatch {
    type Response = Response<DispatchBody>;
    type Error = Infallible;
    type Future = DispatchFuture;

    fn call(&self, mut request: Request<RequestBody>) -> DispatchFuture {
        if let Some(user) = &self.user {
            request.extensions_mut().insert(user.clone());
        }
        match (&self.grpc, &self.http) {
            (Some(grpc), _) if is_grpc(&request) => {
                DispatchFuture::Grpc(grpc.count(request, self.address))
            }
            (_, Some(http)) => DispatchFuture::Http(Box::pin(http.clone().call(request))),
            (_, None) => DispatchFuture::NotGrpc,
        }
    }
}

/// Returns whether a request is a gRPC call, by etcd's rule (HT-1).
pub(crate) fn is_grpc<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_2
        && request
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|it| it.as_bytes().starts_with(b"application/grpc"))
}

type BoxFuture<B> = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>;

/// The future of a response.
pub(crate) enum DispatchFuture {
    Grpc(CountedFuture<ResponseFuture>),
    Http(BoxFuture<axum::body::Body>),
    /// HT-13: the request is not a gRPC call, and the port accepts only gRPC calls.
    NotGrpc,
}

impl Future for DispatchFuture {
    type Output = Result<Response<DispatchBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.get_mut() {
            Self::Grpc(response) => {
                let response = ready!(Pin::new(response).poll(context))?;
                Ok(response.map(DispatchBody::Grpc))
            }
            Self::Http(response) => {
                let poll = || response.as_mut().poll(context);
                let response = ready!(panics::within_request("HTTP endpoint", poll))?;
                Ok(response.map(DispatchBody::Http))
            }
            Self::NotGrpc => Ok(not_grpc()),
        })
    }
}

/// Returns the response to a request that is not a gRPC call (HT-4).
fn not_grpc() -> Response<DispatchBody> {
    let mut response = Response::new(DispatchBody::Http(axum::body::Body::empty()));
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// The body of a response of the services or the endpoints, without boxing.
#[derive(Debug)]
pub(crate) enum DispatchBody {
    Grpc(CountedResponse<tonic::body::Body>),
    Http(axum::body::Body),
}

impl Body for DispatchBody {
    type Data = Bytes;
    type Error = BoxError;

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
            .field("address", &self.address)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_call_that_panics_has_a_response_and_is_counted() {
        let path = "/etcdserverpb.KV/Put";
        let calls = CallCounters::new(false);
        let future = CountedFuture {
            response: Some(poll_fn(|_| panic!("on purpose"))),
            call: Some(calls.start(path, &http::HeaderMap::new())),
            timer: RequestTimer {
                start: CoarseInstant::now(),
                warning_duration: Duration::MAX,
                address: None,
            },
        };
        let response = future.await.unwrap();
        let status = tonic::Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), tonic::Code::Internal);
        let counts = calls.counts(path);
        let internal = tonic::Code::Internal as usize;
        assert_eq!((counts.started, counts.handled[internal]), (1, 1));
    }
}
