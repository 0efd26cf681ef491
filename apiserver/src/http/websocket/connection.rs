//! The time after the opening handshake: messages to the client, pings and closes from it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use revstore_host::net::{Drain, Upgraded};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::frame::{CloseCode, FrameReader, Opcode, Received, write_frame};

/// The time for the last bytes, after the end of the messages or a close frame of the client.
pub(super) const CLOSE_TIME: Duration = Duration::from_secs(2);

/// The number of bytes from which frames are sent before further messages are looked at.
const CHUNK_BYTES: usize = 32 << 10;

/// The number of bytes that are read at a time. What the client sends is ignored, except pings and closes.
const READ_BYTES: usize = 4 << 10;

/// The number of reads, and of writes, after which other tasks run.
const STEPS_MAX: usize = 16;

/// A source of messages.
pub(crate) trait Messages: Send {
    /// Returns the next message, or `None` at the end.
    fn poll_message(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// Sends messages until they end, the client closes the WebSocket, or the time is over. In the last case a client that
/// does not read is cut off.
pub(super) async fn run(
    stream: Upgraded,
    drain: Drain,
    opcode: Opcode,
    messages: impl Messages,
    time_limit: Duration,
) {
    let messages = pin!(messages);
    let mut connection = Connection {
        stream,
        drain: Some(drain),
        opcode,
        messages,
        reader: FrameReader::default(),
        pong: None,
        closing: None,
        is_closed: false,
        out: Vec::new(),
        written: 0,
        deadline: Box::pin(sleep(time_limit.saturating_add(CLOSE_TIME))),
    };
    poll_fn(|context| connection.poll(context)).await;
}

struct Connection<'a, M> {
    stream: Upgraded,
    /// `None` after the server has begun to shut down.
    drain: Option<Drain>,
    opcode: Opcode,
    messages: Pin<&'a mut M>,
    reader: FrameReader,
    /// The payload of the answer to the last ping that has none. A client that sends many pings and does not read gets
    /// an answer to the last one only (RFC 6455, 5.5.3).
    pong: Option<Vec<u8>>,
    /// The code of the close frame that will be sent.
    closing: Option<CloseCode>,
    /// Whether the close frame is the last one in `out`.
    is_closed: bool,
    /// Frames. At most [`CHUNK_BYTES`] and one message.
    out: Vec<u8>,
    /// The number of bytes of `out` that were written.
    written: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<M: Messages> Connection<'_, M> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        if let Some(drain) = &mut self.drain
            && Pin::new(drain).poll(context).is_ready()
        {
            self.drain = None;
            self.hurry(context);
        }
        if self.poll_read(context).is_ready() {
            return Poll::Ready(());
        }
        for _ in 0..STEPS_MAX {
            if ready!(self.poll_write(context)).is_break() {
                return Poll::Ready(());
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Brings the deadline forward.
    fn hurry(&mut self, context: &mut Context<'_>) {
        let soon = Instant::now() + CLOSE_TIME;
        if soon < self.deadline.deadline() {
            self.deadline.as_mut().reset(soon);
            // Registers the task. The time has not come yet.
            let _ = self.deadline.as_mut().poll(context);
        }
    }

    fn close(&mut self, code: CloseCode, context: &mut Context<'_>) {
        self.closing.get_or_insert(code);
        self.hurry(context);
    }

    /// Reads frames until there are no more, or the WebSocket closes. Completes at the end of the client.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..STEPS_MAX {
            if self.closing.is_some() {
                return Poll::Pending;
            }
            let mut bytes = [0; READ_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(());
            }
            let mut bytes = buffer.filled();
            while let Some(received) = self.reader.next(&mut bytes) {
                match received {
                    Received::Ping(payload) => self.pong = Some(payload),
                    Received::End(code) => {
                        self.close(code, context);
                        break;
                    }
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what is there, and then encodes more. Breaks after the close frame, or an error.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<std::ops::ControlFlow<()>> {
        use std::ops::ControlFlow::{Break, Continue};
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest)) {
                Ok(count @ 1..) => self.written += count,
                Ok(0) | Err(_) => return Poll::Ready(Break(())),
            }
        }
        self.written = 0;
        self.out.clear();
        self.out.shrink_to(CHUNK_BYTES);
        if !self.is_closed {
            self.encode(context);
        }
        if self.out.is_empty() {
            let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
            if flushed.is_err() || self.is_closed {
                return Poll::Ready(Break(()));
            }
            // The sources of further frames wake the task.
            return Poll::Pending;
        }
        Poll::Ready(Continue(()))
    }

    /// Encodes frames that are ready.
    fn encode(&mut self, context: &mut Context<'_>) {
        if let Some(payload) = self.pong.take() {
            write_frame(Opcode::Pong, &payload, &mut self.out);
        }
        while self.closing.is_none() && self.out.len() < CHUNK_BYTES {
            match self.messages.as_mut().poll_message(context) {
                Poll::Ready(Some(message)) => write_frame(self.opcode, &message, &mut self.out),
                Poll::Pending if self.drain.is_some() => break,
                Poll::Ready(None) | Poll::Pending => self.close(CloseCode::Normal, context),
            }
        }
        if let Some(code) = self.closing {
            let code = (code as u16).to_be_bytes();
            write_frame(Opcode::Close, &code, &mut self.out);
            self.is_closed = true;
        }
    }
}
