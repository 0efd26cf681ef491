//! Scalars of YAML: which texts are booleans, numbers and `null`, as go-yaml decides it.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value};

use super::error::json_type;
use super::{DecodeError, int_or_float, integral_floats_to_integers};

/// Returns the value of a scalar without quotes, or with a tag of the core schema.
pub(super) fn resolve(text: &str, tag: Option<&str>) -> Result<Value, DecodeError> {
    let expected = match tag {
        None => return plain(text),
        Some("str" | "timestamp") => return Ok(Value::String(text.to_owned())),
        Some("binary") => return binary(text),
        Some(expected) => expected,
    };
    let value = plain(text)?;
    let found = match &value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) if is_integer_text(text) => "int",
        Value::Number(_) => "float",
        _ => "str",
    };
    match expected {
        "int" | "bool" | "null" | "float" => {
            if found == expected || (found == "int" && expected == "float") {
                Ok(value)
            } else {
                let error = format!("cannot decode !!{found} `{text}` as a !!{expected}");
                Err(DecodeError::Yaml(error))
            }
        }
        // Any other tag leaves the text as it is.
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// Returns the text of a scalar in base64.
fn binary(text: &str) -> Result<Value, DecodeError> {
    let compact: String = text.split_ascii_whitespace().collect();
    let bytes = STANDARD
        .decode(compact)
        .map_err(|_| DecodeError::Yaml("!!binary value contains invalid base64 data".to_owned()))?;
    Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns the value of a scalar without quotes and without a tag.
fn plain(text: &str) -> Result<Value, DecodeError> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Ok(Value::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Ok(Value::Bool(false));
        }
        ".nan" | ".NaN" | ".NAN" => return Err(not_json("NaN")),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Err(not_json("+Inf")),
        "-.inf" | "-.Inf" | "-.INF" => return Err(not_json("-Inf")),
        _ => {}
    }
    let number = match text.as_bytes()[0] {
        b'.' if separates_digits(text) => float(&text.replace('_', "")),
        b'+' | b'-' | b'0'..=b'9' if !is_date(text) => {
            let compact = text.replace('_', "");
            integer(&compact).or_else(|| float(&compact))
        }
        _ => None,
    };
    Ok(number.unwrap_or_else(|| Value::String(text.to_owned())))
}

/// Returns whether each underscore is between two digits.
fn separates_digits(text: &str) -> bool {
    let is_between = |(position, _): (usize, &str)| {
        let digits = (
            text.as_bytes()[..position].last(),
            text.as_bytes().get(position + 1),
        );
        matches!(digits, (Some(b'0'..=b'9'), Some(b'0'..=b'9')))
    };
    text.match_indices('_').all(is_between)
}

/// Returns whether a text may be a date, which stays a text. Other texts of this form are no numbers either.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() > 4 && bytes[..4].iter().all(u8::is_ascii_digit) && bytes[4] == b'-'
}

/// The error about a number that JSON does not have.
fn not_json(number: &str) -> DecodeError {
    DecodeError::Json(format!("json: unsupported value: {number}"))
}

fn is_integer_text(text: &str) -> bool {
    integer(&text.replace('_', "")).is_some()
}

/// Parses an integer: decimal, `0x`, `0o`, `0b`, or octal with a leading 0.
fn integer(text: &str) -> Option<Value> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, radix) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&unsigned[2..], 16),
        [b'0', b'o' | b'O', ..] => (&unsigned[2..], 8),
        [b'0', b'b' | b'B', ..] => (&unsigned[2..], 2),
        [b'0', _, ..] => (&unsigned[1..], 8),
        _ => (unsigned, 10),
    };
    if !digits.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        let value = 0_i64.checked_sub_unsigned(magnitude)?;
        return Some(value.into());
    }
    // Unsigned values have no sign in Go.
    if text.starts_with('+') && i64::try_from(magnitude).is_err() {
        return None;
    }
    Some(int_or_float(magnitude))
}

/// Parses a float; one without a fraction is an integer.
fn float(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let is_digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if !is_digits(whole) || !is_digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    if let Some(exponent) = exponent {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits.is_empty() || !is_digits(digits) {
            return None;
        }
    }
    let number = Number::from_f64(text.parse().ok()?)?;
    let mut value = Value::Number(number);
    integral_floats_to_integers(&mut value);
    Some(value)
}

/// Returns the text of a key without quotes.
pub(super) fn plain_key(text: &str) -> Result<String, DecodeError> {
    let Ok(value) = plain(text) else {
        // An infinite number, or none.
        return Ok(text.trim_start_matches('+').to_ascii_lowercase());
    };
    if value.is_number() && !is_integer_text(text) {
        let float: Result<f64, _> = text.replace('_', "").parse();
        return Ok(float_key(float.unwrap_or_default()));
    }
    key_text(&value)
}

/// Returns the text of a key.
pub(super) fn key_text(key: &Value) -> Result<String, DecodeError> {
    match key {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(match number.as_i64() {
            Some(integer) => integer.to_string(),
            None => float_key(number.as_f64().unwrap_or_default()),
        }),
        other => Err(DecodeError::Yaml(format!(
            "invalid map key: {}",
            json_type(other)
        ))),
    }
}

/// Returns a float as Go's format `g` prints it with the shortest precision for 32 bits.
fn float_key(float: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "as in sigs.k8s.io/yaml")]
    let scientific = format!("{:e}", float as f32);
    // A number that is too large for 32 bits.
    if scientific.ends_with("inf") {
        return scientific.replace("inf", ".inf");
    }
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        #[expect(clippy::cast_possible_truncation, reason = "as above")]
        return (float as f32).to_string();
    }
    let mut text = digits.to_owned();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "e{}{:02}",
        if exponent < 0 { '-' } else { '+' },
        exponent.abs()
    );
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{key_text, plain_key, resolve};

    // Each text and value is from sigs.k8s.io/yaml 1.6.
    #[test]
    fn plain_scalars_are_resolved_as_by_go_yaml() {
        for (text, expected) in [
            ("010", json!(8)),
            ("0o10", json!(8)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("-0b11", json!(-3)),
            ("-0x10", json!(-16)),
            ("1_000", json!(1000)),
            ("1__0", json!(10)),
            ("0_7", json!(7)),
            ("09", json!(9)),
            ("1e3", json!(1000)),
            ("1.0", json!(1)),
            (".5", json!(0.5)),
            ("1.", json!(1)),
            ("-0", json!(0)),
            ("+12", json!(12)),
            ("1.5e-7", json!(1.5e-7)),
            ("9223372036854775807", json!(i64::MAX)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615.0)),
            ("0777777777777777777777777", json!(7.777_777_777_777_778e23)),
            ("190:20:30", json!("190:20:30")),
            ("1e400", json!("1e400")),
            ("2001-01-01", json!("2001-01-01")),
            ("0x", json!("0x")),
            ("0b2", json!("0b2")),
            ("0o8", json!("0o8")),
            ("._5", json!("._5")),
            (".0_8_5", json!(0.085)),
            (".5_", json!(".5_")),
            ("-", json!("-")),
            ("<<", json!("<<")),
            ("=", json!("=")),
            ("yes", json!(true)),
            ("OFF", json!(false)),
            ("yEs", json!("yEs")),
            ("Null", json!(null)),
        ] {
            assert_eq!(resolve(text, None).unwrap(), expected, "{text}");
        }
        for text in [".inf", "-.Inf", ".NaN", "+.INF"] {
            assert!(resolve(text, None).is_err(), "{text}");
        }
    }

    #[test]
    fn tags_of_the_core_schema_are_honoured() {
        for (text, tag, expected) in [
            ("1", "str", json!("1")),
            ("3", "int", json!(3)),
            ("3", "float", json!(3)),
            ("yes", "bool", json!(true)),
            ("aGVs bG8=", "binary", json!("hello")),
            ("2001-01-01", "timestamp", json!("2001-01-01")),
            ("1", "other", json!("1")),
        ] {
            assert_eq!(resolve(text, Some(tag)).unwrap(), expected, "{tag}");
        }
        let error = resolve("x", Some("int")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "yaml: cannot decode !!str `x` as a !!int"
        );
        assert!(resolve("1.5", Some("int")).is_err());
        assert!(resolve("!", Some("binary")).is_err());
    }

    #[test]
    fn keys_are_texts() {
        let key = |text: &str| plain_key(text).unwrap();
        for (text, expected) in [
            ("yes", "true"),
            ("1", "1"),
            ("0x10", "16"),
            ("1.5", "1.5"),
            ("1e25", "1e+25"),
            ("1e6", "1e+06"),
            ("123456.0", "123456"),
            ("1_0.5", "10.5"),
            ("-1e308", "-.inf"),
            ("+.INF", ".inf"),
            ("1.25e-7", "1.25e-07"),
        ] {
            assert_eq!(key(text), expected);
        }
        assert!(key_text(&Value::Null).is_err());
        assert!(key_text(&json!([])).is_err());
    }
}
