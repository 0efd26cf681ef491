//! Watches: events in order, once each, without a gap, or a typed end (I5).
//!
//! ```text
//!  commit ──▶ log ──▶ hub ──▶ queue of a stream ──▶ synced watch
//!              └───────────────(by position)──────▶ unsynced watch
//! ```
//!
//! A watch is a position in the log plus a range and filters. While it is *synced*, the hub puts
//! matching events into the bounded queue of its stream as they are committed. A watch that starts in
//! the past, or whose queue is full, is *unsynced*: its reader takes events from the log itself,
//! at its own pace, until it has caught up. So a slow reader costs only itself (I9).

mod events;
mod hub;
mod interest;
mod stream;

pub use events::{Event, Events};
pub use stream::{
    WatchBatch, WatchCreated, WatchId, WatchOptions, WatchResponse, WatchStream, Watcher,
};

pub(crate) use hub::Hub;

/// Why a watcher has nothing more to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// Events that the watch had yet to see were compacted. What lies between the last event it got
    /// and the compacted revision is lost; the caller reads the state anew and watches from there.
    #[error("the history is compacted up to revision {compacted}")]
    Compacted {
        /// The oldest revision that can still be read and watched.
        compacted: crate::Revision,
    },
}
