//! Structural schemas: the types that they declare, and values by them.

mod convert;
mod declared;
mod escape;

use std::borrow::Cow;

use serde_json::{Map, Value as Json, json};

pub use convert::to_value;
pub use declared::{Declared, max_cardinality};
pub use escape::{escape, is_reserved, unescape};

/// The size of the largest request, which bounds what a schema does not.
pub(crate) const REQUEST_BYTES_MAX: i64 = 3 * 1024 * 1024;

/// The maximum depth of schemas and of the data that they describe.
pub(crate) const DEPTH_MAX: usize = 100;

/// Returns whether a schema has a flag, such as `x-kubernetes-int-or-string`.
pub(crate) fn flag(schema: &Json, name: &str) -> bool {
    schema.get(name).and_then(Json::as_bool).unwrap_or(false)
}

/// Returns the properties of a schema. Those of the root of a resource contain `kind`, `apiVersion` and `metadata`, of
/// which only the names can be seen unless the schema says more.
pub(crate) fn properties(schema: &Json, is_root: bool) -> Option<Cow<'_, Map<String, Json>>> {
    let own = schema.get("properties").and_then(Json::as_object);
    if !is_root || own.is_some_and(has_metadata) {
        return own.map(Cow::Borrowed);
    }
    let mut properties = own.cloned().unwrap_or_default();
    let text = json!({"type": "string"});
    properties.insert("kind".to_owned(), text.clone());
    properties.insert("apiVersion".to_owned(), text.clone());
    let metadata = json!({"type": "object", "properties": {"name": text, "generateName": text}});
    properties.insert("metadata".to_owned(), metadata);
    Some(Cow::Owned(properties))
}

/// Returns whether properties have all that those of a resource have at least.
fn has_metadata(properties: &Map<String, Json>) -> bool {
    let is = |schema: Option<&Json>, of: &str| schema.is_some_and(|schema| schema["type"] == of);
    let metadata = properties.get("metadata");
    let names = metadata.and_then(|schema| schema.get("properties"));
    is(metadata, "object")
        && ["kind", "apiVersion"]
            .iter()
            .all(|name| is(properties.get(*name), "string"))
        && ["name", "generateName"]
            .iter()
            .all(|name| is(names.and_then(|names| names.get(name)), "string"))
}

/// Returns the schema of the values of a map.
pub(crate) fn additional(schema: &Json) -> Option<&Json> {
    schema
        .get("additionalProperties")
        .filter(|inner| inner.is_object())
}
