//! Filters: a scope and a selector, resolved for the objects of one resource.

use std::sync::Arc;

use crate::api::corrupt::CorruptObject;
use crate::api::keys::KeySpan;
use crate::api::status::RequestError;
use crate::encode::kind::Kind;
use crate::encode::object::{ObjectDecoder, StoredObject};
use crate::selector::{FieldRequirement, LabelOperator, LabelRequirement, Selector};
use crate::status::ResourceName;

/// The location of a selectable field in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedField {
    Name,
    Namespace,
    /// A field of the kind, by its position in [`Kind::fields`].
    Selectable(usize),
}

impl ResolvedField {
    /// Returns the location of a field in objects of a kind.
    ///
    /// # Errors
    /// [`RequestError::BadRequest`] if the kind does not have the field (WC-354).
    pub(crate) fn of(field: &str, kind: &dyn Kind) -> Result<Self, RequestError> {
        match field {
            "metadata.name" => Ok(Self::Name),
            "metadata.namespace" => Ok(Self::Namespace),
            field => {
                let position = kind.fields().iter().position(|known| known == field);
                position.map(Self::Selectable).ok_or_else(|| {
                    RequestError::BadRequest(format!("field label not supported: {field}"))
                })
            }
        }
    }
}

/// The filter of a list or a watch: a range of keys, label requirements and field requirements
/// (WC-122).
#[derive(Clone, Debug)]
pub(crate) struct ObjectFilter {
    resource: Arc<ResourceName>,
    pub(crate) span: KeySpan,
    labels: Box<[LabelRequirement]>,
    fields: Box<[(ResolvedField, FieldRequirement)]>,
}

impl ObjectFilter {
    pub(crate) fn new(
        span: KeySpan,
        selector: &Selector,
        decoder: &ObjectDecoder,
    ) -> Result<Self, RequestError> {
        let kind = &*decoder.kind;
        let resolve = |requirement: &FieldRequirement| {
            let field = ResolvedField::of(&requirement.field, kind)?;
            Ok((field, requirement.clone()))
        };
        let fields: Result<Vec<_>, RequestError> =
            selector.fields.requirements.iter().map(resolve).collect();
        Ok(Self {
            resource: decoder.resource.clone(),
            span,
            labels: selector.labels.requirements.clone().into(),
            fields: fields?.into(),
        })
    }

    /// Returns whether the filter has no label or field requirements.
    pub(crate) fn selects_by_key_only(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn resource(&self) -> &ResourceName {
        &self.resource
    }

    /// Returns whether the filter may match an object with the key of `object`: whether its scope,
    /// its name and its namespace match, which are known without decoding the object.
    pub(crate) fn matches_key(&self, object: &StoredObject) -> bool {
        let matches = |(field, requirement): &(ResolvedField, FieldRequirement)| match field {
            ResolvedField::Name | ResolvedField::Namespace => {
                requirement.matches(object.field(*field))
            }
            ResolvedField::Selectable(_) => true,
        };
        self.span.contains(object.key()) && self.fields.iter().all(matches)
    }

    /// Returns whether the filter matches an object. Fails if the filter may match it and the object
    /// cannot be decoded (T-34).
    pub(crate) fn decide(&self, object: &StoredObject) -> Result<bool, CorruptObject> {
        match object.corruption() {
            None => Ok(self.matches(object)),
            Some(corrupt) if self.matches_key(object) => Err(corrupt),
            Some(_) => Ok(false),
        }
    }

    /// Returns whether the filter matches a decoded object.
    pub(crate) fn matches(&self, object: &StoredObject) -> bool {
        self.span.contains(object.key())
            && self
                .fields
                .iter()
                .all(|(field, requirement)| requirement.matches(object.field(*field)))
            && self
                .labels
                .iter()
                .all(|requirement| requirement.matches(object.label(&requirement.key)))
    }

    /// Returns the one value that the filter requires of a field, if it requires one.
    pub(crate) fn required_field(&self, field: ResolvedField) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, requirement)| *known == field && requirement.equal)
            .map(|(_, requirement)| requirement.value.as_str())
    }

    /// Returns the one value that the filter requires of a label, if it requires one.
    pub(crate) fn required_label(&self, key: &str) -> Option<&str> {
        self.labels
            .iter()
            .filter(|requirement| requirement.key == key)
            .find_map(|requirement| match &requirement.operator {
                LabelOperator::In(values) if values.len() == 1 => Some(values[0].as_str()),
                _ => None,
            })
    }
}
