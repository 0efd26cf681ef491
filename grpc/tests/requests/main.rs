//! Generated requests to every method, valid and invalid: every call has a response, or waits if
//! the method may wait, and the store stays consistent.
//!
//! | file | contents |
//! |---|---|
//! | `script.rs` | decodes bytes into steps: calls, clock advances, messages and ends of open streams |
//! | `open_call.rs` | one call, from its request to the last message of its response |
//! | `runner.rs` | runs the steps against the services and checks the result of each |
//! | `consistency.rs` | reads the whole store back and checks its invariants |
//!
//! The test in this file runs scripts that proptest generates from a fixed seed. `fuzz/` runs
//! scripts that libFuzzer generates.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows unwrap in tests only, not in their helpers"
)]

mod consistency;
mod open_call;
mod runner;
mod script;

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
    fn every_request_gets_a_response_and_the_store_stays_consistent(
        script in prop::collection::vec(any::<u8>(), 0..1200),
    ) {
        runner::run(&script);
    }
}
