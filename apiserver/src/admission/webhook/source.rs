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
    configurations: Vec<Configuration>,
    /// The webhooks of all of them.
    hooks: Arc<Vec<Arc<Hook>>>,
}

/// One version of a configuration.
#[derive(Clone, Debug)]
struct Configuration {
    name: String,
    revision: Revision,
    hooks: Vec<Arc<Hook>>,
}

impl Configuration {
    fn is_of(&self, object: &Object) -> bool {
        self.name == object.name() && self.revision == object.mod_revision()
    }

    fn read(object: &Object) -> Self {
        let value = serde_json::from_slice(object.value()).unwrap_or_default();
        Self {
            name: object.name().to_owned(),
            revision: object.mod_revision(),
            hooks: Hook::all_of(&value).into_iter().map(Arc::new).collect(),
        }
    }
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
    ) -> Result<Arc<Vec<Arc<Hook>>>, RequestError> {
        let Some(stored) = self.stored(request) else {
            return Ok(Arc::default());
        };
        let options = ListOptions::default().resource_version("0");
        let list = stored.cache.list(&Scope::All, &options).await?;
        // What cannot be read configures nothing, and does not keep the rest from it.
        let objects: Vec<Object> = list.items.readable().collect::<Result<_, _>>()?;
        let known = self.known.lock().clone();
        if objects.len() == known.configurations.len()
            && objects
                .iter()
                .zip(&known.configurations)
                .all(|(object, configuration)| configuration.is_of(object))
        {
            return Ok(known.hooks.clone());
        }
        let configurations = objects.iter().map(|object| {
            // Those that have not changed keep what is compiled. Both lists are in the order of the names.
            let known = &known.configurations;
            let index = known.binary_search_by(|known| known.name.as_str().cmp(object.name()));
            let known = index.ok().and_then(|index| known.get(index));
            known
                .filter(|known| known.is_of(object))
                .cloned()
                .unwrap_or_else(|| Configuration::read(object))
        });
        let configurations: Vec<_> = configurations.collect();
        let hooks = configurations
            .iter()
            .flat_map(|configuration| configuration.hooks.iter().cloned());
        let hooks: Arc<Vec<_>> = Arc::new(hooks.collect());
        *self.known.lock() = Arc::new(Known {
            configurations,
            hooks: hooks.clone(),
        });
        Ok(hooks)
    }
}
