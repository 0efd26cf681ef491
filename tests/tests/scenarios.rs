//! Replays all recorded scenarios against the revstore services and expects the responses of etcd.

use std::collections::BTreeSet;

use revstore_tests::clauses::Clauses;
use revstore_tests::scenario::families::TABLES;
use revstore_tests::scenario::library::{differences, load, names, run_all};
use revstore_tests::scenario::target::TargetKind;
use revstore_tests::scenario::text::Scenario;

/// Replays the scenarios of a file and fails if a response differs.
fn replay(name: &str) {
    let file = load(name).expect("a valid scenario file");
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

/// The document with a row for each difference from etcd.
const DIFFERENCES: &str = include_str!("../../docs/differences.md");

/// Returns whether [`DIFFERENCES`] has a row for a clause.
fn is_listed(clause: &str) -> bool {
    let row = format!("| {clause} |");
    DIFFERENCES.lines().any(|line| line.starts_with(&row))
}

#[test]
fn every_clause_with_force_ours_has_a_row_in_differences_md() {
    let clauses = Clauses::load().unwrap();
    for clause in clauses.all().iter().filter(|clause| clause.force == "ours") {
        let id = &clause.id;
        assert!(
            is_listed(id),
            "{id} has force \"ours\" but no row in docs/differences.md"
        );
    }
}

/// The file with the responses of etcd to requests for which those of revstore differ.
const DIFFERING_ETCD: &str = "known_differences";

/// The file with the responses of revstore to the same requests.
const DIFFERING_OURS: &str = "known_differences_ours";

#[test]
fn known_differences_are_recorded_and_listed() {
    replay(DIFFERING_OURS);
    let (etcd, ours) = (load(DIFFERING_ETCD).unwrap(), load(DIFFERING_OURS).unwrap());
    assert_eq!(etcd.scenarios.len(), ours.scenarios.len());
    for (etcd, ours) in etcd.scenarios.iter().zip(&ours.scenarios) {
        assert_eq!(etcd.without_responses(), ours.without_responses());
        assert_ne!(etcd, ours, "{} no longer differs", etcd.name);
        for clause in &etcd.clauses {
            assert!(
                is_listed(clause),
                "{clause} has no row in docs/differences.md"
            );
        }
    }
}

#[test]
fn every_scenario_file_is_replayed() {
    let replayed = REPLAYED.iter().chain(&[DIFFERING_ETCD, DIFFERING_OURS]);
    let replayed: BTreeSet<_> = replayed.map(|name| (*name).to_owned()).collect();
    assert_eq!(
        names().unwrap().into_iter().collect::<BTreeSet<_>>(),
        replayed
    );
}

#[test]
fn scenario_files_round_trip_through_the_parser() {
    for name in names().unwrap() {
        let text = std::fs::read_to_string(revstore_tests::scenario::library::path(&name)).unwrap();
        assert_eq!(load(&name).unwrap().to_string(), text, "{name}");
    }
}

#[test]
fn table_files_contain_exactly_the_generated_scenarios() {
    for table in TABLES {
        let recorded = load(table.name).unwrap();
        let recorded: Vec<_> = recorded
            .scenarios
            .iter()
            .map(Scenario::without_responses)
            .collect();
        // Compared as text, because formatting may change the layout of the steps.
        let expected = table.without_responses().scenarios;
        assert_eq!(expected.len(), recorded.len(), "{}", table.name);
        for (expected, recorded) in expected.iter().zip(&recorded) {
            assert_eq!(expected.to_string(), recorded.to_string(), "{}", table.name);
        }
    }
}
