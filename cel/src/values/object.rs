//! Objects that expressions make, with the names of their types.

use std::sync::Arc;

use super::{Key, Map, Value};
use crate::environment::JSON_PATCH;
use crate::fault::{EvaluationError, fail};

/// An object that an expression makes, with the name of its type.
#[derive(Debug)]
pub struct Object {
    name: Arc<str>,
    fields: Map,
}

impl Object {
    /// Makes an object.
    ///
    /// # Errors
    /// The fields of an operation of a JSON patch that must be strings are not.
    pub(crate) fn make(name: &Arc<str>, fields: Map) -> Result<Value, EvaluationError> {
        if &**name == JSON_PATCH {
            for field in ["op", "path", "from"] {
                if let Some(value) = fields.get_str(field)
                    && value.as_str().is_none()
                {
                    return fail(format!(
                        "unexpected type {} for JSONPatchType '{field}' field",
                        value.type_name()
                    ));
                }
            }
        }
        Ok(Value::Object(Arc::new(Self {
            name: name.clone(),
            fields,
        })))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn fields(&self) -> &Map {
        &self.fields
    }

    /// Returns what expressions see of the object: only the fields of an operation of a JSON patch.
    pub(crate) fn part(&self, key: &Value) -> Option<&Value> {
        if &*self.name != JSON_PATCH {
            return None;
        }
        self.fields.get(&Key::of(key)?)
    }

    /// Adds the objects inside of it that have not the name of their field, but another one.
    pub(crate) fn mismatches(&self, path: &str, found: &mut Vec<String>) {
        if *self.name != *path {
            found.push(format!(
                "unexpected type name \"{}\", expected \"{path}\", which matches field name path from root Object type",
                self.name
            ));
        }
        for (key, value) in self.fields.iter() {
            if let Key::String(field) = key {
                mismatches_in(value, &format!("{path}.{field}"), found);
            }
        }
    }
}

fn mismatches_in(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => object.mismatches(path, found),
        Value::List(list) => {
            for item in list.iter() {
                mismatches_in(&item, path, found);
            }
        }
        Value::Map(map) => {
            for (_, value) in map.iter() {
                mismatches_in(value, path, found);
            }
        }
        _ => {}
    }
}
