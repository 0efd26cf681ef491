//! The snapshot: the store as a database file of etcd (MT-6), and hashes of the store.
//!
//! `etcdctl snapshot save` and `etcdctl snapshot restore` transfer the store to etcd with such a
//! file: all versions that are not compacted, leases, users, roles and alarms.
//!
//! | file | contents |
//! |---|---|
//! | `backend.rs` | the buckets of etcd's database and their contents |
//! | `bolt.rs` | the file format of the database, as it is written |
//! | `bolt_reader.rs` | a file of this format that another program has written |
//! | `stored_version.rs` | the form in which etcd stores a version of a key |
//! | `hash.rs` | the hash over all versions with which etcd compares members |

mod backend;
mod bolt;
pub(crate) mod bolt_reader;
pub(crate) mod hash;
mod stored_version;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use revstore_proto::etcdserverpb::SnapshotResponse;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tonic::Status;
use tracing::info;

pub(crate) use self::backend::{
    StoredLease, alarms as alarm_bucket, auth as auth_buckets, members as member_buckets,
};
use self::bolt::BoltFile;
pub(crate) use self::stored_version::{POSITION_BYTES, TOMBSTONE_SUFFIX};
use crate::heavy::{ANSWER_BYTES, Answer, Heavy};
use crate::node::version;
use crate::node::{Node, human_bytes};
use crate::status::EtcdError;

/// The maximum number of file bytes in one response (MT-6).
const CHUNK_BYTES: usize = 32 * 1024;

/// The length of the part of the file that is encoded at a time.
const BATCH_BYTES: usize = 8 * CHUNK_BYTES;

/// The memory of a snapshot in progress for each version: a reference, and its share of the pages.
const VERSION_BYTES: u64 = 16;

/// A stream of the responses that contain the file. Each batch of chunks is encoded on a worker when
/// the client has read the previous batch.
///
/// Holds a reference to each version, so a version stays in memory even if it is compacted while
/// the stream is open. The memory of the references is part of that of answers under way, and a
/// stream whose client does not read it ends as such an answer does.
#[derive(Debug)]
pub(crate) struct SnapshotStream {
    encoder: Answer<Encoder>,
    heavy: Arc<Heavy>,
    batch: VecDeque<SnapshotResponse>,
    encoding: Option<Encoding>,
    has_ended: bool,
    /// The length of the file, and the time of the start, for the log.
    total_bytes: u64,
    start: Duration,
    node: Arc<Node>,
}

/// The next batch, while a worker encodes it; `None` if the stream was ended meanwhile.
struct Encoding(BoxFuture<Result<Option<VecDeque<SnapshotResponse>>, EtcdError>>);

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl SnapshotStream {
    /// Creates a stream of the current store. Visits all versions, on a worker.
    pub(crate) async fn start(node: &Arc<Node>) -> Result<Self, EtcdError> {
        let heavy = node.heavy.clone();
        let versions = node.engine.stats().versions;
        let bytes = ANSWER_BYTES.saturating_add(versions.saturating_mul(VERSION_BYTES));
        let reservation = heavy.memory.reserve_up_to(bytes).await?;
        let planned = node.clone();
        let encoder = heavy.workers.run(move || Encoder::of(&planned)).await??;
        let total_bytes = encoder.remaining_bytes;
        info!(
            "total-bytes" = total_bytes,
            size = human_bytes(total_bytes),
            "sending database snapshot to client"
        );
        Ok(Self {
            total_bytes,
            start: node.engine.now(),
            node: node.clone(),
            encoder: heavy.memory.hold(encoder, reservation),
            heavy,
            batch: VecDeque::new(),
            encoding: None,
            has_ended: false,
        })
    }

    fn log_end(&self) {
        let took = self.node.engine.now().saturating_sub(self.start);
        info!(
            "total-bytes" = self.total_bytes,
            size = human_bytes(self.total_bytes),
            ?took,
            "successfully sent database snapshot to client"
        );
    }

    /// Starts to encode the next batch.
    fn encode(&self) -> Encoding {
        let (heavy, encoder) = (self.heavy.clone(), self.encoder.clone());
        let encoding = async move {
            let _in_work = encoder.in_work();
            let encoding = {
                let encoder = encoder.clone();
                move || encoder.read(Encoder::next_batch)
            };
            heavy.part_workers.run(encoding).await
        };
        Encoding(Box::pin(encoding))
    }
}

impl Stream for SnapshotStream {
    type Item = Result<SnapshotResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(response) = self.batch.pop_front() {
                return Poll::Ready(Some(Ok(response)));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            let mut encoding = self.encoding.take().unwrap_or_else(|| self.encode());
            let Poll::Ready(batch) = encoding.0.as_mut().poll(context) else {
                self.encoding = Some(encoding);
                return Poll::Pending;
            };
            match batch.and_then(|batch| batch.ok_or(EtcdError::AnswerNotRead)) {
                Ok(batch) => {
                    self.has_ended = batch.is_empty();
                    if self.has_ended {
                        self.log_end();
                    }
                    self.batch = batch;
                }
                Err(error) => {
                    self.has_ended = true;
                    return Poll::Ready(Some(Err(error.into())));
                }
            }
        }
    }
}

impl Drop for SnapshotStream {
    /// Drops the references on a worker. There may be millions of them.
    fn drop(&mut self) {
        if let Ok(runtime) = Handle::try_current() {
            self.heavy.clone().discard(&runtime, self.encoder.clone());
        }
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoding").finish_non_exhaustive()
    }
}

/// The rest of the file. Buffers at most one batch of it, or one page if the page is longer.
#[derive(Debug)]
struct Encoder {
    file: BoltFile,
    version: String,
    next_page: usize,
    /// The encoded data that is not sent yet.
    encoded: Vec<u8>,
    remaining_bytes: u64,
    /// The hash of all sent data; `None` after the hash itself was sent.
    hash: Option<Sha256>,
}

impl Encoder {
    fn of(node: &Node) -> Result<Self, EtcdError> {
        let file = BoltFile::plan(backend::buckets(node)?);
        Ok(Self {
            version: version::of_storage(&node.version),
            next_page: 0,
            encoded: Vec::new(),
            remaining_bytes: file.bytes(),
            hash: Some(Sha256::new()),
            file,
        })
    }

    /// Returns the next chunks of the file, after the last one the hash, and then nothing.
    fn next_batch(&mut self) -> VecDeque<SnapshotResponse> {
        while self.encoded.len() < BATCH_BYTES && self.next_page < self.file.pages() {
            self.file.write_page(self.next_page, &mut self.encoded);
            self.next_page += 1;
        }
        let is_last = self.next_page == self.file.pages();
        // All chunks except the last one have the same length.
        let whole = self.encoded.len() - self.encoded.len() % CHUNK_BYTES;
        let length = if is_last { self.encoded.len() } else { whole };
        let rest = self.encoded.split_off(length);
        let encoded = Bytes::from(mem::replace(&mut self.encoded, rest));
        let mut batch: VecDeque<_> = (0..length)
            .step_by(CHUNK_BYTES)
            .map(|start| self.chunk(encoded.slice(start..length.min(start + CHUNK_BYTES))))
            .collect();
        if batch.is_empty()
            && let Some(hash) = self.hash.take()
        {
            let hash = Bytes::copy_from_slice(&hash.finalize());
            info!(
                "total-bytes" = self.file.bytes(),
                "checksum-size" = hash.len(),
                "sending database sha256 checksum to client"
            );
            batch.push_back(self.response(hash));
        }
        batch
    }

    fn chunk(&mut self, chunk: Bytes) -> SnapshotResponse {
        if let Some(hash) = &mut self.hash {
            hash.update(&chunk);
        }
        self.remaining_bytes -= chunk.len() as u64;
        self.response(chunk)
    }

    fn response(&self, blob: Bytes) -> SnapshotResponse {
        SnapshotResponse {
            // DM-29
            header: None,
            remaining_bytes: self.remaining_bytes,
            blob,
            version: self.version.clone(),
        }
    }
}
