//! T-34, WC-205: corrupt objects, which cannot be decoded.

use std::sync::atomic::{AtomicBool, Ordering};

use revstore_watch_cache::api::{CorruptObject, DeleteOptions, Preconditions, Storage};
use revstore_watch_cache::status::{CauseReason, Reason, Status};
use revstore_watch_cache::{
    GetOptions, ListOptions, Object, RequestError, Scope, WatchEvent, WatchOptions,
};

use crate::support::{Fixture, PODS, Page, from, namespace, object, on_both, pod, selector};

/// The text with which the values of corrupt objects fail.
const REASON: &str = "expected value at line 1 column 1";

/// The option that deletes corrupt objects, in errors.
const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true";

/// Writes an object that cannot be decoded.
fn corrupt(fixture: &Fixture, key: &str) -> i64 {
    let object = object(key);
    let created = fixture.raw.create(&object, "corrupt".into(), None);
    fixture.wait(created).unwrap().revision().0
}

/// Returns what an error says of a corrupt object.
fn named(key: &str, revision: i64) -> String {
    format!(
        "StorageError: corrupt object, Code: 7, Key: {PODS}/{key}, ResourceVersion: 0, \
         AdditionalErrorMsg: object not decodable revision={revision}: {REASON}"
    )
}

fn delete(
    fixture: &Fixture,
    store: &dyn Storage,
    key: &str,
    options: &DeleteOptions,
) -> Result<Object, RequestError> {
    fixture.wait(store.delete(&object(key), options, Box::new(|_| Ok(()))))
}

fn deliberately() -> DeleteOptions {
    DeleteOptions::default().ignore_store_read_error(true)
}

fn fields(status: &Status) -> (u16, &str, &str) {
    let reason = status.reason.map_or("", Reason::name);
    (status.code, reason, &status.message)
}

#[test]
fn a_reader_can_leave_corrupt_objects_out() {
    on_both(|fixture, store, _| {
        fixture.put("ns/a", pod("ns/a", "", "n1"));
        corrupt(fixture, "ns/b");
        fixture.put("ns/c", pod("ns/c", "", "n1"));
        fixture.wait_until_fresh();
        let list = || {
            let listed = fixture.wait(store.list(&Scope::All, &ListOptions::default()));
            listed.unwrap().items
        };
        assert!(list().any(|object| object.is_err()));
        let names = list()
            .readable()
            .map(|object| object.unwrap().name().to_owned());
        assert_eq!(names.collect::<Vec<_>>(), ["a", "c"]);
    });
}

#[test]
fn t_34_a_corrupt_object_does_not_end_watches_whose_name_or_namespace_excludes_it() {
    on_both(|fixture, store, _| {
        let start = fixture.put_elsewhere();
        fixture.wait_until_fresh();
        let watch = |scope: &Scope, fields: &str| {
            let options = from(start).selector(selector("", fields));
            fixture.watch(store, scope, &options)
        };
        let mut others = [
            watch(&Scope::All, "metadata.name=a"),
            watch(&Scope::All, "metadata.name!=b"),
            watch(&Scope::All, "metadata.namespace=ns,metadata.name=a"),
            watch(&Scope::All, "metadata.name=a,spec.nodeName=n1"),
            watch(&namespace("ns"), "metadata.name=a"),
            watch(&Scope::Object(object("ns/a")), ""),
        ];
        let mut concerned = [
            watch(&Scope::All, "metadata.name=b"),
            watch(&Scope::All, "metadata.name!=a"),
            watch(&Scope::All, "spec.nodeName=n1"),
            watch(&Scope::Object(object("ns/b")), ""),
        ];
        let revision = corrupt(fixture, "ns/b");
        let made = fixture.put("ns/a", pod("ns/a", "", "n1"));
        for (number, watch) in others.iter_mut().enumerate() {
            assert_eq!(watch.word(), format!("ADDED ns/a@{made}"), "{number}");
        }
        let error = format!(
            "ERROR 500 Internal error occurred: {}",
            named("ns/b", revision)
        );
        for watch in &mut concerned {
            assert_eq!(watch.words(2), [&error, "end"]);
        }
        // Initial objects.
        fixture.wait_until_fresh();
        let initial = |fields: &str| {
            let options = WatchOptions::default().selector(selector("", fields));
            fixture.watch(store, &Scope::All, &options).word()
        };
        assert_eq!(initial("metadata.name!=b"), format!("ADDED ns/a@{made}"));
        assert!(initial("metadata.name!=a").starts_with("ERROR 500 "));
        // Its deletion, too, concerns the same watches only.
        let start = fixture.current();
        let watch = |fields: &str| {
            let options = from(start).selector(selector("", fields));
            fixture.watch(store, &Scope::All, &options)
        };
        let (mut other, mut concerned) = (watch("metadata.name=a"), watch("metadata.name=b"));
        delete(fixture, store, "ns/b", &deliberately()).unwrap();
        let Some(WatchEvent::Error(error)) = concerned.next() else {
            panic!("expected an error")
        };
        assert_eq!(
            fields(&error.status()),
            (
                500,
                "StorageReadError",
                &*format!(
                    "saw a DELETED event, but object data is corrupt - object not decodable \
                     revision={revision}: {REASON}"
                )
            )
        );
        assert_eq!(
            &*error.status().details.unwrap().causes[0].field,
            format!("{PODS}/ns/b")
        );
        let made = fixture.put("ns/a", pod("ns/a", "", "n2"));
        assert_eq!(other.word(), format!("MODIFIED ns/a@{made}"));
    });
}

#[test]
fn t_34_lists_name_the_corrupt_objects_that_they_select_and_no_others() {
    on_both(|fixture, store, _| {
        let good = fixture.put("ns/a", pod("ns/a", "", "n1"));
        let revisions: Vec<_> = (0..120)
            .map(|number| corrupt(fixture, &format!("ns/p{number:03}")))
            .collect();
        fixture.wait_until_fresh();
        let list = |options: ListOptions, fields: &str| {
            let options = options.selector(selector("", fields));
            fixture.list(store, &Scope::All, &options)
        };
        for limit in [0, 1, 500] {
            let plain = || ListOptions::default().limit(limit);
            let items = |page: Page| page.items;
            let excluded = list(plain(), "metadata.name=a").map(items);
            assert_eq!(excluded, Ok(vec![format!("ns/a@{good}")]), "limit {limit}");
            let one = list(plain(), "metadata.name=p007").unwrap_err();
            let status = one.status();
            let message = "failed to read one or more pods from the storage";
            assert_eq!(fields(&status), (500, "StorageReadError", message));
            let details = status.details.as_ref().unwrap();
            assert_eq!((&*details.name, &*details.kind), ("list", "pods"));
            let cause = &details.causes[0];
            assert_eq!(
                (cause.reason.as_str(), &*cause.field, &cause.message),
                (
                    "UnexpectedServerResponse",
                    &*format!("{PODS}/ns/p007"),
                    &named("ns/p007", revisions[7])
                )
            );
            assert_eq!(details.causes.len(), 1);
            // The error names at most 100 of them.
            let all = list(plain(), "metadata.name!=a").unwrap_err();
            let causes = all.status().details.unwrap().causes;
            assert_eq!(causes.len(), 101);
            assert_eq!(causes[100].reason, CauseReason::TOO_MANY);
        }
        let get = |version: &str| {
            let options = GetOptions::default().resource_version(version);
            fixture.wait(store.get(&object("ns/p007"), &options))
        };
        for version in ["", "0"] {
            let error = get(version).unwrap_err();
            let message = format!(
                "Internal error occurred: {}",
                named("ns/p007", revisions[7])
            );
            assert_eq!(fields(&error.status()), (500, "InternalError", &*message));
            let RequestError::Corrupt(found) = error else {
                panic!("expected an error about a corrupt object")
            };
            let CorruptObject { revision, .. } = *found;
            assert_eq!(revision.0, revisions[7]);
        }
    });
}

#[test]
fn wc_205_a_corrupt_object_can_be_deleted_deliberately_only() {
    on_both(|fixture, store, _| {
        let revision = corrupt(fixture, "ns/b");
        fixture.put_pod("ns/a");
        fixture.wait_until_fresh();
        let message = format!("Internal error occurred: {}", named("ns/b", revision));
        let refused = delete(fixture, store, "ns/b", &DeleteOptions::default()).unwrap_err();
        assert_eq!(
            (refused.code(), refused.to_string()),
            (500, message.clone())
        );
        let update = fixture.wait(store.guaranteed_update(
            &object("ns/b"),
            &Default::default(),
            Box::new(|_| panic!("there is no object to update")),
        ));
        assert_eq!(update.unwrap_err().to_string(), message);

        let invalid = |key: &str, options: &DeleteOptions| {
            let error = delete(fixture, store, key, options).unwrap_err();
            assert!(error.status().has_cause(&CauseReason::INVALID));
            (error.code(), error.to_string())
        };
        for name in ["a", "missing"] {
            assert_eq!(
                invalid(&format!("ns/{name}"), &deliberately()),
                (
                    422,
                    format!(
                        "pods \"{name}\" is invalid: {OPTION}: is exclusively used to delete corrupt \
                         object(s), try again by removing this option"
                    )
                )
            );
        }
        let uid = Preconditions::default().uid("u");
        assert_eq!(
            invalid("ns/b", &deliberately().preconditions(uid)),
            (
                422,
                format!(
                    "DeleteOptions.meta.k8s.io \"\" is invalid: {OPTION}: cannot be set together \
                     with .preconditions"
                )
            )
        );
        // The validation is not skipped.
        let rejected = fixture.wait(store.delete(
            &object("ns/b"),
            &deliberately(),
            Box::new(|_| Err(RequestError::BadRequest("rejected".into()))),
        ));
        assert_eq!(rejected.unwrap_err().code(), 400);

        let deleted = delete(fixture, store, "ns/b", &deliberately()).unwrap();
        assert!(deleted.decode_error().is_some());
        assert_eq!(deleted.revision().0, fixture.current());
        fixture.wait_until_fresh();
        let listed = fixture.list(store, &Scope::All, &ListOptions::default());
        assert_eq!(listed.unwrap().items.len(), 1);
        fixture.put_pod("ns/b");
    });
}

#[test]
fn wc_205_an_object_that_became_readable_meanwhile_is_not_deleted_deliberately() {
    on_both(|fixture, store, _| {
        corrupt(fixture, "ns/b");
        fixture.wait_until_fresh();
        let repaired = pod("ns/b", "", "n1");
        let is_repaired = AtomicBool::new(false);
        let repair = |_: &Object| {
            let done = fixture.put_meanwhile("ns/b", &repaired);
            is_repaired.store(done, Ordering::Relaxed);
            Ok(())
        };
        let object = object("ns/b");
        let options = deliberately();
        let deleted = fixture.wait(store.delete(&object, &options, Box::new(repair)));
        if is_repaired.load(Ordering::Relaxed) {
            assert_eq!(deleted.unwrap_err().code(), 422);
        }
    });
}
