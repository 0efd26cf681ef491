//! The store behind a cache: the trait [`Source`], its implementations over an engine in the same
//! process and over an etcd cluster, and [`RawStore`], which answers requests from a source without a
//! cache.

mod compactor;
mod engine;
#[cfg(feature = "etcd")]
mod etcd;
pub(crate) mod raw_store;
pub(crate) mod raw_watch;
mod shared_lease;
mod write;

pub use compactor::Compactor;
pub use engine::EngineSource;
#[cfg(feature = "etcd")]
pub use etcd::{EtcdOptions, EtcdOptionsError, EtcdSource, EtcdTls};
pub use raw_store::RawStore;

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_util::future::ready;
use revstore_engine::{KeyRange, Revision};
use thiserror::Error;

/// A key-value pair of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKeyValue {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The revision that created the key.
    pub create_revision: Revision,
    /// The revision that wrote this version.
    pub mod_revision: Revision,
}

impl StoredKeyValue {
    /// Returns whether this version has created the key, so that there is no previous version.
    pub(crate) fn is_created(&self) -> bool {
        self.create_revision == self.mod_revision
    }
}

/// A request to read the keys of a range.
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// The range of keys.
    pub range: KeyRange,
    /// The revision to read at, or `None` for the current one.
    pub at: Option<Revision>,
    /// The maximum number of keys to return, or `None` for all.
    pub limit: Option<usize>,
}

/// The response to a [`ListRequest`].
#[derive(Clone, Debug)]
pub struct ListPage {
    /// The revision that was read.
    pub revision: Revision,
    /// The key-value pairs, in ascending order of their keys.
    pub items: Vec<StoredKeyValue>,
    /// Whether there are more keys than the limit.
    pub more: bool,
    /// The number of keys in the whole range at that revision.
    pub count: usize,
}

/// A request to watch the keys of a range.
#[derive(Clone, Debug)]
pub struct WatchRequest {
    /// The range of keys.
    pub range: KeyRange,
    /// The revision after which the watch starts.
    pub after: Revision,
    /// Whether changes contain the previous version of the key.
    pub previous: bool,
}

/// A change of one key.
#[derive(Clone, Debug)]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// The revision of the change.
    pub revision: Revision,
    /// The new version, or `None` if the key was deleted.
    pub new: Option<StoredKeyValue>,
    /// The previous version, if it was requested and is not compacted.
    pub previous: Option<StoredKeyValue>,
}

/// The changes of one or more whole revisions, in order. A batch without changes reports progress.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The revision up to which all changes have been delivered, including the changes of this batch.
    pub through: Revision,
    /// The changes.
    pub changes: Vec<Change>,
}

/// A write of one key, which is executed only if the key has an expected version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionalWrite {
    /// The key.
    pub key: Bytes,
    /// The expected mod revision of the key, or `None` if the key must not exist.
    pub expected: Option<Revision>,
    /// The write.
    pub action: WriteAction,
}

/// The action of a [`ConditionalWrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteAction {
    /// Put a value.
    Put {
        /// The value.
        value: Bytes,
        /// The time after which the key is deleted, by a lease; `None` to keep it. Up to 1,000 writes with the same
        /// time share a lease, and then live for up to a twentieth of it, at most a minute, longer.
        time_to_live: Option<Duration>,
    },
    /// Delete the key.
    Delete,
}

/// The outcome of a [`ConditionalWrite`].
#[derive(Clone, Debug)]
pub enum WriteOutcome {
    /// The write was executed at this revision.
    Done(Revision),
    /// The key, or one that is written with it, did not have the expected version, and nothing was
    /// written. Contains the current version of the key, or `None` if it does not exist.
    Differs(Option<StoredKeyValue>),
}

/// A put of one key, which is executed only if the key has been written an expected number of times.
#[derive(Clone, Debug)]
pub struct VersionWrite {
    /// The key.
    pub key: Bytes,
    /// The expected version of the key: the number of its puts since it was created, 0 if it does not exist.
    pub expected: i64,
    /// The value.
    pub value: Bytes,
}

/// The outcome of a [`VersionWrite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionOutcome {
    /// The value was put at this revision.
    Done(Revision),
    /// The key did not have the expected version, and nothing was written.
    Differs {
        /// The version of the key, 0 if it does not exist.
        version: i64,
        /// The current revision of the store.
        current: Revision,
    },
}

/// The text about a write that is larger than the store allows, which is that of etcd.
pub(crate) const TOO_LARGE: &str = "etcdserver: request is too large";

/// The error of a source.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The requested revision is compacted.
    #[error("required revision has been compacted")]
    Compacted,
    /// The requested revision is in the future.
    #[error("required revision {requested} is a future revision, the current one is {current}")]
    Future {
        /// The requested revision.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The store was replaced: it was restored from a backup or started empty. Its revisions are
    /// unrelated to those known before.
    #[error("the store was replaced: it was at revision {known} and is at {found}")]
    Replaced {
        /// The newest known revision of the previous store.
        known: Revision,
        /// The newest revision of the current store.
        found: Revision,
    },
    /// The store takes no writes any more, because another one is about to replace it.
    #[error("another store is about to replace this one")]
    Ended,
    /// The write is larger than the store allows.
    #[error("{TOO_LARGE}")]
    TooLarge,
    /// The source cannot be reached, or the request failed.
    #[error("{0}")]
    Unavailable(String),
}

/// The stream of batches of a watch. It ends after an error, or when the source ends the watch.
pub type BatchStream = Pin<Box<dyn Stream<Item = Result<Batch, SourceError>> + Send>>;

/// A store with revisions and a history of changes.
///
/// # Contract
/// - A list at a revision contains all changes up to that revision and none of a later one.
/// - A watch delivers every change in its range after its start, once, in order, with all changes of
///   a revision in one batch; or it ends with [`SourceError::Compacted`].
/// - All changes up to [`Batch::through`] have been delivered.
/// - A write compares and changes atomically.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Returns the newest revision. Writes that were acknowledged before the call have this or an
    /// earlier revision.
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, SourceError>>;

    /// Returns the oldest readable revision, or `None` if that is unknown. A new cache loads this
    /// revision and applies the changes since then, so that its windows contain events from before
    /// its start.
    // WC-144.
    fn oldest_revision(&self) -> Option<Revision> {
        None
    }

    /// Returns the number of replacements of the store that the source has detected by other means
    /// than a lower revision. A cache reads this number after each read of the current revision; if
    /// the number has changed since the cache was loaded, the cache discards all objects and loads
    /// them again.
    fn replacements(&self) -> u64 {
        0
    }

    /// Reads the keys of a range.
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>>;

    /// Watches the keys of a range.
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>>;

    /// Writes a key if it has the expected version.
    fn write(&self, write: ConditionalWrite) -> BoxFuture<'_, Result<WriteOutcome, SourceError>>;

    /// Writes a key and others in one revision, if all of them have the expected versions. The others
    /// have no time to live, and all keys are different.
    ///
    /// The default is for sources without transactions: it fails if there are others.
    fn write_with(
        &self,
        write: ConditionalWrite,
        others: Vec<ConditionalWrite>,
    ) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        if others.is_empty() {
            return self.write(write);
        }
        let message = "the source cannot write several keys at once".to_owned();
        Box::pin(ready(Err(SourceError::Unavailable(message))))
    }

    /// Puts a key if it has the expected version. Fails by default; a [`Compactor`] needs it.
    fn write_version(
        &self,
        write: VersionWrite,
    ) -> BoxFuture<'_, Result<VersionOutcome, SourceError>> {
        drop(write);
        Box::pin(async {
            let text = "this source has no writes by version";
            Err(SourceError::Unavailable(text.to_owned()))
        })
    }

    /// Removes the history before a revision, which is then the oldest readable one. Fails by default; a [`Compactor`]
    /// needs it.
    ///
    /// The error is [`SourceError::Compacted`] if that has happened already.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), SourceError>> {
        let _ = revision;
        Box::pin(async {
            let text = "this source cannot be compacted";
            Err(SourceError::Unavailable(text.to_owned()))
        })
    }

    /// Returns the range that a cache watches, whose resources have keys in `needed`; there are no
    /// resources if that is `None`. The range must contain `needed`.
    ///
    /// By default all keys, so that the watch reports every revision at once. A source that reports
    /// progress on request returns `needed`.
    fn watch_range(&self, needed: Option<KeyRange>) -> KeyRange {
        let _ = needed;
        KeyRange::all()
    }

    /// Returns whether [`request_progress`](Self::request_progress) makes the open watches report the
    /// current revision soon, or they report every revision at once. If not, a cache is fresh only
    /// after a change of its resources, so the source answers lists of the most recent state.
    fn requests_progress(&self) -> bool {
        true
    }

    /// Requests progress on the open watches: a batch that reports the current revision. Does nothing
    /// by default, for sources whose watches report every revision at once.
    fn request_progress(&self) {}
}
