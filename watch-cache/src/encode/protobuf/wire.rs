//! The wire format of protobuf: fields of a message as slices, and writing of fields.

use std::ops::Range;

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key};

use crate::encode::kind::DecodeError;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    Varint(u64),
    /// A string, bytes, or a message.
    Bytes(&'a [u8]),
    /// A number of fixed size, or a group.
    Other,
}

/// A field of a message.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) value: FieldValue<'a>,
    /// The position of the whole field in the message.
    pub(super) at: Range<usize>,
}

impl<'a> Field<'a> {
    pub(super) fn bytes(&self) -> Result<&'a [u8], DecodeError> {
        match self.value {
            FieldValue::Bytes(bytes) => Ok(bytes),
            _ => Err(self.unexpected()),
        }
    }

    pub(super) fn text(&self) -> Result<&'a str, DecodeError> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map_err(|_| DecodeError(format!("field {} is not UTF-8", self.number)))
    }

    pub(super) fn unexpected(&self) -> DecodeError {
        DecodeError(format!("field {} has an unexpected wire type", self.number))
    }
}

/// The fields of a message, in the order in which they are encoded.
pub(super) struct Fields<'a> {
    message: &'a [u8],
    offset: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { message, offset: 0 }
    }

    fn read(&mut self) -> Result<Field<'a>, prost::DecodeError> {
        let mut rest = &self.message[self.offset..];
        let (number, wire_type) = decode_key(&mut rest)?;
        let value = match wire_type {
            WireType::Varint => FieldValue::Varint(decode_varint(&mut rest)?),
            WireType::LengthDelimited => {
                // Skipped first, which checks the length.
                let content = rest;
                prost::encoding::skip_field(wire_type, number, &mut rest, context())?;
                let mut content = &content[..content.len() - rest.len()];
                decode_varint(&mut content)?;
                FieldValue::Bytes(content)
            }
            _ => {
                prost::encoding::skip_field(wire_type, number, &mut rest, context())?;
                FieldValue::Other
            }
        };
        let start = self.offset;
        self.offset = self.message.len() - rest.len();
        Ok(Field {
            number,
            value,
            at: start..self.offset,
        })
    }
}

/// Limits the depth of groups.
fn context() -> DecodeContext {
    DecodeContext::default()
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.message.len() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            // Nothing can be read after an error.
            self.offset = self.message.len();
        }
        Some(field.map_err(|error| DecodeError(error.to_string())))
    }
}

/// Writes a string, bytes, or a message.
pub(super) fn write_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    write_length(number, bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Writes what precedes a string, bytes, or a message.
pub(super) fn write_length(number: u32, length: usize, out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    prost::encoding::encode_varint(length as u64, out);
}

/// Writes a number.
pub(super) fn write_number(number: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(number, WireType::Varint, out);
    prost::encoding::encode_varint(value, out);
}
