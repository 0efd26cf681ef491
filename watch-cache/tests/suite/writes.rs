//! T-01, T-03 to T-07, T-23: writes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use revstore_watch_cache::api::{
    DeleteOptions, Preconditions, Storage, Update, UpdateFn, UpdateOptions,
};
use revstore_watch_cache::{GetOptions, ListOptions, Object, RequestError, Scope};

use crate::support::{Fixture, PODS, Side, object, on_both, pod};

fn update<'a>(value: impl Into<Bytes>) -> UpdateFn<'a> {
    let value = value.into();
    Box::new(move |_| Ok(Update::new(value.clone())))
}

/// Returns the pod `ns/a` with a label.
fn pod_of(app: &str) -> String {
    pod("ns/a", app, "")
}

fn none() -> Preconditions {
    Preconditions::default()
}

#[test]
fn t_01_create_honors_the_time_to_live_and_fails_if_the_object_exists() {
    on_both(|fixture, store, _| {
        let (key, value) = (object("ns/a"), Bytes::from(pod("ns/a", "", "")));
        let made = fixture
            .wait(store.create(&key, value.clone(), None))
            .unwrap();
        assert_eq!(
            made.value(),
            &value[..],
            "stored without a resource version"
        );
        assert_eq!(made.revision().0, fixture.current());
        let twice = fixture
            .wait(store.create(&key, value.clone(), None))
            .unwrap_err();
        assert_eq!(
            (twice.code(), twice.to_string().as_str()),
            (409, "pods \"a\" already exists")
        );
        if fixture.engine.is_some() {
            let short = object("ns/short");
            let lifetime = Some(Duration::from_secs(5));
            fixture.wait(store.create(&short, value, lifetime)).unwrap();
            fixture.clock.advance(Duration::from_secs(4));
            let get = || {
                fixture
                    .wait(store.get(&short, &GetOptions::default()))
                    .unwrap()
            };
            assert!(get().is_some());
            fixture.clock.advance(Duration::from_secs(1));
            assert!(get().is_none());
        }
    });
}

#[test]
fn t_06_a_failed_precondition_of_an_update_has_the_text_of_the_store() {
    on_both(|fixture, store, _| {
        fixture.put_pod("ns/a");
        let options = UpdateOptions::default().preconditions(none().uid("other"));
        let key = object("ns/a");
        let updated = store.guaranteed_update(&key, &options, update(pod_of("web")));
        let error = fixture.wait(updated).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "Operation cannot be fulfilled on pods \"a\": StorageError: invalid object, Code: \
                 4, Key: {PODS}/ns/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
                 UID in precondition: other, UID in object meta: uid-a"
            )
        );
        assert_eq!(error.status().details.unwrap().kind, "pods");
    });
}

#[test]
fn wc_443_an_object_to_create_has_no_resource_version() {
    on_both(|fixture, store, _| {
        let create = |name: &str, version: &str| {
            let value =
                format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":{version}}}}}"#);
            let key = object(&format!("ns/{name}"));
            fixture.wait(store.create(&key, value.into(), None))
        };
        let status = create("a", "\"12\"").unwrap_err().status();
        assert_eq!((status.code, status.reason), (500, None));
        assert_eq!(
            status.message,
            "resourceVersion should not be set on objects to be created"
        );
        for (name, version) in [("a", "\"0\""), ("b", "\"\""), ("c", "null")] {
            create(name, version).unwrap();
        }
    });
}

#[test]
fn t_03_delete_checks_its_preconditions() {
    on_both(|fixture, store, _| {
        let written = fixture.put_pod("ns/a");
        fixture.wait_until_fresh();
        let delete = |preconditions: Preconditions| {
            let options = DeleteOptions::default().preconditions(preconditions);
            fixture.wait(store.delete(&object("ns/a"), &options, Box::new(|_| Ok(()))))
        };
        let uid = |uid: &str| none().uid(uid);
        let wrong = delete(uid("other")).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (other) does \
             not match the UID in record (uid-a). The object might have been deleted and then \
             recreated"
        );
        let details = wrong.status().details.unwrap();
        assert_eq!((&*details.name, &*details.kind), ("a", "Pod"));
        let version = |version: i64| none().resource_version(version.to_string());
        let stale = delete(version(written - 1)).unwrap_err();
        assert_eq!(
            (stale.code(), stale.to_string()),
            (
                409,
                format!(
                    "Operation cannot be fulfilled on Pod \"a\": the ResourceVersion in the \
                     precondition ({}) does not match the ResourceVersion in record ({written}). \
                     The object might have been modified",
                    written - 1
                )
            )
        );
        let deleted = delete(version(written)).unwrap();
        assert_eq!(
            deleted.revision().0,
            fixture.current(),
            "the revision of the deletion"
        );
        assert_eq!(deleted.name(), "a");
        let gone = delete(none()).unwrap_err();
        assert_eq!(
            (gone.code(), gone.to_string().as_str()),
            (404, "pods \"a\" not found")
        );
        fixture.put_pod("ns/a");
        assert!(delete(uid("uid-a")).is_ok());
    });
}

/// Returns a fixture with a second cache, whose feeder runs only when a test polls it.
fn stale() -> (Fixture, StaleCache) {
    let fixture = Fixture::new();
    let source = fixture.source.clone();
    let (cache, feeder) = revstore_watch_cache::WatchCache::builder(source)
        .clock(std::sync::Arc::new(fixture.clock.clone()))
        .build();
    let pods = cache.add(crate::support::config()).unwrap();
    (
        fixture,
        StaleCache {
            pods,
            feeder: Box::pin(feeder.run()),
        },
    )
}

/// A cache that lags until a test polls its feeder.
struct StaleCache {
    pods: revstore_watch_cache::ResourceCache,
    feeder: std::pin::Pin<Box<dyn std::future::Future<Output = ()>>>,
}

impl StaleCache {
    fn poll_feeder(&mut self) {
        assert!(crate::support::run_until_idle(&mut self.feeder).is_pending());
    }
}

// Shows WC-105.
#[test]
fn t_04_and_t_05_a_deletion_is_validated_again_with_the_fresh_version() {
    let (fixture, mut stale) = stale();
    let first = fixture.put("ns/a", pod("ns/a", "old", ""));
    fixture.put_pod("ns/gone");
    stale.poll_feeder();
    let second = fixture.put("ns/a", pod("ns/a", "new", ""));
    fixture.delete("ns/gone");
    let cached = fixture.wait(stale.pods.get(
        &object("ns/a"),
        &GetOptions::default().resource_version("0"),
    ));
    assert_eq!(
        cached.unwrap().unwrap().revision().0,
        first,
        "the cached version is stale"
    );

    let app_is = |wanted: &'static str| {
        move |pod: &Object| match pod.label("app") {
            Some(app) if app == wanted => Ok(()),
            _ => Err(RequestError::Internal("rejected".into())),
        }
    };
    let delete = |key: &str, preconditions: &Preconditions, wanted| {
        let options = DeleteOptions::default().preconditions(preconditions.clone());
        let key = object(key);
        let validate = Box::new(app_is(wanted));
        let deletion = stale.pods.delete(&key, &options, validate);
        fixture.wait(deletion)
    };
    let rejected = delete("ns/a", &none(), "old").unwrap_err();
    assert_eq!(
        rejected.code(),
        500,
        "validation succeeds for the stale version only"
    );
    assert_eq!(delete("ns/gone", &none(), "new").unwrap_err().code(), 404);
    let version = none().resource_version(second.to_string());
    let deleted = delete("ns/a", &version, "new").unwrap();
    assert_eq!(
        deleted.label("app"),
        Some("new"),
        "validation succeeds for the fresh version only"
    );
}

#[test]
fn t_06_guaranteed_update_writes_only_changes_and_retries_after_a_concurrent_write() {
    on_both(|fixture, store, _| {
        let key = object("ns/a");
        let plain = UpdateOptions::default();
        let missing = fixture.wait(store.guaranteed_update(&key, &plain, update("{}")));
        assert_eq!(missing.unwrap_err().code(), 404);
        let create = UpdateOptions::default().create_if_missing(true);
        let one = pod("ns/a", "1", "");
        let made = fixture.wait(store.guaranteed_update(&key, &create, update(one.clone())));
        let made = made.unwrap().revision().0;
        fixture.wait_until_fresh();

        // An unchanged value creates no revision (WC-204).
        let same = fixture.wait(store.guaranteed_update(&key, &plain, update(one.clone())));
        assert_eq!(same.unwrap().revision().0, made);
        assert_eq!(fixture.current(), made);

        let failing = fixture.wait(store.guaranteed_update(
            &key,
            &plain,
            Box::new(|_| Err(RequestError::BadRequest("no".into()))),
        ));
        assert_eq!(failing.unwrap_err().code(), 400);
        let wrong = UpdateOptions::default().preconditions(none().uid("x"));
        let wrong = fixture.wait(store.guaranteed_update(&key, &wrong, update("{}")));
        assert_eq!(wrong.unwrap_err().code(), 409);

        // Another client writes while the update function runs.
        let (two, three) = (pod("ns/a", "2", ""), pod("ns/a", "3", ""));
        let (calls, is_raced) = (AtomicUsize::new(0), AtomicBool::new(false));
        let raced = store.guaranteed_update(
            &key,
            &plain,
            Box::new(|seen| {
                let call = calls.fetch_add(1, Ordering::Relaxed);
                let app = seen.unwrap().label("app").unwrap().to_owned();
                assert_eq!(
                    app,
                    if call == 0 { "1" } else { "2" },
                    "a retry gets the fresh version"
                );
                if call == 0 {
                    is_raced.store(fixture.put_meanwhile("ns/a", &two), Ordering::Relaxed);
                }
                Ok(Update::new(three.clone()))
            }),
        );
        let raced = fixture.wait(raced).unwrap();
        let expected = if is_raced.load(Ordering::Relaxed) {
            2
        } else {
            1
        };
        assert_eq!(
            (raced.label("app"), calls.load(Ordering::Relaxed)),
            (Some("3"), expected)
        );
    });
}

#[test]
fn t_05_a_deletion_validates_the_new_version_after_a_concurrent_write() {
    on_both(|fixture, store, _| {
        if !fixture.is_in_process() {
            return;
        }
        for (wants_version, code) in [(false, None), (true, Some(409))] {
            let written = fixture.put_pod("ns/a");
            fixture.wait_until_fresh();
            let preconditions = if wants_version {
                none().resource_version(written.to_string())
            } else {
                none()
            };
            let seen = Mutex::new(Vec::new());
            let key = object("ns/a");
            let options = DeleteOptions::default().preconditions(preconditions);
            let deletion = store.delete(
                &key,
                &options,
                Box::new(|pod| {
                    let mut seen = seen.lock().unwrap();
                    seen.push(pod.revision().0);
                    if seen.len() == 1 {
                        fixture.put_meanwhile("ns/a", &pod_of("new"));
                    }
                    Ok(())
                }),
            );
            match (fixture.wait(deletion), code) {
                (Ok(deleted), None) => {
                    assert_eq!(deleted.label("app"), Some("new"));
                    assert_eq!(*seen.lock().unwrap(), [written, written + 1]);
                }
                (Err(error), Some(code)) => {
                    assert_eq!(error.code(), code);
                    assert_eq!(*seen.lock().unwrap(), [written], "no second attempt");
                }
                (outcome, _) => panic!("expected {code:?}, got {outcome:?}"),
            }
        }
    });
}

#[test]
fn t_06_the_update_function_runs_again_with_the_fresh_version() {
    let (fixture, mut stale) = stale();
    fixture.put("ns/a", pod_of("old"));
    stale.poll_feeder();
    let second = fixture.put("ns/a", pod_of("new"));
    let (key, plain) = (object("ns/a"), UpdateOptions::default());
    let write = |update| fixture.wait(stale.pods.guaranteed_update(&key, &plain, update));
    // The cached version equals the update, the stored one does not.
    let back = write(update(pod_of("old"))).unwrap();
    assert_eq!(back.revision().0, second + 1);
    // The cached version differs from the update, the stored one does not.
    fixture.put("ns/a", pod_of("new"));
    let same = write(update(pod_of("new"))).unwrap();
    assert_eq!(same.revision().0, second + 2);
    assert_eq!(
        fixture.current(),
        second + 2,
        "an unchanged value creates no revision"
    );
    // The function rejects the stale version only.
    let wants_new = |seen: Option<&Object>| match seen.and_then(|pod| pod.label("app")) {
        Some("new") => Ok(Update::new(pod_of("newer"))),
        _ => Err(RequestError::BadRequest("no".into())),
    };
    let written = write(Box::new(wants_new)).unwrap();
    assert_eq!(written.label("app"), Some("newer"));
}

#[test]
fn t_06_an_update_can_set_and_remove_the_time_to_live() {
    on_both(|fixture, store, _| {
        if fixture.engine.is_none() {
            return;
        }
        let (key, plain) = (object("ns/a"), UpdateOptions::default());
        fixture.put_pod("ns/a");
        let write = |app: &str, seconds: Option<u64>| {
            fixture.wait_until_fresh();
            let wanted = Update::new(pod_of(app)).time_to_live(seconds.map(Duration::from_secs));
            let update: UpdateFn<'_> = Box::new(move |_| Ok(wanted.clone()));
            let written = store.guaranteed_update(&key, &plain, update);
            fixture.wait(written).unwrap();
        };
        let exists = || {
            let found = fixture.wait(store.get(&key, &GetOptions::default()));
            found.unwrap().is_some()
        };
        write("short", Some(5));
        fixture.clock.advance(Duration::from_secs(4));
        write("endless", None);
        fixture.clock.advance(Duration::from_secs(60));
        assert!(exists());
        write("short", Some(5));
        fixture.clock.advance(Duration::from_secs(5));
        assert!(!exists());
    });
}

#[test]
fn t_01_failed_writes_with_a_time_to_live_leave_a_shared_lease_at_most() {
    on_both(|fixture, store, _| {
        let Some(engine) = &fixture.engine else {
            return;
        };
        fixture.put_pod("ns/a");
        let key = object("ns/a");
        for (seconds, leases) in [(10, 0), (3600, 1), (3600, 1)] {
            let lifetime = Some(Duration::from_secs(seconds));
            let twice = store.create(&key, pod_of("").into(), lifetime);
            assert_eq!(fixture.wait(twice).unwrap_err().code(), 409);
            assert_eq!(engine.leases().len(), leases, "{seconds}");
        }
    });
}

#[test]
fn wc_409_objects_with_one_time_to_live_share_leases() {
    on_both(|fixture, store, _| {
        let Some(engine) = &fixture.engine else {
            return;
        };
        let create = |name: &str| {
            let lifetime = Some(Duration::from_secs(3600));
            let key = object(name);
            let created = store.create(&key, pod_of("").into(), lifetime);
            fixture.wait(created).unwrap();
        };
        let exists = |name: &str| {
            fixture.wait_until_fresh();
            let key = object(name);
            let found = fixture.wait(store.get(&key, &GetOptions::default()));
            found.unwrap().is_some()
        };
        // A source over a network does not know the clock of its store.
        let knows_clock = fixture.is_in_process();
        create("ns/a");
        if knows_clock {
            fixture.clock.advance(Duration::from_secs(59));
        }
        create("ns/b");
        assert_eq!(engine.leases().len(), 1);
        if knows_clock {
            // Each lives for its time, and at most a minute longer.
            fixture.clock.advance(Duration::from_secs(3600));
            assert!(exists("ns/a") && exists("ns/b"));
            create("ns/c");
            fixture.clock.advance(Duration::from_secs(1));
            assert!(!exists("ns/a") && !exists("ns/b"));
        } else {
            create("ns/c");
        }
        assert!(exists("ns/c"));
        // A lease that somebody has revoked is not used again.
        for lease in engine.leases() {
            engine.revoke(lease).unwrap();
        }
        create("ns/d");
        assert!(!exists("ns/c") && exists("ns/d"));
    });
}

#[test]
fn t_07_an_object_stored_in_another_form_is_rewritten_once() {
    on_both(|fixture, store, _| {
        let canonical = pod("ns/a", "", "");
        fixture.put("ns/a", canonical.replace(':', ": "));
        fixture.wait_until_fresh();
        let plain = UpdateOptions::default();
        let write = || {
            let key = object("ns/a");
            let written = store.guaranteed_update(&key, &plain, update(canonical.clone()));
            fixture.wait(written).unwrap().revision().0
        };
        let before = fixture.current();
        assert_eq!(write(), before + 1);
        fixture.wait_until_fresh();
        assert_eq!(write(), before + 1);
    });
}

#[test]
fn t_23_stats_follow_writes() {
    on_both(|fixture, store, side| {
        let count = || {
            fixture.wait_until_fresh();
            fixture.wait(store.stats()).unwrap().objects
        };
        assert_eq!(count(), 0);
        fixture.put_pod("ns/a");
        fixture.put_pod("ns/b");
        fixture.put_pod("ns/b");
        fixture.put_elsewhere();
        assert_eq!(count(), 2);
        let size = || {
            let list = fixture.wait(store.list(&Scope::All, &ListOptions::default()));
            let objects = list.unwrap().into_objects().unwrap();
            let bytes = objects
                .iter()
                .map(|pod| pod.key().len() + pod.value().len());
            bytes.sum::<usize>() as u64
        };
        let size_bytes = || fixture.wait(store.stats()).unwrap().size_bytes;
        // The raw store would have to read all objects.
        let is_known = side == Side::Cached;
        assert_eq!(size_bytes(), is_known.then(size));
        fixture.delete("ns/a");
        assert_eq!(count(), 1);
        assert_eq!(size_bytes(), is_known.then(size));
        assert_eq!(
            fixture.wait(store.current_revision()).unwrap().0,
            fixture.current()
        );
    });
}
