//! Response bodies of large range responses, encoded in chunks while the client reads them.
//!
//! A range response with 10,000 keys takes some megabytes. Encoded as a whole, it needs a buffer of
//! that size. Newly mapped memory for the buffer costs more than copying the data, and the buffer
//! exists until a slow client has read everything. A chunked body contains one chunk and references
//! to the records, most of which are also in the store.

use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use revstore_engine::KeyValue;
use tonic::Status;

use crate::encode::response::RangeResponse;

/// The minimum encoded length of a response that is sent in chunks.
const LARGE_BYTES_MIN: usize = 64 * 1024;

/// The length of all chunks except the last one: several full HTTP/2 DATA frames. Larger chunks
/// wake the encoding task less often.
const CHUNK_BYTES: usize = 256 * 1024;

/// The additional capacity for the record that crosses the end of a chunk.
const SLACK_BYTES: usize = 1024;

/// The length of the gRPC message prefix: the compression flag and the message length.
const PREFIX_BYTES: usize = 5;

/// A large range response in the extensions of a response without key-values.
///
/// The generated server encodes the response without key-values. [`LargeRange::replace_body`] then
/// replaces that body with the chunked one.
#[derive(Clone, Debug)]
pub(crate) struct LargeRange {
    response: RangeResponse,
    len: u32,
}

impl LargeRange {
    /// Returns the response to a range request, with a [`LargeRange`] extension if it is large.
    /// `kvs_len` is the encoded length of its key-values.
    pub(crate) fn wrap(
        mut response: RangeResponse,
        kvs_len: usize,
    ) -> tonic::Response<RangeResponse> {
        let len = response.envelope_len() + kvs_len;
        // A record is encoded as a whole, so chunks do not reduce the memory of a single record.
        let is_large = len >= LARGE_BYTES_MIN && response.kvs.len() > 1;
        let len = match u32::try_from(len) {
            Ok(len) if is_large => len,
            // Small, or above the largest message length, which the generated server rejects.
            _ => return tonic::Response::new(response),
        };
        let kvs = mem::take(&mut response.kvs);
        let mut wrapped = tonic::Response::new(response.clone());
        let response = RangeResponse { kvs, ..response };
        wrapped.extensions_mut().insert(Self { response, len });
        wrapped
    }

    /// Replaces the body of a response that has a [`LargeRange`] extension.
    pub(crate) fn replace_body(
        mut response: http::Response<tonic::body::Body>,
    ) -> http::Response<tonic::body::Body> {
        if let Some(large) = response.extensions_mut().remove::<Self>() {
            *response.body_mut() = tonic::body::Body::new(RangeBody::new(large));
        }
        response
    }
}

/// A response body: one message in chunks, then the trailers with the status.
struct RangeBody {
    /// The response without its key-values.
    response: RangeResponse,
    /// The key-values that are not encoded yet.
    kvs: vec::IntoIter<KeyValue>,
    /// The encoded data that is not returned yet.
    encoded: BytesMut,
    next: NextPart,
}

/// The part of the body that follows the key-values and the data in the buffer.
#[derive(Clone, Copy, Debug)]
enum NextPart {
    /// The fields after the key-values.
    Tail,
    /// The trailers with the status.
    Trailers,
    /// Nothing.
    End,
}

impl RangeBody {
    fn new(large: LargeRange) -> Self {
        let LargeRange { mut response, len } = large;
        let first_bytes = CHUNK_BYTES.min(PREFIX_BYTES + len as usize);
        let mut encoded = BytesMut::with_capacity(first_bytes + SLACK_BYTES);
        encoded.put_u8(0);
        encoded.put_u32(len);
        debug_assert_eq!(encoded.len(), PREFIX_BYTES);
        response.write_head(&mut encoded);
        Self {
            kvs: mem::take(&mut response.kvs).into_iter(),
            response,
            encoded,
            next: NextPart::Tail,
        }
    }

    /// Returns the next chunk of the message. All chunks except the last one have [`CHUNK_BYTES`]
    /// bytes.
    fn chunk(&mut self) -> Option<Bytes> {
        while self.encoded.len() < CHUNK_BYTES {
            if let Some(kv) = self.kvs.next() {
                self.response.write_kv(&kv, &mut self.encoded);
                continue;
            }
            if matches!(self.next, NextPart::Tail) {
                self.response.write_tail(&mut self.encoded);
                self.next = NextPart::Trailers;
                continue;
            }
            let last = mem::take(&mut self.encoded);
            return (!last.is_empty()).then(|| last.freeze());
        }
        let chunk = self.encoded.split_to(CHUNK_BYTES).freeze();
        if self.kvs.len() > 0 {
            // Reuses the memory of the previous chunk if the connection has released it.
            self.encoded.reserve(CHUNK_BYTES + SLACK_BYTES);
        }
        Some(chunk)
    }
}

impl Body for RangeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = if let Some(chunk) = self.chunk() {
            Some(Frame::data(chunk))
        } else if matches!(self.next, NextPart::Trailers) {
            self.next = NextPart::End;
            Some(Frame::trailers(ok_trailers()))
        } else {
            None
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.next, NextPart::End)
    }
}

/// Returns the trailers of a successful call.
fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

impl fmt::Debug for RangeBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeBody")
            .field("kvs_left", &self.kvs.len())
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use revstore_engine::{Engine, KeyRange, Range};

    use super::*;
    use crate::encode::codec::Encode;

    fn response(value_sizes: &[usize]) -> RangeResponse {
        let engine = Engine::builder().build();
        for (number, bytes) in value_sizes.iter().enumerate() {
            engine
                .put(format!("{number:06}"), vec![b'v'; *bytes])
                .unwrap();
        }
        let found = engine.range(&Range::of(KeyRange::all())).unwrap();
        RangeResponse {
            header: None,
            kvs: found.kvs,
            keys_only: false,
            more: true,
            count: 7,
        }
    }

    fn large(response: RangeResponse) -> Option<LargeRange> {
        let measure = |kv| RangeResponse::kv_len(kv, response.keys_only);
        let kvs_len = response.kvs.iter().map(measure).sum();
        let mut wrapped = LargeRange::wrap(response, kvs_len);
        wrapped.extensions_mut().remove()
    }

    /// Checks the sizes of the chunks, and that together they are the encoded message.
    fn check(value_sizes: &[usize]) {
        let mut expected = Vec::new();
        response(value_sizes).encode(&mut expected);
        let large = large(response(value_sizes)).expect("a large response");
        let mut body = RangeBody::new(large);
        let mut context = Context::from_waker(Waker::noop());
        let (mut message, mut sizes, mut trailers) = (Vec::new(), Vec::new(), None);
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
            assert!(trailers.is_none() && !body.is_end_stream() || frame.is_trailers());
            match frame.into_data() {
                Ok(data) => {
                    sizes.push(data.len());
                    message.extend_from_slice(&data);
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        assert!(body.is_end_stream());
        assert_eq!(trailers.expect("trailers"), ok_trailers());
        let last = sizes.pop().expect("a chunk");
        assert!(sizes.iter().all(|size| *size == CHUNK_BYTES), "{sizes:?}");
        assert!((1..=CHUNK_BYTES).contains(&last));
        let (prefix, rest) = message.split_at(PREFIX_BYTES);
        let len = u32::try_from(expected.len()).unwrap().to_be_bytes();
        assert_eq!(prefix, [&[0][..], &len].concat());
        assert!(rest == expected);
    }

    #[test]
    fn chunks_add_up_to_the_encoded_message() {
        check(&vec![300; 5000]);
        check(&[CHUNK_BYTES; 5]);
        check(&[1, 100_000, 1, 1, 70_000, 5, 40_000].repeat(8));
        check(&[700_000, 900_000]);
    }

    #[test]
    fn the_last_chunk_may_have_any_length() {
        // Among these lengths is one at which the message ends exactly at the end of a chunk.
        let last_bytes = CHUNK_BYTES - 255 * 1024;
        for last in last_bytes - 64..last_bytes {
            let mut sizes = vec![1000; 255];
            sizes.push(last);
            check(&sizes);
        }
    }

    #[test]
    fn small_and_single_record_responses_are_not_chunked() {
        assert!(large(response(&[])).is_none());
        assert!(large(response(&[10; 100])).is_none());
        assert!(large(response(&[1_000_000])).is_none());
    }
}
