//! Every recorded scenario, against our services: what they answer is what etcd answered.

use std::collections::BTreeSet;

use revstore_tests::scenario::families::FAMILIES;
use revstore_tests::scenario::library::{differences, load, names, run_all};
use revstore_tests::scenario::target::Kind;

/// Replays a file.
fn replay(name: &str) {
    let file = load(name).expect("the scenarios are there");
    let actual = run_all(&file.scenarios, Kind::Ours, 1);
    let differences = differences(&file.scenarios, &actual);
    assert!(
        differences.is_empty(),
        "{} of {} scenarios in {name} went differently\n{}",
        differences.len(),
        file.scenarios.len(),
        differences.join("\n"),
    );
}

/// One test for each file.
macro_rules! replay {
    ($($name:ident),+ $(,)?) => {
        const REPLAYED: &[&str] = &[$(stringify!($name)),+];
        $(
            #[test]
            fn $name() {
                replay(stringify!($name));
            }
        )+
    };
}

replay! {
    compare_table,
    delete_table,
    lease_table,
    put_table,
    range_table,
    txn_budget_table,
    txn_overlap_table,
    watch_table,
}

#[test]
fn every_file_is_replayed() {
    let replayed: BTreeSet<_> = REPLAYED.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(
        names().unwrap().into_iter().collect::<BTreeSet<_>>(),
        replayed
    );
}

#[test]
fn every_file_is_written_as_the_recorder_writes_it() {
    for name in names().unwrap() {
        let text = std::fs::read_to_string(revstore_tests::scenario::library::path(&name)).unwrap();
        assert_eq!(load(&name).unwrap().to_string(), text, "{name}");
    }
}

#[test]
fn files_of_families_hold_what_their_tables_make() {
    for family in FAMILIES {
        let recorded = load(family.name).unwrap();
        let recorded: Vec<_> = recorded
            .scenarios
            .iter()
            .map(revstore_tests::scenario::text::Scenario::questions)
            .collect();
        // Compared as text, for the steps are laid out anew when they are written.
        let made = family.questions().scenarios;
        assert_eq!(made.len(), recorded.len(), "{}", family.name);
        for (made, recorded) in made.iter().zip(&recorded) {
            assert_eq!(made.to_string(), recorded.to_string(), "{}", family.name);
        }
    }
}
