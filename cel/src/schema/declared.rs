//! The types that schemas declare, with the bounds of their sizes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value as Json;

use super::{DEPTH_MAX, REQUEST_BYTES_MAX, additional, escape, flag, properties};
use crate::types::Type;

/// The type that a schema declares.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The type in expressions.
    pub(crate) of: Type,
    pub(crate) shape: Shape,
    /// The maximum number of characters, items or entries.
    pub(crate) elements_max: u64,
    /// The minimum number of bytes in JSON.
    pub(crate) bytes_min: i64,
}

/// What is inside of a type.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Simple,
    List(Arc<Declared>),
    Map(Arc<Declared>),
    Object(Arc<BTreeMap<String, Declared>>),
}

/// Returns how often a value of at least some bytes can occur in a request.
pub fn max_cardinality(declared: &Declared) -> u64 {
    (REQUEST_BYTES_MAX / (declared.bytes_min + 1)).cast_unsigned()
}

impl Declared {
    /// Returns the type of a structural schema in JSON, if expressions can see its values.
    ///
    /// `name` is the name of the type if it is an object; those of inner objects begin with it. It must not be
    /// the name of a variable, whose fields would be taken for those types. `is_root`: the schema
    /// is that of a whole resource.
    pub fn from_schema(schema: &Json, name: &str, is_root: bool) -> Option<Self> {
        read(schema, name, is_root, 0)
    }

    /// Returns a type without a schema.
    pub fn simple(of: Type) -> Self {
        Self {
            of,
            shape: Shape::Simple,
            elements_max: 0,
            bytes_min: 1,
        }
    }

    /// Returns a type of texts with a maximum length.
    fn sized(of: Type, elements_max: i64, bytes_min: i64) -> Self {
        Self {
            of,
            shape: Shape::Simple,
            elements_max: elements_max.max(0).cast_unsigned(),
            bytes_min,
        }
    }

    /// Returns the type in expressions.
    pub fn cel_type(&self) -> &Type {
        &self.of
    }

    /// Adds the objects in the type by their names.
    pub(crate) fn collect(&self, structures: &mut HashMap<String, BTreeMap<String, Type>>) {
        match &self.shape {
            Shape::Simple => {}
            Shape::List(inner) | Shape::Map(inner) => inner.collect(structures),
            Shape::Object(fields) => {
                let types = fields
                    .iter()
                    .map(|(name, field)| (name.clone(), field.of.clone()));
                structures.insert(self.of.name().to_owned(), types.collect());
                fields.values().for_each(|field| field.collect(structures));
            }
        }
    }

    /// Returns the type of a part, by the path that the estimate of costs uses.
    pub(crate) fn part(&self, path: &[Arc<str>]) -> Option<&Self> {
        let mut current = self;
        for name in path {
            current = match (&**name, &current.shape) {
                ("@items" | "@values", Shape::List(inner) | Shape::Map(inner)) => inner,
                ("@keys", Shape::Map(_)) => key(),
                ("@items" | "@values" | "@keys", _) => return None,
                (name, Shape::Object(fields)) => fields.get(name)?,
                _ => return None,
            };
        }
        Some(current)
    }
}

/// Returns the type of the keys of maps, whose length has no estimate.
fn key() -> &'static Declared {
    static KEY: Declared = Declared {
        of: Type::String,
        shape: Shape::Simple,
        elements_max: 0,
        bytes_min: 2,
    };
    &KEY
}

fn read(schema: &Json, name: &str, is_root: bool, depth: usize) -> Option<Declared> {
    if depth > DEPTH_MAX {
        return None;
    }
    let number = |key: &str| {
        schema
            .get(key)
            .and_then(|value| value.as_i64().or_else(|| value.as_u64().map(|_| i64::MAX)))
    };
    // A character can have four bytes.
    let text_max = number("maxLength").map(|length| length.max(0).saturating_mul(4));
    if flag(schema, "x-kubernetes-int-or-string") {
        let length = text_max.unwrap_or(REQUEST_BYTES_MAX - 2);
        return Some(Declared::sized(Type::Dyn, length, 1));
    }
    match schema.get("type").and_then(Json::as_str)? {
        "array" => {
            let items = schema.get("items").filter(|items| items.is_object())?;
            let is_root = flag(items, "x-kubernetes-embedded-resource");
            let items = read(items, &format!("{name}.@idx"), is_root, depth + 1)?;
            let count = number("maxItems")
                .unwrap_or((REQUEST_BYTES_MAX - 2) / (items.bytes_min + 1))
                .max(0);
            Some(Declared {
                of: Type::list(items.of.clone()),
                shape: Shape::List(Arc::new(items)),
                elements_max: count.cast_unsigned(),
                bytes_min: 2,
            })
        }
        "object" => {
            if !is_root && let Some(values) = additional(schema) {
                let is_root = flag(values, "x-kubernetes-embedded-resource");
                let values = read(values, &format!("{name}.@elem"), is_root, depth + 1)?;
                let count = number("maxProperties")
                    .unwrap_or((REQUEST_BYTES_MAX - 2) / (values.bytes_min + 6))
                    .max(0);
                return Some(Declared {
                    of: Type::map(Type::String, values.of.clone()),
                    shape: Shape::Map(Arc::new(values)),
                    elements_max: count.cast_unsigned(),
                    bytes_min: 2,
                });
            }
            Some(object(schema, name, is_root, depth))
        }
        "string" => Some(match schema.get("format").and_then(Json::as_str) {
            Some("byte") => {
                let length = number("maxLength").unwrap_or(REQUEST_BYTES_MAX - 2);
                Declared::sized(Type::Bytes, length, 2)
            }
            Some("duration") => Declared::sized(Type::Duration, 32, 3),
            Some("date") => Declared::sized(Type::Timestamp, 12, 12),
            Some("date-time") => Declared::sized(Type::Timestamp, 32, 21),
            _ => {
                let values = schema.get("enum").and_then(Json::as_array);
                let longest = values.filter(|values| !values.is_empty()).map(|values| {
                    let lengths = values.iter().filter_map(Json::as_str).map(str::len);
                    i64::try_from(lengths.max().unwrap_or(0)).unwrap_or(i64::MAX)
                });
                let length = text_max.or(longest).unwrap_or(REQUEST_BYTES_MAX - 2);
                Declared::sized(Type::String, length, 2)
            }
        }),
        "boolean" => Some(Declared::sized(Type::Bool, 0, 4)),
        "number" => Some(Declared::sized(Type::Double, 0, 1)),
        "integer" => Some(Declared::sized(Type::Int, 0, 1)),
        _ => None,
    }
}

fn object(schema: &Json, name: &str, is_root: bool, depth: usize) -> Declared {
    let required = schema.get("required").and_then(Json::as_array);
    let is_required =
        |name: &str| required.is_some_and(|list| list.iter().any(|it| it.as_str() == Some(name)));
    let mut fields = BTreeMap::new();
    // The brackets.
    let mut bytes_min: i64 = 2;
    let properties = properties(schema, is_root).unwrap_or_default();
    for (property, inner) in properties.iter() {
        let escaped = escape(property);
        let inner_name = format!("{name}.{}", escaped.as_deref().unwrap_or(property));
        let is_root = flag(inner, "x-kubernetes-embedded-resource");
        let Some(field) = read(inner, &inner_name, is_root, depth + 1) else {
            continue;
        };
        if is_required(property) && inner.get("default").is_none() {
            let length = i64::try_from(property.len()).unwrap_or(i64::MAX);
            bytes_min = bytes_min.saturating_add(length + field.bytes_min + 4);
        }
        if let Some(escaped) = escaped {
            fields.insert(escaped, field);
        }
    }
    Declared {
        of: Type::object(name),
        shape: Shape::Object(Arc::new(fields)),
        elements_max: 0,
        bytes_min,
    }
}
