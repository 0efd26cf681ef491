//! Numbers of different types side by side.

use std::cmp::Ordering;

use super::Value;

/// 2^63 and 2^64.
const INT_END: f64 = 9_223_372_036_854_775_808.0;
const UINT_END: f64 = 18_446_744_073_709_551_616.0;

/// Returns the whole part of a number, if it is in range.
pub(crate) fn double_to_int(value: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    (value > -INT_END && value < INT_END).then_some(value as i64)
}

/// Returns the whole part of a number, if it is in range.
pub(crate) fn double_to_uint(value: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked"
    )]
    (0.0..UINT_END).contains(&value).then_some(value as u64)
}

/// Compares two numbers, if both are numbers and none is NaN.
#[expect(clippy::cast_precision_loss, reason = "as the specification says")]
pub(crate) fn compare_numbers(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Uint(left), Value::Uint(right)) => Some(left.cmp(right)),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right),
        (Value::Int(left), Value::Uint(right)) => Some(match u64::try_from(*left) {
            Ok(left) => left.cmp(right),
            Err(_) => Ordering::Less,
        }),
        (Value::Int(left), Value::Double(right)) => {
            if *right < -INT_END {
                Some(Ordering::Greater)
            } else if *right > INT_END {
                Some(Ordering::Less)
            } else {
                (*left as f64).partial_cmp(right)
            }
        }
        (Value::Uint(left), Value::Double(right)) => {
            if *right < 0.0 {
                Some(Ordering::Greater)
            } else if *right > UINT_END {
                Some(Ordering::Less)
            } else {
                (*left as f64).partial_cmp(right)
            }
        }
        (Value::Uint(_), Value::Int(_)) | (Value::Double(_), Value::Int(_) | Value::Uint(_)) => {
            compare_numbers(right, left).map(Ordering::reverse)
        }
        _ => None,
    }
}
