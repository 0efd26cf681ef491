//! Random operations, the same to a real etcd and to our services, which must answer the same.
//!
//! Runs [`OPERATIONS`], or as many as [`OPERATIONS_VARIABLE`] says, from the seed in
//! [`SEED_VARIABLE`]; for long runs there is the binary `differential`.

use std::env;

use revstore_tests::differential::episode;
use revstore_tests::tools::{self, Tool};

/// Enough to notice a fault that is not subtle, in some seconds.
const OPERATIONS: u64 = 2000;

/// The environment variable that says how many instead.
const OPERATIONS_VARIABLE: &str = "REVSTORE_DIFFERENTIAL_OPERATIONS";

/// The environment variable that says which seed to begin with instead of 0.
const SEED_VARIABLE: &str = "REVSTORE_DIFFERENTIAL_SEED";

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {text}")),
    )
}

#[test]
fn random_operations_are_answered_alike() {
    if !tools::available("random_operations_are_answered_alike", &[Tool::Etcd]) {
        return;
    }
    let operations = number(OPERATIONS_VARIABLE).unwrap_or(OPERATIONS);
    let seed = number(SEED_VARIABLE).unwrap_or(0);
    let report = episode::run(seed, operations, 2).unwrap();
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|f| f.scenario().to_string())
        .collect();
    assert!(
        found.is_empty(),
        "etcd and ours differ:\n{}",
        found.join("\n")
    );
    assert_eq!(report.failures, [""; 0], "some episodes did not end");
    assert_eq!(report.operations, operations);
    println!("{operations} operations without a difference, from seed {seed}");
}
