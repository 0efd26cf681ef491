//! What the cache must know about its objects: very little.

use std::fmt;

use bytes::Bytes;
use revstore_engine::Revision;
use thiserror::Error;

use crate::api::event::EventType;
use crate::encode::object::Entry;

/// What is read out of an object when it is loaded, and kept beside its bytes (WC-141).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Tells two lives of one name apart (WC-352); empty if objects have none.
    pub uid: Box<str>,
    /// What label selectors see.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// What field selectors see, in the order of [`Kind::fields`].
    pub fields: Vec<Option<Box<str>>>,
    /// Where the resource version belongs in the stored bytes: what to replace.
    pub splice: Option<Splice>,
}

/// The place of the resource version in stored bytes, which carry none themselves (WC-202).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splice {
    /// The first byte to replace.
    pub start: u32,
    /// The byte behind the last to replace; the same as `start` if nothing is.
    pub end: u32,
    /// Whether a separator must follow.
    pub followed: bool,
}

/// Bytes that are no object of their kind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unable to decode an object: {0}")]
pub struct Undecodable(pub String);

/// What events are about when they carry no object of the store.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// Everything up to the revision was sent (WC-321).
    Bookmark {
        /// How far.
        revision: Revision,
        /// Whether the initial events end here (WC-325).
        initial_events_end: bool,
    },
    /// The watch ends for this reason (WC-335).
    Error(&'a crate::api::status::RequestError),
}

/// A kind of objects: how to read what selectors need out of their bytes, and how to write them to
/// clients. The cache itself never looks into the bytes.
///
/// ```
/// use revstore_watch_cache::{Attributes, Entry, EventType, Kind, Revision, Notice, Undecodable};
///
/// /// Objects that are just text, with their first word as the label `first`.
/// #[derive(Debug)]
/// struct Text;
///
/// impl Kind for Text {
///     fn extract(&self, value: &[u8]) -> Result<Attributes, Undecodable> {
///         let text = std::str::from_utf8(value).map_err(|error| Undecodable(error.to_string()))?;
///         let first = text.split(' ').next().unwrap_or_default();
///         Ok(Attributes { labels: vec![("first".into(), first.into())], ..Attributes::default() })
///     }
///     fn write_object(&self, entry: &Entry, _: Revision, out: &mut Vec<u8>) {
///         out.extend_from_slice(entry.value());
///     }
///     fn write_event(&self, _: EventType, entry: &Entry, at: Revision, out: &mut Vec<u8>) {
///         self.write_object(entry, at, out);
///         out.push(b'\n');
///     }
///     fn write_notice(&self, notice: Notice<'_>, out: &mut Vec<u8>) {
///         out.extend_from_slice(format!("{notice:?}\n").as_bytes());
///     }
/// }
/// ```
pub trait Kind: fmt::Debug + Send + Sync + 'static {
    /// The selectable fields besides `metadata.name` and `metadata.namespace`, which come from the
    /// key (WC-354).
    fn fields(&self) -> &[String] {
        &[]
    }

    /// Reads what selectors need.
    ///
    /// # Errors
    /// If the bytes are no object of this kind. The cache keeps them, and answers with an error
    /// whatever would have to look at them (T-34).
    fn extract(&self, value: &[u8]) -> Result<Attributes, Undecodable>;

    /// Writes an object as clients see it at a revision.
    fn write_object(&self, entry: &Entry, revision: Revision, out: &mut Vec<u8>);

    /// Writes one event with its object, frame and all. The outcome is kept and shared by all
    /// watchers (WC-142), so it must depend on nothing else.
    fn write_event(&self, event: EventType, entry: &Entry, revision: Revision, out: &mut Vec<u8>);

    /// Writes an event without an object of the store.
    fn write_notice(&self, notice: Notice<'_>, out: &mut Vec<u8>);
}

/// Writes with `write` into fresh memory.
pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    write(&mut out);
    // The length is what the window accounts for.
    out.shrink_to_fit();
    out.into()
}
