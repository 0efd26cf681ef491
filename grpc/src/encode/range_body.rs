//! Large pages, written while the client reads them.
//!
//! A page of ten thousand keys has some megabytes. Written at once, it needs a buffer of that size,
//! whose fresh memory costs more than the copying, and which is held until a slow client has taken
//! it all. Here are held the records, which the store mostly has anyway, and one chunk.

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

/// From how many bytes on a response counts as large.
const LARGE_BYTES_MIN: usize = 64 * 1024;

/// What a chunk has: some full frames of HTTP/2. The fewer chunks, the less often the task that
/// writes them has to be woken.
const CHUNK_BYTES: usize = 256 * 1024;

/// Room for the end of a record that is cut by the end of a chunk.
const SLACK_BYTES: usize = 1024;

/// Whether a message is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// A large response, which travels beside an empty one through the generated server and then
/// [takes its place](LargeRange::put_in_place).
#[derive(Clone, Debug)]
pub(crate) struct LargeRange {
    response: RangeResponse,
    len: u32,
}

impl LargeRange {
    /// The answer to a range request, large or not. The key-values of the response take `kvs_len`
    /// bytes of it.
    pub(crate) fn answer(
        mut response: RangeResponse,
        kvs_len: usize,
    ) -> tonic::Response<RangeResponse> {
        let len = response.envelope_len() + kvs_len;
        // A single record is written at once anyway.
        let is_large = len >= LARGE_BYTES_MIN && response.kvs.len() > 1;
        let len = match u32::try_from(len) {
            Ok(len) if is_large => len,
            // Small, or more than a message may have, which the generated server refuses.
            _ => return tonic::Response::new(response),
        };
        let kvs = mem::take(&mut response.kvs);
        let mut answer = tonic::Response::new(response.clone());
        let response = RangeResponse { kvs, ..response };
        answer.extensions_mut().insert(Self { response, len });
        answer
    }

    /// Lets an answer have the large response as its body, if there is one beside it.
    pub(crate) fn put_in_place(
        mut answer: http::Response<tonic::body::Body>,
    ) -> http::Response<tonic::body::Body> {
        if let Some(large) = answer.extensions_mut().remove::<Self>() {
            *answer.body_mut() = tonic::body::Body::new(RangeBody::new(large));
        }
        answer
    }
}

/// A response as the body of an answer: one message, then the status.
struct RangeBody {
    /// All but the key-values.
    response: RangeResponse,
    kvs: vec::IntoIter<KeyValue>,
    /// Written and not yet handed over.
    waiting: BytesMut,
    next: Next,
}

/// What comes when the key-values are through.
#[derive(Clone, Copy, Debug)]
enum Next {
    Tail,
    Trailers,
    End,
}

impl RangeBody {
    fn new(large: LargeRange) -> Self {
        let LargeRange { mut response, len } = large;
        let first_bytes = CHUNK_BYTES.min(PREFIX_BYTES + len as usize);
        let mut waiting = BytesMut::with_capacity(first_bytes + SLACK_BYTES);
        waiting.put_u8(0);
        waiting.put_u32(len);
        debug_assert_eq!(waiting.len(), PREFIX_BYTES);
        response.write_head(&mut waiting);
        Self {
            kvs: mem::take(&mut response.kvs).into_iter(),
            response,
            waiting,
            next: Next::Tail,
        }
    }

    /// The next piece of the message; all but the last have the same size.
    fn chunk(&mut self) -> Option<Bytes> {
        while self.waiting.len() < CHUNK_BYTES {
            if let Some(kv) = self.kvs.next() {
                self.response.write_kv(&kv, &mut self.waiting);
                continue;
            }
            if matches!(self.next, Next::Tail) {
                self.response.write_tail(&mut self.waiting);
                self.next = Next::Trailers;
                continue;
            }
            let last = mem::take(&mut self.waiting);
            return (!last.is_empty()).then(|| last.freeze());
        }
        let chunk = self.waiting.split_to(CHUNK_BYTES).freeze();
        if self.kvs.len() > 0 {
            // Where the last chunk was, if it has left meanwhile.
            self.waiting.reserve(CHUNK_BYTES + SLACK_BYTES);
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
        } else if matches!(self.next, Next::Trailers) {
            self.next = Next::End;
            Some(Frame::trailers(ok()))
        } else {
            None
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.next, Next::End)
    }
}

/// The trailers of a call that went well.
fn ok() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

impl fmt::Debug for RangeBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeBody")
            .field("left", &self.kvs.len())
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
        let mut answer = LargeRange::answer(response, kvs_len);
        answer.extensions_mut().remove()
    }

    /// The frames of a body, put together: chunks and message.
    fn check(value_sizes: &[usize]) {
        let mut plain = Vec::new();
        response(value_sizes).encode(&mut plain);
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
        assert_eq!(trailers.expect("trailers"), ok());
        let last = sizes.pop().expect("a chunk");
        assert!(sizes.iter().all(|size| *size == CHUNK_BYTES), "{sizes:?}");
        assert!((1..=CHUNK_BYTES).contains(&last));
        let (prefix, rest) = message.split_at(PREFIX_BYTES);
        let len = u32::try_from(plain.len()).unwrap().to_be_bytes();
        assert_eq!(prefix, [&[0][..], &len].concat());
        assert!(rest == plain);
    }

    #[test]
    fn chunks_are_the_message() {
        check(&vec![300; 5000]);
        check(&[CHUNK_BYTES; 5]);
        check(&[1, 100_000, 1, 1, 70_000, 5, 40_000].repeat(8));
        check(&[700_000, 900_000]);
    }

    #[test]
    fn chunks_may_end_with_the_message() {
        // Whatever the overhead is, one of these fills the last chunk.
        let about = CHUNK_BYTES - 255 * 1024;
        for last in about - 64..about {
            let mut sizes = vec![1000; 255];
            sizes.push(last);
            check(&sizes);
        }
    }

    #[test]
    fn small_responses_go_the_usual_way() {
        assert!(large(response(&[])).is_none());
        assert!(large(response(&[10; 100])).is_none());
        assert!(large(response(&[1_000_000])).is_none());
    }
}
