//! Compaction, and reads, hashes and watches after it (CO-1 to CO-7, HK-1 to HK-4, WA-40 to WA-41).

use super::scenario;
use crate::scenario::text::Scenario;

/// Puts, deletes and one transaction with several changes, at revisions 2 to 9. `a` and `b` are deleted and
/// created again, `c` is deleted.
const STORE: [&str; 8] = [
    r#"Put key: "a" value: "1""#,
    r#"Put key: "b" value: "1""#,
    r#"Put key: "a" value: "2""#,
    r#"DeleteRange key: "b""#,
    r#"Txn success { request_put { key: "c" value: "1" } } success { request_delete_range { key: "a" } } success { request_put { key: "b" value: "2" } }"#,
    r#"Put key: "b" value: "3""#,
    r#"DeleteRange key: "c""#,
    r#"Put key: "a" value: "3""#,
];

/// The revision after [`STORE`].
const CURRENT: i64 = 9;

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    scenarios.push(on_store(
        "hashes_without_compaction",
        "HK-1 HK-2 HK-3 HK-4",
        &hashes_except_at(&[]),
    ));
    for compacted in 0..=CURRENT {
        let compaction = format!("Compact revision: {compacted} physical: true");
        let mut reads = vec![compaction.clone()];
        reads.extend((-1..=CURRENT + 1).map(|revision| {
            format!(r#"Range key: "\000" range_end: "\000" revision: {revision}"#)
        }));
        reads.push(compaction.clone());
        scenarios.push(on_store(
            &format!("reads_after_{compacted}"),
            "CO-1 CO-2 CO-3 CO-4 RG-12 RG-13",
            &reads,
        ));

        let mut hashes_after = vec![compaction.clone()];
        hashes_after.extend(hashes_except_at(&[compacted]));
        scenarios.push(on_store(
            &format!("hashes_after_{compacted}"),
            "HK-2 HK-3 HK-4",
            &hashes_after,
        ));

        let mut watches = vec![compaction];
        watches.extend((1..=CURRENT).map(|start| {
            format!(r#"w{start}: Watch create_request {{ key: "\000" range_end: "\000" start_revision: {start} prev_kv: true }}"#)
        }));
        scenarios.push(on_store(
            &format!("watches_after_{compacted}"),
            "WA-40 WA-41 WA-33 CO-5",
            &watches,
        ));
    }
    for (name, revision) in [
        ("least", i64::MIN),
        ("negative", -1),
        ("future", CURRENT + 1),
        ("most", i64::MAX),
    ] {
        let compaction = format!("Compact revision: {revision}");
        let steps = [
            compaction.clone(),
            "Compact revision: 3".to_owned(),
            compaction,
            "HashKV".to_owned(),
        ];
        scenarios.push(on_store(&format!("at_{name}"), "CO-1 CO-3", &steps));
    }
    for (first, second) in [(3, 5), (4, 9), (5, 6), (6, 7)] {
        let mut steps = vec![
            format!("Compact revision: {first} physical: true"),
            format!("Compact revision: {second} physical: true"),
        ];
        steps.extend(hashes_except_at(&[first, second]));
        scenarios.push(on_store(
            &format!("hashes_after_{first}_and_{second}"),
            "HK-2 HK-4",
            &steps,
        ));
    }
    scenarios
}

/// Requests hashes at all revisions except `compacted`, where those of revstore differ (HK-5).
fn hashes_except_at(compacted: &[i64]) -> Vec<String> {
    let revisions = (-1..=CURRENT + 1).filter(|revision| !compacted.contains(revision));
    revisions
        .map(|revision| format!("HashKV revision: {revision}"))
        .collect()
}

fn on_store(name: &str, clauses: &str, requests: &[String]) -> Scenario {
    let steps = STORE.into_iter().chain(requests.iter().map(String::as_str));
    scenario(name, clauses, &steps.collect::<Vec<_>>())
}
