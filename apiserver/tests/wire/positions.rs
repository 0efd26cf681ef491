//! The positions of fields in the objects of a kind, and values for them.

use std::collections::HashSet;

use fastrand::Rng;
use revstore_kinds::{Shape, Type};
use serde_json::{Value, json};

/// A step from a value to one inside of it.
#[derive(Clone, Copy, Debug)]
enum Step {
    Field(&'static str),
    /// The first item of a list.
    Item,
    /// The first value of a map.
    Entry,
}

/// A field at one place in the objects of a kind.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    path: Vec<Step>,
    ty: &'static Type,
    /// The type with the field, and the field.
    field: (&'static str, &'static str),
}

impl Position {
    /// Returns whether the field is a part of the metadata.
    pub(crate) fn is_metadata(&self) -> bool {
        matches!(self.path.first(), Some(Step::Field("metadata")))
    }

    /// Returns whether the field is the overhead of a pod, of which an empty one is refused, and none is not.
    pub(crate) fn is_pod_overhead(&self) -> bool {
        let path: Vec<_> = self.path.iter().collect();
        matches!(path[..], [Step::Field("spec"), Step::Field("overhead")])
    }

    /// Sets the field of an object, and makes the objects, lists and maps around it where they are missing.
    pub(crate) fn set(&self, object: &mut Value, value: Value) {
        let mut place = object;
        for step in &self.path {
            place = match step {
                Step::Field(name) => {
                    if !place.is_object() {
                        *place = json!({});
                    }
                    &mut place[*name]
                }
                Step::Item => {
                    if place.as_array().is_none_or(Vec::is_empty) {
                        *place = json!([null]);
                    }
                    &mut place[0]
                }
                Step::Entry => {
                    if place.as_object().is_none_or(serde_json::Map::is_empty) {
                        *place = json!({"key": null});
                    }
                    let map = place.as_object_mut().expect("a map");
                    map.values_mut().next().expect("an entry")
                }
            };
        }
        *place = value;
    }

    /// Returns a value of another type.
    pub(crate) fn wrong_type(&self, rng: &mut Rng) -> Value {
        let choices = match target(self.ty).shape() {
            Shape::String => json!([7, true, [], {}, 1.5]),
            Shape::Bool => json!(["true", 1, [], {}]),
            Shape::Int32 | Shape::Int64 => json!(["7", 1.5, true, 1_u64 << 63, {}, "", -1e300]),
            Shape::IntOrString => json!([{}, 1.5, 1_i64 << 40, true, []]),
            Shape::Float64 => json!(["1", {}, true]),
            Shape::Quantity => json!(["x", {}, "1.1.1", true, ["1"], "1e99999999999"]),
            Shape::Bytes => json!([7, {}, "?", "YQ", [300]]),
            Shape::Time | Shape::MicroTime => json!([7, "x", "2024-13-01T00:00:00Z", {}, ""]),
            Shape::List { .. } => json!([{}, "x", 7, {"0": 1}, [[[[]]]], [1.5]]),
            Shape::Map { .. } => json!([[], "x", 7, {"k": [[]]}]),
            _ => json!(["x", 7, [], true, [[]]]),
        };
        choose(&choices, rng)
    }

    /// Returns a value of the type that is unusual, and often not valid.
    pub(crate) fn wrong_value(&self, rng: &mut Rng) -> Value {
        let long = "x".repeat(300);
        let choices = match target(self.ty).shape() {
            Shape::String => {
                json!([
                    "",
                    "\u{0}",
                    "a\nb\u{2028}",
                    long,
                    "ä/../%25",
                    "-1",
                    " ",
                    "*",
                    "$(x)",
                    "null",
                    "0x7",
                    "\u{fffd}"
                ])
            }
            Shape::Bool => json!([true, false]),
            Shape::Int32 => json!([-1, i32::MAX, i32::MIN, 0]),
            Shape::Int64 => json!([-1, i64::MAX, i64::MIN, 0]),
            Shape::IntOrString => json!(["150%", -1, "x", "", 70000, "-5%"]),
            Shape::Float64 => json!([-0.0, 1e308, -1.5]),
            Shape::Quantity => json!(["-1", "0.0000000001", "9223372036854775808", "1e30", "0"]),
            Shape::Bytes => json!(["", "AA==", "/////w=="]),
            Shape::Time | Shape::MicroTime => {
                json!(["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
            }
            Shape::List { .. } => json!([[]]),
            _ => json!([{}]),
        };
        choose(&choices, rng)
    }
}

/// Returns the type behind pointers.
fn target(ty: &'static Type) -> &'static Type {
    match ty.shape() {
        Shape::Pointer(inner) => target(inner.get()),
        _ => ty,
    }
}

fn choose(choices: &Value, rng: &mut Rng) -> Value {
    let choices = choices.as_array().expect("choices");
    choices[rng.usize(..choices.len())].clone()
}

/// Which positions have been chosen, of all kinds.
#[derive(Default)]
pub(crate) struct Chosen(HashSet<(&'static str, &'static str)>);

impl Chosen {
    /// Returns the positions of a kind, with each field of each type that no kind before it has; of the fields that
    /// several places have, such as those of pods, one of `others` at random.
    pub(crate) fn of(&mut self, ty: &'static Type, others: usize, rng: &mut Rng) -> Vec<Position> {
        let mut all = Vec::new();
        collect(ty, &mut Vec::new(), &mut Vec::new(), &mut all);
        all.retain(|position| self.0.insert(position.field) || rng.usize(..others) == 0);
        all
    }
}

fn collect(
    ty: &'static Type,
    path: &mut Vec<Step>,
    around: &mut Vec<&'static str>,
    all: &mut Vec<Position>,
) {
    let mut inner = |step, ty, path: &mut Vec<Step>| {
        path.push(step);
        collect(ty, path, around, all);
        path.pop();
    };
    match ty.shape() {
        Shape::Pointer(target) => collect(target.get(), path, around, all),
        Shape::List { item, .. } => inner(Step::Item, item.get(), path),
        Shape::Map { value, .. } => inner(Step::Entry, value.get(), path),
        // A type that contains itself is there once.
        Shape::Struct(fields) if !around.contains(&ty.full_name()) => {
            around.push(ty.full_name());
            for field in fields {
                path.push(Step::Field(field.name()));
                all.push(Position {
                    path: path.clone(),
                    ty: field.ty(),
                    field: (ty.full_name(), field.name()),
                });
                collect(field.ty(), path, around, all);
                path.pop();
            }
            around.pop();
        }
        _ => {}
    }
}
