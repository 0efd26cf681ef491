//! The schedule of an engine: its work at certain times, which is expiry of leases, progress
//! notifications and automatic compaction.
//!
//! The clock calls [`Timed::next_due`], and [`Timed::run_due`] at that time.

use std::time::Duration;

use super::{DueWork, PendingWork, Timed};
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

    fn pending(&self, max: usize) -> PendingWork {
        let mut pending = self.lessor.pending(max);
        let once = |kind: &'static str, due: Option<Duration>| {
            let id = String::new();
            due.map(|due| DueWork { due, kind, id })
        };
        let of_store = [
            once("compaction", self.compactor.next_check()),
            once("progress", self.hub.progress_due()),
            once("deadline", self.deadlines.next()),
        ];
        let work = of_store.into_iter().flatten().collect();
        pending.merge(PendingWork { work, more: 0 }, max);
        pending
    }

    fn is_settled(&self) -> bool {
        self.hub.is_progress_read()
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
    use crate::{AutoCompaction, LeaseId, ManualClock};

    #[test]
    fn pending_work_is_listed_in_order_and_bounded() {
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
        let mut stream = WatchStream::new(store.clone());
        let watch = WatchOptions::of(KeyRange::all()).with_progress();
        stream.watch(watch).expect("a valid watch");
        for (id, ttl) in [(0x1a, 40), (2, 10), (3, 25)] {
            let grant = store.lessor.grant(LeaseId::new(id), ttl, clock.now());
            grant.expect("a free id");
        }
        let listed = |max| {
            let pending = store.pending(max);
            let work = pending.work.into_iter();
            let work = work.map(|it| (it.due.as_secs(), it.kind, it.id));
            (work.collect::<Vec<_>>(), pending.more)
        };
        let lease = |due, id: i64| (due, "lease", format!("{id:016x}"));
        let once = |due, kind| (due, kind, String::new());
        let all = vec![
            lease(10, 2),
            once(20, "progress"),
            lease(25, 3),
            once(30, "compaction"),
            lease(40, 0x1a),
        ];
        assert_eq!(listed(10), (all.clone(), 0));
        assert_eq!(listed(5), (all.clone(), 0));
        assert_eq!(listed(2), (all[..2].to_vec(), 3));
        assert_eq!(listed(0), (Vec::new(), 5));
        // Listing changes nothing.
        assert_eq!(store.next_due(), Some(10 * second));
    }

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
