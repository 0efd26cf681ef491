//! Whole objects as JSON, and the parts of JSON that several forms write.

use std::borrow::Cow;
use std::fmt;

use revstore_engine::Revision;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::api::event::EventType;
use crate::api::status::RequestError;
use crate::encode::form::{ControlEvent, Form, ListHead};
use crate::encode::object::Object;

/// Whole objects as JSON, with the resource version, and a kind and an API version.
///
/// By default an object has the kind and the API version that are stored with it. For a resource with
/// several versions without conversion, each version gets a form [of its own type](Self::typed).
///
/// ```
/// use revstore_watch_cache::encode::{Form, JsonForm};
/// use revstore_watch_cache::{JsonKind, Object, ObjectRef, Revision};
///
/// let kind = JsonKind::new("example.org/v1", "Widget");
/// let value = r#"{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a"}}"#;
/// let widget = Object::from_parts(&ObjectRef::cluster("a"), Revision(7), value, &kind);
/// let mut out = Vec::new();
/// JsonForm::new("example.org/v2", "Widget").typed().write_object(&widget, &mut out);
/// assert_eq!(
///     String::from_utf8(out).unwrap(),
///     concat!(
///         r#"{"kind":"Widget","apiVersion":"example.org/v2","#,
///         r#""metadata":{"resourceVersion":"7","name":"a"}}"#
///     )
/// );
/// ```
#[derive(Clone, Debug)]
pub struct JsonForm {
    /// The members `kind` and `apiVersion`.
    type_members: String,
    /// The same of lists.
    list_type_members: String,
    api_version: String,
    objects: TypeMembers,
    items: TypeMembers,
}

/// What happens with the members `kind` and `apiVersion` of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TypeMembers {
    Stored,
    Replaced,
    Removed,
}

impl JsonForm {
    /// Returns the form of objects of the kind `kind` of the API version `api_version`. Lists have the
    /// kind with the suffix `List`.
    pub fn new(api_version: impl Into<String>, kind: impl AsRef<str>) -> Self {
        let (api_version, kind) = (api_version.into(), kind.as_ref());
        Self {
            type_members: type_members(kind, &api_version),
            list_type_members: type_members(&format!("{kind}List"), &api_version),
            api_version,
            objects: TypeMembers::Stored,
            items: TypeMembers::Stored,
        }
    }

    /// Sets the kind of lists.
    #[must_use]
    pub fn list_kind(mut self, kind: impl AsRef<str>) -> Self {
        self.list_type_members = type_members(kind.as_ref(), &self.api_version);
        self
    }

    /// Gives all objects the kind and the API version of the form.
    #[must_use]
    pub fn typed(mut self) -> Self {
        self.objects = TypeMembers::Replaced;
        self.items = TypeMembers::Replaced;
        self
    }

    /// Removes kind and API version from the items of lists, as kube-apiserver does for built-in kinds.
    #[must_use]
    pub fn untyped_items(mut self) -> Self {
        self.items = TypeMembers::Removed;
        self
    }

    fn write(&self, object: &Object, members: TypeMembers, out: &mut Vec<u8>) {
        let head = match members {
            TypeMembers::Stored => return object.write_json(out),
            TypeMembers::Replaced => self.type_members.as_str(),
            TypeMembers::Removed => "",
        };
        if let Some((end, has_more)) = leading_type(object.value()) {
            let comma = if has_more && !head.is_empty() {
                ","
            } else {
                ""
            };
            push(out, &["{", head, comma]);
            object.write_json_from(end, out);
            return;
        }
        let from = out.len();
        object.write_json(out);
        let Ok(Members(members)) = serde_json::from_slice(&out[from..]) else {
            // An object that cannot be decoded is not sent to clients.
            return;
        };
        let mut written = format!("{{{head}");
        for (name, value) in members {
            if name == "kind" || name == "apiVersion" {
                continue;
            }
            if written.len() > 1 {
                written.push(',');
            }
            written.push_str(&quoted(&name));
            written.push(':');
            written.push_str(value.get());
        }
        written.push('}');
        out.truncate(from);
        out.extend_from_slice(written.as_bytes());
    }
}

impl Form for JsonForm {
    fn write_object(&self, object: &Object, out: &mut Vec<u8>) {
        self.write(object, self.objects, out);
    }

    fn write_event(&self, event: EventType, object: &Object, _: bool, out: &mut Vec<u8>) {
        out.reserve(object.value().len() + 80);
        write_frame(event.as_str(), out, |out| self.write_object(object, out));
    }

    fn write_control_event(&self, event: ControlEvent<'_>, _: bool, out: &mut Vec<u8>) {
        match event {
            ControlEvent::Bookmark { .. } => write_frame("BOOKMARK", out, |out| {
                push(out, &["{", &self.type_members, ",\"metadata\":"]);
                write_bookmark_metadata(event, out);
                out.push(b'}');
            }),
            ControlEvent::Error(error) => write_error(error, out),
        }
    }

    fn write_list_head(&self, list: &ListHead, out: &mut Vec<u8>) {
        push(out, &["{", &self.list_type_members, ",\"metadata\":"]);
        write_list_metadata(list, out);
        push(out, &[",\"items\":["]);
    }

    fn write_item(&self, object: &Object, out: &mut Vec<u8>) {
        self.write(object, self.items, out);
    }

    fn write_list_tail(&self, _: &ListHead, out: &mut Vec<u8>) {
        push(out, &["]}"]);
    }

    fn shares_items(&self) -> bool {
        // An item is a copy of the stored bytes.
        false
    }
}

pub(super) fn push(out: &mut Vec<u8>, texts: &[&str]) {
    for text in texts {
        out.extend_from_slice(text.as_bytes());
    }
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

pub(super) fn type_members(kind: &str, api_version: &str) -> String {
    let (kind, api_version) = (quoted(kind), quoted(api_version));
    format!("\"kind\":{kind},\"apiVersion\":{api_version}")
}

/// Writes an event, on one line.
// WC-331.
pub(super) fn write_frame(event: &str, out: &mut Vec<u8>, write_object: impl FnOnce(&mut Vec<u8>)) {
    push(out, &["{\"type\":\"", event, "\",\"object\":"]);
    write_object(out);
    push(out, &["}\n"]);
}

/// Writes an error event, which has the same object in all forms of JSON.
// WC-335.
pub(super) fn write_error(error: &RequestError, out: &mut Vec<u8>) {
    let status = error.status().to_json();
    write_frame("ERROR", out, |out| push(out, &[&status]));
}

/// Writes the metadata of a bookmark.
// WC-320, WC-325.
pub(super) fn write_bookmark_metadata(event: ControlEvent<'_>, out: &mut Vec<u8>) {
    let ControlEvent::Bookmark {
        revision,
        initial_events_end,
    } = event
    else {
        return;
    };
    let version = revision.to_string();
    push(out, &["{\"resourceVersion\":\"", &version, "\""]);
    if initial_events_end {
        push(
            out,
            &[",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}"],
        );
    }
    out.push(b'}');
}

/// Writes the metadata of a list. A list of objects that are in no store has the revision 0, and no resource version.
pub(super) fn write_list_metadata(list: &ListHead, out: &mut Vec<u8>) {
    if list.revision == Revision(0) {
        return push(out, &["{}"]);
    }
    let version = list.revision.to_string();
    push(out, &["{\"resourceVersion\":\"", &version, "\""]);
    if let Some(token) = &list.continue_token {
        push(out, &[",\"continue\":", &quoted(token)]);
    }
    if let Some(count) = list.remaining_item_count {
        push(out, &[",\"remainingItemCount\":", &count.to_string()]);
    }
    out.push(b'}');
}

/// If `json` is an object that begins with the members `kind` and `apiVersion`, which are plain strings,
/// returns the offset after them and the comma after them, and whether more members follow.
///
/// This is the usual order, and saves a look at the rest of the object.
fn leading_type(json: &[u8]) -> Option<(usize, bool)> {
    fn string(json: &[u8]) -> Option<(&[u8], &[u8])> {
        let rest = json.strip_prefix(b"\"")?;
        let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        (rest[end] == b'"').then(|| (&rest[..end], &rest[end + 1..]))
    }
    let mut rest = json.strip_prefix(b"{")?;
    let mut names: [&[u8]; 2] = [b""; 2];
    let mut has_more = true;
    for name in &mut names {
        if !has_more {
            return None;
        }
        let (found, after) = string(rest)?;
        *name = found;
        let (_, after) = string(after.strip_prefix(b":")?)?;
        rest = match after.first()? {
            b',' => &after[1..],
            b'}' => {
                has_more = false;
                after
            }
            _ => return None,
        };
    }
    names.sort_unstable();
    (names == [b"apiVersion".as_slice(), b"kind"]).then(|| (json.len() - rest.len(), has_more))
}

/// The members of an object, in their order.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

#[cfg(test)]
mod tests {
    use revstore_engine::Revision;

    use super::*;
    use crate::api::keys::ObjectRef;
    use crate::encode::json::JsonKind;
    use crate::encode::kind::encoded_with;

    fn written(form: &JsonForm, value: &'static str) -> [String; 2] {
        let kind = JsonKind::new("g/v1", "A");
        let object = Object::from_parts(&ObjectRef::cluster("a"), Revision(9), value, &kind);
        let text = |bytes: bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        [
            text(encoded_with(|out| form.write_object(&object, out))),
            text(encoded_with(|out| form.write_item(&object, out))),
        ]
    }

    #[test]
    fn kind_and_api_version_are_replaced_in_objects_and_removed_from_items_wherever_they_are() {
        let form = JsonForm::new("g/v2", "B").typed().untyped_items();
        let meta = r#""metadata":{"resourceVersion":"9","x":"\"kind\":1"}"#;
        let stored = r#""metadata":{"x":"\"kind\":1"}"#;
        let typed = format!(r#"{{"kind":"B","apiVersion":"g/v2",{meta}}}"#);
        let untyped = format!("{{{meta}}}");
        for prefix in [
            r#""apiVersion":"g/v1","kind":"A","#,
            r#""kind":"A","apiVersion":"g/v1","#,
            r#" "kind": "A" , "apiVersion":"g/v1","#,
            r#""kind":"A","#,
            r#""kind":{"a":1},"apiVersion":7,"#,
            r#""kind":"\u0041","apiVersion":"g\/v1","#,
            "",
        ] {
            let value: &'static str = format!("{{{prefix}{stored}}}").leak();
            assert_eq!(written(&form, value), [typed.clone(), untyped.clone()]);
        }
        for suffix in [
            r#","apiVersion":"g/v1","kind":"A""#,
            r#","kind":"A","apiVersion":"g/v1""#,
        ] {
            let value: &'static str = format!("{{{stored}{suffix}}}").leak();
            assert_eq!(written(&form, value), [typed.clone(), untyped.clone()]);
        }
        let as_stored = JsonForm::new("g/v2", "B");
        let value: &'static str = format!(r#"{{"kind":"A",{stored}}}"#).leak();
        let expected = format!(r#"{{"kind":"A",{meta}}}"#);
        assert_eq!(
            written(&as_stored, value),
            [expected.clone(), expected.clone()]
        );
        let doubled: &'static str =
            format!(r#"{{"kind":"A","kind":"B",{stored},"kind":"C"}}"#).leak();
        assert_eq!(written(&form, doubled), [typed, untyped]);
    }
}
