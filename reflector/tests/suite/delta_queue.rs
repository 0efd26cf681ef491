//! T-61: the delta queue.

use std::collections::VecDeque;

use fastrand::Rng;
use revstore_reflector::delta_queue::{BATCH_KEYS_MAX, Delta, DeltaQueue};
use revstore_watch_cache::{JsonKind, Object, ObjectRef, Revision};

fn object(name: &str, revision: i64) -> Object {
    let name = ObjectRef::namespaced("ns", name);
    let kind = JsonKind::new("v1", "Pod");
    Object::from_parts(&name, Revision(revision), "{\"metadata\":{}}", &kind)
}

fn describe(delta: &Delta) -> String {
    match delta {
        Delta::Applied(object) => format!("applied {} {}", object.name(), object.revision()),
        Delta::Deleted(object) => format!("deleted {} {}", object.name(), object.revision()),
        Delta::Sync(object) => format!("sync {}", object.name()),
        Delta::ReplacedAll(objects, revision) => format!("replaced {} {revision}", objects.len()),
        Delta::Bookmark(revision) => format!("bookmark {revision}"),
        other => unreachable!("unknown delta {other:?}"),
    }
}

fn pop(queue: &mut DeltaQueue) -> Vec<String> {
    let batch = queue.pop_batch();
    batch.map_or(Vec::new(), |batch| {
        batch.deltas.iter().map(describe).collect()
    })
}

// Shows WC-511.
#[test]
fn t_61_all_deltas_have_one_order_and_a_batch_ends_before_a_second_delta_of_a_key() {
    let mut queue = DeltaQueue::new();
    queue.push(Delta::Applied(object("a", 2)));
    queue.push(Delta::Applied(object("b", 3)));
    queue.push(Delta::Bookmark(Revision(3)));
    queue.push(Delta::Applied(object("a", 4)));
    queue.push(Delta::Deleted(object("b", 5)));
    queue.push(Delta::Deleted(object("b", 6)));
    assert_eq!(queue.len(), 6);
    assert_eq!(
        pop(&mut queue),
        ["applied a 2", "applied b 3", "bookmark 3"]
    );
    let batch = queue.pop_batch().unwrap();
    assert_eq!(batch.revision, Some(Revision(5)));
    assert_eq!(pop(&mut queue), ["deleted b 6"]);
    assert!(queue.pop_batch().is_none() && queue.is_empty());
}

// Shows WC-511 and WC-512.
#[test]
fn t_61_a_new_state_is_one_delta_and_a_batch_of_its_own() {
    let mut queue = DeltaQueue::new();
    queue.push(Delta::Applied(object("a", 9)));
    queue.push(Delta::ReplacedAll(
        vec![object("a", 1), object("b", 2)],
        Revision(2),
    ));
    queue.push(Delta::Applied(object("a", 3)));
    assert_eq!(pop(&mut queue), ["applied a 9"]);
    let batch = queue.pop_batch().unwrap();
    assert_eq!(
        batch.revision,
        Some(Revision(2)),
        "a store may have been restored"
    );
    assert_eq!(describe(&batch.deltas[0]), "replaced 2 2");
    assert_eq!(pop(&mut queue), ["applied a 3"]);
}

#[test]
fn t_61_a_batch_has_a_limited_number_of_keys() {
    let mut queue = DeltaQueue::new();
    for number in 0..=BATCH_KEYS_MAX {
        queue.push(Delta::Applied(object(&format!("p{number}"), 1)));
    }
    assert_eq!(pop(&mut queue).len(), BATCH_KEYS_MAX);
    assert_eq!(pop(&mut queue).len(), 1);
}

// Shows WC-508.
#[test]
fn t_61_resync_skips_keys_with_queued_deltas() {
    let known = vec![object("a", 1), object("b", 1)];
    let mut queue = DeltaQueue::new();
    queue.push(Delta::Applied(object("a", 2)));
    queue.resync(known.clone());
    assert_eq!(pop(&mut queue), ["applied a 2", "sync b"]);
    queue.push(Delta::ReplacedAll(known.clone(), Revision(3)));
    queue.resync(known);
    assert_eq!(queue.len(), 1, "the state contains all objects");
}

// Shows WC-514.
#[test]
fn t_61_a_queue_has_synced_when_the_first_state_was_popped() {
    let mut queue = DeltaQueue::new();
    queue.push(Delta::Applied(object("a", 1)));
    queue.push(Delta::ReplacedAll(Vec::new(), Revision(3)));
    queue.pop_batch();
    assert!(!queue.has_synced());
    queue.pop_batch();
    assert!(queue.has_synced(), "an empty state is complete at once");
}

/// Random operations: the batches, one after the other, are what was pushed.
#[test]
fn t_61_random_deltas_are_popped_in_the_order_of_a_plain_queue() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let (mut queue, mut model) = (DeltaQueue::new(), VecDeque::new());
        for revision in 0..random.i64(1..200) {
            let name = format!("p{}", random.u8(0..8));
            let delta = match random.u8(0..20) {
                0..10 => Delta::Applied(object(&name, revision)),
                10..14 => Delta::Deleted(object(&name, revision)),
                14 => Delta::Bookmark(Revision(revision)),
                15 => Delta::ReplacedAll(vec![object(&name, revision)], Revision(revision)),
                16 => {
                    // Only without a queued state and without a queued delta of the key.
                    let queued = |text: &String| {
                        text.starts_with("replaced") || text.split(' ').nth(1) == Some(&name)
                    };
                    if !model.iter().any(queued) {
                        model.push_back(format!("sync {name}"));
                    }
                    queue.resync(vec![object(&name, revision)]);
                    continue;
                }
                _ => {
                    let popped = pop(&mut queue);
                    let expected: Vec<String> = model.drain(..popped.len()).collect();
                    assert_eq!(popped, expected, "seed {seed}");
                    let names: Vec<&str> = popped
                        .iter()
                        .filter(|text| !text.starts_with("bookmark"))
                        .filter_map(|text| text.split(' ').nth(1))
                        .collect();
                    let mut unique = names.clone();
                    unique.sort_unstable();
                    unique.dedup();
                    assert_eq!(unique.len(), names.len(), "seed {seed}: {popped:?}");
                    assert_eq!(popped.is_empty(), model.is_empty() && popped.is_empty());
                    continue;
                }
            };
            model.push_back(describe(&delta));
            queue.push(delta);
        }
        while !queue.is_empty() {
            let popped = pop(&mut queue);
            assert!(!popped.is_empty(), "a batch is not empty");
            let expected: Vec<String> = model.drain(..popped.len()).collect();
            assert_eq!(popped, expected, "seed {seed}");
        }
        assert!(model.is_empty());
    }
}
