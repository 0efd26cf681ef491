//! The parts of times.

use super::{Function, Outcome};
use crate::fault::no_such_overload;
use crate::values::{NANOS, Timestamp, Value};

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "getFullYear" => |_, args| part(args, |time, offset| time.civil(offset).year),
        "getMonth" => |_, args| part(args, |time, offset| time.civil(offset).month - 1),
        "getDayOfYear" => |_, args| part(args, |time, offset| time.civil(offset).year_day),
        "getDayOfMonth" => |_, args| part(args, |time, offset| time.civil(offset).day - 1),
        "getDate" => |_, args| part(args, |time, offset| time.civil(offset).day),
        "getDayOfWeek" => |_, args| part(args, |time, offset| time.civil(offset).week_day),
        "getHours" => |_, args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / NANOS / 3600)),
            _ => part(args, |time, offset| time.civil(offset).second_of_day / 3600),
        },
        "getMinutes" => |_, args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / NANOS / 60)),
            _ => part(args, |time, offset| {
                time.civil(offset).second_of_day / 60 % 60
            }),
        },
        "getSeconds" => |_, args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / NANOS)),
            _ => part(args, |time, offset| time.civil(offset).second_of_day % 60),
        },
        "getMilliseconds" => |_, args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / 1_000_000)),
            _ => part(args, |time, _| i64::from(time.nanos / 1_000_000)),
        },
        _ => return None,
    })
}

/// Returns a part of a time, in a zone if one is given.
fn part(args: &[Value], get: fn(Timestamp, i64) -> i64) -> Outcome {
    match args {
        [Value::Timestamp(time)] => Ok(Value::Int(get(*time, 0))),
        [Value::Timestamp(time), Value::String(zone)] => {
            Ok(Value::Int(get(*time, time.offset(zone)?)))
        }
        _ => Err(no_such_overload()),
    }
}
