//! An object without some of its fields.

use serde_json::{Map, Value};

use crate::compare::element;
use crate::{FieldSchema, FieldSet, FieldShape};

/// Returns an object without the fields of a set, with what is in them.
pub fn remove<S: FieldSchema>(
    object: &Map<String, Value>,
    set: &FieldSet,
    schema: S,
) -> Map<String, Value> {
    let mut rest = Map::new();
    for (name, value) in object {
        let value = match set.slot_of_field(name) {
            Some(slot) if slot.is_member => continue,
            Some(slot) => remove_in(value, &slot.child, schema.member(name)),
            None => value.clone(),
        };
        rest.insert(name.clone(), value);
    }
    rest
}

fn remove_in<S: FieldSchema>(value: &Value, set: &FieldSet, schema: S) -> Value {
    let shape = schema.shape(Some(value));
    match (&shape, value) {
        (FieldShape::Object, Value::Object(map)) => {
            let rest = remove(map, set, schema);
            // As in Go: an object of which nothing is left is `null`.
            if rest.is_empty() {
                Value::Null
            } else {
                rest.into()
            }
        }
        (FieldShape::Set | FieldShape::Map(_), Value::Array(items)) => {
            let mut rest = Vec::new();
            for item in items {
                let Ok(place) = element(item, &shape) else {
                    rest.push(item.clone());
                    continue;
                };
                rest.push(match set.slot(&place) {
                    Some(slot) if slot.is_member => continue,
                    Some(slot) => remove_in(item, &slot.child, schema.item()),
                    None => item.clone(),
                });
            }
            if rest.is_empty() {
                Value::Null
            } else {
                rest.into()
            }
        }
        (FieldShape::Leaf, value) if !value.is_object() && !value.is_array() => value.clone(),
        _ => Value::Null,
    }
}
