//! Compares of transactions (CMP-1 to CMP-6).

use super::scenario;
use crate::scenario::text::Scenario;

/// The targets, each with its field and three values: below that of `k`, that of `k`, and above it.
const TARGETS: [(&str, &str, [&str; 3]); 5] = [
    ("VERSION", "version", ["1", "2", "3"]),
    ("CREATE", "create_revision", ["1", "2", "3"]),
    ("MOD", "mod_revision", ["3", "4", "5"]),
    ("VALUE", "value", [r#""u""#, r#""v""#, r#""v\000""#]),
    ("LEASE", "lease", ["6", "7", "8"]),
];

const RESULTS: [&str; 4] = ["EQUAL", "GREATER", "LESS", "NOT_EQUAL"];

/// Two keys, `k` and `l`, which differ in every compare target.
const STORE: [&str; 4] = [
    "LeaseGrant TTL: 600 ID: 7",
    r#"Put key: "k" value: "first""#,
    r#"Put key: "l" value: "w""#,
    r#"Put key: "k" value: "v" lease: 7"#,
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (target, field, values) in TARGETS {
        for result in RESULTS {
            let name = format!("{target}_{result}").to_lowercase();
            let compare = |key: &str, value: &str| {
                format!(
                    "Txn compare {{ result: {result} target: {target} {key} {field}: {value} }}"
                )
            };
            scenarios.push(on_store(
                &format!("{name}_present"),
                "CMP-6 TXN-20",
                &values.map(|v| compare(r#"key: "k""#, v)),
            ));
            let around_zero = if target == "VALUE" {
                [r#""""#, r#""a""#, r#""\000""#]
            } else {
                ["-1", "0", "1"]
            };
            scenarios.push(on_store(
                &format!("{name}_absent"),
                "CMP-1 CMP-2",
                &around_zero.map(|v| compare(r#"key: "x""#, v)),
            ));
            let range = r#"key: "k" range_end: "m""#;
            let mut over_ranges = values.map(|value| compare(range, value)).to_vec();
            over_ranges
                .extend(around_zero.map(|value| compare(r#"key: "x" range_end: "z""#, value)));
            over_ranges.push(compare(r#"key: "k" range_end: "k""#, values[1]));
            over_ranges.push(compare(r#"key: "l" range_end: "\000""#, values[0]));
            scenarios.push(on_store(&format!("{name}_range"), "CMP-3", &over_ranges));
        }
        scenarios.push(mismatched(target));
    }
    scenarios.push(unknown());
    scenarios
}

fn on_store(name: &str, clauses: &str, requests: &[String]) -> Scenario {
    let steps = STORE.into_iter().chain(requests.iter().map(String::as_str));
    scenario(name, clauses, &steps.collect::<Vec<_>>())
}

/// CMP-4: a comparison value that is missing or belongs to another target.
fn mismatched(target: &str) -> Scenario {
    let mut requests = Vec::new();
    for result in RESULTS {
        for key in ["k", "x"] {
            let compare =
                format!(r#"Txn compare {{ result: {result} target: {target} key: "{key}""#);
            requests.push(format!("{compare} }}"));
            let others = TARGETS.into_iter().filter(|(other, ..)| *other != target);
            requests.extend(
                others.map(|(_, field, values)| format!("{compare} {field}: {} }}", values[1])),
            );
        }
    }
    on_store(
        &format!("{}_mismatched", target.to_lowercase()),
        "CMP-4",
        &requests,
    )
}

/// CMP-5: unknown operators and targets.
fn unknown() -> Scenario {
    let requests = [
        r#"Txn compare { result: 9 target: VERSION key: "k" version: 5 }"#,
        r#"Txn compare { result: 9 target: VALUE key: "k" value: "z" }"#,
        r#"Txn compare { result: 9 target: VALUE key: "x" value: "z" }"#,
        r#"Txn compare { result: EQUAL target: 9 key: "k" version: 5 }"#,
        r#"Txn compare { result: GREATER target: 9 key: "k" version: 5 }"#,
        r#"Txn compare { result: NOT_EQUAL target: 9 key: "x" }"#,
        r#"Txn compare { result: LESS target: -1 key: "x" }"#,
    ];
    on_store(
        "unknown_result_and_target",
        "CMP-5",
        &requests.map(str::to_owned),
    )
}
