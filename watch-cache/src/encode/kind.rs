//! The trait [`Kind`], which reads the bytes of one kind of objects.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use crate::encode::form::Form;

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

/// A kind of objects: extracts attributes from stored bytes. The cache itself does not interpret the
/// bytes. A [`Form`] writes them for clients.
///
/// ```
/// use std::sync::Arc;
/// use revstore_watch_cache::encode::{Attributes, DecodeError, Form, JsonForm, Kind};
///
/// /// Objects that are JSON strings, with their first word as the label `first`.
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
///         let text = text.trim_matches('"');
///         let first = text.split(' ').next().unwrap_or_default();
///         Ok(Attributes { labels: vec![("first".into(), first.into())], ..Attributes::default() })
///     }
///     fn form(&self) -> Arc<dyn Form> {
///         Arc::new(JsonForm::new(self.api_version(), self.kind()))
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
    /// requests that must read or match it fail with
    /// [`RequestError::Corrupt`](crate::RequestError::Corrupt) or
    /// [`RequestError::CorruptList`](crate::RequestError::CorruptList).
    // T-34.
    fn extract(&self, value: &[u8]) -> Result<Attributes, DecodeError>;

    /// Returns the form in which objects are written for clients that request no other one.
    fn form(&self) -> Arc<dyn Form>;
}

/// Returns the bytes that `write` writes into a new buffer.
pub(crate) fn encoded_with(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    write(&mut out);
    // The window accounts for the length, so the capacity must not be larger.
    out.shrink_to_fit();
    out.into()
}
