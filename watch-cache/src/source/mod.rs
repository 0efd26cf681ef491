//! Where the cache gets its data: a trait, the in-process engine, and etcd.

mod engine;
#[cfg(feature = "etcd")]
mod etcd;
pub(crate) mod raw_store;
mod write;

pub use engine::EngineSource;
#[cfg(feature = "etcd")]
pub use etcd::EtcdSource;

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_core::future::BoxFuture;
use revstore_engine::{KeyRange, Revision};
use thiserror::Error;

/// A key of the store with its value, as it was at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The revision in which the key's present life began.
    pub create_revision: Revision,
    /// The revision that wrote this version.
    pub mod_revision: Revision,
}

/// What to list.
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// The keys.
    pub range: KeyRange,
    /// The revision to read at; the current one if none is given.
    pub at: Option<Revision>,
    /// The most keys to return.
    pub limit: Option<usize>,
}

/// What a list found.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// The revision that was read at.
    pub revision: Revision,
    /// The keys, ascending.
    pub items: Vec<Stored>,
    /// Whether the limit kept keys back.
    pub more: bool,
    /// The keys of the whole range at that revision.
    pub count: usize,
}

/// What to watch.
#[derive(Clone, Debug)]
pub struct WatchRequest {
    /// The keys.
    pub range: KeyRange,
    /// Events of later revisions than this one.
    pub after: Revision,
    /// Whether each event is to bring the version before it.
    pub previous: bool,
}

/// A change of one key.
#[derive(Clone, Debug)]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// The revision of the change.
    pub revision: Revision,
    /// The new version; nothing if the key was deleted.
    pub new: Option<Stored>,
    /// The version before, if it was asked for and is not compacted.
    pub previous: Option<Stored>,
}

/// Changes in order, whole revisions; without changes it only says how far the watch is.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Everything up to this revision has been delivered with this batch.
    pub through: Revision,
    /// The changes.
    pub changes: Vec<Change>,
}

/// What to do to one key.
#[derive(Clone, Debug)]
pub struct Write {
    /// The key.
    pub key: Bytes,
    /// Its mod revision, or nothing if it must not exist.
    pub expected: Option<Revision>,
    /// What to make of it.
    pub action: Action,
}

/// What becomes of a key.
#[derive(Clone, Debug)]
pub enum Action {
    /// It gets a value, for some time or for good.
    Put {
        /// The value.
        value: Bytes,
        /// How long it lives, through a lease of its own.
        time_to_live: Option<Duration>,
    },
    /// It is deleted.
    Delete,
}

/// What a write did.
#[derive(Clone, Debug)]
pub enum WriteOutcome {
    /// It was done, at this revision.
    Done(Revision),
    /// The key was not as expected and was left alone; this is what it is.
    Differs(Option<Stored>),
}

/// Why a source could not do something.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SourceError {
    /// The history asked for is gone.
    #[error("required revision has been compacted")]
    Compacted,
    /// The revision asked for has not been written yet.
    #[error("required revision {requested} is a future revision, the current one is {current}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The store is not the one it was: restored from a backup, or begun anew. Revisions from
    /// before mean nothing any more.
    #[error("the store was replaced: it was at revision {known} and is at {found}")]
    Replaced {
        /// The newest revision that was known.
        known: Revision,
        /// The newest revision now.
        found: Revision,
    },
    /// The source cannot be reached, or refuses.
    #[error("{0}")]
    Unavailable(String),
}

/// Batches as they come; ends with an error, or ends when the source goes away.
pub type BatchStream = Pin<Box<dyn Stream<Item = Result<Batch, SourceError>> + Send>>;

/// A store with revisions and history.
///
/// # What an implementation promises
/// - A list at a revision sees all of every revision up to it and nothing of a later one.
/// - A watch delivers every change of its range after its start, once, in order, all changes of a
///   revision in one batch; or it ends with [`SourceError::Compacted`].
/// - [`Batch::through`] is never ahead of what was delivered.
/// - A write compares and changes in one step.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// The newest revision. What was acknowledged before the call is at or below it.
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, SourceError>>;

    /// The oldest revision that is known to be readable, if the source can tell. A cache that
    /// starts loads it and replays what came since, so that its window reaches back before its
    /// start (WC-144).
    fn oldest_revision(&self) -> Option<Revision> {
        None
    }

    /// How often the store turned out to be another one than before, for reasons that its revisions
    /// do not show. Looked at by a cache after it asked for the current revision; if the number has
    /// changed since the cache loaded, it forgets everything and loads anew.
    fn replacements(&self) -> u64 {
        0
    }

    /// Reads keys.
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>>;

    /// Follows keys.
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>>;

    /// Changes a key if it is as expected.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<WriteOutcome, SourceError>>;

    /// Asks the open watches to say soon how far they are. Nothing to do for a source whose watches
    /// hear of every revision.
    fn request_progress(&self) {}
}
