//! All recorded scenarios, replayed against our services, whose responses must be those of etcd.

use std::collections::BTreeSet;

use revstore_tests::clauses::Clauses;
use revstore_tests::scenario::families::FAMILIES;
use revstore_tests::scenario::library::{differences, load, names, run_all};
use revstore_tests::scenario::target::TargetKind;
use revstore_tests::scenario::text::Scenario;

/// Replays the scenarios of a file.
fn replay(name: &str) {
    let file = load(name).expect("a file of scenarios");
    let actual = run_all(&file.scenarios, TargetKind::Ours, 1);
    let differences = differences(&file.scenarios, &actual);
    assert!(
        differences.is_empty(),
        "{} of {} scenarios in {name} differ\n{}",
        differences.len(),
        file.scenarios.len(),
        differences.join("\n"),
    );
}

/// Defines one test per file.
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

/// The document that lists all differences.
const DIFFERENCES: &str = include_str!("../../docs/differences.md");

/// Returns whether [`DIFFERENCES`] has a row for a clause.
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

/// The file with etcd's responses where ours differ.
const DIFFERING_ETCD: &str = "known_differences";

/// The file with our responses to the same requests.
const DIFFERING_OURS: &str = "known_differences_ours";

#[test]
fn known_differences_are_as_listed() {
    replay(DIFFERING_OURS);
    let (etcd, ours) = (load(DIFFERING_ETCD).unwrap(), load(DIFFERING_OURS).unwrap());
    assert_eq!(etcd.scenarios.len(), ours.scenarios.len());
    for (etcd, ours) in etcd.scenarios.iter().zip(&ours.scenarios) {
        assert_eq!(etcd.without_answers(), ours.without_answers());
        assert_ne!(etcd, ours, "{} no longer differs", etcd.name);
        for clause in &etcd.clauses {
            assert!(is_listed(clause), "{clause} is not listed");
        }
    }
}

#[test]
fn every_file_is_replayed() {
    let replayed = REPLAYED.iter().chain(&[DIFFERING_ETCD, DIFFERING_OURS]);
    let replayed: BTreeSet<_> = replayed.map(|name| (*name).to_owned()).collect();
    assert_eq!(
        names().unwrap().into_iter().collect::<BTreeSet<_>>(),
        replayed
    );
}

#[test]
fn files_have_the_format_of_the_recorder() {
    for name in names().unwrap() {
        let text = std::fs::read_to_string(revstore_tests::scenario::library::path(&name)).unwrap();
        assert_eq!(load(&name).unwrap().to_string(), text, "{name}");
    }
}

#[test]
fn files_of_families_have_the_scenarios_of_their_tables() {
    for family in FAMILIES {
        let recorded = load(family.name).unwrap();
        let recorded: Vec<_> = recorded
            .scenarios
            .iter()
            .map(Scenario::without_answers)
            .collect();
        // Compared as text: writing the file changes the layout of the steps.
        let expected = family.without_answers().scenarios;
        assert_eq!(expected.len(), recorded.len(), "{}", family.name);
        for (expected, recorded) in expected.iter().zip(&recorded) {
            assert_eq!(
                expected.to_string(),
                recorded.to_string(),
                "{}",
                family.name
            );
        }
    }
}
