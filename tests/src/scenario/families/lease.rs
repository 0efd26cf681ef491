//! Times to live and ids of leases at their bounds (LE-1 to LE-3, LE-5).

use super::scenario;
use crate::scenario::text::Scenario;

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (name, ttl) in [
        ("least", i64::MIN),
        ("negative", -1),
        ("zero", 0),
        ("one", 1),
        ("two", 2),
        ("ten", 10),
        ("largest", 9_000_000_000),
        ("too_large", 9_000_000_001),
        ("most", i64::MAX),
    ] {
        let steps = [
            format!("LeaseGrant TTL: {ttl} ID: 5"),
            format!("LeaseGrant TTL: {ttl}"),
            "LeaseTimeToLive ID: 5".to_owned(),
        ];
        scenarios.push(scenario(&format!("ttl_{name}"), "LE-1 LE-2 LE-4", &steps));
    }
    for (name, id) in [
        ("one", 1),
        ("negative", -1),
        ("least", i64::MIN),
        ("most", i64::MAX),
    ] {
        let steps = [
            format!("LeaseGrant TTL: 600 ID: {id}"),
            format!("LeaseGrant TTL: 600 ID: {id}"),
            format!(r#"Put key: "k" lease: {id}"#),
            format!("LeaseTimeToLive ID: {id} keys: true"),
            format!("l: LeaseKeepAlive ID: {id}"),
            "LeaseLeases".to_owned(),
            format!("LeaseRevoke ID: {id}"),
            format!("LeaseRevoke ID: {id}"),
            format!("LeaseTimeToLive ID: {id} keys: true"),
            format!("l: LeaseKeepAlive ID: {id}"),
            "LeaseLeases".to_owned(),
            "l: close".to_owned(),
        ];
        scenarios.push(scenario(
            &format!("id_{name}"),
            "LE-3 LE-5 LE-8 LE-10 LE-11 DM-26",
            &steps,
        ));
    }
    for (name, id) in [("zero", 0), ("unknown", 99), ("unknown_negative", -99)] {
        let steps = [
            r#"Put key: "k""#.to_owned(),
            format!("LeaseRevoke ID: {id}"),
            format!("LeaseTimeToLive ID: {id} keys: true"),
            format!("l: LeaseKeepAlive ID: {id}"),
            format!("l: LeaseKeepAlive ID: {id}"),
            "l: close".to_owned(),
        ];
        scenarios.push(scenario(
            &format!("no_lease_{name}"),
            "LE-5 LE-8 LE-10",
            &steps,
        ));
    }
    scenarios
}
