//! One call, from the first byte of its request to the status that ends its response.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use prost_reflect::{DynamicMessage, MethodDescriptor};
use revstore_grpc::{ResponseFuture, Services};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::Status;
use tower_service::Service;

use crate::script::ScriptCall;

/// The maximum number of messages in one response. A script has few steps, so a longer response
/// does not end.
const RESPONSE_MESSAGES_MAX: usize = 10_000;

/// A call whose status has not been received yet.
pub(crate) struct OpenCall {
    pub(crate) method: MethodDescriptor,
    /// The sender of the request body; `None` after the client has half-closed the call.
    request: Option<UnboundedSender<Bytes>>,
    state: State,
    /// Received bytes that do not form a complete message yet.
    partial: BytesMut,
    /// The messages received so far.
    pub(crate) messages: Vec<DynamicMessage>,
}

enum State {
    /// The response headers have not been received.
    AwaitingHeaders(ResponseFuture),
    /// The response body is being read.
    ReadingBody(tonic::body::Body),
    /// The status has been received.
    Ended(Status),
}

/// A request body that ends when its sender is dropped.
struct RequestBody(UnboundedReceiver<Bytes>);

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.0.poll_recv(context);
        data.map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

impl OpenCall {
    /// Creates a call. The services start it at its first poll.
    pub(crate) fn new(services: &Services, call: &ScriptCall, token: Option<&str>) -> Self {
        let method = call.method.clone();
        let (request, body) = unbounded_channel();
        for data in &call.data {
            request.send(data.clone()).unwrap();
        }
        let service = method.parent_service();
        let path = format!("http://node/{}/{}", service.full_name(), method.name());
        let mut http = http::Request::post(path)
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(token) = token {
            http = http.header("token", token);
        }
        let response = services.clone().call(http.body(RequestBody(body)).unwrap());
        Self {
            method,
            request: call.stays_open.then_some(request),
            state: State::AwaitingHeaders(response),
            partial: BytesMut::new(),
            messages: Vec::new(),
        }
    }

    /// Sends more request data. Does nothing if the client has half-closed the call or the server
    /// has dropped the request body.
    pub(crate) fn send(&self, data: &[Bytes]) {
        if let Some(request) = &self.request {
            for data in data {
                let _ = request.send(data.clone());
            }
        }
    }

    pub(crate) fn half_close(&mut self) {
        self.request = None;
    }

    /// Returns whether the method may wait for another client or for an event before it responds.
    pub(crate) fn may_wait(&self) -> bool {
        matches!(
            self.method.full_name(),
            "etcdserverpb.Watch.Watch"
                | "etcdserverpb.Lease.LeaseKeepAlive"
                | "v3lockpb.Lock.Lock"
                | "v3electionpb.Election.Campaign"
                | "v3electionpb.Election.Observe"
                | "grpc.health.v1.Health.Watch"
        )
    }

    /// Reads the response until its status, or until no more data is ready.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        loop {
            match &mut self.state {
                State::AwaitingHeaders(response) => {
                    let Ok(response) = ready!(Pin::new(response).poll(context));
                    assert_eq!(response.status(), 200);
                    self.state = match Status::from_header_map(response.headers()) {
                        Some(status) => State::Ended(status),
                        None => State::ReadingBody(response.into_body()),
                    };
                }
                State::ReadingBody(body) => {
                    let frame = ready!(Pin::new(body).poll_frame(context));
                    let frame = frame.expect("a response ends with a status").unwrap();
                    if let Some(trailers) = frame.trailers_ref() {
                        let status = Status::from_header_map(trailers).unwrap();
                        assert!(
                            self.partial.is_empty(),
                            "the response ends within a message: {self:?}"
                        );
                        self.state = State::Ended(status);
                    } else {
                        self.decode(&frame.into_data().unwrap());
                    }
                }
                State::Ended(status) => return Poll::Ready(status.clone()),
            }
        }
    }

    /// Adds received bytes and decodes the messages that they complete.
    fn decode(&mut self, data: &[u8]) {
        self.partial.extend_from_slice(data);
        while let Some((prefix, payload)) = self.partial.split_first_chunk::<5>() {
            let [flag, length @ ..] = *prefix;
            assert_eq!(
                flag, 0,
                "the response is compressed, and no compression was negotiated"
            );
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap();
            if payload.len() < length {
                break;
            }
            self.partial.advance(prefix.len());
            let message = self.partial.split_to(length).freeze();
            let message = DynamicMessage::decode(self.method.output(), message).unwrap();
            // An unknown field would be a field number that is not in the `.proto` files.
            assert_eq!(message.unknown_fields().count(), 0, "{message:?}");
            self.messages.push(message);
            assert!(
                self.messages.len() < RESPONSE_MESSAGES_MAX,
                "a response with too many messages"
            );
        }
    }
}

impl fmt::Debug for OpenCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCall")
            .field("method", &self.method.full_name())
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}
