//! The bodies of responses that go on after their call, of a node with a journal.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use revstore_persist::Synced;
use tonic::Status;

use crate::node::Node;

/// A response body that lets messages through when everything that they may show is stored as the policy says. Without
/// this, a client that continues with the server of a restart could have seen a revision that now is another one.
///
/// At most one frame waits, and meanwhile nothing is taken from the stream behind it.
#[derive(Debug)]
pub(crate) struct DurableBody {
    inner: tonic::body::Body,
    node: Arc<Node>,
    waiting: Option<(Frame<Bytes>, Synced)>,
}

impl DurableBody {
    pub(crate) fn new(inner: tonic::body::Body, node: Arc<Node>) -> Self {
        Self {
            inner,
            node,
            waiting: None,
        }
    }
}

impl Body for DurableBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let body = &mut *self;
        let (frame, mut synced) = if let Some(waiting) = body.waiting.take() {
            waiting
        } else {
            let frame = match ready!(Pin::new(&mut body.inner).poll_frame(context)) {
                Some(Ok(frame)) if frame.is_data() => frame,
                other => return Poll::Ready(other),
            };
            let durability = body.node.durability.as_ref();
            match durability.and_then(|it| it.wait_for_shown(&body.node)) {
                Some(synced) => (frame, synced),
                None => return Poll::Ready(Some(Ok(frame))),
            }
        };
        match Pin::new(&mut synced).poll(context) {
            // After a failure the store has what it has in memory, which reads show, too.
            Poll::Ready(Ok(()) | Err(_)) => Poll::Ready(Some(Ok(frame))),
            Poll::Pending => {
                body.waiting = Some((frame, synced));
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && self.inner.is_end_stream()
    }
}
