//! The columns of tables of custom resources.

use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use super::json_path::JsonPath;
use crate::custom::schema::exact_integer;
use crate::custom::text;
use crate::table;

/// A column of a table, as `additionalPrinterColumns` defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The name, which is its heading.
    pub name: String,
    /// The type: `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// The format, or an empty text.
    pub format: String,
    /// The description; empty for the default one.
    pub description: String,
    /// The priority: columns above 0 are only shown on request.
    pub priority: i64,
    /// The path as text.
    pub json_path: String,
    /// The parsed path, unless it is invalid.
    path: Option<JsonPath>,
}

impl Column {
    /// Reads a column of a definition.
    pub(crate) fn parse(column: &Value) -> Self {
        let text = |name: &str| {
            column
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let json_path = text("jsonPath");
        Self {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description: text("description"),
            priority: column
                .get("priority")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            path: JsonPath::parse(&json_path).ok(),
            json_path,
        }
    }

    /// Returns the column of resources that define none.
    pub(crate) fn age() -> Self {
        let mut column = Self::parse(&json!({
            "name": "Age",
            "type": "date",
            "jsonPath": ".metadata.creationTimestamp",
        }));
        "The time at which the object was created, of which its age is shown."
            .clone_into(&mut column.description);
        column
    }

    /// Returns the definition of the column in a `Table`.
    pub fn definition(&self) -> Value {
        let description = if self.description.is_empty() {
            format!(
                "Custom resource definition column (in JSONPath format): {}",
                self.json_path
            )
        } else {
            self.description.clone()
        };
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": description,
            "priority": self.priority,
        })
    }

    /// Returns the cell of an object. `now` is the time of day in seconds since 1970, for ages.
    pub fn cell(&self, object: &JsonObject, now: i64) -> Value {
        let Some(value) = self.path.as_ref().and_then(|path| path.first_of(object)) else {
            return Value::Null;
        };
        match (self.kind.as_str(), &*value) {
            ("string", value) => shown(value).into(),
            ("integer", Value::Number(number)) => match number.as_i64() {
                Some(integer) => integer.into(),
                None => number
                    .as_f64()
                    .map(f64::trunc)
                    .and_then(exact_integer)
                    .into(),
            },
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.into_owned(),
            ("date", Value::String(time)) => match (time.as_str(), seconds(time)) {
                ("" | "null", _) => "<unknown>".into(),
                (_, Some(then)) => age(now - then).into(),
                (_, None) => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

/// Returns a value as the text of a cell.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<no value>".to_owned(),
        Value::Number(number) if number.is_f64() => {
            text::float(number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

/// Returns the seconds from 1970 to a time in RFC 3339.
fn seconds(time: &str) -> Option<i64> {
    let bytes = time.as_bytes();
    let number = |range: std::ops::Range<usize>| {
        let digits = time.get(range)?;
        digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then_some(())?;
        digits.parse::<i64>().ok()
    };
    let has = |at: usize, separator: u8| bytes.get(at) == Some(&separator);
    if !(has(4, b'-') && has(7, b'-') && has(10, b'T') && has(13, b':') && has(16, b':')) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    let rest = time.get(19..)?;
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|digit: char| digit.is_ascii_digit()),
        None => rest,
    };
    let offset = match zone.as_bytes() {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (
                zone.get(1..3)?.parse::<i64>().ok()?,
                zone.get(4..6)?.parse::<i64>().ok()?,
            );
            let offset = hours * 3600 + minutes * 60;
            if *sign == b'+' { offset } else { -offset }
        }
        _ => return None,
    };
    // The days since 1970 of a date, by years that begin in March.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (month * 153 + 2) / 5
        + day
        - 719_469;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

/// Returns an age as kubectl shows it: with about two digits.
pub fn age(seconds: i64) -> String {
    table::human(seconds)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Column, age, seconds};

    #[test]
    fn cells_have_the_types_of_their_columns() {
        let object = json!({"spec": {"s": "x", "i": 5, "n": 1.5, "b": true, "arr": ["p", "q"],
            "d": "2001-01-01T00:00:00Z", "null": null}});
        for (kind, path, expected) in [
            ("string", ".spec.s", json!("x")),
            ("integer", ".spec.i", json!(5)),
            ("integer", ".spec.n", json!(1)),
            ("number", ".spec.n", json!(1.5)),
            ("boolean", ".spec.b", json!(true)),
            ("string", ".spec.arr", json!("[\"p\",\"q\"]")),
            ("string", ".spec.arr[0]", json!("p")),
            ("string", ".spec.i", json!("5")),
            ("integer", ".spec.s", Value::Null),
            ("string", ".spec.missing", Value::Null),
            ("date", ".spec.d", json!("10s")),
            ("date", ".spec.s", json!("<invalid>")),
        ] {
            let column = Column::parse(&json!({"name": "C", "type": kind, "jsonPath": path}));
            let object = object.as_object().unwrap();
            assert_eq!(column.cell(object, 978_307_210), expected, "{kind} {path}");
        }
        let definition =
            Column::parse(&json!({"name": "C", "type": "string", "jsonPath": ".a"})).definition();
        assert_eq!(
            definition,
            json!({"name": "C", "type": "string", "format": "", "priority": 0,
            "description": "Custom resource definition column (in JSONPath format): .a"})
        );
    }

    #[test]
    fn ages_are_those_of_kubectl() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2024-02-29T12:00:00.5+02:00"), Some(1_709_200_800));
        assert_eq!(seconds("2024-02-29"), None);
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (3600, "60m"),
            (10_860, "3h1m"),
            (90_000, "25h"),
            (176_400, "2d1h"),
            (864_000, "10d"),
            (63_158_400, "2y1d"),
            (315_360_000, "10y"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }
}
