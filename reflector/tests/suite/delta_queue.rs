//! T-61: the delta queue.

use revstore_reflector::FinalState;
use revstore_reflector::delta_queue::{Delta, DeltaQueue};
use revstore_watch_cache::{ListOptions, Object, Scope};

use crate::support::Fixture;

/// Returns objects with these names, in ascending order.
fn objects(names: &[&str]) -> Vec<Object> {
    let fixture = Fixture::new();
    for name in names {
        fixture.put_pod(&format!("ns/{name}"));
    }
    fixture.wait_until_fresh();
    let list = fixture.wait(fixture.pods.list(&Scope::All, &ListOptions::default()));
    list.unwrap().into_objects().unwrap()
}

fn describe(deltas: &[Delta]) -> Vec<String> {
    let text = |delta: &Delta| match delta {
        Delta::Added(object) => format!("added {}", object.name()),
        Delta::Updated(object) => format!("updated {}", object.name()),
        Delta::Deleted(FinalState::Known(object)) => format!("deleted {}", object.name()),
        Delta::Deleted(FinalState::Unknown(object)) => format!("lost {}", object.name()),
        Delta::Replaced(object) => format!("replaced {}", object.name()),
        Delta::Sync(object) => format!("sync {}", object.name()),
    };
    deltas.iter().map(text).collect()
}

fn drain(queue: &mut DeltaQueue) -> Vec<String> {
    std::iter::from_fn(|| queue.pop())
        .flat_map(|(_, deltas)| describe(&deltas))
        .collect()
}

// Shows WC-511.
#[test]
fn t_61_keys_are_popped_in_the_order_of_their_first_delta() {
    let all = objects(&["a", "b"]);
    let [a, b] = &all[..] else {
        panic!("expected two objects, got {}", all.len())
    };
    let mut queue = DeltaQueue::new();
    queue.push(Delta::Added(b.clone()));
    queue.push(Delta::Added(a.clone()));
    queue.push(Delta::Updated(b.clone()));
    queue.push(Delta::Deleted(FinalState::Known(b.clone())));
    queue.push(Delta::Deleted(FinalState::Unknown(b.clone())));
    assert_eq!(queue.len(), 2);
    // Of two deletions the queue keeps the one with a known final state.
    assert_eq!(
        drain(&mut queue),
        ["added b", "updated b", "deleted b", "added a"]
    );
}

// Shows WC-512.
#[test]
fn t_61_replace_deletes_known_and_queued_objects_that_are_not_listed() {
    let all = objects(&["a", "b", "c"]);
    let [a, b, c] = &all[..] else {
        panic!("expected three objects, got {}", all.len())
    };
    let mut queue = DeltaQueue::new();
    queue.push(Delta::Added(c.clone()));
    queue.replace(vec![a.clone()], &[a.clone(), b.clone()]);
    assert_eq!(
        drain(&mut queue),
        ["added c", "lost c", "replaced a", "lost b"]
    );
}

#[test]
fn t_61_resync_skips_keys_with_queued_deltas() {
    let all = objects(&["a", "b"]);
    let mut queue = DeltaQueue::new();
    queue.push(Delta::Updated(all[0].clone()));
    queue.resync(all.clone());
    assert_eq!(drain(&mut queue), ["updated a", "sync b"]);
}

// Shows WC-514.
#[test]
fn t_61_a_queue_has_synced_when_all_keys_of_the_first_state_were_popped() {
    let all = objects(&["a", "b"]);
    let mut empty = DeltaQueue::new();
    assert!(!empty.has_synced());
    empty.replace(Vec::new(), &[]);
    assert!(empty.has_synced(), "an empty state is complete at once");

    let mut queue = DeltaQueue::new();
    queue.replace(vec![all[0].clone()], &all[1..]);
    assert!(!queue.has_synced());
    queue.pop();
    assert!(
        !queue.has_synced(),
        "the deletion is part of the first state"
    );
    queue.pop();
    assert!(queue.has_synced());
    queue.replace(all.clone(), &[]);
    assert!(queue.has_synced(), "only the first state counts");
}
