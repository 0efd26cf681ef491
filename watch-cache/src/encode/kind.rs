//! The trait [`Kind`], which reads and writes the bytes of one kind of objects.

use std::fmt;

use bytes::Bytes;
use revstore_engine::Revision;
use thiserror::Error;

use crate::api::event::EventType;
use crate::api::status::RequestError;
use crate::encode::object::StoredObject;

/// The attributes that are extracted from an object when it is decoded, and kept with its bytes.
// WC-141.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The uid, which distinguishes objects of the same name that were created one after the other.
    /// Empty if objects of this kind have no uid.
    // WC-352.
    pub uid: Box<str>,
    /// The labels, which label selectors match.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// The values of the selectable fields, in the order of [`Kind::fields`].
    pub fields: Vec<Option<Box<str>>>,
    /// The bytes of the value to replace by the resource version when the object is written.
    pub resource_version_span: Option<ResourceVersionSpan>,
}

/// The byte range of a stored value that is replaced by the resource version when the object is
/// written. The resource version is not stored.
// WC-202.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceVersionSpan {
    /// The offset of the first byte to replace.
    pub start: u32,
    /// The offset after the last byte to replace. Equal to `start` if the resource version is
    /// inserted and replaces nothing.
    pub end: u32,
    /// Whether a comma must follow the inserted field.
    pub needs_comma: bool,
}

/// The error of a [`Kind`] that cannot decode a value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unable to decode an object: {0}")]
pub struct DecodeError(pub String);

/// A watch event without an object: a bookmark or an error.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ControlEvent<'a> {
    /// All events up to a revision were delivered.
    // WC-321, WC-325.
    Bookmark {
        /// The revision.
        revision: Revision,
        /// Whether the bookmark follows the last initial event.
        initial_events_end: bool,
    },
    /// The watch ends with this error.
    // WC-335.
    Error(&'a RequestError),
}

/// A kind of objects: extracts attributes from stored bytes, and writes objects and events for
/// clients. The cache itself does not interpret the bytes.
///
/// ```
/// use revstore_watch_cache::encode::{Attributes, ControlEvent, DecodeError, Kind, StoredObject};
/// use revstore_watch_cache::{EventType, Revision};
///
/// /// Objects that are plain text, with their first word as the label `first`.
/// #[derive(Debug)]
/// struct Text;
///
/// impl Kind for Text {
///     fn api_version(&self) -> &str {
///         "example.org/v1"
///     }
///     fn kind(&self) -> &str {
///         "Text"
///     }
///     fn extract(&self, value: &[u8]) -> Result<Attributes, DecodeError> {
///         let text = std::str::from_utf8(value).map_err(|error| DecodeError(error.to_string()))?;
///         let first = text.split(' ').next().unwrap_or_default();
///         Ok(Attributes { labels: vec![("first".into(), first.into())], ..Attributes::default() })
///     }
///     fn write_object(&self, object: &StoredObject, _: Revision, out: &mut Vec<u8>) {
///         out.extend_from_slice(object.value());
///     }
///     fn write_event(&self, _: EventType, object: &StoredObject, at: Revision, out: &mut Vec<u8>) {
///         self.write_object(object, at, out);
///         out.push(b'\n');
///     }
///     fn write_control_event(&self, event: ControlEvent<'_>, out: &mut Vec<u8>) {
///         out.extend_from_slice(format!("{event:?}\n").as_bytes());
///     }
/// }
/// ```
pub trait Kind: fmt::Debug + Send + Sync + 'static {
    /// Returns the API version, `<group>/<version>`, or `<version>` for the core group. Clients
    /// require it in every object, bookmarks included.
    // WC-320.
    fn api_version(&self) -> &str;

    /// Returns the name of the kind, such as `Pod`. Clients require it in every object, bookmarks
    /// included.
    // WC-320.
    fn kind(&self) -> &str;

    /// Returns the API group: the part of the API version before the slash. Empty for the core
    /// group.
    fn group(&self) -> &str {
        self.api_version()
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// Returns the paths of the selectable fields, without `metadata.name` and `metadata.namespace`,
    /// which come from the key.
    // WC-354.
    fn fields(&self) -> &[String] {
        &[]
    }

    /// Extracts the attributes of a stored value.
    ///
    /// # Errors
    /// [`DecodeError`] if the value is not an object of this kind. The cache keeps such a value, and
    /// requests that must read or match it fail with [`RequestError::Corrupt`] or
    /// [`RequestError::CorruptList`].
    // T-34.
    fn extract(&self, value: &[u8]) -> Result<Attributes, DecodeError>;

    /// Writes an object with the given resource version.
    fn write_object(&self, object: &StoredObject, revision: Revision, out: &mut Vec<u8>);

    /// Writes a complete watch event of an object. The result is kept and sent to all watchers, so
    /// it must depend on the arguments only.
    // WC-142.
    fn write_event(
        &self,
        event: EventType,
        object: &StoredObject,
        revision: Revision,
        out: &mut Vec<u8>,
    );

    /// Writes a complete bookmark or error event.
    fn write_control_event(&self, event: ControlEvent<'_>, out: &mut Vec<u8>);
}

/// Returns the bytes that `write` writes into a new buffer.
pub(crate) fn encoded_with(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    write(&mut out);
    // The window accounts for the length, so the capacity must not be larger.
    out.shrink_to_fit();
    out.into()
}
