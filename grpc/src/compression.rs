//! Compressed messages (LI-13): gzip, the encoding that etcd supports.
//!
//! A client that compresses its requests names the encoding in `grpc-encoding`, and gets its responses with the same
//! encoding. The messages of such a call are decompressed before the services decode them, and responses are
//! compressed after they are encoded, so calls without an encoding pay nothing for it.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use http::HeaderValue;
use http_body::{Body, Frame};
use tonic::Status;

use crate::prefix::MessagePrefix;
use crate::status;

/// The header field that names the encoding of a call's messages.
pub(crate) const ENCODING: &str = "grpc-encoding";

const GZIP: &str = "gzip";

/// The encoding without compression.
const IDENTITY: &str = "identity";

/// The maximum size of a message of a response that is compressed, which takes about a millisecond. A larger one is sent
/// as it is: it is encoded in parts while the client reads it, and would have to be in memory as a whole.
const COMPRESSED_BYTES_MAX: usize = 64 * 1024;

/// The capacity of the buffer of a decompressed message, relative to the compressed one, before its size is known.
const EXPECTED_RATIO: usize = 4;

/// The size of the fixed part of a gzip header, and its first bytes: the format, and the only method.
const HEADER_BYTES: usize = 10;
const HEADER: [u8; 3] = [0x1f, 0x8b, 8];

/// Returns whether the messages of a call are compressed.
///
/// # Errors
/// `encoding` is unknown.
pub(crate) fn is_compressed(encoding: &HeaderValue) -> Result<bool, Status> {
    match encoding.as_bytes() {
        b"" => Ok(false),
        encoding if encoding == GZIP.as_bytes() => Ok(true),
        encoding if encoding == IDENTITY.as_bytes() => Ok(false),
        encoding => Err(status::unknown_encoding(&String::from_utf8_lossy(encoding))),
    }
}

/// The messages of a request, which are decompressed one by one.
#[derive(Debug)]
pub(crate) struct Decompressor {
    /// The bytes that have arrived, from the prefix of a message on. The caller has checked the flag and the length of
    /// each prefix.
    arrived: BytesMut,
    bytes_max: usize,
}

impl Decompressor {
    /// Creates a decompressor for messages of up to `bytes_max` bytes, compressed or not.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            arrived: BytesMut::new(),
            bytes_max,
        }
    }

    /// Takes bytes of the request.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.arrived.extend_from_slice(data);
    }

    /// Returns whether everything that has arrived was returned.
    pub(crate) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Returns the next message with the prefix of one that is not compressed, if it has arrived.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let Some((prefix, rest)) = self.arrived.split_first_chunk() else {
            return Ok(None);
        };
        let MessagePrefix { flag, length } = MessagePrefix::parse(*prefix);
        let length = length as usize;
        if rest.len() < length {
            return Ok(None);
        }
        let message = self.arrived.split_to(MessagePrefix::BYTES + length);
        if flag == 0 {
            return Ok(Some(message.freeze()));
        }
        let message = decompress(&message[MessagePrefix::BYTES..], self.bytes_max)?;
        Ok(Some(message))
    }

    /// Returns what has arrived of a message that does not end.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.arrived.split().freeze()
    }
}

/// Decompresses a message, and adds the prefix of one that is not compressed.
pub(crate) fn decompress(message: &[u8], bytes_max: usize) -> Result<Bytes, Status> {
    match message.get(..HEADER_BYTES) {
        Some(header) if header.starts_with(&HEADER) => {}
        Some(_) => return Err(status::malformed_gzip("gzip: invalid header")),
        None if message.is_empty() => return Err(status::malformed_gzip("EOF")),
        None => return Err(status::malformed_gzip("unexpected EOF")),
    }
    // The size that the message states. The real one may differ.
    if let Some(stated) = message.last_chunk() {
        let stated = u32::from_le_bytes(*stated) as usize;
        if stated > bytes_max {
            return Err(status::decompressed_too_large(stated, bytes_max));
        }
    }
    let limit = bytes_max.saturating_add(1);
    let expected = message.len().saturating_mul(EXPECTED_RATIO).min(limit);
    let mut bytes = Vec::with_capacity(MessagePrefix::BYTES + expected);
    bytes.extend_from_slice(&[0; MessagePrefix::BYTES]);
    let mut decoder = MultiGzDecoder::new(message).take(limit as u64);
    let length = decoder
        .read_to_end(&mut bytes)
        .map_err(|error| status::malformed_gzip(reason(&error)))?;
    if length > bytes_max {
        return Err(status::decompressed_too_large(length, bytes_max));
    }
    // A limit of 4 GiB or more is not reachable: the length of the compressed message has four bytes, too.
    let length =
        u32::try_from(length).map_err(|_| status::decompressed_too_large(length, bytes_max))?;
    let prefix = MessagePrefix { flag: 0, length };
    bytes[..MessagePrefix::BYTES].copy_from_slice(&prefix.to_bytes());
    Ok(bytes.into())
}

/// Returns the text of Go for an error, as far as the library tells them apart.
fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "unexpected EOF",
        io::ErrorKind::InvalidInput if error.to_string().contains("checksum") => {
            "gzip: invalid checksum"
        }
        io::ErrorKind::InvalidInput if error.to_string().contains("header") => {
            "gzip: invalid header"
        }
        _ => "flate: corrupt input",
    }
}

/// Compresses the messages of a response.
pub(crate) fn compress_response(
    mut response: http::Response<tonic::body::Body>,
) -> http::Response<tonic::body::Body> {
    if !response.body().is_end_stream() {
        (response.headers_mut()).insert(ENCODING, HeaderValue::from_static(GZIP));
        response = response.map(|body| tonic::body::Body::new(CompressedBody::new(body)));
    }
    response
}

/// A response body whose messages are compressed.
struct CompressedBody {
    inner: tonic::body::Body,
    /// The bytes of a message that is not complete, from its prefix on.
    partial: BytesMut,
    /// The number of bytes of a large message that pass unchanged.
    passing: usize,
}

impl CompressedBody {
    fn new(inner: tonic::body::Body) -> Self {
        Self {
            inner,
            partial: BytesMut::new(),
            passing: 0,
        }
    }

    /// Takes a part of the body, and returns what can be sent.
    fn compress(&mut self, mut data: Bytes) -> Bytes {
        if self.passing >= data.len() {
            self.passing -= data.len();
            return data;
        }
        let mut output = BytesMut::new();
        output.put(data.split_to(self.passing));
        self.passing = 0;
        self.partial.put(data);
        while let Some(prefix) = self.partial.first_chunk() {
            let MessagePrefix { flag, length } = MessagePrefix::parse(*prefix);
            let length = length as usize;
            let whole = MessagePrefix::BYTES + length;
            if length > COMPRESSED_BYTES_MAX || length == 0 || flag != 0 {
                let available = whole.min(self.partial.len());
                self.passing = whole - available;
                output.put(self.partial.split_to(available));
                continue;
            }
            if self.partial.len() < whole {
                break;
            }
            let message = self.partial.split_to(whole);
            compress(&message[MessagePrefix::BYTES..], &mut output);
        }
        output.freeze()
    }
}

/// Appends a compressed message with its prefix.
fn compress(message: &[u8], output: &mut BytesMut) {
    let start = output.len();
    output.put_bytes(0, MessagePrefix::BYTES);
    let mut encoder = GzEncoder::new(output.writer(), flate2::Compression::fast());
    let output = encoder
        .write_all(message)
        .and_then(|()| encoder.finish())
        .expect("writes to memory succeed")
        .into_inner();
    let length = u32::try_from(output.len() - start - MessagePrefix::BYTES)
        .expect("a message of at most COMPRESSED_BYTES_MAX bytes");
    let prefix = MessagePrefix { flag: 1, length };
    output[start..][..MessagePrefix::BYTES].copy_from_slice(&prefix.to_bytes());
}

impl Body for CompressedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        loop {
            let polled = Pin::new(&mut this.inner).poll_frame(context);
            let Poll::Ready(Some(Ok(frame))) = polled else {
                return polled;
            };
            match frame.into_data() {
                Ok(data) => {
                    let data = this.compress(data);
                    // The end of the message has not arrived.
                    if data.has_remaining() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};
    use tokio_stream::iter;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn frame(flag: u8, message: &[u8]) -> Vec<u8> {
        let length = message.len().try_into().unwrap();
        [&MessagePrefix { flag, length }.to_bytes(), message].concat()
    }

    /// Pushes bytes in parts of a size. Returns everything that is returned.
    fn decompressed(bytes: &[u8], size: usize, bytes_max: usize) -> Result<Vec<u8>, Status> {
        let mut decompressor = Decompressor::new(bytes_max);
        let mut output = Vec::new();
        for part in bytes.chunks(size) {
            decompressor.push(part);
            while let Some(message) = decompressor.next()? {
                output.extend_from_slice(&message);
            }
        }
        assert!(decompressor.is_empty());
        Ok(output)
    }

    #[test]
    fn li_13_messages_are_decompressed_one_by_one() {
        let long = b"value".repeat(1_000);
        let sent = [
            frame(1, &gzip(&long)),
            frame(0, b"plain"),
            frame(1, &gzip(b"")),
        ]
        .concat();
        let expected = [frame(0, &long), frame(0, b"plain"), frame(0, b"")].concat();
        for size in [1, 2, 6, 100, usize::MAX] {
            assert_eq!(decompressed(&sent, size, 5_000).unwrap(), expected);
        }
    }

    /// The message states that it is small.
    #[test]
    fn li_13_a_message_that_grows_is_not_decompressed_as_a_whole() {
        let mut bomb = gzip(&vec![0; 256 << 20]);
        let length = bomb.len();
        bomb[length - 4..].fill(0);
        let error = decompress(&bomb, 1_000).unwrap_err();
        let text = "grpc: received message after decompression larger than max (1001 vs. 1000)";
        assert_eq!(error.message(), text);
        let whole = decompress(&gzip(&[7; 1_000]), 1_000).unwrap();
        assert_eq!(whole.len(), MessagePrefix::BYTES + 1_000);
    }

    async fn compressed(parts: Vec<Bytes>) -> Bytes {
        let parts = parts.into_iter();
        let body = StreamBody::new(iter(parts.map(|part| Ok::<_, Status>(Frame::data(part)))));
        let body = CompressedBody::new(tonic::body::Body::new(body));
        body.collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn li_13_small_messages_of_a_response_are_compressed() {
        let (small, large) = (b"k".repeat(1_000), b"v".repeat(COMPRESSED_BYTES_MAX + 1));
        let body = [
            frame(0, &small),
            frame(0, &large),
            frame(0, b""),
            frame(0, b"end"),
        ]
        .concat();
        let whole = compressed(vec![body.clone().into()]).await;
        for size in [1, 4, 70_000] {
            let parts: Vec<_> = body.chunks(size).map(Bytes::copy_from_slice).collect();
            assert!(compressed(parts).await == whole, "parts of {size}");
        }
        assert!(whole.len() < COMPRESSED_BYTES_MAX + 200);
        assert_eq!(decompressed(&whole, 999, usize::MAX >> 1).unwrap(), body);
    }
}
