//! Watches: each event once, in order and without a gap, or [`WatchResponse::Compacted`] (I5).
//!
//! ```text
//!  commit ──▶ log ──▶ hub ──▶ queue of a stream ──▶ synced watch
//!              └───────────(by position)──────────▶ unsynced watch
//! ```
//!
//! A watch is a range, an event filter and a position in the log. The *reader* of a watch or stream
//! is the thread or task that takes its responses. While a watch is *synced*, the hub puts its
//! events into the bounded queue of its stream as they are committed. If a watch starts in the
//! past, or its events no longer fit into the queue, it is *unsynced*: its reader takes events from
//! the log, at its own speed, until it has read everything that was dispatched. So a slow reader
//! delays neither writers nor other streams (I9).
//!
//! etcd's counterparts in mvcc: `hub` is `watchableStore` with its `synced` group, `interest` the
//! interval tree of a `watcherGroup`, `stream` a `watchStream`, and the catch-up of `stream` is
//! `syncWatchers`. etcd's `victims` have no counterpart: a full queue makes a watch unsynced.

mod deadlines;
mod events;
mod hub;
mod interest;
mod interval_tree;
mod options;
mod stream;
mod watcher;

pub(crate) use deadlines::Deadlines;
pub use events::{Event, Events};
pub(crate) use hub::Hub;
pub use options::{EventPredicate, WatchCreated, WatchId, WatchOptions, WatchResponse};
pub use stream::WatchStream;
pub use watcher::{NextWithin, WatchBatch, WatchCloser, WatchEnd, Watcher, WatcherIter};
