//! Types as schemas.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Dialect;
use crate::table::{Field, ListType, Shape, Type};

/// What every dialect calls the schema of the body of a patch.
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// The schemas of types and of all that they refer to, by their names.
pub(super) fn reachable(
    roots: Vec<&'static Type>,
    dialect: Dialect,
    owners: &[(&str, &str)],
) -> Map<String, Value> {
    let mut found: BTreeMap<String, &'static Type> = BTreeMap::new();
    let mut rest = roots;
    while let Some(ty) = rest.pop() {
        match ty.shape() {
            Shape::Pointer(target) => rest.push(target.get()),
            Shape::List { item, .. } => rest.push(item.get()),
            Shape::Map { value, .. } => rest.push(value.get()),
            _ => {
                if let Some(name) = named(ty)
                    && found.insert(name, ty).is_none()
                {
                    rest.extend(ty.fields().iter().map(Field::ty));
                }
            }
        }
    }
    let mut schemas: Map<String, Value> = found
        .into_iter()
        .map(|(name, ty)| (name, definition(ty, dialect, owners)))
        .collect();
    schemas.insert(PATCH.to_owned(), json!({"type": "object"}));
    schemas
}

/// The name of the schema of a type, if it is not written where it is used.
fn named(ty: &'static Type) -> Option<String> {
    match ty.shape() {
        Shape::Pointer(_)
        | Shape::List { .. }
        | Shape::Map { .. }
        | Shape::String
        | Shape::Bool
        | Shape::Int32
        | Shape::Int64
        | Shape::Float64
        | Shape::Bytes => None,
        _ => ty.openapi_name(),
    }
}

/// The schema under the name of a type.
pub(super) fn definition(ty: &'static Type, dialect: Dialect, owners: &[(&str, &str)]) -> Value {
    let v3 = dialect == Dialect::V3;
    match ty.shape() {
        Shape::Struct(fields) => object(ty, fields, dialect, owners),
        Shape::Quantity if v3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Shape::Quantity => json!({"type": "string"}),
        Shape::IntOrString if v3 => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Shape::IntOrString => json!({"format": "int-or-string", "type": "string"}),
        Shape::Time | Shape::MicroTime => json!({"format": "date-time", "type": "string"}),
        Shape::FieldsV1 | Shape::RawExtension => json!({"type": "object"}),
        Shape::Json
        | Shape::SchemaOrArray(_)
        | Shape::SchemaOrBool(_)
        | Shape::SchemaOrStrings(_) => json!({}),
        _ => Value::Object(value(ty, dialect, false)),
    }
}

fn object(
    ty: &'static Type,
    fields: &'static [Field],
    dialect: Dialect,
    owners: &[(&str, &str)],
) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    if !fields.is_empty() {
        let properties: Map<String, Value> = fields
            .iter()
            .map(|field| (field.name().to_owned(), property(field, dialect)))
            .collect();
        schema.insert("properties".to_owned(), Value::Object(properties));
    }
    let required: Vec<&str> = fields
        .iter()
        .filter(|field| field.required())
        .map(Field::name)
        .collect();
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    let kinds = group_version_kinds(ty, owners);
    if !kinds.is_empty() {
        schema.insert("x-kubernetes-group-version-kind".to_owned(), json!(kinds));
    }
    if ty.is_atomic() {
        schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
    let unions: Vec<Value> = ty.unions().iter().map(union).collect();
    if !unions.is_empty() {
        schema.insert("x-kubernetes-unions".to_owned(), json!(unions));
    }
    Value::Object(schema)
}

fn union(union: &crate::table::Union) -> Value {
    let fields: Map<String, Value> = union
        .fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect();
    let mut written = json!({"fields-to-discriminateBy": fields});
    if let Some(discriminator) = union.discriminator {
        written["discriminator"] = json!(discriminator);
    }
    written
}

/// The group, version and kind of the objects of a type, if they have one.
fn group_version_kinds(ty: &'static Type, owners: &[(&str, &str)]) -> Vec<Value> {
    let Some(package) = ty.package() else {
        return Vec::new();
    };
    let written =
        |group: &str, version: &str| json!({"group": group, "version": version, "kind": ty.name()});
    let own = match (package.group_version(), ty.name()) {
        (None, "DeleteOptions" | "WatchEvent") => {
            let mut owners = owners.to_vec();
            owners.dedup();
            return owners
                .into_iter()
                .map(|(group, version)| written(group, version))
                .collect();
        }
        (None, "APIGroup" | "APIGroupList" | "APIResourceList" | "APIVersions" | "Status") => {
            ("", "v1")
        }
        (Some(own), _) if is_kind(ty) => own,
        _ => return Vec::new(),
    };
    vec![written(own.0, own.1)]
}

fn is_kind(ty: &'static Type) -> bool {
    let metadata = ty.field("metadata").map(|field| field.ty().full_name());
    ty.field("kind").is_some()
        && ty.field("apiVersion").is_some()
        && matches!(metadata, Some("meta.v1.ObjectMeta" | "meta.v1.ListMeta"))
}

fn property(field: &'static Field, dialect: Dialect) -> Value {
    let ty = field.ty();
    let mut schema = value(ty, dialect, false);
    if dialect == Dialect::V3 {
        let omitted = field.omit_empty() || field.omit_zero();
        let explicit = field
            .default_json()
            .and_then(|json| serde_json::from_str(json).ok());
        if let Some(default) = explicit.or_else(|| standard_default(ty, omitted)) {
            set_default(&mut schema, default);
        }
    }
    let mut extensions = Map::new();
    let mut extend = |name: &str, value: Value| {
        extensions.insert(format!("x-kubernetes-{name}"), value);
    };
    if let Some(list) = field.list() {
        let ty = match list.ty() {
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map => "map",
        };
        extend("list-type", json!(ty));
        let keys: Vec<&str> = list.keys().collect();
        if !keys.is_empty() {
            extend("list-map-keys", json!(keys));
        }
    }
    if let Some(map_type) = field.map_type() {
        extend("map-type", json!(map_type));
    }
    if let Some(key) = field.merge_key() {
        extend("patch-merge-key", json!(key));
    }
    let strategies: Vec<&str> = field.patch_strategies().collect();
    if !strategies.is_empty() {
        extend("patch-strategy", json!(strategies.join(",")));
    }
    if dialect == Dialect::V3 && !extensions.is_empty() {
        wrap_reference(&mut schema);
    }
    schema.append(&mut extensions);
    Value::Object(schema)
}

/// The default of a value that is not a pointer: the zero value, unless it is left out.
fn standard_default(ty: &'static Type, omitted: bool) -> Option<Value> {
    match ty.shape() {
        Shape::Struct(_) => Some(json!({})),
        Shape::String if !omitted => Some(json!("")),
        Shape::Bool if !omitted => Some(json!(false)),
        Shape::Int32 | Shape::Int64 | Shape::Float64 if !omitted => Some(json!(0)),
        _ => None,
    }
}

fn set_default(schema: &mut Map<String, Value>, default: Value) {
    wrap_reference(schema);
    schema.insert("default".to_owned(), default);
}

/// Makes room beside a reference: in v3 it has nothing beside it.
fn wrap_reference(schema: &mut Map<String, Value>) {
    if let Some(reference) = schema.remove("$ref") {
        schema.insert("allOf".to_owned(), json!([{"$ref": reference}]));
    }
}

/// The schema of a value where it is used. `element` says whether it is in a list or map, whose elements have defaults.
fn value(ty: &'static Type, dialect: Dialect, element: bool) -> Map<String, Value> {
    let mut schema = Map::new();
    if let Some(name) = named(ty) {
        schema.insert("$ref".to_owned(), Value::String(dialect.reference(&name)));
    } else {
        let mut set = |name: &str, value: Value| schema.insert(name.to_owned(), value);
        match ty.shape() {
            Shape::Pointer(target) => return value(target.get(), dialect, false),
            Shape::List { item, .. } => {
                set("type", json!("array"));
                set("items", Value::Object(value(item.get(), dialect, true)));
            }
            Shape::Map { value: target, .. } => {
                set("type", json!("object"));
                set(
                    "additionalProperties",
                    Value::Object(value(target.get(), dialect, true)),
                );
            }
            Shape::Bool => drop(set("type", json!("boolean"))),
            Shape::Int32 | Shape::Int64 => {
                set("type", json!("integer"));
                set(
                    "format",
                    json!(if matches!(ty.shape(), Shape::Int32) {
                        "int32"
                    } else {
                        "int64"
                    }),
                );
            }
            Shape::Float64 => {
                set("type", json!("number"));
                set("format", json!("double"));
            }
            Shape::Bytes => {
                set("type", json!("string"));
                set("format", json!("byte"));
            }
            _ => drop(set("type", json!("string"))),
        }
    }
    if element
        && dialect == Dialect::V3
        && let Some(default) = standard_default(ty, false)
    {
        set_default(&mut schema, default);
    }
    schema
}
