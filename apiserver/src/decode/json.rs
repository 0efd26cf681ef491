//! JSON as `sigs.k8s.io/json` reads it: integers are kept exactly, and duplicate fields are reported.

use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::error::json_type;
use super::{Decoded, MAX_DEPTH, MAX_STRICT_ERRORS, go_json, syntax};
use crate::decode::DecodeError;

/// Decodes JSON.
///
/// Numbers without a fraction and an exponent are integers if they fit into `i64`. All others are floats.
/// Bytes that are not UTF-8 and halves of characters become U+FFFD.
///
/// # Errors
/// [`DecodeError`] if the text is not one JSON value, or is nested more deeply than [`MAX_DEPTH`].
///
/// ```
/// use revstore_apiserver::decode::from_json;
/// let decoded = from_json(br#"{"spec":{"a":1,"a":2}}"#)?;
/// assert_eq!(decoded.value["spec"]["a"], 2);
/// assert_eq!(decoded.strict, ["duplicate field \"spec.a\""]);
/// # Ok::<(), revstore_apiserver::decode::DecodeError>(())
/// ```
pub fn from_json(body: &[u8]) -> Result<Decoded, DecodeError> {
    let text = String::from_utf8_lossy(body);
    let text = go_json::whole_characters(&text);
    let mut state = State {
        negative_zeros: go_json::negative_zeros(&text).into_iter(),
        ..State::default()
    };
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    // The depth is checked by `Node`.
    deserializer.disable_recursion_limit();
    let root = Node {
        state: &mut state,
        path: &Path::Root,
        depth: 0,
    };
    match root
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
    {
        Ok(value) => Ok(Decoded {
            value,
            strict: state.strict,
        }),
        Err(_) if state.too_deep => Err(DecodeError::TooDeep { max: MAX_DEPTH }),
        Err(error) => Err(DecodeError::Json(
            syntax::error(text.as_bytes()).unwrap_or_else(|| error.to_string()),
        )),
    }
}

/// Decodes a JSON object; `null` is an empty one, as in Go.
pub(crate) fn object_from_json(
    body: &[u8],
) -> Result<(Map<String, Value>, Vec<String>), DecodeError> {
    let decoded = from_json(body)?;
    match decoded.value {
        Value::Object(object) => Ok((object, decoded.strict)),
        Value::Null => Ok((Map::new(), decoded.strict)),
        other => Err(DecodeError::NotAnObject(json_type(&other))),
    }
}

/// What was noticed while a text is decoded.
#[derive(Default)]
struct State {
    strict: Vec<String>,
    too_deep: bool,
    /// Whether the next negative zeros in the text are integers.
    negative_zeros: std::vec::IntoIter<bool>,
}

/// The path of a value in the text. It is built only if there is an error.
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Decodes the value at a path.
struct Node<'a> {
    state: &'a mut State,
    path: &'a Path<'a>,
    depth: usize,
}

impl Node<'_> {
    fn enter<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.state.too_deep = true;
            return Err(E::custom("too deep"));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(int_or_float(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // serde_json parses `-0` as a float.
        let is_negative_zero = value == 0.0 && value.is_sign_negative();
        if is_negative_zero && self.state.negative_zeros.next().unwrap_or_default() {
            return Ok(0.into());
        }
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Node {
            state: &mut *self.state,
            path: &Path::Index(self.path, items.len()),
            depth: self.depth,
        })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = Path::Key(self.path, &key);
            if object.contains_key(&key) && self.state.strict.len() < MAX_STRICT_ERRORS {
                let error = format!("duplicate field {:?}", path.to_string());
                if !self.state.strict.contains(&error) {
                    self.state.strict.push(error);
                }
            }
            let value = map.next_value_seed(Node {
                state: &mut *self.state,
                path: &path,
                depth: self.depth,
            })?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// Returns an integer, or the nearest float if it does not fit into `i64`.
pub(crate) fn int_or_float(value: u64) -> Value {
    match i64::try_from(value) {
        Ok(value) => value.into(),
        #[expect(clippy::cast_precision_loss, reason = "as Go's float64")]
        Err(_) => (value as f64).into(),
    }
}

/// Returns the number of nested lists and objects of a value: 0 for a scalar.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(object) => 1 + object.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Replaces floats without a fraction by integers, as a custom resource contains them once it was
/// stored: `1.0` is written as `1`.
pub fn integral_floats_to_integers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(integral_floats_to_integers),
        Value::Object(object) => object.values_mut().for_each(integral_floats_to_integers),
        Value::Number(number) => {
            if let Some(integer) = integral(number) {
                *number = integer.into();
            }
        }
        _ => {}
    }
}

/// Returns the integer that a float is, if it is one and fits into `i64`.
fn integral(number: &Number) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let float = number.as_f64().filter(|_| number.is_f64())?;
    #[expect(clippy::cast_possible_truncation, reason = "the value is in range")]
    let integer =
        (float.fract() == 0.0 && (-LIMIT..LIMIT).contains(&float)).then_some(float as i64);
    integer
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{from_json, integral_floats_to_integers};
    use crate::decode::{DecodeError, MAX_DEPTH, MAX_STRICT_ERRORS};

    fn value(text: &str) -> Value {
        from_json(text.as_bytes()).unwrap().value
    }

    #[test]
    fn integers_are_kept_and_other_numbers_are_floats() {
        for (text, expected) in [
            ("9223372036854775807", json!(i64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("9223372036854775808", json!(9_223_372_036_854_775_808.0)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615.0)),
            (
                "123456789012345678901234",
                json!(1.234_567_890_123_456_8e23),
            ),
            ("1.0", json!(1.0)),
            ("1e3", json!(1000.0)),
            ("-0", json!(0)),
            ("-0.0", json!(-0.0)),
            (
                r#"{"a":[-0,-0.0,"-0",-0]}"#,
                json!({"a": [0, -0.0, "-0", 0]}),
            ),
            (r#""\ud800x""#, json!("\u{fffd}x")),
            // Parsed exactly only with the feature `float_roundtrip` of serde_json.
            ("122.416294033786585", json!(122.416_294_033_786_59)),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
        assert!(from_json(b"1e400").is_err());
        let mut list = value("[1.0, 1.5, 1e3, 1e30, -9223372036854775808.0, {\"a\": 2.0}]");
        integral_floats_to_integers(&mut list);
        assert_eq!(list, json!([1, 1.5, 1000, 1e30, i64::MIN, {"a": 2}]));
    }

    #[test]
    fn duplicate_fields_are_reported_with_their_path() {
        let check = |text: &str, errors: &[&str]| {
            assert_eq!(from_json(text.as_bytes()).unwrap().strict, errors, "{text}");
        };
        check(r#"{"a":{"b":1},"c":{"b":1}}"#, &[]);
        check(r#"{"a":1,"a":2,"a":3}"#, &["duplicate field \"a\""]);
        check(
            r#"{"l":[{"x":1},{"x":1,"y":{"z":1,"z":2},"x":2}],"l":1}"#,
            &[
                "duplicate field \"l[1].y.z\"",
                "duplicate field \"l[1].x\"",
                "duplicate field \"l\"",
            ],
        );
        check(r#"[{"a":1,"a":2}]"#, &["duplicate field \"[0].a\""]);
        assert_eq!(
            value(r#"{"a":{"x":1},"a":{"y":2}}"#),
            json!({"a": {"y": 2}})
        );
        let many: Vec<_> = (0..500).map(|i| format!("\"{i}\":1,\"{i}\":2")).collect();
        let decoded = from_json(format!("{{{}}}", many.join(",")).as_bytes()).unwrap();
        assert_eq!(decoded.strict.len(), MAX_STRICT_ERRORS);
    }

    #[test]
    fn the_depth_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(from_json(nested(MAX_DEPTH).as_bytes()).is_ok());
        for levels in [MAX_DEPTH + 1, 1_000_000] {
            assert_eq!(
                from_json(nested(levels).as_bytes()),
                Err(DecodeError::TooDeep { max: MAX_DEPTH })
            );
        }
        let objects = "{\"a\":".repeat(1_000_000);
        assert_eq!(
            from_json(objects.as_bytes()),
            Err(DecodeError::TooDeep { max: MAX_DEPTH })
        );
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        let decoded = from_json(b"{\"a\":\"x\xffy\"}").unwrap();
        assert_eq!(decoded.value, json!({"a": "x\u{fffd}y"}));
    }
}
