//! The cost of a call, by the sizes of its arguments.

use super::size::scaled;
use super::{ACCESS, CHARACTER, LIST, PATTERN, STRUCT, costs_one};
use crate::fault::EvaluationError;
use crate::values::Value;
use crate::work::Work;

/// An argument, or why it has no value.
pub(crate) type Argument = Result<Value, EvaluationError>;

fn size(value: &Argument) -> u64 {
    let size = match value {
        Ok(Value::Optional(Some(inner))) => inner.size(),
        Ok(value) => value.size(),
        Err(_) => None,
    };
    size.map_or(1, |size| size as u64)
}

/// Returns the cost of a call. `result` is known only for functions whose cost depends on it.
pub(crate) fn call_cost(
    function: &str,
    overload: &str,
    args: &[Argument],
    result: Option<&Value>,
    work: &mut Work,
) -> Result<u64, EvaluationError> {
    if let Some(cost) = overload_cost(overload, args, result) {
        return Ok(cost);
    }
    if let Some(cost) = function_cost(function, overload, args, result, work)? {
        return Ok(cost);
    }
    let sizes: Vec<_> = args.iter().map(size).collect();
    Ok(match (overload, &sizes[..]) {
        (
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format",
            [first, ..],
        ) => scaled(*first, CHARACTER),
        ("in_list", [_, list]) => *list,
        (
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals",
            [left, right],
        ) => scaled(*left.min(right), CHARACTER),
        ("add_string" | "add_bytes", [left, right]) => {
            scaled(left.saturating_add(*right), CHARACTER)
        }
        ("matches_string", [text, pattern]) => pattern_cost(*text, *pattern),
        ("contains_string", [text, part]) => {
            scaled(*text, CHARACTER).saturating_mul(scaled(*part, CHARACTER))
        }
        _ => 1,
    })
}

fn pattern_cost(text: u64, pattern: u64) -> u64 {
    scaled(text.saturating_add(1), CHARACTER).saturating_mul(scaled(pattern, PATTERN))
}

/// Returns the cost of the forms of functions of lists and sets.
fn overload_cost(overload: &str, args: &[Argument], result: Option<&Value>) -> Option<u64> {
    let allocated = |cost: u64| cost.saturating_add(1 + LIST);
    let squared = |list: &Argument| {
        if list.is_err() {
            return 0;
        }
        let count = size(list);
        let is_text = matches!(list, Ok(Value::List(list)) if matches!(list.get(0), Some(Value::String(_) | Value::Bytes(_))));
        let factor = if is_text { 2.0 + CHARACTER } else { 2.0 };
        allocated(floored(count.saturating_mul(count), factor))
    };
    Some(match (overload, args) {
        ("lists_range", [Ok(Value::Int(count))]) => allocated((*count).max(0).cast_unsigned()),
        ("list_slice", _) => allocated(result.and_then(Value::size).map_or(1, |size| size as u64)),
        ("list_reverse" | "list_flatten", [list]) => allocated(size(list)),
        ("list_flatten_int", [list, Ok(Value::Int(depth))]) => {
            // A negative depth, which is an error, wraps around.
            let depth = (*depth).saturating_mul(size(list).cast_signed());
            depth.cast_unsigned().wrapping_add(1 + LIST)
        }
        ("list_distinct", [list]) => squared(list),
        (name, [list]) if name.starts_with("list_") && name.ends_with("_sort") => squared(list),
        (name, [_, keys]) if name.ends_with("_sortByAssociatedKeys") => squared(keys),
        ("list_sets_contains_list" | "list_sets_intersects_list", [left, right]) => {
            size(left).saturating_mul(size(right)).saturating_add(1)
        }
        ("list_sets_equivalent_list", [left, right]) => {
            floored(size(left).saturating_mul(size(right)), 2.0).saturating_add(1)
        }
        _ => return None,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the conversion saturates"
)]
fn floored(value: u64, factor: f64) -> u64 {
    (value as f64 * factor) as u64
}

/// Returns the cost of the functions of Kubernetes.
fn function_cost(
    function: &str,
    overload: &str,
    args: &[Argument],
    result: Option<&Value>,
    work: &mut Work,
) -> Result<Option<u64>, EvaluationError> {
    let first = args.first().map_or(1, size);
    let second = args.get(1).map_or(1, size);
    Ok(Some(match function {
        "check" => ACCESS,
        _ if costs_one(function) => 1,
        "fieldSelector" | "labelSelector" if args.len() >= 2 => selector(second),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => match args.first() {
            Some(Ok(value)) => traversal(value, work)?,
            _ => 1,
        },
        "ip" if overload == "cidr_ip" => 1,
        "url"
        | "ip"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => scaled(first, CHARACTER),
        "replace" | "split" | "ip.isCanonical" => scaled(first, 2.0 * CHARACTER),
        "join" => scaled(
            result.and_then(Value::size).map_or(1, |size| size as u64),
            2.0 * CHARACTER,
        ),
        "find" | "findAll" if args.len() >= 2 => pattern_cost(first, second),
        "containsIP" if args.len() >= 2 => {
            let text = if overload == "cidr_contains_ip_string" {
                scaled(second, CHARACTER)
            } else {
                0
            };
            scaled(first * 2, CHARACTER).saturating_add(text)
        }
        "containsCIDR" if args.len() >= 2 => {
            let text = if overload == "cidr_contains_cidr_string" {
                scaled(second, CHARACTER)
            } else {
                0
            };
            (scaled(first * 2, CHARACTER) + scaled(first, CHARACTER) + 1).saturating_add(text)
        }
        "validate" => match args {
            [Ok(Value::Format(format)), _] => pattern_cost(second, format.pattern_length),
            _ => return Ok(None),
        },
        "_==_" => match args {
            [Ok(left), _] if is_library(left) => 1,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

fn is_library(value: &Value) -> bool {
    matches!(
        value,
        Value::Quantity(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Format(_)
            | Value::Url(_)
            | Value::Semver(_)
            | Value::Authorization(_)
    )
}

/// Returns the cost of reading a selector.
pub(super) fn selector(length: u64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "the factor is small")]
    let requirement = (LIST + STRUCT) as f64;
    LIST.saturating_add(scaled(length, CHARACTER))
        .saturating_add(scaled(scaled(length, 0.5), requirement))
}

/// Returns the cost of reading all of a value.
fn traversal(value: &Value, work: &mut Work) -> Result<u64, EvaluationError> {
    let mut cost: u64 = 0;
    match value {
        Value::String(text) => return Ok(floored(text.len() as u64, CHARACTER)),
        Value::Bytes(bytes) => return Ok(floored(bytes.len() as u64, CHARACTER)),
        Value::List(list) => {
            for item in list.iter() {
                work.spend(1)?;
                cost = cost.saturating_add(traversal(&item, work)?);
            }
        }
        Value::Map(map) => {
            for (key, value) in map.iter() {
                work.spend(1)?;
                cost = cost.saturating_add(traversal(&key.to_value(), work)?);
                cost = cost.saturating_add(traversal(value, work)?);
            }
        }
        _ => return Ok(1),
    }
    Ok(cost)
}
