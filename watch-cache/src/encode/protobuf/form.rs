//! The form of objects in Kubernetes' protobuf envelope.

use revstore_engine::Revision;

use super::wire::{Fields, write_bytes, write_length, write_number};
use super::{METADATA, PREFIX, Parts, envelope, object_meta};
use crate::api::event::EventType;
use crate::api::status::RequestError;
use crate::encode::form::{ControlEvent, Form, ListHead};
use crate::encode::object::Object;
use crate::status::{Reason, StatusDetails};

/// Whole objects as kube-apiserver writes the media type `application/vnd.kubernetes.protobuf`: an object
/// in its envelope, and an event, with `;stream=watch`, as a `WatchEvent` with its length in 4 bytes
/// before it. The resource version is inserted.
///
/// The stored bytes must be those of a [`ProtobufKind`](crate::encode::ProtobufKind).
// WC-202, WC-334.
#[derive(Clone, Debug)]
pub struct ProtobufForm {
    api_version: String,
    kind: String,
}

/// The field numbers of lists and of their metadata.
mod list {
    pub(super) const METADATA: u32 = 1;
    pub(super) const ITEMS: u32 = 2;
    pub(super) const RESOURCE_VERSION: u32 = 2;
    pub(super) const CONTINUE: u32 = 3;
    pub(super) const REMAINING_ITEM_COUNT: u32 = 4;
}

impl ProtobufForm {
    /// Returns the form of objects of the kind `kind` of the API version `api_version`, such as `v1` or
    /// `apps/v1`. Lists have the kind with the suffix `List`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
        }
    }
}

impl Form for ProtobufForm {
    fn write_object(&self, object: &Object, out: &mut Vec<u8>) {
        let value = object.value();
        let Some((parts, raw)) = with_resource_version(value, object.revision()) else {
            // An object that cannot be decoded is not sent to clients.
            out.extend_from_slice(value);
            return;
        };
        out.reserve(value.len() + 32);
        write_envelope(parts.type_meta, &raw, out);
    }

    fn write_event(&self, event: EventType, object: &Object, _: bool, out: &mut Vec<u8>) {
        let mut written = Vec::new();
        self.write_object(object, &mut written);
        write_frame(event.as_str(), &written, out);
    }

    fn write_control_event(&self, event: ControlEvent<'_>, _: bool, out: &mut Vec<u8>) {
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
                let type_meta = type_meta(&self.api_version, &self.kind);
                write_envelope(&type_meta, &raw, &mut object);
                write_frame("BOOKMARK", &object, out);
            }
            ControlEvent::Error(error) => write_frame("ERROR", &status(error), out),
        }
    }

    fn write_list_head(&self, list: &ListHead, out: &mut Vec<u8>) {
        let mut metadata = Vec::new();
        let version = list.revision.to_string();
        write_bytes(list::RESOURCE_VERSION, version.as_bytes(), &mut metadata);
        if let Some(token) = &list.continue_token {
            write_bytes(list::CONTINUE, token.as_bytes(), &mut metadata);
        }
        if let Some(count) = list.remaining_item_count {
            write_number(list::REMAINING_ITEM_COUNT, count, &mut metadata);
        }
        let mut raw = Vec::new();
        write_bytes(list::METADATA, &metadata, &mut raw);
        out.extend_from_slice(PREFIX);
        let type_meta = type_meta(&self.api_version, &format!("{}List", self.kind));
        write_bytes(envelope::TYPE_META, &type_meta, out);
        let items = list.items_bytes.unwrap_or_default();
        write_length(envelope::RAW, raw.len() + items, out);
        out.extend_from_slice(&raw);
    }

    fn write_item(&self, object: &Object, out: &mut Vec<u8>) {
        if let Some((_, raw)) = with_resource_version(object.value(), object.revision()) {
            write_bytes(list::ITEMS, &raw, out);
        }
    }

    fn separator(&self) -> &[u8] {
        b""
    }

    fn write_list_tail(&self, _: &ListHead, out: &mut Vec<u8>) {
        write_bytes(envelope::CONTENT_ENCODING, b"", out);
        write_bytes(envelope::CONTENT_TYPE, b"", out);
    }

    fn needs_items_bytes(&self) -> bool {
        true
    }
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

/// Returns the parts of an object, and its bytes with a resource version, or `None` if it cannot be
/// decoded.
fn with_resource_version(value: &[u8], revision: Revision) -> Option<(Parts<'_>, Vec<u8>)> {
    let parts = Parts::of(value).ok()?;
    let stored = parts.metadata.bytes().ok()?;
    let mut metadata = Vec::with_capacity(stored.len() + 24);
    for field in Fields::of(stored) {
        let field = field.ok()?;
        if field.number != object_meta::RESOURCE_VERSION {
            metadata.extend_from_slice(&stored[field.at]);
        }
    }
    let version = revision.to_string();
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
    Some((parts, raw))
}
