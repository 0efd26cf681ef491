//! Durations in Go's syntax, such as `5s`, `1h30m` and `1.5h`.
//!
//! No crate parses exactly this syntax with Go's error messages, which servers written in Go pass
//! on to the user: `humantime`, for example, accepts `1 day` and refuses `1.5h`.

use std::time::Duration;

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
