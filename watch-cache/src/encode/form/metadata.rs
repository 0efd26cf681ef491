//! The metadata of objects: `PartialObjectMetadata`.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use serde::Deserializer as _;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::api::event::EventType;
use crate::encode::form::json::{
    push, type_members, write_bookmark_metadata, write_error, write_frame, write_list_metadata,
};
use crate::encode::form::{ControlEvent, Form, ListHead};
use crate::encode::object::Object;

/// The version of metadata and of tables, whose fields are the same in all versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `meta.k8s.io/v1`.
    #[default]
    V1,
    /// `meta.k8s.io/v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// Returns the `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The metadata of objects as JSON: `PartialObjectMetadata`, and `PartialObjectMetadataList`.
///
/// ```
/// use std::sync::Arc;
/// use revstore_watch_cache::encode::{Form, JsonForm, MetadataForm};
/// use revstore_watch_cache::{JsonKind, Object, ObjectRef, Revision};
///
/// let kind = JsonKind::new("v1", "Pod");
/// let value = r#"{"metadata":{"name":"a"},"spec":{}}"#;
/// let pod = Object::from_parts(&ObjectRef::cluster("a"), Revision(7), value, &kind);
/// let mut out = Vec::new();
/// MetadataForm::of(Arc::new(JsonForm::new("v1", "Pod"))).write_object(&pod, &mut out);
/// assert_eq!(
///     String::from_utf8(out).unwrap(),
///     concat!(
///         r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#,
///         r#""metadata":{"resourceVersion":"7","name":"a"}}"#
///     )
/// );
/// ```
// WC-422.
#[derive(Clone, Debug)]
pub struct MetadataForm {
    whole: Arc<dyn Form>,
    version: MetaVersion,
}

impl MetadataForm {
    /// Returns the form of the metadata of objects that `whole` writes as JSON.
    pub fn of(whole: Arc<dyn Form>) -> Self {
        let version = MetaVersion::default();
        Self { whole, version }
    }

    /// Sets the version: by default `meta.k8s.io/v1`.
    #[must_use]
    pub fn version(mut self, version: MetaVersion) -> Self {
        self.version = version;
        self
    }
}

impl Form for MetadataForm {
    fn write_object(&self, object: &Object, out: &mut Vec<u8>) {
        write_partial(&*self.whole, self.version, object, out);
    }

    fn write_event(&self, event: EventType, object: &Object, _: bool, out: &mut Vec<u8>) {
        write_frame(event.as_str(), out, |out| self.write_object(object, out));
    }

    fn write_control_event(&self, event: ControlEvent<'_>, _: bool, out: &mut Vec<u8>) {
        match event {
            ControlEvent::Bookmark { .. } => write_frame("BOOKMARK", out, |out| {
                write_partial_with(self.version, out, |out| write_bookmark_metadata(event, out));
            }),
            ControlEvent::Error(error) => write_error(error, out),
        }
    }

    fn write_list_head(&self, list: &ListHead, out: &mut Vec<u8>) {
        let members = type_members("PartialObjectMetadataList", self.version.api_version());
        push(out, &["{", &members, ",\"metadata\":"]);
        write_list_metadata(list, out);
        push(out, &[",\"items\":["]);
    }

    fn write_list_tail(&self, _: &ListHead, out: &mut Vec<u8>) {
        push(out, &["]}"]);
    }
}

fn write_partial_with(
    version: MetaVersion,
    out: &mut Vec<u8>,
    write_metadata: impl FnOnce(&mut Vec<u8>),
) {
    let members = type_members("PartialObjectMetadata", version.api_version());
    push(out, &["{", &members, ",\"metadata\":"]);
    write_metadata(out);
    out.push(b'}');
}

/// Writes the metadata of an object that `whole` writes as JSON.
pub(super) fn write_partial(
    whole: &dyn Form,
    version: MetaVersion,
    object: &Object,
    out: &mut Vec<u8>,
) {
    let mut json = Vec::with_capacity(object.value().len() + 80);
    whole.write_object(object, &mut json);
    // An object that cannot be decoded is not sent to clients.
    let metadata = metadata_of(&json).map_or("{}", RawValue::get);
    write_partial_with(version, out, |out| push(out, &[metadata]));
}

/// Returns the metadata in the JSON of an object. Does not read what follows it.
fn metadata_of(json: &[u8]) -> Option<&RawValue> {
    struct Find<'a, 'de>(&'a Cell<Option<&'de RawValue>>);
    impl<'de> Visitor<'de> for Find<'_, 'de> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object with metadata")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                if name == "metadata" {
                    self.0.set(Some(map.next_value()?));
                    // Ends the parser here.
                    return Err(A::Error::custom("found"));
                }
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }
    let found = Cell::new(None);
    // The result is in `found`.
    let _ = serde_json::Deserializer::from_slice(json).deserialize_map(Find(&found));
    found.get()
}
