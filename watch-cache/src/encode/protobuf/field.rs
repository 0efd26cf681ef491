//! Selectable fields of objects in protobuf.

use super::wire::{Field, FieldValue, Fields};
use crate::encode::kind::DecodeError;

/// The location of a selectable field: the field numbers on the path to it, and its type. If a number
/// on the path occurs several times, the last value counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtobufField {
    path: Box<[u32]>,
    scalar: Scalar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scalar {
    Text,
    Bool,
    Int,
}

impl ProtobufField {
    /// Returns the location of a `string`.
    pub fn text(path: impl IntoIterator<Item = u32>) -> Self {
        Self::new(path, Scalar::Text)
    }

    /// Returns the location of a `bool`, whose value is `true` or `false`.
    pub fn bool(path: impl IntoIterator<Item = u32>) -> Self {
        Self::new(path, Scalar::Bool)
    }

    /// Returns the location of an `int32` or `int64`, whose value is in decimal digits.
    pub fn int(path: impl IntoIterator<Item = u32>) -> Self {
        Self::new(path, Scalar::Int)
    }

    fn new(path: impl IntoIterator<Item = u32>, scalar: Scalar) -> Self {
        Self {
            path: path.into_iter().collect(),
            scalar,
        }
    }

    /// Returns the value of the field in the bytes of an object, or `None` if it is absent.
    pub(super) fn of(&self, object: &[u8]) -> Result<Option<Box<str>>, DecodeError> {
        self.find(object, &self.path)
    }

    fn find(&self, message: &[u8], path: &[u32]) -> Result<Option<Box<str>>, DecodeError> {
        let Some((number, rest)) = path.split_first() else {
            return Ok(None);
        };
        let mut found = None;
        for field in Fields::of(message) {
            let field = field?;
            if field.number != *number {
                continue;
            }
            let value = if rest.is_empty() {
                Some(self.value(&field)?)
            } else {
                self.find(field.bytes()?, rest)?
            };
            found = value.or(found);
        }
        Ok(found)
    }

    fn value(&self, field: &Field<'_>) -> Result<Box<str>, DecodeError> {
        match (self.scalar, field.value) {
            (Scalar::Text, _) => Ok(field.text()?.into()),
            (Scalar::Bool, FieldValue::Varint(value)) => Ok((value != 0).to_string().into()),
            // Negative numbers are encoded as the 64 bits of their two's complement.
            (Scalar::Int, FieldValue::Varint(value)) => Ok(value.cast_signed().to_string().into()),
            _ => Err(field.unexpected()),
        }
    }
}
