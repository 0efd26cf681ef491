//! Arithmetic, comparisons, and operators of lists and maps.

use std::cmp::Ordering;

use super::{Context, Function, Outcome};
use crate::fault::{EvaluationError, fail, no_such_overload};
use crate::values::{Key, Value, compare_numbers};

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => multiply,
        "_/_" => divide,
        "_%_" => modulo,
        "-_" => |_, args| match args {
            [Value::Int(value)] => int(value.checked_neg()),
            [Value::Double(value)] => Ok(Value::Double(-value)),
            [Value::Duration(value)] => duration(value.checked_neg()),
            _ => Err(no_such_overload()),
        },
        "!_" => |_, args| match args {
            [Value::Bool(value)] => Ok(Value::Bool(!value)),
            _ => Err(no_such_overload()),
        },
        "_<_" => |_, args| ordered(args, Ordering::is_lt),
        "_<=_" => |_, args| ordered(args, Ordering::is_le),
        "_>_" => |_, args| ordered(args, Ordering::is_gt),
        "_>=_" => |_, args| ordered(args, Ordering::is_ge),
        "@in" => contains,
        "size" => |_, args| match args {
            [value] => match value.size() {
                Some(size) => Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX))),
                None => fail("no such overload: size"),
            },
            _ => Err(no_such_overload()),
        },
        "cel.@mapInsert" => map_insert,
        "optional.of" => |_, args| match args {
            [value] => Ok(Value::some(value.clone())),
            _ => Err(no_such_overload()),
        },
        "optional.ofNonZeroValue" => |_, args| match args {
            [value] if value.is_zero() => Ok(Value::Optional(None)),
            [value] => Ok(Value::some(value.clone())),
            _ => Err(no_such_overload()),
        },
        "optional.none" => |_, _| Ok(Value::Optional(None)),
        "value" => |_, args| match args {
            [Value::Optional(Some(value))] => Ok((**value).clone()),
            [Value::Optional(None)] => fail("optional.none() dereference"),
            _ => Err(no_such_overload()),
        },
        "hasValue" => |_, args| match args {
            [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
            _ => Err(no_such_overload()),
        },
        _ => return None,
    })
}

fn int(value: Option<i64>) -> Outcome {
    value
        .map(Value::Int)
        .ok_or_else(|| "integer overflow".into())
}

fn uint(value: Option<u64>) -> Outcome {
    value
        .map(Value::Uint)
        .ok_or_else(|| "unsigned integer overflow".into())
}

fn duration(value: Option<i64>) -> Outcome {
    value
        .map(Value::Duration)
        .ok_or_else(|| "integer overflow".into())
}

fn add(context: &mut Context, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(left), Value::Int(right)] => int(left.checked_add(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_add(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left + right)),
        [Value::String(left), Value::String(right)] => Ok(Value::from(format!("{left}{right}"))),
        [Value::Bytes(left), Value::Bytes(right)] => {
            Ok(Value::Bytes([&**left, &**right].concat().into()))
        }
        [Value::List(left), Value::List(right)] => {
            Ok(Value::List(left.add(right, &mut context.work)?))
        }
        [Value::Duration(left), Value::Duration(right)] => duration(left.checked_add(*right)),
        [Value::Timestamp(time), Value::Duration(nanos)]
        | [Value::Duration(nanos), Value::Timestamp(time)] => time
            .add(*nanos)
            .map(Value::Timestamp)
            .ok_or_else(|| "timestamp overflow".into()),
        _ => Err(no_such_overload()),
    }
}

fn subtract(_: &mut Context, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(left), Value::Int(right)] => int(left.checked_sub(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_sub(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left - right)),
        [Value::Duration(left), Value::Duration(right)] => duration(left.checked_sub(*right)),
        [Value::Timestamp(time), Value::Duration(nanos)] => {
            let earlier = nanos.checked_neg().ok_or("integer overflow")?;
            time.add(earlier)
                .map(Value::Timestamp)
                .ok_or_else(|| "timestamp overflow".into())
        }
        [Value::Timestamp(left), Value::Timestamp(right)] => duration(left.since(*right)),
        _ => Err(no_such_overload()),
    }
}

fn multiply(_: &mut Context, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(left), Value::Int(right)] => int(left.checked_mul(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_mul(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left * right)),
        _ => Err(no_such_overload()),
    }
}

fn divide(_: &mut Context, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            fail("division by zero")
        }
        [Value::Int(left), Value::Int(right)] => int(left.checked_div(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_div(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left / right)),
        _ => Err(no_such_overload()),
    }
}

fn modulo(_: &mut Context, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            fail("modulus by zero")
        }
        [Value::Int(left), Value::Int(right)] => int(left.checked_rem(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_rem(*right)),
        _ => Err(no_such_overload()),
    }
}

/// Compares two values of types that have an order.
pub(crate) fn compare(left: &Value, right: &Value) -> Result<Ordering, EvaluationError> {
    Ok(match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Value::Duration(left), Value::Duration(right)) => left.cmp(right),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.cmp(right),
        _ => {
            if let Some(ordering) = compare_numbers(left, right) {
                ordering
            } else {
                let is_number = |value: &Value| {
                    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
                };
                if is_number(left) && is_number(right) {
                    return fail("NaN values cannot be ordered");
                }
                return Err(no_such_overload());
            }
        }
    })
}

fn ordered(args: &[Value], accepts: fn(Ordering) -> bool) -> Outcome {
    match args {
        [left, right] => compare(left, right).map(|ordering| Value::Bool(accepts(ordering))),
        _ => Err(no_such_overload()),
    }
}

fn contains(context: &mut Context, args: &[Value]) -> Outcome {
    match args {
        [item, Value::List(list)] => Ok(Value::Bool(list.contains(item, &mut context.work)?)),
        [key, Value::Map(map)] => Ok(Value::Bool(
            Key::of(key).is_some_and(|key| map.get(&key).is_some()),
        )),
        _ => Err(no_such_overload()),
    }
}

fn map_insert(_: &mut Context, args: &[Value]) -> Outcome {
    let (map, added) = match args {
        [Value::Map(map), key, value] => {
            let key = Key::of(key).ok_or_else(no_such_overload)?;
            (map, vec![(key, value.clone())])
        }
        [Value::Map(map), Value::Map(other)] => {
            let added = other
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()));
            (map, added.collect())
        }
        _ => return Err(no_such_overload()),
    };
    let mut map = map.clone();
    for (key, value) in added {
        if !map.insert(key.clone(), value) {
            return fail(format!("insert failed: key {} already exists", plain(&key)));
        }
    }
    Ok(Value::Map(map))
}

fn plain(key: &Key) -> String {
    match key {
        Key::String(text) => text.to_string(),
        other => other.to_value().to_string(),
    }
}
