//! One call, from the first byte of its request to the end of its answer.

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

use crate::script::Call;

/// Messages of one answer. Scripts are short, and so is all that can be told of them.
const MESSAGES_MAX: usize = 10_000;

/// A call that goes on.
pub(crate) struct Exchange {
    pub(crate) method: MethodDescriptor,
    /// None once the client has closed its side.
    request: Option<UnboundedSender<Bytes>>,
    state: State,
    /// Bytes of the answer that are not a whole message yet.
    rest: BytesMut,
    /// What was answered so far.
    pub(crate) messages: Vec<DynamicMessage>,
}

enum State {
    Called(ResponseFuture),
    Answers(tonic::body::Body),
    Ended(Status),
}

/// A request body that goes on for as long as somebody may send.
struct Sent(UnboundedReceiver<Bytes>);

impl Body for Sent {
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

impl Exchange {
    /// Makes a call, which goes nowhere until it is polled.
    pub(crate) fn begin(services: &Services, call: &Call, token: Option<&str>) -> Self {
        let method = call.method.clone();
        let (request, sent) = unbounded_channel();
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
        let called = services.clone().call(http.body(Sent(sent)).unwrap());
        Self {
            method,
            request: call.stays_open.then_some(request),
            state: State::Called(called),
            rest: BytesMut::new(),
            messages: Vec::new(),
        }
    }

    /// Sends more, unless the client has closed its side, or the server has.
    pub(crate) fn say(&self, data: &[Bytes]) {
        if let Some(request) = &self.request {
            for data in data {
                let _ = request.send(data.clone());
            }
        }
    }

    pub(crate) fn half_close(&mut self) {
        self.request = None;
    }

    /// Whether the method may have nothing to say for a while, and not be stuck.
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

    /// Reads the answer as far as it goes.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        loop {
            match &mut self.state {
                State::Called(answering) => {
                    let Ok(response) = ready!(Pin::new(answering).poll(context));
                    assert_eq!(response.status(), 200);
                    self.state = match Status::from_header_map(response.headers()) {
                        Some(status) => State::Ended(status),
                        None => State::Answers(response.into_body()),
                    };
                }
                State::Answers(body) => {
                    let frame = ready!(Pin::new(body).poll_frame(context));
                    let frame = frame.expect("an answer ends in a status").unwrap();
                    if let Some(trailers) = frame.trailers_ref() {
                        let status = Status::from_header_map(trailers).unwrap();
                        assert!(self.rest.is_empty(), "the answer broke off: {self:?}");
                        self.state = State::Ended(status);
                    } else {
                        self.take(&frame.into_data().unwrap());
                    }
                }
                State::Ended(status) => return Poll::Ready(status.clone()),
            }
        }
    }

    fn take(&mut self, data: &[u8]) {
        self.rest.extend_from_slice(data);
        while let Some((prefix, behind)) = self.rest.split_first_chunk::<5>() {
            let [flag, length @ ..] = *prefix;
            assert_eq!(flag, 0, "nobody asked for compression");
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap();
            if behind.len() < length {
                break;
            }
            self.rest.advance(prefix.len());
            let message = self.rest.split_to(length).freeze();
            let message = DynamicMessage::decode(self.method.output(), message).unwrap();
            // A field that is not in the descriptor is one that nobody can read.
            assert_eq!(message.unknown_fields().count(), 0, "{message:?}");
            self.messages.push(message);
            assert!(self.messages.len() < MESSAGES_MAX, "an answer without end");
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("method", &self.method.full_name())
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}
