//! Scenarios that are generated from tables: one for each combination of the values that a clause lists.
//!
//! The files of these families hold the answers to exactly these steps. A combination that is added here is
//! recorded as any other scenario.

mod compact;
mod compare;
mod delete;
mod lease;
mod overlap;
mod put;
mod range;
mod txn_budget;
mod watch;

use crate::scenario::text::{Action, Scenario, ScenarioFile, Step};

/// A family of scenarios: a file and the function that generates it.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name of the file without its extension.
    pub name: &'static str,
    /// The first comment of the file.
    about: &'static str,
    scenarios: fn() -> Vec<Scenario>,
}

/// All families.
pub const FAMILIES: [Family; 9] = [
    Family {
        name: "range_table",
        about: "Every form of key, revision, limit, order and filter of Range.",
        scenarios: range::scenarios,
    },
    Family {
        name: "put_table",
        about: "Every combination of Put's flags, with and without key, value and lease.",
        scenarios: put::scenarios,
    },
    Family {
        name: "delete_table",
        about: "Every form of key of DeleteRange.",
        scenarios: delete::scenarios,
    },
    Family {
        name: "compare_table",
        about: "Every target and result of a compare: absent, present, over a range, mismatched.",
        scenarios: compare::scenarios,
    },
    Family {
        name: "txn_overlap_table",
        about: "Every pair of operations of a transaction that may or may not touch the same key.",
        scenarios: overlap::scenarios,
    },
    Family {
        name: "txn_budget_table",
        about: "How many operations a transaction may have, nested ones included.",
        scenarios: txn_budget::scenarios,
    },
    Family {
        name: "compact_table",
        about: "A compaction at every revision, and what reads, hashes and watches find afterwards.",
        scenarios: compact::scenarios,
    },
    Family {
        name: "watch_table",
        about: "Every filter, start revision, form of key, with and without previous values.",
        scenarios: watch::scenarios,
    },
    Family {
        name: "lease_table",
        about: "Times to live and ids of leases at their bounds.",
        scenarios: lease::scenarios,
    },
];

impl Family {
    /// Returns the file without answers.
    pub fn without_answers(&self) -> ScenarioFile {
        let origin = "# Made by tests/src/scenario/families; answered by a real etcd.".to_owned();
        ScenarioFile {
            comments: vec![format!("# {}", self.about), origin],
            scenarios: (self.scenarios)(),
        }
    }
}

/// Makes a scenario of steps in text form.
///
/// # Panics
/// If a step cannot be parsed: the tables are part of the program.
fn scenario<S: AsRef<str>>(name: &str, clauses: &str, steps: &[S]) -> Scenario {
    let step = |text: &S| match Action::parse(text.as_ref()) {
        Ok(request) => Step::new(request),
        Err(error) => panic!("{name}: {}: {error}", text.as_ref()),
    };
    Scenario {
        name: name.to_owned(),
        clauses: clauses.split(' ').map(str::to_owned).collect(),
        steps: steps.iter().map(step).collect(),
    }
}

/// The forms of a key with the end of its range: name, text and clause. The stores that they are used on
/// hold some of the keys `a`, `b`, `c`, `d`.
const KEY_FORMS: [(&str, &str, &str); 16] = [
    ("one", r#"key: "b""#, "RG-1"),
    ("one_absent", r#"key: "bb""#, "RG-1"),
    ("half_open", r#"key: "b" range_end: "d""#, "RG-2"),
    (
        "half_open_between_keys",
        r#"key: "aa" range_end: "cc""#,
        "RG-2",
    ),
    ("half_open_of_nothing", r#"key: "x" range_end: "z""#, "RG-2"),
    ("from_key", r#"key: "c" range_end: "\000""#, "RG-3"),
    ("from_behind_all", r#"key: "x" range_end: "\000""#, "RG-3"),
    ("all", r#"key: "\000" range_end: "\000""#, "RG-3"),
    ("zero_alone", r#"key: "\000""#, "RG-1"),
    ("prefix", r#"key: "c" range_end: "d""#, "RG-4"),
    ("prefix_of_ff", r#"key: "\377" range_end: "\000""#, "RG-4"),
    ("end_is_key", r#"key: "b" range_end: "b""#, "RG-5"),
    ("end_before_key", r#"key: "c" range_end: "a""#, "RG-5"),
    ("empty_key", "", "RG-6"),
    ("empty_key_with_end", r#"range_end: "b""#, "RG-6"),
    ("empty_key_from", r#"range_end: "\000""#, "RG-6"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_in_a_family() {
        for family in FAMILIES {
            let scenarios = family.without_answers().scenarios;
            let names: BTreeSet<_> = scenarios.iter().map(|scenario| &scenario.name).collect();
            assert_eq!(names.len(), scenarios.len(), "{}", family.name);
        }
    }
}
