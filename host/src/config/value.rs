//! Booleans, numbers, sizes and lists in the forms that users write.

use super::ConfigError;

/// Parses a boolean in the spellings of Go's `ParseBool`.
pub(super) fn boolean(text: &str) -> Result<bool, ConfigError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(ConfigError::syntax()),
    }
}

/// Parses a number without a sign as Go does: decimal, or with a prefix `0x`, `0o`, `0` or `0b`,
/// with single underscores between digits and after a prefix.
pub(super) fn uint(text: &str) -> Result<u64, ConfigError> {
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
            return Err(ConfigError::syntax());
        }
        for digit in group.chars() {
            let digit = digit.to_digit(radix).ok_or(ConfigError::syntax())?;
            value = value
                .and_then(|value| value.checked_mul(u64::from(radix)))
                .and_then(|value| value.checked_add(u64::from(digit)));
        }
    }
    value.ok_or(ConfigError::range())
}

/// Parses a number like [`uint`], with an optional sign.
pub(super) fn int(text: &str) -> Result<i64, ConfigError> {
    let value = match text.strip_prefix('-') {
        Some(magnitude) => 0_i64.checked_sub_unsigned(uint(magnitude)?),
        None => i64::try_from(uint(text.strip_prefix('+').unwrap_or(text))?).ok(),
    };
    value.ok_or(ConfigError::range())
}

/// Parses a size in bytes, such as `1048576` or `512MiB`: a whole number with an optional unit, `B`, the binary `KiB` to `TiB`, or the decimal `KB`
/// to `TB`. Units are case-sensitive: `Mb` is an error, since it could mean bits.
///
/// # Errors
/// The text is not a size, or the size does not fit in 64 bits.
pub fn parse_byte_size(text: &str) -> Result<u64, ConfigError> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let (digits, unit) = text.split_at(text.len() - digits.len());
    let scale: Option<u64> = match unit {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        "TiB" => Some(1 << 40),
        "KB" => Some(1_000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        "TB" => Some(1_000_000_000_000),
        _ => None,
    };
    let scale = scale.filter(|_| !digits.is_empty()).ok_or_else(|| {
        ConfigError::new(format!(
            "{text:?} is not a size in bytes such as 1048576, 512MiB or 2GiB"
        ))
    })?;
    let size = digits.parse::<u64>().ok();
    size.and_then(|number| number.checked_mul(scale))
        .ok_or_else(|| ConfigError::new(format!("the size {text:?} is too large")))
}

/// The parts of a comma-separated list that are not empty.
pub fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_uint(text: &str, expected: Result<u64, &ConfigError>) {
        assert_eq!(uint(text).as_ref().copied(), expected, "{text:?}");
    }

    fn check_int(text: &str, expected: Result<i64, &ConfigError>) {
        assert_eq!(int(text).as_ref().copied(), expected, "{text:?}");
    }

    #[test]
    fn fl_1_booleans() {
        for (text, expected) in [
            ("true", Ok(true)),
            ("F", Ok(false)),
            ("yes", Err(ConfigError::syntax())),
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
        check_uint("18446744073709551616", Err(&ConfigError::range()));
        for bad in [
            "", "-1", "+1", "1_", "_1", "1__0", "0x", "08", "1.5", "1e3", "é", "0é",
        ] {
            check_uint(bad, Err(&ConfigError::syntax()));
        }
        check_int("-9223372036854775808", Ok(i64::MIN));
        check_int("-9223372036854775809", Err(&ConfigError::range()));
        check_int("+5", Ok(5));
        check_int("9223372036854775808", Err(&ConfigError::range()));
        check_int("--5", Err(&ConfigError::syntax()));
    }

    fn check_size(text: &str, expected: Option<u64>) {
        assert_eq!(parse_byte_size(text).ok(), expected, "{text:?}");
    }

    #[test]
    fn sizes() {
        check_size("0", Some(0));
        check_size("512", Some(512));
        check_size("512B", Some(512));
        check_size("512MiB", Some(512 << 20));
        check_size("2GB", Some(2_000_000_000));
        check_size("", None);
        check_size("MiB", None);
        check_size("1.5GiB", None);
        check_size("1Mb", None);
        check_size("-1", None);
        check_size("99999999999999999999", None);
        check_size("18446744073709551615KiB", None);
    }
}
