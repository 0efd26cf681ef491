//! T-57, T-58: invalid options, and the bodies of errors.

use revstore_watch_cache::api::{DeleteOptions, Storage as _};
use revstore_watch_cache::status::Reason;
use revstore_watch_cache::{ListOptions, RequestError, Scope, WatchOptions};

use crate::support::{Fixture, Side, on_both};

const SUPPORTED: &str = r#"supported values: "Exact", "NotOlderThan", """#;

fn check(error: &RequestError, expected: &[(&str, &str, &str)]) {
    let status = error.status();
    assert_eq!((status.code, status.reason), (422, Some(Reason::Invalid)));
    let details = status.details.unwrap();
    assert_eq!(
        (details.group.as_str(), details.kind.as_str()),
        ("meta.k8s.io", "ListOptions")
    );
    let causes: Vec<_> = details
        .causes
        .iter()
        .map(|cause| {
            (
                cause.field.as_str(),
                cause.reason.as_str(),
                cause.message.as_str(),
            )
        })
        .collect();
    assert_eq!(causes, expected);
    let bodies: Vec<_> = expected
        .iter()
        .map(|(field, _, body)| format!("{field}: {body}"))
        .collect();
    let body = if let [one] = &bodies[..] {
        one.clone()
    } else {
        format!("[{}]", bodies.join(", "))
    };
    assert_eq!(
        status.message,
        format!("ListOptions.meta.k8s.io \"\" is invalid: {body}")
    );
}

// Shows WC-230.
#[test]
fn t_57_invalid_list_options_return_422_with_their_causes() {
    const MATCH: &str = "resourceVersionMatch";
    const FORBIDDEN: &str = "FieldValueForbidden";
    on_both(|fixture, store, _| {
        let list = |version: &str, wanted: &str, token: &str, initial| {
            let options = ListOptions::default()
                .resource_version(version)
                .resource_version_match(wanted)
                .continue_token(token)
                .send_initial_events(initial);
            fixture.list(store, &Scope::All, &options).unwrap_err()
        };
        let no_version = (
            MATCH,
            FORBIDDEN,
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
        let with_continue = (
            MATCH,
            FORBIDDEN,
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        );
        check(&list("", "Exact", "", None), &[no_version]);
        check(&list("", "NotOlderThan", "", None), &[no_version]);
        check(&list("1", "NotOlderThan", "t", None), &[with_continue]);
        check(&list("", "Exact", "t", None), &[no_version, with_continue]);
        check(
            &list("1", "x", "", None),
            &[(
                MATCH,
                "FieldValueNotSupported",
                &format!("Unsupported value: \"x\": {SUPPORTED}"),
            )],
        );
        check(
            &list("0", "Exact", "", None),
            &[(
                MATCH,
                FORBIDDEN,
                "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            )],
        );
        check(
            &list("", "", "", Some(true)),
            &[(
                "sendInitialEvents",
                FORBIDDEN,
                "Forbidden: sendInitialEvents is forbidden for list",
            )],
        );
        assert_eq!(
            list("abc", "Exact", "", None).code(),
            400,
            "422 is checked before 400"
        );
        assert_eq!(list("", "Exact", "!", None).code(), 422);
    });
}

// Shows WC-230.
#[test]
fn t_57_invalid_watch_options_return_422_with_their_causes() {
    on_both(|fixture, store, _| {
        let watch = |wanted: &str, token: &str, initial| {
            let options = WatchOptions::default()
                .resource_version("1")
                .resource_version_match(wanted)
                .continue_token(token)
                .send_initial_events(initial);
            fixture
                .wait(store.watch(&Scope::All, &options))
                .err()
                .unwrap()
        };
        let field = "resourceVersionMatch";
        let forbidden = |body: &'static str| (field, "FieldValueForbidden", body);
        let requires = forbidden(
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
        let unless = forbidden(
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
             provided",
        );
        let unsupported = (
            field,
            "FieldValueNotSupported",
            "Unsupported value: \"Exact\": supported values: \"NotOlderThan\"",
        );
        let with_continue =
            forbidden("Forbidden: resourceVersionMatch is forbidden when continue is provided");
        check(&watch("", "", Some(true)), &[requires]);
        check(&watch("", "", Some(false)), &[requires]);
        check(&watch("NotOlderThan", "", None), &[unless]);
        check(&watch("Exact", "", Some(true)), &[requires, unsupported]);
        check(&watch("NotOlderThan", "t", Some(true)), &[with_continue]);
        // WC-310: without `sendInitialEvents` and a version the same defaults apply.
        for version in ["", "0"] {
            let options = WatchOptions::default().resource_version(version);
            let options = options.continue_token("t");
            let watched = store.watch(&Scope::All, &options);
            check(&fixture.wait(watched).err().unwrap(), &[with_continue]);
        }
        let options = WatchOptions::default().resource_version("1");
        let options = options.continue_token("t");
        assert!(fixture.wait(store.watch(&Scope::All, &options)).is_ok());
    });
}

#[test]
fn t_58_write_errors_have_the_status_bodies_of_kubernetes() {
    use revstore_watch_cache::api::Conflict;
    use revstore_watch_cache::status::ResourceName;
    let resource = ResourceName::new("", "pods");
    let name = || "p1".to_owned();
    let body = |error: RequestError| error.status().to_json();
    assert_eq!(
        body(RequestError::NotFound {
            resource: resource.clone(),
            name: name()
        }),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"p1\" not found","reason":"NotFound","details":{"name":"p1","kind":"pods"},"code":404}"#
    );
    assert_eq!(
        body(RequestError::AlreadyExists {
            resource: resource.clone(),
            name: name()
        }),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"p1\" already exists","reason":"AlreadyExists","details":{"name":"p1","kind":"pods"},"code":409}"#
    );
    assert_eq!(
        body(RequestError::Conflict {
            resource,
            name: name(),
            reason: Box::new(Conflict::Modified)
        }),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Operation cannot be fulfilled on pods \"p1\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"p1","kind":"pods"},"code":409}"#
    );
    let fixture = Fixture::new();
    assert!(fixture.store(Side::Cached).is_ready() && fixture.store(Side::Raw).is_ready());
}

#[test]
fn the_longest_timeout_of_a_query_is_honoured() {
    use futures_util::{FutureExt as _, StreamExt as _};
    use revstore_watch_cache::api::{CollectionOptions, Query};
    on_both(|fixture, store, _| {
        let query = Query::parse("watch&timeoutSeconds=9223372036854775807&resourceVersion=1");
        let Ok(CollectionOptions::Watch(options)) = CollectionOptions::from_query(&query) else {
            panic!("the query is a watch");
        };
        let mut events = fixture.wait(store.watch(&Scope::All, &options)).unwrap();
        fixture.put_pod("default/a");
        assert!(fixture.wait(events.next()).is_some());
        assert!(events.next().now_or_never().is_none());
    });
}

#[test]
fn wc_320_a_resource_needs_an_api_version_and_a_kind() {
    use revstore_watch_cache::{JsonKind, ResourceConfig, WatchCache};
    let fixture = Fixture::new();
    let (cache, _feeder) = WatchCache::builder(fixture.source).build();
    for (version, kind) in [("", "Widget"), ("example.org/v1", "")] {
        let kind = JsonKind::new(version, kind);
        let widgets = ResourceConfig::namespaced(kind, "widgets", "/registry/widgets");
        let error = cache.add(widgets).unwrap_err();
        assert_eq!(error.code(), 400);
    }
}

#[test]
fn wc_320_bookmarks_and_errors_of_a_resource_have_the_group_of_its_kind() {
    use revstore_watch_cache::{GetOptions, JsonKind, ObjectRef, ResourceConfig, Revision};
    use revstore_watch_cache::{WatchCache, WatchEvent};
    let fixture = Fixture::new();
    let (cache, feeder) = WatchCache::builder(fixture.source.clone()).build();
    let kind = JsonKind::new("example.org/v1", "Widget");
    let widgets = ResourceConfig::namespaced(kind, "widgets", "/registry/widgets");
    let widgets = cache.add(widgets).unwrap();
    let _running = feeder.spawn();
    fixture.wait(widgets.wait_until_ready()).unwrap();
    let bookmark = widgets.encode(&WatchEvent::Bookmark {
        revision: Revision(7),
        initial_events_end: false,
    });
    assert_eq!(
        std::str::from_utf8(&bookmark).unwrap(),
        "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Widget\",\"apiVersion\":\
         \"example.org/v1\",\"metadata\":{\"resourceVersion\":\"7\"}}}\n"
    );
    let name = ObjectRef::namespaced("ns", "a");
    let got = fixture.wait(widgets.get(&name, &GetOptions::default()));
    assert!(got.unwrap().is_none());
    let options = DeleteOptions::default();
    let deleted = fixture.wait(widgets.delete(&name, &options, Box::new(|_| Ok(()))));
    let error = deleted.unwrap_err();
    assert_eq!(error.to_string(), "widgets.example.org \"a\" not found");
}
