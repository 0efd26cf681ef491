//! The byte stream of an HTTP connection, and the buffer for writes to it.
//!
//! The HTTP/2 library writes each frame of more than a few hundred bytes with a system call as soon as it is
//! encoded. The cost of a system call is nearly the same for one small frame and for 100 of them. So a
//! [`WriteBuffer`] copies small frames into one buffer and writes it when the connection has no more data to
//! encode. Large frames, which most frames of a large response are, are written immediately and without a
//! copy. With TLS they are then encrypted, and sent together (`tls/stream.rs`).

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Instant,
};

use crate::net::{http2::AuthorityFilter, http2::frame::PREFACE, ping_limit::PingLimit};

/// The maximum number of bytes in a write buffer. A larger buffer is written before the end of the round.
const BUFFERED_BYTES_MAX: usize = 64 * 1024;

/// The minimum number of bytes of a write that is not copied: a frame that is nearly full. A copy of so many
/// bytes costs more than another system call.
const DIRECT_BYTES_MIN: usize = 12 * 1024;

/// The maximum number of slices in one direct write: the buffered bytes, and usually the header and payload
/// of one frame.
const DIRECT_SLICES_MAX: usize = 8;

/// The maximum capacity of an empty write buffer, unless the last write was larger.
const IDLE_CAPACITY_MAX: usize = 16 * 1024;

/// The number of bytes after which no further read of a connection starts in a round: the requests in them run first,
/// and the frames of their bodies are taken from the HTTP library.
pub(crate) const READ_BYTES_PER_ROUND: usize = 64 * 1024;

/// The maximum number of bytes that are read before the HTTP library needs them, so that the end of the client is noticed.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// The number of bytes that are read ahead, or for a filter, at a time.
const READ_BYTES: usize = 4 * 1024;

/// Both directions of a connection.
///
/// All kinds of connections have this type, so that HTTP is compiled once. TCP without TLS, which benchmarks
/// measure, costs a branch. Unix sockets and TLS cost a dynamic call.
#[derive(Debug)]
pub(crate) enum Transport {
    Tcp(TcpStream),
    Boxed(Box<dyn Duplex>),
}

/// A byte stream in both directions.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Duplex for T {}

impl Transport {
    /// Returns the address of the client, if it has one.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp.peer_addr().ok(),
            Self::Boxed(_) => None,
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(context, buffer),
            Self::Boxed(boxed) => Pin::new(boxed).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(context, data),
            Self::Boxed(boxed) => Pin::new(boxed).poll_write(context, data),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(context, slices),
            Self::Boxed(boxed) => Pin::new(boxed).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_write_vectored(),
            Self::Boxed(boxed) => boxed.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(context),
            Self::Boxed(boxed) => Pin::new(boxed).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(context),
            Self::Boxed(boxed) => Pin::new(boxed).poll_shutdown(context),
        }
    }
}

/// A transport whose writes are buffered until [`WriteBuffer::flush`], and whose reads pause until
/// [`WriteBuffer::start_round`] when much has been read.
#[derive(Debug)]
pub(crate) struct BufferedTransport {
    buffer: WriteBuffer,
    /// The bytes that [`has_prefix`](Self::has_prefix) has read, in reverse order. They are read again.
    rewound: Vec<u8>,
    /// What rewrites the bytes of the client. `None` if they pass unchanged.
    filtered: Option<Box<Filtered>>,
}

/// A filter, and the bytes that it has returned and nobody has read.
#[derive(Debug)]
struct Filtered {
    filter: AuthorityFilter,
    output: Vec<u8>,
    /// The number of bytes at the start of `output` that were read.
    read: usize,
}

impl Filtered {
    /// Copies bytes to the reader. Returns whether there were any.
    fn read(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let unread = &self.output[self.read..];
        let (count, any) = (unread.len().min(buffer.remaining()), !unread.is_empty());
        buffer.put_slice(&unread[..count]);
        self.read += count;
        if self.read == self.output.len() {
            self.read = 0;
            self.output.clear();
            self.output.shrink_to(IDLE_CAPACITY_MAX);
        }
        any
    }
}

impl BufferedTransport {
    /// Returns whether the bytes of the client begin with `prefix`. Reads until this is known, and no further than the
    /// prefix; the bytes are then read again.
    pub(crate) async fn has_prefix(&mut self, prefix: &[u8]) -> io::Result<bool> {
        let mut read = vec![0; prefix.len()];
        let mut length = 0;
        while length < prefix.len() && prefix.starts_with(&read[..length]) {
            match self.read(&mut read[length..]).await? {
                0 => break,
                count => length += count,
            }
        }
        read.truncate(length);
        let has_prefix = read == prefix;
        read.reverse();
        self.rewound = read;
        Ok(has_prefix)
    }

    /// Rewrites the frames of a client of HTTP/2 whose authority is invalid.
    pub(crate) fn repair_authorities(&mut self) {
        // The bytes that are read again do not pass the filter.
        let preface_bytes = PREFACE.len().saturating_sub(self.rewound.len());
        self.filtered = Some(Box::new(Filtered {
            filter: AuthorityFilter::new(preface_bytes),
            output: Vec::new(),
            read: 0,
        }));
    }

    /// Like `poll_read`, through the filter.
    fn poll_read_filtered(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while let Some(filtered) = &mut self.filtered {
            if filtered.read(buffer) {
                return Poll::Ready(Ok(()));
            }
            if filtered.filter.is_done() {
                self.filtered = None;
                break;
            }
            let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
            let mut input = ReadBuf::uninit(&mut bytes);
            ready!(self.buffer.poll_read(context, &mut input))?;
            if input.filled().is_empty() {
                filtered.filter.release(&mut filtered.output);
            } else {
                (filtered.filter).filter(input.filled(), &mut filtered.output);
            }
        }
        self.buffer.poll_read(context, buffer)
    }
}

/// The write buffer of a connection: the handle that flushes the bytes written to the
/// [`BufferedTransport`].
#[derive(Clone, Debug)]
pub(crate) struct WriteBuffer {
    /// A leaf lock that only the task of the connection locks, so it is never contended.
    inner: Arc<Mutex<WriteState>>,
}

#[derive(Debug)]
struct WriteState {
    transport: PingLimit<Transport>,
    buffered: Vec<u8>,
    /// The number of bytes at the start of `buffered` that are written already.
    written: usize,
    /// Whether the transport may have buffered bytes itself, as TLS does.
    needs_flush: bool,
    /// The error of a flush, until a read or write returns it.
    failure: Option<io::Error>,
    /// The number of bytes that can still be read in this round.
    readable: usize,
    /// Whether a read was refused in this round.
    is_read_paused: bool,
    /// The bytes that were read ahead and not taken.
    ahead: VecDeque<u8>,
    /// Whether the last read has to wait. The reader then notices the end of the client.
    is_reader_waiting: bool,
    /// The time of the last read.
    last_read: Instant,
}

impl WriteBuffer {
    /// Creates a write buffer for a transport.
    pub(crate) fn new(transport: PingLimit<Transport>) -> Self {
        let inner = WriteState {
            transport,
            buffered: Vec::new(),
            written: 0,
            needs_flush: false,
            failure: None,
            readable: READ_BYTES_PER_ROUND,
            is_read_paused: false,
            ahead: VecDeque::new(),
            is_reader_waiting: false,
            last_read: Instant::now(),
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// Returns the transport that writes into this buffer.
    pub(crate) fn transport(&self) -> BufferedTransport {
        BufferedTransport {
            buffer: self.clone(),
            rewound: Vec::new(),
            filtered: None,
        }
    }

    /// Reads bytes of the client, unless enough were read in this round.
    fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.inner.lock();
        inner.check_failure()?;
        inner.is_reader_waiting = true;
        if inner.readable == 0 {
            inner.is_read_paused = true;
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        if inner.ahead.is_empty() {
            ready!(Pin::new(&mut inner.transport).poll_read(context, buffer))?;
        } else {
            inner.take_ahead(buffer);
        }
        inner.is_reader_waiting = false;
        inner.readable = inner
            .readable
            .saturating_sub(buffer.filled().len() - before);
        inner.last_read = Instant::now();
        Poll::Ready(Ok(()))
    }

    /// Starts a round, in which up to [`READ_BYTES_PER_ROUND`] can be read.
    pub(crate) fn start_round(&self) {
        let mut inner = self.inner.lock();
        inner.readable = READ_BYTES_PER_ROUND;
        inner.is_read_paused = false;
    }

    /// Returns whether a read was refused in this round. The reader is not woken.
    pub(crate) fn is_read_paused(&self) -> bool {
        self.inner.lock().is_read_paused
    }

    /// Closes the transport for writing, and reads and discards bytes until the client has closed it, too.
    pub(crate) async fn linger(&self) {
        let mut bytes = vec![0; IDLE_CAPACITY_MAX];
        let mut is_closed = false;
        poll_fn(|context| {
            let mut inner = self.inner.lock();
            let transport = &mut inner.transport;
            if !is_closed {
                // After an error there is nothing to read, either.
                let _ = ready!(Pin::new(&mut *transport).poll_shutdown(context));
                is_closed = true;
            }
            loop {
                let mut buffer = ReadBuf::new(&mut bytes);
                let read = ready!(Pin::new(&mut *transport).poll_read(context, &mut buffer));
                if read.is_err() || buffer.filled().is_empty() {
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }

    /// Reads ahead, up to a limit, if the reader does not read. Returns whether the client sends nothing more.
    pub(crate) fn has_client_ended(&self, context: &mut Context<'_>) -> bool {
        let mut inner = self.inner.lock();
        if inner.is_reader_waiting {
            return false;
        }
        while inner.ahead.len() < AHEAD_BYTES_MAX {
            let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut inner.transport).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    inner.ahead.extend(buffer.filled());
                }
                Poll::Ready(_) => return true,
                Poll::Pending => return false,
            }
        }
        false
    }

    /// Reads without pauses from now on: nobody starts rounds any more.
    pub(crate) fn end_rounds(&self) {
        let mut inner = self.inner.lock();
        inner.readable = usize::MAX;
        inner.is_read_paused = false;
    }

    /// Writes all buffered bytes.
    pub(crate) fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner.lock();
        inner.check_failure()?;
        inner.poll_flush(context)
    }

    /// Returns the time of the last read.
    pub(crate) fn last_read(&self) -> Instant {
        self.inner.lock().last_read
    }

    /// Writes as many buffered bytes as the transport accepts. The task is woken to write the rest. After an
    /// error, the task is woken, and the next read or write returns the error.
    pub(crate) fn flush(&self, context: &mut Context<'_>) {
        let mut inner = self.inner.lock();
        if let Poll::Ready(Err(failure)) = inner.poll_flush(context) {
            inner.failure = Some(failure);
            context.waker().wake_by_ref();
        }
    }
}

impl WriteState {
    /// Copies bytes that were read ahead to the reader.
    fn take_ahead(&mut self, buffer: &mut ReadBuf<'_>) {
        let (first, _) = self.ahead.as_slices();
        let count = first.len().min(buffer.remaining());
        buffer.put_slice(&first[..count]);
        self.ahead.drain(..count);
        if self.ahead.is_empty() {
            self.ahead = VecDeque::new();
        }
    }

    fn check_failure(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Writes the buffered bytes and flushes the transport.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.buffered.is_empty() {
            ready!(self.poll_write_buffered(context))?;
        }
        if self.needs_flush {
            ready!(Pin::new(&mut self.transport).poll_flush(context))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the buffered bytes to the transport.
    fn poll_write_buffered(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.needs_flush = true;
        while self.written < self.buffered.len() {
            let transport = Pin::new(&mut self.transport);
            let count = ready!(transport.poll_write(context, &self.buffered[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        let was_small = self.written <= IDLE_CAPACITY_MAX;
        self.written = 0;
        self.buffered.clear();
        if was_small {
            self.buffered.shrink_to(IDLE_CAPACITY_MAX);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the buffered bytes and then the slices, without copying them. Returns the number of written
    /// bytes of the slices.
    fn poll_write_direct(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.needs_flush = true;
        loop {
            let mut all = [IoSlice::new(&[]); DIRECT_SLICES_MAX];
            all[0] = IoSlice::new(&self.buffered[self.written..]);
            let used = slices.len().min(DIRECT_SLICES_MAX - 1);
            all[1..=used].copy_from_slice(&slices[..used]);
            let buffered = all[0].len();
            let transport = Pin::new(&mut self.transport);
            let count = ready!(transport.poll_write_vectored(context, &all[..=used]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if count < buffered {
                self.written += count;
                continue;
            }
            self.written = 0;
            self.buffered.clear();
            if count > buffered {
                return Poll::Ready(Ok(count - buffered));
            }
        }
    }

    /// Buffers the slices, or writes them directly if they are large.
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_failure()?;
        let bytes = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if bytes >= DIRECT_BYTES_MIN {
            return self.poll_write_direct(context, slices);
        }
        if self.buffered.len() >= BUFFERED_BYTES_MAX {
            ready!(self.poll_write_buffered(context))?;
        }
        // The buffer is filled to its end, a number of full records of TLS.
        let taken = bytes.min(BUFFERED_BYTES_MAX - self.buffered.len());
        let mut left = taken;
        for slice in slices {
            let length = slice.len().min(left);
            self.buffered.extend_from_slice(&slice[..length]);
            left -= length;
        }
        Poll::Ready(Ok(taken))
    }
}

impl AsyncRead for BufferedTransport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.rewound.is_empty() {
            let count = this.rewound.len().min(buffer.remaining());
            for byte in this.rewound.drain(this.rewound.len() - count..).rev() {
                buffer.put_slice(&[byte]);
            }
            return Poll::Ready(Ok(()));
        }
        if this.filtered.is_some() {
            return this.poll_read_filtered(context, buffer);
        }
        this.buffer.poll_read(context, buffer)
    }
}

impl AsyncWrite for BufferedTransport {
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
        self.buffer.inner.lock().poll_write(context, slices)
    }

    /// Returns true, so that the HTTP library passes its slices without copying them.
    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: the connection's driver calls [`WriteBuffer::flush`].
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.buffer.inner.lock();
        inner.check_failure()?;
        ready!(inner.poll_flush(context))?;
        Pin::new(&mut inner.transport).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Waker, time::Duration};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    fn pair(bytes_max: usize) -> (WriteBuffer, BufferedTransport, DuplexStream) {
        let (server, client) = tokio::io::duplex(bytes_max);
        let server = Transport::Boxed(Box::new(server));
        let buffer = WriteBuffer::new(PingLimit::new(server, Duration::ZERO));
        let transport = buffer.transport();
        (buffer, transport, client)
    }

    #[tokio::test]
    async fn buffered_writes_are_sent_together() {
        let (buffer, mut transport, mut client) = pair(1024);
        transport.write_all(b"one ").await.unwrap();
        transport.flush().await.unwrap();
        transport.write_all(b"two").await.unwrap();
        let mut bytes = [0; 16];
        let mut context = Context::from_waker(Waker::noop());
        let early = Pin::new(&mut client).poll_read(&mut context, &mut ReadBuf::new(&mut bytes));
        assert!(early.is_pending());
        buffer.flush(&mut context);
        let read = client.read(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..read], b"one two");
    }

    #[tokio::test]
    async fn bytes_for_a_slow_client_are_bounded_and_arrive_in_order() {
        let (buffer, mut transport, mut client) = pair(1000);
        let data: Vec<u8> = (0..300_000_u32)
            .map(|number| number.to_le_bytes()[1])
            .collect();
        let expected = data.clone();
        let writing = tokio::spawn(async move {
            for chunk in data.chunks(10_000) {
                transport.write_all(chunk).await.unwrap();
                assert!(transport.buffer.inner.lock().buffered.len() <= BUFFERED_BYTES_MAX);
            }
            transport
                .write_all(&data[..=BUFFERED_BYTES_MAX])
                .await
                .unwrap();
            transport.write_all(b"end").await.unwrap();
            transport.shutdown().await.unwrap();
        });
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        writing.await.unwrap();
        assert!(read[..expected.len()] == expected);
        let rest = &read[expected.len()..];
        assert!(rest == [&expected[..=BUFFERED_BYTES_MAX], b"end"].concat());
        assert!(buffer.inner.lock().buffered.capacity() <= IDLE_CAPACITY_MAX);
    }

    #[tokio::test]
    async fn a_transport_that_buffers_bytes_is_flushed() {
        // Like TLS, this transport accepts more bytes than the client.
        let (server, mut client) = tokio::io::duplex(1000);
        let server = tokio::io::BufWriter::with_capacity(BUFFERED_BYTES_MAX, server);
        let buffer = WriteBuffer::new(PingLimit::new(
            Transport::Boxed(Box::new(server)),
            Duration::ZERO,
        ));
        let mut transport = buffer.transport();
        transport.write_all(b"small").await.unwrap();
        transport.write_all(&[7; DIRECT_BYTES_MIN]).await.unwrap();
        // `flush` alone writes everything when it is called at each wake-up.
        let mut read = Vec::new();
        let sending = poll_fn(|context| -> Poll<()> {
            buffer.flush(context);
            Poll::Pending
        });
        let reading = async {
            let mut piece = [0; 100];
            while read.len() < 5 + DIRECT_BYTES_MIN {
                let count = client.read(&mut piece).await.unwrap();
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
    async fn a_failed_flush_is_reported_by_the_next_read() {
        let (buffer, mut transport, client) = pair(1000);
        transport.write_all(b"lost").await.unwrap();
        drop(client);
        poll_fn(|context| {
            buffer.flush(context);
            Poll::Ready(())
        })
        .await;
        let failure = transport.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(failure.kind(), io::ErrorKind::BrokenPipe);
    }
}
