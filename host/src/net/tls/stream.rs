//! A connection with TLS.

use std::{
    io::{self, IoSlice, Write as _},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// The maximum number of bytes in a record.
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// The number of bytes that encryption adds to a record: its header, the type of its content, and the tag.
const RECORD_OVERHEAD_BYTES: usize = 5 + 1 + 16;

/// The number of full records that are sent with one system call.
const RECORDS_MAX: usize = 4;

/// The maximum number of slices of a write that are looked at.
const SLICES_MAX: usize = 8;

/// A stream whose writes are encrypted at once, and sent when it is flushed or when [`RECORDS_MAX`] full records wait.
///
/// `TlsStream` sends after each write, which for a large response means a system call for each frame of HTTP/2.
#[derive(Debug)]
pub(crate) struct SecuredStream<T>(TlsStream<T>);

impl<T> SecuredStream<T> {
    pub(crate) fn new(mut stream: TlsStream<T>) -> Self {
        let waiting = RECORDS_MAX * (RECORD_BYTES_MAX + RECORD_OVERHEAD_BYTES);
        stream.get_mut().1.set_buffer_limit(Some(waiting));
        Self(stream)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for SecuredStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(context, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for SecuredStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(data)])
    }

    /// Encrypts bytes. Of more than a record, only full records are taken: the caller writes the rest together with what
    /// follows.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = &mut self.get_mut().0;
        let mut taken = [IoSlice::new(&[]); SLICES_MAX];
        let count = slices.len().min(SLICES_MAX);
        let bytes: usize = slices[..count].iter().map(|slice| slice.len()).sum();
        let mut left = match bytes % RECORD_BYTES_MAX {
            _ if bytes < RECORD_BYTES_MAX => bytes,
            rest => bytes - rest,
        };
        if left == 0 {
            return Poll::Ready(Ok(0));
        }
        for (taken, slice) in taken.iter_mut().zip(slices) {
            let length = slice.len().min(left);
            *taken = IoSlice::new(&slice[..length]);
            left -= length;
        }
        loop {
            let (_, session) = stream.get_mut();
            let written = session.writer().write_vectored(&taken[..count])?;
            if written > 0 {
                return Poll::Ready(Ok(written));
            }
            ready!(Pin::new(&mut *stream).poll_flush(context))?;
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::Arc, time::Duration};

    use parking_lot::Mutex;
    use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;
    use crate::net::{
        client_tls,
        ping_limit::PingLimit,
        transport::{Transport, WriteBuffer},
    };

    /// The bytes that were sent, and the length of each write.
    #[derive(Debug, Default)]
    struct Sent {
        bytes: Vec<u8>,
        writes: Vec<usize>,
    }

    /// A stream that records what is sent.
    #[derive(Debug)]
    struct Recorded(DuplexStream, Arc<Mutex<Sent>>);

    impl AsyncRead for Recorded {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.get_mut().0).poll_read(context, buffer)
        }
    }

    impl AsyncWrite for Recorded {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            data: &[u8],
        ) -> Poll<io::Result<usize>> {
            let this = self.get_mut();
            let count = ready!(Pin::new(&mut this.0).poll_write(context, data))?;
            let mut sent = this.1.lock();
            sent.bytes.extend_from_slice(&data[..count]);
            sent.writes.push(count);
            Poll::Ready(Ok(count))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let slices: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
            self.poll_write(context, &slices.concat())
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.get_mut().0).poll_flush(context)
        }

        fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.get_mut().0).poll_shutdown(context)
        }
    }

    /// Writes `frames` with TLS as a connection of HTTP/2 does, to a client for which `bytes_max` bytes are kept. Checks that
    /// the client gets them, and returns what was sent.
    async fn send(frames: &[Vec<u8>], bytes_max: usize) -> Sent {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let client = client_tls(Some(own.cert.pem().as_bytes()), &[]).unwrap();
        let (sent, (ours, theirs)) = (Arc::<Mutex<Sent>>::default(), tokio::io::duplex(bytes_max));
        let (server, client) = tokio::join!(
            tokio_rustls::TlsAcceptor::from(Arc::new(server)).accept(Recorded(ours, sent.clone())),
            tokio_rustls::TlsConnector::from(client)
                .connect("localhost".try_into().unwrap(), theirs),
        );
        let (mut server, mut client) = (server.unwrap(), client.unwrap());
        // What belongs to the handshake is sent.
        server.flush().await.unwrap();
        *sent.lock() = Sent::default();

        let transport = Transport::Boxed(Box::new(SecuredStream::new(server)));
        let buffer = WriteBuffer::new(PingLimit::new(transport, Duration::ZERO));
        let mut transport = buffer.transport();
        let expected = frames.concat();
        let mut read = vec![0; expected.len()];
        let writing = async {
            for frame in frames {
                let (header, payload) = frame.split_at(9);
                let mut slices = [IoSlice::new(header), IoSlice::new(payload)];
                let mut left = &mut slices[..];
                while !left.is_empty() {
                    let written = transport.write_vectored(left).await.unwrap();
                    IoSlice::advance_slices(&mut left, written);
                }
            }
            poll_fn(|context| buffer.poll_flush(context)).await.unwrap();
        };
        let ((), received) = tokio::join!(writing, client.read_exact(&mut read));
        received.unwrap();
        assert!(read == expected);
        std::mem::take(&mut *sent.lock())
    }

    /// Returns the lengths of the contents of records.
    fn contents(mut bytes: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while let [_, _, _, high, low, rest @ ..] = bytes {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            lengths.push(length + 5 - RECORD_OVERHEAD_BYTES);
            bytes = &rest[length..];
        }
        lengths
    }

    fn frames(count: usize, payload: usize) -> Vec<Vec<u8>> {
        let byte = |number: usize| number.to_le_bytes()[1] ^ number.to_le_bytes()[0];
        let frame = |frame: usize| {
            (0..9 + payload)
                .map(|number| byte(number + frame))
                .collect()
        };
        (0..count).map(frame).collect()
    }

    #[tokio::test]
    async fn frames_fill_records_and_several_records_are_sent_together() {
        for payload in [100, 1_700, RECORD_BYTES_MAX] {
            let frames = frames(1_000_000 / payload, payload);
            let sent = send(&frames, 4 << 20).await;
            let mut contents = contents(&sent.bytes);
            assert_eq!(contents.iter().sum::<usize>(), frames.concat().len());
            contents.pop();
            let partial = contents.iter().filter(|length| **length < RECORD_BYTES_MAX);
            assert_eq!(partial.count(), 0, "{payload}");
            let most = RECORDS_MAX * (RECORD_BYTES_MAX + RECORD_OVERHEAD_BYTES);
            assert_eq!(sent.writes.iter().max(), Some(&most));
            assert_eq!(
                sent.writes.len(),
                sent.bytes.len().div_ceil(most),
                "{payload}"
            );
        }
    }

    #[tokio::test]
    async fn a_slow_client_gets_all_bytes_in_order() {
        for payload in [1_700, RECORD_BYTES_MAX] {
            send(&frames(300_000 / payload, payload), 1_000).await;
        }
    }
}
