//! A limit for HTTP/2 pings of clients (LI-5, LI-6): the keepalive enforcement policy of grpc-go.
//!
//! A connection with too many pings is closed with a GOAWAY frame: code `ENHANCE_YOUR_CALM`, debug data
//! `too_many_pings`. The HTTP/2 library acknowledges pings and does not report them. So this layer inspects
//! the frame headers between the socket and the library. It neither changes nor copies the bytes, except after a shutdown
//! (`late_frames`).
//!
//! The rules are those of grpc-go. A ping within the minimum time after the previous one is a strike. While
//! no stream is open, the minimum time is 2 hours. The first ping after the server has sent headers or data
//! is always accepted and resets the strikes, because clients use such pings to estimate the bandwidth.

use std::{
    collections::HashSet,
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::http2::{
    frame::{
        ACK, DATA, END_STREAM, FrameHeader, FrameReader, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM,
    },
    late_frames::{LateFrames, SHUTDOWN_PING},
};

/// The maximum number of strikes. The next strike closes the connection.
const STRIKES_MAX: u32 = 2;

/// The minimum time between two pings of a client without an open stream.
const IDLE_MIN_TIME: Duration = Duration::from_secs(2 * 60 * 60);

/// The error code and the debug data of the GOAWAY frame, which clients recognize.
const ENHANCE_YOUR_CALM: u32 = 11;
const TOO_MANY_PINGS: [u8; 14] = *b"too_many_pings";

/// The length of the payload of the GOAWAY frame: last stream, error code, debug data.
const GOAWAY_PAYLOAD_BYTES: u32 = 4 + 4 + 14;

/// The number of bytes that are read at a time after a shutdown.
const LATE_READ_BYTES: usize = 4 * 1024;

/// A transport that is closed with GOAWAY when the client sends too many pings.
#[derive(Debug)]
pub(crate) struct PingLimit<T> {
    transport: T,
    protocol: Protocol,
    received: FrameReader,
    sent: FrameReader,
    pings: PingCounter,
    /// The bytes of the GOAWAY frame that are not written yet; `None` while the limit is not exceeded.
    goaway: Option<Vec<u8>>,
    /// The bytes of an acknowledgement that have arrived, until all have.
    acknowledged: Option<Vec<u8>>,
    /// After the acknowledgement of a shutdown.
    late: Option<Box<LateFrames>>,
}

/// What a frame of the client means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    Frame,
    TooManyPings,
    /// A ping of the server is acknowledged.
    Acknowledgement,
}

/// The protocol of the client.
#[derive(Debug)]
enum Protocol {
    /// HTTP/2, if the given remaining bytes of the preface follow.
    Unknown(&'static [u8]),
    Http2,
    /// A protocol without pings.
    Other,
}

impl<T> PingLimit<T> {
    /// Allows one ping per `min_time` while the client has a stream open.
    pub(crate) fn new(transport: T, min_time: Duration) -> Self {
        Self {
            transport,
            protocol: Protocol::Unknown(PREFACE),
            received: FrameReader::default(),
            sent: FrameReader::default(),
            pings: PingCounter::new(min_time),
            goaway: None,
            acknowledged: None,
            late: None,
        }
    }

    /// Looks at the next bytes of the client. Returns the number of those behind the acknowledgement of a shutdown, if it
    /// is among them.
    fn inspect_received(&mut self, mut bytes: &[u8]) -> Option<usize> {
        if let Protocol::Unknown(missing) = self.protocol {
            let length = missing.len().min(bytes.len());
            let (seen, rest) = bytes.split_at(length);
            bytes = rest;
            self.protocol = match missing.strip_prefix(seen) {
                None => Protocol::Other,
                Some([]) => Protocol::Http2,
                Some(missing) => Protocol::Unknown(missing),
            };
        }
        if !matches!(self.protocol, Protocol::Http2) || self.goaway.is_some() {
            return None;
        }
        let mut late = self.acknowledged(bytes);
        let mut too_many = false;
        while let Some(header) = self.received.next(&mut bytes) {
            match self.pings.received(header) {
                Received::Frame => {}
                Received::TooManyPings => too_many = true,
                Received::Acknowledgement => {
                    self.acknowledged = Some(Vec::new());
                    late = late.or_else(|| self.acknowledged(bytes));
                }
            }
        }
        if too_many {
            self.goaway = Some(self.pings.goaway());
        }
        late
    }

    /// Looks at the rest of an acknowledgement, which `bytes` begin with. Returns the number of bytes behind it if it is that
    /// of a shutdown.
    fn acknowledged(&mut self, bytes: &[u8]) -> Option<usize> {
        let payload = self.acknowledged.as_mut()?;
        let missing = SHUTDOWN_PING.len() - payload.len();
        let (arrived, rest) = bytes.split_at(missing.min(bytes.len()));
        payload.extend_from_slice(arrived);
        if payload.len() < SHUTDOWN_PING.len() {
            return None;
        }
        let payload = self.acknowledged.take();
        if self.late.is_some() || payload.as_deref() != Some(&SHUTDOWN_PING) {
            return None;
        }
        self.late = Some(Box::new(LateFrames::after(self.pings.last_stream)));
        Some(rest.len())
    }

    fn inspect_sent(&mut self, mut bytes: &[u8]) {
        if !matches!(self.protocol, Protocol::Http2) {
            return;
        }
        while let Some(header) = self.sent.next(&mut bytes) {
            self.pings.sent(header);
        }
    }
}

impl<T: AsyncWrite + Unpin> PingLimit<T> {
    /// Writes the GOAWAY frame and closes the transport. The returned error ends the connection.
    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let transport = &mut self.transport;
        while let Some(rest) = self.goaway.as_mut().filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut *transport).poll_write(context, rest)) {
                Ok(0) => return Poll::Ready(io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(rest.drain(..written)),
                Err(error) => return Poll::Ready(error),
            }
        }
        let closed = ready!(Pin::new(transport).poll_shutdown(context));
        Poll::Ready(
            closed.err().unwrap_or_else(|| {
                io::Error::new(io::ErrorKind::ConnectionAborted, "too many pings")
            }),
        )
    }
}

impl<T: AsyncRead + Unpin> PingLimit<T> {
    /// Like `poll_read`, after a shutdown.
    fn poll_read_late(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        while buffer.filled().len() == before {
            let kept = self.late.as_ref().map_or(0, |late| late.kept());
            // Readers have room for more than a frame header.
            let room = buffer.remaining().saturating_sub(kept);
            let mut bytes = [MaybeUninit::uninit(); LATE_READ_BYTES];
            let mut input = ReadBuf::uninit(&mut bytes[..room.min(LATE_READ_BYTES)]);
            ready!(Pin::new(&mut self.transport).poll_read(context, &mut input))?;
            self.inspect_received(input.filled());
            let Some(late) = &mut self.late else { break };
            if input.filled().is_empty() {
                late.release(buffer);
                break;
            }
            late.filter(input.filled(), buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for PingLimit<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.late.is_some() {
            return this.poll_read_late(context, buffer);
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.transport).poll_read(context, buffer))?;
        if let Some(count) = this.inspect_received(&buffer.filled()[before..])
            && let Some(late) = &mut this.late
        {
            let end = buffer.filled().len() - count;
            let bytes = buffer.filled()[end..].to_vec();
            buffer.set_filled(end);
            late.filter(&bytes, buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for PingLimit<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.goaway.is_some() {
            // The GOAWAY frame can only follow a complete frame.
            let rest = this.sent.rest();
            if rest == 0 {
                return this.poll_close(context).map(Err);
            }
            data = &data[..data.len().min(rest)];
        }
        let written = ready!(Pin::new(&mut this.transport).poll_write(context, data))?;
        this.inspect_sent(&data[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.goaway.is_some() {
            let first = slices.iter().find(|slice| !slice.is_empty());
            return self.poll_write(context, first.map_or(&[], |slice| slice));
        }
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.transport).poll_write_vectored(context, slices))?;
        let mut left = written;
        for slice in slices {
            let taken = slice.len().min(left);
            this.inspect_sent(&slice[..taken]);
            left -= taken;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_shutdown(context)
    }
}

/// A counter of the pings of a client that are too early.
#[derive(Debug)]
struct PingCounter {
    min_time: Duration,
    /// The time of the last ping.
    last: Option<Instant>,
    strikes: u32,
    /// Whether the server has sent headers or data since the last ping.
    responded: bool,
    /// The open streams, which the server has not ended and neither side has reset.
    streams: HashSet<u32>,
    last_stream: u32,
}

impl PingCounter {
    fn new(min_time: Duration) -> Self {
        Self {
            min_time,
            last: None,
            strikes: 0,
            responded: false,
            streams: HashSet::new(),
            last_stream: 0,
        }
    }

    /// Records a frame of the client.
    fn received(&mut self, header: FrameHeader) -> Received {
        match header.kind {
            HEADERS if header.stream > self.last_stream => {
                self.last_stream = header.stream;
                self.streams.insert(header.stream);
            }
            RST_STREAM => {
                self.streams.remove(&header.stream);
            }
            PING if header.flags & ACK != 0 => return Received::Acknowledgement,
            PING if self.received_ping(Instant::now()) => return Received::TooManyPings,
            _ => {}
        }
        Received::Frame
    }

    /// Records a frame of the server.
    fn sent(&mut self, header: FrameHeader) {
        let of_stream = matches!(header.kind, DATA | HEADERS);
        self.responded |= of_stream;
        if header.kind == RST_STREAM || of_stream && header.flags & END_STREAM != 0 {
            self.streams.remove(&header.stream);
        }
    }

    /// Records a ping. Returns true if there were too many pings.
    fn received_ping(&mut self, now: Instant) -> bool {
        let previous = self.last.replace(now);
        if std::mem::take(&mut self.responded) {
            self.strikes = 0;
            return false;
        }
        let min_time = if self.streams.is_empty() {
            IDLE_MIN_TIME
        } else {
            self.min_time
        };
        let too_early = previous.is_some_and(|previous| now.duration_since(previous) < min_time);
        self.strikes += u32::from(too_early);
        self.strikes > STRIKES_MAX
    }

    /// Returns the GOAWAY frame.
    fn goaway(&self) -> Vec<u8> {
        let header = FrameHeader {
            length: GOAWAY_PAYLOAD_BYTES,
            kind: GOAWAY,
            flags: 0,
            stream: 0,
        };
        let mut frame = header.to_bytes().to_vec();
        frame.extend(self.last_stream.to_be_bytes());
        frame.extend(ENHANCE_YOUR_CALM.to_be_bytes());
        frame.extend(TOO_MANY_PINGS);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn header(kind: u8, flags: u8, stream: u32) -> FrameHeader {
        FrameHeader {
            length: 0,
            kind,
            flags,
            stream,
        }
    }

    /// Sends pings at equal distances. Returns the index of the ping that exceeds the limit.
    fn limit_reached(pings: &mut PingCounter, distance: Duration, times: u32) -> Option<u32> {
        let start = Instant::now();
        (0..times).find(|time| pings.received_ping(start + distance * *time))
    }

    #[test]
    fn li_5_pings_with_an_open_stream_keep_the_minimum_time() {
        let open = || {
            let mut pings = PingCounter::new(5 * SECOND);
            pings.received(header(HEADERS, 0, 1));
            pings
        };
        assert_eq!(limit_reached(&mut open(), SECOND, 9), Some(3));
        assert_eq!(limit_reached(&mut open(), 5 * SECOND, 9), None);
    }

    #[test]
    fn li_5_pings_without_an_open_stream_keep_two_hours() {
        let mut pings = PingCounter::new(5 * SECOND);
        assert_eq!(limit_reached(&mut pings, 60 * SECOND, 9), Some(3));
        assert_eq!(
            limit_reached(&mut PingCounter::new(SECOND), IDLE_MIN_TIME, 9),
            None
        );
        // A stream is closed when the server has ended it, or either side has reset it.
        let mut pings = PingCounter::new(SECOND);
        for stream in [1, 3, 5, 7] {
            pings.received(header(HEADERS, END_STREAM, stream));
        }
        pings.sent(header(HEADERS, END_STREAM, 1));
        pings.sent(header(DATA, END_STREAM, 3));
        pings.sent(header(RST_STREAM, 0, 5));
        assert_eq!(pings.streams.len(), 1);
        pings.received(header(RST_STREAM, 0, 7));
        // The first ping is accepted because of the responses.
        assert_eq!(limit_reached(&mut pings, 60 * SECOND, 9), Some(3));
    }

    #[test]
    fn li_5_pings_after_responses_do_not_count() {
        let mut pings = PingCounter::new(5 * SECOND);
        pings.received(header(HEADERS, 0, 1));
        for _ in 0..100 {
            assert_eq!(pings.received(header(PING, 0, 0)), Received::Frame);
            assert_eq!(pings.received(header(PING, 0, 0)), Received::Frame);
            assert_eq!(
                pings.received(header(PING, ACK, 0)),
                Received::Acknowledgement
            );
            pings.sent(header(DATA, 0, 1));
        }
    }

    #[tokio::test]
    async fn goaway_follows_a_complete_frame_and_is_the_last_one() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let mut server = PingLimit::new(server, SECOND);
        let ping = [&[0, 0, 8, PING, 0, 0, 0, 0, 0][..], b"12345678"].concat();
        client.write_all(PREFACE).await.unwrap();
        let mut read = vec![0; PREFACE.len() + 4 * ping.len()];
        server.read_exact(&mut read[..PREFACE.len()]).await.unwrap();
        // Half of a frame has been written when the last ping arrives.
        let data = [&[0, 0, 6, 4, 0, 0, 0, 0, 0][..], b"abcdef"].concat();
        server.write_all(&data[..11]).await.unwrap();
        client.write_all(&ping.repeat(4)).await.unwrap();
        server.read_exact(&mut read[PREFACE.len()..]).await.unwrap();
        let more = [&data[11..], &data].concat();
        let error = server.write_all(&more).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        let mut written = Vec::new();
        client.read_to_end(&mut written).await.unwrap();
        let goaway = PingCounter::new(SECOND).goaway();
        assert_eq!(written, [data, goaway].concat());
    }

    #[tokio::test]
    async fn bytes_of_other_protocols_pass() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut client, server) = tokio::io::duplex(1024);
        let mut server = PingLimit::new(server, SECOND);
        client.write_all(b"PRINT /health").await.unwrap();
        let mut read = [0; 13];
        server.read_exact(&mut read).await.unwrap();
        assert!(matches!(server.protocol, Protocol::Other));
        server.write_all(&[0; 100]).await.unwrap();
        assert_eq!(server.sent.rest(), 0);
    }
}
