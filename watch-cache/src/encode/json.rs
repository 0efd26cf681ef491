//! The kind of JSON objects with Kubernetes metadata.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::encode::form::{Form, JsonForm};
use crate::encode::kind::{Attributes, DecodeError, Kind, ResourceVersionSpan};

/// A kind of JSON objects with Kubernetes metadata, such as pods.
///
/// Stored bytes are kept unchanged; the resource version is inserted when an object is written.
/// Decoding parses an object once, and keeps its uid, its labels and its selectable fields.
///
/// ```
/// use revstore_watch_cache::JsonKind;
/// use revstore_watch_cache::encode::Kind;
///
/// let pods = JsonKind::new("v1", "Pod").with_fields(["spec.nodeName", "status.phase"]);
/// let found = pods.extract(br#"{"metadata":{"labels":{"a":"b"}},"spec":{"nodeName":"n1"}}"#)?;
/// assert_eq!(found.fields[0].as_deref(), Some("n1"));
/// assert!(pods.extract(b"not JSON").is_err());
/// # Ok::<(), revstore_watch_cache::encode::DecodeError>(())
/// ```
// WC-141, WC-202.
#[derive(Clone, Debug)]
pub struct JsonKind {
    api_version: String,
    kind: String,
    fields: Vec<String>,
    /// Where the value of each field is.
    sources: Vec<Source>,
}

/// Where the value of a selectable field is in an object.
#[derive(Clone, Debug)]
struct Source {
    /// The first one with a value that is not empty counts.
    paths: Vec<String>,
    /// The value without one.
    absent: Option<Box<str>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
    #[serde(
        default,
        borrow,
        rename = "resourceVersion",
        deserialize_with = "raw_value"
    )]
    resource_version: Option<&'a RawValue>,
}

/// Deserializes the raw text of a value, including that of `null`.
fn raw_value<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

/// The values of some fields of an object, as text. The others are only checked.
struct Parts<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Parts<'a> {
    /// Reads the fields for which `is_wanted` returns true.
    fn read(text: &'a str, is_wanted: impl Fn(&str) -> bool) -> serde_json::Result<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let parts = deserializer.deserialize_map(PartsVisitor(is_wanted))?;
        deserializer.end()?;
        Ok(parts)
    }

    /// Returns the value of a field: the last one if there are several.
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        let mut parts = self.0.iter().rev();
        parts.find(|(known, _)| known == name).map(|(_, raw)| *raw)
    }
}

struct PartsVisitor<F>(F);

impl<'de, F: Fn(&str) -> bool> Visitor<'de> for PartsVisitor<F> {
    type Value = Parts<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(name) = map.next_key_seed(WantedName(&self.0))? {
            match name {
                Some(name) => parts.push((name, map.next_value()?)),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Parts(parts))
    }
}

/// Reads the name of a field if it is wanted.
struct WantedName<'f, F>(&'f F);

impl<'de, F: Fn(&str) -> bool> DeserializeSeed<'de> for WantedName<'_, F> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Self::Value, D::Error> {
        name.deserialize_str(self)
    }
}

impl<F: Fn(&str) -> bool> Visitor<'_> for WantedName<'_, F> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok((self.0)(name).then(|| name.to_owned()))
    }
}

/// Returns the first segment of the path of a field, and the rest.
fn split_head(field: &str) -> (&str, &str) {
    field.split_once('.').unwrap_or((field, ""))
}

impl JsonKind {
    /// Returns the kind `kind` of the API version `api_version`, such as `v1` or `apps/v1`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            fields: Vec::new(),
            sources: Vec::new(),
        }
    }

    /// Sets the paths of the selectable fields, such as `spec.nodeName`.
    #[must_use]
    pub fn with_fields<F: Into<String>>(self, fields: impl IntoIterator<Item = F>) -> Self {
        let fields: Vec<String> = fields.into_iter().map(Into::into).collect();
        let source = |field: &String| Source {
            paths: vec![field.clone()],
            absent: None,
        };
        Self {
            sources: fields.iter().map(source).collect(),
            fields,
            ..self
        }
    }

    /// Sets where the value of one of the [fields](Self::with_fields) is, if not at the path that is its name: at the first
    /// of several paths with a value that is not empty. Without a value it is `absent`.
    ///
    /// ```
    /// use revstore_watch_cache::JsonKind;
    /// use revstore_watch_cache::encode::Kind;
    ///
    /// let nodes = JsonKind::new("v1", "Node").with_fields(["spec.unschedulable"]);
    /// let nodes = nodes.with_source("spec.unschedulable", ["spec.unschedulable"], "false");
    /// let found = nodes.extract(br#"{"metadata":{}}"#)?;
    /// assert_eq!(found.fields[0].as_deref(), Some("false"));
    /// # Ok::<(), revstore_watch_cache::encode::DecodeError>(())
    /// ```
    #[must_use]
    pub fn with_source<P: Into<String>>(
        mut self,
        field: &str,
        paths: impl IntoIterator<Item = P>,
        absent: &str,
    ) -> Self {
        let position = self.fields.iter().position(|known| known == field);
        if let Some(source) = position.and_then(|position| self.sources.get_mut(position)) {
            source.paths = paths.into_iter().map(Into::into).collect();
            source.absent = Some(absent.into());
        }
        self
    }
}

/// Returns the offset of `part`, which is a slice of `whole`.
fn offset(whole: &[u8], part: &str) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

/// Returns the byte range of `value` to replace with the resource version. `metadata` is the text of
/// the metadata object, and `stored` the text of a stored resource version; both are slices of
/// `value`.
fn resource_version_span(
    value: &[u8],
    metadata: &str,
    stored: Option<&RawValue>,
) -> Option<ResourceVersionSpan> {
    let span = |start: usize, end: usize, needs_comma| {
        Some(ResourceVersionSpan {
            start: u32::try_from(start).ok()?,
            end: u32::try_from(end).ok()?,
            needs_comma,
        })
    };
    if let Some(stored) = stored {
        // A client stored a resource version: only the value of the field is replaced.
        let start = offset(value, stored.get());
        return span(start, start + stored.get().len(), false);
    }
    let brace = offset(value, metadata) + 1;
    let is_empty = metadata[1..].trim_start().starts_with('}');
    span(brace, brace, !is_empty)
}

/// Returns the text of the scalar at `path` below `value`, or `None` if there is none.
fn scalar(mut value: &serde_json::Value, path: &str) -> Option<Box<str>> {
    for segment in path.split('.').filter(|segment| !segment.is_empty()) {
        value = value.get(segment)?;
    }
    match value {
        serde_json::Value::String(text) => Some(text.as_str().into()),
        serde_json::Value::Bool(flag) => Some(flag.to_string().into()),
        serde_json::Value::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}

impl Kind for JsonKind {
    fn api_version(&self) -> &str {
        &self.api_version
    }

    fn kind(&self) -> &str {
        &self.kind
    }

    fn fields(&self) -> &[String] {
        &self.fields
    }

    fn extract(&self, value: &[u8]) -> Result<Attributes, DecodeError> {
        let undecodable = |error: serde_json::Error| DecodeError(error.to_string());
        let text = std::str::from_utf8(value).map_err(|error| DecodeError(error.to_string()))?;
        let is_wanted = |name: &str| {
            let mut paths = self.sources.iter().flat_map(|source| &source.paths);
            name == "metadata" || paths.any(|path| split_head(path).0 == name)
        };
        let top = Parts::read(text, is_wanted).map_err(undecodable)?;
        let raw = top
            .get("metadata")
            .ok_or_else(|| DecodeError("missing field `metadata`".into()))?;
        // serde would also deserialize an array, as a sequence of fields.
        if !raw.get().starts_with('{') {
            return Err(DecodeError("`metadata` is not an object".into()));
        }
        let metadata: Metadata<'_> = serde_json::from_str(raw.get()).map_err(undecodable)?;
        let mut parsed: HashMap<&str, serde_json::Value> = HashMap::new();
        let mut fields = Vec::with_capacity(self.fields.len());
        for source in &self.sources {
            let mut found: Option<Box<str>> = None;
            for path in &source.paths {
                let (head, rest) = split_head(path);
                let Some(raw) = top.get(head) else {
                    continue;
                };
                if !parsed.contains_key(head) {
                    let value = serde_json::from_str(raw.get()).map_err(undecodable)?;
                    parsed.insert(head, value);
                }
                let value = parsed.get(head).and_then(|value| scalar(value, rest));
                if found.as_deref().unwrap_or_default().is_empty() {
                    found = value.or(found);
                }
            }
            fields.push(found.or_else(|| source.absent.clone()));
        }
        let labels = metadata.labels.unwrap_or_default();
        Ok(Attributes {
            uid: metadata.uid.unwrap_or_default().into(),
            labels: labels.into_iter().collect(),
            fields,
            resource_version_span: resource_version_span(
                value,
                raw.get(),
                metadata.resource_version,
            ),
        })
    }

    fn form(&self) -> Arc<dyn Form> {
        Arc::new(JsonForm::new(self.api_version.as_str(), &self.kind))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use revstore_engine::Revision;

    use super::JsonKind;
    use crate::api::keys::{KeyLayout, ObjectRef};
    use crate::encode::form::ControlEvent;
    use crate::encode::kind::{Kind, encoded_with};
    use crate::encode::object::{Object, StoredObject};
    use crate::source::StoredKeyValue;

    fn check(stored: &'static str, served: &str) {
        let kind = JsonKind::new("v1", "Pod");
        let stored = StoredKeyValue {
            key: Bytes::from_static(b"/pods/ns/a"),
            value: stored.into(),
            create_revision: Revision(3),
            mod_revision: Revision(4),
        };
        let object = StoredObject::decode(stored, &kind, &KeyLayout::namespaced("/pods"));
        let object = Object::new(Arc::new(object)).at_revision(Revision(9));
        let out = encoded_with(|out| kind.form().write_object(&object, out));
        assert_eq!(std::str::from_utf8(&out).unwrap(), served);
    }

    // Shows WC-331: one line.
    #[test]
    fn wc_202_the_resource_version_is_inserted_or_replaced() {
        check(
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"metadata":{"resourceVersion":"9","name":"a"}}"#,
        );
        check(
            r#"{"metadata":{ }}"#,
            r#"{"metadata":{"resourceVersion":"9" }}"#,
        );
        check(
            r#"{"metadata":{"name":"a","resourceVersion":"123"},"x":1}"#,
            r#"{"metadata":{"name":"a","resourceVersion":"9"},"x":1}"#,
        );
        check(
            r#"{"metadata":{"resourceVersion":null}}"#,
            r#"{"metadata":{"resourceVersion":"9"}}"#,
        );
        check(
            "{\n\"metadata\":{\"name\":\"a\"}}",
            r#"{ "metadata":{"resourceVersion":"9","name":"a"}}"#,
        );
    }

    #[test]
    fn an_object_with_the_revision_0_shows_no_version() {
        let kind = JsonKind::new("v1", "X");
        let value = r#"{"metadata":{"name":"a"},"x":1}"#;
        let object = Object::from_parts(&ObjectRef::cluster("a"), Revision(0), value, &kind);
        let out = encoded_with(|out| kind.form().write_object(&object, out));
        assert_eq!(std::str::from_utf8(&out).unwrap(), value);
    }

    #[test]
    fn a_field_may_have_several_sources_and_a_value_when_absent() {
        let kind = JsonKind::new("v1", "X").with_fields(["a", "b", "c"]);
        let kind = kind
            .with_source("a", ["x.y", "z"], "none")
            .with_source("b", [""; 0], "");
        let fields = |value: &str| {
            let found = kind.extract(value.as_bytes()).unwrap().fields;
            found
                .into_iter()
                .map(|field| field.map(String::from))
                .collect::<Vec<_>>()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(fields(r#"{"metadata":{}}"#), [some("none"), some(""), None]);
        let both = r#"{"metadata":{},"x":{"y":""},"z":1,"b":2,"c":true}"#;
        assert_eq!(fields(both), [some("1"), some(""), some("true")]);
        let first = r#"{"metadata":{},"x":{"y":"v"},"z":1}"#;
        assert_eq!(fields(first), [some("v"), some(""), None]);
    }

    #[test]
    fn metadata_that_is_not_an_object_is_rejected() {
        let kind = JsonKind::new("v1", "Pod");
        for metadata in ["[]", r#"["uid",{},1]"#, "null", "1", r#""name""#] {
            let value = format!("{{\"metadata\": {metadata} }}");
            assert!(kind.extract(value.as_bytes()).is_err(), "{value}");
        }
    }

    #[test]
    fn values_that_are_not_json_are_rejected() {
        let kind = JsonKind::new("v1", "Pod").with_fields(["spec.a"]);
        let good = br#"{"data":{"a":"b"},"metadata":{}}"#;
        assert!(kind.extract(good).is_ok());
        for bad in [
            &b"[]"[..],
            b"{}",
            br#"{"metadata":{}} x"#,
            br#"{"metadata":{},"data":{"a":"b}}"#,
            br#"{"metadata":{},"data":{"a":x}}"#,
            br#"{"metadata":{},"spec":{"a":x}}"#,
            b"{\"metadata\":{},\"data\":\"\xff\"}",
        ] {
            let text = String::from_utf8_lossy(bad);
            assert!(kind.extract(bad).is_err(), "{text}");
        }
    }

    #[test]
    fn the_last_of_fields_with_one_name_counts() {
        let kind = JsonKind::new("v1", "Pod").with_fields(["spec.a"]);
        let value = br#"{"metadata":{"uid":"x"},"spec":{"a":"1"},"sp\u0065c":{"a":"2"},
            "metadata":{"uid":"y","labels":{"b":"1","a":"2","b":"3"}}}"#;
        let found = kind.extract(value).unwrap();
        assert_eq!(&*found.uid, "y");
        assert_eq!(found.fields[0].as_deref(), Some("2"));
        let labels: Vec<_> = found.labels.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(labels, [("a", "2"), ("b", "3")]);
    }

    #[test]
    fn wc_320_a_bookmark_has_kind_version_and_revision() {
        let kind = JsonKind::new("v1", "Pod");
        let event = ControlEvent::Bookmark {
            revision: Revision(7),
            initial_events_end: true,
        };
        let out = encoded_with(|out| kind.form().write_control_event(event, false, out));
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\
             \"metadata\":{\"resourceVersion\":\"7\",\
             \"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n"
        );
    }
}
