//! Objects: stored bytes, and the attributes that were extracted from them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use revstore_engine::Revision;
use serde::Deserialize;

use crate::api::corrupt::CorruptObject;
use crate::api::keys::{KeyLayout, ObjectRef};
use crate::cache::objects::tree::Item;
use crate::encode::kind::{Attributes, DecodeError, Kind, ResourceVersionSpan};
use crate::selector::ResolvedField;
use crate::source::StoredKeyValue;
use crate::status::ResourceName;

/// The approximate memory of an object in bytes without its key and value: the struct, its labels and
/// fields, and its items in the trees.
pub(crate) const OBJECT_OVERHEAD_BYTES: usize = 320;

/// One version of an object: its key, its stored bytes and its attributes. Immutable and shared
/// behind an `Arc`. Corresponds to Kubernetes' `storeElement`.
///
/// It keeps the stored bytes instead of a decoded object. With an in-process source it shares them
/// with the engine.
// WC-141, WC-148.
pub struct StoredObject {
    kv: StoredKeyValue,
    /// The length of the resource's prefix in the key.
    prefix_len: usize,
    /// The offset of the name in the key.
    name_offset: usize,
    attributes: Result<Attributes, DecodeError>,
}

impl StoredObject {
    pub(crate) fn decode(stored: StoredKeyValue, kind: &dyn Kind, layout: &KeyLayout) -> Self {
        Self {
            prefix_len: layout.prefix().len().min(stored.key.len()),
            name_offset: layout.name_offset(&stored.key),
            attributes: attributes(&stored.value, kind),
            kv: stored,
        }
    }

    fn with_value(&self, value: Bytes, kind: &dyn Kind) -> Self {
        Self {
            prefix_len: self.prefix_len,
            name_offset: self.name_offset,
            attributes: attributes(&value, kind),
            kv: StoredKeyValue {
                value,
                ..self.kv.clone()
            },
        }
    }

    /// Writes the JSON of the object with the resource version `revision`, on one line, without the first `from` bytes of
    /// the stored value, which end before its metadata.
    pub(crate) fn write_json_from(&self, from: usize, revision: Revision, out: &mut Vec<u8>) {
        let value = self.value();
        let written_from = out.len();
        let span = self
            .attributes()
            .and_then(|attributes| attributes.resource_version_span);
        match span {
            // An object without a version.
            Some(span) if revision == Revision(0) && span.start == span.end => {
                out.extend_from_slice(&value[from..]);
            }
            Some(ResourceVersionSpan {
                start,
                end,
                needs_comma,
            }) => {
                let (start, end) = (start as usize, end as usize);
                out.extend_from_slice(&value[from..start]);
                if start == end {
                    out.extend_from_slice(b"\"resourceVersion\":");
                }
                out.push(b'"');
                out.extend_from_slice(itoa::Buffer::new().format(revision.0).as_bytes());
                out.push(b'"');
                if needs_comma {
                    out.push(b',');
                }
                out.extend_from_slice(&value[end..]);
            }
            None => out.extend_from_slice(&value[from..]),
        }
        // WC-331: an object is written on one line. Line breaks in JSON occur between tokens only, so
        // they can be replaced by spaces. Few objects have any.
        if memchr::memchr2(b'\n', b'\r', value).is_some() {
            for byte in &mut out[written_from..] {
                if matches!(byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
        }
    }

    /// Returns the key in the store.
    pub fn key(&self) -> &[u8] {
        &self.kv.key
    }

    /// Returns the stored bytes, which contain no resource version.
    pub fn value(&self) -> &[u8] {
        &self.kv.value
    }

    /// Returns the stored bytes as a shared buffer.
    pub fn value_bytes(&self) -> Bytes {
        self.kv.value.clone()
    }

    /// Returns the revision that wrote this version.
    pub fn mod_revision(&self) -> Revision {
        self.kv.mod_revision
    }

    /// Returns the revision that created the object.
    pub fn create_revision(&self) -> Revision {
        self.kv.create_revision
    }

    /// Returns the namespace, which is part of the key. Empty if there is none or if it is not UTF-8.
    pub fn namespace(&self) -> &str {
        let end = self.name_offset.saturating_sub(1).max(self.prefix_len);
        let bytes = &self.kv.key[self.prefix_len..end];
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Returns the name, which is part of the key. Empty if it is not UTF-8.
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.kv.key[self.name_offset..]).unwrap_or_default()
    }

    /// Returns the attributes, or `None` if the bytes could not be decoded.
    pub fn attributes(&self) -> Option<&Attributes> {
        self.attributes.as_ref().ok()
    }

    /// Returns the error if the bytes could not be decoded.
    pub fn decode_error(&self) -> Option<&DecodeError> {
        self.attributes.as_ref().err()
    }

    /// Returns what errors say of the object if the bytes could not be decoded.
    pub(crate) fn corruption(&self) -> Option<CorruptObject> {
        self.decode_error().map(|error| CorruptObject {
            key: String::from_utf8_lossy(self.key()).into_owned(),
            revision: self.mod_revision(),
            reason: error.0.clone(),
        })
    }

    /// Returns the uid, or an empty string if there is none.
    pub fn uid(&self) -> &str {
        self.attributes().map_or("", |attributes| &attributes.uid)
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels = &self.attributes()?.labels;
        let position = labels
            .binary_search_by(|(known, _)| (**known).cmp(key))
            .ok()?;
        Some(&labels[position].1)
    }

    pub(crate) fn field(&self, field: ResolvedField) -> Option<&str> {
        match field {
            ResolvedField::Name => Some(self.name()),
            ResolvedField::Namespace => Some(self.namespace()),
            ResolvedField::Selectable(position) => {
                self.attributes()?.fields.get(position)?.as_deref()
            }
        }
    }

    /// Sets the revision at which the object was created, which is that of this version.
    pub(crate) fn set_created(&mut self, revision: Revision) {
        self.kv.create_revision = revision;
        self.kv.mod_revision = revision;
    }

    /// Returns the size of key and value in bytes.
    pub(crate) fn stored_bytes(&self) -> u64 {
        (self.kv.key.len() + self.kv.value.len()) as u64
    }

    /// Returns the approximate memory of the object in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.kv.key.len() + self.kv.value.len() + OBJECT_OVERHEAD_BYTES
    }
}

/// Extracts the attributes and sorts the labels, so that they can be searched.
fn attributes(value: &[u8], kind: &dyn Kind) -> Result<Attributes, DecodeError> {
    kind.extract(value).map(|mut attributes| {
        attributes.labels.sort_unstable();
        attributes.labels.shrink_to_fit();
        attributes
    })
}

impl fmt::Debug for StoredObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredObject")
            .field("key", &self.kv.key)
            .field("mod_revision", &self.kv.mod_revision.0)
            .field("value_len", &self.kv.value.len())
            .finish_non_exhaustive()
    }
}

/// An object in a response to a client: a version of the object, and the resource version to show.
///
/// The shown resource version is the mod revision, except in a `DELETED` event, whose object is the
/// last version with the revision of the deletion.
// WC-351.
///
/// Objects come from a store, or from [`Object::from_parts`] and [`Object::from_json`] for other
/// origins, such as a server on the network.
#[derive(Clone, Debug)]
pub struct Object {
    stored: Arc<StoredObject>,
    revision: Revision,
}

/// The fields of an object that identify one version of it.
#[derive(Deserialize)]
struct Identity {
    metadata: IdentityMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityMetadata {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    resource_version: String,
}

impl Object {
    /// Returns an object that shows its mod revision.
    pub fn new(stored: Arc<StoredObject>) -> Self {
        let revision = stored.mod_revision();
        Self { stored, revision }
    }

    /// Creates an object that is in no store: `value`, which `kind` decodes, with its name and the
    /// revision of its last change. The revision that created it is unknown, and is given as
    /// `revision` too. An object with the revision 0 shows no resource version.
    ///
    /// A value that `kind` cannot decode leads to an object with a
    /// [`decode_error`](StoredObject::decode_error).
    ///
    /// ```
    /// use revstore_watch_cache::{JsonKind, Object, ObjectRef, Revision};
    ///
    /// let pods = JsonKind::new("v1", "Pod");
    /// let value = r#"{"metadata":{"name":"a","labels":{"app":"web"}}}"#;
    /// let pod = Object::from_parts(&ObjectRef::namespaced("ns", "a"), Revision(7), value, &pods);
    /// assert_eq!((pod.store_key().as_str(), pod.revision()), ("ns/a", Revision(7)));
    /// assert_eq!(pod.label("app"), Some("web"));
    /// ```
    pub fn from_parts(
        name: &ObjectRef,
        revision: Revision,
        value: impl Into<Bytes>,
        kind: &dyn Kind,
    ) -> Self {
        let value = value.into();
        let (key, name_offset) = match name.namespace.as_deref() {
            None | Some("") => (name.name.clone(), 0),
            Some(namespace) => (format!("{namespace}/{}", name.name), namespace.len() + 1),
        };
        Self::new(Arc::new(StoredObject {
            prefix_len: 0,
            name_offset,
            attributes: attributes(&value, kind),
            kv: StoredKeyValue {
                key: key.into(),
                value,
                create_revision: revision,
                mod_revision: revision,
            },
        }))
    }

    /// Creates an object from the JSON that an API server sends: its name, its namespace and its
    /// revision are those in `metadata`.
    ///
    /// # Errors
    /// [`DecodeError`] if the value is not such an object, if it has no name, or if its resource
    /// version is not a number, and if `kind` cannot decode it.
    ///
    /// ```
    /// use revstore_watch_cache::{JsonKind, Object};
    ///
    /// let pods = JsonKind::new("v1", "Pod");
    /// let json = r#"{"metadata":{"name":"a","namespace":"ns","resourceVersion":"7"}}"#;
    /// let pod = Object::from_json(json, &pods)?;
    /// assert_eq!((pod.store_key().as_str(), pod.revision().0), ("ns/a", 7));
    /// assert!(Object::from_json(r#"{"metadata":{"name":"a"}}"#, &pods).is_err());
    /// # Ok::<(), revstore_watch_cache::encode::DecodeError>(())
    /// ```
    pub fn from_json(value: impl Into<Bytes>, kind: &dyn Kind) -> Result<Self, DecodeError> {
        let value = value.into();
        let identity: Identity =
            serde_json::from_slice(&value).map_err(|error| DecodeError(error.to_string()))?;
        let IdentityMetadata {
            name,
            namespace,
            resource_version,
        } = identity.metadata;
        if name.is_empty() {
            return Err(DecodeError("`metadata.name` is empty".into()));
        }
        let revision = resource_version.parse().map_err(|_| {
            let text = format!("`metadata.resourceVersion` is not a number: {resource_version:?}");
            DecodeError(text)
        })?;
        let object = Self::from_parts(
            &ObjectRef { namespace, name },
            Revision(revision),
            value,
            kind,
        );
        match object.decode_error() {
            None => Ok(object),
            Some(error) => Err(error.clone()),
        }
    }

    /// Returns the JSON of an object whose kind is JSON, with the shown revision as its resource
    /// version, which stored bytes do not contain.
    ///
    /// ```
    /// use revstore_watch_cache::{JsonKind, Object, ObjectRef, Revision};
    ///
    /// let name = ObjectRef::cluster("a");
    /// let kind = JsonKind::new("v1", "Node");
    /// let node = Object::from_parts(&name, Revision(7), r#"{"metadata":{"name":"a"}}"#, &kind);
    /// assert_eq!(node.to_json(), br#"{"metadata":{"resourceVersion":"7","name":"a"}}"#);
    /// ```
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(self.value().len() + 40);
        self.write_json(&mut json);
        json
    }

    /// Appends the JSON that [`Object::to_json`] returns.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        self.write_json_from(0, out);
    }

    /// Appends the JSON without the first `from` bytes of the stored value, which end before its metadata.
    pub(crate) fn write_json_from(&self, from: usize, out: &mut Vec<u8>) {
        self.stored.write_json_from(from, self.revision, out);
    }

    /// Returns a copy of the object that shows another revision, as the object of a deletion does.
    #[must_use]
    pub fn at_revision(&self, revision: Revision) -> Self {
        Self::shown_at(self.stored.clone(), revision)
    }

    /// Returns an object that shows another revision.
    pub(crate) fn shown_at(stored: Arc<StoredObject>, revision: Revision) -> Self {
        Self { stored, revision }
    }

    /// Returns a copy of the object with another value, which `kind` decodes. Key and revisions stay
    /// the same.
    #[must_use]
    pub fn with_value(&self, value: impl Into<Bytes>, kind: &dyn Kind) -> Self {
        Self {
            stored: Arc::new(self.stored.with_value(value.into(), kind)),
            revision: self.revision,
        }
    }

    /// Returns the resource version to show.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the shared version of the object.
    pub fn stored(&self) -> &Arc<StoredObject> {
        &self.stored
    }

    /// Returns `<namespace>/<name>`, or `<name>` for an object without a namespace.
    // WC-510.
    pub fn store_key(&self) -> String {
        self.store_key_str().to_owned()
    }

    /// Returns [`store_key`](Self::store_key) without a copy: it is the end of the key. Empty if it is
    /// not UTF-8.
    ///
    /// ```
    /// use revstore_watch_cache::{JsonKind, Object, ObjectRef, Revision};
    ///
    /// let name = ObjectRef::namespaced("ns", "a");
    /// let pod = Object::from_parts(&name, Revision(7), "{}", &JsonKind::new("v1", "Pod"));
    /// assert_eq!(pod.store_key_str(), "ns/a");
    /// ```
    pub fn store_key_str(&self) -> &str {
        let start = if self.name_offset <= self.prefix_len + 1 {
            self.name_offset
        } else {
            self.prefix_len
        };
        std::str::from_utf8(&self.kv.key[start..]).unwrap_or_default()
    }
}

impl Deref for Object {
    type Target = StoredObject;
    fn deref(&self) -> &StoredObject {
        &self.stored
    }
}

/// A decoder of stored key-value pairs for one resource.
#[derive(Clone, Debug)]
pub(crate) struct ObjectDecoder {
    pub(crate) resource: Arc<ResourceName>,
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) layout: KeyLayout,
}

impl ObjectDecoder {
    pub(crate) fn decode(&self, stored: StoredKeyValue) -> Arc<StoredObject> {
        Arc::new(StoredObject::decode(stored, &*self.kind, &self.layout))
    }
}

impl Item for Arc<StoredObject> {
    fn key(&self) -> &[u8] {
        StoredObject::key(self)
    }
}
