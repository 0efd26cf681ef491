//! Values as their schema sees them: what is wrong with them, and which fields they have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::compare::element;
use super::{FieldSchema, FieldSet, FieldShape, PathElement};

/// Checks that a value fits its schema, as the configuration of an apply must.
///
/// # Errors
/// The text of all errors, each with the path of its field.
pub fn validate<S: FieldSchema>(value: &Value, schema: S) -> Result<(), String> {
    let mut walk = Validation::default();
    walk.visit(value, schema);
    match walk.errors.as_slice() {
        [] => Ok(()),
        [error] => Err(error.clone()),
        errors => Err(format!("errors:\n  {}", errors.join("\n  "))),
    }
}

/// The largest number of errors that are reported.
const MAX_ERRORS: usize = 100;

#[derive(Default)]
struct Validation {
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

    fn visit<S: FieldSchema>(&mut self, value: &Value, schema: S) {
        if value.is_null() {
            return;
        }
        if let Err(error) = schema.check(value) {
            return self.fail(&error);
        }
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    self.path.push(PathElement::Field(name.clone()));
                    if schema.declares(name) {
                        self.visit(value, schema.member(name));
                    } else {
                        self.fail("field not declared in schema");
                    }
                    self.path.pop();
                }
            }
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

/// Returns a path as texts for users have it: `.spec.ports[name="http"]`.
pub fn path_text(path: &[PathElement]) -> String {
    let mut text = String::new();
    for element in path {
        match element {
            PathElement::Field(name) => {
                text.push('.');
                text.push_str(name);
            }
            PathElement::Key(json) => {
                let keys: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
                let keys: BTreeMap<_, _> = keys.into_iter().collect();
                let keys: Vec<_> = keys
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                let _ = write!(text, "[{}]", keys.join(","));
            }
            PathElement::Value(json) => {
                let _ = write!(text, "[={json}]");
            }
            PathElement::Index(index) => {
                let _ = write!(text, "[{index}]");
            }
        }
    }
    text
}

/// Returns the fields that an object has.
///
/// # Errors
/// The text of an error, if a list has an item that cannot be identified.
pub fn fields_of<S: FieldSchema>(
    object: &Map<String, Value>,
    schema: S,
) -> Result<FieldSet, String> {
    let mut set = FieldSet::default();
    for (name, value) in object {
        let schema_of_member = schema.member(name);
        let (fields, is_member) = fields_in(value, schema_of_member)?;
        let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        let place = PathElement::Field(name.clone());
        if is_member || is_empty || !schema.names(name) {
            set.members.insert(place.clone());
        }
        if !fields.is_empty() {
            set.children.insert(place, fields);
        }
    }
    Ok(set)
}

/// Returns the fields in a value, and whether it is a field itself.
fn fields_in<S: FieldSchema>(value: &Value, schema: S) -> Result<(FieldSet, bool), String> {
    let shape = schema.shape(Some(value));
    match (&shape, value) {
        (FieldShape::Leaf, _) => Ok((FieldSet::default(), true)),
        (FieldShape::Object, Value::Object(map)) => Ok((fields_of(map, schema)?, false)),
        (FieldShape::Set | FieldShape::Map(_), Value::Array(items)) => {
            let mut seen = BTreeSet::new();
            let mut duplicates = BTreeSet::new();
            let mut places = Vec::with_capacity(items.len());
            for item in items {
                let place = element(item, &shape).map_err(|error| error.to_string())?;
                if !seen.insert(place.clone()) {
                    duplicates.insert(place.clone());
                }
                places.push(place);
            }
            let mut set = FieldSet::default();
            for (item, place) in items.iter().zip(places) {
                set.members.insert(place.clone());
                if duplicates.contains(&place) {
                    continue;
                }
                let (fields, _) = fields_in(item, schema.item())?;
                if !fields.is_empty() {
                    set.children.insert(place, fields);
                }
            }
            Ok((set, false))
        }
        (_, Value::Null) => Ok((FieldSet::default(), false)),
        _ => Ok((FieldSet::default(), true)),
    }
}

impl FieldSet {
    /// Adds the objects around fields of the set, if their type names them.
    #[must_use]
    pub fn with_named<S: FieldSchema>(&self, schema: S) -> Self {
        let mut members = self.members.clone();
        let mut children = BTreeMap::new();
        for (place, child) in &self.children {
            let below = match place {
                PathElement::Field(name) => {
                    if schema.names(name) {
                        members.insert(place.clone());
                    }
                    schema.member(name)
                }
                _ => schema.item(),
            };
            children.insert(place.clone(), child.with_named(below));
        }
        Self { members, children }
    }
}

/// Returns an object without the fields of a set, with what is in them.
pub fn remove<S: FieldSchema>(
    object: &Map<String, Value>,
    set: &FieldSet,
    schema: S,
) -> Map<String, Value> {
    let mut rest = Map::new();
    for (name, value) in object {
        let place = PathElement::Field(name.clone());
        if set.members.contains(&place) {
            continue;
        }
        let value = match set.children.get(&place) {
            Some(set) if !set.is_empty() => remove_in(value, set, schema.member(name)),
            _ => value.clone(),
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
                if set.members.contains(&place) {
                    continue;
                }
                rest.push(match set.children.get(&place) {
                    Some(set) if !set.is_empty() => remove_in(item, set, schema.item()),
                    _ => item.clone(),
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
