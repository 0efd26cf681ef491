//! The resources that the server has at the moment, by group, version and name.

mod autoscaler;
mod builtin;
mod custom;
mod definitions;
mod forms;
mod position;
mod protobuf_form;
mod resource;
mod runtime_config;
mod strategy;
mod versions;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use revstore_watch_cache::RequestError;
use tokio::sync::Notify;

pub(crate) use builtin::add_builtin;
pub(crate) use definitions::{list as all_definitions, serve_definitions};
pub(crate) use forms::{form_id, protobuf_form_id};
pub(crate) use position::{Following, Position};
pub(crate) use resource::{Names, Origin, Resource, Rules, Stored, Subresource};
pub use runtime_config::RuntimeConfig;
pub(crate) use strategy::BuiltinStrategy;
pub(crate) use view::{Convert, Presentation, View};

/// All resources. They change when custom resources are defined.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// Those that are served. Held to copy or to replace the pointer.
    groups: RwLock<Arc<Groups>>,
    /// The built-in ones that [`RuntimeConfig`] turns off. The server itself uses them.
    hidden: OnceLock<Vec<Arc<Resource>>>,
    changed: Notify,
}

/// The groups by their names; the core group has the empty name.
pub(crate) type Groups = BTreeMap<String, Group>;

/// A group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) origin: Origin,
    /// The versions, the preferred one first.
    pub(crate) versions: Vec<Version>,
}

/// A version of a group.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    /// The resources by their plurals.
    pub(crate) resources: BTreeMap<String, Arc<Resource>>,
}

impl Catalog {
    /// Returns all groups, as they are now.
    pub(crate) fn groups(&self) -> Arc<Groups> {
        self.groups.read().clone()
    }

    /// Waits until all resources can be listed and watched.
    ///
    /// # Errors
    /// [`RequestError::Stopped`].
    pub(crate) async fn wait_until_ready(&self) -> Result<(), RequestError> {
        let groups = self.groups();
        let versions = groups.values().flat_map(|group| &group.versions);
        let served = versions.flat_map(|version| version.resources.values());
        let hidden = self.hidden.get().into_iter().flatten();
        for resource in served.chain(hidden) {
            if let Some(stored) = &resource.stored {
                stored.cache.wait_until_ready().await?;
            }
        }
        Ok(())
    }

    /// Changes the groups. Readers see all of the change or nothing of it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Groups)) {
        let mut groups = self.groups.write();
        change(Arc::make_mut(&mut groups));
        drop(groups);
        self.changed.notify_waiters();
    }

    /// Returns what is notified of each change.
    pub(crate) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Returns a resource for the server itself, also one that is not served.
    ///
    /// # Errors
    /// As [`find_served`](Self::find_served).
    pub(crate) fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Result<Arc<Resource>, bool> {
        self.find_served(group, version, plural).or_else(|error| {
            let mut hidden = self.hidden.get().into_iter().flatten();
            let found = hidden.find(|resource| {
                let names = &resource.names;
                [&*names.group, &*names.version, &*names.plural] == [group, version, plural]
            });
            found.cloned().ok_or(error)
        })
    }

    /// Returns a resource that is served.
    ///
    /// # Errors
    /// Whether the answer to the client is a plain text, as for groups that are not built in, instead of a
    /// status.
    // WC-401.
    pub(crate) fn find_served(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Result<Arc<Resource>, bool> {
        let groups = self.groups();
        let Some(group) = groups.get(group) else {
            return Err(!group.is_empty());
        };
        let mut versions = group.versions.iter();
        let version = versions.find(|known| known.name == version);
        let resource = version.and_then(|version| version.resources.get(plural));
        resource.cloned().ok_or(group.origin == Origin::Custom)
    }
}

impl Group {
    /// Returns the preferred version.
    pub(crate) fn preferred(&self) -> Option<&Version> {
        self.versions.first()
    }
}
