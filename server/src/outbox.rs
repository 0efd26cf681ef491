//! What is to be written waits in an outbox until a turn is over.
//!
//! The HTTP/2 library writes each frame of more than a few hundred bytes as soon as it has it, with a
//! system call. Most of what a write costs is the same for one small frame and for a hundred, so they
//! are copied together and leave when the connection has nothing more to say. Large ones, of which a
//! page has many, leave at once, without a copy.

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

/// From here on, to copy costs more than another write: a frame that is nearly full.
const DIRECT_BYTES_MIN: usize = 12 * 1024;

/// Pieces that one direct write has: what waits, and mostly head and bytes of one frame.
const DIRECT_PIECES_MAX: usize = 8;

/// What an empty outbox keeps allocated, unless the last thing in it was larger.
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
    /// The transport may have taken bytes that it has not passed on, as one with TLS does.
    unflushed: bool,
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
            unflushed: false,
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
        if !self.waiting.is_empty() {
            ready!(self.poll_send(context))?;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.transport).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Has the transport take what waits.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unflushed = true;
        while self.sent < self.waiting.len() {
            let transport = Pin::new(&mut self.transport);
            let sent = ready!(transport.poll_write(context, &self.waiting[self.sent..]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        let was_little = self.sent <= IDLE_BYTES_MAX;
        self.sent = 0;
        self.waiting.clear();
        if was_little {
            self.waiting.shrink_to(IDLE_BYTES_MAX);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what waits and then the slices, or as much as the peer takes; says how much of the
    /// slices that was.
    fn poll_direct(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.unflushed = true;
        loop {
            let mut pieces = [IoSlice::new(&[]); DIRECT_PIECES_MAX];
            pieces[0] = IoSlice::new(&self.waiting[self.sent..]);
            let used = slices.len().min(DIRECT_PIECES_MAX - 1);
            pieces[1..=used].copy_from_slice(&slices[..used]);
            let left = pieces[0].len();
            let transport = Pin::new(&mut self.transport);
            let sent = ready!(transport.poll_write_vectored(context, &pieces[..=used]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if sent < left {
                self.sent += sent;
                continue;
            }
            self.sent = 0;
            self.waiting.clear();
            if sent > left {
                return Poll::Ready(Ok(sent - left));
            }
        }
    }

    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let bytes = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if bytes >= DIRECT_BYTES_MIN {
            return self.poll_direct(context, slices);
        }
        if self.waiting.len() + bytes > OUTBOX_BYTES_MAX {
            ready!(self.poll_send(context))?;
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
            for chunk in data.chunks(10_000) {
                gathered.write_all(chunk).await.unwrap();
                assert!(gathered.0.inner.lock().waiting.len() <= OUTBOX_BYTES_MAX);
            }
            gathered
                .write_all(&data[..=OUTBOX_BYTES_MAX])
                .await
                .unwrap();
            gathered.write_all(b"end").await.unwrap();
            gathered.shutdown().await.unwrap();
        });
        let mut read = Vec::new();
        theirs.read_to_end(&mut read).await.unwrap();
        writing.await.unwrap();
        assert!(read[..expected.len()] == expected);
        let rest = &read[expected.len()..];
        assert!(rest == [&expected[..=OUTBOX_BYTES_MAX], b"end"].concat());
        assert!(outbox.inner.lock().waiting.capacity() <= IDLE_BYTES_MAX);
    }

    #[tokio::test]
    async fn what_a_transport_keeps_back_is_sent_in_the_end() {
        // As TLS does, it takes more than the peer has room for.
        let (ours, mut theirs) = tokio::io::duplex(1000);
        let ours = tokio::io::BufWriter::with_capacity(OUTBOX_BYTES_MAX, ours);
        let outbox = Outbox::new(Policed::new(
            Transport::Other(Box::new(ours)),
            Duration::ZERO,
        ));
        let mut gathered = outbox.gathered();
        gathered.write_all(b"small").await.unwrap();
        gathered.write_all(&[7; DIRECT_BYTES_MIN]).await.unwrap();
        // No more than the right to send is asked for, whenever the transport wakes the task.
        let mut read = Vec::new();
        let sending = poll_fn(|context| -> Poll<()> {
            outbox.send(context);
            Poll::Pending
        });
        let reading = async {
            let mut piece = [0; 100];
            while read.len() < 5 + DIRECT_BYTES_MIN {
                let count = theirs.read(&mut piece).await.unwrap();
                read.extend_from_slice(&piece[..count]);
            }
        };
        tokio::select! {
            () = sending => unreachable!(),
            () = reading => {}
        }
        assert!(read == [&b"small"[..], &[7; DIRECT_BYTES_MIN]].concat());
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
