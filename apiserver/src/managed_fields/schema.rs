//! What the tracking of fields needs to know about types.

use serde_json::Value;

/// The type of a value, as server-side apply sees it. It is cheap to copy.
pub trait FieldSchema: Copy {
    /// Returns how a value is divided into fields. The value matters only if the type allows several.
    fn shape(self, value: Option<&Value>) -> FieldShape;

    /// Returns the type of a member of an object.
    #[must_use]
    fn member(self, name: &str) -> Self;

    /// Returns the type of the items of a list.
    #[must_use]
    fn item(self) -> Self;
}

/// How a value is divided into fields.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldShape {
    /// It is one field: a scalar, or an atomic list or object.
    Leaf,
    /// Each member of the object is a field.
    Object,
    /// Each item of the list is a field: it is a set of scalars.
    Set,
    /// Each item of the list is an object, and is identified by these fields.
    Map(Vec<ListKey>),
}

/// A field that identifies the items of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListKey {
    /// The name of the field.
    pub name: String,
    /// The value where the field is absent.
    pub default: Option<Value>,
}

/// The type of values without a schema: objects are divided, lists are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untyped;

impl FieldSchema for Untyped {
    fn shape(self, value: Option<&Value>) -> FieldShape {
        match value {
            // `null` can be an object without members.
            Some(Value::Object(_) | Value::Null) => FieldShape::Object,
            _ => FieldShape::Leaf,
        }
    }

    fn member(self, _: &str) -> Self {
        self
    }

    fn item(self) -> Self {
        self
    }
}
