//! Watches (section E): filters, start revisions, forms of keys, ids.

use super::{KEY_FORMS, scenario};
use crate::scenario::text::Scenario;

const ALL: &str = r#"key: "\000" range_end: "\000""#;

/// The writes before the watch is created, at revisions 2 to 4.
const BEFORE: [&str; 3] = [
    r#"Put key: "a" value: "1""#,
    r#"Put key: "b" value: "1""#,
    r#"DeleteRange key: "a""#,
];

/// The writes after the watch is created, at revisions 5 to 8.
const AFTER: [&str; 4] = [
    r#"Put key: "a" value: "2""#,
    r#"Txn success { request_put { key: "b" value: "2" } } success { request_delete_range { key: "a" } } success { request_put { key: "c" } }"#,
    r#"DeleteRange key: "\000" range_end: "\000""#,
    r#"Put key: "b" value: "3""#,
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (filter, filter_text) in [
        ("all", ""),
        ("noput", " filters: NOPUT"),
        ("nodelete", " filters: NODELETE"),
        ("noput_nodelete", " filters: NOPUT filters: NODELETE"),
        ("unknown_filter", " filters: 9"),
        ("noput_twice", " filters: NOPUT filters: NOPUT"),
    ] {
        for (start, start_text) in [
            ("now", ""),
            ("first", " start_revision: 1"),
            ("past", " start_revision: 3"),
            ("current", " start_revision: 4"),
            ("next", " start_revision: 5"),
            ("future", " start_revision: 7"),
        ] {
            for (prev, prev_text) in [("", ""), ("_prev_kv", " prev_kv: true")] {
                let create = format!(
                    "w: Watch create_request {{ {ALL}{start_text}{filter_text}{prev_text} }}"
                );
                scenarios.push(around(
                    &format!("{filter}_from_{start}{prev}"),
                    "WA-6 WA-30 WA-31 WA-32 WA-33 WA-35",
                    &create,
                ));
            }
        }
    }
    for (name, form, _) in KEY_FORMS {
        let create = format!("w: Watch create_request {{ {form} start_revision: 2 }}");
        scenarios.push(around(&format!("form_{name}"), "WA-9 WA-14", &create));
    }
    for (name, start) in [("least", i64::MIN), ("most", i64::MAX)] {
        let create = format!("w: Watch create_request {{ {ALL} start_revision: {start} }}");
        // WA-7 has no scenario: revstore behaves like etcd 3.5.30, and 3.5.16 differs.
        if start > 0 {
            scenarios.push(around(&format!("start_{name}"), "WA-6", &create));
        }
    }
    // These options have no effect here: events are too small for fragments, and they arrive before the
    // progress interval has passed.
    for (name, flags, clauses) in [
        ("progress_notify", "progress_notify: true", "WA-52"),
        ("fragment", "fragment: true", "WA-36"),
    ] {
        let create = format!("w: Watch create_request {{ {ALL} start_revision: 2 {flags} }}");
        scenarios.push(around(&format!("with_{name}"), clauses, &create));
    }
    for (name, id) in [
        ("one", "1"),
        ("large", "9223372036854775807"),
        ("negative", "-5"),
        ("least", "-9223372036854775808"),
    ] {
        let create = format!("w: Watch create_request {{ {ALL} watch_id: {id} }}");
        scenarios.push(around(&format!("id_{name}"), "WA-3", &create));
    }
    scenarios
}

fn around(name: &str, clauses: &str, create: &str) -> Scenario {
    let steps: Vec<_> = BEFORE.into_iter().chain([create]).chain(AFTER).collect();
    scenario(name, clauses, &steps)
}
