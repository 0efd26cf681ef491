//! Pseudo-random numbers from a seed.

/// A `SplitMix64` generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates the generator of one of the threads that share a seed.
    pub(crate) fn new(seed: u64, thread: usize) -> Self {
        Self(seed.wrapping_add((thread as u64).wrapping_mul(0xA076_1D64_78BD_642F)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `end`, exclusive.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("smaller than a usize")
    }

    /// As [`Random::below`], in the type of revisions.
    pub(crate) fn below_i64(&mut self, end: i64) -> i64 {
        let end = u64::try_from(end).expect("a positive bound");
        i64::try_from(self.next() % end).expect("smaller than an i64")
    }

    /// Returns `true` with probability 1 / `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
