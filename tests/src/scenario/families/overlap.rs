//! Pairs of operations of a transaction that may touch the same key (TXN-5 to TXN-9).

use super::scenario;
use crate::scenario::text::Scenario;

const OPERATIONS: [(&str, &str); 11] = [
    (
        "put",
        r#"request_put { key: "k" value: "1" prev_kv: true }"#,
    ),
    ("put_other", r#"request_put { key: "j" value: "2" }"#),
    (
        "delete",
        r#"request_delete_range { key: "k" prev_kv: true }"#,
    ),
    (
        "delete_range",
        r#"request_delete_range { key: "j" range_end: "l" }"#,
    ),
    (
        "delete_from",
        r#"request_delete_range { key: "j" range_end: "\000" }"#,
    ),
    (
        "delete_empty_range",
        r#"request_delete_range { key: "k" range_end: "k" }"#,
    ),
    ("range", r#"request_range { key: "j" range_end: "l" }"#),
    (
        "nested_put",
        r#"request_txn { success { request_put { key: "k" value: "3" } } }"#,
    ),
    (
        "nested_delete",
        r#"request_txn { success { request_delete_range { key: "k" } } }"#,
    ),
    (
        "nested_delete_from",
        r#"request_txn { success { request_delete_range { key: "a" range_end: "\000" } } }"#,
    ),
    (
        "untaken_put",
        r#"request_txn { failure { request_put { key: "k" value: "4" } } }"#,
    ),
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (first, first_text) in OPERATIONS {
        for (second, second_text) in OPERATIONS {
            let txn = format!("Txn success {{ {first_text} }} success {{ {second_text} }}");
            let steps = [
                r#"Put key: "k" value: "0""#,
                r#"w: Watch create_request { key: "\000" range_end: "\000" prev_kv: true }"#,
                &txn,
                r#"Range key: "\000" range_end: "\000""#,
            ];
            scenarios.push(scenario(
                &format!("{first}_then_{second}"),
                "TXN-5 TXN-6 TXN-7 TXN-8 TXN-9 TXN-21 WA-33",
                &steps,
            ));
        }
    }
    scenarios
}
