//! Response bodies of large answers, encoded in chunks while the client reads them.
//!
//! A range response with 10,000 keys takes some megabytes. Encoded as a whole, it needs a buffer of
//! that size. Newly mapped memory for the buffer costs more than copying the data, and the buffer
//! exists until a slow client has read everything. A chunked body contains one chunk and references
//! to the records, most of which are also in the store.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use revstore_engine::KeyValue;
use tokio::runtime::Handle;
use tonic::Status;

use crate::encode::response::{KeyValueMessage, write_kv};
use crate::heavy::{Answer, Heavy, InWork, Reservation};
use crate::prefix::MessagePrefix;
use crate::status::EtcdError;

/// The minimum encoded length of a response that is sent in chunks.
const LARGE_BYTES_MIN: usize = 64 * 1024;

/// The length of all chunks except the last one: several full HTTP/2 DATA frames. Larger chunks
/// wake the encoding task less often.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;

/// The additional capacity for the record that crosses the end of a chunk.
const SLACK_BYTES: usize = 1024;

/// The maximum number of records that are dropped in the task of a connection.
const DROPPED_MAX: usize = 1_000;

/// A message that can be sent in chunks.
pub(crate) trait InParts: Sized {
    /// Takes the message apart.
    fn add_to(self, parts: &mut Parts);

    /// Returns a message of the same type that takes no time to encode. Its encoding is not sent.
    fn placeholder(&self) -> Self;
}

/// The parts of a message, in the order in which they are encoded.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: VecDeque<Part>,
    /// The number of key-values in all parts.
    kvs: usize,
}

#[derive(Debug)]
enum Part {
    Encoded(BytesMut),
    /// Key-values in a field with this number, with or without their values.
    KeyValues {
        number: u8,
        keys_only: bool,
        kvs: vec::IntoIter<KeyValue>,
    },
}

impl Parts {
    /// Returns the buffer for encoded fields that follow the previous parts.
    pub(crate) fn fields(&mut self) -> &mut BytesMut {
        if !matches!(self.parts.back(), Some(Part::Encoded(_))) {
            self.parts.push_back(Part::Encoded(BytesMut::new()));
        }
        match self.parts.back_mut() {
            Some(Part::Encoded(fields)) => fields,
            _ => unreachable!("the last part is the one that was just added"),
        }
    }

    /// Returns a buffer for encoded fields as [`fields`](Self::fields), another one for each
    /// [`CHUNK_BYTES`], so that no chunk copies more than two.
    pub(crate) fn divided_fields(&mut self) -> &mut BytesMut {
        if matches!(self.parts.back(), Some(Part::Encoded(fields)) if fields.len() >= CHUNK_BYTES) {
            self.parts.push_back(Part::Encoded(BytesMut::new()));
        }
        self.fields()
    }

    /// Adds key-values in a field with this number.
    pub(crate) fn key_values(&mut self, number: u8, keys_only: bool, kvs: Vec<KeyValue>) {
        self.kvs += kvs.len();
        let kvs = kvs.into_iter();
        self.parts.push_back(Part::KeyValues {
            number,
            keys_only,
            kvs,
        });
    }

    /// Appends parts of the message until the buffer has [`CHUNK_BYTES`] bytes or nothing is left.
    fn encode(&mut self, encoded: &mut BytesMut) {
        while encoded.len() < CHUNK_BYTES {
            match self.parts.front_mut() {
                Some(Part::KeyValues {
                    number,
                    keys_only,
                    kvs,
                }) => {
                    if let Some(kv) = kvs.next() {
                        self.kvs -= 1;
                        write_kv(*number, KeyValueMessage::of(&kv, *keys_only), encoded);
                        continue;
                    }
                }
                Some(Part::Encoded(fields)) => encoded.put_slice(fields),
                None => return,
            }
            self.parts.pop_front();
        }
    }
}

/// A large answer in the extensions of a placeholder response.
///
/// The generated server encodes the placeholder. [`LargeAnswer::replace_body`] then replaces that body
/// with the chunked one.
#[derive(Clone, Debug)]
pub(crate) struct LargeAnswer {
    content: Answer<Content>,
    heavy: Arc<Heavy>,
}

/// The workers for the parts of an answer, in the extensions of its response.
#[derive(Clone, Debug)]
pub(crate) struct PartWorkers(LargeAnswer);

impl PartWorkers {
    /// Runs `work` on a part of the answer. The answer does not end meanwhile.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EtcdError> {
        let _in_work: InWork<_> = self.0.content.in_work();
        self.0.heavy.part_workers.run(work).await
    }
}

/// What is left of an answer.
#[derive(Debug)]
struct Content {
    parts: Parts,
    /// The encoded data that is not returned yet.
    encoded: BytesMut,
    /// The length of what is left, encoded.
    bytes_left: usize,
    heavy: Arc<Heavy>,
    runtime: Option<Handle>,
}

impl LargeAnswer {
    /// Returns whether an answer is sent in chunks. A record is encoded as a whole, so chunks do not
    /// reduce the memory of a single record.
    pub(crate) fn is_large(encoded_len: usize, keys: usize) -> bool {
        encoded_len >= LARGE_BYTES_MIN && keys > 1
    }

    /// Returns the response with a large message of this encoded length, to which the reserved memory
    /// belongs from here on.
    ///
    /// # Errors
    /// [`EtcdError::MessageTooLarge`] if the length does not fit into the prefix of a gRPC message.
    pub(crate) fn respond<M: InParts>(
        message: M,
        encoded_len: usize,
        reservation: Reservation,
        heavy: &Arc<Heavy>,
    ) -> Result<tonic::Response<M>, EtcdError> {
        let length = u32::try_from(encoded_len).map_err(|_| EtcdError::MessageTooLarge)?;
        let mut parts = Parts::default();
        let mut response = tonic::Response::new(message.placeholder());
        let prefix = MessagePrefix { flag: 0, length };
        parts.fields().put_slice(&prefix.to_bytes());
        message.add_to(&mut parts);
        let content = Content {
            parts,
            encoded: BytesMut::new(),
            bytes_left: MessagePrefix::BYTES + encoded_len,
            heavy: heavy.clone(),
            runtime: Handle::try_current().ok(),
        };
        response.extensions_mut().insert(Self {
            content: heavy.memory.hold(content, reservation),
            heavy: heavy.clone(),
        });
        Ok(response)
    }

    /// Replaces the body of a response that has a [`LargeAnswer`] extension.
    pub(crate) fn replace_body(
        mut response: http::Response<tonic::body::Body>,
    ) -> http::Response<tonic::body::Body> {
        if let Some(large) = response.extensions_mut().remove::<Self>() {
            *response.body_mut() = tonic::body::Body::new(AnswerBody::new(large.content.clone()));
            // For the gateway.
            response.extensions_mut().insert(PartWorkers(large));
        }
        response
    }
}

impl Content {
    /// Returns the next chunk of the message. All chunks except the last one have [`CHUNK_BYTES`]
    /// bytes.
    fn chunk(&mut self) -> Option<Bytes> {
        if self.bytes_left == 0 {
            return None;
        }
        // Reuses the memory of the previous chunk if the connection has released it.
        let expected = CHUNK_BYTES.min(self.bytes_left) + SLACK_BYTES;
        self.encoded
            .reserve(expected - self.encoded.len().min(expected));
        self.parts.encode(&mut self.encoded);
        let chunk = self.encoded.split_to(self.encoded.len().min(CHUNK_BYTES));
        debug_assert!(chunk.remaining() <= self.bytes_left && !chunk.is_empty());
        self.bytes_left = self.bytes_left.saturating_sub(chunk.len());
        Some(chunk.freeze())
    }
}

impl Drop for Content {
    /// Drops many records on a worker: each may take a cache miss or free memory.
    fn drop(&mut self) {
        if self.parts.kvs > DROPPED_MAX
            && let Some(runtime) = &self.runtime
        {
            let parts = std::mem::take(&mut self.parts);
            self.heavy.clone().discard(runtime, parts);
        }
    }
}

/// A response body: one message in chunks, then the trailers with the status.
struct AnswerBody {
    content: Answer<Content>,
    /// Whether other tasks have had a turn since the last chunk.
    has_yielded: bool,
    has_ended: bool,
}

impl AnswerBody {
    fn new(content: Answer<Content>) -> Self {
        Self {
            content,
            has_yielded: true,
            has_ended: false,
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    /// Yields to other tasks after each chunk. A fast client could otherwise occupy a thread of the
    /// runtime until it has read everything.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if !self.has_yielded {
            self.has_yielded = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let (chunk, bytes_left) = match self.content.read(|it| (it.chunk(), it.bytes_left)) {
            Some((Some(chunk), bytes_left)) => (chunk, bytes_left),
            Some((None, _)) => {
                self.has_ended = true;
                self.content.finish();
                return Poll::Ready(Some(Ok(Frame::trailers(ok_trailers()))));
            }
            None => {
                self.has_ended = true;
                let mut trailers = HeaderMap::new();
                let status = EtcdError::AnswerNotRead.to_status();
                // The text has only characters that are allowed in headers.
                let _ = status.add_header(&mut trailers);
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
        };
        self.has_yielded = bytes_left == 0;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

/// Returns the trailers of a successful call.
fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBody")
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use revstore_engine::{Engine, KeyRange, ManualClock, Range};

    use super::*;
    use crate::encode::codec::Encode;
    use crate::encode::response::RangeResponse;
    use crate::heavy::answer_bytes;
    use crate::node::admission::Limits;

    fn response(value_sizes: &[usize]) -> RangeResponse {
        let engine = Engine::builder().clock(ManualClock::new()).build();
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

    fn heavy(clock: &ManualClock) -> Arc<Heavy> {
        Arc::new(Heavy::new(&Limits::default(), Arc::new(clock.clone())))
    }

    fn body(response: RangeResponse, heavy: &Arc<Heavy>) -> AnswerBody {
        let (encoded_len, keys) = (response.encoded_len(), response.kvs.len());
        assert!(LargeAnswer::is_large(encoded_len, keys), "{encoded_len}");
        let reservation = heavy.memory.try_reserve(answer_bytes(keys)).unwrap();
        let response = LargeAnswer::respond(response, encoded_len, reservation, heavy);
        let mut response = response.unwrap_or_else(|error| panic!("{error:?}"));
        let large: LargeAnswer = response.extensions_mut().remove().expect("a large answer");
        AnswerBody::new(large.content)
    }

    /// Polls the next frame, and once more if the body yields.
    fn next(body: &mut AnswerBody) -> Option<Frame<Bytes>> {
        let mut context = Context::from_waker(Waker::noop());
        let mut polled = Pin::new(&mut *body).poll_frame(&mut context);
        if polled.is_pending() {
            polled = Pin::new(body).poll_frame(&mut context);
        }
        match polled {
            Poll::Ready(frame) => frame.map(|frame| frame.unwrap_or_else(|never| match never {})),
            Poll::Pending => panic!("the body yields twice"),
        }
    }

    /// Checks the sizes of the chunks, and that together they are the encoded message.
    fn check(value_sizes: &[usize]) {
        let heavy = heavy(&ManualClock::new());
        let mut expected = Vec::new();
        response(value_sizes).encode(&mut expected);
        let mut body = body(response(value_sizes), &heavy);
        let (mut message, mut sizes, mut trailers) = (Vec::new(), Vec::new(), None);
        while let Some(frame) = next(&mut body) {
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
        let (prefix, rest) = message.split_first_chunk().unwrap();
        let prefix = MessagePrefix::parse(*prefix);
        assert_eq!((prefix.flag, prefix.length as usize), (0, expected.len()));
        assert!(rest == expected);
        drop(body);
        assert_eq!(heavy.stats().answer_bytes, 0);
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
        assert!(!LargeAnswer::is_large(0, 0));
        assert!(!LargeAnswer::is_large(LARGE_BYTES_MIN - 1, 100));
        assert!(!LargeAnswer::is_large(1_000_000, 1));
        assert!(LargeAnswer::is_large(LARGE_BYTES_MIN, 2));
    }

    #[test]
    fn an_unread_answer_that_was_ended_fails() {
        let clock = ManualClock::new();
        let heavy = heavy(&clock);
        let mut body = body(response(&vec![300; 5000]), &heavy);
        assert!(next(&mut body).expect("a chunk").is_data());
        let all = Limits::default().answer_bytes_max;
        let waiting = heavy.memory.reserve(all);
        let mut waiting = std::pin::pin!(waiting);
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        clock.advance(crate::heavy::UNREAD_MAX);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
        let trailers = next(&mut body).expect("trailers").into_trailers().unwrap();
        let status = Status::from_header_map(&trailers).expect("a status");
        assert_eq!(
            status.message(),
            EtcdError::AnswerNotRead.to_status().message()
        );
        assert!(next(&mut body).is_none());
    }

    #[tokio::test]
    async fn the_rest_of_an_answer_is_dropped_on_a_worker() {
        let engine = Engine::builder().clock(ManualClock::new()).build();
        let limits = Limits::default().heavy_workers(1);
        let heavy = Arc::new(Heavy::new(&limits, engine.clock()));
        let body = body(response(&vec![300; 5000]), &heavy);
        let (release, released) = std::sync::mpsc::channel::<()>();
        let workers = heavy.clone();
        let occupied = tokio::spawn(async move {
            let work = move || released.recv().is_err();
            workers.part_workers.run(work).await.unwrap()
        });
        tokio::task::yield_now().await;
        assert_eq!(heavy.part_workers.busy(), 1);
        drop(body);
        tokio::task::yield_now().await;
        assert_eq!(heavy.part_workers.waiting(), 1);
        drop(release);
        assert!(occupied.await.unwrap());
        // The drop was queued first.
        heavy.part_workers.run(|| ()).await.unwrap();
        assert_eq!(heavy.part_workers.waiting(), 0);
    }
}
