//! The kind of objects in Kubernetes' protobuf envelope.

mod field;
mod form;
mod wire;

use std::collections::HashMap;
use std::sync::Arc;

pub use self::field::ProtobufField;
pub use self::form::ProtobufForm;
use self::wire::{Field, Fields};
use crate::encode::form::Form;
use crate::encode::kind::{Attributes, DecodeError, Kind};

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
/// declares by field numbers. Stored bytes are kept unchanged.
///
/// Objects are written in the [`ProtobufForm`], not as JSON: a conversion needs the definitions of whole
/// kinds, which this crate does not have.
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

    fn form(&self) -> Arc<dyn Form> {
        Arc::new(ProtobufForm::new(self.api_version(), &self.kind))
    }
}

#[cfg(test)]
mod tests;
