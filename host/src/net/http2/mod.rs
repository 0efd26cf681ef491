//! An HTTP/2 connection over the library `h2`.
//!
//! [`Http2Connection`] accepts requests, `exchange` sends the response to each, `intake` holds their bodies, and
//! `keepalive` pings the client. `authority` rewrites requests that the library would refuse, by means of `hpack` and
//! `frame`, and `late_frames` drops those after a shutdown at which the library would end the connection.

mod authority;
mod exchange;
pub(super) mod frame;
mod hpack;
mod intake;
mod keepalive;
pub(super) mod late_frames;
#[cfg(test)]
mod tests;

use std::{
    future::Future,
    io, mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::server::{Connection, Handshake};
use http::{Request, Response};
use http_body::Body;
use hyper::service::Service;
use tokio::time::{Sleep, sleep};

pub(super) use self::authority::AuthorityFilter;
pub(super) use self::intake::StreamBody;
use self::intake::{Arrivals, Intake};
use self::keepalive::Pings;
use crate::net::{
    BoxError, HttpOptions, Keepalive, RequestBody,
    driver::RequestExecutor,
    transport::{BufferedTransport, WriteBuffer},
};

/// The HTTP/2 window of a stream: the number of bytes that a client may send before the server reads them. It
/// is larger than most requests, so that they do not wait for a window update.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// The HTTP/2 window of a connection, for all its streams together.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// The memory that small DATA frames of a connection may take before their streams are read. The library counts what a
/// frame lacks to 256 bytes. All frames of a round fit: a round reads
/// [`READ_BYTES_PER_ROUND`](super::transport::READ_BYTES_PER_ROUND), and a frame takes ten bytes at least.
const DATA_FRAME_BUDGET: usize = 2 << 20;

/// The maximum number of streams that a client may open and reset before the server has accepted them, which it does
/// after each round. A client that sends a message on each stream before it cancels it cannot send so many in a round.
/// One that opens and resets streams without using them is stopped.
const PENDING_RESET_STREAMS_MAX: usize = 2_048;

/// The maximum number of streams of a connection that the server resets because of errors of the client, such as
/// malformed requests.
const ERROR_RESET_STREAMS_MAX: usize = 16 * 1_024;

/// The time for which frames are ignored that arrive on a stream which the server has reset, and the maximum number of
/// such streams. A client that sends frames on others makes an error.
const RESET_STREAM_TIME: Duration = Duration::from_secs(10);
const RESET_STREAMS_MAX: usize = 4 * 1_024;

/// The maximum size of the header fields of a request, as HTTP/2 counts them: 32 bytes more for each field. Clients learn
/// it from the settings of the connection. A service may have a smaller limit and answer with an error of its own.
const HEADER_LIST_BYTES_MAX: u32 = 2 << 20;

/// The maximum number of bytes of a stream's response in the library.
const SEND_BUFFER_BYTES_MAX: usize = 400 * 1024;

/// The maximum number of streams of a connection whose bodies are read after their responses have ended.
const DISCARDED_STREAMS_MAX: usize = 1_024;

/// The time for which such a body is read is once to twice this time. The client then gets a reset.
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// A connection. The future completes when it has ended, and sends what is in its write buffer only when
/// the buffer is flushed.
pub(super) struct Http2Connection<S> {
    state: State,
    service: S,
    executor: RequestExecutor,
    write_buffer: WriteBuffer,
    keepalive: Keepalive,
    is_shutting_down: bool,
    /// Whether a response was the last one of the connection.
    is_last: Arc<AtomicBool>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "every connection becomes open, in the task that contains it"
)]
enum State {
    Handshake(Handshake<BufferedTransport, Bytes>),
    Open(Open),
}

struct Open {
    /// `None` only while the connection is dropped.
    connection: Option<Connection<BufferedTransport, Bytes>>,
    arrivals: Arc<Arrivals>,
    pings: Option<Pings>,
    discards: Discards,
}

impl<S> Http2Connection<S> {
    /// Starts a connection over the transport of a write buffer. Its requests run on `executor`.
    pub(super) fn new(
        transport: BufferedTransport,
        write_buffer: WriteBuffer,
        executor: RequestExecutor,
        options: &HttpOptions,
        service: S,
    ) -> Self {
        let mut http2 = h2::server::Builder::new();
        http2
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEADER_LIST_BYTES_MAX)
            .data_frame_budget(DATA_FRAME_BUDGET)
            .max_pending_accept_reset_streams(PENDING_RESET_STREAMS_MAX)
            .max_local_error_reset_streams(Some(ERROR_RESET_STREAMS_MAX))
            .max_concurrent_reset_streams(RESET_STREAMS_MAX)
            .reset_stream_duration(RESET_STREAM_TIME)
            .max_send_buffer_size(SEND_BUFFER_BYTES_MAX);
        // LI-4.
        if let Some(streams) = options.max_concurrent_streams {
            http2.max_concurrent_streams(streams);
        }
        Self {
            state: State::Handshake(http2.handshake(transport)),
            service,
            executor,
            write_buffer,
            keepalive: options.keepalive,
            is_shutting_down: false,
            is_last: Arc::default(),
        }
    }

    /// Accepts no further requests. The connection ends after those in flight.
    pub(super) fn graceful_shutdown(&mut self) {
        self.is_shutting_down = true;
        if let State::Open(open) = &mut self.state {
            open.shut_down();
        }
    }
}

impl<S, B> Future for Http2Connection<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>> + Unpin,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Output = Result<(), BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let State::Handshake(handshake) = &mut this.state {
            let mut connection = std::task::ready!(Pin::new(handshake).poll(context))?;
            let pings = connection.ping_pong();
            let mut open = Open {
                connection: Some(connection),
                arrivals: Arc::default(),
                pings: pings.map(|pings| Pings::new(this.keepalive, pings)),
                discards: Discards::default(),
            };
            if this.is_shutting_down {
                open.shut_down();
            }
            this.state = State::Open(open);
        }
        let State::Open(open) = &mut this.state else {
            return Poll::Pending;
        };
        // Relaxed: see where it is set.
        if this.is_last.load(Ordering::Relaxed) && !this.is_shutting_down {
            this.is_shutting_down = true;
            open.shut_down();
        }
        let Some(connection) = &mut open.connection else {
            return Poll::Ready(Ok(()));
        };
        open.arrivals.begin(context.waker());
        while let Poll::Ready(accepted) = connection.poll_accept(context) {
            let Some(accepted) = accepted else {
                return Poll::Ready(Ok(()));
            };
            let (request, respond) = accepted?;
            let request = request.map(|stream| {
                RequestBody::from_stream(StreamBody::new(stream, open.arrivals.clone()))
            });
            let response = this.service.call(request);
            this.executor
                .add(exchange::run(response, respond, this.is_last.clone()));
        }
        let unread = open.arrivals.collect();
        open.discards.add(unread, this.is_shutting_down);
        open.discards.poll(context);
        if let Some(pings) = &mut open.pings
            && (pings.poll_dead(context, this.write_buffer.last_read())).is_ready()
        {
            let error = io::Error::new(
                io::ErrorKind::TimedOut,
                "the client did not acknowledge a ping",
            );
            return Poll::Ready(Err(error.into()));
        }
        Poll::Pending
    }
}

impl Open {
    fn shut_down(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.graceful_shutdown();
        }
        self.discards.clear();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // The connection first tells its streams that it has ended.
        drop(self.connection.take());
        self.discards.clear();
        self.arrivals.close();
    }
}

/// The bodies that are read although nobody needs them.
///
/// A client that still sends a body when it gets the response, such as the refusal of a large request, is not cut off
/// in the middle: a reset would stop it as well, but HTTP/2 libraries count resets as attacks.
#[derive(Default)]
struct Discards {
    /// The bodies since the last tick of the timer, and those before them.
    new: Vec<Arc<Intake>>,
    old: Vec<Arc<Intake>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Discards {
    /// Adds bodies, or stops to read them at once.
    fn add(&mut self, unread: Vec<Arc<Intake>>, is_shutting_down: bool) {
        for intake in unread {
            if !intake.is_open() {
                continue;
            }
            if self.new.len() + self.old.len() >= DISCARDED_STREAMS_MAX {
                self.new.retain(|it| it.is_open());
                self.old.retain(|it| it.is_open());
            }
            if is_shutting_down || self.new.len() + self.old.len() >= DISCARDED_STREAMS_MAX {
                intake.abandon();
            } else {
                self.new.push(intake);
            }
        }
    }

    /// Stops to read bodies that have taken too long.
    fn poll(&mut self, context: &mut Context<'_>) {
        if self.new.is_empty() && self.old.is_empty() {
            return;
        }
        let timer = (self.timer).get_or_insert_with(|| Box::pin(sleep(DISCARD_TIME)));
        while timer.as_mut().poll(context).is_ready() {
            for intake in mem::replace(&mut self.old, mem::take(&mut self.new)) {
                intake.abandon();
            }
            self.old.retain(|it| it.is_open());
            if self.old.is_empty() {
                self.timer = None;
                return;
            }
            timer
                .as_mut()
                .reset(tokio::time::Instant::now() + DISCARD_TIME);
        }
    }

    fn clear(&mut self) {
        for intake in self.new.drain(..).chain(self.old.drain(..)) {
            intake.abandon();
        }
    }
}
