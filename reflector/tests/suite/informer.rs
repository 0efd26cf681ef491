//! T-62: informers and their subscriptions.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream as _;
use pollster::block_on;
use revstore_reflector::informer::InformerBuilder;
use revstore_reflector::{
    Delivery, EventHandler, FinalState, Informer, Notification, Reflector, StorageListWatch,
    Subscription,
};
use revstore_watch_cache::clock::ManualClock;
use revstore_watch_cache::{JsonKind, Object, Revision, Scope, Selector};

use crate::support::{Fixture, config, pod, poll_once, short_window};

fn informer(fixture: &Fixture, clock: ManualClock) -> InformerBuilder {
    let storage = Arc::new(fixture.pods.clone());
    let source = StorageListWatch::new(storage, Scope::All, Selector::default());
    let reflector = Reflector::builder(Arc::new(source))
        .clock(Arc::new(clock))
        .seed(2)
        .build();
    Informer::builder(reflector).index("node", |pod: &Object| {
        let fields = &pod.attributes().unwrap().fields;
        fields[0].iter().map(ToString::to_string).collect()
    })
}

fn describe(notification: &Notification) -> String {
    match notification {
        Notification::Added { object, initial } => {
            format!(
                "{} {}",
                if *initial { "initial" } else { "added" },
                object.name()
            )
        }
        Notification::Updated { old, new } => {
            format!(
                "updated {} {}",
                new.name(),
                new.revision().0 - old.revision().0
            )
        }
        Notification::Deleted(FinalState::Known(object)) => format!("deleted {}", object.name()),
        Notification::Deleted(FinalState::Unknown(object)) => {
            format!("lost {}", object.name())
        }
    }
}

fn next(subscription: &mut Subscription) -> String {
    describe(&subscription.next_blocking().unwrap())
}

// Shows WC-516.
#[test]
fn t_62_subscriptions_can_begin_and_end_at_any_time() {
    let fixture = Fixture::new();
    fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let informer = informer(&fixture, fixture.clock.clone()).build();
    let handle = informer.handle();
    let (mut one, two) = (handle.subscribe(), handle.subscribe());
    assert!(!handle.has_synced() && !one.has_synced());
    let running = informer.spawn();
    block_on(handle.synced());
    assert_eq!(next(&mut one), "initial a");
    assert!(one.has_synced() && !two.has_synced());
    drop(two);
    fixture.put_pod("ns/b");
    assert_eq!(next(&mut one), "added b");
    let mut later = handle.subscribe();
    assert_eq!(
        [next(&mut later), next(&mut later)],
        ["initial a", "initial b"]
    );
    assert!(later.has_synced());
    fixture.put_pod("ns/a");
    fixture.delete("ns/b");
    for subscription in [&mut one, &mut later] {
        assert_eq!(
            [next(subscription), next(subscription)],
            ["updated a 2", "deleted b"]
        );
    }
    drop(running);
    assert!(
        one.next_blocking().is_none(),
        "the subscription ends with the informer"
    );
}

// Shows WC-510, WC-513 and WC-517.
#[test]
fn t_62_store_and_indexes_change_before_subscriptions_are_notified() {
    let fixture = Fixture::new();
    let informer = informer(&fixture, fixture.clock.clone()).build();
    let handle = informer.handle();
    let mut subscription = handle.subscribe();
    let _running = informer.spawn();
    block_on(handle.synced());
    assert!(
        handle.store().is_empty(),
        "an empty collection is synced too"
    );
    let created = fixture.put("ns/a", pod("ns/a", "", "n1"));
    next(&mut subscription);
    assert_eq!(handle.store().revision().unwrap().0, created);
    assert_eq!(handle.store().index_keys("node", "n1"), ["ns/a"]);
    fixture.put("ns/a", pod("ns/a", "", "n2"));
    next(&mut subscription);
    assert_eq!(handle.store().list_index_values("node"), ["n2"]);
    assert_eq!(handle.store().by_index("node", "n2").len(), 1);
    fixture.delete("ns/a");
    next(&mut subscription);
    assert!(handle.store().get("ns/a").is_none());
    assert!(handle.store().list_index_values("node").is_empty());
}

#[test]
fn t_62_a_missed_deletion_has_an_unknown_final_state() {
    let fixture = Fixture::with(config().window(short_window(2)));
    fixture.put_pod("ns/a");
    let gone = fixture.put_pod("ns/gone");
    let failures = Arc::new(Mutex::new(0));
    let counted = failures.clone();
    let informer = informer(&fixture, fixture.clock.clone())
        .on_error(move |_| *counted.lock().unwrap() += 1)
        .build();
    let handle = informer.handle();
    let mut subscription = handle.subscribe();
    let mut run = Box::pin(informer.run());
    fixture.wait_until_fresh();
    assert!(poll_once(&mut run).is_pending());
    assert_eq!(
        [next(&mut subscription), next(&mut subscription)],
        ["initial a", "initial gone"]
    );
    // While the informer is not polled, the window of the cache evicts the deletion.
    fixture.delete("ns/gone");
    for _ in 0..5 {
        fixture.put_pod("ns/a");
    }
    fixture.wait_until_fresh();
    while *failures.lock().unwrap() == 0 {
        assert!(poll_once(&mut run).is_pending());
    }
    fixture.clock.advance(Duration::from_secs(2));
    assert!(poll_once(&mut run).is_pending());
    let changes = [next(&mut subscription), next(&mut subscription)];
    assert_eq!(changes, ["updated a 7", "lost gone"]);
    assert_eq!(handle.store().keys(), ["ns/a"]);
    assert_eq!(handle.store().revision().unwrap().0, fixture.current());
    assert!(gone > 0);
}

#[test]
fn t_62_resync_delivers_all_objects_again() {
    let fixture = Fixture::new();
    fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let informer = informer(&fixture, fixture.clock.clone())
        .resync(Duration::ZERO)
        .build();
    let mut subscription = informer.handle().subscribe();
    let mut run = Box::pin(informer.run());
    assert!(poll_once(&mut run).is_pending());
    assert_eq!(next(&mut subscription), "initial a");
    for _ in 0..3 {
        fixture.clock.advance(Duration::from_millis(999));
        assert!(poll_once(&mut run).is_pending());
        assert!(subscription.is_empty(), "the interval is at least 1 s");
        fixture.clock.advance(Duration::from_millis(1));
        assert!(poll_once(&mut run).is_pending());
        assert_eq!(next(&mut subscription), "updated a 0");
    }
}

// Shows WC-515.
#[test]
fn t_62_queued_notifications_are_merged_per_object() {
    let fixture = Fixture::new();
    let informer = informer(&fixture, fixture.clock.clone()).build();
    let handle = informer.handle();
    let mut subscription = handle.subscribe_with(Delivery::Merged);
    let _running = informer.spawn();
    block_on(handle.synced());
    for _ in 0..100 {
        fixture.put_pod("ns/a");
    }
    fixture.put_pod("ns/short");
    fixture.delete("ns/short");
    let last = fixture.put_pod("ns/end");
    let mut probe = handle.subscribe();
    while handle
        .store()
        .revision()
        .is_none_or(|revision| revision.0 < last)
    {
        next(&mut probe);
    }
    assert_eq!(subscription.len(), 2, "one for each existing object");
    assert_eq!(
        [next(&mut subscription), next(&mut subscription)],
        ["added a", "added end"]
    );
}

// Shows WC-511: a merged subscription would deliver the second change of `a` before `b`.
#[test]
fn t_62_a_subscription_delivers_the_changes_of_all_objects_in_order() {
    let fixture = Fixture::new();
    let informer = informer(&fixture, fixture.clock.clone()).build();
    let handle = informer.handle();
    let subscription = handle.subscribe();
    let mut run = Box::pin(informer.run());
    assert!(poll_once(&mut run).is_pending());
    fixture.put_pod("ns/a");
    fixture.put_pod("ns/b");
    fixture.put_pod("ns/a");
    fixture.delete("ns/b");
    fixture.put_pod("ns/c");
    fixture.wait_until_fresh();
    while subscription.len() < 5 {
        assert!(poll_once(&mut run).is_pending());
    }
    let mut subscription = subscription;
    let changes: Vec<String> = std::iter::from_fn(|| subscription.try_next())
        .map(|notification| describe(&notification))
        .collect();
    assert_eq!(
        changes,
        ["added a", "added b", "updated a 2", "deleted b", "added c"]
    );
    assert_eq!(subscription.merged(), 0);
}

// Shows WC-516.
#[test]
fn t_62_a_panic_of_one_handler_does_not_affect_another_subscription() {
    struct PanickingHandler;
    impl EventHandler for PanickingHandler {
        fn on_add(&mut self, _: &Object, _: bool) {
            panic!("a panic of the handler, which the test expects");
        }
    }
    let fixture = Fixture::new();
    let informer = informer(&fixture, fixture.clock.clone()).build();
    let handle = informer.handle();
    let (panicking, mut other) = (handle.subscribe(), handle.subscribe());
    let _running = informer.spawn();
    let panicking = std::thread::spawn(move || block_on(panicking.run(PanickingHandler)));
    fixture.put_pod("ns/a");
    assert!(next(&mut other).ends_with(" a"));
    assert!(panicking.join().is_err());
    fixture.put_pod("ns/b");
    assert!(next(&mut other).ends_with(" b"));
}

#[test]
fn t_62_a_subscription_after_the_end_of_the_informer_ends_too() {
    let fixture = Fixture::new();
    fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let builder = || informer(&fixture, fixture.clock.clone());
    let end = |subscription: &mut Subscription| {
        poll_once(std::future::poll_fn(|context| {
            Pin::new(&mut *subscription).poll_next(context)
        }))
    };

    let stopped = builder().build();
    let handle = stopped.handle();
    let running = stopped.spawn();
    block_on(handle.synced());
    drop(running);
    let mut later = handle.subscribe();
    assert_eq!(
        next(&mut later),
        "initial a",
        "the store keeps its contents"
    );
    assert!(later.has_synced());
    assert!(matches!(end(&mut later), Poll::Ready(None)));

    // An informer whose task is aborted or panics ends too, and so does one that never ran.
    for is_polled in [true, false] {
        let dropped = builder().build();
        let handle = dropped.handle();
        let mut subscription = handle.subscribe();
        let mut run = Box::pin(dropped.run());
        if is_polled {
            assert!(poll_once(&mut run).is_pending());
            assert_eq!(next(&mut subscription), "initial a");
        }
        let mut synced = Box::pin(handle.synced());
        assert_eq!(poll_once(&mut synced).is_ready(), is_polled);
        drop(run);
        assert!(matches!(end(&mut subscription), Poll::Ready(None)));
        if !is_polled {
            assert!(
                poll_once(&mut synced).is_ready(),
                "the wait ends with the informer"
            );
        }
        assert_eq!(handle.has_synced(), is_polled);
    }
}

#[test]
fn t_62_an_informer_begins_with_an_initial_state_for_any_reflector() {
    let fixture = Fixture::new();
    let known = fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let source = || {
        let storage = Arc::new(fixture.pods.clone());
        Arc::new(StorageListWatch::new(
            storage,
            Scope::All,
            Selector::default(),
        ))
    };
    let resumed = Reflector::builder(source())
        .clock(Arc::new(fixture.clock.clone()))
        .resume_after(Revision(known))
        .build();
    let mut started = Reflector::builder(source())
        .clock(Arc::new(fixture.clock.clone()))
        .build();
    // Init, the object, InitDone.
    for _ in 0..3 {
        assert!(poll_once(started.next()).is_ready());
    }
    for reflector in [resumed, started] {
        let informer = Informer::builder(reflector).build();
        let handle = informer.handle();
        let mut run = Box::pin(informer.run());
        assert!(poll_once(&mut run).is_pending());
        assert!(handle.has_synced());
        assert_eq!(handle.store().keys(), ["ns/a"]);
    }
}

#[test]
fn t_59_an_informer_can_be_stopped_during_events_subscriptions_and_other_stops() {
    let fixture = Fixture::new();
    for round in 0..50 {
        let informer = informer(&fixture, fixture.clock.clone()).build();
        let handle = informer.handle();
        let mut subscription = handle.subscribe();
        std::thread::scope(|scope| {
            scope.spawn(|| block_on(informer.run()));
            scope.spawn(|| {
                for number in 0..round % 7 {
                    fixture.put_pod(&format!("ns/p{number}"));
                }
            });
            scope.spawn(|| while subscription.next_blocking().is_some() {});
            for _ in 0..2 {
                scope.spawn(|| {
                    let later = handle.subscribe();
                    handle.stop();
                    drop(later);
                });
            }
        });
        assert!(subscription.is_empty());
    }
}

#[test]
fn wc_508_a_resync_interval_may_be_the_longest_duration() {
    let fixture = Fixture::new();
    fixture.clock.advance(Duration::from_secs(1));
    let informer = informer(&fixture, fixture.clock.clone())
        .resync(Duration::MAX)
        .build();
    let mut run = Box::pin(informer.run());
    for _ in 0..2 {
        assert!(poll_once(&mut run).is_pending());
        fixture.clock.advance(Duration::from_secs(1_000_000));
    }
}

#[test]
fn wc_518_transform_changes_objects_before_they_are_stored() {
    let fixture = Fixture::new();
    let created = fixture.put("ns/a", pod("ns/a", "web", "n1"));
    fixture.wait_until_fresh();
    let kind = JsonKind::new("v1", "Pod").with_fields(["spec.nodeName"]);
    let informer = informer(&fixture, fixture.clock.clone())
        .transform(move |object| {
            let value = String::from_utf8(object.value().to_vec()).unwrap();
            object.with_value(value.replace("web", "all"), &kind)
        })
        .build();
    let handle = informer.handle();
    let mut subscription = handle.subscribe();
    let _running = informer.spawn();
    assert!(block_on(handle.synced()));
    let stored = handle.store().get("ns/a").unwrap();
    assert_eq!(stored.value(), pod("ns/a", "all", "n1").as_bytes());
    assert_eq!((stored.label("app"), stored.uid()), (Some("all"), "uid-a"));
    assert_eq!((stored.name(), stored.namespace()), ("a", "ns"));
    assert_eq!(stored.revision().0, created);
    assert_eq!(handle.store().index_keys("node", "n1"), ["ns/a"]);
    assert_eq!(next(&mut subscription), "initial a");
    fixture.delete("ns/a");
    let Some(Notification::Deleted(state)) = subscription.next_blocking() else {
        panic!("expected a deletion")
    };
    assert_eq!(state.object().label("app"), Some("all"));
}
