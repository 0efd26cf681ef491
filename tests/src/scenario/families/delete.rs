//! `DeleteRange` (DEL-1 and DEL-2).

use super::{KEY_FORMS, scenario};
use crate::scenario::text::Scenario;

pub(super) fn scenarios() -> Vec<Scenario> {
    let store = [
        r#"Put key: "a" value: "1""#,
        r#"Put key: "b" value: "2""#,
        r#"Put key: "c" value: "3""#,
        r#"Put key: "c\377" value: "4""#,
        r#"w: Watch create_request { key: "\000" range_end: "\000" prev_kv: true }"#,
    ];
    let mut scenarios = Vec::new();
    for (name, form, clause) in KEY_FORMS {
        for prev_kv in [false, true] {
            let (suffix, flag) = if prev_kv {
                ("_prev_kv", " prev_kv: true")
            } else {
                ("", "")
            };
            let delete = format!("DeleteRange {form}{flag}");
            let after = [
                delete.as_str(),
                r#"Range key: "\000" range_end: "\000" keys_only: true"#,
                &delete,
            ];
            let steps: Vec<_> = store.into_iter().chain(after).collect();
            scenarios.push(scenario(
                &format!("form_{name}{suffix}"),
                &format!("{clause} DEL-1 DEL-2 DM-5 DM-21"),
                &steps,
            ));
        }
    }
    scenarios
}
