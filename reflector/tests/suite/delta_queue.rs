//! T-61: the delta queue.

use revstore_reflector::delta_queue::{Delta, DeltaQueue};
use revstore_reflector::{FinalState, Object};

use revstore_watch_cache::{ListOptions, Scope};

use crate::support::Fixture;

/// Some objects, by name.
fn objects(names: &[&str]) -> Vec<Object> {
    let fixture = Fixture::new();
    for name in names {
        fixture.put_pod(&format!("ns/{name}"));
    }
    fixture.settle();
    let list = fixture.wait(fixture.pods.list(&Scope::All, &ListOptions::default()));
    list.unwrap().into_objects().unwrap()
}

fn words(deltas: &[Delta]) -> Vec<String> {
    let word = |delta: &Delta| match delta {
        Delta::Added(object) => format!("added {}", object.name()),
        Delta::Updated(object) => format!("updated {}", object.name()),
        Delta::Deleted(FinalState::Known(object)) => format!("deleted {}", object.name()),
        Delta::Deleted(FinalState::Unknown(object)) => format!("lost {}", object.name()),
        Delta::Replaced(object) => format!("replaced {}", object.name()),
        Delta::Sync(object) => format!("sync {}", object.name()),
    };
    deltas.iter().map(word).collect()
}

fn drained(queue: &mut DeltaQueue) -> Vec<String> {
    std::iter::from_fn(|| queue.pop())
        .flat_map(|(_, deltas)| words(&deltas))
        .collect()
}

#[test]
fn t_61_keys_come_in_the_order_in_which_they_were_queued() {
    let all = objects(&["a", "b"]);
    let [a, b] = &all[..] else { panic!() };
    let mut queue = DeltaQueue::new();
    queue.push(Delta::Added(b.clone()));
    queue.push(Delta::Added(a.clone()));
    queue.push(Delta::Updated(b.clone()));
    queue.push(Delta::Deleted(FinalState::Known(b.clone())));
    queue.push(Delta::Deleted(FinalState::Unknown(b.clone())));
    assert_eq!(queue.len(), 2);
    // Of two deletions the one that knows the content stays.
    assert_eq!(
        drained(&mut queue),
        ["added b", "updated b", "deleted b", "added a"]
    );
}

#[test]
fn t_61_a_new_state_deletes_what_was_known_or_queued_and_is_not_in_it() {
    let all = objects(&["a", "b", "c"]);
    let [a, b, c] = &all[..] else { panic!() };
    let mut queue = DeltaQueue::new();
    queue.push(Delta::Added(c.clone()));
    queue.replace(vec![a.clone()], &[a.clone(), b.clone()]);
    assert_eq!(
        drained(&mut queue),
        ["added c", "lost c", "replaced a", "lost b"]
    );
}

#[test]
fn t_61_resync_tells_what_is_not_queued() {
    let all = objects(&["a", "b"]);
    let mut queue = DeltaQueue::new();
    queue.push(Delta::Updated(all[0].clone()));
    queue.resync(all.clone());
    assert_eq!(drained(&mut queue), ["updated a", "sync b"]);
}

#[test]
fn t_61_synced_when_all_of_the_first_state_was_taken() {
    let all = objects(&["a", "b"]);
    let mut empty = DeltaQueue::new();
    assert!(!empty.has_synced());
    empty.replace(Vec::new(), &[]);
    assert!(empty.has_synced(), "an empty state is complete at once");

    let mut queue = DeltaQueue::new();
    queue.replace(vec![all[0].clone()], &all[1..]);
    assert!(!queue.has_synced());
    queue.pop();
    assert!(!queue.has_synced(), "a deletion is part of it");
    queue.pop();
    assert!(queue.has_synced());
    queue.replace(all.clone(), &[]);
    assert!(queue.has_synced(), "only the first state counts");
}
