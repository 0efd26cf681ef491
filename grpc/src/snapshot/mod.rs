//! The snapshot: the store as a file that etcd would keep it in (MT-6).
//!
//! | file | noun |
//! |---|---|
//! | `bolt.rs` | the file format |
//! | `backend.rs` | what etcd keeps in such a file, and under which names |
//! | `hash.rs` | the hash over all versions, by which etcd compares members |
//!
//! So a history can be taken from here to an etcd, with `etcdctl snapshot save` and
//! `etcdctl snapshot restore`: all kept revisions, leases, users, roles and alarms.

mod backend;
mod bolt;
pub(crate) mod hash;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use revstore_proto::etcdserverpb::SnapshotResponse;
use sha2::{Digest, Sha256};
use tonic::Status;

use self::bolt::{File, PAGE_BYTES};
use crate::node::Node;
use crate::node::version;
use crate::status::EtcdError;

/// MT-6: the largest piece.
const BLOB_BYTES: usize = 32 * 1024;

/// A file on its way to a client, written as the client takes it.
///
/// Holds a pointer to each version, which keeps it in memory though it may be compacted meanwhile,
/// and of the file as much as a piece, or a page if a value makes one that is longer.
#[derive(Debug)]
pub(crate) struct SnapshotStream {
    file: File,
    version: String,
    next_page: usize,
    /// What is written and not sent.
    written: Vec<u8>,
    remaining_bytes: u64,
    /// Of all that was sent; nothing when it was sent itself.
    hash: Option<Sha256>,
}

impl SnapshotStream {
    /// The store as it stands. Walks all of it, so it belongs on a thread that may block.
    pub(crate) fn of(node: &Node) -> Result<Self, EtcdError> {
        let file = File::plan(backend::buckets(node)?);
        Ok(Self {
            version: version::of_storage(&node.version),
            next_page: 0,
            written: Vec::with_capacity(BLOB_BYTES + PAGE_BYTES),
            remaining_bytes: file.bytes(),
            hash: Some(Sha256::new()),
            file,
        })
    }

    fn next_blob(&mut self) -> Option<Bytes> {
        while self.written.len() < BLOB_BYTES && self.next_page < self.file.pages() {
            self.file.write_page(self.next_page, &mut self.written);
            self.next_page += 1;
        }
        if self.written.is_empty() {
            let hash = self.hash.take()?;
            return Some(Bytes::copy_from_slice(&hash.finalize()));
        }
        let length = self.written.len().min(BLOB_BYTES);
        let blob: Vec<u8> = self.written.drain(..length).collect();
        if let Some(hash) = &mut self.hash {
            hash.update(&blob);
        }
        self.remaining_bytes -= blob.len() as u64;
        Some(blob.into())
    }
}

impl Stream for SnapshotStream {
    type Item = Result<SnapshotResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let blob = self.next_blob();
        Poll::Ready(blob.map(|blob| {
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
