//! Randomness that tests can repeat.

use std::hash::{BuildHasher, RandomState};

/// A stream of numbers from a seed (`SplitMix64`). Not for secrets.
///
/// ```
/// use revstore_watch_cache::Random;
/// let (mut a, mut b) = (Random::seeded(1), Random::seeded(1));
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!(a.unit() < 1.0);
/// ```
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of a seed.
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A stream that differs from process to process.
    pub fn unpredictable() -> Self {
        Self::seeded(RandomState::new().hash_one(0))
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to but without `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or_default()
    }

    /// A number from 0 up to but without 1.
    pub fn unit(&mut self) -> f64 {
        f64::from(u32::try_from(self.next_u64() >> 32).unwrap_or_default()) / 4_294_967_296.0
    }
}
