//! Numbers with suffixes, such as `500m` and `2Gi`.

use std::cmp::Ordering;
use std::fmt;

/// A number with a suffix, such as `500m` or `2Gi`, of any size, with nine digits after the point.
///
/// `Display` writes the canonical form, in which an API server stores it: the largest suffix that needs no digits after
/// the point. Two quantities are equal if their numbers are, whatever their suffixes.
///
/// ```
/// use revstore_kinds::Quantity;
///
/// assert_eq!(Quantity::parse("0.5").unwrap().to_string(), "500m");
/// assert_eq!(Quantity::parse("1024Mi").unwrap().to_string(), "1Gi");
/// assert!(Quantity::parse("1Gi").unwrap() > Quantity::parse("1G").unwrap());
/// ```
#[derive(Debug, Clone)]
pub struct Quantity {
    negative: bool,
    /// Decimal digits without leading and trailing zeros; none is zero.
    digits: Vec<u8>,
    /// The power of ten that the digits are multiplied by.
    exponent: i64,
    format: Format,
    /// The text, where it is kept as it was written.
    text: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It does not look like one.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// There is no such suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// It is longer than [`Quantity::LEN_MAX`].
    #[error("unable to parse numeric part of quantity")]
    TooLong,
}

/// Digits up to which upstream computes with machine integers, and keeps some texts as they are.
const FAST_DIGITS: usize = 18;
/// Digits after the point that are kept.
const NANO: i64 = -9;

impl Quantity {
    /// The length of the longest text that is read.
    pub const LEN_MAX: usize = 512;

    /// Reads a quantity.
    ///
    /// # Errors
    /// If the text is no quantity, or longer than [`LEN_MAX`](Self::LEN_MAX).
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.len() > Self::LEN_MAX {
            return Err(QuantityError::TooLong);
        }
        let Parts {
            negative,
            whole,
            fraction,
            suffix,
        } = Parts::split(text)?;
        let (format, exponent) = interpret(suffix).ok_or(QuantityError::Suffix)?;
        let digits: Vec<u8> = [whole, fraction]
            .concat()
            .bytes()
            .map(|digit| digit - b'0')
            .collect();
        let fraction_len = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        let mut quantity = Quantity {
            negative,
            digits,
            exponent: -fraction_len,
            format,
            text: None,
        };
        if text == "0" {
            quantity.digits.clear();
            return Ok(quantity);
        }
        let keep = quantity.keeps_text(whole.len(), fraction.len(), exponent);
        if format == Format::Binary {
            quantity.multiply(1 << exponent);
        } else {
            quantity.exponent += exponent;
        }
        quantity.trim();
        if keep {
            quantity.text = Some(text.into());
            return Ok(quantity);
        }
        quantity.round_up(NANO);
        if format == Format::Binary {
            let limit = Quantity::integer(i64::MAX);
            if quantity.compare_size(&limit) == Ordering::Greater {
                (quantity.digits, quantity.exponent) = (limit.digits, limit.exponent);
            }
            if !quantity.is_zero() && quantity.compare_size(&Quantity::integer(1)) == Ordering::Less
            {
                quantity.format = Format::Decimal;
            }
        }
        Ok(quantity)
    }

    /// An integer.
    pub fn integer(value: i64) -> Self {
        let digits = value
            .unsigned_abs()
            .to_string()
            .bytes()
            .map(|digit| digit - b'0')
            .collect();
        let mut quantity = Quantity {
            negative: value < 0,
            digits,
            exponent: 0,
            format: Format::Decimal,
            text: None,
        };
        quantity.trim();
        quantity
    }

    /// The sum of two quantities, in the form of this one unless it is zero. Sums above 10^29 are that number.
    ///
    /// ```
    /// use revstore_kinds::Quantity;
    ///
    /// let sum = |one, two| Some(Quantity::parse(one).ok()?.plus(&Quantity::parse(two).ok()?).to_string());
    /// assert_eq!(sum("1500m", "0.5").as_deref(), Some("2"));
    /// assert_eq!(sum("512Mi", "512Mi").as_deref(), Some("1Gi"));
    /// ```
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let limit = 10i128.pow(38);
        let nanos = |quantity: &Self| {
            let size = quantity.to_u128(NANO).map(i128::try_from);
            let size = size.and_then(Result::ok).unwrap_or(limit).min(limit);
            if quantity.negative { -size } else { size }
        };
        let sum = nanos(self).saturating_add(nanos(other));
        let sum = sum.clamp(-limit, limit);
        let digits = sum.unsigned_abs().to_string();
        let mut quantity = Quantity {
            negative: sum < 0,
            digits: digits.bytes().map(|digit| digit - b'0').collect(),
            exponent: NANO,
            format: if self.is_zero() {
                other.format
            } else {
                self.format
            },
            text: None,
        };
        quantity.trim();
        quantity
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Whether it is less than zero.
    pub fn is_negative(&self) -> bool {
        self.negative && !self.is_zero()
    }

    /// The value as an integer, rounded away from zero; `None` if it is too large.
    pub fn to_i64(&self) -> Option<i64> {
        self.scaled(0)
    }

    /// The value in thousandths, rounded away from zero; `None` if it is too large.
    pub fn to_millis(&self) -> Option<i64> {
        self.scaled(-3)
    }

    fn scaled(&self, scale: i64) -> Option<i64> {
        let mut rounded = self.clone();
        rounded.round_up(scale);
        let value = rounded.to_u128(scale)?;
        let value = i128::try_from(value).ok()?;
        i64::try_from(if rounded.negative { -value } else { value }).ok()
    }

    /// The digits as an integer number of `10^scale`, if they are one and it is not too large.
    fn to_u128(&self, scale: i64) -> Option<u128> {
        if self.is_zero() {
            return Some(0);
        }
        let zeros = u32::try_from(self.exponent - scale).ok()?;
        let mut value: u128 = 0;
        for digit in &self.digits {
            value = value.checked_mul(10)?.checked_add(u128::from(*digit))?;
        }
        value.checked_mul(10u128.checked_pow(zeros)?)
    }

    /// Upstream keeps the text of numbers that its fast path reads and finds canonical enough. `exponent` is that of the
    /// suffix.
    fn keeps_text(&self, whole: usize, fraction: usize, exponent: i64) -> bool {
        let digits = &self.digits;
        if self.format == Format::Binary {
            // The logarithm of the suffix, rounded down.
            let suffix_digits = usize::try_from(exponent * 3 / 10).unwrap_or_default();
            if fraction > 0 || whole + suffix_digits > 14 {
                return false;
            }
            let value = digits
                .iter()
                .fold(0u64, |value, digit| value * 10 + u64::from(*digit));
            return value
                .checked_mul(1 << exponent)
                .is_some_and(|value| i64::try_from(value).is_ok())
                && value % 8 != 0;
        }
        let scale = exponent - i64::try_from(fraction).unwrap_or(i64::MAX);
        whole + fraction <= FAST_DIGITS
            && scale >= NANO
            && scale % 3 == 0
            && !digits.ends_with(&[0, 0, 0])
            && digits.first() != Some(&0)
    }

    fn multiply(&mut self, factor: u64) {
        let mut carry = 0u128;
        for digit in self.digits.iter_mut().rev() {
            carry += u128::from(*digit) * u128::from(factor);
            *digit = u8::try_from(carry % 10).unwrap_or_default();
            carry /= 10;
        }
        while carry > 0 {
            self.digits
                .insert(0, u8::try_from(carry % 10).unwrap_or_default());
            carry /= 10;
        }
    }

    /// Removes zeros at both ends.
    fn trim(&mut self) {
        let leading = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..leading);
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
        if self.digits.is_empty() {
            self.exponent = 0;
        }
    }

    /// Removes digits below `10^scale`; if there are any, the number grows away from zero.
    fn round_up(&mut self, scale: i64) {
        if self.exponent >= scale || self.is_zero() {
            return;
        }
        let removed = usize::try_from(scale - self.exponent).unwrap_or(usize::MAX);
        self.digits
            .truncate(self.digits.len().saturating_sub(removed));
        self.exponent = scale;
        // The last digit was no zero, so something was lost.
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                self.trim();
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
        self.trim();
    }

    /// Compares without signs.
    fn compare_size(&self, other: &Self) -> Ordering {
        let magnitude = |quantity: &Self| {
            let len = i64::try_from(quantity.digits.len()).unwrap_or(i64::MAX);
            (!quantity.is_zero()).then(|| quantity.exponent.saturating_add(len))
        };
        magnitude(self)
            .cmp(&magnitude(other))
            .then_with(|| self.digits.cmp(&other.digits))
    }

    /// The canonical form in powers of ten.
    fn write_decimal(&self, f: &mut fmt::Formatter<'_>, format: Format) -> fmt::Result {
        let zeros = self.exponent.rem_euclid(3);
        let exponent = self.exponent - zeros;
        for digit in &self.digits {
            write!(f, "{digit}")?;
        }
        f.write_str(&"00"[..usize::try_from(zeros).unwrap_or_default()])?;
        match (format, exponent) {
            (_, 0) => Ok(()),
            (Format::Exponent, _) => write!(f, "e{exponent}"),
            (_, -9) => f.write_str("n"),
            (_, -6) => f.write_str("u"),
            (_, -3) => f.write_str("m"),
            (_, 3) => f.write_str("k"),
            (_, 6) => f.write_str("M"),
            (_, 9) => f.write_str("G"),
            (_, 12) => f.write_str("T"),
            (_, 15) => f.write_str("P"),
            (_, 18) => f.write_str("E"),
            // Upstream loses the exponent of larger numbers; an exponent says what is meant.
            _ => write!(f, "e{exponent}"),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.negative {
            f.write_str("-")?;
        }
        if self.format != Format::Binary {
            return self.write_decimal(f, self.format);
        }
        let small = self.compare_size(&Quantity::integer(1024)) == Ordering::Less;
        let Some(mut value) = self.to_u128(0).filter(|_| !small) else {
            return self.write_decimal(f, Format::Decimal);
        };
        let mut suffix = 0;
        while value % 1024 == 0 && suffix < 6 {
            value /= 1024;
            suffix += 1;
        }
        write!(
            f,
            "{value}{}",
            ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][suffix]
        )
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative(), other.is_negative()) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_size(other),
            (true, true) => other.compare_size(self),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

/// The parts of the text of a quantity.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros; `0` if there are none.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let trimmed = unsigned.trim_start_matches('0');
        let (whole, rest) = trimmed.split_at(digits(trimmed));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
        // Upstream finds nothing wrong with a text that ends after the sign or a point.
        let exponent = letters.strip_prefix(['+', '-']).unwrap_or(letters);
        if digits(exponent) != exponent.len() {
            return Err(QuantityError::Format);
        }
        let whole = if whole.is_empty() { "0" } else { whole };
        Ok(Parts {
            negative: text.starts_with('-'),
            whole,
            fraction,
            suffix,
        })
    }
}

/// The format of a suffix, and its exponent of ten or of two.
fn interpret(suffix: &str) -> Option<(Format, i64)> {
    let exponent = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        "Ki" => return Some((Format::Binary, 10)),
        "Mi" => return Some((Format::Binary, 20)),
        "Gi" => return Some((Format::Binary, 30)),
        "Ti" => return Some((Format::Binary, 40)),
        "Pi" => return Some((Format::Binary, 50)),
        "Ei" => return Some((Format::Binary, 60)),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            return exponent
                .parse::<i32>()
                .ok()
                .map(|exponent| (Format::Exponent, i64::from(exponent)));
        }
    };
    Some((Format::Decimal, exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let written = Quantity::parse(text).map(|quantity| quantity.to_string());
        assert_eq!(written.as_deref(), Ok(expected), "{text}");
        let again = Quantity::parse(expected).unwrap();
        assert_eq!(again, Quantity::parse(text).unwrap());
        assert_eq!(again.to_string(), expected, "written twice");
    }

    /// The expected texts are those of the Go library.
    #[test]
    fn texts_are_canonical() {
        for (text, expected) in [
            ("0", "0"),
            ("0m", "0"),
            ("0.0Gi", "0"),
            ("-0", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("1.500", "1.500"),
            ("100", "100"),
            ("1000", "1k"),
            ("2000000", "2M"),
            ("12345", "12345"),
            ("1024Mi", "1Gi"),
            ("1025Mi", "1025Mi"),
            ("8Gi", "8Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("0.0001Ki", "102400u"),
            ("512Ki", "512Ki"),
            ("1e3", "1e3"),
            ("10e3", "10e3"),
            ("1E3", "1E3"),
            ("1E", "1E"),
            ("0.1n", "1n"),
            ("-0.1n", "-1n"),
            ("1.0000000001", "1000000001n"),
            ("-1.5", "-1500m"),
            ("+5", "+5"),
            ("05", "05"),
            ("16Ei", "9223372036854775807"),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567890",
            ),
            (".5", "500m"),
            ("5.", "5."),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn other_texts_are_errors() {
        for text in ["", "abc", "1 Gi", "1Gi ", "1.2.3", "1e3x", "0x10", "é"] {
            assert_eq!(
                Quantity::parse(text).unwrap_err(),
                QuantityError::Format,
                "{text}"
            );
        }
        for text in ["1GI", "1K", "1KiB", "1mm", "1e", "1e99999999999", "1i"] {
            let error = Quantity::parse(text).unwrap_err();
            assert!(
                matches!(error, QuantityError::Suffix | QuantityError::Format),
                "{text}"
            );
        }
        assert_eq!(
            Quantity::parse(&"9".repeat(Quantity::LEN_MAX + 1)).unwrap_err(),
            QuantityError::TooLong
        );
    }

    #[test]
    fn quantities_are_ordered_by_their_numbers() {
        let texts = [
            "-1Gi", "-1", "-1m", "0", "1n", "1m", "999m", "1", "1000", "1Ki", "1G", "1Gi", "1e400",
        ];
        for (index, smaller) in texts.iter().enumerate() {
            for larger in &texts[index + 1..] {
                assert!(
                    Quantity::parse(smaller).unwrap() < Quantity::parse(larger).unwrap(),
                    "{smaller} {larger}"
                );
            }
        }
        assert_eq!(
            Quantity::parse("1").unwrap(),
            Quantity::parse("1000m").unwrap()
        );
        assert_eq!(
            Quantity::parse("-0").unwrap(),
            Quantity::parse("0").unwrap()
        );
        assert_eq!(Quantity::parse("1500m").unwrap().to_i64(), Some(2));
        assert_eq!(Quantity::parse("-1500m").unwrap().to_millis(), Some(-1500));
        assert_eq!(Quantity::parse("1e30").unwrap().to_i64(), None);
        assert_eq!(Quantity::parse("1e2147483647").unwrap().to_i64(), None);
    }
}
