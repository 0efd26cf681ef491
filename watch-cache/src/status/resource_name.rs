//! The names of resources and kinds in errors.

use std::fmt;

/// The name of a resource in errors: `<plural>.<group>`, or `<plural>` for the core group. Errors about
/// the fields of an object name its kind in the same form.
///
/// ```
/// use revstore_watch_cache::status::ResourceName;
/// assert_eq!(ResourceName::new("", "pods").to_string(), "pods");
/// assert_eq!(ResourceName::new("apps", "deployments").to_string(), "deployments.apps");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceName {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name, or the kind.
    pub plural: String,
}

impl ResourceName {
    /// Returns the name of the resource `plural` of the API group `group`.
    pub fn new(group: impl Into<String>, plural: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            plural: plural.into(),
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}
