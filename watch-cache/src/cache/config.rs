//! The configuration of one resource: keys, kind, window, indexes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::keys::KeyLayout;
use crate::cache::objects::index::ObjectIndex;
use crate::cache::window::WindowLimits;
use crate::encode::form::{Form, FormId};
use crate::encode::kind::Kind;
use crate::encode::object::ObjectDecoder;
use crate::status::ResourceName;

/// The configuration of one resource: its name, the prefix of its keys, the kind of its objects, the
/// limits of its window and its indexes.
///
/// ```
/// use revstore_watch_cache::{JsonKind, ResourceConfig};
/// use revstore_watch_cache::cache::ObjectIndex;
/// let kind = JsonKind::new("v1", "Pod").with_fields(["spec.nodeName"]);
/// let pods = ResourceConfig::namespaced(kind, "pods", "/registry/pods")
///     .index(ObjectIndex::Field("spec.nodeName".into()));
/// # let _ = pods;
/// ```
#[derive(Clone, Debug)]
pub struct ResourceConfig {
    pub(crate) name: Arc<ResourceName>,
    pub(crate) layout: KeyLayout,
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) window: WindowLimits,
    pub(crate) indexes: Vec<ObjectIndex>,
    pub(crate) forms: BTreeMap<FormId, Arc<dyn Form>>,
}

impl ResourceConfig {
    /// Returns the configuration of a namespaced resource, whose keys are
    /// `<prefix>/<namespace>/<name>`. `kind` reads stored bytes; its group is that of the resource.
    pub fn namespaced(kind: impl Kind, plural: &str, prefix: &str) -> Self {
        Self::new(kind, plural, KeyLayout::namespaced(prefix))
    }

    /// Returns the configuration of a cluster-scoped resource, whose keys are `<prefix>/<name>`;
    /// see [`ResourceConfig::namespaced`].
    pub fn cluster(kind: impl Kind, plural: &str, prefix: &str) -> Self {
        Self::new(kind, plural, KeyLayout::cluster(prefix))
    }

    fn new(kind: impl Kind, plural: &str, layout: KeyLayout) -> Self {
        Self {
            name: Arc::new(ResourceName::new(kind.group(), plural)),
            layout,
            kind: Arc::new(kind),
            window: WindowLimits::default(),
            indexes: Vec::new(),
            forms: BTreeMap::new(),
        }
    }

    /// Sets the limits of the window of recent events; see [`WindowLimits`] for the default.
    #[must_use]
    pub fn window(mut self, window: WindowLimits) -> Self {
        self.window = window;
        self
    }

    /// Adds an index by a field or a label. Lists without a limit that require one value of it read
    /// only the objects with that value, and watchers that require one value of it are woken only for
    /// events of such objects. Use it where most clients select by one value, such as the
    /// `spec.nodeName` of a pod. Each index costs one more tree item per object.
    // WC-126.
    #[must_use]
    pub fn index(mut self, index: ObjectIndex) -> Self {
        self.indexes.push(index);
        self
    }

    /// Adds a form in which objects are written for clients. With [`FormId::DEFAULT`] it replaces the
    /// form of the kind. See also [`ResourceCache::set_form`](crate::ResourceCache::set_form).
    #[must_use]
    pub fn form(mut self, id: FormId, form: Arc<dyn Form>) -> Self {
        self.forms.insert(id, form);
        self
    }

    pub(crate) fn decoder(&self) -> ObjectDecoder {
        ObjectDecoder {
            resource: self.name.clone(),
            kind: self.kind.clone(),
            layout: self.layout.clone(),
        }
    }
}
