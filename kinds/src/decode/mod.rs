//! Typed decoding of JSON: what Go's decoder and encoder make of an object.

mod error;
pub(crate) mod scalar;
mod special;

use serde_json::{Map, Value};

pub use error::{DecodeError, UnknownField};

use crate::table::{Field, Shape, Type};

/// How deeply objects may be nested.
pub const DEPTH_MAX: usize = 128;
/// How many unknown fields of an object are reported.
pub const UNKNOWN_FIELDS_MAX: usize = 100;

/// How many objects a value may contain. Two bytes can stand for an object with many fields.
pub const OBJECTS_MAX: usize = 1 << 18;

/// The form in which an object is stored, which decides what an empty list becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// JSON, as for `CustomResourceDefinition` and `APIService`: an empty list stays one.
    Json,
    /// Protobuf, as for all other kinds: there an empty list or map is the same as none.
    Protobuf,
}

/// Makes of an object what an API server makes of it between a request and the answer, apart from the rules of its kind:
/// the object is decoded into the structs of Go and encoded again.
///
/// - Unknown fields are removed and returned, in the order of their names, at most [`UNKNOWN_FIELDS_MAX`]. Names are
///   case-sensitive.
/// - `null` is the zero value of its type.
/// - Fields with `omitempty` vanish when they are empty; fields without it appear with their zero value. Structs always
///   appear, unless they are pointers.
/// - Quantities, times and base64 get their canonical texts.
///
/// ```
/// use revstore_kinds::{Storage, kind, normalize};
/// use serde_json::json;
///
/// let mut pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "args": [], "nope": 1}]}});
/// let unknown = normalize(kind("", "v1", "Pod").unwrap(), &mut pod, Storage::Protobuf).unwrap();
/// assert_eq!(unknown[0].to_string(), r#"unknown field "spec.containers[0].nope""#);
/// assert_eq!(
///     pod,
///     json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "resources": {}}]}, "status": {}})
/// );
/// ```
///
/// # Errors
/// If a value does not fit its type, or the object is nested deeper than [`DEPTH_MAX`] or contains more than
/// [`OBJECTS_MAX`] others. The object is then partly changed.
pub fn normalize(
    ty: &'static Type,
    value: &mut Value,
    storage: Storage,
) -> Result<Vec<UnknownField>, DecodeError> {
    let mut decoder = Decoder {
        storage,
        unknown: Vec::new(),
        silent: 0,
        depth: 0,
        objects: 0,
    };
    decoder.value(ty, value, &Path::Root)?;
    Ok(decoder.unknown)
}

/// What a field that is not set is in JSON.
pub(crate) fn zero(ty: &'static Type) -> Value {
    match ty.shape() {
        Shape::Struct(fields) => {
            let shown = fields.iter().filter(|field| field.is_always_shown());
            Value::Object(
                shown
                    .map(|field| (field.name().to_owned(), zero(field.ty())))
                    .collect(),
            )
        }
        Shape::String => Value::String(String::new()),
        Shape::Bool | Shape::SchemaOrBool(_) => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Float64 | Shape::IntOrString => Value::from(0),
        Shape::Quantity => Value::String("0".to_owned()),
        Shape::Pointer(_)
        | Shape::List { .. }
        | Shape::Map { .. }
        | Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::FieldsV1
        | Shape::RawExtension
        | Shape::Json
        | Shape::SchemaOrArray(_)
        | Shape::SchemaOrStrings(_) => Value::Null,
    }
}

/// Whether `omitempty` or `omitzero` leave the value of a field out.
pub(crate) fn is_omitted(field: &Field, value: &Value) -> bool {
    if field.is_always_shown() {
        return false;
    }
    match (field.ty().shape(), value) {
        (_, Value::Null) => true,
        (Shape::Pointer(_), _) => false,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Bool(flag)) => !flag,
        (_, Value::Number(number)) => number.as_f64() == Some(0.0),
        (_, Value::Array(items)) => items.is_empty(),
        (Shape::Map { .. }, Value::Object(map)) => map.is_empty(),
        (_, Value::Object(_)) => false,
    }
}

/// Where a value is: a list from the inside out, on the stack.
enum Path<'a> {
    Root,
    Field {
        parent: &'a Path<'a>,
        ty: &'static Type,
        name: &'a str,
    },
    Key {
        parent: &'a Path<'a>,
        key: &'a str,
    },
    Index {
        parent: &'a Path<'a>,
        index: usize,
    },
}

impl Path<'_> {
    /// The path as upstream writes it for unknown fields, with a last name.
    fn with(&self, name: &str) -> String {
        let mut path = String::new();
        self.write(&mut path);
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        path
    }

    fn write(&self, out: &mut String) {
        match self {
            Path::Root => {}
            Path::Field {
                parent, name: key, ..
            }
            | Path::Key { parent, key } => {
                parent.write(out);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(key);
            }
            Path::Index { parent, index } => {
                parent.write(out);
                out.push('[');
                out.push_str(&index.to_string());
                out.push(']');
            }
        }
    }

    /// The innermost struct, and the names of the fields on the way to the value, as Go's errors have them.
    fn context(&self) -> Option<(&'static Type, String)> {
        match self {
            Path::Root => None,
            Path::Field { parent, ty, name } => {
                let outer = parent
                    .context()
                    .map(|(_, names)| names + ".")
                    .unwrap_or_default();
                Some((ty, outer + name))
            }
            Path::Key { parent, .. } | Path::Index { parent, .. } => parent.context(),
        }
    }
}

struct Decoder {
    storage: Storage,
    unknown: Vec<UnknownField>,
    /// The number of values around the current one whose unknown fields are not reported.
    silent: usize,
    depth: usize,
    objects: usize,
}

impl Decoder {
    fn value(
        &mut self,
        ty: &'static Type,
        value: &mut Value,
        path: &Path<'_>,
    ) -> Result<(), DecodeError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        self.nested(ty, value, path)?;
        self.depth -= 1;
        Ok(())
    }

    fn nested(
        &mut self,
        ty: &'static Type,
        value: &mut Value,
        path: &Path<'_>,
    ) -> Result<(), DecodeError> {
        match (ty.shape(), &mut *value) {
            (Shape::Pointer(_), Value::Null)
            | (Shape::FieldsV1 | Shape::RawExtension | Shape::Json, _) => Ok(()),
            (Shape::Pointer(target), _) => self.value(target.get(), value, path),
            (Shape::Struct(_), Value::Object(object)) => self.object(ty, object, path),
            (Shape::List { item, .. }, Value::Array(items)) => {
                for (index, element) in items.iter_mut().enumerate() {
                    self.value(
                        item.get(),
                        element,
                        &Path::Index {
                            parent: path,
                            index,
                        },
                    )?;
                }
                if items.is_empty() && self.storage == Storage::Protobuf {
                    *value = Value::Null;
                }
                Ok(())
            }
            (Shape::Map { value: target, .. }, Value::Object(entries)) => {
                for (key, element) in entries.iter_mut() {
                    self.value(target.get(), element, &Path::Key { parent: path, key })?;
                }
                if entries.is_empty() && self.storage == Storage::Protobuf {
                    *value = Value::Null;
                }
                Ok(())
            }
            (
                Shape::Struct(_)
                | Shape::List { .. }
                | Shape::Map { .. }
                | Shape::String
                | Shape::Bool
                | Shape::Int32
                | Shape::Int64
                | Shape::Float64
                | Shape::Quantity
                | Shape::IntOrString,
                Value::Null,
            ) => {
                *value = zero(ty);
                Ok(())
            }
            (Shape::SchemaOrArray(_) | Shape::SchemaOrBool(_) | Shape::SchemaOrStrings(_), _) => {
                self.schema_or(ty, value, path)
            }
            _ => scalar::normalize(ty, value, path),
        }
    }

    fn object(
        &mut self,
        ty: &'static Type,
        object: &mut Map<String, Value>,
        path: &Path<'_>,
    ) -> Result<(), DecodeError> {
        self.objects += 1;
        if self.objects > OBJECTS_MAX {
            return Err(DecodeError::TooMany);
        }
        let mut result = Ok(());
        object.retain(|name, value| {
            let Some(field) = ty.field(name) else {
                self.unknown_field(name, path);
                return false;
            };
            if result.is_ok() {
                result = self.value(
                    field.ty(),
                    value,
                    &Path::Field {
                        parent: path,
                        ty,
                        name,
                    },
                );
            }
            !is_omitted(field, value)
        });
        result?;
        for field in ty.fields().iter().filter(|field| field.is_always_shown()) {
            if !object.contains_key(field.name()) {
                object.insert(field.name().to_owned(), zero(field.ty()));
            }
        }
        Ok(())
    }

    fn unknown_field(&mut self, name: &str, path: &Path<'_>) {
        if self.silent == 0 && self.unknown.len() < UNKNOWN_FIELDS_MAX {
            self.unknown.push(UnknownField {
                path: path.with(name),
            });
        }
    }
}

#[cfg(test)]
mod tests;
