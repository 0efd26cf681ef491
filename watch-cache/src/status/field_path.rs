//! Paths of fields in objects, as the causes of a [`Status`](crate::status::Status) name them.

use std::fmt::{self, Write as _};

/// The path of a field in an object. Corresponds to `field.Path` of Kubernetes' apimachinery.
///
/// ```
/// use revstore_watch_cache::status::FieldPath;
/// let path = FieldPath::new("spec").child("ports").index(0).child("name");
/// assert_eq!(path.to_string(), "spec.ports[0].name");
/// assert_eq!(FieldPath::new("metadata").child("labels").key("app").to_string(), "metadata.labels[app]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath(String);

impl FieldPath {
    /// Returns the path of a field of the object itself.
    pub fn new(field: impl Into<String>) -> Self {
        Self(field.into())
    }

    /// Returns the path of a field of the object at this path.
    #[must_use]
    pub fn child(mut self, field: &str) -> Self {
        self.0.push('.');
        self.0.push_str(field);
        self
    }

    /// Returns the path of an item of the list at this path.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        // Writing to a string does not fail.
        let _ = write!(self.0, "[{index}]");
        self
    }

    /// Returns the path of an entry of the map at this path.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        let _ = write!(self.0, "[{key}]");
        self
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<FieldPath> for String {
    fn from(path: FieldPath) -> Self {
        path.0
    }
}

impl From<&str> for FieldPath {
    fn from(path: &str) -> Self {
        Self(path.to_owned())
    }
}
