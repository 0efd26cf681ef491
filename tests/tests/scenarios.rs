//! Every recorded scenario, against our services: what they answer is what etcd answered.

use std::collections::BTreeSet;

use revstore_tests::clauses::Clauses;
use revstore_tests::scenario::families::FAMILIES;
use revstore_tests::scenario::library::{differences, load, names, run_all};
use revstore_tests::scenario::target::TargetKind;
use revstore_tests::scenario::text::Scenario;

/// Replays a file.
fn replay(name: &str) {
    let file = load(name).expect("a file of scenarios");
    let actual = run_all(&file.scenarios, TargetKind::Ours, 1);
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
    auth,
    compact_table,
    compare_table,
    delete_table,
    errors,
    kv,
    lease,
    lease_table,
    put_table,
    range_table,
    txn,
    txn_budget_table,
    txn_overlap_table,
    watch,
    watch_table,
}

/// The list of all differences.
const DIFFERENCES: &str = include_str!("../../docs/differences.md");

/// Whether that list has a row for a clause.
fn is_listed(clause: &str) -> bool {
    let row = format!("| {clause} |");
    DIFFERENCES.lines().any(|line| line.starts_with(&row))
}

#[test]
fn every_deliberate_difference_is_listed() {
    let clauses = Clauses::load().unwrap();
    for clause in clauses.all().iter().filter(|clause| clause.force == "ours") {
        assert!(is_listed(&clause.id), "{}", clause.id);
    }
}

/// What etcd answers where ours answers otherwise.
const DIFFERENT: &str = "known_differences";

/// What ours answers there.
const DIFFERENT_OURS: &str = "known_differences_ours";

#[test]
fn known_differences_are_as_listed() {
    replay(DIFFERENT_OURS);
    let (etcd, ours) = (load(DIFFERENT).unwrap(), load(DIFFERENT_OURS).unwrap());
    assert_eq!(etcd.scenarios.len(), ours.scenarios.len());
    for (etcd, ours) in etcd.scenarios.iter().zip(&ours.scenarios) {
        assert_eq!(etcd.without_answers(), ours.without_answers());
        assert_ne!(etcd, ours, "{} is none any more", etcd.name);
        for clause in &etcd.clauses {
            assert!(is_listed(clause), "{clause} is not listed");
        }
    }
}

#[test]
fn every_file_is_replayed() {
    let replayed = REPLAYED.iter().chain(&[DIFFERENT, DIFFERENT_OURS]);
    let replayed: BTreeSet<_> = replayed.map(|name| (*name).to_owned()).collect();
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
            .map(Scenario::without_answers)
            .collect();
        // Compared as text, for the steps are laid out anew when they are written.
        let made = family.without_answers().scenarios;
        assert_eq!(made.len(), recorded.len(), "{}", family.name);
        for (made, recorded) in made.iter().zip(&recorded) {
            assert_eq!(made.to_string(), recorded.to_string(), "{}", family.name);
        }
    }
}
