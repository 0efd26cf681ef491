//! Fixed data for the benchmarks of the engine, and a naive store as a baseline.
//!
//! Run them with `cargo bench -p revstore-benches`. Names are `engine/operation/shape`, and
//! `naive/operation/shape` for the same work on a [`NaiveStore`].

pub mod curves;

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use revstore_engine::{Engine, ManualClock};

/// The length of every value.
pub const VALUE_BYTES: usize = 256;

/// Returns the key with a number: 33 bytes with a common prefix of 24, like the object keys of
/// Kubernetes.
pub fn key(number: u64) -> Vec<u8> {
    format!("/registry/pods/default/k{number:09}").into_bytes()
}

/// Returns a value.
pub fn value() -> Vec<u8> {
    vec![7; VALUE_BYTES]
}

/// Returns a generator of pseudo-random numbers below `bound`. The sequence is the same in every
/// run.
pub fn pseudo_random(bound: u64) -> impl FnMut() -> u64 {
    let mut state = 1_u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

/// Returns an engine with a stopped clock and `keys` keys of one version each.
///
/// # Panics
/// If the engine rejects a valid put.
pub fn filled_engine(keys: u64) -> Engine {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    fill(&engine, keys);
    engine
}

/// Writes `keys` keys, in the order of their numbers.
///
/// # Panics
/// If the engine rejects a valid put.
pub fn fill(engine: &Engine, keys: u64) {
    for number in 0..keys {
        engine.put(key(number), value()).expect("a valid put");
    }
}

/// A key and its value.
pub type KeyValuePair = (Vec<u8>, Vec<u8>);

/// The simplest store with versions: all versions of all keys in one map under one lock. It has no
/// watches, leases or compaction.
#[derive(Debug, Default)]
pub struct NaiveStore {
    state: RwLock<NaiveState>,
}

#[derive(Debug, Default)]
struct NaiveState {
    revision: u64,
    keys: BTreeMap<Vec<u8>, Vec<(u64, Vec<u8>)>>,
}

impl NaiveStore {
    /// Creates a store with `keys` keys of one version each.
    pub fn filled(keys: u64) -> Self {
        let naive = Self::default();
        for number in 0..keys {
            naive.put(key(number), value());
        }
        naive
    }

    /// Writes a new version of a key.
    pub fn put(&self, key: Vec<u8>, value: Vec<u8>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.revision += 1;
        let revision = state.revision;
        state.keys.entry(key).or_default().push((revision, value));
    }

    /// Returns a copy of the newest value of a key.
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state
            .keys
            .get(key)
            .and_then(|versions| versions.last())
            .map(|(_, value)| value.clone())
    }

    /// Returns copies of up to `limit` keys from `start` on with their newest values, and the
    /// number of all keys from `start` on.
    pub fn range(&self, start: &[u8], limit: usize) -> (Vec<KeyValuePair>, usize) {
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
