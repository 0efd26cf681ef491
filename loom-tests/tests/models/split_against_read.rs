//! I3: a reader that descends the index while a node is split finds the keys that are there.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange};

/// The third key splits the leaf of the first two, and with it the root.
fn model(engine: &Engine) {
    for key in ["a", "c"] {
        engine.put(key, "1").expect("a valid put");
    }
    let create = |engine: &Engine| {
        engine.put("b", "1").expect("a valid put");
    };
    let read = |engine: &Engine| {
        for key in ["a", "c"] {
            assert!(engine.get(key).is_some(), "{key} was not found");
        }
    };
    race(engine, create, read);
}

/// A compaction takes a key out of the index, which joins two leaves.
fn model_of_a_removal(engine: &Engine) {
    for key in ["a", "b", "c"] {
        engine.put(key, "1").expect("a valid put");
    }
    let deleted = engine.delete(&KeyRange::one("b"));
    let deleted = deleted.expect("a store that accepts writes").revision;
    engine.put("c", "2").expect("a valid put");
    let remove = move |engine: &Engine| {
        let next = engine.compact(deleted.next()).expect("a kept revision");
        next.run();
    };
    let read = |engine: &Engine| {
        for key in ["a", "c"] {
            assert!(engine.get(key).is_some(), "{key} was not found");
        }
    };
    race(engine, remove, read);
}

#[test]
fn a_split_hides_no_key() {
    run_model(model);
}

#[test]
fn a_removal_hides_no_other_key() {
    run_model(model_of_a_removal);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn linking_a_node_before_its_content_is_detected() {
    run_broken(Fault::LinkUnordered, model);
}
