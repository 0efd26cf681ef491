//! Objects as Kubernetes stores them: JSON with `metadata`.

use std::collections::HashMap;

use revstore_engine::Revision;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::api::event::EventType;
use crate::encode::kind::{Attributes, Kind, Notice, Splice, Undecodable};
use crate::encode::object::Entry;

/// A kind of JSON objects with Kubernetes metadata, such as pods.
///
/// Stored bytes stay as they are; the resource version is spliced in when they are written
/// (WC-141, WC-202). Reading an object parses it once and keeps labels, uid and the fields named
/// here.
///
/// ```
/// use revstore_watch_cache::{JsonKind, Kind};
/// let pods = JsonKind::new("v1", "Pod").with_fields(["spec.nodeName", "status.phase"]);
/// let read = pods.extract(br#"{"metadata":{"labels":{"a":"b"}},"spec":{"nodeName":"n1"}}"#)?;
/// assert_eq!(read.fields[0].as_deref(), Some("n1"));
/// assert!(pods.extract(b"no JSON").is_err());
/// # Ok::<(), revstore_watch_cache::Undecodable>(())
/// ```
#[derive(Clone, Debug)]
pub struct JsonKind {
    api_version: String,
    kind: String,
    fields: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    labels: Option<HashMap<String, String>>,
    #[serde(
        default,
        borrow,
        rename = "resourceVersion",
        deserialize_with = "whatever"
    )]
    resource_version: Option<&'a RawValue>,
}

/// The value as it is written, also if that is `null`.
fn whatever<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

impl JsonKind {
    /// The kind `kind` of the API version `api_version`, such as `v1` or `apps/v1`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            fields: Vec::new(),
        }
    }

    /// The fields that selectors may name, as paths with dots.
    #[must_use]
    pub fn with_fields<F: Into<String>>(self, fields: impl IntoIterator<Item = F>) -> Self {
        Self {
            fields: fields.into_iter().map(Into::into).collect(),
            ..self
        }
    }
}

/// Where `part`, a slice of `whole`, begins in it.
fn offset(whole: &[u8], part: &str) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

/// Where the resource version goes. `metadata` is the text of that object, which lies in `value`.
fn splice(value: &[u8], metadata: &str, own: Option<&RawValue>) -> Option<Splice> {
    let place = |start: usize, end: usize, followed| {
        Some(Splice {
            start: u32::try_from(start).ok()?,
            end: u32::try_from(end).ok()?,
            followed,
        })
    };
    if let Some(own) = own {
        // Somebody stored one, past the front: its value is what gets replaced, and the key stays.
        let start = offset(value, own.get());
        return place(start, start + own.get().len(), false);
    }
    let brace = offset(value, metadata) + 1;
    let is_empty = metadata[1..].trim_start().starts_with('}');
    place(brace, brace, !is_empty)
}

/// The text of a scalar at `path` below `value`; nothing if there is none.
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
    fn fields(&self) -> &[String] {
        &self.fields
    }

    fn extract(&self, value: &[u8]) -> Result<Attributes, Undecodable> {
        let undecodable = |error: serde_json::Error| Undecodable(error.to_string());
        let top: HashMap<String, &RawValue> = serde_json::from_slice(value).map_err(undecodable)?;
        let raw = top
            .get("metadata")
            .ok_or_else(|| Undecodable("missing field `metadata`".into()))?;
        // An array would be read as well, field by field.
        if !raw.get().starts_with('{') {
            return Err(Undecodable("`metadata` is no object".into()));
        }
        let metadata: Metadata<'_> = serde_json::from_str(raw.get()).map_err(undecodable)?;
        let mut parsed: HashMap<&str, serde_json::Value> = HashMap::new();
        let mut fields = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            let (head, rest) = field.split_once('.').unwrap_or((field, ""));
            let Some(raw) = top.get(head) else {
                fields.push(None);
                continue;
            };
            if !parsed.contains_key(head) {
                let value = serde_json::from_str(raw.get()).map_err(undecodable)?;
                parsed.insert(head, value);
            }
            fields.push(parsed.get(head).and_then(|value| scalar(value, rest)));
        }
        let labels = metadata.labels.unwrap_or_default();
        Ok(Attributes {
            uid: metadata.uid.unwrap_or_default().into(),
            labels: labels
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
            fields,
            splice: splice(value, raw.get(), metadata.resource_version),
        })
    }

    fn write_object(&self, entry: &Entry, revision: Revision, out: &mut Vec<u8>) {
        let value = entry.value();
        let from = out.len();
        match entry.attributes().and_then(|attributes| attributes.splice) {
            Some(Splice {
                start,
                end,
                followed,
            }) => {
                let (start, end) = (start as usize, end as usize);
                out.extend_from_slice(&value[..start]);
                if start == end {
                    out.extend_from_slice(b"\"resourceVersion\":");
                }
                out.extend_from_slice(format!("\"{revision}\"").as_bytes());
                if followed {
                    out.push(b',');
                }
                out.extend_from_slice(&value[end..]);
            }
            None => out.extend_from_slice(value),
        }
        // WC-331: one line. A line break in JSON text can only stand between tokens.
        for byte in &mut out[from..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }

    fn write_event(&self, event: EventType, entry: &Entry, revision: Revision, out: &mut Vec<u8>) {
        out.reserve(entry.value().len() + 80);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(event.as_str().as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        self.write_object(entry, revision, out);
        out.extend_from_slice(b"}\n");
    }

    fn write_notice(&self, notice: Notice<'_>, out: &mut Vec<u8>) {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let line = match notice {
            Notice::Bookmark {
                revision,
                initial_events_end,
            } => {
                let annotations = if initial_events_end {
                    ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}"
                } else {
                    ""
                };
                format!(
                    "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":{},\"apiVersion\":{},\
                     \"metadata\":{{\"resourceVersion\":\"{revision}\",\
                     \"creationTimestamp\":null{annotations}}}}}}}\n",
                    quoted(&self.kind),
                    quoted(&self.api_version),
                )
            }
            Notice::Error(error) => format!(
                "{{\"type\":\"ERROR\",\"object\":{}}}\n",
                error.status().to_json()
            ),
        };
        out.extend_from_slice(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use revstore_engine::Revision;

    use super::JsonKind;
    use crate::api::keys::KeyLayout;
    use crate::encode::kind::{Kind, Notice, written};
    use crate::encode::object::Entry;
    use crate::source::Stored;

    fn check(stored: &'static str, served: &str) {
        let kind = JsonKind::new("v1", "Pod");
        let stored = Stored {
            key: Bytes::from_static(b"/pods/ns/a"),
            value: stored.into(),
            create_revision: Revision(3),
            mod_revision: Revision(4),
        };
        let entry = Entry::read(stored, &kind, &KeyLayout::namespaced("/pods"));
        let out = written(|out| kind.write_object(&entry, Revision(9), out));
        assert_eq!(std::str::from_utf8(&out).unwrap(), served);
    }

    #[test]
    fn wc_202_the_resource_version_is_spliced_in() {
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
    fn metadata_that_is_no_object_is_no_metadata() {
        let kind = JsonKind::new("v1", "Pod");
        for metadata in ["[]", r#"["uid",{},1]"#, "null", "1", r#""name""#] {
            let value = format!("{{\"metadata\": {metadata} }}");
            assert!(kind.extract(value.as_bytes()).is_err(), "{value}");
        }
    }

    #[test]
    fn wc_320_a_bookmark_has_kind_version_and_revision() {
        let kind = JsonKind::new("v1", "Pod");
        let notice = Notice::Bookmark {
            revision: Revision(7),
            initial_events_end: true,
        };
        let out = written(|out| kind.write_notice(notice, out));
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\
             \"metadata\":{\"resourceVersion\":\"7\",\"creationTimestamp\":null,\
             \"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n"
        );
    }
}
