//! Selectors: which objects a list or a watch wants (WC-353, WC-354).

mod field;
mod label;

pub use field::{FieldRequirement, FieldSelector};
pub use label::{LabelOp, LabelRequirement, LabelSelector};

use crate::api::keys::Span;
use crate::api::status::RequestError;
use crate::encode::kind::Kind;
use crate::encode::object::Entry;

/// Which objects are wanted: those that pass both. The default wants everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// What their labels must say.
    pub labels: LabelSelector,
    /// What their fields must say.
    pub fields: FieldSelector,
}

impl Selector {
    /// Reads both selectors as clients write them.
    ///
    /// # Errors
    /// 400 if one cannot be read.
    ///
    /// ```
    /// use revstore_watch_cache::Selector;
    /// let selector = Selector::parse("app in (web, api),!old", "metadata.name!=a")?;
    /// assert!(!selector.is_empty());
    /// assert!(Selector::parse("app in (web", "").is_err());
    /// # Ok::<(), revstore_watch_cache::RequestError>(())
    /// ```
    pub fn parse(labels: &str, fields: &str) -> Result<Self, RequestError> {
        Ok(Self {
            labels: LabelSelector::parse(labels)?,
            fields: FieldSelector::parse(fields)?,
        })
    }

    /// Whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.labels.requirements.is_empty() && self.fields.requirements.is_empty()
    }
}

/// A place where an object keeps a selectable field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldPlace {
    Name,
    Namespace,
    /// In the order of [`Kind::fields`].
    Extra(usize),
}

impl FieldPlace {
    /// Where objects of a kind keep a field.
    ///
    /// # Errors
    /// 400 if it is none of theirs (WC-354).
    pub(crate) fn of(field: &str, kind: &dyn Kind) -> Result<Self, RequestError> {
        match field {
            "metadata.name" => Ok(Self::Name),
            "metadata.namespace" => Ok(Self::Namespace),
            field => {
                let at = kind.fields().iter().position(|known| known == field);
                at.map(Self::Extra).ok_or_else(|| {
                    RequestError::BadRequest(format!("field label not supported: {field}"))
                })
            }
        }
    }
}

/// Everything that decides whether an object is wanted: keys, labels, fields (WC-122).
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) span: Span,
    labels: Box<[LabelRequirement]>,
    fields: Box<[(FieldPlace, FieldRequirement)]>,
}

impl Filter {
    pub(crate) fn new(
        span: Span,
        selector: &Selector,
        kind: &dyn Kind,
    ) -> Result<Self, RequestError> {
        let place = |requirement: &FieldRequirement| {
            let place = FieldPlace::of(&requirement.field, kind)?;
            Ok((place, requirement.clone()))
        };
        let fields: Result<Vec<_>, RequestError> =
            selector.fields.requirements.iter().map(place).collect();
        Ok(Self {
            span,
            labels: selector.labels.requirements.clone().into(),
            fields: fields?.into(),
        })
    }

    /// Whether nothing but the keys decides.
    pub(crate) fn selects_by_key_alone(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn passes(&self, entry: &Entry) -> bool {
        self.span.contains(entry.key())
            && self
                .fields
                .iter()
                .all(|(place, requirement)| requirement.holds(entry.field(*place)))
            && self
                .labels
                .iter()
                .all(|requirement| requirement.holds(entry.label(&requirement.key)))
    }

    /// The value that a field must have, if the selector says so.
    pub(crate) fn wanted_field(&self, place: FieldPlace) -> Option<&str> {
        self.fields
            .iter()
            .find(|(at, requirement)| *at == place && requirement.equal)
            .map(|(_, requirement)| requirement.value.as_str())
    }

    /// The value that a label must have, if the selector says so.
    pub(crate) fn wanted_label(&self, key: &str) -> Option<&str> {
        self.labels
            .iter()
            .filter(|requirement| requirement.key == key)
            .find_map(|requirement| match &requirement.op {
                LabelOp::In(values) if values.len() == 1 => Some(values[0].as_str()),
                _ => None,
            })
    }
}
