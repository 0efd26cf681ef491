//! Objects whose fields are compared, and their schema, which the Go program has as well.

use revstore_structured_merge::{FieldSchema, FieldShape, JsonType, ListKey, Untyped};
use serde_json::{Map, Value, json};

use crate::generate::Generator;

/// The fields of an object.
const FIELDS: [&str; 8] = [
    "scalar", "object", "atomic", "map", "list", "set", "keyed", "any",
];

/// The types of the schema.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Schema {
    /// An object of Kubernetes, of which `Root` is the spec and the status.
    Resource,
    Metadata,
    Root,
    Item,
    Map,
    Set,
    Keyed,
    Leaf,
    Any,
}

impl FieldSchema for Schema {
    fn shape(self, value: Option<&Value>) -> FieldShape {
        match self {
            Self::Resource | Self::Metadata | Self::Root | Self::Item | Self::Map => {
                FieldShape::Object
            }
            Self::Set => FieldShape::Set,
            Self::Keyed => FieldShape::Map(vec![
                ListKey {
                    name: "name".into(),
                    default: None,
                },
                ListKey {
                    name: "port".into(),
                    default: Some(json!(1)),
                },
            ]),
            Self::Leaf => FieldShape::Leaf,
            Self::Any => Untyped.shape(value),
        }
    }

    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Resource, "metadata") => Self::Metadata,
            (Self::Resource, "spec" | "status") | (Self::Root | Self::Item, "object") => Self::Root,
            (Self::Metadata, "labels" | "annotations") | (Self::Root, "map") => Self::Map,
            (Self::Root, "set") => Self::Set,
            (Self::Root, "keyed") => Self::Keyed,
            (Self::Root, "any") | (Self::Any, _) => Self::Any,
            _ => Self::Leaf,
        }
    }

    fn item(self) -> Self {
        match self {
            Self::Keyed => Self::Item,
            _ => Self::Leaf,
        }
    }

    fn names(self, member: &str) -> bool {
        match self {
            Self::Resource => {
                ["apiVersion", "kind", "metadata", "spec", "status"].contains(&member)
            }
            Self::Metadata => {
                ["name", "uid", "labels", "annotations", "managedFields"].contains(&member)
            }
            Self::Root => FIELDS.contains(&member),
            Self::Item => ["name", "port", "object"].contains(&member),
            _ => false,
        }
    }

    fn declares(self, member: &str) -> bool {
        match self {
            Self::Resource | Self::Metadata | Self::Root | Self::Item => self.names(member),
            _ => true,
        }
    }

    fn check(self, value: &Value) -> Result<(), String> {
        match self {
            Self::Set | Self::Keyed => JsonType::List.check(value),
            Self::Leaf | Self::Any => Ok(()),
            _ => JsonType::Object.check(value),
        }
    }
}

/// Returns a random object.
pub(crate) fn object(random: &mut Generator, levels: usize) -> Value {
    let mut object = Map::new();
    for field in FIELDS {
        if random.chance(2) {
            continue;
        }
        let value = if random.chance(12) {
            Value::Null
        } else {
            match field {
                "scalar" => random.below(2).into(),
                "object" if levels > 0 => self::object(random, levels - 1),
                "object" => json!({}),
                "atomic" => random.members(2),
                "map" => (0..random.below(3))
                    .map(|_| {
                        (
                            format!("k{}", random.below(3)),
                            Value::from(random.below(2)),
                        )
                    })
                    .collect::<Map<_, _>>()
                    .into(),
                "list" => (0..random.below(3)).map(|_| random.value(1)).collect(),
                "set" => (0..random.below(4))
                    .map(|_| Value::from(random.below(4)))
                    .collect(),
                "keyed" => (0..random.below(4)).map(|_| item(random, levels)).collect(),
                _ => random.value(3),
            }
        };
        object.insert(field.to_owned(), value);
    }
    object.into()
}

fn item(random: &mut Generator, levels: usize) -> Value {
    let mut item = Map::new();
    if !random.chance(60) {
        let names = ["a", "<b>", "c"];
        item.insert("name".to_owned(), names[random.below(names.len())].into());
    }
    if random.chance(2) {
        item.insert("port".to_owned(), random.below(3).into());
    }
    if levels > 0 && random.chance(2) {
        item.insert("object".to_owned(), object(random, levels - 1));
    }
    item.into()
}
