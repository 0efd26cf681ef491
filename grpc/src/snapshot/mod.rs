//! The snapshot: the store as a database file of etcd (MT-6), and hashes of the store.
//!
//! `etcdctl snapshot save` and `etcdctl snapshot restore` transfer the store to etcd with such a
//! file: all versions that are not compacted, leases, users, roles and alarms.
//!
//! | file | contents |
//! |---|---|
//! | `backend.rs` | the buckets of etcd's database and their contents |
//! | `bolt.rs` | the file format of the database |
//! | `stored_version.rs` | the form in which etcd stores a version of a key |
//! | `hash.rs` | the hash over all versions with which etcd compares members |

mod backend;
mod bolt;
pub(crate) mod hash;
mod stored_version;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use revstore_proto::etcdserverpb::SnapshotResponse;
use sha2::{Digest, Sha256};
use tonic::Status;

use self::bolt::{BoltFile, PAGE_BYTES};
use crate::node::Node;
use crate::node::version;
use crate::status::EtcdError;

/// The maximum number of file bytes in one response (MT-6).
const CHUNK_BYTES: usize = 32 * 1024;

/// A stream of the responses that contain the file. Each chunk is encoded when the client has read
/// the previous one.
///
/// Holds a reference to each version, so a version stays in memory even if it is compacted while
/// the stream is open. Buffers at most one chunk of the file, or one page if the page is longer.
#[derive(Debug)]
pub(crate) struct SnapshotStream {
    file: BoltFile,
    version: String,
    next_page: usize,
    /// The encoded data that is not sent yet.
    encoded: Vec<u8>,
    remaining_bytes: u64,
    /// The hash of all sent data; `None` after the hash itself was sent.
    hash: Option<Sha256>,
}

impl SnapshotStream {
    /// Creates a stream of the current store. Visits all versions, so it must run on a thread that
    /// may block.
    pub(crate) fn of(node: &Node) -> Result<Self, EtcdError> {
        let file = BoltFile::plan(backend::buckets(node)?);
        Ok(Self {
            version: version::of_storage(&node.version),
            next_page: 0,
            encoded: Vec::with_capacity(CHUNK_BYTES + PAGE_BYTES),
            remaining_bytes: file.bytes(),
            hash: Some(Sha256::new()),
            file,
        })
    }

    /// Returns the next chunk of the file, or the hash after the last chunk.
    fn next_chunk(&mut self) -> Option<Bytes> {
        while self.encoded.len() < CHUNK_BYTES && self.next_page < self.file.pages() {
            self.file.write_page(self.next_page, &mut self.encoded);
            self.next_page += 1;
        }
        if self.encoded.is_empty() {
            let hash = self.hash.take()?;
            return Some(Bytes::copy_from_slice(&hash.finalize()));
        }
        let length = self.encoded.len().min(CHUNK_BYTES);
        let chunk: Vec<u8> = self.encoded.drain(..length).collect();
        if let Some(hash) = &mut self.hash {
            hash.update(&chunk);
        }
        self.remaining_bytes -= chunk.len() as u64;
        Some(chunk.into())
    }
}

impl Stream for SnapshotStream {
    type Item = Result<SnapshotResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let chunk = self.next_chunk();
        Poll::Ready(chunk.map(|blob| {
            Ok(SnapshotResponse {
                // DM-29
                header: None,
                remaining_bytes: self.remaining_bytes,
                blob,
                version: self.version.clone(),
            })
        }))
    }
}
