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
    let mut groups = after_prefix.unwrap_or(digits).split('_');
    if !groups.all(|group| !group.is_empty() && group.chars().all(|c| c.is_digit(radix))) {
        return Err(ConfigError::syntax());
    }
    u64::from_str_radix(&digits.replace('_', ""), radix).map_err(|_| ConfigError::range())
}

/// Parses a number like [`uint`], with an optional sign.
pub(super) fn int(text: &str) -> Result<i64, ConfigError> {
    let value = match text.strip_prefix('-') {
        Some(magnitude) => 0_i64.checked_sub_unsigned(uint(magnitude)?),
        None => i64::try_from(uint(text.strip_prefix('+').unwrap_or(text))?).ok(),
    };
    value.ok_or(ConfigError::range())
}

/// Parses a size in bytes, such as `1048576` or `512MiB`: a whole number with an optional unit, `B`,
/// the binary `KiB` to `TiB`, or the decimal `KB` to `TB`. Units are case-sensitive: `Mb` is an
/// error, since it could mean bits.
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
