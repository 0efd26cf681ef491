//! T-64: random writers, reflectors that are cut off, a compacting store, slow readers; in the end
//! every informer has what the engine has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::StreamExt as _;
use revstore_engine::{Engine, KeyRange, MainRevision, Range};
use revstore_watch_cache::{
    EventStream, Informer, InformerHandle, List, ListOptions, ListWatch, Notification, Random,
    Reflector, ReflectorMode, RequestError, Scope, Scoped, Selector, WatchOptions, next_blocking,
};

use crate::support::{Fixture, PODS, config, pod, short_window};

/// A connection that breaks after some events.
#[derive(Debug)]
struct Flaky {
    inner: Scoped,
    random: std::sync::Mutex<Random>,
    calm: Arc<AtomicBool>,
}

impl Flaky {
    fn breaks(&self) -> Option<usize> {
        let wish = self.random.lock().unwrap().below(40);
        (!self.calm.load(Ordering::Relaxed)).then_some(usize::try_from(wish).unwrap() + 1)
    }
}

impl ListWatch for Flaky {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<List, RequestError>> {
        Box::pin(async move {
            if self.breaks() == Some(1) {
                return Err(RequestError::Internal("cut off".into()));
            }
            self.inner.list(options).await
        })
    }

    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>> {
        Box::pin(async move {
            let events = self.inner.watch(options).await?;
            Ok(match self.breaks() {
                Some(count) => Box::pin(events.take(count)) as EventStream,
                None => events,
            })
        })
    }
}

/// The pods of the engine at one revision: key and mod revision.
fn engine_state(engine: &Engine, revision: MainRevision) -> BTreeMap<String, i64> {
    let range = Range::of(KeyRange::prefix(format!("{PODS}/"))).at(revision);
    let found = engine.range(&range).unwrap();
    let key = |key: &[u8]| String::from_utf8(key[PODS.len() + 1..].to_vec()).unwrap();
    found
        .kvs
        .iter()
        .map(|kv| (key(kv.key()), kv.mod_revision().0))
        .collect()
}

fn informer_state(handle: &InformerHandle) -> BTreeMap<String, i64> {
    let objects = handle.store().list();
    objects
        .iter()
        .map(|object| (object.store_key(), object.revision().0))
        .collect()
}

fn write(engine: &Engine, random: &mut Random) {
    let key = format!("ns{}/p{}", random.below(3), random.below(30));
    let stored = format!("{PODS}/{key}");
    match random.below(10) {
        0..=2 => drop(engine.delete(&KeyRange::one(stored))),
        3 => drop(engine.put(format!("/registry/other/{key}"), "{}").unwrap()),
        number => {
            let app = if number % 2 == 0 { "web" } else { "db" };
            engine.put(stored, pod(&key, app, "")).unwrap();
        }
    }
}

/// A handler's own copy, made of nothing but notifications.
fn follow(
    mut subscription: revstore_watch_cache::Subscription,
    slow: bool,
) -> BTreeMap<String, i64> {
    let mut copy: BTreeMap<String, i64> = BTreeMap::new();
    let mut count = 0_u32;
    while let Some(notification) = next_blocking(&mut subscription) {
        count += 1;
        if slow && count.is_multiple_of(8) {
            std::thread::yield_now();
        }
        match notification {
            Notification::Added { object, .. } => {
                let before = copy.insert(object.store_key(), object.revision().0);
                assert!(before.is_none(), "added twice");
            }
            Notification::Updated { old, new } => {
                let before = copy.insert(new.store_key(), new.revision().0);
                assert_eq!(before, Some(old.revision().0), "from what the handler knew");
                assert!(new.revision() >= old.revision(), "back in time");
            }
            Notification::Deleted(tombstone) => {
                assert!(copy.remove(&tombstone.object().store_key()).is_some());
            }
        }
    }
    copy
}

fn check(seed: u64) {
    let fixture = Fixture::with(config().window(short_window(60)), |builder| builder);
    let engine = fixture.engine().clone();
    let calm = Arc::new(AtomicBool::new(false));
    let mut informers = Vec::new();
    for number in 0..6_u64 {
        let raw = number % 3 == 2;
        let storage: Arc<dyn revstore_watch_cache::Storage> = if raw {
            Arc::new(fixture.raw.clone())
        } else {
            Arc::new(fixture.pods.clone())
        };
        let flaky = Flaky {
            inner: Scoped::new(storage, Scope::All, Selector::default()),
            random: std::sync::Mutex::new(Random::seeded(seed * 100 + number)),
            calm: calm.clone(),
        };
        let mode = if number % 2 == 0 {
            ReflectorMode::ListWatch
        } else {
            ReflectorMode::WatchList
        };
        let reflector = Reflector::builder(Arc::new(flaky))
            .clock(Arc::new(fixture.clock.clone()))
            .random(Random::seeded(seed * 7 + number))
            .mode(mode)
            .build();
        let informer = Informer::builder(reflector).build();
        let handle = informer.handle();
        let subscription = handle.subscribe();
        let follower = std::thread::spawn(move || follow(subscription, number % 2 == 1));
        informers.push((handle, informer.spawn(), follower));
    }
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let engine = &engine;
            scope.spawn(move || {
                let mut random = Random::seeded(seed * 1000 + writer);
                for _ in 0..600 {
                    write(engine, &mut random);
                }
            });
        }
        scope.spawn(|| {
            let mut random = Random::seeded(seed);
            for _ in 0..60 {
                // Pauses of reflectors end, watches get bookmarks, the past is forgotten.
                fixture.clock.advance(Duration::from_secs(random.below(20)));
                let current = engine.current_revision();
                if random.below(3) == 0
                    && let Ok(compaction) = engine.compact(current)
                {
                    compaction.run();
                }
                std::thread::yield_now();
            }
        });
    });
    calm.store(true, Ordering::Relaxed);
    let last = engine
        .put(format!("{PODS}/ns0/last"), pod("ns0/last", "", ""))
        .unwrap()
        .revision;
    let expected = engine_state(&engine, last);
    for (handle, running, follower) in informers {
        while handle
            .store()
            .revision()
            .is_none_or(|revision| revision < last)
        {
            fixture.clock.advance(Duration::from_secs(60));
            std::thread::yield_now();
        }
        assert_eq!(informer_state(&handle), expected, "seed {seed}");
        drop(running);
        assert_eq!(
            follower.join().unwrap(),
            expected,
            "a handler's copy, seed {seed}"
        );
    }
    // INV-2: the cache is what the engine is.
    fixture.settle();
    assert!(
        fixture
            .wait(fixture.pods.check_consistency())
            .unwrap()
            .is_consistent()
    );
}

#[test]
fn t_64_every_informer_ends_equal_to_the_engine() {
    for seed in 1..=8 {
        check(seed);
    }
}
