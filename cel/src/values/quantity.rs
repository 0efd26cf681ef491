//! Amounts of resources.

use std::fmt;

/// The number of units of a [`Quantity`] in 1.
const NANO: i128 = 1_000_000_000;
/// The maximum number of digits that are read.
const DIGITS_MAX: usize = 40;

/// An amount in billionths. Larger and smaller amounts are those at the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

/// Why a text is no quantity.
const INVALID: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

impl Quantity {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (is_negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // A suffix alone is an amount of 0.
        if whole.is_empty() && fraction.is_empty() && suffix.is_empty()
            || fraction.contains('.')
            || whole.len() + fraction.len() > DIGITS_MAX
        {
            return Err(INVALID);
        }
        let (base, exponent) = scale(suffix).ok_or(SUFFIX)?;
        let digits: i128 = format!("0{whole}{fraction}").parse().map_err(|_| INVALID)?;
        // The value is `digits * base^exponent / 10^fraction.len()`.
        let mut value = digits.saturating_mul(NANO);
        let mut is_rounded = false;
        for _ in 0..exponent.max(0) {
            value = value.saturating_mul(base);
        }
        let tens = fraction.len() + usize::try_from(-exponent.min(0)).unwrap_or(0);
        for _ in 0..tens {
            is_rounded |= value % 10 != 0;
            value /= 10;
        }
        value = value.saturating_add(i128::from(is_rounded));
        Ok(Self(if is_negative { -value } else { value }))
    }

    pub(crate) fn whole(number: i64) -> Self {
        Self(i128::from(number) * NANO)
    }

    pub(crate) fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    pub(crate) fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    pub(crate) fn sign(self) -> i64 {
        i64::try_from(self.0.signum()).unwrap_or(0)
    }

    /// Returns the value if it is a whole number in range.
    pub(crate) fn as_int(self) -> Option<i64> {
        (self.0 % NANO == 0)
            .then(|| i64::try_from(self.0 / NANO).ok())
            .flatten()
    }

    #[expect(clippy::cast_precision_loss, reason = "as the name says")]
    pub(crate) fn as_float(self) -> f64 {
        self.0 as f64 / NANO as f64
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let fraction = format!("{:09}", (self.0 % NANO).abs());
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        write!(out, "{sign}{}{dot}{fraction}", (self.0 / NANO).abs())
    }
}

/// Returns base and exponent of a suffix.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some(index) = decimal.iter().position(|it| *it == suffix) {
        return Some((10, (i32::try_from(index).ok()? - 3) * 3));
    }
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(index) = binary.iter().position(|it| *it == suffix) {
        return Some((1024, i32::try_from(index).ok()? + 1));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.trim_start_matches(['+', '-']);
    let is_number = exponent.len() - digits.len() <= 1
        && !digits.is_empty()
        && digits.bytes().all(|digit| digit.is_ascii_digit());
    // Beyond this every amount is at a limit, or zero.
    let exponent = exponent.strip_prefix('+').unwrap_or(exponent);
    is_number.then(|| {
        (
            10,
            exponent.parse::<i32>().unwrap_or(i32::MAX).clamp(-60, 60),
        )
    })
}
