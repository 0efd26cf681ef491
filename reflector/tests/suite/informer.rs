//! T-62: informers and their handlers.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream as _;
use pollster::block_on;
use revstore_reflector::informer::InformerBuilder;
use revstore_reflector::{
    EventHandler, FinalState, Informer, Notification, Object, Reflector, StorageListWatch,
    Subscription,
};
use revstore_watch_cache::{JsonKind, ManualClock, Revision, Scope, Selector};

use crate::support::{Fixture, config, next_blocking, pod, poll_once, short_window};

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

fn word(notification: &Notification) -> String {
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
    word(&next_blocking(subscription).unwrap())
}

#[test]
fn t_62_two_handlers_a_late_one_and_one_that_leaves() {
    let fixture = Fixture::new();
    fixture.put_pod("ns/a");
    fixture.settle();
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
    let mut late = handle.subscribe();
    assert_eq!(
        [next(&mut late), next(&mut late)],
        ["initial a", "initial b"]
    );
    assert!(late.has_synced());
    fixture.put_pod("ns/a");
    fixture.delete("ns/b");
    for subscription in [&mut one, &mut late] {
        assert_eq!(
            [next(subscription), next(subscription)],
            ["updated a 2", "deleted b"]
        );
    }
    drop(running);
    assert!(
        next_blocking(&mut one).is_none(),
        "it ends with the informer"
    );
}

#[test]
fn t_62_store_and_indexes_are_changed_before_handlers_hear() {
    let fixture = Fixture::new();
    let informer = informer(&fixture, fixture.clock.clone()).build();
    let handle = informer.handle();
    let mut subscription = handle.subscribe();
    let _running = informer.spawn();
    block_on(handle.synced());
    assert!(
        handle.store().is_empty(),
        "an empty collection is in sync too"
    );
    let made = fixture.put("ns/a", pod("ns/a", "", "n1"));
    next(&mut subscription);
    assert_eq!(handle.store().revision().unwrap().0, made);
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
fn t_62_what_was_missed_becomes_a_tombstone() {
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
    fixture.settle();
    assert!(poll_once(&mut run).is_pending());
    assert_eq!(
        [next(&mut subscription), next(&mut subscription)],
        ["initial a", "initial gone"]
    );
    // While it does not look, a deletion leaves the window.
    fixture.delete("ns/gone");
    for _ in 0..5 {
        fixture.put_pod("ns/a");
    }
    fixture.settle();
    while *failures.lock().unwrap() == 0 {
        assert!(poll_once(&mut run).is_pending());
    }
    fixture.clock.advance(Duration::from_secs(2));
    assert!(poll_once(&mut run).is_pending());
    let told = [next(&mut subscription), next(&mut subscription)];
    assert_eq!(told, ["updated a 7", "lost gone"]);
    assert_eq!(handle.store().keys(), ["ns/a"]);
    assert_eq!(handle.store().revision().unwrap().0, fixture.current());
    assert!(gone > 0);
}

#[test]
fn t_62_resync_tells_everything_again() {
    let fixture = Fixture::new();
    fixture.put_pod("ns/a");
    fixture.settle();
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
        assert!(subscription.is_empty(), "no more often than each second");
        fixture.clock.advance(Duration::from_millis(1));
        assert!(poll_once(&mut run).is_pending());
        assert_eq!(next(&mut subscription), "updated a 0");
    }
}

#[test]
fn t_62_a_slow_handler_gets_changes_merged_per_object() {
    let fixture = Fixture::new();
    let informer = informer(&fixture, fixture.clock.clone()).build();
    let handle = informer.handle();
    let mut subscription = handle.subscribe();
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
    assert_eq!(subscription.len(), 2, "one for each object that there is");
    assert_eq!(
        [next(&mut subscription), next(&mut subscription)],
        ["added a", "added end"]
    );
}

#[test]
fn t_62_a_panic_of_one_handler_is_its_own() {
    struct Panics;
    impl EventHandler for Panics {
        fn on_add(&mut self, _: &Object, _: bool) {
            panic!("on purpose");
        }
    }
    let fixture = Fixture::new();
    let informer = informer(&fixture, fixture.clock.clone()).build();
    let handle = informer.handle();
    let (bad, mut good) = (handle.subscribe(), handle.subscribe());
    let _running = informer.spawn();
    let bad = std::thread::spawn(move || block_on(bad.run(Panics)));
    fixture.put_pod("ns/a");
    assert!(next(&mut good).ends_with(" a"));
    assert!(bad.join().is_err());
    fixture.put_pod("ns/b");
    assert!(next(&mut good).ends_with(" b"));
}

#[test]
fn t_62_who_comes_after_the_end_is_told_of_it() {
    let fixture = Fixture::new();
    fixture.put_pod("ns/a");
    fixture.settle();
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
    let mut late = handle.subscribe();
    assert_eq!(next(&mut late), "initial a", "the store stays as it is");
    assert!(late.has_synced());
    assert!(matches!(end(&mut late), Poll::Ready(None)));

    // One whose task is aborted, or panics, ends as well, and one that never ran.
    for is_polled in [true, false] {
        let dropped = builder().build();
        let handle = dropped.handle();
        let mut subscription = handle.subscribe();
        let mut run = Box::pin(dropped.run());
        if is_polled {
            assert!(poll_once(&mut run).is_pending());
            assert_eq!(next(&mut subscription), "initial a");
        }
        let mut waits = Box::pin(handle.synced());
        assert_eq!(poll_once(&mut waits).is_ready(), is_polled);
        drop(run);
        assert!(matches!(end(&mut subscription), Poll::Ready(None)));
        if !is_polled {
            assert!(poll_once(&mut waits).is_ready(), "it would wait for ever");
        }
        assert_eq!(handle.has_synced(), is_polled);
    }
}

#[test]
fn t_62_an_informer_begins_with_a_state_whatever_its_reflector_knows() {
    let fixture = Fixture::new();
    let known = fixture.put_pod("ns/a");
    fixture.settle();
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
    let mut begun = Reflector::builder(source())
        .clock(Arc::new(fixture.clock.clone()))
        .build();
    // Init, the object, InitDone.
    for _ in 0..3 {
        assert!(poll_once(begun.next()).is_ready());
    }
    for reflector in [resumed, begun] {
        let informer = Informer::builder(reflector).build();
        let handle = informer.handle();
        let mut run = Box::pin(informer.run());
        assert!(poll_once(&mut run).is_pending());
        assert!(handle.has_synced());
        assert_eq!(handle.store().keys(), ["ns/a"]);
    }
}

#[test]
fn t_59_stopping_races_with_events_handlers_and_other_stops() {
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
            scope.spawn(|| while next_blocking(&mut subscription).is_some() {});
            for _ in 0..2 {
                scope.spawn(|| {
                    let late = handle.subscribe();
                    handle.stop();
                    drop(late);
                });
            }
        });
        assert!(subscription.is_empty());
    }
}

#[test]
fn wc_508_a_resync_that_never_comes() {
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
fn wc_518_objects_can_be_changed_before_they_are_stored() {
    let fixture = Fixture::new();
    let made = fixture.put("ns/a", pod("ns/a", "web", "n1"));
    fixture.settle();
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
    let kept = handle.store().get("ns/a").unwrap();
    assert_eq!(kept.value(), pod("ns/a", "all", "n1").as_bytes());
    assert_eq!((kept.label("app"), kept.uid()), (Some("all"), "uid-a"));
    assert_eq!((kept.name(), kept.namespace()), ("a", "ns"));
    assert_eq!(kept.revision().0, made);
    assert_eq!(handle.store().index_keys("node", "n1"), ["ns/a"]);
    assert_eq!(next(&mut subscription), "initial a");
    fixture.delete("ns/a");
    let Some(Notification::Deleted(tombstone)) = next_blocking(&mut subscription) else {
        panic!("it is gone")
    };
    assert_eq!(tombstone.object().label("app"), Some("all"));
}
