//! The engine's index beside the ordered maps that it could have been.
//!
//! All hold the same entries, which are shaped as the engine's: a key and what is known of it, in one
//! allocation behind a pointer. The counted tree is the engine's own source.

mod entry;
mod maps;
#[path = "../../../engine/src/index/sorted_node.rs"]
mod sorted_node;
#[path = "../../../engine/src/index/tree.rs"]
mod tree;

/// The names under which the engine's sources look for what a tree holds.
mod history {
    pub(crate) use crate::entry::Entry;
}

pub use entry::Entry;
pub use maps::{ALL, Ordered};

/// Keys in every map.
pub const KEYS: u64 = 1_000_000;

/// Keys that one scan shows.
pub const SCANNED: usize = 100;

/// The key of a number: 64 bytes, of which neighbours share all but the last few, as object keys of
/// Kubernetes do.
pub fn key(number: u64) -> Vec<u8> {
    let namespace = number / 20_000;
    format!("/registry/pods/default-namespace-{namespace:03}/web-frontend-7d4b9-{number:08}")
        .into_bytes()
}

/// Numbers below `bound` in an order that looks random and follows from `seed`.
pub fn shuffled(seed: u64, bound: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

/// Puts every second number below twice [`KEYS`] in, in order, so that there is room in between.
pub fn fill(map: &dyn Ordered) {
    for number in 0..KEYS {
        map.create(Entry::new(&key(number * 2)));
    }
}
