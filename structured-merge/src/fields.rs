//! The fields that a value has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::compare::element;
use crate::{FieldSchema, FieldSet, FieldShape, PathElement};

/// Returns the fields that an object has, without the items of lists that cannot be identified.
pub fn fields_of<S: FieldSchema>(object: &Map<String, Value>, schema: S) -> FieldSet {
    let mut set = FieldSet::default();
    for (name, value) in object {
        let schema_of_member = schema.member(name);
        let (fields, is_member) = fields_in(value, schema_of_member);
        let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        let place = PathElement::Field(name.clone());
        if is_member || is_empty || !schema.names(name) {
            set.members.insert(place.clone());
        }
        if !fields.is_empty() {
            set.children.insert(place, fields);
        }
    }
    set
}

/// Returns the fields in a value, and whether it is a field itself.
fn fields_in<S: FieldSchema>(value: &Value, schema: S) -> (FieldSet, bool) {
    let shape = schema.shape(Some(value));
    match (&shape, value) {
        (FieldShape::Leaf, _) => (FieldSet::default(), true),
        (FieldShape::Object, Value::Object(map)) => (fields_of(map, schema), false),
        (FieldShape::Set | FieldShape::Map(_), Value::Array(items)) => {
            let mut seen = BTreeSet::new();
            let mut duplicates = BTreeSet::new();
            let mut places = Vec::with_capacity(items.len());
            for item in items {
                let Ok(place) = element(item, &shape) else {
                    continue;
                };
                if !seen.insert(place.clone()) {
                    duplicates.insert(place.clone());
                }
                places.push((item, place));
            }
            let mut set = FieldSet::default();
            for (item, place) in places {
                set.members.insert(place.clone());
                if duplicates.contains(&place) {
                    continue;
                }
                let (fields, _) = fields_in(item, schema.item());
                if !fields.is_empty() {
                    set.children.insert(place, fields);
                }
            }
            (set, false)
        }
        (_, Value::Null) => (FieldSet::default(), false),
        _ => (FieldSet::default(), true),
    }
}

impl FieldSet {
    /// Replaces the fields within objects and lists that have become atomic by these.
    pub fn reconcile<S: FieldSchema>(&mut self, schema: S) {
        let mut atomic = Vec::new();
        for (place, child) in &mut self.children {
            let below = match place {
                PathElement::Field(name) if !schema.declares(name) => continue,
                PathElement::Field(name) => schema.member(name),
                _ => schema.item(),
            };
            if is_atomic(below) {
                atomic.push(place.clone());
            } else {
                child.reconcile(below);
            }
        }
        for place in atomic {
            self.children.remove(&place);
            self.members.insert(place);
        }
    }

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

/// Returns whether a type is that of an atomic object or list. One that allows several shapes is not: it says that `null`
/// can be an object.
fn is_atomic<S: FieldSchema>(schema: S) -> bool {
    schema.shape(Some(&Value::Null)) == FieldShape::Leaf
        && (schema.check(&Value::Object(Map::new())).is_ok()
            || schema.check(&Value::Array(Vec::new())).is_ok())
}
