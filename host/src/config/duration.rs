//! Durations as Go writes them: `5s`, `1h30m`, `1.5h`.
//!
//! Flags, variables and the configuration file all use this form. Written out by hand because no
//! crate reads it exactly: humantime accepts `1 day` and refuses `1.5h`, and an etcd user must get
//! neither a surprise nor a different error text.

use std::time::Duration;

/// Nanoseconds, signed and 64 bits wide, as in Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub i64);

/// Why a text is not a duration. The texts are Go's: etcd passes them on to the user (AC-2).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a number with a unit, or beyond 64 bits of nanoseconds (about 292 years).
    #[error("time: invalid duration {text:?}")]
    Invalid {
        /// The whole text.
        text: String,
    },
    /// A number other than zero without a unit.
    #[error("time: missing unit in duration {text:?}")]
    MissingUnit {
        /// The whole text.
        text: String,
    },
    /// A unit other than `ns`, `us`, `µs`, `ms`, `s`, `m` or `h`.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

impl GoDuration {
    /// Reads a sequence of decimal numbers, each with a unit, with an optional sign before all.
    ///
    /// # Errors
    /// The text is not a duration.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let invalid = || DurationError::Invalid {
            text: text.to_owned(),
        };

        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }

        // Wide enough for the one value that exists only below zero; the sum is checked at each
        // step, so it stays within a few times 2^63.
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let (number, after_number) = rest.split_at(
                rest.find(|c: char| c != '.' && !c.is_ascii_digit())
                    .unwrap_or(rest.len()),
            );
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
                return Err(invalid());
            }
            let (unit, after_unit) = after_number.split_at(
                after_number
                    .find(|c: char| c == '.' || c.is_ascii_digit())
                    .unwrap_or(after_number.len()),
            );
            if unit.is_empty() {
                return Err(DurationError::MissingUnit {
                    text: text.to_owned(),
                });
            }
            let scale = scale(unit).ok_or_else(|| DurationError::UnknownUnit {
                unit: unit.to_owned(),
                text: text.to_owned(),
            })?;
            total += nanoseconds(whole, fraction, scale).ok_or_else(invalid)?;
            if total > -i128::from(i64::MIN) {
                return Err(invalid());
            }
            rest = after_unit;
        }
        let signed = if negative { -total } else { total };
        i64::try_from(signed).map(Self).map_err(|_| invalid())
    }

    /// The duration if it is above zero: etcd takes zero and below as "off" in most places.
    pub fn positive(self) -> Option<Duration> {
        u64::try_from(self.0)
            .ok()
            .filter(|&ns| ns > 0)
            .map(Duration::from_nanos)
    }
}

fn scale(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        // The micro sign and the Greek letter both occur.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3_600 * 1_000_000_000,
        _ => return None,
    })
}

/// `whole.fraction` units, cut to whole nanoseconds; `None` if the number is too large.
fn nanoseconds(whole: &str, fraction: &str, scale: i128) -> Option<i128> {
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse::<u64>().ok()?
    };
    // Digits beyond the eighteenth are worth less than a nanosecond, even of an hour.
    let digits = &fraction[..fraction.len().min(18)];
    let value: i128 = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    let divisor = 10_i128.pow(u32::try_from(digits.len()).ok()?);
    Some(i128::from(whole) * scale + value * scale / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<i64, &str>) {
        let actual = GoDuration::parse(text)
            .map(|d| d.0)
            .map_err(|e| e.to_string());
        assert_eq!(actual, expected.map_err(str::to_owned), "{text:?}");
    }

    #[test]
    fn go_forms() {
        check("0", Ok(0));
        check("-0", Ok(0));
        check("5s", Ok(5_000_000_000));
        check("+5s", Ok(5_000_000_000));
        check("-5s", Ok(-5_000_000_000));
        check("10m", Ok(600_000_000_000));
        check("1.5h", Ok(5_400_000_000_000));
        check("1h30m", Ok(5_400_000_000_000));
        check(".5s", Ok(500_000_000));
        check("5.s", Ok(5_000_000_000));
        check("1us", Ok(1_000));
        check("1µs", Ok(1_000));
        check("0.000000001h", Ok(3_600));
        check("0.9999999999999999999s", Ok(999_999_999));
    }

    #[test]
    fn ac_2_errors_read_like_gos() {
        check("", Err(r#"time: invalid duration """#));
        check("abc", Err(r#"time: invalid duration "abc""#));
        check("..s", Err(r#"time: invalid duration "..s""#));
        check("+", Err(r#"time: invalid duration "+""#));
        check("-5", Err(r#"time: missing unit in duration "-5""#));
        check("0.5", Err(r#"time: missing unit in duration "0.5""#));
        check("1d", Err(r#"time: unknown unit "d" in duration "1d""#));
        check(
            "1h 5m",
            Err(r#"time: unknown unit "h " in duration "1h 5m""#),
        );
        check(
            "1h-5m",
            Err(r#"time: unknown unit "h-" in duration "1h-5m""#),
        );
    }

    #[test]
    fn the_range_is_that_of_64_bits() {
        check("2562047h47m16.854775807s", Ok(i64::MAX));
        check("-2562047h47m16.854775808s", Ok(i64::MIN));
        check(
            "2562047h47m16.854775808s",
            Err(r#"time: invalid duration "2562047h47m16.854775808s""#),
        );
        check(
            "99999999999999999999h",
            Err(r#"time: invalid duration "99999999999999999999h""#),
        );
        check("3000000h", Err(r#"time: invalid duration "3000000h""#));
    }

    #[test]
    fn zero_and_below_are_not_positive() {
        assert_eq!(GoDuration(0).positive(), None);
        assert_eq!(GoDuration(-1).positive(), None);
        assert_eq!(GoDuration(1).positive(), Some(Duration::from_nanos(1)));
    }
}
