//! How values are distributed, counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most bounds that a histogram has.
const BOUNDS_MAX: usize = 12;

/// Microseconds, from a freshness wait that is hardly one to the longest by default.
pub(crate) const WAITS_US: &[u64] = &[
    5_000, 25_000, 50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000, 1_500_000,
    2_000_000, 3_000_000,
];
/// Microseconds, from 0.1 ms to 5 s: the stages of an event's way.
pub(crate) const STAGES_US: &[u64] = &[
    100, 250, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
];
/// Microseconds, from 5 ms to ten minutes: loads, lists, the life of watches.
pub(crate) const SPANS_US: &[u64] = &[
    5_000,
    25_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    600_000_000,
];
/// Bytes of events, 1 KiB to 8 MiB.
pub(crate) const SIZES: &[u64] = &[
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
    1 << 17,
    1 << 18,
    1 << 20,
    1 << 22,
    1 << 23,
];

/// Values that were seen, by bounds: what a Prometheus histogram is made of.
///
/// ```
/// use revstore_watch_cache::Histogram;
/// let none = Histogram::default();
/// assert_eq!((none.count(), none.sum(), none.buckets().count()), (0, 0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    bounds: &'static [u64],
    /// How many values lie above the bound before and not above this one; the last: above all.
    counts: [u64; BOUNDS_MAX + 1],
    sum: u64,
}

impl Histogram {
    /// Each bound, with the number of values that are not above it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let bounds = self.bounds.iter().zip(&self.counts);
        bounds.scan(0, |below, (bound, count)| {
            *below += count;
            Some((*bound, *below))
        })
    }

    /// How many values were seen.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What they add up to.
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

/// A histogram that is being filled.
#[derive(Debug)]
pub(crate) struct Buckets {
    bounds: &'static [u64],
    counts: [AtomicU64; BOUNDS_MAX + 1],
    sum: AtomicU64,
}

impl Buckets {
    pub(crate) fn new(bounds: &'static [u64]) -> Self {
        debug_assert!(bounds.len() <= BOUNDS_MAX, "a place for each bound");
        Self {
            bounds,
            counts: Default::default(),
            sum: AtomicU64::new(0),
        }
    }

    // Relaxed throughout: sums that nothing else depends on.

    pub(crate) fn add(&self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        let at = if at == self.bounds.len() {
            BOUNDS_MAX
        } else {
            at
        };
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Adds the microseconds between two times.
    pub(crate) fn since(&self, began: Duration, now: Duration) {
        let micros = now.saturating_sub(began).as_micros();
        self.add(u64::try_from(micros).unwrap_or(u64::MAX));
    }

    pub(crate) fn read(&self) -> Histogram {
        let mut counts = [0; BOUNDS_MAX + 1];
        for (count, counted) in counts.iter_mut().zip(&self.counts) {
            *count = counted.load(Ordering::Relaxed);
        }
        Histogram {
            bounds: self.bounds,
            counts,
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_at_its_bound_and_above() {
        let buckets = Buckets::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, 1000] {
            buckets.add(value);
        }
        let read = buckets.read();
        assert_eq!(read.buckets().collect::<Vec<_>>(), [(10, 2), (20, 4)]);
        assert_eq!((read.count(), read.sum()), (6, 1062));
    }
}
