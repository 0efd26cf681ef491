//! T-02, T-22: gets.

use std::time::Duration;

use bytes::Bytes;
use revstore_watch_cache::api::{DeleteOptions, UpdateOptions};
use revstore_watch_cache::status::{CauseReason, Reason};
use revstore_watch_cache::{GetOptions, Object, ObjectRef, RequestError, Scope, WatchOptions};

use crate::support::{after, at, object, on_both, pod};

fn version(text: impl ToString) -> GetOptions {
    GetOptions::default().resource_version(text.to_string())
}

// Shows WC-210.
#[test]
fn t_02_a_get_returns_the_object_at_every_version_that_is_reached() {
    on_both(|fixture, store, _| {
        let first = fixture.put_pod("ns/a");
        let second = fixture.put("ns/a", pod("ns/a", "web", ""));
        fixture.wait_until_fresh();
        for requested in [
            String::new(),
            "0".into(),
            first.to_string(),
            second.to_string(),
        ] {
            let found = fixture
                .wait(store.get(&object("ns/a"), &version(&requested)))
                .unwrap();
            assert_eq!(found.unwrap().revision().0, second, "version {requested:?}");
            let missing = fixture
                .wait(store.get(&object("ns/b"), &version(&requested)))
                .unwrap();
            assert!(missing.is_none());
        }
    });
}

#[test]
fn wc_235_a_version_that_is_not_a_number_is_500_without_a_reason_for_a_get_and_a_watch() {
    on_both(|fixture, store, _| {
        for (text, reason) in [
            ("x", "invalid syntax"),
            ("-1", "invalid syntax"),
            ("1.5", "invalid syntax"),
            (" 1", "invalid syntax"),
            ("99999999999999999999", "value out of range"),
        ] {
            let key = object("ns/a");
            let got = fixture.wait(store.get(&key, &version(text)));
            let options = WatchOptions::default().resource_version(text);
            let watched = fixture.wait(store.watch(&Scope::All, &options));
            let message = format!(
                "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \
                 \"{text}\": {reason}"
            );
            for error in [got.err().unwrap(), watched.err().unwrap()] {
                let status = error.status();
                assert_eq!((status.code, status.reason), (500, None));
                assert_eq!(status.message, message);
                assert!(!status.to_json().contains("reason\":"));
            }
            // A list is a bad request.
            let listed = fixture.list(store, &Scope::All, &at(text)).unwrap_err();
            let message = format!("invalid resource version: {message}");
            assert_eq!((listed.code(), listed.to_string()), (400, message));
        }
        // The validation of other options comes first.
        let options = WatchOptions::default().resource_version("x");
        let options = options.resource_version_match("NotOlderThan");
        let watched = fixture.wait(store.watch(&Scope::All, &options));
        assert_eq!(watched.err().unwrap().code(), 422);
    });
}

// Shows WC-232.
#[test]
fn t_02_get_of_a_future_version_is_504() {
    on_both(|fixture, store, _| {
        let (key, future) = (object("ns/a"), version(1000));
        let get = store.get(&key, &future);
        let response = if fixture.is_in_process() {
            after(&fixture.clock, Duration::from_secs(3), get)
        } else {
            fixture.wait(get)
        };
        let error = response.unwrap_err();
        let current = fixture.current();
        assert_eq!(
            error.to_string(),
            format!("Timeout: Too large resource version: 1000, current: {current}")
        );
        let status = error.status();
        assert_eq!((status.code, status.reason), (504, Some(Reason::Timeout)));
        assert!(status.has_cause(&CauseReason::RESOURCE_VERSION_TOO_LARGE));
        assert_eq!(status.retry_after_seconds(), Some(1));
    });
}

#[test]
fn t_22_invalid_names_are_rejected_by_every_operation() {
    on_both(|fixture, store, _| {
        let is_bad_request = |error: RequestError| assert_eq!(error.code(), 400);
        for name in ["", "/", ".", "..", "a/../b"] {
            let (invalid, none) = (ObjectRef::namespaced("ns", name), DeleteOptions::default());
            is_bad_request(
                fixture
                    .wait(store.get(&invalid, &GetOptions::default()))
                    .unwrap_err(),
            );
            is_bad_request(
                fixture
                    .wait(store.create(&invalid, Bytes::new(), None))
                    .unwrap_err(),
            );
            is_bad_request(
                fixture
                    .wait(store.delete(&invalid, &none, Box::new(|_| Ok(()))))
                    .unwrap_err(),
            );
            let create = UpdateOptions::default().create_if_missing(true);
            let never = Box::new(|_: Option<&Object>| {
                panic!("the update function is called for an invalid name")
            });
            let update = store.guaranteed_update(&invalid, &create, never);
            is_bad_request(fixture.wait(update).unwrap_err());
            let scope = Scope::Namespace(name.into());
            is_bad_request(fixture.list(store, &scope, &at("")).unwrap_err());
            let watch = fixture.wait(store.watch(&scope, &Default::default()));
            is_bad_request(watch.err().unwrap());
        }
    });
}
