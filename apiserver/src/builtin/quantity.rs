//! Quantities of resources, such as `100m` or `1Gi`.

use std::cmp::Ordering;

use serde_json::Value;

/// The number of units of a [`Quantity`] in 1.
const NANO: i128 = 1_000_000_000;
/// The maximum number of digits that are read.
const DIGITS_MAX: usize = 40;

/// A quantity in billionths. Larger and smaller values are those at the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity(i128);

impl Quantity {
    /// Parses a JSON string or number, or returns `None`.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    /// Parses a text. Digits beyond billionths are rounded up.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty()
            || fraction.contains('.')
            || whole.len() + fraction.len() > DIGITS_MAX
        {
            return None;
        }
        let (base, exponent) = scale(suffix)?;
        // The value is `digits * base^exponent / 10^fraction.len()`, in billionths.
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let mut value = digits.saturating_mul(NANO);
        let mut rounded = false;
        if exponent >= 0 {
            for _ in 0..exponent {
                value = value.saturating_mul(base);
            }
        }
        let below = fraction.len() + usize::try_from(-exponent.min(0)).unwrap_or_default();
        for _ in 0..below {
            rounded |= value % 10 != 0;
            value /= 10;
        }
        value += i128::from(rounded);
        Some(Self(if negative { -value } else { value }))
    }

    /// Returns whether it is below 0.
    pub(crate) fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Returns whether it is 0.
    pub(crate) fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns whether it has no fraction.
    pub(crate) fn is_whole(self) -> bool {
        self.0 % NANO == 0
    }

    /// Returns the number without its fraction, which is rounded up.
    pub(crate) fn rounded_up(self) -> Self {
        let whole = self.0.div_euclid(NANO) + i128::from(self.0.rem_euclid(NANO) != 0);
        Self(whole.saturating_mul(NANO))
    }

    /// Returns whether it is a multiple of another number, which is not 0.
    pub(crate) fn is_multiple_of(self, other: Self) -> bool {
        other.0 != 0 && self.0 % other.0 == 0
    }

    /// Returns a whole number.
    pub(crate) fn integer(number: i64) -> Self {
        Self(i128::from(number).saturating_mul(NANO))
    }

    /// Returns the value, rounded up.
    pub(crate) fn whole(self) -> i128 {
        -(-self.0).div_euclid(NANO)
    }

    /// Returns a thousand times the value, rounded up.
    pub(crate) fn thousandths(self) -> i128 {
        -(-self.0).div_euclid(NANO / 1_000)
    }

    /// Returns the number in digits, without a suffix.
    pub(crate) fn decimal_text(self) -> String {
        let (sign, size) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let nano = NANO.unsigned_abs();
        let (whole, rest) = (size / nano, size % nano);
        if rest == 0 {
            return format!("{sign}{whole}");
        }
        let fraction = format!("{rest:09}");
        format!("{sign}{whole}.{}", fraction.trim_end_matches('0'))
    }

    /// Returns the nearest number that a machine computes with.
    pub(crate) fn to_float(self) -> f64 {
        self.decimal_text().parse().unwrap_or_default()
    }

    /// Returns the sum.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference.
    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Returns the base and the exponent of a suffix.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    let decimal = |exponent| Some((10, exponent));
    let binary = |exponent| Some((1024, exponent));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            decimal(exponent.clamp(-40, 40))
        }
    }
}

/// Compares two quantities in JSON; one that cannot be read is 0.
pub(crate) fn compare(one: &Value, two: &Value) -> Ordering {
    let of = |value| Quantity::of(value).unwrap_or_default();
    of(one).cmp(&of(two))
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn quantities_are_read() {
        let equal = |one: &str, two: &str| {
            let (one, two) = (Quantity::parse(one), Quantity::parse(two));
            assert!(one.is_some());
            assert_eq!(one, two);
        };
        equal("1", "1000m");
        equal("1Ki", "1024");
        equal("0.5", "500m");
        equal("1e3", "1k");
        equal("1E3", "1k");
        equal("1E", "1000P");
        equal("-1.5Gi", "-1536Mi");
        equal(".5", "500m");
        for bad in ["", "a", "1x", "1.2.3", "-", "1 ", "1ee3", "1KiB"] {
            assert_eq!(Quantity::parse(bad), None, "{bad:?}");
        }
        assert!(Quantity::parse("9999999999E").unwrap() > Quantity::parse("1").unwrap());
        assert!(!Quantity::parse("1500m").unwrap().is_whole());
    }
}
