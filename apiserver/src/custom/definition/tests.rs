//! Definitions in a store, as recorded from kube-apiserver.

use std::any::Any;
use std::sync::Arc;

use pollster::block_on;
use revstore_engine::Engine;
use revstore_watch_cache::api::Preconditions;
use revstore_watch_cache::registry::{
    DeleteRequest, Deleted, JsonObject, ObjectStore, Strategy, WriteRequest,
};
use revstore_watch_cache::status::ResourceName;
use revstore_watch_cache::{
    EngineSource, GetOptions, JsonKind, ObjectRef, RequestError, ResourceCache, ResourceConfig,
    WatchCache,
};
use serde_json::{Value, json};

use super::{
    API_VERSION, Definition, DefinitionStatus, DefinitionStores, Definitions, GROUP, Instances,
    KIND, PLURAL, Progress, accept_names, begin_deletion, establish, finish_deletion,
};
use crate::custom::resource::CustomResource;

const NAME: &str = "widgets.example.com";
const NOW: &str = "2026-01-01T00:00:00Z";

/// A server's caches and stores.
struct Server {
    caches: WatchCache,
    definitions: ResourceCache,
    store: ObjectStore,
    status: ObjectStore,
    _feeder: Box<dyn Any>,
}

impl Server {
    fn new() -> Self {
        let source = Arc::new(EngineSource::new(Engine::builder().build()));
        let (caches, feeder) = WatchCache::builder(source).build();
        let kind = JsonKind::new(API_VERSION, KIND);
        let config = ResourceConfig::cluster(kind, PLURAL, "/definitions");
        let definitions = caches.add(config).unwrap();
        let spawned = feeder.spawn();
        block_on(definitions.wait_until_ready()).unwrap();
        let resource = ResourceName::new(GROUP, PLURAL);
        Self {
            store: ObjectStore::new(definitions.clone(), resource.clone(), false, Definitions),
            status: ObjectStore::new(definitions.clone(), resource, false, DefinitionStatus),
            caches,
            definitions,
            _feeder: Box::new(spawned),
        }
    }

    fn create(&self, definition: Value) -> Result<JsonObject, RequestError> {
        let definition = serde_json::from_value(definition).unwrap();
        block_on(self.store.create("", definition, &WriteRequest::default()))
    }

    fn change(
        &self,
        change: impl Fn(&mut Value) + Send + Sync,
    ) -> Result<JsonObject, RequestError> {
        let request = WriteRequest::default();
        let reference = ObjectRef::cluster(NAME);
        let written = self.store.update_with(&reference, &request, |current| {
            let mut definition = json!(current);
            change(&mut definition);
            Ok(serde_json::from_value(definition).unwrap())
        });
        block_on(written).map(|written| written.object)
    }

    /// Returns the stored definition.
    fn definition(&self) -> Option<JsonObject> {
        let object = block_on(
            self.definitions
                .get(&ObjectRef::cluster(NAME), &GetOptions::default()),
        )
        .unwrap();
        object.map(|object| serde_json::from_slice(object.value()).unwrap())
    }

    fn write_status(&self, definition: &JsonObject) {
        let request = WriteRequest::default();
        let reference = ObjectRef::cluster(NAME);
        let written = self.status.update_with(&reference, &request, |current| {
            let mut new = definition.clone();
            new["metadata"]["resourceVersion"] =
                current.unwrap()["metadata"]["resourceVersion"].clone();
            Ok(new)
        });
        block_on(written).unwrap();
    }
}

fn widgets() -> Value {
    json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": NAME}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

/// Returns the causes by which a definition is refused that differs from a valid one.
fn refused(change: impl Fn(&mut Value)) -> String {
    let mut definition = widgets();
    change(&mut definition["spec"]);
    let error = Server::new().create(definition).unwrap_err();
    let text = error.to_string();
    let prefix =
        "CustomResourceDefinition.apiextensions.k8s.io \"widgets.example.com\" is invalid: ";
    text.strip_prefix(prefix).unwrap_or(&text).to_owned()
}

#[test]
fn a_definition_gets_defaults_and_an_empty_status() {
    let created = Server::new().create(widgets()).unwrap();
    let mut spec = widgets()["spec"].clone();
    spec["names"] = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    spec["conversion"] = json!({"strategy": "None"});
    assert_eq!(created["spec"], spec);
    assert_eq!(
        created["status"],
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": ["v1"]})
    );
    assert_eq!(created["metadata"]["generation"], 1);
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn definitions_are_refused_with_the_causes_of_kubernetes() {
    let schema = |schema: Value| {
        move |spec: &mut Value| spec["versions"][0]["schema"]["openAPIV3Schema"] = schema.clone()
    };
    let selectable = |fields: Value| {
        move |spec: &mut Value| {
            spec["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec":
                {"type": "object", "properties": {"color": {"type": "string"}, "tags": {"type": "array", "items":
                {"type": "string"}}}}}});
            spec["versions"][0]["selectableFields"] = fields.clone();
        }
    };
    let second = json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema":
        {"type": "object", "properties": {"a": {"type": "nosuch"}}}}});
    let one_of = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
        formats are allowed.";
    for (found, expected) in [
        (
            refused(schema(
                json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}}),
            )),
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified \
             object fields",
        ),
        // Rules are not compiled while defaults are wrong.
        (
            refused(schema(json!({"type": "object", "properties": {
                "a": {"type": "integer", "default": 5, "x-kubernetes-validations": [{"rule": "self < 5"}]},
                "b": {"type": "integer", "x-kubernetes-validations": [{"rule": "self <"}]},
            }}))),
            "spec.validation.openAPIV3Schema.properties[a].default: Invalid value: 5: failed rule: self < 5",
        ),
        (
            refused(schema(
                json!({"type": "object", "properties": {"a": {"type": "nosuch"}}}),
            )),
            "spec.validation.openAPIV3Schema.properties[a].type: Unsupported value: \"nosuch\": supported values: \
             \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ),
        (
            refused(|spec| {
                spec["versions"]
                    .as_array_mut()
                    .unwrap()
                    .push(second.clone());
            }),
            "spec.versions[1].schema.openAPIV3Schema.properties[a].type: Unsupported value: \"nosuch\": supported \
             values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ),
        (
            refused(selectable(json!([{"jsonPath": ".spec.nope"}]))),
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.nope\": is an invalid path: does not refer to \
             a valid field",
        ),
        (
            refused(selectable(json!([{"jsonPath": ".spec.tags"}]))),
            &format!("spec.selectableFields[0].jsonPath: Invalid value: \".spec.tags\": {one_of}"),
        ),
        (
            refused(selectable(json!([{"jsonPath": ".spec"}]))),
            &format!("spec.selectableFields[0].jsonPath: Invalid value: \".spec\": {one_of}"),
        ),
        (
            refused(selectable(
                json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.color"}]),
            )),
            "spec.selectableFields[1].jsonPath: Duplicate value: \".spec.color\"",
        ),
        (
            refused(selectable(json!([{"jsonPath": "spec.color"}]))),
            "spec.selectableFields[0].jsonPath: Invalid value: \"spec.color\": is an invalid path: expected [ or . \
             but got: spec",
        ),
        (
            refused(selectable(json!([{"jsonPath": ".metadata.name"}]))),
            "spec.selectableFields[0].jsonPath: Invalid value: \".metadata.name\": is an invalid path: does not \
             refer to a valid field",
        ),
        (
            refused(|spec| spec["scope"] = json!("World")),
            "spec.scope: Unsupported value: \"World\": supported values: \"Cluster\", \"Namespaced\"",
        ),
        (
            refused(|spec| {
                spec["versions"][0]["subresources"] = json!({"scale": {"specReplicasPath": ".status.a",
            "statusReplicasPath": ".status.b"}});
            }),
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.a\": should be a json path under \
             .spec",
        ),
        (
            refused(|spec| {
                spec["versions"][0]["additionalPrinterColumns"] = json!([{"name": "A", "type": "text",
            "jsonPath": "a"}]);
            }),
            "[spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of \
             boolean,date,integer,number,string, spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"a\": \
             must be a simple json path starting with .]",
        ),
        (
            refused(|spec| spec["versions"][0]["deprecationWarning"] = json!("x")),
            "spec.versions[0].deprecationWarning: Invalid value: \"x\": can only be set for deprecated versions",
        ),
        (
            refused(|spec| spec["preserveUnknownFields"] = json!(true)),
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set \
             x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ),
        (
            refused(|spec| spec["names"]["listKind"] = json!("Widget")),
            "spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same",
        ),
        (
            refused(|spec| spec["conversion"] = json!({"strategy": "Webhook"})),
            "[spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook, \
             spec.conversion.conversionReviewVersions: Required value]",
        ),
        (
            refused(schema(
                json!({"type": "object", "properties": {"a": {"type": "string", "$schema": "x"}}}),
            )),
            "spec.validation.openAPIV3Schema: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported",
        ),
        (
            refused(schema(
                json!({"type": "object", "properties": {"a": {"type": "zz", "$schema": "x"}}}),
            )),
            "spec.validation.openAPIV3Schema.properties[a].type: Unsupported value: \"zz\": supported values: \
             \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ),
        (
            refused(|spec| spec["conversion"] = webhook("http://h/", "", &["v1", "v1", "A!"])),
            "[spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL \
             scheme; desired format: https://host[/path], spec.conversion.conversionReviewVersions[1]: Invalid value: \
             \"v1\": duplicate version, spec.conversion.conversionReviewVersions[2]: Invalid value: \"A!\": a \
             DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')]",
        ),
        (
            refused(|spec| spec["conversion"] = webhook("https://h/", "?", &["v1"])),
            "CustomResourceDefinition in version \"v1\" cannot be handled as a CustomResourceDefinition: illegal \
             base64 data at input byte 0",
        ),
        (
            refused(|spec| spec["group"] = json!("a.k8s.io")),
            "[metadata.name: Invalid value: \"widgets.example.com\": must be spec.names.plural+\".\"+spec.group, \
             metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval \
             annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111]",
        ),
    ] {
        assert_eq!(found, expected);
    }
    let storage = refused(|spec| spec["versions"][0]["storage"] = json!(false));
    assert!(
        storage.contains("must have exactly one version marked as storage version"),
        "{storage}"
    );
}

/// Returns a conversion by a webhook.
fn webhook(url: &str, bundle: &str, reviews: &[&str]) -> Value {
    json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": reviews,
        "clientConfig": {"url": url, "caBundle": bundle}}})
}

#[test]
fn what_was_allowed_before_stays_allowed_in_conversions() {
    let with = |conversion: Value, established: &str| {
        let mut definition = widgets();
        definition["spec"]["conversion"] = conversion;
        definition["spec"]["names"]["singular"] = json!("widget");
        definition["spec"]["names"]["listKind"] = json!("WidgetList");
        definition["status"] = json!({"storedVersions": ["v1"],
            "conditions": [{"type": "Established", "status": established}]});
        serde_json::from_value::<JsonObject>(definition).unwrap()
    };
    let errors = |old: &JsonObject, new: &JsonObject| {
        let causes = Definitions.validate_update(new, old);
        causes
            .iter()
            .map(|cause| cause.field.clone())
            .collect::<Vec<_>>()
    };
    let bundle = "spec.conversion.webhookClientConfig.caBundle";
    let good = webhook("https://h/", "", &["v1"]);
    let bad = webhook("https://h/", "eA==", &["v1"]);
    for (before, established, after, expected) in [
        // A bundle that is not a certificate is refused from when the definition is established, unless it was one.
        (&good, "False", &bad, vec![]),
        (&good, "True", &bad, vec![bundle]),
        (&bad, "True", &bad, vec![]),
    ] {
        let found = errors(
            &with(before.clone(), established),
            &with(after.clone(), established),
        );
        assert_eq!(found, expected);
    }
    let unknown = webhook("https://h/", "", &["v9"]);
    let reviews = "spec.conversion.conversionReviewVersions";
    for (before, expected) in [(&good, vec![reviews]), (&unknown, vec![])] {
        let found = errors(
            &with(before.clone(), "True"),
            &with(unknown.clone(), "True"),
        );
        assert_eq!(found, expected);
    }
}

#[test]
fn group_names_scope_and_stored_versions_do_not_change() {
    let server = Server::new();
    let created = server.create(widgets()).unwrap();
    let accepted = accept_names(&[created], NOW).remove(0);
    server.write_status(&establish(&accepted, NOW).unwrap());
    let version = json!({"name": "v9", "served": true, "storage": true, "schema": {"openAPIV3Schema":
        {"type": "object"}}});
    for (pointer, value, expected) in [
        (
            "/spec/scope",
            json!("Cluster"),
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
        ),
        (
            "/spec/group",
            json!("other.example.com"),
            "spec.group: Invalid value: \"other.example.com\": field is immutable",
        ),
        (
            "/spec/names/plural",
            json!("zs"),
            "spec.names.plural: Invalid value: \"zs\": field is immutable",
        ),
        (
            "/spec/names/kind",
            json!("Other"),
            "spec.names.kind: Invalid value: \"Other\": field is immutable",
        ),
        (
            "/spec/versions/0",
            version,
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage \
             version, and must remain in spec.versions until a storage migration ensures no data remains persisted in \
             v1 and removes v1 from status.storedVersions",
        ),
    ] {
        let error =
            server.change(|definition| *definition.pointer_mut(pointer).unwrap() = value.clone());
        let error = error.unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
    let changed = server
        .change(|definition| definition["status"] = json!({}))
        .unwrap();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(changed["metadata"]["generation"], 1);
}

#[test]
fn a_definition_goes_after_its_objects() {
    let server = Server::new();
    let created = server.create(widgets()).unwrap();
    let accepted = accept_names(&[created], NOW).remove(0);
    server.write_status(&establish(&accepted, NOW).unwrap());
    let definition = Arc::new(Definition::parse(&server.definition().unwrap()).unwrap());
    assert!(definition.established && definition.namespaced && !definition.terminating);
    let kind = JsonKind::new("example.com/v1", "Widget");
    let cache = server
        .caches
        .add(ResourceConfig::namespaced(kind, "widgets", "/widgets"))
        .unwrap();
    block_on(cache.wait_until_ready()).unwrap();
    let resource = CustomResource::new(
        definition.clone(),
        definition.storage_version().unwrap().clone(),
    );
    let name = ResourceName::new("example.com", "widgets");
    let store = ObjectStore::new(cache.clone(), name, true, resource);
    for (name, finalizers) in [("a", json!(["e.com/f"])), ("b", json!([]))] {
        let widget = json!({"metadata": {"name": name, "finalizers": finalizers}});
        let widget = serde_json::from_value(widget).unwrap();
        block_on(store.create("default", widget, &WriteRequest::default())).unwrap();
    }
    let stores = DefinitionStores {
        definitions: &server.store,
        status: &server.status,
    };
    let wrong = DeleteRequest::default().preconditions(Preconditions::default().uid("x"));
    let error = block_on(begin_deletion(stores, NAME, &wrong, NOW)).unwrap_err();
    assert_eq!(error.code(), 409, "{error}");
    assert_eq!(
        server.definition().unwrap()["metadata"].get("finalizers"),
        None
    );
    let deleted = block_on(begin_deletion(stores, NAME, &DeleteRequest::default(), NOW)).unwrap();
    assert!(matches!(deleted, Deleted::Terminating(_)), "{deleted:?}");
    let instances = Some(Instances {
        cache: &cache,
        store: &store,
    });
    let finish = || block_on(finish_deletion(&server.status, NAME, instances, NOW)).unwrap();
    assert_eq!(finish(), Progress::Waiting(1));
    let terminating = server.definition().unwrap();
    assert_eq!(
        terminating["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    let condition = &terminating["status"]["conditions"][2];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("Terminating"), &json!("True"))
    );
    assert!(Definition::parse(&terminating).unwrap().terminating);
    let request = WriteRequest::default();
    let reference = ObjectRef::namespaced("default", "a");
    let released = store.update_with(&reference, &request, |current| {
        let mut widget = current.cloned().unwrap();
        widget["metadata"]["finalizers"] = Value::Null;
        Ok(widget)
    });
    block_on(released).unwrap();
    assert_eq!(finish(), Progress::Removed);
    assert_eq!(server.definition(), None);
    assert_eq!(finish(), Progress::Nothing);
}

#[test]
fn a_definition_that_was_never_established_goes_at_once() {
    let server = Server::new();
    server.create(widgets()).unwrap();
    let stores = DefinitionStores {
        definitions: &server.store,
        status: &server.status,
    };
    let finish = || block_on(finish_deletion(&server.status, NAME, None, NOW)).unwrap();
    assert_eq!(finish(), Progress::Nothing);
    block_on(begin_deletion(stores, NAME, &DeleteRequest::default(), NOW)).unwrap();
    let again = block_on(begin_deletion(stores, NAME, &DeleteRequest::default(), NOW)).unwrap();
    assert!(matches!(again, Deleted::Terminating(_)), "{again:?}");
    assert_eq!(finish(), Progress::Removed);
    assert_eq!(server.definition(), None);
}

/// Any JSON with names of fields of definitions.
fn hostile() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop_oneof![
            Just("object"),
            Just("array"),
            Just("map"),
            Just("v1"),
            Just("Webhook"),
            Just(".spec.a"),
            Just("(")
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 5, |inner| {
        const NAMES: &[&str] = &[
            "group",
            "names",
            "kind",
            "plural",
            "scope",
            "versions",
            "name",
            "storage",
            "schema",
            "openAPIV3Schema",
            "type",
            "properties",
            "items",
            "pattern",
            "default",
            "allOf",
            "metadata",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-validations",
            "selectableFields",
            "jsonPath",
            "conversion",
            "webhook",
            "subresources",
            "scale",
            "additionalProperties",
            "enum",
            "not",
            "required",
        ];
        prop_oneof![
            prop::collection::btree_map(prop::sample::select(NAMES), inner.clone(), 0..6)
                .prop_map(|map| json!(map)),
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
        ]
    })
}

proptest::proptest! {
    #[test]
    fn definitions_of_any_form_are_answered(spec in hostile(), schema in hostile()) {
        let mut with_schema = widgets()["spec"].clone();
        with_schema["versions"][0]["schema"]["openAPIV3Schema"] = schema;
        for spec in [spec, with_schema] {
            let definition = json!({"metadata": {"name": NAME}, "spec": spec});
            let mut definition: JsonObject = serde_json::from_value(definition).unwrap();
            if Definitions.prepare_create(&mut definition).is_ok() {
                let again = definition.clone();
                super::admit(&mut definition).unwrap();
                definition["status"]["conditions"] = Value::Null;
                proptest::prop_assert_eq!(&definition, &again);
                Definitions.validate_create(&definition);
                Definitions.validate_update(&definition, &again);
                let accepted = accept_names(&[definition], NOW);
                Definition::parse(&accepted[0]).unwrap();
            }
        }
    }
}
