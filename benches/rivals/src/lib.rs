//! A comparison of the engine's index with other ordered maps.
//!
//! All maps contain the same entries. An entry has the layout of the engine's: a key and its state
//! in one allocation behind a pointer. The counted B-tree is the source of the engine's index, with
//! the memory and the pins that it uses; `counted` adds the lock of its writer.

mod counted;
#[path = "../../src/curves.rs"]
pub mod curves;
#[path = "../../../engine/src/index/editor.rs"]
mod editor;
mod entry;
mod fault;
mod maps;
mod memory;
#[path = "../../../engine/src/index/replacement.rs"]
mod replacement;
#[path = "../../../engine/src/index/sorted_node.rs"]
mod sorted_node;
mod sync;
#[path = "../../../engine/src/index/tree.rs"]
mod tree;

/// The path under which the source of the tree imports the type of its entries.
mod history {
    pub(crate) use crate::entry::Entry;
}

pub use entry::{Entry, Version};
pub use maps::{ALL, COUNTED, LOCKED, MASSTREE, NewMap, OrderedMap};

/// The number of keys in every map.
pub const KEYS: u64 = 1_000_000;

/// The number of keys that one scan reads.
pub const SCAN_KEYS: usize = 100;

/// Returns the key with a number: 64 bytes, where neighbouring keys differ only in the last few,
/// like the object keys of Kubernetes.
pub fn key(number: u64) -> Vec<u8> {
    let namespace = number / 20_000;
    format!("/registry/pods/default-namespace-{namespace:03}/web-frontend-7d4b9-{number:08}")
        .into_bytes()
}

/// Returns a generator of pseudo-random numbers below `bound`, determined by `seed`.
pub fn pseudo_random(seed: u64, bound: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

/// Creates the keys with even numbers below twice [`KEYS`], in order. Keys with odd numbers can be
/// created between them.
pub fn fill(map: &dyn OrderedMap) {
    for number in 0..KEYS {
        map.create(&Entry::new(&key(number * 2)));
    }
}
