//! The rules for creates, updates and deletions that all resources have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use pollster::block_on;
use revstore_engine::{Engine, ManualClock};
use revstore_watch_cache::api::Preconditions;
use revstore_watch_cache::registry::{
    DeleteRequest, Deleted, JsonObject, ObjectStore, Propagation, Strategy, TypedStrategy,
    WriteRequest,
};
use revstore_watch_cache::source::RawStore;
use revstore_watch_cache::status::{Reason, ResourceName, Status, StatusCause};
use revstore_watch_cache::{EngineSource, JsonKind, ObjectRef, RequestError, ResourceConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Widgets with a size, which is 1 by default and never negative, and a status.
#[derive(Clone, Copy, Debug, Default)]
struct Widgets {
    creates_on_update: bool,
    unconditional: bool,
    no_generation: bool,
    /// The default grace period in seconds.
    grace: i64,
}

impl Strategy for Widgets {
    fn api_version(&self) -> &'static str {
        "e.com/v1"
    }

    fn kind(&self) -> &'static str {
        "Widget"
    }

    fn has_generation(&self) -> bool {
        !self.no_generation
    }

    fn allows_unconditional_update(&self) -> bool {
        self.unconditional
    }

    fn creates_on_update(&self) -> bool {
        self.creates_on_update
    }

    fn grace_period_seconds(&self, _: &JsonObject, requested: Option<i64>) -> i64 {
        requested.unwrap_or(self.grace)
    }

    fn prepare_create(&self, object: &mut JsonObject) -> Result<(), RequestError> {
        object.entry("spec").or_insert_with(|| json!({"size": 1}));
        Ok(())
    }

    fn validate_create(&self, object: &JsonObject) -> Vec<StatusCause> {
        match object["spec"]["size"].as_i64() {
            Some(..0) => vec![StatusCause::invalid(
                "spec.size",
                -1,
                "must not be negative",
            )],
            _ => Vec::new(),
        }
    }
}

struct Fixture {
    engine: Engine,
    clock: ManualClock,
    store: ObjectStore,
}

impl Fixture {
    fn new(strategy: impl Strategy) -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        let store = store(&engine, &clock, strategy);
        Self {
            engine,
            clock,
            store,
        }
    }

    fn create(&self, object: Value) -> Result<JsonObject, RequestError> {
        let request = WriteRequest::default();
        block_on(self.store.create("ns", object_of(object), &request))
    }

    fn update(&self, name: &str, object: Value) -> Result<JsonObject, RequestError> {
        let (object, request) = (object_of(object), WriteRequest::default());
        let name = widget(name);
        let written = self.store.update(&name, object, &request);
        block_on(written).map(|written| written.object)
    }

    /// Changes the current version.
    fn patch(
        &self,
        name: &str,
        change: impl Fn(&mut Value) + Send + Sync,
    ) -> Result<JsonObject, RequestError> {
        let change = |old: Option<&JsonObject>| {
            let mut new = Value::Object(old.cloned().unwrap_or_default());
            change(&mut new);
            Ok(object_of(new))
        };
        let request = WriteRequest::default();
        let name = widget(name);
        let written = self.store.update_with(&name, &request, change);
        block_on(written).map(|written| written.object)
    }

    fn delete(&self, name: &str, request: &DeleteRequest) -> Result<Deleted, RequestError> {
        block_on(self.store.delete(&widget(name), request))
    }

    fn stored(&self, name: &str) -> Option<Value> {
        let kv = self.engine.get(format!("/widgets/ns/{name}"))?;
        Some(serde_json::from_slice(kv.value()).unwrap())
    }
}

fn store(engine: &Engine, clock: &ManualClock, strategy: impl Strategy) -> ObjectStore {
    let kind = JsonKind::new("e.com/v1", "Widget");
    let config = ResourceConfig::namespaced(kind, "widgets", "/widgets");
    let source = Arc::new(EngineSource::new(engine.clone()));
    let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let name = ResourceName::new("e.com", "widgets");
    ObjectStore::new(
        RawStore::new(source, config, Arc::new(clock.clone())),
        name,
        true,
        strategy,
    )
    .clock(Arc::new(clock.clone()), epoch)
    .seed(7)
}

fn object_of(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is not an object"),
    }
}

fn widget(name: &str) -> ObjectRef {
    ObjectRef::namespaced("ns", name)
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn status(result: Result<impl std::fmt::Debug, RequestError>) -> Status {
    result.unwrap_err().status()
}

fn refused(result: Result<impl std::fmt::Debug, RequestError>, code: u16, text: &str) {
    let status = status(result);
    assert_eq!((status.code, status.message.as_str()), (code, text));
}

// Shows WC-413.
#[test]
fn wc_440_a_create_sets_the_fields_of_the_server() {
    let fixture = Fixture::new(Widgets::default());
    fixture.clock.advance(Duration::from_millis(1_500));
    let created = fixture
        .create(json!({
            "apiVersion": "e.com/v1",
            "kind": "Widget",
            "metadata": {
                "name": "a", "uid": "mine", "generation": 77, "selfLink": "/x", "resourceVersion": "0",
                "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z",
            },
        }))
        .unwrap();
    let uid = created["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!((uid.len(), &uid[14..15]), (36, "4"), "{uid}");
    let revision = fixture.engine.current_revision().0.to_string();
    let expected = json!({
        "apiVersion": "e.com/v1",
        "kind": "Widget",
        "metadata": {
            "name": "a", "namespace": "ns", "uid": uid, "generation": 1, "resourceVersion": revision,
            "creationTimestamp": "2023-11-14T22:13:21Z",
        },
        "spec": {"size": 1},
    });
    assert_eq!(Value::Object(created), expected);
    let stored = fixture.stored("a").unwrap();
    assert_eq!(stored["metadata"].get("resourceVersion"), None, "WC-202");
    let error = fixture.create(named("a"));
    refused(error, 409, "widgets.e.com \"a\" already exists");
}

#[test]
fn wc_442_a_kind_without_generation_keeps_that_of_the_client() {
    let fixture = Fixture::new(Widgets {
        no_generation: true,
        unconditional: true,
        ..Widgets::default()
    });
    let metadata = json!({"name": "a", "generation": 77});
    let created = fixture.create(json!({"metadata": metadata})).unwrap();
    assert_eq!(created["metadata"]["generation"], 77);
    let mut changed = named("a");
    changed["spec"] = json!({"size": 2});
    let updated = fixture.update("a", changed).unwrap();
    assert_eq!(updated["metadata"]["generation"], 77);
}

// Shows WC-445.
#[test]
fn wc_413_objects_that_do_not_fit_the_request_are_refused() {
    let fixture = Fixture::new(Widgets::default());
    let create = |object: Value| fixture.create(object);
    let mismatch =
        "the namespace of the provided object does not match the namespace sent on the request";
    refused(
        create(json!({"metadata": {"name": "a", "namespace": "other"}})),
        400,
        mismatch,
    );
    let foreign = status(create(
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
    ));
    assert_eq!(foreign.code, 400);
    assert!(
        foreign
            .message
            .starts_with("Secret in version \"v1\" cannot be handled as a Widget: ")
    );
    refused(
        create(json!({"metadata": {"name": "a", "resourceVersion": "12"}})),
        500,
        "resourceVersion should not be set on objects to be created",
    );
    refused(
        create(json!({"metadata": {}})),
        422,
        "Widget.e.com \"\" is invalid: metadata.name: Required value: name or generateName is required",
    );
    for name in [
        "Upper",
        "under_score",
        "-a",
        "a/b",
        "..",
        "a%b",
        "",
        "é",
        &"x".repeat(254),
    ] {
        let status = status(create(json!({"metadata": {"name": name}})));
        assert_eq!(
            (status.code, status.reason),
            (422, Some(Reason::Invalid)),
            "{name}"
        );
        let details = status.details.unwrap();
        assert_eq!((&*details.kind, &*details.group), ("Widget", "e.com"));
        assert_eq!(details.causes[0].field, "metadata.name");
    }
    for (field, value) in [
        ("generateName", json!("Bad_")),
        ("labels", json!({"a b": "c"})),
        ("labels", json!({"a": "-"})),
        ("labels", json!({"a": 1})),
        ("labels", json!([])),
        ("annotations", json!({"a/b/c": ""})),
        ("annotations", json!({"a": "x".repeat(262_144)})),
        ("finalizers", json!(["a b"])),
        ("finalizers", json!(["orphan", "foregroundDeletion"])),
        ("finalizers", json!("orphan")),
        ("generation", json!("1")),
        (
            "ownerReferences",
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p"}]),
        ),
        ("ownerReferences", json!(["p"])),
        (
            "ownerReferences",
            json!([
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true},
                {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "2", "controller": true},
            ]),
        ),
    ] {
        let mut object = named("a");
        object["metadata"][field] = value.clone();
        let fixture = Fixture::new(Widgets {
            no_generation: true,
            ..Widgets::default()
        });
        let status = status(fixture.create(object));
        assert_eq!(status.code, 422, "{field}: {value}");
        let causes = status.details.unwrap().causes;
        assert!(
            causes[0].field.starts_with(&format!("metadata.{field}")),
            "{causes:?}"
        );
        assert_eq!(fixture.stored("a"), None);
    }
    refused(
        create(json!({"metadata": {"name": "a"}, "spec": {"size": -1}})),
        422,
        "Widget.e.com \"a\" is invalid: spec.size: Invalid value: -1: must not be negative",
    );
    // Metadata that is not an object is as good as none.
    assert_eq!(status(create(json!({"metadata": [1]}))).code, 422);
    assert_eq!(status(create(json!({}))).code, 422);
}

/// An answer with a cause for each of a million labels would be larger than all that a server may keep of a request.
#[test]
fn an_answer_has_a_bounded_number_of_causes() {
    let fixture = Fixture::new(Widgets::default());
    let mut labelled = named("a");
    let labels: JsonObject = (0..50_000).map(|n| (format!("{n} "), json!(""))).collect();
    labelled["metadata"]["labels"] = labels.into();
    let mut controlled = named("a");
    let owner = |n: u32| json!({"controller": true, "uid": "u", "name": format!("o{n}"), "kind": "A", "apiVersion": "v1"});
    controlled["metadata"]["ownerReferences"] = (0..20_000).map(owner).collect();
    for (object, expected) in [(labelled, 1000), (controlled, 1)] {
        let status = status(fixture.create(object));
        assert_eq!(status.code, 422);
        assert_eq!(status.details.unwrap().causes.len(), expected);
    }
}

#[test]
fn events_own_nothing() {
    let fixture = Fixture::new(Widgets::default());
    let mut object = named("a");
    object["metadata"]["ownerReferences"] = json!([
        {"kind": "Event", "name": "e", "uid": "u", "apiVersion": "events.k8s.io/v1"},
        {"kind": "Event", "name": "e", "uid": "u", "apiVersion": "v1"},
    ]);
    let causes = status(fixture.create(object)).details.unwrap().causes;
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert_eq!(causes[0].field, "metadata.ownerReferences");
    assert_eq!(
        causes[0].message,
        "Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\"uid\":\"u\"}: /v1, Kind=Event is \
         disallowed from being an owner"
    );
}

#[test]
fn several_controllers_are_named_in_the_order_of_their_fields() {
    let fixture = Fixture::new(Widgets::default());
    let mut object = named("a");
    let owner = |n: u32| json!({"controller": true, "uid": "u", "name": format!("o{n}"), "kind": "A", "apiVersion": "v1"});
    object["metadata"]["ownerReferences"] = (0..3).map(owner).collect();
    let causes = status(fixture.create(object)).details.unwrap().causes;
    let found: Vec<_> = causes
        .iter()
        .map(|cause| cause.message.rsplit_once(": ").unwrap().1)
        .collect();
    let text = "Only one reference can have Controller set to true. Found \"true\" in references for A/o0 and A/o";
    assert_eq!(found, [format!("{text}1"), format!("{text}2")]);
    assert!(causes[0].message.starts_with(
        "Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"A\",\"name\":\"o0\",\"uid\":\"u\",\"controller\":true},"
    ));
}

#[test]
fn wc_413_generated_names_are_tried_again_if_they_exist() {
    let fixture = Fixture::new(Widgets::default());
    let generate = |prefix: &str| {
        let created = fixture.create(json!({"metadata": {"generateName": prefix}}));
        created.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
    };
    let name = generate("w-").unwrap();
    assert!(name.starts_with("w-") && name.len() == 7, "{name}");
    assert_ne!(generate("w-").unwrap(), name);
    let long = generate(&"x".repeat(100)).unwrap();
    assert_eq!(long.len(), 63);
    // Another store with the same seed generates the same names, which exist.
    let again = store(&fixture.engine, &fixture.clock, Widgets::default());
    let object = object_of(json!({"metadata": {"generateName": "w-"}}));
    let created = block_on(again.create("ns", object, &WriteRequest::default())).unwrap();
    assert_ne!(created["metadata"]["name"], name);
}

// Shows WC-441 and WC-442.
#[test]
fn wc_414_updates_have_the_rules_of_kubernetes() {
    let fixture = Fixture::new(Widgets::default());
    let created = fixture.create(named("a")).unwrap();
    let with = |field: &str, value: Value| {
        let mut object = Value::Object(created.clone());
        object["metadata"][field] = value;
        object
    };
    refused(
        fixture.update("a", with("name", json!("b"))),
        400,
        "the name of the object (b) does not match the name on the URL (a)",
    );
    refused(
        fixture.update("a", with("name", json!(""))),
        400,
        "the name of the object (a based on URL) was undeterminable: name must be provided",
    );
    // Also if the object of the request does not exist.
    refused(
        fixture.update("b", with("name", json!("a"))),
        400,
        "the name of the object (a) does not match the name on the URL (b)",
    );
    refused(
        fixture.update("b", with("name", json!("b"))),
        404,
        "widgets.e.com \"b\" not found",
    );
    for version in ["", "0"] {
        refused(
            fixture.update("a", with("resourceVersion", json!(version))),
            422,
            "widgets.e.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
             specified for an update",
        );
    }
    assert_eq!(
        status(fixture.update("a", with("resourceVersion", json!("abc")))).code,
        500
    );
    refused(
        fixture.update("a", with("resourceVersion", json!("1000"))),
        409,
        "Operation cannot be fulfilled on widgets.e.com \"a\": the object has been modified; please \
         apply your changes to the latest version and try again",
    );
    assert_eq!(
        status(fixture.update("a", with("uid", json!("other")))).code,
        409
    );
    // In a patch, a foreign uid is an invalid field.
    for (field, value) in [
        ("uid", json!("other")),
        ("deletionTimestamp", json!("2001-01-01T00:00:00Z")),
        ("deletionGracePeriodSeconds", json!(3)),
    ] {
        let error = fixture.patch("a", |object| object["metadata"][field] = value.clone());
        let status = status(error);
        assert_eq!((status.code, status.reason), (422, Some(Reason::Invalid)));
        assert_eq!(
            status.details.unwrap().causes[0].field,
            format!("metadata.{field}")
        );
    }
    // These are restored, so that nothing changes and nothing is written.
    let before = fixture.engine.current_revision();
    for (field, value) in [
        ("creationTimestamp", json!("2001-01-01T00:00:00Z")),
        ("generation", json!(9)),
        ("uid", Value::Null),
    ] {
        assert_eq!(fixture.update("a", with(field, value)).unwrap(), created);
    }
    assert_eq!(fixture.engine.current_revision(), before);
    // A change of the metadata or the status is not a new generation.
    let labelled = fixture
        .update("a", with("labels", json!({"x": "y"})))
        .unwrap();
    assert_eq!(labelled["metadata"]["generation"], 1);
    let patched = fixture
        .patch("a", |object| object["status"] = json!({"ready": true}))
        .unwrap();
    assert_eq!(patched["metadata"]["generation"], 1);
    let patched = fixture
        .patch("a", |object| object["spec"]["size"] = json!(2))
        .unwrap();
    assert_eq!(patched["metadata"]["generation"], 2);
    assert_eq!(patched["metadata"]["labels"]["x"], "y");
    let stale = fixture.update("a", with("labels", json!({})));
    assert_eq!(status(stale).reason, Some(Reason::Conflict));
}

#[test]
fn wc_414_an_update_creates_where_the_resource_allows_it() {
    let fixture = Fixture::new(Widgets {
        creates_on_update: true,
        unconditional: true,
        ..Widgets::default()
    });
    let (request, dry) = (
        WriteRequest::default(),
        WriteRequest::default().dry_run(true),
    );
    let update = |request| {
        block_on(
            fixture
                .store
                .update(&widget("a"), object_of(named("a")), request),
        )
        .unwrap()
    };
    let before = fixture.engine.current_revision();
    assert!(update(&dry).created);
    assert_eq!(
        (fixture.engine.current_revision(), fixture.stored("a")),
        (before, None)
    );
    let first = update(&request);
    assert!(first.created);
    assert_eq!(first.object["metadata"]["generation"], 1);
    assert!(!update(&request).created);
}

#[test]
fn wc_420_a_dry_run_checks_and_writes_nothing() {
    let fixture = Fixture::new(Widgets::default());
    let dry = WriteRequest::default().dry_run(true);
    let create = |object| block_on(fixture.store.create("ns", object_of(object), &dry));
    let before = fixture.engine.current_revision();
    let created = create(named("a")).unwrap();
    assert_eq!(created["metadata"].get("resourceVersion"), None);
    // As in kube-apiserver, where only the storage refuses a resource version.
    let mut versioned = named("a");
    versioned["metadata"]["resourceVersion"] = json!("5");
    let created = create(versioned).unwrap();
    assert_eq!(created["metadata"]["resourceVersion"], "5");
    assert_eq!(
        (fixture.engine.current_revision(), fixture.stored("a")),
        (before, None)
    );
    fixture.create(named("a")).unwrap();
    assert_eq!(
        status(create(named("a"))).reason,
        Some(Reason::AlreadyExists)
    );
    let before = fixture.engine.current_revision();
    let change = |_: Option<&JsonObject>| Ok(object_of(named("x")));
    let error = block_on(fixture.store.update_with(&widget("a"), &dry, change));
    assert_eq!(status(error).code, 400);
    let gone = fixture.delete("a", &DeleteRequest::default().dry_run(true));
    assert!(matches!(gone, Ok(Deleted::Removed(_))));
    assert_eq!(fixture.engine.current_revision(), before);
    assert!(fixture.stored("a").is_some());
}

#[test]
fn wc_447_finalizers_hold_an_object_until_the_last_is_removed() {
    let fixture = Fixture::new(Widgets::default());
    let metadata = json!({"name": "a", "finalizers": ["e.com/f", "e.com/g"]});
    fixture.create(json!({"metadata": metadata})).unwrap();
    fixture.clock.advance(Duration::from_secs(1));
    let Deleted::Terminating(held) = fixture.delete("a", &DeleteRequest::default()).unwrap() else {
        panic!("finalizers hold the object");
    };
    assert_eq!(
        held["metadata"]["deletionTimestamp"],
        "2023-11-14T22:13:21Z"
    );
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(held["metadata"]["generation"], 2);
    fixture.clock.advance(Duration::from_secs(60));
    let again = fixture.delete("a", &DeleteRequest::default()).unwrap();
    assert_eq!(
        again,
        Deleted::Terminating(held.clone()),
        "a second deletion changes nothing"
    );
    let added = fixture.patch("a", |object| {
        object["metadata"]["finalizers"] = json!(["e.com/f", "e.com/g", "e.com/h"]);
    });
    refused(
        added,
        422,
        "Widget.e.com \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added \
         if the object is being deleted, found new finalizers []string{\"e.com/h\"}",
    );
    let kept = fixture.patch("a", |object| {
        object["metadata"]["deletionTimestamp"] = Value::Null;
        object["metadata"]["deletionGracePeriodSeconds"] = Value::Null;
    });
    assert_eq!(kept.unwrap(), held, "the deletion cannot be taken back");
    let one = fixture
        .patch("a", |object| {
            object["metadata"]["finalizers"] = json!(["e.com/g"]);
        })
        .unwrap();
    assert_eq!(one["metadata"]["generation"], 2);
    let last = fixture
        .patch("a", |object| {
            object_metadata(object).remove("finalizers");
        })
        .unwrap();
    assert_eq!(
        last["metadata"]["resourceVersion"],
        one["metadata"]["resourceVersion"]
    );
    assert_eq!(last["metadata"].get("finalizers"), None);
    assert_eq!(fixture.stored("a"), None);
    refused(
        fixture.delete("a", &DeleteRequest::default()),
        404,
        "widgets.e.com \"a\" not found",
    );
    assert!(fixture.create(named("a")).is_ok());
}

fn object_metadata(object: &mut Value) -> &mut JsonObject {
    object["metadata"].as_object_mut().unwrap()
}

#[test]
fn wc_419_preconditions_and_propagation_of_a_deletion() {
    let fixture = Fixture::new(Widgets::default());
    let created = fixture.create(named("a")).unwrap();
    let (uid, version) = (
        created["metadata"]["uid"].as_str().unwrap(),
        created["metadata"]["resourceVersion"].as_str().unwrap(),
    );
    let with = |conditions| DeleteRequest::default().preconditions(conditions);
    refused(
        fixture.delete("a", &with(Preconditions::default().uid("x"))),
        409,
        &format!(
            "Operation cannot be fulfilled on Widget.e.com \"a\": the UID in the precondition (x) does \
             not match the UID in record ({uid}). The object might have been deleted and then recreated"
        ),
    );
    refused(
        fixture.delete("a", &with(Preconditions::default().resource_version("1"))),
        409,
        &format!(
            "Operation cannot be fulfilled on Widget.e.com \"a\": the ResourceVersion in the \
             precondition (1) does not match the ResourceVersion in record ({version}). The object \
             might have been modified"
        ),
    );
    for (propagation, finalizer) in [
        (Propagation::Foreground, "foregroundDeletion"),
        (Propagation::Orphan, "orphan"),
    ] {
        let request = DeleteRequest::default().propagation(propagation);
        let Ok(Deleted::Terminating(held)) = fixture.delete("a", &request) else {
            panic!("the finalizer holds the object");
        };
        assert_eq!(held["metadata"]["finalizers"], json!([finalizer]));
        assert_eq!(held["metadata"]["generation"], 2);
    }
    let request = DeleteRequest::default().propagation(Propagation::Background);
    assert!(matches!(
        fixture.delete("a", &request),
        Ok(Deleted::Removed(_))
    ));
    assert_eq!(fixture.stored("a"), None);
    fixture.create(named("b")).unwrap();
    let uid = fixture.stored("b").unwrap()["metadata"]["uid"].clone();
    let request = with(Preconditions::default().uid(uid.as_str().unwrap()));
    assert!(matches!(
        fixture.delete("b", &request),
        Ok(Deleted::Removed(_))
    ));
}

#[test]
fn wc_448_a_grace_period_can_only_be_shortened() {
    let fixture = Fixture::new(Widgets {
        grace: 30,
        ..Widgets::default()
    });
    fixture.create(named("a")).unwrap();
    let delete = |seconds: Option<i64>| {
        let request = DeleteRequest::default().grace_period_seconds(seconds);
        fixture.delete("a", &request).unwrap()
    };
    let Deleted::Terminating(first) = delete(None) else {
        panic!("the grace period holds the object");
    };
    assert_eq!(
        first["metadata"]["deletionTimestamp"],
        "2023-11-14T22:13:50Z"
    );
    assert_eq!(first["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(delete(Some(30)), Deleted::Terminating(first.clone()));
    assert_eq!(delete(Some(60)), Deleted::Terminating(first.clone()));
    let Deleted::Terminating(shorter) = delete(Some(5)) else {
        panic!("the grace period holds the object");
    };
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let changed = fixture.patch("a", |object| object["status"] = json!({}));
    assert!(changed.is_ok() && fixture.stored("a").is_some());
    let before = fixture.engine.current_revision().0;
    let Deleted::Removed(last) = delete(Some(0)) else {
        panic!("nothing holds the object");
    };
    assert_eq!(last["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(
        fixture.engine.current_revision().0,
        before + 2,
        "MODIFIED, then DELETED"
    );
    assert_eq!(fixture.stored("a"), None);
}

#[test]
fn writers_that_race_lose_no_update_and_leave_no_finalized_object() {
    const ROUNDS: u64 = 200;
    let fixture = Fixture::new(Widgets {
        unconditional: true,
        ..Widgets::default()
    });
    fixture.create(named("counter")).unwrap();
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        let counters: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let counted = fixture.patch("counter", |object| {
                            let size = object["spec"]["size"].as_u64().unwrap();
                            object["spec"]["size"] = json!(size + 1);
                        });
                        counted.unwrap();
                    }
                })
            })
            .collect();
        // One thread creates and deletes an object with a finalizer; another removes the finalizer.
        scope.spawn(|| {
            while !finished.load(Ordering::Acquire) {
                let _ = fixture.patch("held", |object| {
                    object_metadata(object).remove("finalizers");
                });
            }
        });
        for _ in 0..ROUNDS {
            let metadata = json!({"name": "held", "finalizers": ["e.com/f"]});
            match fixture.create(json!({"metadata": metadata})) {
                Ok(_) | Err(RequestError::AlreadyExists { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            match fixture.delete("held", &DeleteRequest::default()) {
                Ok(_) | Err(RequestError::NotFound { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            if let Some(stored) = fixture.stored("held") {
                let held = stored["metadata"].get("finalizers").is_some();
                let terminating = stored["metadata"].get("deletionTimestamp").is_some();
                assert!(held || !terminating, "{stored}");
            }
        }
        for counter in counters {
            counter.join().unwrap();
        }
        finished.store(true, Ordering::Release);
    });
    assert_eq!(
        fixture.stored("counter").unwrap()["spec"]["size"],
        3 * ROUNDS + 1
    );
}

#[derive(Serialize, Deserialize)]
struct Gadget {
    #[serde(default)]
    spec: GadgetSpec,
}

#[derive(Default, Serialize, Deserialize)]
struct GadgetSpec {
    #[serde(default)]
    size: u32,
}

#[test]
fn a_typed_resource_is_pruned_defaulted_and_validated() {
    let fixture = Fixture::new(
        TypedStrategy::<Gadget>::new("e.com/v1", "Gadget")
            .default_with(|gadget| gadget.spec.size = gadget.spec.size.max(1))
            .validate_with(|gadget, old| match old {
                Some(old) if gadget.spec.size < old.spec.size => {
                    vec![StatusCause::invalid(
                        "spec.size",
                        gadget.spec.size,
                        "must not shrink",
                    )]
                }
                _ => Vec::new(),
            }),
    );
    let created = fixture
        .create(json!({"metadata": {"name": "a"}, "spec": {"size": 0, "nope": 1}, "nope": 2}))
        .unwrap();
    assert_eq!(
        (&created["spec"], created.get("nope")),
        (&json!({"size": 1}), None)
    );
    assert_eq!(created["metadata"]["generation"], 1);
    let grown = fixture
        .patch("a", |object| object["spec"]["size"] = json!(3))
        .unwrap();
    assert_eq!(grown["metadata"]["generation"], 2);
    refused(
        fixture.patch("a", |object| object["spec"]["size"] = json!(2)),
        422,
        "Gadget.e.com \"a\" is invalid: spec.size: Invalid value: 2: must not shrink",
    );
    let undecodable = status(fixture.patch("a", |object| object["spec"] = json!("x")));
    assert_eq!(undecodable.code, 400);
    let prefix = "Gadget in version \"v1\" cannot be handled as a Gadget: ";
    assert!(
        undecodable.message.starts_with(prefix),
        "{}",
        undecodable.message
    );
}

#[test]
fn a_corrupt_object_is_neither_updated_nor_deleted() {
    let fixture = Fixture::new(Widgets::default());
    fixture.engine.put("/widgets/ns/a", "not JSON").unwrap();
    let patched = fixture.patch("a", |_| {});
    assert!(
        matches!(patched, Err(RequestError::Corrupt(_))),
        "{patched:?}"
    );
    let deleted = fixture.delete("a", &DeleteRequest::default());
    assert!(
        matches!(deleted, Err(RequestError::Corrupt(_))),
        "{deleted:?}"
    );
    assert!(fixture.engine.get("/widgets/ns/a").is_some());
}
