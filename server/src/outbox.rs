//! What is to be written waits in an outbox until a turn is over.
//!
//! The HTTP/2 library writes each frame of more than a few hundred bytes as soon as it has it, with a
//! system call. Most of what a write costs is the same for one frame and for a hundred, so frames are
//! copied together and leave when the connection has nothing more to say.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{pings::Policed, transport::Transport};

/// What an outbox holds before it is sent in the middle of a turn.
const OUTBOX_BYTES_MAX: usize = 64 * 1024;

/// What an empty outbox keeps allocated.
const IDLE_BYTES_MAX: usize = 16 * 1024;

/// A transport to read from and to write to, whose writes wait to be [sent](Outbox::send).
#[derive(Debug)]
pub(crate) struct Gathered(Outbox);

/// The right to send what was written to a [`Gathered`] transport.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    /// A leaf lock that only the task of the connection takes, so nobody ever waits for it.
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    transport: Policed<Transport>,
    waiting: Vec<u8>,
    /// Bytes of `waiting` that are sent already.
    sent: usize,
    /// Why nothing can be sent any more, until a reader or writer is told.
    failure: Option<io::Error>,
}

impl Outbox {
    /// An outbox in front of a transport.
    pub(crate) fn new(transport: Policed<Transport>) -> Self {
        let inner = Inner {
            transport,
            waiting: Vec::new(),
            sent: 0,
            failure: None,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// The transport to go with it.
    pub(crate) fn gathered(&self) -> Gathered {
        Gathered(self.clone())
    }

    /// Sends what waits, as far as the peer takes it; the task is woken to send the rest. A failure
    /// is told to whoever reads or writes next, and the task woken for that.
    pub(crate) fn send(&self, context: &mut Context<'_>) {
        let mut inner = self.inner.lock();
        if let Poll::Ready(Err(failure)) = inner.poll_empty(context) {
            inner.failure = Some(failure);
            context.waker().wake_by_ref();
        }
    }
}

impl Inner {
    fn check(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Sends everything.
    fn poll_empty(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.sent < self.waiting.len() {
            let transport = Pin::new(&mut self.transport);
            let sent = ready!(transport.poll_write(context, &self.waiting[self.sent..]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        self.sent = 0;
        self.waiting.clear();
        self.waiting.shrink_to(IDLE_BYTES_MAX);
        Pin::new(&mut self.transport).poll_flush(context)
    }

    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let bytes = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if self.waiting.len() + bytes > OUTBOX_BYTES_MAX {
            ready!(self.poll_empty(context))?;
            if bytes > OUTBOX_BYTES_MAX {
                return Pin::new(&mut self.transport).poll_write_vectored(context, slices);
            }
        }
        for slice in slices {
            self.waiting.extend_from_slice(slice);
        }
        Poll::Ready(Ok(bytes))
    }
}

impl AsyncRead for Gathered {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.0.inner.lock();
        inner.check()?;
        Pin::new(&mut inner.transport).poll_read(context, buffer)
    }
}

impl AsyncWrite for Gathered {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.inner.lock().poll_take(context, slices)
    }

    /// Spares a copy: each slice is gathered from where it is.
    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Left to [`Outbox::send`].
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.inner.lock();
        inner.check()?;
        ready!(inner.poll_empty(context))?;
        Pin::new(&mut inner.transport).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Waker, time::Duration};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    fn pair(bytes_max: usize) -> (Outbox, Gathered, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(bytes_max);
        let transport = Transport::Other(Box::new(ours));
        let outbox = Outbox::new(Policed::new(transport, Duration::ZERO));
        let gathered = outbox.gathered();
        (outbox, gathered, theirs)
    }

    #[tokio::test]
    async fn writes_wait_to_be_sent_together() {
        let (outbox, mut gathered, mut theirs) = pair(1024);
        gathered.write_all(b"one ").await.unwrap();
        gathered.flush().await.unwrap();
        gathered.write_all(b"two").await.unwrap();
        let mut buffer = [0; 16];
        let mut context = Context::from_waker(Waker::noop());
        let early = Pin::new(&mut theirs).poll_read(&mut context, &mut ReadBuf::new(&mut buffer));
        assert!(early.is_pending());
        outbox.send(&mut context);
        let read = theirs.read(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..read], b"one two");
    }

    #[tokio::test]
    async fn what_a_slow_peer_leaves_is_bounded_and_arrives_in_order() {
        let (outbox, mut gathered, mut theirs) = pair(1000);
        let data: Vec<u8> = (0..300_000_u32)
            .map(|number| number.to_le_bytes()[1])
            .collect();
        let expected = data.clone();
        let writing = tokio::spawn(async move {
            for chunk in data.chunks(50_000) {
                gathered.write_all(chunk).await.unwrap();
                assert!(gathered.0.inner.lock().waiting.len() <= OUTBOX_BYTES_MAX);
            }
            gathered
                .write_all(&data[..=OUTBOX_BYTES_MAX])
                .await
                .unwrap();
            gathered.shutdown().await.unwrap();
        });
        let mut read = Vec::new();
        theirs.read_to_end(&mut read).await.unwrap();
        writing.await.unwrap();
        assert!(read[..expected.len()] == expected);
        assert!(read[expected.len()..] == expected[..=OUTBOX_BYTES_MAX]);
        assert_eq!(outbox.inner.lock().waiting.capacity(), IDLE_BYTES_MAX);
    }

    #[tokio::test]
    async fn a_failure_to_send_is_told_to_the_reader() {
        let (outbox, mut gathered, theirs) = pair(1000);
        gathered.write_all(b"lost").await.unwrap();
        drop(theirs);
        poll_fn(|context| {
            outbox.send(context);
            Poll::Ready(())
        })
        .await;
        let failure = gathered.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(failure.kind(), io::ErrorKind::BrokenPipe);
    }
}
