//! CMP-1 to CMP-6.

use super::scenario;
use crate::scenario::text::Scenario;

/// The targets with the field that belongs to each, what `k` has there, and values around it.
const TARGETS: [(&str, &str, [&str; 3]); 5] = [
    ("VERSION", "version", ["1", "2", "3"]),
    ("CREATE", "create_revision", ["1", "2", "3"]),
    ("MOD", "mod_revision", ["3", "4", "5"]),
    ("VALUE", "value", [r#""u""#, r#""v""#, r#""v\000""#]),
    ("LEASE", "lease", ["6", "7", "8"]),
];

const RESULTS: [&str; 4] = ["EQUAL", "GREATER", "LESS", "NOT_EQUAL"];

/// Two keys, `k` and `l`, which differ in all that can be compared.
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
            scenarios.push(stored(
                &format!("{name}_present"),
                "CMP-6 TXN-20",
                &values.map(|v| compare(r#"key: "k""#, v)),
            ));
            let around_zero = if target == "VALUE" {
                [r#""""#, r#""a""#, r#""\000""#]
            } else {
                ["-1", "0", "1"]
            };
            scenarios.push(stored(
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
            scenarios.push(stored(&format!("{name}_range"), "CMP-3", &over_ranges));
        }
        scenarios.push(mismatched(target));
    }
    scenarios.push(unknown());
    scenarios
}

fn stored(name: &str, clauses: &str, questions: &[String]) -> Scenario {
    let steps = STORE
        .into_iter()
        .chain(questions.iter().map(String::as_str));
    scenario(name, clauses, &steps.collect::<Vec<_>>())
}

/// CMP-4: a value that is missing, or that belongs to another target.
fn mismatched(target: &str) -> Scenario {
    let mut questions = Vec::new();
    for result in RESULTS {
        for key in ["k", "x"] {
            let compare =
                format!(r#"Txn compare {{ result: {result} target: {target} key: "{key}""#);
            questions.push(format!("{compare} }}"));
            let others = TARGETS.into_iter().filter(|(other, ..)| *other != target);
            questions.extend(
                others.map(|(_, field, values)| format!("{compare} {field}: {} }}", values[1])),
            );
        }
    }
    stored(
        &format!("{}_mismatched", target.to_lowercase()),
        "CMP-4",
        &questions,
    )
}

/// CMP-5.
fn unknown() -> Scenario {
    let questions = [
        r#"Txn compare { result: 9 target: VERSION key: "k" version: 5 }"#,
        r#"Txn compare { result: 9 target: VALUE key: "k" value: "z" }"#,
        r#"Txn compare { result: 9 target: VALUE key: "x" value: "z" }"#,
        r#"Txn compare { result: EQUAL target: 9 key: "k" version: 5 }"#,
        r#"Txn compare { result: GREATER target: 9 key: "k" version: 5 }"#,
        r#"Txn compare { result: NOT_EQUAL target: 9 key: "x" }"#,
        r#"Txn compare { result: LESS target: -1 key: "x" }"#,
    ];
    stored(
        "unknown_result_and_target",
        "CMP-5",
        &questions.map(str::to_owned),
    )
}
