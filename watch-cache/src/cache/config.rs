//! The configuration of one resource: keys, kind, window, indexes.

use std::sync::Arc;

use crate::api::keys::KeyLayout;
use crate::api::status::ResourceName;
use crate::cache::objects::index::Index;
use crate::cache::window::WindowLimits;
use crate::encode::kind::Kind;
use crate::encode::object::Reader;

/// A resource type: where it lies, what it is, how much of its past to keep.
///
/// ```
/// use revstore_watch_cache::{Index, JsonKind, ResourceConfig};
/// let pods = ResourceConfig::namespaced("", "pods", "/registry/pods")
///     .kind(JsonKind::new("v1", "Pod").with_fields(["spec.nodeName"]))
///     .index(Index::Field("spec.nodeName".into()));
/// # let _ = pods;
/// ```
#[derive(Clone, Debug)]
pub struct ResourceConfig {
    pub(crate) name: ResourceName,
    pub(crate) layout: KeyLayout,
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) window: WindowLimits,
    pub(crate) indexes: Vec<Index>,
}

impl ResourceConfig {
    /// A resource whose objects live in namespaces, under `prefix` in the store. Its objects are
    /// JSON of kind `plural` unless [`ResourceConfig::kind`] says otherwise.
    pub fn namespaced(group: &str, plural: &str, prefix: &str) -> Self {
        Self::new(group, plural, KeyLayout::namespaced(prefix))
    }

    /// A resource whose objects have no namespace.
    pub fn cluster(group: &str, plural: &str, prefix: &str) -> Self {
        Self::new(group, plural, KeyLayout::cluster(prefix))
    }

    fn new(group: &str, plural: &str, layout: KeyLayout) -> Self {
        Self {
            name: ResourceName::new(group, plural),
            layout,
            kind: Arc::new(crate::encode::json::JsonKind::new("v1", plural)),
            window: WindowLimits::default(),
            indexes: Vec::new(),
        }
    }

    /// What the objects are.
    #[must_use]
    pub fn kind(mut self, kind: impl Kind) -> Self {
        self.kind = Arc::new(kind);
        self
    }

    /// How much of the past to keep; see [`WindowLimits`] for the default.
    #[must_use]
    pub fn window(mut self, window: WindowLimits) -> Self {
        self.window = window;
        self
    }

    /// Finds objects, and wakes watchers, by a field or a label too (WC-126). Worth it where most
    /// clients select by one value of it. Costs a second place for each object.
    #[must_use]
    pub fn index(mut self, index: Index) -> Self {
        self.indexes.push(index);
        self
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader {
            kind: self.kind.clone(),
            layout: self.layout.clone(),
        }
    }
}
