//! Sends random operations to a real etcd and to the revstore services and expects equal responses.
//!
//! The environment variable [`OPERATIONS_VARIABLE`] sets the number of operations, [`SEED_VARIABLE`] the
//! seed. The binary `differential` is for long runs.

use std::env;

use revstore_tests::differential::episode;
use revstore_tests::tools::{self, Tool};

/// The default number of operations, which take some seconds.
const OPERATIONS: u64 = 2000;

/// The environment variable for the number of operations.
const OPERATIONS_VARIABLE: &str = "REVSTORE_DIFFERENTIAL_OPERATIONS";

/// The environment variable for the first seed; the default is 0.
const SEED_VARIABLE: &str = "REVSTORE_DIFFERENTIAL_SEED";

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("invalid {variable} {text:?}: it takes a number")),
    )
}

#[test]
fn random_operations_have_equal_responses() {
    if !tools::available("random_operations_have_equal_responses", &[Tool::Etcd]) {
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
        "etcd and revstore differ:\n{}",
        found.join("\n")
    );
    assert_eq!(report.failures, [""; 0], "some episodes failed");
    assert_eq!(report.operations, operations);
    println!("{operations} operations without a difference, from seed {seed}");
}
