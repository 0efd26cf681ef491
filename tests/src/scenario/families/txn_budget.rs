//! The number of operations of a transaction (TXN-1 and TXN-2).

use super::scenario;
use crate::scenario::text::Scenario;

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for list in ["compare", "success", "failure"] {
        for length in [128, 129] {
            let element = if list == "compare" {
                r#"{ key: "k" }"#
            } else {
                r#"{ request_range { key: "k" } }"#
            };
            let txn = format!("Txn %{length}({list} {element})");
            scenarios.push(scenario(&format!("{list}_{length}"), "TXN-1", &[txn]));
        }
    }
    scenarios.push(scenario(
        "each_list_on_its_own",
        "TXN-1",
        &[r#"Txn %128(compare { key: "k" }) %128(success { request_range { key: "k" } }) %128(failure { request_range { key: "k" } })"#],
    ));
    for (outer, inner) in [
        (1, 127),
        (1, 128),
        (64, 64),
        (64, 65),
        (127, 1),
        (127, 2),
        (128, 0),
        (128, 1),
    ] {
        let reads = if outer > 1 {
            format!(
                r#"%{}(success {{ request_range {{ key: "k" }} }}) "#,
                outer - 1
            )
        } else {
            String::new()
        };
        let inner_ops = if inner > 0 {
            format!(r#" %{inner}(success {{ request_range {{ key: "k" }} }}) "#)
        } else {
            " ".to_owned()
        };
        let txn = format!("Txn {reads}success {{ request_txn {{{inner_ops}}} }}");
        scenarios.push(scenario(
            &format!("nested_{inner}_in_{outer}"),
            "TXN-2",
            &[txn],
        ));
    }
    // The longest list of the parent counts, also if the nested transaction is in another list.
    for (list, element) in [
        ("compare", r#"{ key: "k" }"#),
        ("failure", r#"{ request_range { key: "k" } }"#),
    ] {
        for inner in [28, 29] {
            let txn = format!(
                r#"Txn %100({list} {element}) success {{ request_txn {{ %{inner}(success {{ request_range {{ key: "k" }} }}) }} }}"#
            );
            scenarios.push(scenario(
                &format!("nested_{inner}_beside_100_of_{list}"),
                "TXN-2",
                &[txn],
            ));
        }
    }
    scenarios.push(scenario(
        "count_comes_before_keys",
        "TXN-3",
        &[
            "Txn %129(success { request_range {} })",
            "Txn %128(success { request_range {} })",
            "Txn %129(compare {})",
            "Txn %128(compare {})",
        ],
    ));
    scenarios
}
