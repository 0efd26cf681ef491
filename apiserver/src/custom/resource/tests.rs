//! Custom resources in a store, as recorded from kube-apiserver.

use std::any::Any;
use std::sync::Arc;

use pollster::block_on;
use revstore_engine::Engine;
use revstore_watch_cache::api::GetOptions;
use revstore_watch_cache::registry::{JsonObject, ObjectStore, Strategy, WriteRequest};
use revstore_watch_cache::status::ResourceName;
use revstore_watch_cache::{
    EngineSource, JsonKind, ObjectRef, RequestError, ResourceCache, ResourceConfig, WatchCache,
};
use serde_json::{Value, json};

use super::{CustomResource, CustomStatus, PresentedStorage};
use crate::custom::definition::Definition;

pub(crate) fn object(value: Value) -> JsonObject {
    serde_json::from_value(value).expect("it is an object")
}

/// Returns a definition of widgets with versions.
fn definition(versions: &Value) -> Definition {
    let definition = object(json!({
        "metadata": {"name": "widgets.example.com", "generation": 1},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}},
    }));
    Definition::parse(&definition).unwrap()
}

/// A store of widgets.
struct Widgets {
    cache: ResourceCache,
    _caches: WatchCache,
    _feeder: Box<dyn Any>,
}

impl Widgets {
    fn new() -> Self {
        let source = Arc::new(EngineSource::new(Engine::builder().build()));
        let (caches, feeder) = WatchCache::builder(source).build();
        let kind = JsonKind::new("example.com/v1", "Widget");
        let cache = caches
            .add(ResourceConfig::namespaced(kind, "widgets", "/widgets"))
            .unwrap();
        let spawned = feeder.spawn();
        block_on(cache.wait_until_ready()).unwrap();
        Self {
            cache,
            _caches: caches,
            _feeder: Box::new(spawned),
        }
    }

    fn store(&self, resource: &CustomResource, strategy: impl Strategy) -> ObjectStore {
        ObjectStore::new(
            PresentedStorage::new(self.cache.clone(), resource.clone()),
            ResourceName::new("example.com", "widgets"),
            true,
            strategy,
        )
    }

    fn create(&self, resource: &CustomResource, widget: Value) -> Result<JsonObject, RequestError> {
        let store = self.store(resource, resource.clone());
        block_on(store.create("default", object(widget), &WriteRequest::default()))
    }

    /// Returns the widget `a` as it is stored.
    fn stored(&self) -> Value {
        let reference = ObjectRef::namespaced("default", "a");
        let found = block_on(self.cache.get(&reference, &GetOptions::default()));
        serde_json::from_slice(found.unwrap().unwrap().value()).unwrap()
    }

    /// Changes the widget `a` as clients of a version see it.
    fn change(
        &self,
        resource: &CustomResource,
        strategy: impl Strategy,
        change: impl Fn(&mut Value) + Send + Sync,
    ) -> Result<JsonObject, RequestError> {
        let reference = ObjectRef {
            namespace: Some("default".into()),
            name: "a".into(),
        };
        let store = self.store(resource, strategy);
        let request = WriteRequest::default();
        let written = store.update_with(&reference, &request, |old| {
            let mut current = Value::Object(old.cloned().unwrap_or_default());
            change(&mut current);
            Ok(object(current))
        });
        block_on(written).map(|written| written.object)
    }
}

fn resource(definition: &Arc<Definition>, version: &str) -> CustomResource {
    CustomResource::new(
        definition.clone(),
        definition.version(version).unwrap().clone(),
    )
}

fn open_schema() -> Value {
    json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})
}

#[test]
fn objects_of_all_versions_are_stored_in_one() {
    let definition = Arc::new(definition(&json!([
        {"name": "v1", "served": true, "storage": true, "schema": open_schema()},
        {"name": "v2", "served": true, "storage": false, "schema": open_schema()},
    ])));
    let (v1, v2) = (resource(&definition, "v1"), resource(&definition, "v2"));
    let served: Vec<_> = definition
        .served_versions()
        .iter()
        .map(|version| version.name.clone())
        .collect();
    assert_eq!(served, ["v2", "v1"]);
    let widgets = Widgets::new();
    let widget = json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"x": 1}});
    let created = widgets.create(&v2, widget.clone()).unwrap();
    assert_eq!(created["apiVersion"], "example.com/v2");
    assert_eq!(widgets.stored()["apiVersion"], "example.com/v1");
    let changed = widgets
        .change(&v2, v2.clone(), |widget| widget["spec"]["x"] = json!(3))
        .unwrap();
    assert_eq!(
        (&changed["apiVersion"], &changed["metadata"]["generation"]),
        (&json!("example.com/v2"), &json!(2))
    );
    assert_eq!(widgets.stored()["apiVersion"], "example.com/v1");
    let error = widgets.create(&v1, widget).unwrap_err();
    assert_eq!(error.code(), 400, "{error}");
}

#[test]
fn unknown_fields_are_removed_and_named() {
    let definition = Arc::new(definition(
        &json!([{"name": "v1", "served": true, "storage": true, "schema":
        {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "known": {"type": "string"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "emb": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}}}}}}}]),
    ));
    let v1 = resource(&definition, "v1");
    let widget = json!({"kind": "Widget", "metadata": {"name": "a", "odd": 1}, "spec": {"known": "1", "unknown": "2",
        "free": {"any": {"thing": 1.0}}, "emb": {"apiVersion": "v1", "kind": "X",
            "metadata": {"name": "n", "zzz": 1}, "data": 1}}, "top": 1});
    let unknown = v1.admit(&mut object(widget.clone())).unwrap();
    assert_eq!(
        unknown,
        [
            "metadata.odd",
            "spec.unknown",
            "top",
            "spec.emb.metadata.zzz"
        ]
    );
    let stored = Widgets::new().create(&v1, widget).unwrap();
    assert_eq!(
        stored["spec"],
        json!({"known": "1", "free": {"any": {"thing": 1}},
        "emb": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "data": 1}})
    );
    assert_eq!(stored.get("top"), None);
    let error = v1
        .admit(&mut object(json!({"metadata": {"name": 1}})))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal \
        number into Go struct field ObjectMeta.name of type string"
    );
}

#[test]
fn a_status_with_a_resource_of_its_own_is_isolated() {
    let version = |subresources: Value| {
        json!([{"name": "v1", "served": true, "storage": true, "subresources": subresources, "schema":
            {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}, "status": {"type": "object", "properties":
                {"phase": {"type": "string", "maxLength": 5}}}}}}}])
    };
    let widget = json!({"metadata": {"name": "a"}, "spec": {}, "status": {"phase": "x"}});
    let with_status = resource(&Arc::new(definition(&version(json!({"status": {}})))), "v1");
    let widgets = Widgets::new();
    let created = widgets.create(&with_status, widget.clone()).unwrap();
    assert_eq!(created.get("status"), None);
    let changed = widgets
        .change(&with_status, with_status.clone(), |widget| {
            widget["status"] = json!({"phase": "y"});
            widget["spec"] = json!({"a": 1});
        })
        .unwrap();
    assert_eq!(
        (changed.get("status"), &changed["metadata"]["generation"]),
        (None, &json!(2))
    );
    let status = || CustomStatus(with_status.clone());
    let changed = widgets
        .change(&with_status, status(), |widget| {
            widget["status"] = json!({"phase": "y"});
            widget["spec"] = json!({"a": 2});
            widget["metadata"]["labels"] = json!({"a": "b"});
        })
        .unwrap();
    assert_eq!(
        (&changed["status"], &changed["spec"]),
        (&json!({"phase": "y"}), &json!({"a": 1}))
    );
    assert_eq!(
        (
            changed["metadata"].get("labels"),
            &changed["metadata"]["generation"]
        ),
        (None, &json!(2))
    );
    let error = widgets
        .change(&with_status, status(), |widget| {
            widget["status"] = json!({"phase": "too long"});
        })
        .unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("status.phase: Too long: may not be more than 5 bytes"),
        "{error}"
    );

    let without = resource(&Arc::new(definition(&version(json!({})))), "v1");
    let widgets = Widgets::new();
    assert_eq!(
        widgets.create(&without, widget).unwrap()["status"],
        json!({"phase": "x"})
    );
    let changed = widgets.change(&without, without.clone(), |widget| {
        widget["status"] = json!({"phase": "y"});
    });
    assert_eq!(changed.unwrap()["metadata"]["generation"], 2);
}

#[test]
fn scales_are_written_by_updates_of_their_objects() {
    let definition = Arc::new(definition(
        &json!([{"name": "v1", "served": true, "storage": true,
        "subresources": {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.ready"}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties":
            {"size": {"type": "integer", "minimum": 0}}}}}}}]),
    ));
    let v1 = resource(&definition, "v1");
    let widgets = Widgets::new();
    widgets
        .create(&v1, json!({"metadata": {"name": "a"}, "spec": {"size": 2}}))
        .unwrap();
    let scaled = |replicas: i64| {
        widgets.change(&v1, v1.clone(), |widget| {
            let mut changed = object(widget.take());
            let scale = object(json!({"spec": {"replicas": replicas}}));
            v1.version()
                .scale
                .as_ref()
                .unwrap()
                .apply(&mut changed, &scale)
                .unwrap();
            *widget = Value::Object(changed);
        })
    };
    assert_eq!(scaled(4).unwrap()["spec"], json!({"size": 4}));
    assert_eq!(
        scaled(-1).unwrap_err().to_string(),
        "Widget.example.com \"a\" is invalid: [spec.size: Invalid value: -1: spec.size in body should be greater \
         than or equal to 0, .spec.size: Invalid value: -1: should be a non-negative integer]"
    );
}

#[test]
fn new_defaults_are_read_and_do_not_raise_the_generation() {
    let version = |properties: Value| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
            "default": {}, "properties": properties}}}});
        let version = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
        resource(&Arc::new(definition(&version)), "v1")
    };
    let widgets = Widgets::new();
    let before = version(json!({"old": {"type": "integer"}}));
    let mut stored = widgets
        .create(
            &before,
            json!({"metadata": {"name": "a"}, "spec": {"old": 1}}),
        )
        .unwrap();
    let after = version(json!({"new": {"type": "integer", "default": 5}}));
    after.present(&mut stored).unwrap();
    assert_eq!(stored["spec"], json!({"new": 5}));
    let touched = widgets.change(&after, after.clone(), |widget| {
        widget["metadata"]["labels"] = json!({"a": "b"});
    });
    assert_eq!(touched.unwrap()["metadata"]["generation"], 1);
}

#[test]
fn creates_are_refused_while_the_definition_terminates() {
    let mut definition = definition(
        &json!([{"name": "v1", "served": true, "storage": true, "schema": open_schema()}]),
    );
    definition.terminating = true;
    let v1 = resource(&Arc::new(definition), "v1");
    let error = Widgets::new()
        .create(&v1, json!({"metadata": {"name": "b"}}))
        .unwrap_err();
    assert_eq!(error.code(), 403);
    assert_eq!(
        error.to_string(),
        "widgets.example.com \"b\" is forbidden: create not allowed while custom resource \
        definition is terminating"
    );
}

#[test]
fn deprecated_versions_have_a_warning() {
    let definition = definition(&json!([
        {"name": "v1beta1", "served": true, "deprecated": true, "schema": open_schema()},
        {"name": "v1beta2", "served": true, "deprecated": true, "deprecationWarning": "use v1"},
        {"name": "v1", "served": true, "storage": true, "schema": open_schema()},
    ]));
    let warning = |name: &str| definition.version(name).unwrap().deprecation.clone();
    let expected = "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget";
    assert_eq!(warning("v1beta1").as_deref(), Some(expected));
    assert_eq!(warning("v1beta2").as_deref(), Some("use v1"));
    assert_eq!(warning("v1"), None);
}
