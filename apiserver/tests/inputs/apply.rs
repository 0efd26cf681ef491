//! What must hold for any object and any configurations that are applied to it: no panic, an apply that is repeated
//! changes nothing, and its result and its entries can be read again.

use std::sync::LazyLock;

use revstore_apiserver::custom::schema::Schema;
use revstore_apiserver::decode::from_json;
use revstore_apiserver::managed_fields::{CustomSchema, KindsSchema, zero_object};
use revstore_kinds::{Storage, Type, normalize};
use revstore_structured_merge::{
    FieldSchema, FieldSet, Untyped, Write, apply, read_entries, track_update,
};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// The number of schemas.
pub(crate) const SCHEMAS: u8 = 4;

/// A schema with lists and maps of each type.
static CUSTOM: LazyLock<Schema> = LazyLock::new(|| {
    let item = json!({"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer",
        "default": 80}, "values": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}}});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "map": {"type": "array", "items": item, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name", "port"]},
            "atomic": {"type": "array", "items": item},
            "one": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "many": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "either": {"x-kubernetes-int-or-string": true}}}}});
    Schema::parse(&schema).expect("a small schema")
});

/// Applies configurations to an object. The first byte names the schema, and whether conflicts are forced; then come the
/// object and two configurations as JSON, separated by zero bytes.
pub(crate) fn check(input: &[u8]) {
    let Some((choice, input)) = input.split_first() else {
        return;
    };
    let mut parts = input.splitn(3, |byte| *byte == 0).map(object);
    let mut next = || parts.next().flatten();
    let (Some(live), Some(one), Some(two)) = (next(), next(), next()) else {
        return;
    };
    let force = choice & 0x80 != 0;
    let configs = [one, two];
    match choice % SCHEMAS {
        0 => built_in("", "v1", "Pod", live, &configs, force),
        1 => built_in("apps", "v1", "Deployment", live, &configs, force),
        2 => applies(
            &live,
            &Map::new(),
            &configs,
            CustomSchema::new(Some(&CUSTOM)),
            force,
            |_| {},
        ),
        _ => applies(&live, &Map::new(), &configs, Untyped, force, |_| {}),
    }
}

fn object(input: &[u8]) -> Option<Object> {
    match from_json(input).ok()?.value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

fn built_in(
    group: &str,
    version: &str,
    kind: &str,
    live: Object,
    configs: &[Object; 2],
    force: bool,
) {
    let ty = revstore_kinds::kind(group, version, kind).expect("a built-in kind");
    // Only objects of the type are stored.
    let Some(live) = normal(ty, live) else {
        return;
    };
    let fits: Vec<bool> = configs
        .iter()
        .map(|config| normal(ty, config.clone()).is_some())
        .collect();
    applies(
        &live,
        &zero_object(ty),
        configs,
        KindsSchema::new(ty),
        force,
        |object| {
            if fits.iter().all(|fits| *fits) {
                assert!(
                    normal(ty, object.clone()).is_some(),
                    "no {kind} any more: {object:?}"
                );
            }
        },
    );
}

fn normal(ty: &'static Type, object: Object) -> Option<Object> {
    let mut value = Value::Object(object);
    normalize(ty, &mut value, Storage::Protobuf).ok()?;
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

fn applies<S: FieldSchema>(
    live: &Object,
    zero: &Object,
    configs: &[Object; 2],
    schema: S,
    force: bool,
    decode: impl Fn(&Object),
) {
    let ignored = FieldSet::default();
    let write = |manager| Write {
        manager,
        api_version: "v1",
        subresource: "",
        time: "2024-01-01T00:00:00Z",
        ignored: &ignored,
    };
    let mut live = live.clone();
    for (config, manager) in configs.iter().zip(["one", "two"]) {
        let write = write(manager);
        let Ok(applied) = apply((&live, zero), config, &schema, &write, force) else {
            continue;
        };
        check_entries(&applied);
        decode(&applied);
        let again = apply((&applied, zero), config, &schema, &write, force);
        let again = again.expect("what was applied can be applied again");
        assert_eq!(
            without_empty(&again),
            without_empty(&applied),
            "applied again"
        );
        live = applied;
    }
    // The second manager gives up what it has.
    let type_of = |object: &Object| {
        let members = ["apiVersion", "kind"].into_iter();
        let members = members.filter_map(|name| Some((name.to_owned(), object.get(name)?.clone())));
        members.collect::<Object>()
    };
    if let Ok(without) = apply(
        (&live, zero),
        &type_of(&live),
        &schema,
        &write("two"),
        force,
    ) {
        check_entries(&without);
        decode(&without);
    }
    // An update to one of the configurations.
    let mut new = configs[1].clone();
    if track_update(&live, &mut new, &schema, &write("three")).is_ok() {
        check_entries(&new);
    }
}

/// Returns an object without empty members. The fields that an apply removes from a map leave `null`, as in
/// kube-apiserver, which the decoder removes, and the same apply after it sets an empty map.
fn without_empty(object: &Object) -> Object {
    let members = object.iter().filter_map(|(name, value)| {
        let value = match value {
            Value::Array(items) => items.iter().map(member).collect(),
            other => member(other),
        };
        let is_empty = match &value {
            Value::Null => true,
            Value::Object(inner) => inner.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        (!is_empty).then(|| (name.clone(), value))
    });
    members.collect()
}

fn member(value: &Value) -> Value {
    match value {
        Value::Object(inner) => Value::Object(without_empty(inner)),
        other => other.clone(),
    }
}

/// Checks that the entries of an object can be read, and that their sets are those of their texts.
fn check_entries(object: &Object) {
    let entries = read_entries(object).expect("entries of ours can be read");
    for entry in entries {
        let fields = entry.fields.to_fields_v1();
        assert_eq!(
            FieldSet::from_fields_v1(&fields).as_ref(),
            Some(&entry.fields)
        );
    }
}
