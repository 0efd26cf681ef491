//! YAML as `sigs.k8s.io/yaml` reads it: YAML 1.1 as far as go-yaml supports it, converted to JSON.

use std::collections::HashMap;
use std::fmt::Write as _;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::{Map, Value};

use super::error::YAML_ERRORS;
use super::yaml_scalar::{self, key_text, plain_key};
use super::{DecodeError, Decoded, MAX_DEPTH, MAX_STRICT_ERRORS};

/// The largest size of all values that are copied, because they have an anchor or an alias stands for
/// them: the bytes of their texts, and [`NODE_BYTES`] for each value.
const MAX_COPIED_BYTES: usize = 16 * 1024 * 1024;

/// The size of a value besides its text, as it counts for [`MAX_COPIED_BYTES`].
const NODE_BYTES: usize = 32;

/// Decodes the first document of a YAML stream; what comes after it is ignored, even if it is malformed.
/// An empty stream is `null`.
///
/// Scalars without quotes are resolved as in go-yaml: `yes`, `on` and `010` are `true`, `true` and 8, `1:30` and
/// dates are texts. Numbers are as in JSON, and floats without a fraction are integers. Keys are texts:
/// `yes: 1` has the key `true`. Anchors, aliases and merge keys (`<<`) are supported, tags of the core
/// schema as well; other tags are ignored.
///
/// # Errors
/// [`DecodeError`] if the text is malformed, is nested more deeply than [`MAX_DEPTH`], or has aliases that
/// stand for too much text.
pub fn from_yaml(body: &[u8]) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(body)
        .map_err(|_| DecodeError::Yaml("control characters are not allowed".to_owned()))?;
    let mut document = Document {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        duplicates: Vec::new(),
        copied_bytes: 0,
    };
    let value = document.read()?;
    let strict = document.strict();
    Ok(Decoded { value, strict })
}

/// The document that is read.
struct Document<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// The values with anchors. A value that is not yet complete is `None`.
    anchors: HashMap<usize, Option<Value>>,
    /// The lines of duplicate keys, from 1, with the keys.
    duplicates: Vec<(usize, String)>,
    /// The size of all copied values.
    copied_bytes: usize,
}

impl<'a> Document<'a> {
    fn read(&mut self) -> Result<Value, DecodeError> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
                Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Null),
                content => return self.value(content, span, 0),
            }
        }
    }

    /// Returns the strict errors.
    fn strict(self) -> Vec<String> {
        let mut errors = String::new();
        for (line, key) in self.duplicates {
            let separator = if errors.is_empty() { YAML_ERRORS } else { "\n" };
            // Writing to a string does not fail.
            let _ = write!(
                errors,
                "{separator}  line {line}: key {key:?} already set in map"
            );
        }
        if errors.is_empty() {
            Vec::new()
        } else {
            vec![errors]
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), DecodeError> {
        match self.parser.next_event() {
            Some(event) => event.map_err(|error| malformed(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// Reads the value that begins with an event.
    fn value(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Value, DecodeError> {
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (scalar(&text, style, tag.as_deref())?, anchor)
            }
            Event::SequenceStart(anchor, _) => {
                self.begin(anchor);
                (self.sequence(enter(depth)?)?, anchor)
            }
            Event::MappingStart(anchor, _) => {
                self.begin(anchor);
                (self.mapping(enter(depth)?)?, anchor)
            }
            Event::Alias(anchor) => return self.alias(anchor, depth),
            _ => {
                let line = span.start.line();
                let text = format!("line {line}: did not find expected node content");
                return Err(DecodeError::Yaml(text));
            }
        };
        if anchor != 0 {
            self.count(size(&value))?;
            self.anchors.insert(anchor, Some(value.clone()));
        }
        Ok(value)
    }

    /// Marks the value of an anchor as not yet complete.
    fn begin(&mut self, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, DecodeError> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd | Event::StreamEnd) {
                return Ok(Value::Array(items));
            }
            items.push(self.value(event, span, depth)?);
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, DecodeError> {
        let mut object = Map::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd | Event::StreamEnd) {
                return Ok(Value::Object(object));
            }
            let merges = is_merge(&event);
            let line = span.start.line();
            let key = match event {
                Event::Scalar(text, ScalarStyle::Plain, 0, None) => plain_key(&text)?,
                event => key_text(&self.value(event, span, depth)?)?,
            };
            let (event, span) = self.next()?;
            let value = self.value(event, span, depth)?;
            if merges {
                self.merge(&mut object, value, line)?;
            } else {
                self.insert(&mut object, key, value, line);
            }
        }
    }

    fn insert(&mut self, object: &mut Map<String, Value>, key: String, value: Value, line: usize) {
        if object.contains_key(&key) && self.duplicates.len() < MAX_STRICT_ERRORS {
            self.duplicates.push((line, key.clone()));
        }
        object.insert(key, value);
    }

    /// Adds the members of the value of a merge key, which replace those before it as in go-yaml. In a
    /// list the first objects have precedence.
    fn merge(
        &mut self,
        object: &mut Map<String, Value>,
        value: Value,
        line: usize,
    ) -> Result<(), DecodeError> {
        let sources = match value {
            Value::Object(_) => vec![value],
            Value::Array(items) => items,
            _ => return Err(bad_merge()),
        };
        for source in sources.into_iter().rev() {
            let Value::Object(source) = source else {
                return Err(bad_merge());
            };
            for (key, value) in source {
                self.insert(object, key, value, line);
            }
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, depth: usize) -> Result<Value, DecodeError> {
        let value = match self.anchors.get(&anchor) {
            Some(Some(value)) => value,
            Some(None) => {
                return Err(DecodeError::Yaml("anchor value contains itself".to_owned()));
            }
            None => return Err(DecodeError::Yaml("unknown anchor referenced".to_owned())),
        };
        let size = size(value);
        if depth + super::depth(value) > MAX_DEPTH {
            return Err(DecodeError::TooDeep { max: MAX_DEPTH });
        }
        let value = value.clone();
        self.count(size)?;
        Ok(value)
    }

    /// Counts the size of a copied value.
    fn count(&mut self, size: usize) -> Result<(), DecodeError> {
        self.copied_bytes = self.copied_bytes.saturating_add(size);
        if self.copied_bytes > MAX_COPIED_BYTES {
            return Err(DecodeError::TooManyAliases);
        }
        Ok(())
    }
}

fn enter(depth: usize) -> Result<usize, DecodeError> {
    if depth == MAX_DEPTH {
        return Err(DecodeError::TooDeep { max: MAX_DEPTH });
    }
    Ok(depth + 1)
}

fn malformed(error: &ScanError) -> DecodeError {
    // The parser has a limit as well, for brackets in one line.
    if error.info().contains("recursion limit") {
        return DecodeError::TooDeep { max: MAX_DEPTH };
    }
    DecodeError::Yaml(format!("line {}: {}", error.marker().line(), error.info()))
}

fn bad_merge() -> DecodeError {
    DecodeError::Yaml("map merge requires map or sequence of maps as the value".to_owned())
}

/// Returns whether a key is a merge key.
fn is_merge(event: &Event<'_>) -> bool {
    match event {
        Event::Scalar(text, style, _, None) => text == "<<" && *style == ScalarStyle::Plain,
        Event::Scalar(text, _, _, Some(tag)) => {
            text == "<<" && tag.is_yaml_core_schema() && tag.suffix == "merge"
        }
        _ => false,
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, DecodeError> {
    let name = match tag {
        None if style == ScalarStyle::Plain => None,
        Some(tag) if tag.is_yaml_core_schema() => Some(tag.suffix.as_str()),
        // Quotes, the tags of an application, and `!`.
        None | Some(_) => return Ok(Value::String(text.to_owned())),
    };
    yaml_scalar::resolve(text, name)
}

/// Returns the size of a value as it counts for [`MAX_COPIED_BYTES`].
fn size(value: &Value) -> usize {
    NODE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(size).sum(),
            Value::Object(object) => object
                .iter()
                .map(|(key, value)| key.len() + size(value))
                .sum(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::{Value, json};

    use super::from_yaml;
    use crate::decode::{DecodeError, MAX_DEPTH};

    fn value(text: &str) -> Value {
        from_yaml(text.as_bytes())
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .value
    }

    #[test]
    fn only_the_first_document_is_read() {
        for (text, expected) in [
            ("", json!(null)),
            ("# c\n", json!(null)),
            ("---\n", json!(null)),
            ("a: 1\n---\nb: [", json!({"a": 1})),
            ("%YAML 1.1\n---\na: 1\n...\n", json!({"a": 1})),
            ("{\"a\": [1, \"x\", null]}", json!({"a": [1, "x", null]})),
            ("- 1\n-\n- - 2\n", json!([1, null, [2]])),
            (
                "a: |\n  x\n  y\nb: >\n  x\n  y\n",
                json!({"a": "x\ny\n", "b": "x y\n"}),
            ),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn aliases_and_merge_keys_are_replaced_by_their_values() {
        assert_eq!(
            value(
                "a: &x {k: 1}\nb: *x\nc: {<<: *x, z: 2}\nd: {k: 9, <<: *x}\n\
                 e:\n  <<: [*x, {k: 5, q: 6}]\nf: {\"<<\": 1}\n"
            ),
            json!({
                "a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "z": 2}, "d": {"k": 1},
                "e": {"k": 1, "q": 6}, "f": {"<<": 1},
            })
        );
        for text in ["<<: 3", "a: {<<: 3}", "a: {b: 1, <<: 3}", "<<: [1]"] {
            let error = from_yaml(text.as_bytes()).unwrap_err();
            assert!(
                error.to_string().contains("map merge requires map"),
                "{text}: {error}"
            );
        }
        assert!(from_yaml(b"a: *b").is_err());
        assert!(from_yaml(b"a: &a [*a]").is_err());
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let items = vec![format!("*a{}", level - 1); 9].join(", ");
            writeln!(text, "a{level}: &a{level} [{items}]").unwrap();
        }
        assert_eq!(from_yaml(text.as_bytes()), Err(DecodeError::TooManyAliases));
        let text = format!(
            "a: &a {}\nb: [{}]\n",
            "x".repeat(1 << 20),
            "*a, ".repeat(20)
        );
        assert_eq!(from_yaml(text.as_bytes()), Err(DecodeError::TooManyAliases));
        // Anchors around anchors.
        let (open, close): (String, String) =
            (0..100).map(|level| (format!("&a{level} ["), "]")).unzip();
        let text = format!("{open}{}{close}", "x,".repeat(100_000));
        assert_eq!(from_yaml(text.as_bytes()), Err(DecodeError::TooManyAliases));
        // Small values can be repeated often.
        let text = format!("a: &a x\nb: [{}]\n", "*a, ".repeat(100_000));
        assert_eq!(value(&text)["b"].as_array().unwrap().len(), 100_000);
    }

    #[test]
    fn the_depth_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(from_yaml(nested(MAX_DEPTH).as_bytes()).is_ok());
        let too_deep = Err(DecodeError::TooDeep { max: MAX_DEPTH });
        assert_eq!(from_yaml(nested(MAX_DEPTH + 1).as_bytes()), too_deep);
        assert_eq!(from_yaml("[".repeat(1_000_000).as_bytes()), too_deep);
        assert_eq!(from_yaml("- ".repeat(1_000_000).as_bytes()), too_deep);
        // Each alias adds 40 levels.
        let mut text = format!("a0: &a0 {}\n", nested(40));
        for level in 1..5 {
            let (open, close) = ("[".repeat(40), "]".repeat(40));
            writeln!(text, "a{level}: &a{level} {open}*a{}{close}", level - 1).unwrap();
        }
        assert_eq!(from_yaml(text.as_bytes()), too_deep);
    }

    #[test]
    fn duplicate_keys_are_reported_with_their_lines() {
        let decoded = from_yaml(b"a: 1\na: 2\nb:\n  c: 1\n  c: 2\n").unwrap();
        assert_eq!(decoded.value, json!({"a": 2, "b": {"c": 2}}));
        assert_eq!(
            decoded.strict,
            [
                "yaml: unmarshal errors:\n  line 2: key \"a\" already set in map\n  \
              line 5: key \"c\" already set in map"
            ]
        );
        assert!(from_yaml(b"a: 1\nb: {a: 1}").unwrap().strict.is_empty());
    }

    #[test]
    fn malformed_documents_are_refused() {
        for text in ["a: [", "a: b: c", "a: \"", "? [a]\n: 1", "~: 1", "{"] {
            assert!(from_yaml(text.as_bytes()).is_err(), "{text}");
        }
        assert!(from_yaml(b"a: \xff").is_err());
    }
}
