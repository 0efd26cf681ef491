//! The types of built-in kinds as the schema of tracked fields.

use revstore_kinds::{Field, ListType, Shape, Type};
use revstore_structured_merge::{FieldSchema, FieldShape, JsonType, ListKey, Untyped};
use serde_json::{Map, Value};

/// A type of a built-in kind, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct KindsSchema {
    ty: Option<&'static Type>,
    /// The field with the value, which says how a list is merged.
    field: Option<&'static Field>,
}

impl KindsSchema {
    /// Returns the schema of the objects of a kind.
    pub fn new(ty: &'static Type) -> Self {
        Self {
            ty: Some(ty),
            field: None,
        }
    }
}

impl FieldSchema for KindsSchema {
    fn shape(self, value: Option<&Value>) -> FieldShape {
        let Some(ty) = self.ty else {
            return Untyped.shape(value);
        };
        let ty = ty.target();
        let is_atomic = self.field.map_or(ty.is_atomic(), Field::is_atomic);
        match ty.shape() {
            Shape::Struct(_) | Shape::Map { .. } if !is_atomic => FieldShape::Object,
            Shape::List { item, .. } if !is_atomic => match self.field.and_then(Field::list) {
                Some(list) if list.ty() == ListType::Set => FieldShape::Set,
                Some(list) if list.ty() == ListType::Map => {
                    let keys = list.keys().map(|name| ListKey {
                        name: name.into(),
                        default: item.get().field(name).and_then(default),
                    });
                    FieldShape::Map(keys.collect())
                }
                _ => FieldShape::Leaf,
            },
            Shape::FieldsV1 => Untyped.shape(value),
            _ => FieldShape::Leaf,
        }
    }

    fn member(self, name: &str) -> Self {
        let ty = self.ty.map(Type::target);
        let field = ty.and_then(|ty| ty.field(name));
        match (field, ty.map(Type::shape)) {
            (Some(field), _) => Self {
                ty: Some(field.ty()),
                field: Some(field),
            },
            (None, Some(Shape::Map { value, .. })) => Self::new(value.get()),
            _ => Self {
                ty: None,
                field: None,
            },
        }
    }

    fn item(self) -> Self {
        Self {
            ty: self.ty.and_then(Type::element),
            field: None,
        }
    }

    fn names(self, member: &str) -> bool {
        let ty = self.ty.map(Type::target);
        ty.is_some_and(|ty| ty.field(member).is_some())
    }

    fn declares(self, member: &str) -> bool {
        let Some(ty) = self.ty.map(Type::target) else {
            return true;
        };
        !matches!(ty.shape(), Shape::Struct(_)) || ty.field(member).is_some()
    }

    fn check(self, value: &Value) -> Result<(), String> {
        let Some(ty) = self.ty.map(Type::target) else {
            return Ok(());
        };
        let expected = match ty.shape() {
            Shape::Struct(_) | Shape::Map { .. } => JsonType::Object,
            Shape::List { .. } => JsonType::List,
            Shape::Bool => JsonType::Bool,
            Shape::Int32 | Shape::Int64 | Shape::Float64 => JsonType::Number,
            Shape::String | Shape::Bytes => JsonType::Text,
            Shape::Quantity | Shape::IntOrString | Shape::Time | Shape::MicroTime => {
                JsonType::Scalar
            }
            _ => return Ok(()),
        };
        expected.check(value)
    }
}

/// Returns the default of a field.
fn default(field: &Field) -> Option<Value> {
    serde_json::from_str(field.default_json()?).ok()
}

/// Returns the object that an API server of Kubernetes compares a new object with: all fields have their
/// zero value, and those that JSON leaves out are absent.
pub fn zero_object(ty: &'static Type) -> Map<String, Value> {
    let mut object = Map::new();
    for field in ty.target().fields() {
        let ty = field.ty();
        let is_struct = matches!(ty.shape(), Shape::Struct(_));
        if field.omit_zero() || (field.omit_empty() && !is_struct) {
            continue;
        }
        let zero = match ty.shape() {
            Shape::Struct(_) => zero_object(ty).into(),
            Shape::String => Value::from(""),
            Shape::Bool => Value::from(false),
            Shape::Int32 | Shape::Int64 | Shape::Float64 | Shape::IntOrString => Value::from(0),
            Shape::Quantity => Value::from("0"),
            _ => Value::Null,
        };
        object.insert(field.name().to_owned(), zero);
    }
    object
}

#[cfg(test)]
#[path = "kinds_schema_tests.rs"]
mod tests;
