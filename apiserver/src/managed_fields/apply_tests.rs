use revstore_structured_merge::{ApplyError, FieldSet, Write, apply};
use serde_json::{Map, Value, json};

use crate::custom::schema::Schema;
use crate::managed_fields::{CustomSchema, KindsSchema};

static NOTHING: FieldSet = FieldSet::EMPTY;

fn write<'a>(manager: &'a str, time: &'a str) -> Write<'a> {
    Write {
        manager,
        api_version: "example.com/v1",
        subresource: "",
        time,
        ignored: &NOTHING,
    }
}

fn schema() -> Schema {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "color": {"type": "string"}, "size": {"type": "integer"},
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}},
            },
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "plain": {"type": "array", "items": {"type": "string"}},
            "opts": {"type": "object", "additionalProperties": {"type": "string"}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
    }});
    Schema::parse(&schema).unwrap()
}

fn config(spec: &Value) -> Map<String, Value> {
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec,
    });
    object.as_object().cloned().unwrap()
}

fn go(
    live: &Map<String, Value>,
    spec: &Value,
    (manager, force): (&str, bool),
) -> Result<Map<String, Value>, ApplyError> {
    let schema = schema();
    let schema = CustomSchema::new(Some(&schema));
    let mut applied = apply(
        (live, &Map::new()),
        &config(spec),
        &schema,
        &write(manager, "t1"),
        force,
    )?;
    let metadata = applied["metadata"].as_object_mut().unwrap();
    metadata.insert("uid".to_owned(), "u".into());
    Ok(applied)
}

/// Returns the managers and their fields in `spec`.
fn owners(object: &Map<String, Value>) -> Value {
    let entries = object["metadata"]["managedFields"].as_array();
    let owners = entries.into_iter().flatten().map(|entry| {
        let manager = entry["manager"].as_str().unwrap().to_owned();
        (manager, entry["fieldsV1"]["f:spec"].clone())
    });
    Value::Object(owners.collect())
}

#[test]
fn applied_fields_are_owned_and_removed_when_they_are_no_longer_sent() {
    let spec = json!({"color": "red", "ports": [{"name": "h", "port": 80}], "tags": ["x"], "plain": ["p"]});
    let one = go(&Map::new(), &spec, ("one", false)).unwrap();
    assert_eq!(one["spec"], spec);
    assert_eq!(
        owners(&one)["one"],
        json!({
            "f:color": {}, "f:plain": {}, "f:tags": {"v:\"x\"": {}},
            "f:ports": {"k:{\"name\":\"h\"}": {".": {}, "f:name": {}, "f:port": {}}},
        })
    );
    // Twice is as once.
    assert_eq!(go(&one, &spec, ("one", false)).unwrap(), one);

    let other =
        json!({"ports": [{"name": "i", "port": 1}], "tags": ["y", "x"], "opts": {"k": "v"}});
    let both = go(&one, &other, ("two", false)).unwrap();
    assert_eq!(
        both["spec"]["ports"],
        json!([{"name": "h", "port": 80}, {"name": "i", "port": 1}])
    );
    assert_eq!(both["spec"]["tags"], json!(["y", "x"]));
    // What only the first manager owns goes away; what both own stays.
    let rest = go(&both, &json!({"color": "red"}), ("one", false)).unwrap();
    assert_eq!(
        rest["spec"],
        json!({"color": "red", "ports": [{"name": "i", "port": 1}], "tags": ["y", "x"], "opts": {"k": "v"}})
    );
    // Applying nothing is as if it was never applied.
    let alone = go(&Map::new(), &other, ("two", false)).unwrap();
    let given_up = go(&both, &json!({}), ("one", false)).unwrap();
    assert_eq!(given_up["spec"]["ports"], alone["spec"]["ports"]);
    assert_eq!(owners(&given_up)["two"], owners(&alone)["two"]);
}

#[test]
fn other_values_of_owned_fields_are_conflicts() {
    let live = go(
        &Map::new(),
        &json!({"color": "red", "size": 1}),
        ("one", false),
    )
    .unwrap();
    let error = go(&live, &json!({"color": "blue", "size": 1}), ("two", false)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"one\": .spec.color"
    );
    let error = go(&live, &json!({"color": "blue", "size": 2}), ("two", false)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.color\n- .spec.size"
    );
    let forced = go(&live, &json!({"color": "blue", "size": 1}), ("two", true)).unwrap();
    assert_eq!(
        owners(&forced),
        json!({"one": {"f:size": {}}, "two": {"f:color": {}, "f:size": {}}})
    );
}

#[test]
fn null_replaces_a_value_of_any_type() {
    let any = |value: Value| json!({"any": {"a": value}});
    for old in [json!([1]), json!({"b": 1}), json!([]), json!("b")] {
        let one = go(&Map::new(), &any(old.clone()), ("one", false)).unwrap();
        let applied = go(&one, &any(Value::Null), ("one", false)).unwrap();
        // An object is merged with `null` as with one without members, and what it has was applied before.
        assert_eq!(applied["spec"], any(Value::Null), "{old}");
    }
}

#[test]
fn conflicts_have_the_order_of_their_managers_in_json() {
    let entry = |manager: &str, subresource: &str, fields: Value| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "example.com/v1", "time": "t0",
            "fieldsType": "FieldsV1", "subresource": subresource, "fieldsV1": {"f:spec": fields}})
    };
    let mut live = config(&json!({"color": "red", "size": 1}));
    live["metadata"]["uid"] = "u".into();
    live["metadata"]["managedFields"] = json!([
        entry("one", "", json!({"f:color": {}})),
        entry("one", "status", json!({"f:size": {}}))
    ]);
    let error = go(&live, &json!({"color": "blue", "size": 2}), ("two", false)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"one\" with subresource \"status\" using \
         example.com/v1:\n- .spec.size\nconflicts with \"one\" using example.com/v1:\n- .spec.color"
    );
}

#[test]
fn fields_before_the_first_apply_have_a_manager() {
    let mut live = config(&json!({"color": "red", "size": 1}));
    live["metadata"]["uid"] = "u".into();
    let error = go(&live, &json!({"color": "blue"}), ("one", false)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using example.com/v1: .spec.color"
    );
    // An apply of kubectl takes over what its annotation has.
    let last = "kubectl.kubernetes.io/last-applied-configuration";
    let text = Value::Object(config(&json!({"color": "red"}))).to_string();
    live["metadata"]["annotations"] = json!({last: text});
    let error = go(&live, &json!({"color": "blue"}), ("one", false)).unwrap_err();
    assert!(matches!(error, ApplyError::Conflicts(_)));
    let applied = go(&live, &json!({"color": "blue"}), ("kubectl", false)).unwrap();
    assert_eq!(applied["spec"], json!({"color": "blue", "size": 1}));
    let text = applied["metadata"]["annotations"][last].as_str().unwrap();
    assert!(text.contains("blue"), "{text}");
    let error = go(&live, &json!({"size": 2}), ("kubectl", false)).unwrap_err();
    assert!(matches!(error, ApplyError::Conflicts(_)));
    // It takes over nothing if the object has an item of a set twice.
    live["spec"]["tags"] = json!(["x", "x"]);
    let error = go(&live, &json!({"color": "blue"}), ("kubectl", false)).unwrap_err();
    assert!(matches!(error, ApplyError::Conflicts(_)));
}

#[test]
fn configurations_must_fit_the_schema() {
    for (spec, expected) in [
        (
            json!({"nope": 1}),
            ".spec.nope: field not declared in schema",
        ),
        (
            json!({"color": 1}),
            ".spec.color: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            json!({"size": "x"}),
            ".spec.size: expected numeric (int or float), got string",
        ),
        (
            json!({"tags": ["a", "a"]}),
            ".spec.tags: duplicate entries for key [=\"a\"]",
        ),
        (
            json!({"ports": [{"name": "a"}, {"name": "a"}]}),
            ".spec.ports: duplicate entries for key [name=\"a\"]",
        ),
    ] {
        let error = go(&Map::new(), &spec, ("one", false))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            format!(
                "failed to create typed patch object (/a; example.com/v1, Kind=Widget): {expected}"
            )
        );
    }
    let free = json!({"any": {"x": [1, {"y": 2}]}});
    assert_eq!(
        go(&Map::new(), &free, ("one", false)).unwrap()["spec"],
        free
    );
    let mut config = config(&json!({}));
    config["metadata"]["managedFields"] = json!([]);
    let schema = schema();
    let schema = CustomSchema::new(Some(&schema));
    let error = apply(
        (&Map::new(), &Map::new()),
        &config,
        &schema,
        &write("one", "t"),
        false,
    );
    assert_eq!(error, Err(ApplyError::HasEntries));
}

#[test]
fn large_lists_are_applied_in_linear_time() {
    const ITEMS: i64 = 20_000;
    let ports = |from: i64| -> Value {
        (from..from + ITEMS)
            .rev()
            .map(|number| json!({"name": number.to_string(), "port": number}))
            .collect()
    };
    let one = go(&Map::new(), &json!({"ports": ports(0)}), ("one", false)).unwrap();
    let two = go(&one, &json!({"ports": ports(ITEMS / 2)}), ("two", false)).unwrap();
    let count = |object: &Map<String, Value>| object["spec"]["ports"].as_array().map(Vec::len);
    assert_eq!(count(&two), Some(30_000));
    let rest = go(&two, &json!({}), ("one", false)).unwrap();
    assert_eq!(count(&rest), Some(20_000));
}

#[test]
fn lists_of_built_in_kinds_are_merged_by_keys_with_defaults() {
    let ty = revstore_kinds::kind("", "v1", "Service").unwrap();
    let service = |ports: Value| {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": ports},
        });
        service.as_object().cloned().unwrap()
    };
    let core = |manager| Write {
        api_version: "v1",
        ..write(manager, "t")
    };
    let one = service(json!([{"port": 80}]));
    let none = Map::new();
    let one = apply(
        (&none, &none),
        &one,
        &KindsSchema::new(ty),
        &core("one"),
        false,
    )
    .unwrap();
    let two = service(
        json!([{"port": 80, "protocol": "TCP", "name": "x"}, {"port": 80, "protocol": "UDP"}]),
    );
    let two = apply(
        (&one, &none),
        &two,
        &KindsSchema::new(ty),
        &core("two"),
        false,
    )
    .unwrap();
    assert_eq!(two["spec"]["ports"].as_array().map(Vec::len), Some(2));
}
