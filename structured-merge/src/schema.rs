//! What the tracking of fields needs to know about types.

use std::sync::Arc;

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

    /// Returns whether objects of the type have a field with this name, other than as an entry of a map.
    fn names(self, member: &str) -> bool;

    /// Returns whether objects of the type may have a member with this name.
    fn declares(self, member: &str) -> bool;

    /// Checks that a value has the type, apart from what is in it.
    ///
    /// # Errors
    /// The text of an error.
    fn check(self, value: &Value) -> Result<(), String>;
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
    /// The name of the field, which the paths of all items share.
    pub name: Arc<str>,
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

    fn names(self, _: &str) -> bool {
        false
    }

    fn declares(self, _: &str) -> bool {
        true
    }

    fn check(self, _: &Value) -> Result<(), String> {
        Ok(())
    }
}

/// The type of a value in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    /// Any scalar.
    Scalar,
    /// A text.
    Text,
    /// A number.
    Number,
    /// `true` or `false`.
    Bool,
    /// A list.
    List,
    /// An object.
    Object,
}

impl JsonType {
    /// Checks that a value has the type. `null` has any.
    ///
    /// # Errors
    /// The text of an error.
    pub fn check(self, value: &Value) -> Result<(), String> {
        let (is_expected, expected) = match self {
            Self::Scalar => (!value.is_array() && !value.is_object(), "any scalar"),
            Self::Text => (value.is_string(), "string"),
            Self::Number => (value.is_number(), "numeric (int or float)"),
            Self::Bool => (value.is_boolean(), "boolean"),
            Self::List => (value.is_array(), "list"),
            Self::Object => (value.is_object(), "map"),
        };
        if is_expected || value.is_null() {
            return Ok(());
        }
        let found = match (self, value) {
            // The texts of Go, which shows the value or its type.
            (Self::Text, value) => format!("&value.valueUnstructured{{Value:{value}}}"),
            (Self::Number, Value::String(_)) => "string".to_owned(),
            (Self::Number, Value::Bool(_)) => "bool".to_owned(),
            (Self::Number, Value::Array(_)) => "[]interface {}".to_owned(),
            (Self::Number, _) => "map[string]interface {}".to_owned(),
            (_, value) => format!("&{{{value}}}"),
        };
        Err(format!("expected {expected}, got {found}"))
    }
}
