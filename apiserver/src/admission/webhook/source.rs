//! The webhooks of all configurations in the store.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use revstore_watch_cache::{ListOptions, Object, RequestError, Revision, Scope};

use super::GROUP;
use super::hook::Hook;
use crate::admission::Attributes;
use crate::catalog::Stored;

/// The webhooks of the configurations of one kind. They are read from the watch cache, and kept until a configuration
/// changes.
#[derive(Debug)]
pub(super) struct Source {
    plural: &'static str,
    stored: OnceLock<Option<Arc<Stored>>>,
    // A leaf lock, held to copy or to replace the pointer.
    known: Mutex<Arc<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// The names and revisions of the configurations.
    configurations: Vec<(String, Revision)>,
    hooks: Arc<Vec<Hook>>,
}

impl Source {
    pub(super) fn new(plural: &'static str) -> Self {
        Self {
            plural,
            stored: OnceLock::new(),
            known: Mutex::default(),
        }
    }

    fn stored(&self, request: &Attributes<'_>) -> Option<&Stored> {
        let find = || {
            let resource = request.front.catalog.find(GROUP, "v1", self.plural).ok()?;
            resource.stored.clone()
        };
        // Built-in resources never change.
        self.stored.get_or_init(find).as_deref()
    }

    /// Returns whether there are no configurations.
    pub(super) fn is_empty(&self, request: &Attributes<'_>) -> bool {
        let stored = self.stored(request);
        stored.is_none_or(|stored| stored.cache.object_count() == 0)
    }

    /// Returns the webhooks in the order in which they are called: by the names of their configurations.
    ///
    /// # Errors
    /// The cache does not answer.
    pub(super) async fn hooks(
        &self,
        request: &Attributes<'_>,
    ) -> Result<Arc<Vec<Hook>>, RequestError> {
        let Some(stored) = self.stored(request) else {
            return Ok(Arc::default());
        };
        let options = ListOptions::default().resource_version("0");
        let list = stored.cache.list(&Scope::All, &options).await?;
        // What cannot be read configures nothing, and does not keep the rest from it.
        let objects: Vec<Object> = list.items.readable().collect::<Result<_, _>>()?;
        let known = self.known.lock().clone();
        let is_same = |(object, (name, revision)): (&Object, &(String, Revision))| {
            object.name() == name && object.mod_revision() == *revision
        };
        if objects.len() == known.configurations.len()
            && objects.iter().zip(&known.configurations).all(is_same)
        {
            return Ok(known.hooks.clone());
        }
        let hooks = objects.iter().flat_map(|object| {
            let value = serde_json::from_slice(object.value()).unwrap_or_default();
            Hook::all_of(&value)
        });
        let hooks: Arc<Vec<Hook>> = Arc::new(hooks.collect());
        let configurations = objects.iter();
        let configurations =
            configurations.map(|object| (object.name().to_owned(), object.mod_revision()));
        *self.known.lock() = Arc::new(Known {
            configurations: configurations.collect(),
            hooks: hooks.clone(),
        });
        Ok(hooks)
    }
}
