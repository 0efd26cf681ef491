//! Requests that nobody would send, to every method: the node answers each, or waits as it should, and
//! keeps its store whole.
//!
//! | file | does |
//! |---|---|
//! | `script.rs` | turns bytes into steps: calls, time, streams that go on or break off |
//! | `exchange.rs` | one call, from its request to the last message of its answer |
//! | `node.rs` | plays the steps against the services and judges each |
//! | `whole.rs` | reads everything back and judges the store |
//!
//! The test here plays bytes that a fixed seed makes. `fuzz/` plays those that a fuzzer finds.

#![expect(
    clippy::unwrap_used,
    reason = "clippy only knows tests, and not what helps them"
)]

mod exchange;
mod node;
mod script;
mod whole;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]
    #[test]
    fn every_request_is_answered_and_the_store_stays_whole(
        script in prop::collection::vec(any::<u8>(), 0..1200),
    ) {
        node::play(&script);
    }
}
