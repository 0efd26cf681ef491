//! JSON schemas that may be something else, in custom resource definitions.

use serde_json::Value;

use super::scalar::text_error;
use super::{DecodeError, Decoder, Path};
use crate::table::{Field, Shape, Type};

impl Decoder {
    /// A JSON schema, or a list, a boolean or strings in its place. Upstream decodes what is in it with another decoder,
    /// which reports no unknown fields.
    pub(super) fn schema_or(
        &mut self,
        ty: &'static Type,
        value: &mut Value,
        path: &Path<'_>,
    ) -> Result<(), DecodeError> {
        self.silent += 1;
        match (ty.shape(), &mut *value) {
            (
                Shape::SchemaOrArray(fields)
                | Shape::SchemaOrBool(fields)
                | Shape::SchemaOrStrings(fields),
                Value::Object(_),
            ) => {
                self.value(field(fields, "Schema"), value, path)?;
            }
            (Shape::SchemaOrArray(fields), Value::Array(items)) => {
                let empty = items.is_empty();
                self.value(field(fields, "JSONSchemas"), value, path)?;
                if empty {
                    *value = Value::Null;
                }
            }
            (Shape::SchemaOrStrings(fields), Value::Array(items)) => {
                let empty = items.is_empty();
                self.value(field(fields, "Property"), value, path)?;
                if empty {
                    *value = Value::Null;
                }
            }
            (Shape::SchemaOrBool(_), Value::Bool(_)) => {}
            (Shape::SchemaOrBool(_), _) => {
                return Err(text_error(
                    "boolean or JSON schema expected".to_owned(),
                    path,
                ));
            }
            _ => *value = Value::Null,
        }
        self.silent -= 1;
        Ok(())
    }
}

fn field(fields: &'static [Field], name: &str) -> &'static Type {
    fields
        .iter()
        .find(|field| field.name() == name)
        .map(Field::ty)
        .expect("a field of the table")
        .target()
}
