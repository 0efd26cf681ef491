//! The responses of keep-alive streams.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame};
use revstore_control::journal::Outcome;
use revstore_grpc::intercept;
use tonic::Status;

use super::{
    call::{CallInfo, outcome_of},
    messages::Messages,
    responses::outcome_of_headers,
    stage::StagedNode,
};

/// The responses of a keep-alive stream: each answers one request, in order.
#[derive(Debug)]
pub(super) struct KeepAliveBody {
    /// `None` after the end.
    inner: Option<tonic::body::Body>,
    call: Arc<CallInfo>,
    messages: Messages,
    outcome: Option<Outcome>,
    /// Dropped last.
    _node: Option<Arc<StagedNode>>,
}

impl KeepAliveBody {
    pub(super) fn new(
        inner: tonic::body::Body,
        call: Arc<CallInfo>,
        node: Option<Arc<StagedNode>>,
    ) -> Self {
        call.record_opened();
        Self {
            inner: Some(inner),
            call,
            messages: Messages::default(),
            outcome: None,
            _node: node,
        }
    }

    /// Ends the stream with a status.
    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.inner = None;
        self.outcome = Some(outcome_of(status));
        end_of_stream(status)
    }
}

/// Returns the trailers with a status.
pub(super) fn end_of_stream(status: &Status) -> Frame<Bytes> {
    let mut trailers = http::HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // A text that is no header value: the code alone.
        let code = http::HeaderValue::from(status.code() as i32);
        trailers.insert(Status::GRPC_STATUS, code);
    }
    Frame::trailers(trailers)
}

impl Body for KeepAliveBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let body = &mut *self;
        body.call.register_response(context.waker());
        body.call.resume();
        loop {
            let Some(inner) = &mut body.inner else {
                return Poll::Ready(None);
            };
            // The messages of the services have no limit.
            if let Ok(Some(message)) = body.messages.next(usize::MAX) {
                let Some(request) = body.call.answered() else {
                    return Poll::Ready(Some(Ok(Frame::data(message.0))));
                };
                let response = message.content(body.call.bytes_max);
                let revision = response.as_deref().and_then(intercept::response_revision);
                let revision = revision.unwrap_or(0);
                if let Some(status) = request.after.clone() {
                    (body.call).record_request(request, outcome_of(&status), revision, None);
                    return Poll::Ready(Some(Ok(body.end(&status))));
                }
                (body.call).record_request(request, Outcome::success(), revision, None);
                return Poll::Ready(Some(Ok(Frame::data(message.0))));
            }
            let polled = Pin::new(inner).poll_frame(context);
            if let Some(status) = body.call.take_failure() {
                return Poll::Ready(Some(Ok(body.end(&status))));
            }
            if polled.is_pending() {
                body.call.park();
            }
            match ready!(polled) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => body.messages.push(data),
                    Err(trailers) => {
                        body.outcome = trailers.trailers_ref().and_then(outcome_of_headers);
                        return Poll::Ready(Some(Ok(trailers)));
                    }
                },
                end => return Poll::Ready(end),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_ended = self.inner.as_ref().is_none_or(Body::is_end_stream);
        is_ended && self.messages.is_empty()
    }
}

impl Drop for KeepAliveBody {
    fn drop(&mut self) {
        self.call.record_end(self.outcome.take(), None);
        self.call.end();
    }
}
