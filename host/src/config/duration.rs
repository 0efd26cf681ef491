//! Durations in Go's syntax, such as `5s`, `1h30m` and `1.5h`.
//!
//! No crate parses exactly this syntax with Go's error messages, which servers written in Go pass
//! on to the user: `humantime`, for example, accepts `1 day` and refuses `1.5h`.

use std::{fmt, time::Duration};

use super::ConfigError;

/// A signed number of nanoseconds in 64 bits, as in Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub i64);

impl GoDuration {
    /// Parses a sequence of decimal numbers, each with a unit (`ns`, `us`, `µs`, `ms`, `s`, `m`,
    /// `h`), after an optional sign.
    ///
    /// # Errors
    /// The text is not a duration, or the duration does not fit in 64 bits (about 292 years). The
    /// messages are Go's.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let error = |problem| ConfigError::new(format!("time: {problem} duration {text:?}"));
        let invalid = || error("invalid".to_owned());
        let (sign, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        // Wider than the result, because the magnitude of the smallest value does not fit in 64
        // bits. The check in each round keeps the sum below a few times 2^63.
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let (number, unit);
            (number, rest) = split_while(rest, |c| c == '.' || c.is_ascii_digit());
            (unit, rest) = split_while(rest, |c| c != '.' && !c.is_ascii_digit());
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
                return Err(invalid());
            }
            let scale: i128 = match unit {
                "" => return Err(error("missing unit in".to_owned())),
                "ns" => 1,
                // The micro sign and the Greek letter mu.
                "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "m" => 60 * 1_000_000_000,
                "h" => 3_600 * 1_000_000_000,
                _ => return Err(error(format!("unknown unit {unit:?} in"))),
            };
            total += nanoseconds(whole, fraction, scale).ok_or_else(invalid)?;
            if total > -i128::from(i64::MIN) {
                return Err(invalid());
            }
        }
        i64::try_from(sign * total).map(Self).map_err(|_| invalid())
    }

    /// The duration if it is above zero; `None` for zero and negative durations, which mean "off"
    /// for many flags.
    pub fn positive(self) -> Option<Duration> {
        let nanoseconds = u64::try_from(self.0).ok().filter(|&ns| ns > 0);
        nanoseconds.map(Duration::from_nanos)
    }
}

impl From<Duration> for GoDuration {
    /// Returns the longest duration that Go can represent (about 292 years) for a longer one.
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for GoDuration {
    /// Writes the text that Go writes, such as `1h30m0s`, `1.5s` and `20ms`. [`parse`](Self::parse) reads it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let (scale, unit) = match nanoseconds {
            0 => return f.write_str("0s"),
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "\u{b5}s"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let (mut whole, fraction) = (nanoseconds / scale, nanoseconds % scale);
        if unit == "s" {
            let (hours, minutes) = (whole / 3_600, whole / 60 % 60);
            whole %= 60;
            if hours > 0 {
                write!(f, "{hours}h")?;
            }
            if hours > 0 || minutes > 0 {
                write!(f, "{minutes}m")?;
            }
        }
        write!(f, "{whole}")?;
        if fraction > 0 {
            let width = scale.ilog10() as usize;
            let digits = format!("{fraction:0width$}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str(unit)
    }
}

/// Splits a text after the leading characters that satisfy a predicate.
fn split_while(text: &str, predicate: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !predicate(c)).unwrap_or(text.len()))
}

/// `whole.fraction` units in whole nanoseconds; `None` if the number does not fit in 64 bits.
fn nanoseconds(whole: &str, fraction: &str, scale: i128) -> Option<i128> {
    let number = |digits: &str| match digits {
        "" => Some(0),
        digits => digits.parse::<u64>().ok().map(i128::from),
    };
    // Further digits are worth less than a nanosecond, even of an hour.
    let fraction = &fraction[..fraction.len().min(18)];
    let divisor = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    Some(number(whole)? * scale + number(fraction)? * scale / divisor)
}

#[cfg(test)]
mod tests {
    use super::GoDuration;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (60_000_000_000, "1m0s"),
            (90_000_000_000, "1m30s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (480_000_000_001, "8m0.000000001s"),
            (-1_500_000_000, "-1.5s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (nanoseconds, text) in cases {
            assert_eq!(GoDuration(nanoseconds).to_string(), text);
            assert_eq!(GoDuration::parse(text), Ok(GoDuration(nanoseconds)));
        }
    }
}
