//! The stream of a `RangeStream` call: a range in chunks.

use std::mem;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use futures_core::Stream;
use revstore_engine::{KeyRange, Range, RangeResult, ReadError, Revision};
use tonic::Status;

use crate::encode::codec::{Encode, Measured};
use crate::encode::response::{RangeResponse, RangeStreamResponse};
use crate::node::Node;
use crate::status::EtcdError;

/// The number of keys in the first chunk (RG-63).
const FIRST_CHUNK_KEYS: usize = 10;

/// The maximum number of keys in a chunk. The task of the stream reads and encodes it in about a millisecond, and then
/// yields to other tasks.
const CHUNK_KEYS_MAX: usize = 5_120;

/// The size of a chunk, in requests of the maximum size, from which on it gets no more keys.
const CHUNK_REQUESTS_MAX: usize = 4;

/// A range in key order, read in chunks. A chunk is read when the client has read the previous chunk.
///
/// All chunks are read at one revision (RG-62). A compaction above that revision ends the stream with
/// an error (RG-66).
#[derive(Debug)]
pub(crate) struct RangeStream {
    node: Arc<Node>,
    keys_only: bool,
    /// The fields of the last message that concern the whole range.
    summary: Summary,
    /// The next chunk or the error of reading it; `None` after the last chunk.
    next: Option<Result<RangeResult, EtcdError>>,
    /// The part of the range after `next`.
    rest: Range,
    chunk_keys: usize,
    /// Whether other tasks have run since the last chunk.
    has_yielded: bool,
}

#[derive(Clone, Copy, Debug)]
struct Summary {
    revision: Revision,
    count: usize,
}

impl RangeStream {
    /// Reads the first chunk of `range`, which is neither sorted nor filtered.
    pub(crate) fn start(
        node: Arc<Node>,
        mut range: Range,
        keys_only: bool,
    ) -> Result<Self, EtcdError> {
        // RG-65: a sort target without an order has no effect on a stream.
        range.sort = None;
        let first_limit = chunk_limit(FIRST_CHUNK_KEYS, range.limit);
        let first = node.engine.range(&range.clone().limit(first_limit))?;
        let summary = Summary {
            revision: first.revision,
            count: first.count,
        };
        range.at = range.at.or(Some(first.revision));
        let mut stream = Self {
            node,
            keys_only,
            summary,
            next: None,
            rest: range,
            chunk_keys: FIRST_CHUNK_KEYS,
            has_yielded: true,
        };
        stream.set_next(first);
        Ok(stream)
    }

    /// Stores the next chunk and removes it from the rest of the range.
    fn set_next(&mut self, chunk: RangeResult) {
        if let Some(last) = chunk.kvs.last() {
            self.rest.keys = keys_after(&self.rest.keys, last.key());
        }
        let keys = chunk.kvs.len();
        self.rest.limit = self.rest.limit.map(|limit| limit.saturating_sub(keys));
        self.next = Some(Ok(chunk));
    }

    fn message(&mut self, chunk: RangeResult) -> RangeStreamResponse {
        let is_last = !chunk.more || self.rest.limit == Some(0);
        // RG-61
        let header = is_last.then(|| self.node.headers.at(self.summary.revision));
        let chunk = RangeResult {
            more: chunk.more && is_last,
            count: if is_last { self.summary.count } else { 0 },
            ..chunk
        };
        let response = RangeResponse::new(chunk, self.keys_only, header);
        let range_response = Measured::new(response);
        if !is_last {
            self.adapt_chunk_keys(range_response.encoded_len());
            self.read_next();
        }
        RangeStreamResponse { range_response }
    }

    /// RG-63
    fn adapt_chunk_keys(&mut self, chunk_bytes: usize) {
        let target_bytes = self.node.limits.request_bytes_max;
        if chunk_bytes < target_bytes / 2 {
            self.chunk_keys = (self.chunk_keys * 2).min(CHUNK_KEYS_MAX);
        } else if chunk_bytes / 2 > target_bytes {
            self.chunk_keys = (self.chunk_keys / 2).max(1);
        }
    }

    fn read_next(&mut self) {
        match self.read(chunk_limit(self.chunk_keys, self.rest.limit)) {
            Ok(chunk) => self.set_next(chunk),
            Err(error) => self.next = Some(Err(error.into())),
        }
    }

    /// Reads the first keys of the rest. They are not counted: the count at an earlier revision would visit all later
    /// changes for each chunk.
    fn read(&self, limit: usize) -> Result<RangeResult, ReadError> {
        let (mut kvs, mut bytes) = (Vec::new(), 0);
        let request_bytes_max = self.node.limits.request_bytes_max;
        let bytes_max = request_bytes_max.saturating_mul(CHUNK_REQUESTS_MAX);
        let at = self.rest.at.unwrap_or(self.summary.revision);
        let end = self.node.engine.visit(&self.rest.keys, at, |kv| {
            if kvs.len() == limit || bytes >= bytes_max && !kvs.is_empty() {
                return ControlFlow::Break(());
            }
            bytes += RangeResponse::kv_len(kv, self.keys_only);
            kvs.push(kv.clone());
            ControlFlow::Continue(())
        })?;
        Ok(RangeResult {
            revision: self.summary.revision,
            kvs,
            more: end.is_break(),
            count: 0,
        })
    }
}

impl Stream for RangeStream {
    type Item = Result<RangeStreamResponse, Status>;

    /// Yields to other tasks after each chunk: a fast client could otherwise occupy a thread of the runtime until it has
    /// read everything. The library sends small chunks together, without yielding.
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !mem::replace(&mut self.has_yielded, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.has_yielded = self.next.is_none();
        Poll::Ready(match self.next.take() {
            None => None,
            Some(Ok(chunk)) => Some(Ok(self.message(chunk))),
            Some(Err(error)) => Some(Err(error.into())),
        })
    }
}

fn chunk_limit(chunk_keys: usize, range_limit: Option<usize>) -> usize {
    range_limit.map_or(chunk_keys, |limit| limit.min(chunk_keys))
}

/// Returns the part of `keys` after `key`.
fn keys_after(keys: &KeyRange, key: &[u8]) -> KeyRange {
    let mut start = BytesMut::with_capacity(key.len() + 1);
    start.put_slice(key);
    // The smallest key that is greater.
    start.put_u8(0);
    let start = start.freeze();
    match keys {
        KeyRange::Within { end, .. } => KeyRange::Within {
            start,
            end: end.clone(),
        },
        KeyRange::From(_) => KeyRange::From(start),
        // No key follows the only key: a range whose end is before its start is empty.
        KeyRange::One(_) => KeyRange::Within {
            start,
            end: Bytes::new(),
        },
    }
}
