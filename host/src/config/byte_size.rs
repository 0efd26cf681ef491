//! Sizes in bytes as people write them: `1048576`, `512MiB`.

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ByteSizeError {
    /// Not a whole number followed by a known unit.
    #[error("{text:?} is not a size in bytes such as 1048576, 512MiB or 2GiB")]
    Syntax {
        /// The whole text.
        text: String,
    },
    /// More bytes than 64 bits can count.
    #[error("the size {text:?} is too large")]
    TooLarge {
        /// The whole text.
        text: String,
    },
}

/// Reads a whole number with an optional unit: `B`, the binary `KiB` to `TiB`, or the decimal `KB`
/// to `TB`. Units are case-sensitive, so that `Mb` is refused rather than guessed at.
///
/// # Errors
/// The text is not a size.
pub fn parse(text: &str) -> Result<u64, ByteSizeError> {
    let (digits, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let scale: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => {
            return Err(ByteSizeError::Syntax {
                text: text.to_owned(),
            });
        }
    };
    if digits.is_empty() {
        return Err(ByteSizeError::Syntax {
            text: text.to_owned(),
        });
    }
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(scale))
        .ok_or_else(|| ByteSizeError::TooLarge {
            text: text.to_owned(),
        })
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
