//! Generated frames of HTTP/2 and messages of HTTP/1.1 at a connection in memory: the server does not panic, ends when the
//! client does, takes a bounded amount of memory, and goes on to serve other connections.
//!
//! | file | contents |
//! |---|---|
//! | `script.rs` | decodes bytes into the steps of a client |
//! | `runner.rs` | runs the steps and checks the server |
//! | `allocator.rs` | counts the bytes that are allocated |
//!
//! The test in this file runs scripts from a fixed seed. `REVSTORE_FRAMES_CASES` and `REVSTORE_FRAMES_SEED` change it.
//! `fuzz/` runs scripts that libFuzzer generates.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows unwrap in tests only, not in their helpers"
)]

mod allocator;
mod runner;
mod script;

use std::{env, panic};

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

/// The maximum size of the memory of a script's connections, their sockets included.
const BYTES_MAX: usize = 32 << 20;

fn variable(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |value| value.parse().unwrap())
}

#[test]
fn no_client_stops_the_server() {
    let seed = variable("REVSTORE_FRAMES_SEED", 1);
    let mut random = fastrand::Rng::with_seed(seed);
    for case in 0..variable("REVSTORE_FRAMES_CASES", 2_000) {
        let length = random.usize(0..600);
        let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        let run = || allocator::maximum_of(|| runner::run(&bytes));
        let Ok(allocated) = panic::catch_unwind(run) else {
            panic!("case {case} of seed {seed}: {:?}", script::steps(&bytes));
        };
        assert!(
            allocated < BYTES_MAX,
            "case {case} of seed {seed} takes {allocated} bytes"
        );
    }
}
