//! A gRPC call: the services between its request and its response.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use revstore_engine::Engine;
use revstore_grpc::{ResponseFuture, Shutdown};
use revstore_host::net::BoxError;
use tonic::Status;
use tower_service::Service;

use super::{
    Interceptor,
    call::{CallInfo, CallKind},
    controlled::Caller,
    keep_alives::KeepAliveBody,
    requests::ControlledRequest,
    responses::{PlainBody, outcome_of_headers, poll_answer},
    stage::StagedNode,
    watch::WatchBody,
};
use crate::http::{CountedFuture, CountedResponse, CountedServices};

/// The services of a node behind the faults, lists and journal of the server. Connections and the gateway use them.
#[derive(Clone, Debug)]
pub(crate) struct ControlledServices {
    pub(super) counted: CountedServices,
    pub(super) interceptor: Interceptor,
    pub(super) engine: Engine,
    pub(super) node_shutdown: Shutdown,
    /// The maximum length of a message of a client.
    pub(super) message_bytes_max: usize,
    /// Of a call on a connection: the node, which is freed after the call, and the sender. Calls of the gateway have those of
    /// the request that it converts.
    on_connection: Option<(Arc<StagedNode>, Caller)>,
}

impl ControlledServices {
    pub(crate) fn new(
        counted: CountedServices,
        interceptor: Interceptor,
        engine: Engine,
        node_shutdown: Shutdown,
        message_bytes_max: usize,
    ) -> Self {
        Self {
            counted,
            interceptor,
            engine,
            node_shutdown,
            message_bytes_max,
            on_connection: None,
        }
    }

    /// Returns the services for a call of a client on a connection.
    pub(super) fn on_node(self, node: &Arc<StagedNode>, caller: Caller) -> Self {
        Self {
            on_connection: Some((node.clone(), caller)),
            ..self
        }
    }
}

impl<B> Service<Request<B>> for ControlledServices
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    type Response = Response<CountedResponse<tonic::body::Body>>;
    type Error = Infallible;
    type Future = CountedFuture<ControlledFuture>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (node, caller) = if let Some((node, caller)) = self.on_connection.take() {
            (Some(node), caller)
        } else {
            let mut caller = Caller::of_gateway();
            (caller.node.take(), caller)
        };
        let address = caller.address;
        let call = CallInfo::new(self, request.uri().path(), request.headers(), caller);
        let call = Arc::new(call);
        self.counted.count_with(request, address, |request| {
            let mut request = request.map(|body| ControlledRequest::new(body, call.clone()));
            if call.kind == CallKind::Watch {
                request.extensions_mut().insert(call.restarts.clone());
            }
            ControlledFuture {
                state: State::Responding(self.counted.services.clone().call(request)),
                call: CallEnd(Some(call)),
                node,
            }
        })
    }
}

/// The future of a response.
#[derive(Debug)]
pub(crate) struct ControlledFuture {
    state: State,
    call: CallEnd,
    node: Option<Arc<StagedNode>>,
}

/// How far a response is.
#[derive(Debug)]
enum State {
    /// To `Replacing` if a rule replaces the answer of a call with one, or to `Done`.
    Responding(ResponseFuture),
    /// The journal waits for the answer, which the client does not get. To `Done`.
    Replacing(tonic::body::Body, Status),
    Done,
}

/// A call without a response yet. Records a call whose client has gone.
#[derive(Debug)]
struct CallEnd(Option<Arc<CallInfo>>);

impl Drop for CallEnd {
    fn drop(&mut self) {
        if let Some(call) = &self.0 {
            call.record_end(None, None);
        }
    }
}

impl Future for ControlledFuture {
    type Output = Result<Response<tonic::body::Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let future = &mut *self;
        let Some(call) = &future.call.0 else {
            // The future was polled after it had completed.
            return Poll::Pending;
        };
        call.register_response(context.waker());
        call.resume();
        let response = loop {
            let polled = match &mut future.state {
                State::Responding(response) => Pin::new(response).poll(context),
                State::Replacing(body, status) => {
                    ready!(poll_answer(body, call, context));
                    break status.clone().into_http();
                }
                State::Done => return Poll::Pending,
            };
            let response = match (polled, call.take_failure()) {
                // What the call holds is released before the client gets the status.
                (_, Some(status)) => break status.into_http(),
                (Poll::Ready(Ok(response)), None) => response,
                (Poll::Ready(Err(never)), None) => match never {},
                (Poll::Pending, None) => {
                    if call.kind == CallKind::Waiting {
                        call.park();
                    }
                    return Poll::Pending;
                }
            };
            let answered = outcome_of_headers(response.headers());
            if let Some(outcome) = &answered {
                call.set_answer_outcome(outcome);
            }
            match call.take_replacement() {
                None => break response,
                Some(status) if answered.is_none() && call.is_unary() => {
                    future.state = State::Replacing(response.into_body(), status);
                }
                Some(status) => break status.into_http(),
            }
        };
        future.state = State::Done;
        let Some(call) = future.call.0.take() else {
            return Poll::Pending;
        };
        let node = future.node.take();
        let outcome = outcome_of_headers(response.headers());
        let is_open = outcome.is_none();
        Poll::Ready(Ok(response.map(|body| match call.kind {
            CallKind::Watch if is_open => tonic::body::Body::new(WatchBody::new(body, call, node)),
            CallKind::KeepAlive if is_open => {
                tonic::body::Body::new(KeepAliveBody::new(body, call, node))
            }
            _ => tonic::body::Body::new(PlainBody::new(body, call, node, outcome)),
        })))
    }
}
