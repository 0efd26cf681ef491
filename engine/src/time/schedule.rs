//! The schedule of an engine: its work at certain times, which is expiry of leases, progress
//! notifications and automatic compaction.
//!
//! The clock calls [`Timed::next_due`], and [`Timed::run_due`] at that time.

use std::time::Duration;

use super::Timed;
use crate::compaction::Compaction;
use crate::lease;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::Arc;

impl Timed for Store {
    fn next_due(&self) -> Option<Duration> {
        let due_times = [
            self.lessor.next_expiry(),
            self.hub.progress_due(),
            self.compactor.next_check(),
            self.deadlines.next(),
        ];
        due_times.into_iter().flatten().min()
    }

    fn run_due(self: Arc<Self>) {
        let now = self.clock.now();
        self.deadlines.wake(now);
        while lease::expire_first(&self, now) {}
        self.hub.notify_progress(&self, now);
        let revision = self.compactor.check_if_due(&self, now);
        compact_at(&self, revision);
    }
}

/// Checks the policy of automatic compaction now (AC-7).
pub(crate) fn auto_compact(store: &Arc<Store>) {
    let revision = store.compactor.check(store, store.clock.now());
    compact_at(store, revision);
}

fn compact_at(store: &Arc<Store>, revision: Option<Revision>) {
    // AC-5: an error means that the revision is compacted already, so nothing is left to do.
    if let Some(revision) = revision
        && let Ok(compaction) = Compaction::announce(store, revision)
    {
        let start = store.clock.now();
        store.compactor.report(revision, None);
        compaction.run();
        let took = store.clock.now().saturating_sub(start);
        store.compactor.report(revision, Some(took));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::key::KeyRange;
    use crate::options::Options;
    use crate::store::Store;
    use crate::sync::Arc;
    use crate::time::{Clock, Timed};
    use crate::watch::{WatchOptions, WatchStream};
    use crate::{AutoCompaction, ManualClock};

    #[test]
    fn next_due_is_the_earliest_due_time_and_changes_nothing() {
        let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
        let options = Options {
            progress_interval: 20 * second,
            auto_compaction: Some(AutoCompaction::Revisions {
                keep: 1,
                every: 30 * second,
            }),
            ..Options::default()
        };
        let store = Arc::new(Store::new(options, Arc::new(clock.clone())));
        assert_eq!(store.next_due(), Some(30 * second));
        let mut stream = WatchStream::new(store.clone());
        let watch = WatchOptions::of(KeyRange::all()).with_progress();
        let first = stream.watch(watch.clone()).expect("a valid watch").id;
        clock.advance(5 * second);
        let second_watch = stream.watch(watch).expect("a valid watch").id;
        for _ in 0..3 {
            assert_eq!(store.next_due(), Some(20 * second));
        }
        store.lessor.grant(None, 5, clock.now()).expect("a lease");
        assert_eq!(store.next_due(), Some(10 * second));
        stream.cancel(first);
        clock.advance(6 * second);
        store.clone().run_due();
        assert_eq!(store.next_due(), Some(20 * second));
        stream.cancel(second_watch);
        assert_eq!(store.next_due(), Some(30 * second));
    }
}
