//! Time: its sources, and the work of an engine that depends on it.

mod clock;
mod due;
mod schedule;

#[cfg(not(any(loom, shuttle)))]
pub use clock::SystemClock;
pub use clock::{Clock, ManualClock, Timed};
pub use due::{DueWork, PendingWork};
pub(crate) use schedule::auto_compact;
