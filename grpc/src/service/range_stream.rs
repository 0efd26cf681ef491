//! Reads as streams of chunks.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use futures_core::Stream;
use revstore_engine::{KeyRange, Range, RangeResult, Revision};
use tonic::Status;

use crate::encode::codec::{Encode, Measured};
use crate::encode::response::{RangeResponse, RangeStreamResponse};
use crate::node::Node;
use crate::status::EtcdError;

/// Keys in the first chunk (RG-63).
const FIRST_CHUNK_KEYS: usize = 10;

/// A read in key order that is answered in chunks, each read when the client has taken the one
/// before, so that no more than one is held at a time.
///
/// All chunks are read at one revision (RG-62). A compaction that passes it ends the stream (RG-66).
#[derive(Debug)]
pub(crate) struct RangeStream {
    node: Arc<Node>,
    keys_only: bool,
    /// What the last message tells of the whole read.
    summary: Summary,
    /// The next chunk, or how it could not be read; nothing behind the last.
    next: Option<Result<RangeResult, EtcdError>>,
    /// What is left to read behind `next`.
    rest: Range,
    chunk_keys: usize,
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
        // RG-65: a target without an order means nothing here.
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
        };
        stream.queue(first);
        Ok(stream)
    }

    /// Makes a chunk the next, and takes it off what is left.
    fn queue(&mut self, chunk: RangeResult) {
        if let Some(last) = chunk.kvs.last() {
            self.rest.keys = behind(&self.rest.keys, last.key());
        }
        let read = chunk.kvs.len();
        self.rest.limit = self.rest.limit.map(|limit| limit.saturating_sub(read));
        self.next = Some(Ok(chunk));
    }

    fn message(&mut self, chunk: RangeResult) -> RangeStreamResponse {
        let last = !chunk.more || self.rest.limit == Some(0);
        // RG-61
        let header = last.then(|| self.node.headers.at(self.summary.revision));
        let chunk = RangeResult {
            more: chunk.more && last,
            count: if last { self.summary.count } else { 0 },
            ..chunk
        };
        let response = RangeResponse::new(chunk, self.keys_only, header);
        let range_response = Measured::new(response);
        if !last {
            self.resize(range_response.encoded_len());
            self.read_on();
        }
        RangeStreamResponse { range_response }
    }

    /// RG-63
    fn resize(&mut self, chunk_bytes: usize) {
        let wanted = self.node.limits.request_bytes_max;
        if chunk_bytes < wanted / 2 {
            self.chunk_keys = self.chunk_keys.saturating_mul(2);
        } else if chunk_bytes / 2 > wanted {
            self.chunk_keys = (self.chunk_keys / 2).max(1);
        }
    }

    fn read_on(&mut self) {
        let limit = chunk_limit(self.chunk_keys, self.rest.limit);
        let chunk = self.node.engine.range(&self.rest.clone().limit(limit));
        match chunk {
            Ok(chunk) => self.queue(chunk),
            Err(error) => self.next = Some(Err(error.into())),
        }
    }
}

impl Stream for RangeStream {
    type Item = Result<RangeStreamResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(match self.next.take() {
            None => None,
            Some(Ok(chunk)) => Some(Ok(self.message(chunk))),
            Some(Err(error)) => Some(Err(error.into())),
        })
    }
}

fn chunk_limit(chunk_keys: usize, left: Option<usize>) -> usize {
    left.map_or(chunk_keys, |left| left.min(chunk_keys))
}

/// The part of `keys` that lies behind `key`.
fn behind(keys: &KeyRange, key: &[u8]) -> KeyRange {
    let mut start = BytesMut::with_capacity(key.len() + 1);
    start.put_slice(key);
    // The first key that is greater.
    start.put_u8(0);
    let start = start.freeze();
    match keys {
        KeyRange::Within { end, .. } => KeyRange::Within {
            start,
            end: end.clone(),
        },
        KeyRange::From(_) => KeyRange::From(start),
        // There is nothing behind the only key.
        KeyRange::One(_) => KeyRange::Within {
            start,
            end: Bytes::new(),
        },
    }
}
