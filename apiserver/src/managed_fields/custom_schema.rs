//! The schema of a custom resource as the schema of tracked fields.

use std::sync::LazyLock;

use revstore_kinds::Type;
use revstore_structured_merge::{FieldSchema, FieldShape, JsonType, ListKey, Untyped};
use serde_json::Value;

use crate::custom::schema::{Additional, Schema};
use crate::managed_fields::KindsSchema;

/// The type of the metadata of all objects.
static METADATA: LazyLock<Option<&'static Type>> = LazyLock::new(|| {
    let kind = revstore_kinds::kind("", "v1", "ConfigMap")?;
    Some(kind.target().field("metadata")?.ty())
});

/// The schema of a custom resource, or a part of it.
#[derive(Clone, Copy, Debug)]
pub struct CustomSchema<'a>(Node<'a>);

#[derive(Clone, Copy, Debug)]
enum Node<'a> {
    Schema {
        schema: &'a Schema,
        /// Whether an object around it keeps unknown fields.
        preserves: bool,
        /// Whether it is an object of Kubernetes with metadata.
        is_resource: bool,
    },
    Kinds(KindsSchema),
    /// A text that each resource has.
    Text,
    /// Values without a schema: objects are divided.
    Deduced,
    /// Values without a schema that are one field.
    Atomic,
    /// The schema does not have the field.
    Undeclared,
}

impl<'a> CustomSchema<'a> {
    /// Returns the schema of the objects of a version; without a schema all fields are known.
    pub fn new(schema: Option<&'a Schema>) -> Self {
        Self(schema.map_or(Node::Deduced, |schema| Node::Schema {
            schema,
            preserves: false,
            is_resource: true,
        }))
    }
}

impl<'a> FieldSchema for CustomSchema<'a> {
    fn shape(self, value: Option<&Value>) -> FieldShape {
        match self.0 {
            Node::Kinds(schema) => schema.shape(value),
            Node::Deduced => Untyped.shape(value),
            Node::Text | Node::Atomic | Node::Undeclared => FieldShape::Leaf,
            Node::Schema { schema, .. } => {
                let is_atomic = schema.map_type.as_deref() == Some("atomic");
                match (schema.kind.as_str(), schema.list_type.as_deref()) {
                    ("object" | "", _) if is_atomic => FieldShape::Leaf,
                    ("object", _) => FieldShape::Object,
                    ("", _) => Untyped.shape(value),
                    ("array", Some("set")) => FieldShape::Set,
                    ("array", Some("map")) => FieldShape::Map(list_keys(schema)),
                    _ => FieldShape::Leaf,
                }
            }
        }
    }

    fn member(self, name: &str) -> Self {
        Self(match self.0 {
            Node::Kinds(schema) => Node::Kinds(schema.member(name)),
            Node::Deduced => Node::Deduced,
            Node::Atomic => Node::Atomic,
            Node::Text | Node::Undeclared => Node::Undeclared,
            Node::Schema {
                schema,
                preserves,
                is_resource,
            } => {
                let preserves = preserves || schema.preserves_unknown();
                let below = |schema: &'a Schema| Node::Schema {
                    schema,
                    preserves,
                    is_resource: schema.embedded,
                };
                let metadata = || METADATA.map(|ty| Node::Kinds(KindsSchema::new(ty)));
                match (name, &schema.additional) {
                    ("metadata", _) if is_resource => metadata().unwrap_or(Node::Deduced),
                    ("apiVersion" | "kind", _) if is_resource => Node::Text,
                    _ if schema.properties.contains_key(name) => below(&schema.properties[name]),
                    (_, Additional::Schema(schema)) => below(schema),
                    (_, Additional::Allowed(true)) => Node::Deduced,
                    (_, Additional::Unset)
                        if preserves || (schema.properties.is_empty() && !is_resource) =>
                    {
                        Node::Deduced
                    }
                    _ => Node::Undeclared,
                }
            }
        })
    }

    fn item(self) -> Self {
        Self(match self.0 {
            Node::Kinds(schema) => Node::Kinds(schema.item()),
            Node::Schema {
                schema, preserves, ..
            } => schema
                .items
                .as_deref()
                .map_or(Node::Atomic, |items| Node::Schema {
                    schema: items,
                    preserves: preserves || schema.preserves_unknown(),
                    is_resource: items.embedded,
                }),
            _ => Node::Atomic,
        })
    }

    fn names(self, member: &str) -> bool {
        match self.0 {
            Node::Kinds(schema) => schema.names(member),
            Node::Schema {
                schema,
                is_resource,
                ..
            } => {
                schema.properties.contains_key(member)
                    || (is_resource && ["apiVersion", "kind", "metadata"].contains(&member))
            }
            _ => false,
        }
    }

    fn declares(self, member: &str) -> bool {
        match self.0 {
            Node::Kinds(schema) => schema.declares(member),
            Node::Deduced | Node::Atomic => true,
            Node::Text | Node::Undeclared => false,
            Node::Schema { .. } => !matches!(self.member(member).0, Node::Undeclared),
        }
    }

    fn check(self, value: &Value) -> Result<(), String> {
        match self.0 {
            Node::Kinds(schema) => schema.check(value),
            Node::Text => JsonType::Text.check(value),
            Node::Deduced | Node::Atomic | Node::Undeclared => Ok(()),
            Node::Schema { schema, .. } => match schema.kind.as_str() {
                "object" => JsonType::Object,
                "array" => JsonType::List,
                "integer" | "number" => JsonType::Number,
                "boolean" => JsonType::Bool,
                "string" => JsonType::Text,
                _ => return Ok(()),
            }
            .check(value),
        }
    }
}

/// Returns the keys of the items of a list.
fn list_keys(schema: &Schema) -> Vec<ListKey> {
    let items = schema.items.as_deref();
    let keys = schema.list_keys.iter().map(|name| ListKey {
        name: name.as_str().into(),
        default: items
            .and_then(|items| items.properties.get(name))
            .and_then(|key| key.default.clone()),
    });
    keys.collect()
}
