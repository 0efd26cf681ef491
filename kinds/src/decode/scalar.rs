//! Values without parts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value};

use super::{DecodeError, Path, zero};
use crate::table::{Shape, Type};
use crate::value::{Quantity, normalize_base64, time};

/// Checks a value that is not `null` where that has a meaning of its own, and gives it its canonical text.
pub(super) fn normalize(
    ty: &'static Type,
    value: &mut Value,
    path: &Path<'_>,
) -> Result<(), DecodeError> {
    match (ty.shape(), &mut *value) {
        (Shape::String | Shape::IntOrString, Value::String(_))
        | (Shape::Bool, Value::Bool(_))
        | (Shape::Bytes | Shape::Time | Shape::MicroTime, Value::Null) => Ok(()),
        (Shape::Float64, Value::Number(number)) => {
            if let Some(float) = number.as_f64().filter(|_| number.is_f64()) {
                *value = from_float(float);
            }
            Ok(())
        }
        (Shape::Int32 | Shape::IntOrString, Value::Number(number)) => {
            integer(number, i32::MIN.into(), i32::MAX.into(), ty, path)
        }
        (Shape::Int64, Value::Number(number)) => integer(number, i64::MIN, i64::MAX, ty, path),
        (Shape::Bytes, Value::String(text)) => {
            normalize_base64(text).map_err(|error| text_error(error, path))
        }
        (Shape::Bytes, Value::Array(items)) => {
            let bytes: Option<Vec<u8>> = items
                .iter()
                .map(|item| item.as_u64().and_then(|byte| u8::try_from(byte).ok()))
                .collect();
            *value =
                Value::String(STANDARD.encode(bytes.ok_or_else(|| mismatch(value, ty, path))?));
            Ok(())
        }
        (Shape::Quantity, Value::String(text)) => {
            let written = quantity(text.trim(), path)?;
            if written != *text {
                *text = written;
            }
            Ok(())
        }
        (Shape::Quantity, Value::Number(number)) => {
            *value = Value::String(quantity(&number.to_string(), path)?);
            Ok(())
        }
        // Upstream looks at the text of the JSON, whatever it is.
        (Shape::Quantity, _) => quantity("{}", path).map(|_| ()),
        (Shape::Time | Shape::MicroTime, Value::String(text)) => {
            let micros = matches!(ty.shape(), Shape::MicroTime);
            let time = time::parse(text, micros).map_err(|message| text_error(message, path))?;
            if time.seconds == time::ZERO.seconds && (time.nanos == 0 || !micros) {
                *value = zero(ty);
            } else {
                *text = time::format(time, micros);
            }
            Ok(())
        }
        _ => Err(mismatch(value, ty, path)),
    }
}

/// A number as Go writes it: without a point if it is an integer.
pub(crate) fn from_float(float: f64) -> Value {
    // Integers up to here are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if float.fract() == 0.0 && float.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "an integer in range")]
        return Value::from(float as i64);
    }
    Number::from_f64(float).map_or(Value::Null, Value::Number)
}

/// The canonical text of a quantity.
fn quantity(text: &str, path: &Path<'_>) -> Result<String, DecodeError> {
    match Quantity::parse(text) {
        Ok(quantity) => Ok(quantity.to_string()),
        Err(error) => Err(text_error(error.to_string(), path)),
    }
}

fn integer(
    number: &Number,
    min: i64,
    max: i64,
    ty: &'static Type,
    path: &Path<'_>,
) -> Result<(), DecodeError> {
    if number
        .as_i64()
        .is_some_and(|number| (min..=max).contains(&number))
    {
        return Ok(());
    }
    Err(type_error(format!("number {number}"), ty, path))
}

/// The value is of another JSON type than Go expects.
pub(super) fn mismatch(value: &Value, ty: &'static Type, path: &Path<'_>) -> DecodeError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    type_error(found.to_owned(), ty, path)
}

fn type_error(value: String, ty: &'static Type, path: &Path<'_>) -> DecodeError {
    let field = path
        .context()
        .map(|(ty, names)| format!("{}.{names}", ty.name()))
        .unwrap_or_default();
    let ty = match ty.shape() {
        Shape::Time | Shape::MicroTime => "string".to_owned(),
        Shape::IntOrString => "int32".to_owned(),
        _ => ty.go_name().into_owned(),
    };
    DecodeError::Type { value, field, ty }
}

pub(super) fn text_error(message: String, path: &Path<'_>) -> DecodeError {
    let mut written = String::new();
    path.write(&mut written);
    DecodeError::Text {
        message,
        path: written,
    }
}
