//! Sizes in bytes, such as `1048576` and `512MiB`.

use crate::config::ValueError;

/// Parses a whole number with an optional unit: `B`, the binary `KiB` to `TiB`, or the decimal `KB`
/// to `TB`. Units are case-sensitive: `Mb` is an error, since it could mean bits.
///
/// # Errors
/// The text is not a size, or the size does not fit in 64 bits.
pub fn parse(text: &str) -> Result<u64, ValueError> {
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
        ValueError::new(format!(
            "{text:?} is not a size in bytes such as 1048576, 512MiB or 2GiB"
        ))
    })?;
    let size = digits.parse::<u64>().ok();
    size.and_then(|number| number.checked_mul(scale))
        .ok_or_else(|| ValueError::new(format!("the size {text:?} is too large")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(parse(text).ok(), expected, "{text:?}");
    }

    #[test]
    fn sizes() {
        check("0", Some(0));
        check("512", Some(512));
        check("512B", Some(512));
        check("512MiB", Some(512 << 20));
        check("2GB", Some(2_000_000_000));
        check("", None);
        check("MiB", None);
        check("1.5GiB", None);
        check("1Mb", None);
        check("-1", None);
        check("99999999999999999999", None);
        check("18446744073709551615KiB", None);
    }
}
