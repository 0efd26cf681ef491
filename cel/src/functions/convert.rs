//! Conversions between types.

use super::{Function, Outcome};
use crate::fault::{fail, no_such_overload};
use crate::values::{
    Timestamp, Value, double_text, double_to_int, double_to_uint, duration_text, parse_duration,
    parse_timestamp,
};

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "bool" => |_, args| one(args, to_bool),
        "bytes" => |_, args| match args {
            [Value::String(text)] => Ok(Value::Bytes(text.as_bytes().into())),
            [value @ Value::Bytes(_)] => Ok(value.clone()),
            _ => Err(no_such_overload()),
        },
        "double" => |_, args| one(args, to_double),
        "duration" => |_, args| one(args, to_duration),
        "dyn" => |_, args| one(args, |value| Ok(value.clone())),
        "int" => |_, args| one(args, to_int),
        "string" => |_, args| one(args, to_string),
        "timestamp" => |_, args| one(args, to_timestamp),
        "uint" => |_, args| one(args, to_uint),
        "type" => |_, args| one(args, |value| Ok(Value::Type(value.type_name().into()))),
        "@not_strictly_false" => |_, args| {
            one(args, |value| {
                Ok(Value::Bool(!matches!(value, Value::Bool(false))))
            })
        },
        _ => return None,
    })
}

fn one(args: &[Value], convert: fn(&Value) -> Outcome) -> Outcome {
    match args {
        [value] => convert(value),
        _ => Err(no_such_overload()),
    }
}

/// Converts a text, or says of which type it is not.
fn parsed<T>(value: Option<T>, make: fn(T) -> Value, name: &str) -> Outcome {
    match value {
        Some(value) => Ok(make(value)),
        None => fail(format!("type conversion error from 'string' to '{name}'")),
    }
}

fn to_bool(value: &Value) -> Outcome {
    match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => parsed(None, Value::Bool, "bool"),
        },
        _ => Err(no_such_overload()),
    }
}

/// Returns digits that may have a plus before them, as Go reads them.
fn digits(text: &str) -> Option<&str> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-".contains(&byte))
        .then_some(text)
}

fn to_int(value: &Value) -> Outcome {
    let overflow = || "integer overflow".into();
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(number) => i64::try_from(*number)
            .map(Value::Int)
            .map_err(|_| overflow()),
        Value::Double(number) => double_to_int(*number).map(Value::Int).ok_or_else(overflow),
        Value::String(text) => parsed(
            digits(text).and_then(|text| text.parse().ok()),
            Value::Int,
            "int",
        ),
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        Value::Timestamp(time) => Ok(Value::Int(time.seconds)),
        _ => Err(no_such_overload()),
    }
}

fn to_uint(value: &Value) -> Outcome {
    let overflow = || "unsigned integer overflow".into();
    match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(number) => u64::try_from(*number)
            .map(Value::Uint)
            .map_err(|_| overflow()),
        Value::Double(number) => double_to_uint(*number)
            .map(Value::Uint)
            .ok_or_else(overflow),
        Value::String(text) => {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit());
            parsed(text.parse().ok().filter(|_| plain), Value::Uint, "uint")
        }
        _ => Err(no_such_overload()),
    }
}

fn to_double(value: &Value) -> Outcome {
    #[expect(clippy::cast_precision_loss, reason = "as the specification says")]
    match value {
        Value::Double(_) => Ok(value.clone()),
        Value::Int(number) => Ok(Value::Double(*number as f64)),
        Value::Uint(number) => Ok(Value::Double(*number as f64)),
        Value::String(text) => {
            let number = text.parse::<f64>().ok();
            // Only a text that says so is infinite.
            let is_fine = |number: &f64| {
                number.is_finite() || !text.bytes().any(|byte| byte.is_ascii_digit())
            };
            parsed(number.filter(is_fine), Value::Double, "double")
        }
        _ => Err(no_such_overload()),
    }
}

fn to_string(value: &Value) -> Outcome {
    Ok(Value::from(match value {
        Value::String(_) => return Ok(value.clone()),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => double_text(*value),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return fail("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Value::Duration(nanos) => duration_text(*nanos),
        Value::Timestamp(time) => time.to_string(),
        Value::Type(name) => name.to_string(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(cidr) => cidr.to_string(),
        _ => return Err(no_such_overload()),
    }))
}

fn to_duration(value: &Value) -> Outcome {
    match value {
        Value::Duration(_) => Ok(value.clone()),
        Value::Int(_) => fail("type conversion error from 'int' to 'google.protobuf.Duration'"),
        Value::String(text) => parsed(
            parse_duration(text),
            Value::Duration,
            "google.protobuf.Duration",
        ),
        _ => Err(no_such_overload()),
    }
}

fn to_timestamp(value: &Value) -> Outcome {
    let checked = |time: Timestamp| Timestamp::new(time.seconds, time.nanos);
    match value {
        Value::Timestamp(_) => Ok(value.clone()),
        Value::Int(seconds) => Timestamp::new(*seconds, 0)
            .map(Value::Timestamp)
            .ok_or_else(|| "timestamp overflow".into()),
        Value::String(text) => match parse_timestamp(text) {
            Some(time) => checked(time)
                .map(Value::Timestamp)
                .ok_or_else(|| "timestamp overflow".into()),
            None => parsed(None, Value::Timestamp, "google.protobuf.Timestamp"),
        },
        _ => Err(no_such_overload()),
    }
}
