//! The types of values: booleans and whole numbers here, the others in the files of this folder.

pub mod byte_size;
mod duration;
mod listen_url;
mod url;

use super::ValueError;

pub use duration::GoDuration;
pub use listen_url::{ListenAddress, ListenUrl};
pub use url::{EndpointUrl, Scheme, join_urls};

/// Parses a boolean in the spellings of Go's `ParseBool`.
pub(super) fn boolean(text: &str) -> Result<bool, ValueError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(ValueError::SYNTAX),
    }
}

/// Parses a number without a sign as Go does: decimal, or with a prefix `0x`, `0o`, `0` or `0b`,
/// with single underscores between digits and after a prefix.
pub(super) fn uint(text: &str) -> Result<u64, ValueError> {
    let (radix, digits) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &text[2..]),
        [b'0', b'o' | b'O', ..] => (8, &text[2..]),
        [b'0', b'b' | b'B', ..] => (2, &text[2..]),
        [b'0', _, ..] => (8, &text[1..]),
        _ => (10, text),
    };
    let after_prefix = digits.strip_prefix('_').filter(|_| radix != 10);
    let mut value = Some(0_u64);
    for group in after_prefix.unwrap_or(digits).split('_') {
        if group.is_empty() {
            return Err(ValueError::SYNTAX);
        }
        for digit in group.chars() {
            let digit = digit.to_digit(radix).ok_or(ValueError::SYNTAX)?;
            value = value
                .and_then(|value| value.checked_mul(u64::from(radix)))
                .and_then(|value| value.checked_add(u64::from(digit)));
        }
    }
    value.ok_or(ValueError::RANGE)
}

/// Parses a number like [`uint`], with an optional sign.
pub(super) fn int(text: &str) -> Result<i64, ValueError> {
    let value = match text.strip_prefix('-') {
        Some(magnitude) => 0_i64.checked_sub_unsigned(uint(magnitude)?),
        None => i64::try_from(uint(text.strip_prefix('+').unwrap_or(text))?).ok(),
    };
    value.ok_or(ValueError::RANGE)
}

/// The parts of a comma-separated list that are not empty.
pub fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_uint(text: &str, expected: Result<u64, &ValueError>) {
        assert_eq!(uint(text).as_ref().copied(), expected, "{text:?}");
    }

    fn check_int(text: &str, expected: Result<i64, &ValueError>) {
        assert_eq!(int(text).as_ref().copied(), expected, "{text:?}");
    }

    #[test]
    fn fl_1_booleans() {
        for (text, expected) in [
            ("true", Ok(true)),
            ("F", Ok(false)),
            ("yes", Err(ValueError::SYNTAX)),
        ] {
            assert_eq!(boolean(text), expected, "{text:?}");
        }
    }

    #[test]
    fn numbers() {
        check_uint("0", Ok(0));
        check_uint("128", Ok(128));
        check_uint("0x10", Ok(16));
        check_uint("017", Ok(15));
        check_uint("0b11", Ok(3));
        check_uint("0o_17", Ok(15));
        check_uint("1_000", Ok(1_000));
        check_uint("18446744073709551615", Ok(u64::MAX));
        check_uint("18446744073709551616", Err(&ValueError::RANGE));
        for bad in [
            "", "-1", "+1", "1_", "_1", "1__0", "0x", "08", "1.5", "1e3", "é", "0é",
        ] {
            check_uint(bad, Err(&ValueError::SYNTAX));
        }
        check_int("-9223372036854775808", Ok(i64::MIN));
        check_int("-9223372036854775809", Err(&ValueError::RANGE));
        check_int("+5", Ok(5));
        check_int("9223372036854775808", Err(&ValueError::RANGE));
        check_int("--5", Err(&ValueError::SYNTAX));
    }
}
