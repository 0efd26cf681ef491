//! Defaulting, and the removal of nulls that a schema does not allow.

mod check;

use serde_json::Value;

use super::node::Schema;

/// The maximum number of bytes that defaults add to one object.
pub const DEFAULT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The defaults of an object are larger than [`DEFAULT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the defaults of the schema add more than {DEFAULT_BYTES_MAX} bytes to the object")]
pub struct DefaultsTooLarge;

impl Schema {
    /// Sets the defaults of an object. Nulls are removed or replaced where the schema does not allow them.
    ///
    /// # Errors
    /// [`DefaultsTooLarge`].
    pub fn set_defaults(&self, object: &mut Value) -> Result<(), DefaultsTooLarge> {
        self.drop_nulls(object);
        let mut left = DEFAULT_BYTES_MAX;
        fill(object, self, &mut left)
    }

    /// Returns whether a null is not allowed.
    fn refuses_null(&self) -> bool {
        !self.nullable
    }

    /// Removes the fields that are null, unless the schema allows them to be or has a default for them.
    pub(crate) fn drop_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(map) => map.retain(|name, value| {
                let Some(schema) = self.of_field(name) else {
                    return true;
                };
                if value.is_null() {
                    return schema.nullable || schema.default.is_some();
                }
                schema.drop_nulls(value);
                true
            }),
            Value::Array(list) => {
                if let Some(items) = &self.items {
                    for item in list {
                        items.drop_nulls(item);
                    }
                }
            }
            _ => {}
        }
    }
}

fn fill(value: &mut Value, schema: &Schema, left: &mut usize) -> Result<(), DefaultsTooLarge> {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                if let Some(default) = &property.default
                    && map
                        .get(name)
                        .is_none_or(|value| value.is_null() && property.refuses_null())
                {
                    map.insert(name.clone(), copy(default, left)?);
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(property) = schema.properties.get(name) {
                    fill(value, property, left)?;
                } else if let Some(additional) = schema.additional.schema() {
                    set_null(value, additional, left)?;
                    fill(value, additional, left)?;
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.items.as_deref() {
                for item in list {
                    set_null(item, items, left)?;
                    fill(item, items, left)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Replaces a null that is not allowed by the default, if there is one.
fn set_null(value: &mut Value, schema: &Schema, left: &mut usize) -> Result<(), DefaultsTooLarge> {
    if value.is_null()
        && schema.refuses_null()
        && let Some(default) = &schema.default
    {
        *value = copy(default, left)?;
    }
    Ok(())
}

fn copy(default: &Value, left: &mut usize) -> Result<Value, DefaultsTooLarge> {
    *left = left.checked_sub(size(default)).ok_or(DefaultsTooLarge)?;
    Ok(default.clone())
}

/// Returns about how many bytes a value takes.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 8,
        Value::Array(list) => list.iter().map(size).sum::<usize>() + 8,
        Value::Object(map) => {
            map.iter()
                .map(|(name, value)| name.len() + size(value) + 8)
                .sum::<usize>()
                + 8
        }
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::DefaultsTooLarge;
    use crate::custom::schema::Schema;

    #[test]
    fn defaults_are_set_also_in_defaults_and_for_nulls() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {
            "a": {"type": "object", "default": {}, "properties": {
                "b": {"type": "integer", "default": 3},
                "c": {"type": "string", "nullable": true, "default": "x"}}},
            "gone": {"type": "string"},
            "kept": {"type": "string", "nullable": true},
            "list": {"type": "array", "items": {"type": "object", "properties": {
                "p": {"type": "string", "default": "TCP"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "integer", "default": 7}}}}))
        .unwrap();
        let mut object = json!({"a": {"c": null}, "gone": null, "kept": null, "list": [{}, {"p": null}],
            "map": {"k": null, "l": 1}, "other": null});
        let expected = json!({"a": {"b": 3, "c": null}, "kept": null, "list": [{"p": "TCP"}, {"p": "TCP"}],
            "map": {"k": 7, "l": 1}, "other": null});
        schema.set_defaults(&mut object).unwrap();
        assert_eq!(object, expected);
        schema.set_defaults(&mut object).unwrap();
        assert_eq!(object, expected);
        let mut object = json!({});
        schema.set_defaults(&mut object).unwrap();
        assert_eq!(object, json!({"a": {"b": 3, "c": "x"}}));
    }

    #[test]
    fn defaults_cannot_fill_the_memory() {
        let schema = Schema::parse(
            &json!({"type": "object", "properties": {"list": {"type": "array",
            "items": {"type": "string", "default": "x".repeat(100_000)}}}}),
        )
        .unwrap();
        let mut object = json!({"list": vec![json!(null); 1000]});
        assert_eq!(schema.set_defaults(&mut object), Err(DefaultsTooLarge));
    }
}
