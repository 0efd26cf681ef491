//! Protobuf to JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::wire::{BYTES, Reader, VARINT};
use super::{Envelope, MAGIC, ProtobufError, VALUES_MAX, find, lossy};
use crate::decode::scalar::from_float;
use crate::decode::{DEPTH_MAX, is_omitted, zero};
use crate::table::{Field, Shape, Type};
use crate::value::Quantity;
use crate::value::time::{self, Timestamp};

/// Decodes one object, and counts what it contains.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    depth: usize,
    values: usize,
}

impl Decoder {
    /// The JSON of a message.
    pub(super) fn message(
        &mut self,
        ty: &'static Type,
        bytes: &[u8],
    ) -> Result<Value, ProtobufError> {
        let mut value = Value::Null;
        self.merge(ty, bytes, &mut value, "")?;
        Ok(value)
    }

    /// The JSON of an object in its envelope.
    pub(super) fn enveloped(&mut self, bytes: &[u8]) -> Result<Value, ProtobufError> {
        self.envelope(Envelope::read(bytes)?)
    }

    /// The JSON of the object in an envelope.
    pub(super) fn envelope(&mut self, envelope: Envelope<'_>) -> Result<Value, ProtobufError> {
        let mut value = self.message(find(&envelope.api_version, &envelope.kind)?, envelope.raw)?;
        if let Value::Object(object) = &mut value {
            object.insert("apiVersion".to_owned(), Value::String(envelope.api_version));
            object.insert("kind".to_owned(), Value::String(envelope.kind));
        }
        Ok(value)
    }

    /// Decodes a message into a value. A struct that is there already keeps the fields that the message does not have.
    fn merge(
        &mut self,
        ty: &'static Type,
        bytes: &[u8],
        value: &mut Value,
        name: &'static str,
    ) -> Result<(), ProtobufError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(ProtobufError::TooDeep);
        }
        self.count()?;
        match ty.shape() {
            Shape::Pointer(target) => self.merge(target.get(), bytes, value, name)?,
            Shape::Struct(fields) => self.object(fields, bytes, value)?,
            Shape::List { item, .. } => {
                let mut items = Vec::new();
                let mut reader = Reader::new(bytes);
                while let Some((number, wire)) = reader.tag()? {
                    if number == 1 {
                        self.count()?;
                        items.push(self.single(item.get(), &mut reader, wire, name)?);
                    } else {
                        reader.skip(wire)?;
                    }
                }
                *value = Value::Array(items);
            }
            Shape::Quantity => *value = quantity(bytes, name)?,
            Shape::IntOrString => *value = int_or_string(bytes, name)?,
            Shape::Time | Shape::MicroTime => {
                *value = timestamp(bytes, matches!(ty.shape(), Shape::MicroTime), name)?;
            }
            Shape::FieldsV1 | Shape::RawExtension | Shape::Json => {
                *value = self.raw(bytes, name)?;
            }
            Shape::SchemaOrArray(parts)
            | Shape::SchemaOrBool(parts)
            | Shape::SchemaOrStrings(parts) => {
                *value = self.schema_or(ty, parts, bytes)?;
            }
            _ => return Err(ProtobufError::Value(name)),
        }
        self.depth -= 1;
        Ok(())
    }

    fn count(&mut self) -> Result<(), ProtobufError> {
        self.values += 1;
        if self.values > VALUES_MAX {
            Err(ProtobufError::TooMany)
        } else {
            Ok(())
        }
    }

    fn object(
        &mut self,
        fields: &'static [Field],
        bytes: &[u8],
        value: &mut Value,
    ) -> Result<(), ProtobufError> {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        let Value::Object(object) = value else {
            return Ok(());
        };
        self.fields(fields, 0, bytes, object)?;
        for field in fields {
            match object.get(field.name()) {
                None if field.is_always_shown() => {
                    object.insert(field.name().to_owned(), zero(field.ty()));
                }
                Some(value) if is_omitted(field, value) => {
                    object.remove(field.name());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Decodes fields whose numbers agree before `depth`.
    fn fields(
        &mut self,
        fields: &'static [Field],
        depth: usize,
        bytes: &[u8],
        object: &mut Map<String, Value>,
    ) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag()? {
            let at =
                |field: &Field| field.numbers().get(depth).copied().map(u64::from) == Some(number);
            let Some(start) = fields.iter().position(at) else {
                reader.skip(wire)?;
                continue;
            };
            let first = &fields[start];
            if first.numbers().len() == depth + 1 {
                self.field(first, &mut reader, wire, object)?;
            } else {
                // A struct in the struct, whose fields follow each other in the table.
                let len = fields[start..].iter().take_while(|field| at(field)).count();
                let nested = reader.bytes(wire, first.name())?;
                self.fields(&fields[start..start + len], depth + 1, nested, object)?;
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &'static Field,
        reader: &mut Reader<'_>,
        wire: u8,
        object: &mut Map<String, Value>,
    ) -> Result<(), ProtobufError> {
        let name = field.name();
        let ty = field.ty().target();
        match ty.shape() {
            Shape::List {
                item,
                message: false,
            } => {
                let items = array(object, name);
                let scalar = matches!(item.shape(), Shape::Int32 | Shape::Int64 | Shape::Bool);
                if scalar && wire == BYTES {
                    let mut packed = Reader::new(reader.bytes(wire, name)?);
                    while !packed.is_empty() {
                        self.count()?;
                        items.push(self.single(item.get(), &mut packed, VARINT, name)?);
                    }
                } else {
                    self.count()?;
                    items.push(self.single(item.get(), reader, wire, name)?);
                }
            }
            Shape::Map { value: target, .. } => {
                self.count()?;
                let (key, value) = self.entry(target.get(), reader.bytes(wire, name)?, name)?;
                let slot = object.entry(name).or_insert(Value::Null);
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(entries) = slot {
                    entries.insert(key, value);
                }
            }
            Shape::Struct(_) => {
                let bytes = reader.bytes(wire, name)?;
                let slot = object.entry(name).or_insert(Value::Null);
                self.merge(ty, bytes, slot, name)?;
            }
            _ => {
                let value = self.single(ty, reader, wire, name)?;
                object.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        ty: &'static Type,
        bytes: &[u8],
        name: &'static str,
    ) -> Result<(String, Value), ProtobufError> {
        let mut key = String::new();
        let mut value = zero(ty);
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag()? {
            match number {
                1 => key = lossy(reader.bytes(wire, name)?),
                2 => value = self.single(ty, &mut reader, wire, name)?,
                _ => reader.skip(wire)?,
            }
        }
        Ok((key, value))
    }

    /// One value of a field: a scalar, or a message.
    fn single(
        &mut self,
        ty: &'static Type,
        reader: &mut Reader<'_>,
        wire: u8,
        name: &'static str,
    ) -> Result<Value, ProtobufError> {
        Ok(match ty.shape() {
            Shape::Pointer(target) => self.single(target.get(), reader, wire, name)?,
            Shape::String => Value::String(lossy(reader.bytes(wire, name)?)),
            Shape::Bool => Value::Bool(reader.number(wire, name)? != 0),
            Shape::Int32 => Value::from(low_bits(reader.number(wire, name)?)),
            Shape::Int64 => Value::from(reader.number(wire, name)?.cast_signed()),
            Shape::Float64 => from_float(reader.double(wire, name)?),
            Shape::Bytes => Value::String(STANDARD.encode(reader.bytes(wire, name)?)),
            _ => {
                let bytes = reader.bytes(wire, name)?;
                let mut value = Value::Null;
                self.merge(ty, bytes, &mut value, name)?;
                value
            }
        })
    }

    /// JSON, or an object in protobuf, in a message with one field.
    fn raw(&mut self, bytes: &[u8], name: &'static str) -> Result<Value, ProtobufError> {
        let mut raw: &[u8] = &[];
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag()? {
            if number == 1 {
                raw = reader.bytes(wire, name)?;
            } else {
                reader.skip(wire)?;
            }
        }
        if raw.is_empty() {
            return Ok(Value::Null);
        }
        if raw.starts_with(MAGIC) {
            return self.enveloped(raw);
        }
        serde_json::from_slice(raw).map_err(|_| ProtobufError::Json(name))
    }

    fn schema_or(
        &mut self,
        ty: &'static Type,
        parts: &'static [Field],
        bytes: &[u8],
    ) -> Result<Value, ProtobufError> {
        let mut object = Map::new();
        self.fields(parts, 0, bytes, &mut object)?;
        let list = object
            .remove("JSONSchemas")
            .or_else(|| object.remove("Property"));
        let schema = object.remove("Schema");
        Ok(match ty.shape() {
            Shape::SchemaOrBool(_) => schema
                .or_else(|| object.remove("Allows"))
                .unwrap_or(Value::Bool(false)),
            _ => list.or(schema).unwrap_or(Value::Null),
        })
    }
}

fn array<'a>(object: &'a mut Map<String, Value>, name: &str) -> &'a mut Vec<Value> {
    let slot = object.entry(name).or_insert(Value::Null);
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    slot.as_array_mut().expect("an array since the line above")
}

fn for_each(
    bytes: &[u8],
    mut field: impl FnMut(u64, u8, &mut Reader<'_>) -> Result<(), ProtobufError>,
) -> Result<(), ProtobufError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.tag()? {
        field(number, wire, &mut reader)?;
    }
    Ok(())
}

fn quantity(bytes: &[u8], name: &'static str) -> Result<Value, ProtobufError> {
    let mut text = String::new();
    for_each(bytes, |number, wire, reader| {
        match number {
            1 => text = lossy(reader.bytes(wire, name)?),
            _ => reader.skip(wire)?,
        }
        Ok(())
    })?;
    if text.is_empty() {
        return Ok(Value::String("0".to_owned()));
    }
    let quantity = Quantity::parse(&text).map_err(|_| ProtobufError::Value(name))?;
    Ok(Value::String(quantity.to_string()))
}

/// The lower half of a number as Go reads it, without a look at the upper one.
fn low_bits(number: u64) -> i32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

fn int_or_string(bytes: &[u8], name: &'static str) -> Result<Value, ProtobufError> {
    let (mut kind, mut integer, mut text) = (0, 0, String::new());
    for_each(bytes, |number, wire, reader| {
        match number {
            1 => kind = reader.number(wire, name)?,
            2 => integer = low_bits(reader.number(wire, name)?),
            3 => text = lossy(reader.bytes(wire, name)?),
            _ => reader.skip(wire)?,
        }
        Ok(())
    })?;
    Ok(if kind == 1 {
        Value::String(text)
    } else {
        Value::from(integer)
    })
}

fn timestamp(bytes: &[u8], micros: bool, name: &'static str) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let mut time = Timestamp {
        seconds: 0,
        nanos: 0,
    };
    for_each(bytes, |number, wire, reader| {
        match number {
            1 => time.seconds = reader.number(wire, name)?.cast_signed(),
            2 => {
                time.nanos = reader
                    .number(wire, name)?
                    .min(999_999_999)
                    .try_into()
                    .unwrap_or(0);
            }
            _ => reader.skip(wire)?,
        }
        Ok(())
    })?;
    if time == time::ZERO {
        return Ok(Value::Null);
    }
    if !time::RANGE.contains(&time.seconds) {
        return Err(ProtobufError::Value(name));
    }
    Ok(Value::String(time::format(time, micros)))
}
