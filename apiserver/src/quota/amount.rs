//! Sums of quantities.

use std::fmt;

use revstore_kinds as kinds;
use serde_json::Value;

use crate::builtin::quantity::Quantity;

/// The suffixes of powers of 1024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// A quantity that others are added to, in the format of the first one that is not zero. `Display` writes its canonical
/// form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    value: Quantity,
    is_binary: bool,
}

impl Amount {
    /// Reads a quantity; `None` if it is none.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let is_binary = value.as_str().is_some_and(|text| text.ends_with('i'));
        let value = Quantity::of(value)?;
        Some(Self { value, is_binary })
    }

    pub(crate) fn integer(number: i64) -> Self {
        Self {
            value: Quantity::integer(number),
            is_binary: false,
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.value.is_zero()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if self.value.is_zero() {
            self.is_binary = other.is_binary;
        }
        self.value = self.value.plus(other.value);
    }

    /// Returns the difference, or zero if the other one is larger.
    pub(crate) fn above(&self, other: &Self) -> Self {
        let value = if self.exceeds(other) {
            self.value.minus(other.value)
        } else {
            Quantity::default()
        };
        Self { value, ..*self }
    }

    /// Returns whether the value is larger than another one.
    pub(crate) fn exceeds(&self, other: &Self) -> bool {
        self.value > other.value
    }

    /// Returns the value, rounded up.
    pub(crate) fn whole(&self) -> i128 {
        self.value.whole()
    }

    /// Returns a thousand times the value, rounded up.
    pub(crate) fn thousandths(&self) -> i128 {
        self.value.thousandths()
    }

    /// Takes the value of another one if that is larger.
    pub(crate) fn raise_to(&mut self, other: &Self) {
        if other.value > self.value {
            *self = other.clone();
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.value.decimal_text();
        if self.is_binary
            && let Ok(mut whole) = text.parse::<i128>()
            && whole >= 1024
        {
            let mut suffix = 0;
            while whole % 1024 == 0 && suffix + 1 < BINARY.len() {
                whole /= 1024;
                suffix += 1;
            }
            return write!(f, "{whole}{}", BINARY[suffix]);
        }
        match kinds::Quantity::parse(&text) {
            Ok(quantity) => quantity.fmt(f),
            Err(_) => f.write_str(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sums_have_the_format_of_their_first_part() {
        let sum = |parts: &[&str]| {
            let mut sum = Amount::default();
            for part in parts {
                sum.add(&Amount::of(&json!(part)).unwrap());
            }
            sum.to_string()
        };
        assert_eq!(sum(&[]), "0");
        assert_eq!(sum(&["100m", "200m"]), "300m");
        assert_eq!(sum(&["500m", "1500m"]), "2");
        assert_eq!(sum(&["512Mi", "512Mi"]), "1Gi");
        assert_eq!(sum(&["0", "1Gi", "1M"]), "1074741824");
        assert_eq!(sum(&["1M", "1Ki"]), "1001024");
        assert_eq!(sum(&["1k", "1k"]), "2k");
    }
}
