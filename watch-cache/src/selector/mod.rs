//! Label and field selectors as in Kubernetes, and the filter that they are resolved into for the
//! objects of one resource.

mod field;
mod filter;
mod label;

pub use field::{FieldRequirement, FieldSelector};
pub(crate) use filter::{ObjectFilter, ResolvedField};
pub use label::{LabelOperator, LabelRequirement, LabelSelector};

use crate::api::status::RequestError;

/// A selector: the objects that match both the label selector and the field selector. The default
/// matches all objects.
// WC-353, WC-354.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The label selector.
    pub labels: LabelSelector,
    /// The field selector.
    pub fields: FieldSelector,
}

impl Selector {
    /// Parses a label selector and a field selector; an empty text matches all objects.
    ///
    /// # Errors
    /// [`RequestError::BadRequest`] if one of them is not a valid selector.
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

    /// Returns whether the selector has no requirements, so that it matches all objects.
    pub fn is_empty(&self) -> bool {
        self.labels.requirements.is_empty() && self.fields.requirements.is_empty()
    }
}
