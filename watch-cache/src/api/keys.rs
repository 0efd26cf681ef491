//! Keys of objects in the store, `<prefix>/[<namespace>/]<name>`, and scopes of requests.

use bytes::Bytes;
use revstore_engine::KeyRange;

use crate::api::status::RequestError;

/// The key layout of one resource: its prefix, and whether keys contain a namespace.
///
/// ```
/// use revstore_watch_cache::ObjectRef;
/// use revstore_watch_cache::api::KeyLayout;
/// let pods = KeyLayout::namespaced("/registry/pods");
/// let key = pods.key(&ObjectRef::namespaced("ns1", "a"))?;
/// assert_eq!(&key[..], b"/registry/pods/ns1/a");
/// # Ok::<(), revstore_watch_cache::RequestError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLayout {
    /// Ends with a slash, so that `/pods` never matches `/pods2` (WC-112).
    prefix: Bytes,
    namespaced: bool,
}

/// The namespace and the name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// The namespace, or `None` for an object of a cluster-scoped resource.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// The objects of a list or a watch, before the selector is applied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All objects of the resource.
    All,
    /// All objects of one namespace.
    Namespace(String),
    /// One object.
    Object(ObjectRef),
}

impl ObjectRef {
    /// Returns the reference of an object in a namespace.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }

    /// Returns the reference of an object of a cluster-scoped resource.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self {
            namespace: None,
            name: name.into(),
        }
    }
}

/// The keys from `start` (inclusive) to `end` (exclusive).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySpan {
    pub(crate) start: Bytes,
    pub(crate) end: Bytes,
}

impl KeySpan {
    /// Returns the range of one key.
    pub(crate) fn one(key: &Bytes) -> Self {
        Self {
            start: key.clone(),
            end: after(key),
        }
    }

    /// Returns the range of the keys with a prefix that ends with a slash.
    fn below(prefix: &Bytes) -> Self {
        let mut end = prefix.to_vec();
        if let Some(last) = end.last_mut() {
            // The prefix ends with a slash. The end of the range has the next byte value instead.
            *last += 1;
        }
        Self {
            start: prefix.clone(),
            end: end.into(),
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        *self.start <= *key && *key < *self.end
    }

    /// Returns the part of the range from `start` on.
    pub(crate) fn from(&self, start: Bytes) -> Self {
        Self {
            start: start.max(self.start.clone()),
            end: self.end.clone(),
        }
    }

    pub(crate) fn range(&self) -> KeyRange {
        KeyRange::within(self.start.clone(), self.end.clone())
    }
}

/// Returns the smallest key greater than `key`.
pub(crate) fn after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

impl KeyLayout {
    /// Returns the layout of a namespaced resource.
    pub fn namespaced(prefix: impl AsRef<str>) -> Self {
        Self::new(prefix.as_ref(), true)
    }

    /// Returns the layout of a cluster-scoped resource.
    pub fn cluster(prefix: impl AsRef<str>) -> Self {
        Self::new(prefix.as_ref(), false)
    }

    fn new(prefix: &str, namespaced: bool) -> Self {
        let mut text = prefix.trim_end_matches('/').to_owned();
        text.push('/');
        Self {
            prefix: text.into(),
            namespaced,
        }
    }

    /// Returns the prefix of all keys of the resource, which ends with a slash.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns whether the resource is namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// Returns the key of an object.
    ///
    /// # Errors
    /// [`RequestError::BadRequest`] if the name or the namespace is not a single path segment, if
    /// the resource is namespaced and the reference has no namespace, or if the resource is
    /// cluster-scoped and the reference has one.
    // T-22.
    pub fn key(&self, object: &ObjectRef) -> Result<Bytes, RequestError> {
        let mut key = self.prefix.to_vec();
        match (&object.namespace, self.namespaced) {
            (Some(namespace), true) => {
                check_segment(namespace)?;
                key.extend_from_slice(namespace.as_bytes());
                key.push(b'/');
            }
            (None, false) => {}
            (Some(_), false) => return Err(invalid_key("the resource has no namespaces")),
            (None, true) => return Err(invalid_key("a namespace is required")),
        }
        check_segment(&object.name)?;
        key.extend_from_slice(object.name.as_bytes());
        Ok(key.into())
    }

    /// Returns the range of all keys of the resource.
    pub(crate) fn span(&self) -> KeySpan {
        KeySpan::below(&self.prefix)
    }

    /// Returns the range of the keys of a scope.
    pub(crate) fn span_of(&self, scope: &Scope) -> Result<KeySpan, RequestError> {
        match scope {
            Scope::All => Ok(self.span()),
            Scope::Namespace(_) => Ok(KeySpan::below(&self.request_prefix(scope)?)),
            Scope::Object(object) => Ok(KeySpan::one(&self.key(object)?)),
        }
    }

    /// Returns the key prefix to which the continue tokens of a request are relative (WC-228).
    pub(crate) fn request_prefix(&self, scope: &Scope) -> Result<Bytes, RequestError> {
        let namespace = match scope {
            Scope::All => None,
            Scope::Namespace(namespace) => Some(namespace),
            Scope::Object(object) => object.namespace.as_ref(),
        };
        let Some(namespace) = namespace else {
            return Ok(self.prefix.clone());
        };
        if !self.namespaced {
            return Err(invalid_key("the resource has no namespaces"));
        }
        check_segment(namespace)?;
        let mut prefix = self.prefix.to_vec();
        prefix.extend_from_slice(namespace.as_bytes());
        prefix.push(b'/');
        Ok(prefix.into())
    }

    /// Returns the offset of the name in a key of the resource: after the namespace, if there is one.
    pub(crate) fn name_offset(&self, key: &[u8]) -> usize {
        let rest = key.get(self.prefix.len()..).unwrap_or_default();
        let slash = rest.iter().position(|byte| *byte == b'/');
        match slash {
            Some(slash) if self.namespaced => self.prefix.len() + slash + 1,
            _ => self.prefix.len().min(key.len()),
        }
    }
}

fn invalid_key(reason: &str) -> RequestError {
    RequestError::BadRequest(format!("invalid key: {reason}"))
}

/// Fails unless `segment` is a single path segment.
fn check_segment(segment: &str) -> Result<(), RequestError> {
    let is_segment = !segment.is_empty()
        && segment != "."
        && segment != ".."
        && !segment.contains(['/', '%', '\0']);
    if is_segment {
        Ok(())
    } else {
        Err(invalid_key(&format!("{segment:?} is not a path segment")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_22_names_that_are_not_path_segments_are_rejected() {
        let pods = KeyLayout::namespaced("/registry/pods/");
        for name in ["", "/", ".", "..", "a/../b", "a%2fb", "a\0"] {
            assert!(
                pods.key(&ObjectRef::namespaced("ns", name)).is_err(),
                "{name:?}"
            );
            assert!(
                pods.key(&ObjectRef::namespaced(name, "a")).is_err(),
                "{name:?}"
            );
        }
        assert!(pods.key(&ObjectRef::cluster("a")).is_err());
        let nodes = KeyLayout::cluster("/registry/nodes");
        assert!(nodes.key(&ObjectRef::namespaced("ns", "a")).is_err());
        assert!(nodes.span_of(&Scope::Namespace("ns".into())).is_err());
    }

    #[test]
    fn wc_112_prefixes_end_at_path_segments() {
        let pods = KeyLayout::namespaced("/pods");
        let ns1 = pods.span_of(&Scope::Namespace("ns1".into())).unwrap();
        assert!(ns1.contains(b"/pods/ns1/a"));
        assert!(!ns1.contains(b"/pods/ns10/a"));
        assert_eq!(pods.name_offset(b"/pods/ns1/a"), 10);
        assert_eq!(KeyLayout::cluster("/nodes").name_offset(b"/nodes/n"), 7);
    }
}
