//! What is wrong with a value, by its schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::compare::element;
use crate::element::Names;
use crate::{FieldSchema, FieldShape, PathElement, path_text};

/// Checks that an object fits its schema, as the configuration of an apply must.
///
/// # Errors
/// The text of all errors, each with the path of its field.
pub fn validate<S: FieldSchema>(object: &Map<String, Value>, schema: S) -> Result<(), String> {
    let mut walk = Validation::default();
    walk.members(object, schema);
    walk.finish()
}

/// The largest number of errors that are reported.
const MAX_ERRORS: usize = 100;

#[derive(Default)]
struct Validation {
    names: Names,
    path: Vec<PathElement>,
    errors: Vec<String>,
}

impl Validation {
    fn fail(&mut self, text: &str) {
        if self.errors.len() >= MAX_ERRORS {
            return;
        }
        let path = path_text(&self.path);
        self.errors.push(if path.is_empty() {
            text.to_owned()
        } else {
            format!("{path}: {text}")
        });
    }

    fn finish(self) -> Result<(), String> {
        match self.errors.as_slice() {
            [] => Ok(()),
            [error] => Err(error.clone()),
            errors => Err(format!("errors:\n  {}", errors.join("\n  "))),
        }
    }

    fn members<S: FieldSchema>(&mut self, map: &Map<String, Value>, schema: S) {
        for (name, value) in map {
            self.path.push(PathElement::Field(self.names.get(name)));
            if schema.declares(name) {
                self.visit(value, schema.member(name));
            } else {
                self.fail("field not declared in schema");
            }
            self.path.pop();
        }
    }

    fn visit<S: FieldSchema>(&mut self, value: &Value, schema: S) {
        if value.is_null() {
            return;
        }
        if let Err(error) = schema.check(value) {
            return self.fail(&error);
        }
        match value {
            Value::Object(map) => self.members(map, schema),
            Value::Array(items) => {
                let shape = schema.shape(Some(value));
                let mut seen = BTreeSet::new();
                for (index, item) in items.iter().enumerate() {
                    let place = match shape {
                        FieldShape::Set | FieldShape::Map(_) => match element(item, &shape) {
                            Ok(place) => place,
                            Err(error) => return self.fail(&format!("element {index}: {error}")),
                        },
                        _ => PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX)),
                    };
                    if !seen.insert(place.clone()) {
                        self.fail(&format!(
                            "duplicate entries for key {}",
                            path_text(std::slice::from_ref(&place))
                        ));
                    }
                    self.path.push(place);
                    self.visit(item, schema.item());
                    self.path.pop();
                }
            }
            _ => {}
        }
    }
}
