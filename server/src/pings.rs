//! Clients that ping too often are sent away (LI-5, LI-6).
//!
//! The HTTP/2 library answers pings and tells nobody. So the heads of frames are looked at on their
//! way between the socket and the library; their bytes are neither changed nor copied.
//!
//! The rules are grpc-go's: a ping that comes too soon after the one before is a strike, too soon
//! being two hours where no stream is open. A ping behind an answer of the server is none and forgets
//! the others: clients measure the line with those.

use std::{
    collections::HashSet,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

/// Strikes that are forgiven.
const STRIKES_MAX: u32 = 2;

/// What has to lie between pings of a client that has nothing open.
const IDLE_MIN_TIME: Duration = Duration::from_secs(2 * 60 * 60);

/// What an HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The length of a frame's head.
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// The flag of the last frame of a direction of a stream.
const END_STREAM: u8 = 1;

/// The flag of a ping that answers one.
const ACK: u8 = 1;

/// The error code of who is sent away, and the words that clients know.
const ENHANCE_YOUR_CALM: u32 = 11;
const TOO_MANY_PINGS: [u8; 14] = *b"too_many_pings";

/// The length of what the farewell says: a stream, a code and the words.
const FAREWELL: u8 = 4 + 4 + 14;

/// A transport whose client is sent away when it pings too often.
#[derive(Debug)]
pub(crate) struct Policed<T> {
    transport: T,
    speech: Speech,
    inward: Frames,
    outward: Frames,
    pings: Pings,
    /// What is left of the farewell, once there is one.
    farewell: Option<Vec<u8>>,
}

/// What the client speaks.
#[derive(Debug)]
enum Speech {
    /// HTTP/2, if what is still missing of the preface follows.
    Unknown(&'static [u8]),
    Http2,
    /// Nothing that has pings.
    Other,
}

impl<T> Policed<T> {
    /// Lets a client ping once in `min_time` while it has a stream open.
    pub(crate) fn new(transport: T, min_time: Duration) -> Self {
        Self {
            transport,
            speech: Speech::Unknown(PREFACE),
            inward: Frames::default(),
            outward: Frames::default(),
            pings: Pings::new(min_time),
            farewell: None,
        }
    }

    fn has_read(&mut self, mut bytes: &[u8]) {
        if let Speech::Unknown(missing) = self.speech {
            let length = missing.len().min(bytes.len());
            let (seen, rest) = bytes.split_at(length);
            bytes = rest;
            self.speech = match missing.strip_prefix(seen) {
                None => Speech::Other,
                Some([]) => Speech::Http2,
                Some(missing) => Speech::Unknown(missing),
            };
        }
        if !matches!(self.speech, Speech::Http2) || self.farewell.is_some() {
            return;
        }
        let (pings, mut too_many) = (&mut self.pings, false);
        self.inward
            .pass(bytes, |head| too_many |= pings.has_received(head));
        if too_many {
            self.farewell = Some(self.pings.farewell());
        }
    }

    fn has_written(&mut self, bytes: &[u8]) {
        if matches!(self.speech, Speech::Http2) {
            let pings = &mut self.pings;
            self.outward.pass(bytes, |head| pings.has_sent(head));
        }
    }
}

impl<T: AsyncWrite + Unpin> Policed<T> {
    /// Says farewell and closes. The error ends the connection.
    fn poll_leave(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let transport = &mut self.transport;
        while let Some(left) = self.farewell.as_mut().filter(|left| !left.is_empty()) {
            match ready!(Pin::new(&mut *transport).poll_write(context, left)) {
                Ok(0) => return Poll::Ready(io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(left.drain(..written)),
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

impl<T: AsyncRead + Unpin> AsyncRead for Policed<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.transport).poll_read(context, buffer))?;
        this.has_read(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Policed<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.farewell.is_some() {
            // The farewell is a frame, and comes behind whole ones.
            let rest = this.outward.rest();
            if rest == 0 {
                return this.poll_leave(context).map(Err);
            }
            data = &data[..data.len().min(rest)];
        }
        let written = ready!(Pin::new(&mut this.transport).poll_write(context, data))?;
        this.has_written(&data[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.farewell.is_some() {
            let first = slices.iter().find(|slice| !slice.is_empty());
            return self.poll_write(context, first.map_or(&[], |slice| slice));
        }
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.transport).poll_write_vectored(context, slices))?;
        let mut left = written;
        for slice in slices {
            let taken = slice.len().min(left);
            this.has_written(&slice[..taken]);
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

/// How far one direction is in its frames.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEAD],
    /// How much of the next head is there.
    head_length: usize,
    /// How much of the current frame's payload is still to come.
    payload: usize,
}

/// What of a frame's head counts here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Frames {
    /// Goes over bytes and tells of each head that is whole now.
    fn pass(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Head)) {
        while !bytes.is_empty() {
            let skipped = self.payload.min(bytes.len());
            self.payload -= skipped;
            bytes = &bytes[skipped..];
            let taken = bytes.len().min(HEAD - self.head_length);
            let (head, rest) = bytes.split_at(taken);
            self.head[self.head_length..][..taken].copy_from_slice(head);
            self.head_length += taken;
            bytes = rest;
            if self.head_length == HEAD {
                let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = self.head;
                self.payload = u32::from_be_bytes([0, l0, l1, l2]) as usize;
                self.head_length = 0;
                // The highest bit of a stream's number means nothing.
                let stream = u32::from_be_bytes([s0, s1, s2, s3]) & (u32::MAX >> 1);
                tell(Head {
                    kind,
                    flags,
                    stream,
                });
            }
        }
    }

    /// How many bytes are known to come before the next frame can begin.
    fn rest(&self) -> usize {
        match self.head_length {
            0 => self.payload,
            taken => HEAD - taken,
        }
    }
}

/// What a client did so far, as far as that decides whether it pings too often.
#[derive(Debug)]
struct Pings {
    min_time: Duration,
    last: Option<Instant>,
    strikes: u32,
    /// The server has sent something of a stream since the last ping.
    answered: bool,
    /// The streams that neither side has ended.
    streams: HashSet<u32>,
    last_stream: u32,
}

impl Pings {
    fn new(min_time: Duration) -> Self {
        Self {
            min_time,
            last: None,
            strikes: 0,
            answered: false,
            streams: HashSet::new(),
            last_stream: 0,
        }
    }

    /// Notes a frame of the client; whether there were too many pings.
    fn has_received(&mut self, head: Head) -> bool {
        match head.kind {
            HEADERS if head.stream > self.last_stream => {
                self.last_stream = head.stream;
                self.streams.insert(head.stream);
            }
            RST_STREAM => {
                self.streams.remove(&head.stream);
            }
            PING if head.flags & ACK == 0 => return self.has_pinged(Instant::now()),
            _ => {}
        }
        false
    }

    fn has_sent(&mut self, head: Head) {
        let of_stream = matches!(head.kind, DATA | HEADERS);
        self.answered |= of_stream;
        if head.kind == RST_STREAM || of_stream && head.flags & END_STREAM != 0 {
            self.streams.remove(&head.stream);
        }
    }

    fn has_pinged(&mut self, now: Instant) -> bool {
        let before = self.last.replace(now);
        if std::mem::take(&mut self.answered) {
            self.strikes = 0;
            return false;
        }
        let min_time = if self.streams.is_empty() {
            IDLE_MIN_TIME
        } else {
            self.min_time
        };
        let too_soon = before.is_some_and(|before| now.duration_since(before) < min_time);
        self.strikes += u32::from(too_soon);
        self.strikes > STRIKES_MAX
    }

    /// The frame that tells a client why it has to go.
    fn farewell(&self) -> Vec<u8> {
        let mut frame = vec![0, 0, FAREWELL, GOAWAY, 0, 0, 0, 0, 0];
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

    fn head(kind: u8, flags: u8, stream: u32) -> Head {
        Head {
            kind,
            flags,
            stream,
        }
    }

    /// Pings so many times at equal distances; says at which ping the client has to go.
    fn pinged(pings: &mut Pings, distance: Duration, times: u32) -> Option<u32> {
        let start = Instant::now();
        (0..times).find(|time| pings.has_pinged(start + distance * *time))
    }

    #[test]
    fn li_5_pings_beside_an_open_stream_need_their_time() {
        let open = || {
            let mut pings = Pings::new(5 * SECOND);
            pings.has_received(head(HEADERS, 0, 1));
            pings
        };
        assert_eq!(pinged(&mut open(), SECOND, 9), Some(3));
        assert_eq!(pinged(&mut open(), 5 * SECOND, 9), None);
    }

    #[test]
    fn li_5_pings_without_a_stream_are_nearly_never_welcome() {
        let mut pings = Pings::new(5 * SECOND);
        assert_eq!(pinged(&mut pings, 60 * SECOND, 9), Some(3));
        assert_eq!(pinged(&mut Pings::new(SECOND), IDLE_MIN_TIME, 9), None);
        // A stream is over when the server has ended it, or either side has reset it.
        let mut pings = Pings::new(SECOND);
        for stream in [1, 3, 5, 7] {
            pings.has_received(head(HEADERS, END_STREAM, stream));
        }
        pings.has_sent(head(HEADERS, END_STREAM, 1));
        pings.has_sent(head(DATA, END_STREAM, 3));
        pings.has_sent(head(RST_STREAM, 0, 5));
        assert_eq!(pings.streams.len(), 1);
        pings.has_received(head(RST_STREAM, 0, 7));
        // The first is forgiven for the answers.
        assert_eq!(pinged(&mut pings, 60 * SECOND, 9), Some(3));
    }

    #[test]
    fn li_5_pings_behind_answers_do_not_count() {
        let mut pings = Pings::new(5 * SECOND);
        pings.has_received(head(HEADERS, 0, 1));
        for _ in 0..100 {
            assert!(!pings.has_received(head(PING, 0, 0)));
            assert!(!pings.has_received(head(PING, 0, 0)));
            assert!(!pings.has_received(head(PING, ACK, 0)));
            pings.has_sent(head(DATA, 0, 1));
        }
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let bytes = [
            &[0, 0, 0, 4, 0, 0, 0, 0, 0][..],
            &[0, 0, 3, DATA, END_STREAM, 0x80, 0, 0, 1],
            b"abc",
            &[0, 0, 8, PING, ACK, 0, 0, 0, 0],
            b"12345678",
        ]
        .concat();
        let expected = [head(4, 0, 0), head(DATA, END_STREAM, 1), head(PING, ACK, 0)];
        for size in 1..=bytes.len() {
            let (mut frames, mut heads) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(size) {
                frames.pass(piece, |head| heads.push(head));
            }
            assert_eq!(heads, expected, "in pieces of {size}");
            assert_eq!(frames.rest(), 0);
        }
    }

    #[tokio::test]
    async fn a_farewell_comes_behind_whole_frames_and_is_the_last_word() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let mut server = Policed::new(server, SECOND);
        let ping = [&[0, 0, 8, PING, 0, 0, 0, 0, 0][..], b"12345678"].concat();
        client.write_all(PREFACE).await.unwrap();
        let mut read = vec![0; PREFACE.len() + 4 * ping.len()];
        server.read_exact(&mut read[..PREFACE.len()]).await.unwrap();
        // A frame is on its way out when the last ping comes in.
        let data = [&[0, 0, 6, 4, 0, 0, 0, 0, 0][..], b"abcdef"].concat();
        server.write_all(&data[..11]).await.unwrap();
        client.write_all(&ping.repeat(4)).await.unwrap();
        server.read_exact(&mut read[PREFACE.len()..]).await.unwrap();
        let more = [&data[11..], &data].concat();
        let refused = server.write_all(&more).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionAborted);
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.unwrap();
        let farewell = Pings::new(SECOND).farewell();
        assert_eq!(told, [data, farewell].concat());
    }

    #[tokio::test]
    async fn what_is_not_http_2_passes() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut client, server) = tokio::io::duplex(1024);
        let mut server = Policed::new(server, SECOND);
        client.write_all(b"PRINT /health").await.unwrap();
        let mut read = [0; 13];
        server.read_exact(&mut read).await.unwrap();
        assert!(matches!(server.speech, Speech::Other));
        server.write_all(&[0; 100]).await.unwrap();
        assert_eq!(server.outward.rest(), 0);
    }
}
