//! Requests over HTTP/1.1, which hyper reads.
//!
//! A response may be sent before the body of its request was read, for example a refusal. If the connection were closed
//! then, the system would reset it because of the bytes that nobody has read, and the client might lose the response.
//! So the rest of a small body is read before the response is sent, and the connection stays open for the next request.
//! A connection with a larger rest is closed in one direction only, and is read for a short time.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response, StatusCode, header};
use http_body::Body;
use hyper::{body::Incoming, service::Service, upgrade::OnUpgrade};
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep, timeout};

use crate::net::{BoxError, RequestBody, transport::WriteBuffer, upgrade::Handover};

/// The maximum size of the rest of a body that is read before the response is sent.
const DISCARDED_BYTES_MAX: u64 = 256 * 1024;

/// The time limit for reading it, and for reading what arrives after the last response of a connection.
pub(super) const DISCARD_TIME: Duration = Duration::from_millis(500);

/// The time for which requests continue after the end of the client's bytes, if bytes of further requests precede it. The
/// client may have closed only one direction, and still read the responses.
const ENDED_CLIENT_TIME: Duration = Duration::from_secs(5);

/// A connection. It ends some time after its client, also if hyper does not notice that: hyper does not read while a
/// request waits and bytes of the next one have arrived.
pub(super) struct Http1Connection<'a, C> {
    connection: Pin<&'a mut C>,
    write_buffer: WriteBuffer,
    /// The end of the time for requests, since the client has ended.
    end: Option<Pin<Box<Sleep>>>,
}

impl<'a, C> Http1Connection<'a, C> {
    pub(super) fn new(connection: Pin<&'a mut C>, write_buffer: WriteBuffer) -> Self {
        Self {
            connection,
            write_buffer,
            end: None,
        }
    }

    pub(super) fn connection(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }
}

impl<C, E> Future for Http1Connection<'_, C>
where
    C: Future<Output = Result<(), E>>,
    E: Into<BoxError>,
{
    type Output = Result<(), BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Poll::Ready(end) = this.connection.as_mut().poll(context) {
            return Poll::Ready(end.map_err(Into::into));
        }
        if this.end.is_none() && this.write_buffer.has_client_ended(context) {
            this.end = Some(Box::pin(sleep(ENDED_CLIENT_TIME)));
        }
        let Some(end) = &mut this.end else {
            return Poll::Pending;
        };
        ready!(end.as_mut().poll(context));
        let error = io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the client has closed the connection",
        );
        Poll::Ready(Err(error.into()))
    }
}

/// The body of a request whose reader has left before its end.
pub(super) type Leftover = Arc<Mutex<Option<Incoming>>>;

/// The service of a connection for requests over HTTP/1.1.
pub(super) struct Http1Service<S> {
    service: S,
    /// Whether a response was sent before its request was read.
    is_unread: Arc<AtomicBool>,
    handover: Handover,
}

impl<S> Http1Service<S> {
    pub(super) fn new(service: S) -> Self {
        Self {
            service,
            is_unread: Arc::default(),
            handover: Handover::default(),
        }
    }

    /// Returns the flag that is set when a response is sent before its request was read.
    pub(super) fn is_unread(&self) -> Arc<AtomicBool> {
        self.is_unread.clone()
    }

    /// Returns what continues the connection after a response with status 101.
    pub(super) fn handover(&self) -> Handover {
        self.handover.clone()
    }
}

impl<S, B> Service<Request<Incoming>> for Http1Service<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Send + 'static>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        // Such a client sends no body before it is asked to.
        let waits = request.headers().contains_key(header::EXPECT);
        let handover = self.handover.clone();
        // Hyper continues a connection with another protocol itself only if somebody waits for it.
        if request.extensions_mut().remove::<OnUpgrade>().is_some() {
            request.extensions_mut().insert(handover.offer());
        }
        let leftover = Leftover::default();
        let request = request.map(|body| RequestBody::from_incoming(body, leftover.clone()));
        let response = self.service.call(request);
        let is_unread = self.is_unread.clone();
        Box::pin(async move {
            let response = response.await;
            let switches =
                |response: &Response<B>| response.status() == StatusCode::SWITCHING_PROTOCOLS;
            if !response.as_ref().is_ok_and(switches) {
                drop(handover.take());
            }
            let body = leftover.lock().take();
            if let Some(body) = body
                && (waits || timeout(DISCARD_TIME, discard(body)).await != Ok(true))
            {
                // Relaxed: the task of the connection reads the flag.
                is_unread.store(true, Ordering::Relaxed);
            }
            response
        })
    }
}

/// Reads the rest of a body. Returns false if it is too large or fails.
async fn discard(mut body: Incoming) -> bool {
    let mut read = body.size_hint().lower();
    if read > DISCARDED_BYTES_MAX {
        return false;
    }
    read = 0;
    while read <= DISCARDED_BYTES_MAX {
        match poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            Some(Ok(frame)) => read += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => return false,
            None => return true,
        }
    }
    false
}
