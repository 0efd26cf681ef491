//! Handlers on threads, and the wait for a revision.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use pollster::block_on;
use revstore_reflector::informer::NotReached;
use revstore_reflector::{
    FinalState, Handlers, Informer, InformerHandle, Reflector, StorageListWatch,
};
use revstore_watch_cache::{Revision, Scope, Selector};

use crate::support::{Fixture, pod, poll_once};

fn informer(fixture: &Fixture, selector: Selector) -> Informer {
    let storage = Arc::new(fixture.pods.clone());
    let source = StorageListWatch::new(storage, Scope::All, selector);
    let reflector = Reflector::builder(Arc::new(source))
        .clock(Arc::new(fixture.clock.clone()))
        .build();
    Informer::builder(reflector).build()
}

/// Returns a handler that sends its calls as text.
fn recorder() -> (Handlers, Receiver<String>) {
    let (add, calls) = channel();
    let (update, delete) = (add.clone(), add.clone());
    let handlers = Handlers::new()
        .on_add(move |object, initial| {
            add.send(format!("add {} {initial}", object.name()))
                .unwrap();
        })
        .on_update(move |old, new| {
            let versions = new.revision().0 - old.revision().0;
            update
                .send(format!("update {} {versions}", new.name()))
                .unwrap();
        })
        .on_delete(move |state| {
            let is_known = matches!(state, FinalState::Known(_));
            delete
                .send(format!("delete {} {is_known}", state.object().name()))
                .unwrap();
        });
    (handlers, calls)
}

// Shows WC-513, WC-514 and WC-516.
#[test]
fn wc_516_closures_are_called_for_existing_objects_and_for_changes() {
    let fixture = Fixture::new();
    fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let informer = informer(&fixture, Selector::default());
    let handle = informer.handle();
    let (handlers, calls) = recorder();
    let registration = handle.add_handler(handlers);
    let running = informer.spawn();
    assert_eq!(calls.recv().unwrap(), "add a true");
    fixture.put_pod("ns/b");
    fixture.put_pod("ns/a");
    fixture.delete("ns/b");
    let next: Vec<String> = calls.iter().take(3).collect();
    assert_eq!(next, ["add b false", "update a 2", "delete b true"]);
    assert!(registration.has_synced());
    assert_eq!((registration.panics(), registration.merged()), (0, 0));
    drop(registration);
    assert!(
        calls.recv().is_err(),
        "the handler is dropped with its registration"
    );
    drop(running);
    // A handler of an informer that has ended is called for the objects of the store.
    let (handlers, calls) = recorder();
    let _registration = handle.add_handler(handlers);
    assert_eq!(calls.iter().collect::<Vec<_>>(), ["add a true"]);
}

// Shows WC-516.
#[test]
fn wc_516_a_handler_that_blocks_or_panics_stops_nobody_else() {
    let fixture = Fixture::new();
    let informer = informer(&fixture, Selector::default());
    let handle = informer.handle();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let waits = gate.clone();
    let (entered, blocked_call) = channel();
    let blocking = handle.add_handler(Handlers::new().on_add(move |_, _| {
        entered.send(()).unwrap();
        drop(waits.lock().unwrap());
    }));
    let (survived, survivor) = channel();
    let panicking = handle.add_handler(Handlers::new().on_add(move |object, _| {
        assert!(
            object.name() != "a",
            "a panic of the handler, which the test expects"
        );
        survived.send(object.name().to_owned()).unwrap();
    }));
    let (handlers, calls) = recorder();
    let _other = handle.add_handler(handlers);
    let _running = informer.spawn();
    assert!(block_on(handle.synced()));
    fixture.put_pod("ns/a");
    blocked_call.recv().unwrap();
    fixture.put_pod("ns/b");
    let next: Vec<String> = calls.iter().take(2).collect();
    assert_eq!(next, ["add a false", "add b false"]);
    assert_eq!(
        survivor.recv().unwrap(),
        "b",
        "the panic ends one call only"
    );
    assert_eq!((panicking.panics(), blocking.pending()), (1, 1));
    // A blocked handler can be removed. Its call continues, and no other follows.
    drop(blocking);
    drop(closed);
    assert!(blocked_call.recv().is_err());
}

// Shows WC-514.
#[test]
fn wc_514_a_handler_has_synced_when_its_calls_for_initial_objects_have_returned() {
    let fixture = Fixture::new();
    fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let informer = informer(&fixture, Selector::default());
    let handle = informer.handle();
    let (entered, call) = channel();
    let (leave, left) = channel::<()>();
    let registration = handle.add_handler(Handlers::new().on_add(move |_, _| {
        entered.send(()).unwrap();
        left.recv().unwrap();
    }));
    let mut run = Box::pin(informer.run());
    assert!(poll_once(&mut run).is_pending());
    call.recv().unwrap();
    assert!(handle.has_synced() && !registration.has_synced());
    leave.send(()).unwrap();
    while !registration.has_synced() {
        std::thread::yield_now();
    }
}

fn reached(handle: &InformerHandle, revision: i64) -> Result<(), NotReached> {
    block_on(handle.reached(Revision(revision), None))
}

#[test]
fn an_own_write_is_seen_after_the_wait_for_its_revision() {
    let fixture = Fixture::new();
    let informer = informer(&fixture, Selector::default());
    let handle = informer.handle();
    let running = informer.spawn();
    for number in 0..200 {
        let key = format!("ns/p{}", number % 7);
        let revision = fixture.put_pod(&key);
        reached(&handle, revision).unwrap();
        assert_eq!(handle.store().get(&key).unwrap().revision().0, revision);
    }
    let last = fixture.current();
    drop(running);
    assert_eq!(reached(&handle, last), Ok(()));
    let ended = NotReached::Ended {
        found: Some(Revision(last)),
    };
    assert_eq!(reached(&handle, last + 1), Err(ended));
}

#[test]
fn the_wait_for_a_revision_ends_at_its_time_and_with_a_bookmark() {
    let fixture = Fixture::new();
    let informer = informer(&fixture, Selector::parse("app=web", "").unwrap());
    let handle = informer.handle();
    let mut run = Box::pin(informer.run());
    assert!(poll_once(&mut run).is_pending());
    let start = handle.store().revision();
    let revision = Revision(fixture.put("ns/a", pod("ns/a", "db", "")));
    fixture.wait_until_fresh();
    let mut limited = Box::pin(handle.reached(revision, Duration::from_secs(3)));
    let mut unlimited = Box::pin(handle.reached(revision, None));
    let forever = Box::pin(handle.reached(revision, Duration::MAX));
    for _ in 0..2 {
        assert!(poll_once(&mut run).is_pending());
        assert!(poll_once(&mut limited).is_pending() && poll_once(&mut unlimited).is_pending());
        fixture.clock.advance(Duration::from_millis(1_499));
    }
    fixture.clock.advance(Duration::from_millis(2));
    let timeout = NotReached::Timeout { found: start };
    assert_eq!(poll_once(&mut limited), Poll::Ready(Err(timeout)));
    assert!(poll_once(&mut unlimited).is_pending());
    drop(forever);
    // A change that the selector does not match is reached by a bookmark.
    fixture.clock.advance(Duration::from_secs(120));
    assert!(poll_once(&mut run).is_pending());
    assert_eq!(poll_once(&mut unlimited), Poll::Ready(Ok(())));
}
