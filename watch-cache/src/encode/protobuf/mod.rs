//! The kind of objects in Kubernetes' protobuf envelope.

mod field;
mod wire;

use std::collections::HashMap;

use revstore_engine::Revision;

pub use self::field::ProtobufField;
use self::wire::{Field, Fields, write_bytes, write_number};
use crate::api::event::EventType;
use crate::api::status::RequestError;
use crate::encode::kind::{Attributes, ControlEvent, DecodeError, Kind};
use crate::encode::object::StoredObject;
use crate::status::{Reason, StatusDetails};

/// The first bytes of an object in the envelope.
const PREFIX: &[u8] = b"k8s\0";
/// The content type of objects in the envelope. An empty one means the same.
const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The field numbers of the envelope, `k8s.io.apimachinery.pkg.runtime.Unknown`, and of its type.
mod envelope {
    pub(super) const TYPE_META: u32 = 1;
    pub(super) const RAW: u32 = 2;
    pub(super) const CONTENT_ENCODING: u32 = 3;
    pub(super) const CONTENT_TYPE: u32 = 4;
    pub(super) const API_VERSION: u32 = 1;
    pub(super) const KIND: u32 = 2;
}

/// The field number of `ObjectMeta` in objects of all kinds.
const METADATA: u32 = 1;

/// The field numbers of `ObjectMeta`.
mod object_meta {
    pub(super) const UID: u32 = 5;
    pub(super) const RESOURCE_VERSION: u32 = 6;
    pub(super) const LABELS: u32 = 11;
    pub(super) const ANNOTATIONS: u32 = 12;
}

/// A kind of objects in the protobuf envelope of Kubernetes (`k8s\0` and a `runtime.Unknown`), in
/// which kube-apiserver stores objects of built-in kinds.
///
/// Of an object only its uid, its labels and its selectable fields are decoded, which the user
/// declares by field numbers. Stored bytes are kept unchanged; the resource version is inserted when
/// an object is written.
///
/// Objects and events are written as kube-apiserver writes the media type
/// `application/vnd.kubernetes.protobuf`, not as JSON: an object in its envelope, and an event, with
/// `;stream=watch`, as a `WatchEvent` with its length in 4 bytes before it. A conversion to JSON needs
/// the definitions of whole kinds, which this crate does not have.
///
/// Other bytes, such as JSON, a compressed content, or an object of another kind or version, cannot be
/// decoded. If objects of older API versions are stored, name them with
/// [`stored_version`](Self::stored_version).
///
/// ```
/// use revstore_watch_cache::encode::{ProtobufField, ProtobufKind};
///
/// // `spec` is field 2 of a pod, and `nodeName` is field 10 of that; `phase` is field 1 of `status`.
/// let pods = ProtobufKind::new("v1", "Pod")
///     .field("spec.nodeName", ProtobufField::text([2, 10]))
///     .field("status.phase", ProtobufField::text([3, 1]));
/// # let _ = pods;
/// ```
// WC-141, WC-202, WC-334.
#[derive(Clone, Debug)]
pub struct ProtobufKind {
    /// The API versions of stored objects; the first one is that of bookmarks.
    api_versions: Vec<String>,
    kind: String,
    fields: Vec<String>,
    paths: Vec<ProtobufField>,
}

impl ProtobufKind {
    /// Returns the kind `kind` of the API version `api_version`, such as `v1` or `apps/v1`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            api_versions: vec![api_version.into()],
            kind: kind.into(),
            fields: Vec::new(),
            paths: Vec::new(),
        }
    }

    /// Adds a selectable field with its name in selectors, such as `spec.nodeName`.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, field: ProtobufField) -> Self {
        self.fields.push(name.into());
        self.paths.push(field);
        self
    }

    /// Also accepts stored objects of another API version, in which the selectable fields must have
    /// the same numbers.
    #[must_use]
    pub fn stored_version(mut self, api_version: impl Into<String>) -> Self {
        self.api_versions.push(api_version.into());
        self
    }

    fn check_type(&self, type_meta: &[u8]) -> Result<(), DecodeError> {
        let (mut api_version, mut kind) = ("", "");
        for field in Fields::of(type_meta) {
            let field = field?;
            match field.number {
                envelope::API_VERSION => api_version = field.text()?,
                envelope::KIND => kind = field.text()?,
                _ => {}
            }
        }
        if kind == self.kind && self.api_versions.iter().any(|known| known == api_version) {
            return Ok(());
        }
        Err(DecodeError(format!(
            "the object is of kind {kind:?} in {api_version:?}, not of kind {:?} in {:?}",
            self.kind, self.api_versions[0]
        )))
    }
}

/// The parts of an object in its envelope.
struct Parts<'a> {
    type_meta: &'a [u8],
    /// The bytes of the object.
    raw: &'a [u8],
    /// The `ObjectMeta`, with its position in `raw`.
    metadata: Field<'a>,
}

impl<'a> Parts<'a> {
    fn of(value: &'a [u8]) -> Result<Self, DecodeError> {
        let unknown = value
            .strip_prefix(PREFIX)
            .ok_or_else(|| DecodeError(r#"missing prefix "k8s\0""#.into()))?;
        let (mut type_meta, mut raw) = (None, None);
        for field in Fields::of(unknown) {
            let field = field?;
            match field.number {
                envelope::TYPE_META => set_once(&mut type_meta, &field)?,
                envelope::RAW => set_once(&mut raw, &field)?,
                envelope::CONTENT_ENCODING if !field.bytes()?.is_empty() => {
                    let encoding = field.text()?;
                    return Err(DecodeError(format!("unknown encoding {encoding:?}")));
                }
                envelope::CONTENT_TYPE if !["", CONTENT_TYPE].contains(&field.text()?) => {
                    let content_type = field.text()?;
                    return Err(DecodeError(format!("unknown type {content_type:?}")));
                }
                _ => {}
            }
        }
        let raw = raw.map(|raw| raw.bytes()).transpose()?.unwrap_or_default();
        let mut metadata = None;
        for field in Fields::of(raw) {
            let field = field?;
            if field.number == METADATA {
                set_once(&mut metadata, &field)?;
            }
        }
        let missing = |name: &str| DecodeError(format!("missing field `{name}`"));
        let type_meta = type_meta.ok_or_else(|| missing("typeMeta"))?;
        let metadata = metadata.ok_or_else(|| missing("metadata"))?;
        metadata.bytes()?;
        Ok(Self {
            type_meta: type_meta.bytes()?,
            raw,
            metadata,
        })
    }
}

/// Sets a field that may occur once. A parser would merge several messages; kube-apiserver writes one.
fn set_once<'a>(known: &mut Option<Field<'a>>, field: &Field<'a>) -> Result<(), DecodeError> {
    match known.replace(field.clone()) {
        None => Ok(()),
        Some(_) => Err(DecodeError(format!("field {} occurs twice", field.number))),
    }
}

/// Returns the key and the value of an entry of a map.
fn entry<'a>(field: &Field<'a>) -> Result<(&'a str, &'a str), DecodeError> {
    let (mut key, mut value) = ("", "");
    for part in Fields::of(field.bytes()?) {
        let part = part?;
        match part.number {
            1 => key = part.text()?,
            2 => value = part.text()?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Writes an object in its envelope.
fn write_envelope(type_meta: &[u8], raw: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(PREFIX);
    write_bytes(envelope::TYPE_META, type_meta, out);
    write_bytes(envelope::RAW, raw, out);
    // kube-apiserver writes empty strings.
    write_bytes(envelope::CONTENT_ENCODING, b"", out);
    write_bytes(envelope::CONTENT_TYPE, b"", out);
}

fn type_meta(api_version: &str, kind: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_bytes(envelope::API_VERSION, api_version.as_bytes(), &mut out);
    write_bytes(envelope::KIND, kind.as_bytes(), &mut out);
    out
}

/// Writes a frame of a watch: the length, then a `WatchEvent` with the type and the object.
fn write_frame(event: &str, object: &[u8], out: &mut Vec<u8>) {
    let mut extension = Vec::with_capacity(object.len() + 8);
    write_bytes(1, object, &mut extension);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write_bytes(1, event.as_bytes(), out);
    write_bytes(2, &extension, out);
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Returns a `Status` in its envelope.
fn status(error: &RequestError) -> Vec<u8> {
    let status = error.status();
    let mut list_meta = Vec::new();
    if let Some(token) = &status.continue_token {
        write_bytes(3, token.as_bytes(), &mut list_meta);
    }
    let mut raw = Vec::new();
    write_bytes(1, &list_meta, &mut raw);
    write_bytes(2, b"Failure", &mut raw);
    write_bytes(3, status.message.as_bytes(), &mut raw);
    let reason = status.reason.map_or("", Reason::name);
    write_bytes(4, reason.as_bytes(), &mut raw);
    if let Some(details) = &status.details {
        write_bytes(5, &status_details(details), &mut raw);
    }
    write_number(6, status.code.into(), &mut raw);
    let mut out = Vec::new();
    write_envelope(&type_meta("v1", "Status"), &raw, &mut out);
    out
}

fn status_details(details: &StatusDetails) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, text) in [(1, &details.name), (2, &details.group), (3, &details.kind)] {
        write_bytes(number, text.as_bytes(), &mut out);
    }
    for cause in &details.causes {
        let mut part = Vec::new();
        write_bytes(1, cause.reason.as_str().as_bytes(), &mut part);
        write_bytes(2, cause.message.as_bytes(), &mut part);
        write_bytes(3, cause.field.as_bytes(), &mut part);
        write_bytes(4, &part, &mut out);
    }
    write_number(5, details.retry_after_seconds.into(), &mut out);
    write_bytes(6, details.uid.as_bytes(), &mut out);
    out
}

impl Kind for ProtobufKind {
    fn api_version(&self) -> &str {
        &self.api_versions[0]
    }

    fn kind(&self) -> &str {
        &self.kind
    }

    fn fields(&self) -> &[String] {
        &self.fields
    }

    fn extract(&self, value: &[u8]) -> Result<Attributes, DecodeError> {
        let parts = Parts::of(value)?;
        self.check_type(parts.type_meta)?;
        let mut attributes = Attributes::default();
        // If a key occurs several times, the last value counts.
        let mut labels = HashMap::new();
        for field in Fields::of(parts.metadata.bytes()?) {
            let field = field?;
            match field.number {
                object_meta::UID => attributes.uid = field.text()?.into(),
                object_meta::LABELS => {
                    let (key, value) = entry(&field)?;
                    labels.insert(key, value);
                }
                _ => {}
            }
        }
        let owned = |(key, value): (&str, &str)| (key.into(), value.into());
        attributes.labels = labels.into_iter().map(owned).collect();
        for path in &self.paths {
            attributes.fields.push(path.of(parts.raw)?);
        }
        Ok(attributes)
    }

    fn write_object(&self, object: &StoredObject, revision: Revision, out: &mut Vec<u8>) {
        let value = object.value();
        let Some(written) = with_resource_version(value, &revision.to_string()) else {
            // An object that cannot be decoded is not sent to clients.
            out.extend_from_slice(value);
            return;
        };
        out.extend_from_slice(&written);
    }

    fn write_event(
        &self,
        event: EventType,
        object: &StoredObject,
        revision: Revision,
        out: &mut Vec<u8>,
    ) {
        let mut written = Vec::new();
        self.write_object(object, revision, &mut written);
        write_frame(event.as_str(), &written, out);
    }

    fn write_control_event(&self, event: ControlEvent<'_>, out: &mut Vec<u8>) {
        match event {
            ControlEvent::Bookmark {
                revision,
                initial_events_end,
            } => {
                let mut metadata = Vec::new();
                let version = revision.to_string();
                write_bytes(
                    object_meta::RESOURCE_VERSION,
                    version.as_bytes(),
                    &mut metadata,
                );
                if initial_events_end {
                    let mut annotation = Vec::new();
                    write_bytes(1, b"k8s.io/initial-events-end", &mut annotation);
                    write_bytes(2, b"true", &mut annotation);
                    write_bytes(object_meta::ANNOTATIONS, &annotation, &mut metadata);
                }
                let mut raw = Vec::new();
                write_bytes(METADATA, &metadata, &mut raw);
                let mut object = Vec::new();
                let type_meta = type_meta(&self.api_versions[0], &self.kind);
                write_envelope(&type_meta, &raw, &mut object);
                write_frame("BOOKMARK", &object, out);
            }
            ControlEvent::Error(error) => write_frame("ERROR", &status(error), out),
        }
    }
}

/// Returns an object with a resource version, or `None` if it cannot be decoded.
fn with_resource_version(value: &[u8], version: &str) -> Option<Vec<u8>> {
    let parts = Parts::of(value).ok()?;
    let stored = parts.metadata.bytes().ok()?;
    let mut metadata = Vec::with_capacity(stored.len() + 24);
    for field in Fields::of(stored) {
        let field = field.ok()?;
        if field.number != object_meta::RESOURCE_VERSION {
            metadata.extend_from_slice(&stored[field.at]);
        }
    }
    write_bytes(
        object_meta::RESOURCE_VERSION,
        version.as_bytes(),
        &mut metadata,
    );
    let at = &parts.metadata.at;
    let mut raw = Vec::with_capacity(parts.raw.len() + 24);
    raw.extend_from_slice(&parts.raw[..at.start]);
    write_bytes(METADATA, &metadata, &mut raw);
    raw.extend_from_slice(&parts.raw[at.end..]);
    let mut out = Vec::with_capacity(value.len() + 32);
    write_envelope(parts.type_meta, &raw, &mut out);
    Some(out)
}

#[cfg(test)]
mod tests;
