//! Benchmarks of the engine: fixed data, and a naive store to compare with.
//!
//! Run them with `cargo bench -p revstore-benches`. Names are `engine/operation/shape`, and
//! `naive/operation/shape` for the same work on a [`Naive`] store.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use revstore_engine::{Engine, ManualClock};

/// Bytes in every value.
pub const VALUE_BYTES: usize = 256;

/// The key of a number: 33 bytes that share 24, as object keys of Kubernetes do.
pub fn key(number: u64) -> Vec<u8> {
    format!("/registry/pods/default/k{number:09}").into_bytes()
}

/// A value.
pub fn value() -> Vec<u8> {
    vec![7; VALUE_BYTES]
}

/// Numbers below `bound` in an order that looks random and is the same in every run.
pub fn shuffled(bound: u64) -> impl FnMut() -> u64 {
    let mut state = 1_u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

/// An engine whose time stands still, with `keys` keys of one version each.
///
/// # Panics
/// If the engine refuses a legal put.
pub fn filled(keys: u64) -> Engine {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    for number in 0..keys {
        engine.put(key(number), value()).expect("a legal put");
    }
    engine
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The store that one would write in ten minutes: all versions of all keys in one map behind one
/// lock. It has no watches, no leases and no compaction.
#[derive(Debug, Default)]
pub struct Naive {
    state: RwLock<NaiveState>,
}

#[derive(Debug, Default)]
struct NaiveState {
    revision: u64,
    keys: BTreeMap<Vec<u8>, Vec<(u64, Vec<u8>)>>,
}

impl Naive {
    /// A store with `keys` keys of one version each.
    pub fn filled(keys: u64) -> Self {
        let naive = Self::default();
        for number in 0..keys {
            naive.put(key(number), value());
        }
        naive
    }

    /// Writes a version.
    pub fn put(&self, key: Vec<u8>, value: Vec<u8>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.revision += 1;
        let revision = state.revision;
        state.keys.entry(key).or_default().push((revision, value));
    }

    /// Copies the newest value of a key.
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state
            .keys
            .get(key)
            .and_then(|versions| versions.last())
            .map(|(_, value)| value.clone())
    }

    /// Copies the newest values of `limit` keys, and counts all keys from `start` on.
    pub fn range(&self, start: &[u8], limit: usize) -> (Vec<Pair>, usize) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut page = Vec::new();
        let mut count = 0;
        for (key, versions) in state.keys.range(start.to_vec()..) {
            if let Some((_, value)) = versions.last().filter(|_| page.len() < limit) {
                page.push((key.clone(), value.clone()));
            }
            count += 1;
        }
        (page, count)
    }
}
