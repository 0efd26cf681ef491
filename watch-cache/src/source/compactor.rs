//! The compaction of a store by its users, of which one at a time does it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use revstore_engine::{Clock, Revision};

use super::{Source, VersionOutcome, VersionWrite};
use crate::wake::timer_queue::TimerQueue;

/// The key on which all users of a store agree.
const COMPACT_REVISION_KEY: Bytes = Bytes::from_static(b"compact_rev_key");

/// Compacts a store at regular intervals, so that its history does not grow for ever. Corresponds to the compactor of
/// kube-apiserver, and follows the same protocol, so that any number of caches and API servers over one store compact
/// it once in each interval.
///
/// The version of the key `compact_rev_key` counts the turns. Whoever raises it to the next number has the turn, and
/// compacts the revision that was current in the previous one: a revision stays readable for one to two intervals.
/// A turn that fails, because the store is not available, is tried again after the interval.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use revstore_engine::{Engine, SystemClock};
/// use revstore_watch_cache::source::{Compactor, EngineSource};
///
/// let source = Arc::new(EngineSource::new(Engine::builder().build()));
/// let compactor = Compactor::new(source, Arc::new(SystemClock::new()), Duration::from_secs(300));
/// // Runs until it is dropped.
/// let running = compactor.run();
/// # drop(running);
/// ```
#[derive(Debug)]
pub struct Compactor {
    source: Arc<dyn Source>,
    timers: Arc<TimerQueue>,
    interval: Duration,
    /// The newest known version of the key.
    turn: i64,
    /// The revision that was current in that turn; 0 before the first one.
    observed: Revision,
}

impl Compactor {
    /// Returns a compactor of `source`, which takes a turn after each `interval` of `clock`.
    pub fn new(source: Arc<dyn Source>, clock: Arc<dyn Clock>, interval: Duration) -> Self {
        Self {
            source,
            timers: TimerQueue::new(clock),
            interval,
            turn: 0,
            observed: Revision(0),
        }
    }

    /// Takes turns until the future is dropped.
    pub async fn run(mut self) {
        loop {
            let due = self.timers.now().saturating_add(self.interval);
            let timers = self.timers.clone();
            let _due = timers.sleep_until(due, "compaction").await;
            self.take_turn().await;
        }
    }

    async fn take_turn(&mut self) {
        let write = VersionWrite {
            key: COMPACT_REVISION_KEY,
            expected: self.turn,
            value: self.observed.to_string().into(),
        };
        match self.source.write_version(write).await {
            Ok(VersionOutcome::Done(revision)) => {
                self.turn += 1;
                let before = std::mem::replace(&mut self.observed, revision);
                // Not before there was a turn: others may need the history since their start.
                if before.0 > 0 {
                    // Somebody may have compacted a later revision. Other failures delay it to the next turn, which
                    // compacts more.
                    let _ = self.source.compact(before).await;
                }
            }
            Ok(VersionOutcome::Differs { version, current }) => {
                self.turn = version;
                self.observed = current;
            }
            Err(_) => {}
        }
    }
}
