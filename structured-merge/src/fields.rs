//! The fields that a value has.

use serde_json::{Map, Value};

use crate::compare::element;
use crate::element::Names;
use crate::set::Slot;
use crate::{FieldSchema, FieldSet, FieldShape, PathElement};

/// Returns the fields that an object has, without the items of lists that cannot be identified.
pub fn fields_of<S: FieldSchema>(object: &Map<String, Value>, schema: S) -> FieldSet {
    fields_of_object(object, schema, &mut Names::default())
}

fn fields_of_object<S: FieldSchema>(
    object: &Map<String, Value>,
    schema: S,
    names: &mut Names,
) -> FieldSet {
    let slots = object.iter().map(|(name, value)| {
        let (child, is_member) = fields_in(value, schema.member(name), names);
        let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        Slot {
            element: PathElement::Field(names.get(name)),
            is_member: is_member || is_empty || !schema.names(name),
            child,
        }
    });
    FieldSet::of_slots(slots.collect())
}

/// Returns the fields in a value, and whether it is a field itself.
fn fields_in<S: FieldSchema>(value: &Value, schema: S, names: &mut Names) -> (FieldSet, bool) {
    let shape = schema.shape(Some(value));
    match (&shape, value) {
        (FieldShape::Leaf, _) => (FieldSet::EMPTY, true),
        (FieldShape::Object, Value::Object(map)) => (fields_of_object(map, schema, names), false),
        (FieldShape::Set | FieldShape::Map(_), Value::Array(items)) => {
            let places = items.iter();
            let places = places.filter_map(|item| Some((element(item, &shape).ok()?, item)));
            let mut places: Vec<_> = places.collect();
            places.sort_by(|(one, _), (other, _)| one.cmp(other));
            let schema = schema.item();
            let mut last = FieldSet::EMPTY;
            let same = places.chunk_by(|(one, _), (other, _)| one == other);
            let slots = same.map(|same| Slot {
                element: same[0].0.clone(),
                is_member: true,
                child: match same {
                    [(_, item)] => fields_in(item, schema, names).0.shared_with(&mut last),
                    // Items with the same keys are one field.
                    _ => FieldSet::EMPTY,
                },
            });
            (FieldSet::of_slots(slots.collect()), false)
        }
        (_, Value::Null) => (FieldSet::EMPTY, false),
        _ => (FieldSet::EMPTY, true),
    }
}

impl FieldSet {
    /// Replaces the fields within objects and lists that have become atomic by these.
    pub fn reconcile<S: FieldSchema>(&mut self, schema: S) {
        *self = self.reconciled(schema);
    }

    fn reconciled<S: FieldSchema>(&self, schema: S) -> Self {
        self.map(|slot| {
            let mut slot = slot.clone();
            let below = match &slot.element {
                _ if slot.child.is_empty() => return Some(slot),
                PathElement::Field(name) if !schema.declares(name) => return Some(slot),
                PathElement::Field(name) => schema.member(name),
                _ => schema.item(),
            };
            if is_atomic(below) {
                slot.is_member = true;
                slot.child = Self::EMPTY;
            } else {
                slot.child.reconcile(below);
            }
            Some(slot)
        })
    }

    /// Adds the objects around fields of the set, if their type names them.
    #[must_use]
    pub fn with_named<S: FieldSchema>(&self, schema: S) -> Self {
        self.map(|slot| {
            let mut slot = slot.clone();
            if slot.child.is_empty() {
                return Some(slot);
            }
            let below = match &slot.element {
                PathElement::Field(name) => {
                    slot.is_member |= schema.names(name);
                    schema.member(name)
                }
                _ => schema.item(),
            };
            slot.child = slot.child.with_named(below);
            Some(slot)
        })
    }
}

/// Returns whether a type is that of an atomic object or list. One that allows several shapes is not: it says that `null`
/// can be an object.
fn is_atomic<S: FieldSchema>(schema: S) -> bool {
    schema.shape(Some(&Value::Null)) == FieldShape::Leaf
        && (schema.check(&Value::Object(Map::new())).is_ok()
            || schema.check(&Value::Array(Vec::new())).is_ok())
}
