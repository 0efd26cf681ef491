//! Put (PUT-1 to PUT-7).

use super::scenario;
use crate::scenario::text::Scenario;

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (key, before) in [
        ("absent", None),
        ("present", Some(r#"Put key: "k" value: "old" lease: 7"#)),
    ] {
        for (lease, text) in [
            ("no_lease", ""),
            ("lease", " lease: 8"),
            ("unknown_lease", " lease: 9"),
            ("negative_lease", " lease: -9"),
        ] {
            for (flags, text_of_flags) in [
                ("", ""),
                ("_ignore_value", " ignore_value: true"),
                ("_ignore_lease", " ignore_lease: true"),
                ("_ignore_both", " ignore_value: true ignore_lease: true"),
            ] {
                let mut steps = vec![
                    "LeaseGrant TTL: 600 ID: 7".to_owned(),
                    "LeaseGrant TTL: 600 ID: 8".to_owned(),
                ];
                steps.extend(before.map(str::to_owned));
                steps.extend([
                    format!(r#"Put key: "k"{text}{text_of_flags} prev_kv: true"#),
                    format!(r#"Put key: "k" value: "new"{text}{text_of_flags} prev_kv: true"#),
                    r#"Range key: "k""#.to_owned(),
                    "LeaseTimeToLive ID: 7 keys: true".to_owned(),
                    "LeaseTimeToLive ID: 8 keys: true".to_owned(),
                ]);
                let name = format!("{key}_{lease}{flags}");
                scenarios.push(scenario(
                    &name,
                    "PUT-2 PUT-3 PUT-4 PUT-5 PUT-6 PUT-7 LE-7",
                    &steps,
                ));
            }
        }
    }
    scenarios
}
