//! The responses of calls and of HTTP requests.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use revstore_control::journal::Outcome;
use tonic::Status;

use super::{
    call::{CallInfo, CallKind, outcome_of},
    controlled::HttpWork,
    stage::StagedNode,
};

/// The response of a call with one request. Records the call at its end.
#[derive(Debug)]
pub(super) struct PlainBody {
    inner: tonic::body::Body,
    call: Arc<CallInfo>,
    outcome: Option<Outcome>,
    revision: Option<i64>,
    has_data: bool,
    /// Dropped last.
    _node: Option<Arc<StagedNode>>,
}

impl PlainBody {
    /// `outcome` is that of a response without a body.
    pub(super) fn new(
        inner: tonic::body::Body,
        call: Arc<CallInfo>,
        node: Option<Arc<StagedNode>>,
        outcome: Option<Outcome>,
    ) -> Self {
        Self {
            inner,
            call,
            outcome,
            revision: None,
            has_data: false,
            _node: node,
        }
    }
}

impl Body for PlainBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let body = &mut *self;
        body.call.resume();
        let polled = Pin::new(&mut body.inner).poll_frame(context);
        match &polled {
            Poll::Pending => {
                if body.call.kind == CallKind::ServerStream {
                    body.call.park();
                }
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    if !std::mem::replace(&mut body.has_data, true) {
                        body.revision = body.call.set_answer(data);
                    }
                } else if let Some(trailers) = frame.trailers_ref() {
                    body.outcome = outcome_of_headers(trailers);
                }
            }
            Poll::Ready(Some(Err(status))) => body.outcome = Some(outcome_of(status)),
            Poll::Ready(None) => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for PlainBody {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        // A call whose response has data has succeeded, also if the client has gone before the trailers.
        let outcome =
            outcome.or_else(|| (self.call.is_unary() && self.has_data).then(Outcome::success));
        self.call.record_end(outcome, self.revision);
        self.call.end();
    }
}

/// Waits for the answer of a call with one, which only the journal gets.
pub(super) fn poll_answer(
    body: &mut tonic::body::Body,
    call: &CallInfo,
    context: &mut Context<'_>,
) -> Poll<()> {
    while let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(context)) {
        match frame
            .as_ref()
            .map(|frame| (frame.data_ref(), frame.trailers_ref()))
        {
            Ok((Some(data), _)) => {
                call.set_answer(data);
            }
            Ok((None, Some(trailers))) => {
                if let Some(outcome) = outcome_of_headers(trailers) {
                    call.set_answer_outcome(&outcome);
                }
            }
            Ok((None, None)) => continue,
            Err(status) => call.set_answer_outcome(&outcome_of(status)),
        }
        break;
    }
    Poll::Ready(())
}

/// Returns the outcome in headers or trailers. `None` if a body follows.
pub(super) fn outcome_of_headers(headers: &HeaderMap) -> Option<Outcome> {
    Some(outcome_of(&Status::from_header_map(headers)?))
}

/// A body whose length is not known before its end, as that of a gRPC response: the router would announce it.
#[derive(Debug)]
pub(super) struct Opaque<B>(pub(super) B);

impl<B: Body<Data = Bytes> + Unpin> Body for Opaque<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

/// The body of a response to a request that is not a call. Counts it for automatic time.
#[derive(Debug)]
pub(super) struct HttpBody {
    inner: axum::body::Body,
    work: HttpWork,
    /// Dropped last.
    _node: Arc<StagedNode>,
}

impl HttpBody {
    pub(super) fn new(inner: axum::body::Body, work: HttpWork, node: Arc<StagedNode>) -> Self {
        Self {
            inner,
            work,
            _node: node,
        }
    }
}

impl Body for HttpBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.work.lock().resume();
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if polled.is_pending() {
            // The call of the gateway, which counts by itself, has nothing to send.
            self.work.lock().park();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
