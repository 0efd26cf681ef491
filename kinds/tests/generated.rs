//! Generated objects of every kind: round trips, and values of another type at every position.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use revstore_kinds::{
    Resource, Shape, Storage, Type, from_protobuf, normalize, resources, to_protobuf, types,
};
use serde_json::{Map, Value, json};

/// Returns a value with all fields, but for those of types that contain themselves.
fn maximal(ty: &'static Type, around: &mut Vec<&'static str>) -> Option<Value> {
    Some(match ty.shape() {
        Shape::Struct(fields) => {
            if around.contains(&ty.full_name()) {
                return None;
            }
            around.push(ty.full_name());
            // The kinds of objects inside of others are not in protobuf.
            let fields = fields.iter().filter(|field| !field.numbers().is_empty());
            let values = fields.filter_map(|field| {
                let value = maximal(field.ty(), around)?;
                Some((field.name().to_owned(), value))
            });
            let object: Map<String, Value> = values.collect();
            around.pop();
            Value::Object(object)
        }
        Shape::Pointer(target) => maximal(target.get(), around)?,
        Shape::List { item, .. } => json!([maximal(item.get(), around)?]),
        Shape::Map { value, .. } => json!({"key": maximal(value.get(), around)?}),
        Shape::String => json!("text"),
        Shape::Bool | Shape::SchemaOrBool(_) => json!(true),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => json!(7),
        Shape::Float64 => json!(1.5),
        Shape::Bytes => json!("YQ=="),
        Shape::Quantity => json!("1"),
        Shape::Time => json!("2024-01-01T00:00:00Z"),
        Shape::MicroTime => json!("2024-01-01T00:00:00.000001Z"),
        Shape::FieldsV1 => json!({"f:a": {}}),
        Shape::RawExtension => json!({"apiVersion": "v1", "kind": "Any"}),
        Shape::Json => json!({"a": [1, null, "b"]}),
        Shape::SchemaOrArray(_) => json!({"type": "string"}),
        Shape::SchemaOrStrings(_) => json!(["a"]),
    })
}

fn check(resource: &Resource, mut object: Value) {
    let name = format!("{} {}", resource.version(), resource.kind());
    let api_version = match resource.group() {
        "" => resource.version().to_owned(),
        group => format!("{group}/{}", resource.version()),
    };
    object["apiVersion"] = api_version.into();
    object["kind"] = resource.kind().into();
    let unknown = normalize(resource.object(), &mut object, Storage::Protobuf).unwrap();
    assert!(unknown.is_empty(), "{name}: {unknown:?}");
    let mut again = object.clone();
    normalize(resource.object(), &mut again, Storage::Protobuf).unwrap();
    assert!(again == object, "{name}, normalized again: {object}");
    let bytes = to_protobuf(&object).unwrap();
    let decoded = from_protobuf(&bytes).unwrap();
    assert!(
        decoded == object,
        "{name}, in protobuf: {object}\n{decoded}"
    );
    assert!(to_protobuf(&decoded).unwrap() == bytes, "{name}");
}

#[test]
fn maximal_and_minimal_objects_of_all_kinds_survive_a_round_trip() {
    let mut count = 0;
    for resource in resources() {
        check(resource, json!({}));
        check(
            resource,
            maximal(resource.object(), &mut Vec::new()).unwrap(),
        );
        count += 1;
    }
    assert!(count > 80, "only {count} kinds");
}

/// Values of all types.
fn candidates() -> [Value; 8] {
    [
        json!(true),
        json!(7),
        json!(1.5),
        json!(1_u64 << 63),
        json!("text"),
        json!([{}]),
        json!([[]]),
        json!({"a": {"b": true}}),
    ]
}

/// Returns whether a value fits a type; `None` if that depends on more than its type.
fn fits(ty: &'static Type, value: &Value) -> Option<bool> {
    match ty.shape() {
        Shape::Pointer(target) => fits(target.get(), value),
        // Fields that are unknown are not errors of decoding.
        Shape::Struct(_) => Some(value.is_object()),
        Shape::List { item, .. } => match value {
            Value::Array(items) => fits(item.get(), items.first()?),
            _ => Some(false),
        },
        Shape::Map { value: target, .. } => match value {
            Value::Object(map) => fits(target.get(), map.values().next()?),
            _ => Some(false),
        },
        Shape::String => Some(value.is_string()),
        Shape::Bool => Some(value.is_boolean()),
        Shape::Int32 => Some(value.as_i64().is_some_and(|it| i32::try_from(it).is_ok())),
        Shape::Int64 => Some(value.is_i64()),
        Shape::IntOrString => Some(value.is_string() || value.is_i64()),
        // "text" is no quantity.
        Shape::Float64 | Shape::Quantity => Some(value.is_number()),
        Shape::Time | Shape::MicroTime => Some(false),
        Shape::Bytes
        | Shape::FieldsV1
        | Shape::RawExtension
        | Shape::Json
        | Shape::SchemaOrArray(_)
        | Shape::SchemaOrBool(_)
        | Shape::SchemaOrStrings(_) => None,
    }
}

/// Every position of every object is a field of a struct of the table, so each of these is tested by itself.
#[test]
fn values_of_other_types_are_refused_at_every_field() {
    let mut refused = 0;
    for ty in types() {
        for field in ty.fields() {
            for candidate in candidates() {
                let mut object = json!({});
                object[field.name()] = candidate.clone();
                let found = normalize(ty, &mut object, Storage::Protobuf);
                let place = format!("{} {}: {candidate}", ty.full_name(), field.name());
                let Some(fits) = fits(field.ty(), &candidate) else {
                    continue;
                };
                assert_eq!(found.is_ok(), fits, "{place}: {found:?}");
                let Err(error) = found else {
                    continue;
                };
                refused += 1;
                // As in Go, errors of texts do not name the field.
                let text = error.to_string();
                let names = text.contains(field.name()) || !text.starts_with("json: cannot");
                assert!(names, "{place}: {text}");
            }
        }
    }
    assert!(refused > 10_000, "only {refused} were refused");
}
