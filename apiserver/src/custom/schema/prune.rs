//! Pruning: the removal of fields that a schema does not have.

use serde_json::{Map, Value};

use super::causes::CAUSES_MAX;
use super::node::Schema;
use super::path::Path;

/// The fields that each object has, which schemas need not name.
pub(crate) const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Removes the fields of an object that the schema does not have, except for `apiVersion`, `kind` and
    /// `metadata`. Returns the paths of removed fields, sorted, up to a maximum.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Unknown::default();
        prune_node(object, Some(self), true, &Path::root(""), &mut unknown);
        unknown.paths.sort();
        unknown.paths
    }

    /// Removes the fields of a value that is not an object of its own.
    pub(crate) fn prune_value(&self, value: &mut Value) {
        prune_node(
            value,
            Some(self),
            false,
            &Path::root(""),
            &mut Unknown::default(),
        );
    }
}

/// The paths of unknown fields.
#[derive(Debug, Default)]
struct Unknown {
    paths: Vec<String>,
}

impl Unknown {
    fn add(&mut self, path: &Path<'_>) {
        if self.paths.len() < CAUSES_MAX {
            self.paths.push(path.to_string());
        }
    }
}

fn prune_node(
    value: &mut Value,
    schema: Option<&Schema>,
    is_root: bool,
    path: &Path<'_>,
    unknown: &mut Unknown,
) {
    let preserves = schema.is_some_and(Schema::preserves_unknown);
    prune_fields(value, schema, is_root, preserves, path, unknown);
}

/// Prunes a value. If `preserves` is set, its own unknown fields are kept.
fn prune_fields(
    value: &mut Value,
    schema: Option<&Schema>,
    is_root: bool,
    preserves: bool,
    path: &Path<'_>,
    unknown: &mut Unknown,
) {
    match value {
        Value::Object(map) => prune_map(map, schema, is_root, preserves, path, unknown),
        Value::Array(list) => {
            let items = schema.and_then(|schema| schema.items.as_deref());
            if preserves && items.is_none() {
                return;
            }
            for (index, item) in list.iter_mut().enumerate() {
                let preserves = preserves || items.is_some_and(Schema::preserves_unknown);
                prune_fields(item, items, false, preserves, &path.index(index), unknown);
            }
        }
        _ => {}
    }
}

fn prune_map(
    map: &mut Map<String, Value>,
    schema: Option<&Schema>,
    is_root: bool,
    preserves: bool,
    path: &Path<'_>,
    unknown: &mut Unknown,
) {
    let Some(schema) = schema else {
        for name in map.keys() {
            unknown.add(&path.child(name));
        }
        map.clear();
        return;
    };
    map.retain(|name, value| {
        if (schema.embedded || is_root) && META_FIELDS.contains(&name.as_str()) {
            return true;
        }
        let path = path.child(name);
        if let Some(property) = schema.properties.get(name) {
            prune_node(value, Some(property), false, &path, unknown);
        } else if schema.additional.is_set() {
            prune_node(value, schema.additional.schema(), false, &path, unknown);
        } else if !preserves {
            unknown.add(&path);
            return false;
        }
        true
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::custom::schema::Schema;

    #[test]
    fn unknown_fields_are_removed_and_reported() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "known": {"type": "string"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"strict": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "emb": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object"}},
            "any": {"type": "object", "additionalProperties": true},
        }}}})).unwrap();
        let mut object = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "top": 1, "spec": {
            "known": "1", "unknown": "2",
            "free": {"any": {"thing": 1}, "strict": {"a": "b", "c": 1}},
            "emb": {"apiVersion": "v1", "metadata": {"zzz": 1}, "data": 1},
            "list": [{"a": "b", "c": "d"}],
            "map": {"k": {"x": 1}},
            "any": {"k": {"x": 1}, "l": 5}}});
        let expected = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "spec": {
            "known": "1",
            "free": {"any": {"thing": 1}, "strict": {"a": "b"}},
            "emb": {"apiVersion": "v1", "metadata": {"zzz": 1}, "data": 1},
            "list": [{"a": "b"}],
            "map": {"k": {}},
            "any": {"k": {}, "l": 5}}});
        let unknown = schema.prune(&mut object);
        assert_eq!(object, expected);
        let paths = [
            "spec.any.k.x",
            "spec.free.strict.c",
            "spec.list[0].c",
            "spec.map.k.x",
            "spec.unknown",
            "top",
        ];
        assert_eq!(unknown, paths);
        assert_eq!(schema.prune(&mut object), [""; 0]);
        assert_eq!(object, expected);
    }
}
