//! Range (section B).

use super::{KEY_FORMS, scenario};
use crate::scenario::text::Scenario;

/// Five keys, written at revisions 2 to 8. Their order is different for every sort target.
const STORE: [&str; 7] = [
    r#"Put key: "b" value: "5""#,
    r#"Put key: "c" value: "1""#,
    r#"Put key: "a" value: "4""#,
    r#"Put key: "b" value: "2""#,
    r#"Put key: "c\377" value: "3""#,
    r#"Put key: "d" value: "0""#,
    r#"Put key: "b" value: "9""#,
];

const ALL: &str = r#"key: "\000" range_end: "\000""#;

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    forms(&mut scenarios);
    sorts(&mut scenarios);
    filters(&mut scenarios);
    limits(&mut scenarios);
    revisions(&mut scenarios);
    scenarios
}

fn on_store<S: AsRef<str>>(name: &str, clauses: &str, requests: &[S]) -> Scenario {
    let steps = STORE.into_iter().chain(requests.iter().map(AsRef::as_ref));
    scenario(name, clauses, &steps.collect::<Vec<_>>())
}

fn forms(scenarios: &mut Vec<Scenario>) {
    for (name, form, clause) in KEY_FORMS {
        let requests = [
            format!("Range {form}"),
            format!("Range {form} count_only: true"),
            format!("Range {form} keys_only: true"),
        ];
        scenarios.push(on_store(
            &format!("form_{name}"),
            &format!("{clause} RG-21 RG-23 RG-24"),
            &requests,
        ));
    }
}

fn sorts(scenarios: &mut Vec<Scenario>) {
    for target in ["KEY", "VERSION", "CREATE", "MOD", "VALUE"] {
        for order in ["NONE", "ASCEND", "DESCEND"] {
            let sort = format!("sort_order: {order} sort_target: {target}");
            let requests = [
                format!("Range {ALL} {sort}"),
                format!("Range {ALL} limit: 2 {sort}"),
                format!("Range {ALL} limit: 3 {sort} keys_only: true"),
                format!("Range {ALL} {sort} count_only: true"),
                format!("Range {ALL} limit: 2 {sort} min_mod_revision: 4"),
            ];
            let name = format!("sort_{}_{}", target.to_lowercase(), order.to_lowercase());
            scenarios.push(on_store(&name, "RG-40 RG-41 RG-42 RG-24", &requests));
        }
    }
    // RG-44 has no scenario: an unknown target crashes etcd.
    scenarios.push(on_store(
        "serializable",
        "RG-46",
        &[format!("Range {ALL} serializable: true")],
    ));
}

fn filters(scenarios: &mut Vec<Scenario>) {
    for filter in ["min_mod", "max_mod", "min_create", "max_create"] {
        for (name, bound) in [
            ("negative", -1),
            ("first", 2),
            ("inside", 4),
            ("last", 8),
            ("above", 9),
        ] {
            let filter_text = format!("{filter}_revision: {bound}");
            let requests = [
                format!("Range {ALL} {filter_text}"),
                format!("Range {ALL} limit: 2 {filter_text}"),
                format!("Range {ALL} {filter_text} count_only: true"),
            ];
            scenarios.push(on_store(
                &format!("filter_{filter}_{name}"),
                "RG-30 RG-21 RG-22 RG-42",
                &requests,
            ));
        }
    }
    scenarios.push(on_store(
        "filter_by_all_bounds",
        "RG-30",
        &[format!(
            "Range {ALL} min_mod_revision: 3 max_mod_revision: 7 min_create_revision: 3 \
             max_create_revision: 6"
        )],
    ));
}

fn limits(scenarios: &mut Vec<Scenario>) {
    for (name, limit) in [
        ("least", i64::MIN),
        ("negative", -1),
        ("one", 1),
        ("one_less", 4),
        ("exact", 5),
        ("one_more", 6),
        ("most", i64::MAX),
    ] {
        let requests = [
            format!("Range {ALL} limit: {limit}"),
            format!("Range {ALL} limit: {limit} count_only: true"),
            format!("Range {ALL} limit: {limit} keys_only: true revision: 4"),
        ];
        scenarios.push(on_store(
            &format!("limit_{name}"),
            "RG-20 RG-21 RG-22 RG-23",
            &requests,
        ));
    }
}

fn revisions(scenarios: &mut Vec<Scenario>) {
    for (name, compaction) in [("never_compacted", None), ("compacted_at_5", Some(5))] {
        for revision in [-2, -1, 1, 2, 4, 5, 6, 8, 9, i64::MAX] {
            let shown = if revision < 0 {
                format!("minus_{}", -revision)
            } else {
                revision.to_string()
            };
            let mut requests: Vec<String> = compaction
                .map(|revision| format!("Compact revision: {revision} physical: true"))
                .into_iter()
                .collect();
            requests.extend([
                format!("Range {ALL} revision: {revision}"),
                format!("Range {ALL} revision: {revision} count_only: true"),
                format!(r#"Range key: "x" revision: {revision}"#),
                format!("Txn success {{ request_range {{ {ALL} revision: {revision} }} }}"),
            ]);
            scenarios.push(on_store(
                &format!("revision_{shown}_{name}"),
                "RG-10 RG-11 RG-12 RG-13 RG-14 DM-20",
                &requests,
            ));
        }
    }
}
