//! Reads at any kept revision, none of which takes the sequencer.

mod changes;
mod key_history;
mod range;
mod snapshot;

pub use changes::Changes;
pub use key_history::KeyHistory;
pub use range::{Filter, Range, RangeResult, SortBy, SortOrder};
pub use snapshot::{Snapshot, SnapshotIter};
