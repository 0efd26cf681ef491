//! The end of a deletion that waits for dependents.

use revstore_reflector::Action;
use revstore_watch_cache::{ListOptions, Object, Scope};
use serde_json::json;

use super::graph::Place;
use super::{GarbageCollector, IGNORED};
use crate::controllers::client::Failure;
use crate::controllers::metadata::{FOREGROUND, Metadata, ORPHAN, Owner};

/// The number of objects after which a search for dependents lets others run.
const OBJECTS_PER_TURN: usize = 1_000;

impl GarbageCollector {
    /// Goes on with the deletion of an object with the finalizer `orphan` or `foregroundDeletion`.
    pub(super) async fn finish(&self, uid: &str) -> Result<Action, Failure> {
        let found = self.graph.lock().find(uid);
        let Some((place, _)) = found else {
            return Ok(Action::Done);
        };
        let Some((object, metadata)) = self.latest(&place, uid).await? else {
            return Ok(Action::Done);
        };
        if metadata.orphans_dependents() {
            let dependents = self.search(&place, uid, |_| true).await?;
            for (dependent, version) in &dependents {
                self.keep_owners(dependent, version, |owner| owner.uid != uid)
                    .await?;
            }
            if !dependents.is_empty() {
                // Others may have been created meanwhile.
                return Ok(Action::Requeue);
            }
            self.release(&place, &object, &metadata, ORPHAN).await?;
        } else if metadata.waits_for_dependents() && !self.graph.lock().is_blocked(uid) {
            // The events of the last dependents may be on their way.
            if !self.search(&place, uid, Owner::blocks).await?.is_empty() {
                return Ok(Action::Requeue);
            }
            self.release(&place, &object, &metadata, FOREGROUND).await?;
        }
        Ok(Action::Done)
    }

    /// Removes a finalizer.
    async fn release(
        &self,
        place: &Place,
        object: &Object,
        metadata: &Metadata,
        finalizer: &str,
    ) -> Result<(), Failure> {
        let kept: Vec<&String> = metadata
            .finalizers
            .iter()
            .filter(|known| *known != finalizer)
            .collect();
        let patch = json!({"metadata": {
            "uid": metadata.uid,
            "resourceVersion": object.revision().to_string(),
            "finalizers": kept,
        }});
        let target = (place.namespace.as_str(), place.name.as_str());
        match self.client.patch(&place.resource, target, &patch).await {
            Err(failure) if failure.is_not_found() => Ok(()),
            patched => patched.map(drop),
        }
    }

    /// Returns all dependents of an owner, as they are in the store now, whose references to it `matches`.
    async fn search(
        &self,
        owner: &Place,
        uid: &str,
        matches: impl Fn(&Owner) -> bool,
    ) -> Result<Vec<(Place, Object)>, Failure> {
        let scope = if owner.resource.namespaced {
            Scope::Namespace(owner.namespace.clone())
        } else {
            Scope::All
        };
        let text = memchr::memmem::Finder::new(uid.as_bytes());
        let (mut found, mut looked_at, mut revision) = (Vec::new(), 0, String::new());
        for resource in self.monitors.all() {
            let is_ignored = IGNORED
                .iter()
                .any(|(group, plural)| resource.is(group, plural));
            if is_ignored || owner.resource.namespaced && !resource.namespaced {
                continue;
            }
            // The first list asks the store for its revision. The cache has all changes up to that for all resources.
            let options = ListOptions::default().resource_version(revision.clone());
            let cache = &resource.stored.cache;
            let list = cache.list(&scope, &options).await?;
            if revision.is_empty() {
                revision = list.revision.to_string();
            }
            // What cannot be read has no owners.
            for object in list.items.readable() {
                let object = object?;
                looked_at += 1;
                if looked_at % OBJECTS_PER_TURN == 0 {
                    tokio::task::yield_now().await;
                }
                if object.uid() == uid || text.find(object.value()).is_none() {
                    continue;
                }
                let metadata = Metadata::of(&object).unwrap_or_default();
                let mut owners = metadata.owners.iter();
                if owners.any(|owner| owner.uid == uid && matches(owner)) {
                    let place = Place {
                        resource: resource.clone(),
                        namespace: object.namespace().to_owned(),
                        name: object.name().to_owned(),
                    };
                    found.push((place, object));
                }
            }
        }
        Ok(found)
    }
}
