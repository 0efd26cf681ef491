//! The uniqueness of items in lists of type `set` and `map`.

use std::collections::HashMap;

use revstore_watch_cache::status::StatusCause;
use serde_json::{Map, Value};

use crate::custom::schema::causes::Causes;
use crate::custom::schema::node::Schema;
use crate::custom::schema::path::Path;

impl Schema {
    /// Returns which items of sets and maps are not unique.
    pub(crate) fn list_errors(&self, object: &Value, causes: &mut Causes) {
        check(self, object, &Path::root(""), causes);
    }
}

fn check(schema: &Schema, value: &Value, path: &Path<'_>, causes: &mut Causes) {
    if causes.is_full() {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(property) = schema.properties.get(name) {
                    check(property, value, &path.child(name), causes);
                } else if let Some(additional) = schema.additional.schema() {
                    check(additional, value, &path.key(name), causes);
                }
            }
        }
        Value::Array(list) => {
            match schema.list_type.as_deref() {
                Some("set") => check_unique(list, list, path, causes),
                Some("map") => check_map(schema, list, path, causes),
                _ => {}
            }
            if let Some(items) = &schema.items {
                for (index, item) in list.iter().enumerate() {
                    check(items, item, &path.index(index), causes);
                }
            }
        }
        _ => {}
    }
}

/// Adds a cause for each value that is repeated, at its second place.
fn check_unique(values: &[Value], shown: &[Value], path: &Path<'_>, causes: &mut Causes) {
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            causes.push(StatusCause::duplicate(
                path.index(index).field(),
                shown[index].clone(),
            ));
        }
    }
}

fn check_map(schema: &Schema, list: &[Value], path: &Path<'_>, causes: &mut Causes) {
    if let Some(index) = list
        .iter()
        .position(|item| !item.is_null() && !item.is_object())
    {
        let detail = "must be an object for an array of list-type map";
        causes.push(StatusCause::invalid(
            path.index(index).field(),
            list[index].clone(),
            detail,
        ));
        return;
    }
    let keys: Vec<Value> = list.iter().map(|item| keys_of(schema, item)).collect();
    check_unique(&keys, &keys, path, causes);
}

/// Returns the keys of an item of a map, as an object.
pub(crate) fn keys_of(schema: &Schema, item: &Value) -> Value {
    let entry = |key: &String| Some((key.clone(), item.get(key)?.clone()));
    Value::Object(
        schema
            .list_keys
            .iter()
            .filter_map(entry)
            .collect::<Map<_, _>>(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::custom::schema::Schema;
    use crate::custom::schema::causes::Causes;

    #[test]
    fn duplicates_are_reported_once_at_their_second_place() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "p"],
                "items": {"type": "object"}},
            "m": {"type": "object", "additionalProperties": {"type": "array", "x-kubernetes-list-type": "set",
                "items": {"type": "integer"}}}}}))
        .unwrap();
        let object = json!({"tags": ["a", "b", "a", "a"], "m": {"k": [1, 1]},
            "ports": [{"name": "x", "p": 1, "z": 1}, {"name": "x"}, {"name": "x", "p": 1}]});
        let mut causes = Causes::default();
        schema.list_errors(&object, &mut causes);
        let texts: Vec<_> = causes
            .into_sorted()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            texts,
            [
                "m[k][1]: Duplicate value: 1",
                "ports[2]: Duplicate value: {\"name\":\"x\",\"p\":1}",
                "tags[2]: Duplicate value: \"a\"",
            ]
        );
    }
}
