//! The parts of the path of a field.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt::{self, Display, Formatter, Write};
use std::sync::Arc;

use serde_json::{Map, Number, Value};

/// A part of the path of a field. A clone shares its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// A member of an object: `f:name`.
    Field(Arc<str>),
    /// An item of a list, by the fields that identify it, sorted by their names: `k:{"name":"c"}`.
    Key(Arc<[(Arc<str>, KeyValue)]>),
    /// An item of a set: `v:"a"`.
    Value(Arc<KeyValue>),
    /// An item of a list, by its position: `i:0`.
    Index(i64),
}

impl PathElement {
    /// Returns the item with these values of its keys.
    pub fn key(keys: &Map<String, Value>) -> Self {
        Self::of_keys(
            keys.iter()
                .map(|(name, value)| (name.as_str().into(), value)),
        )
    }

    /// Returns the item with these values of its keys, in any order.
    pub(crate) fn of_keys<'a>(keys: impl Iterator<Item = (Arc<str>, &'a Value)>) -> Self {
        let mut keys: Vec<_> = keys
            .map(|(name, value)| (name, KeyValue(value.clone())))
            .collect();
        keys.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Self::Key(keys.into())
    }

    /// Returns the item of a set with this value.
    pub fn value(value: &Value) -> Self {
        Self::Value(Arc::new(KeyValue(value.clone())))
    }

    /// Reads a key of `FieldsV1`.
    ///
    /// ```
    /// use revstore_structured_merge::{ElementError, PathElement};
    /// let field = PathElement::from_fields_v1("f:spec");
    /// assert_eq!(field, Ok(PathElement::Field("spec".into())));
    /// assert_eq!(PathElement::from_fields_v1("k:{"), Err(ElementError::Malformed));
    /// assert_eq!(PathElement::from_fields_v1("x:later"), Err(ElementError::UnknownKind));
    /// ```
    ///
    /// # Errors
    /// [`ElementError`]. A reader leaves out elements of an unknown kind, which a later version may have.
    pub fn from_fields_v1(text: &str) -> Result<Self, ElementError> {
        Self::read(text, &mut Names::default())
    }

    /// Reads a key of `FieldsV1` with names that others share.
    pub(crate) fn read(text: &str, names: &mut Names) -> Result<Self, ElementError> {
        let malformed = |_| ElementError::Malformed;
        let (kind, content) = text
            .split_at_checked(2)
            .filter(|(kind, _)| kind.ends_with(':'))
            .ok_or(ElementError::Malformed)?;
        match kind {
            "f:" => Ok(Self::Field(names.get(content))),
            "k:" => match serde_json::from_str(content).map_err(malformed)? {
                Value::Object(keys) => {
                    let keys = keys.iter();
                    Ok(Self::of_keys(
                        keys.map(|(name, value)| (names.get(name), value)),
                    ))
                }
                _ => Err(ElementError::Malformed),
            },
            "v:" => {
                let value = serde_json::from_str(content).map_err(malformed)?;
                Ok(Self::Value(Arc::new(KeyValue(value))))
            }
            "i:" => content
                .parse()
                .map(Self::Index)
                .map_err(|_| ElementError::Malformed),
            _ => Err(ElementError::UnknownKind),
        }
    }

    /// Returns the key of `FieldsV1`.
    pub fn to_fields_v1(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let mut text = "k:{".to_owned();
                for (number, (name, value)) in keys.iter().enumerate() {
                    text.push_str(if number > 0 { "," } else { "" });
                    text.push_str(&go_text(name));
                    text.push(':');
                    text.push_str(&go_json(&value.0));
                }
                text.push('}');
                text
            }
            Self::Value(value) => format!("v:{}", go_json(&value.0)),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

/// Names of fields that paths share: the items of a list mostly have the same ones.
#[derive(Debug, Default)]
pub(crate) struct Names(HashSet<Arc<str>>);

/// The largest number of names that are shared.
const NAMES_MAX: usize = 1_000;

impl Names {
    pub(crate) fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        if self.0.len() < NAMES_MAX {
            self.0.insert(name.clone());
        }
        name
    }
}

/// As texts for users have it: `.spec`, `[name="http"]`, `[="a"]`, `[0]`.
impl Display for PathElement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                f.write_char('[')?;
                for (number, (name, value)) in keys.iter().enumerate() {
                    let comma = if number > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", value.0)?;
                }
                f.write_char(']')
            }
            Self::Value(value) => write!(f, "[={}]", value.0),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Returns a path as texts for users have it: `.spec.ports[name="http"]`.
pub fn path_text(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

/// The error of a key of `FieldsV1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElementError {
    /// It is malformed.
    #[error("malformed path element")]
    Malformed,
    /// Its kind is not known to this version.
    #[error("unknown path element type")]
    UnknownKind,
}

/// A value that identifies an item of a list. Numbers are ordered by their value, so that `1` and `1.0` are the same;
/// then come texts, booleans, lists, objects and `null`.
#[derive(Clone, Debug)]
pub struct KeyValue(pub Value);

impl PartialEq for KeyValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for KeyValue {}

impl PartialOrd for KeyValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyValue {
    fn cmp(&self, other: &Self) -> Ordering {
        order(&self.0, &other.0)
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn order(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => order_numbers(one, other),
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other);
            let different =
                pairs.find_map(|(one, other)| Some(order(one, other)).filter(|it| it.is_ne()));
            different.unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let sorted = |map: &Map<String, Value>| -> Vec<(String, KeyValue)> {
                let mut members: Vec<_> = map
                    .iter()
                    .map(|(name, value)| (name.clone(), KeyValue(value.clone())))
                    .collect();
                members.sort_unstable();
                members
            };
            sorted(one).cmp(&sorted(other))
        }
        (one, other) => rank(one).cmp(&rank(other)),
    }
}

/// Compares two numbers by their exact values. Rounding an integer to a float would leave sets without an order: two
/// integers that differ could both equal one float.
fn order_numbers(one: &Number, other: &Number) -> Ordering {
    let integer = |number: &Number| {
        let small = number.as_i64().map(i128::from);
        small.or_else(|| number.as_u64().map(i128::from))
    };
    let float = |number: &Number| number.as_f64().unwrap_or_default();
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(one), None) => order_integer(one, float(other)),
        (None, Some(other)) => order_integer(other, float(one)).reverse(),
        (None, None) => {
            let order = float(one).partial_cmp(&float(other));
            order.unwrap_or(Ordering::Equal)
        }
    }
}

/// Compares an integer of at most 65 bits with a float, which is finite.
fn order_integer(integer: i128, float: f64) -> Ordering {
    let whole = float.trunc();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "floats that do not fit become the largest or smallest value, beyond all integers of JSON"
    )]
    let order = integer.cmp(&(whole as i128));
    order.then_with(|| whole.partial_cmp(&float).unwrap_or(Ordering::Equal))
}

/// Returns a value as Go writes it: with sorted keys, and some letters of HTML as escape sequences.
fn go_json(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let mut members: Vec<_> = object.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            let members: Vec<_> = members
                .into_iter()
                .map(|(key, value)| format!("{}:{}", go_text(key), go_json(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(go_json).collect();
            format!("[{}]", items.join(","))
        }
        Value::String(text) => go_text(text),
        Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
        }
        other => other.to_string(),
    }
}

fn go_text(text: &str) -> String {
    escape_html(Value::from(text).to_string())
}

/// Returns JSON with the escape sequences that Go writes for letters of HTML and for the two line separators of Unicode.
///
/// Costs one look at the text if it has none of them.
///
/// ```
/// use revstore_structured_merge::escape_html;
///
/// let text = escape_html(r#"{"a":"<&"}"#.to_owned());
/// assert_eq!(text, r#"{"a":"\u003c\u0026"}"#);
/// ```
pub fn escape_html(json: String) -> String {
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return json;
    }
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ElementError, PathElement};

    #[test]
    fn keys_of_fields_v1_are_read_and_written() {
        for text in [
            "f:spec",
            "f:",
            "f:a:b",
            "k:{\"containerPort\":80,\"protocol\":\"TCP\"}",
            "v:\"a\\u003cb\"",
            "v:1",
            "i:-3",
        ] {
            let element = PathElement::from_fields_v1(text).unwrap();
            assert_eq!(element.to_fields_v1(), text);
        }
        let sorted = PathElement::from_fields_v1("k:{\"b\": 1, \"a\": 2}").unwrap();
        assert_eq!(sorted.to_fields_v1(), "k:{\"a\":2,\"b\":1}");
        for text in ["", "f", "fx", "k:[]", "k:{", "v:", "i:x", "\u{e4}:a"] {
            assert_eq!(
                PathElement::from_fields_v1(text),
                Err(ElementError::Malformed),
                "{text}"
            );
        }
    }

    #[test]
    fn values_are_ordered() {
        let values = [
            json!(-1e300),
            json!(i64::MIN),
            json!(i64::MIN + 1),
            json!(-1.5),
            json!(-1),
            json!(1.5),
            json!(9),
            json!(80),
            json!(9_007_199_254_740_991_i64),
            json!(9_007_199_254_740_992_f64),
            json!(9_007_199_254_740_993_i64),
            json!(i64::MAX),
            json!(9_223_372_036_854_775_808_f64),
            json!(9_223_372_036_854_775_809_u64),
            json!(u64::MAX),
            json!(18_446_744_073_709_551_616_f64),
            json!(1e300),
            json!("a"),
            json!("b"),
            json!(false),
            json!([1]),
            json!([1, 2]),
            json!({"a": 1}),
            json!(null),
        ];
        for (number, one) in values.iter().enumerate() {
            for (place, other) in values.iter().enumerate() {
                let order = PathElement::value(one).cmp(&PathElement::value(other));
                assert_eq!(order, number.cmp(&place), "{one} {other}");
            }
        }
        for (integer, float) in [
            (json!(1), json!(1.0)),
            (json!(0), json!(-0.0)),
            (json!(i64::MIN), json!(-9_223_372_036_854_775_808_f64)),
            (
                json!(9_223_372_036_854_775_808_u64),
                json!(9_223_372_036_854_775_808_f64),
            ),
        ] {
            assert_eq!(PathElement::value(&integer), PathElement::value(&float));
        }
        assert_eq!(PathElement::value(&json!(2.0)).to_fields_v1(), "v:2");
    }

    #[test]
    fn the_order_of_large_numbers_is_total() {
        let mut values = vec![
            json!(1e300),
            json!(-1e300),
            json!(u64::MAX),
            json!(i64::MIN),
        ];
        for power in [53, 63] {
            for distance in -3..=3_i64 {
                let number = (1_u64 << power).saturating_add_signed(distance);
                #[expect(clippy::cast_precision_loss, reason = "it is what is tested")]
                let float = number as f64;
                values.extend([json!(number), json!(float), json!(-float)]);
                values.extend(i64::try_from(number).map(|number| json!(-number)));
            }
        }
        let values: Vec<_> = values.iter().map(PathElement::value).collect();
        for one in &values {
            for two in &values {
                let order = one.cmp(two);
                assert_eq!(order, two.cmp(one).reverse(), "{one} {two}");
                for three in values.iter().filter(|three| two.cmp(three) == order) {
                    assert_eq!(one.cmp(three), order, "{one} {two} {three}");
                }
            }
        }
    }
}
