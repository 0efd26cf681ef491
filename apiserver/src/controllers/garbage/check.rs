//! Whether an object still has an owner.

use revstore_reflector::Action;
use revstore_watch_cache::Object;
use revstore_watch_cache::registry::Propagation;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::GarbageCollector;
use super::graph::Place;
use crate::controllers::client::Failure;
use crate::controllers::metadata::{self, FOREGROUND, Metadata, ORPHAN, Owner};

/// What an owner means for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It keeps the object.
    Solid,
    /// It does not exist.
    Absent,
    /// It is removed after the object.
    Waiting,
    /// It cannot own the object.
    Impossible,
}

impl GarbageCollector {
    /// Deletes an object that has had owners and has none any more.
    pub(super) async fn check(&self, uid: &str) -> Result<Action, Failure> {
        let found = self.graph.lock().find(uid);
        let Some((place, _)) = found else {
            return Ok(Action::Done);
        };
        let Some((object, metadata)) = self.latest(&place, uid).await? else {
            return Ok(Action::Done);
        };
        if metadata.is_deleting || metadata.owners.is_empty() {
            return Ok(Action::Done);
        }
        let mut standings = Vec::new();
        for owner in &metadata.owners {
            let standing = self.standing(&place, owner).await?;
            if standing != Standing::Solid && self.is_elsewhere(&place, owner) {
                self.report(&place, uid, owner).await;
            }
            if standing == Standing::Impossible {
                return Ok(Action::Done);
            }
            standings.push(standing);
        }
        if standings.contains(&Standing::Solid) {
            if standings.iter().all(|it| *it == Standing::Solid) {
                return Ok(Action::Done);
            }
            let solid = |owner: &Owner| {
                let mut both = metadata.owners.iter().zip(&standings);
                both.any(|(known, standing)| *standing == Standing::Solid && known == owner)
            };
            self.keep_owners(&place, &object, solid).await?;
            return Ok(Action::Done);
        }
        self.collect(
            &place,
            &object,
            &metadata,
            standings.contains(&Standing::Waiting),
        )
        .await?;
        Ok(Action::Done)
    }

    /// Deletes an object without owners that keep it.
    async fn collect(
        &self,
        place: &Place,
        object: &Object,
        metadata: &Metadata,
        has_waiting_owner: bool,
    ) -> Result<(), Failure> {
        let mut version = object.revision().to_string();
        let (has_dependents, waits) = self.graph.lock().dependents_of(&metadata.uid);
        let propagation = if has_waiting_owner && has_dependents {
            if waits {
                // There may be a cycle. It is broken here.
                self.unblock(place, object).await?;
                version.clear();
            }
            Propagation::Foreground
        } else if metadata.has_finalizer(ORPHAN) {
            Propagation::Orphan
        } else if metadata.has_finalizer(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        let target = (place.namespace.as_str(), place.name.as_str());
        self.client
            .delete(
                &place.resource,
                target,
                (&metadata.uid, &version),
                propagation,
            )
            .await
    }

    /// Returns the newest version of an object, unless it is another one of the same name.
    pub(super) async fn latest(
        &self,
        place: &Place,
        uid: &str,
    ) -> Result<Option<(Object, Metadata)>, Failure> {
        let found = self
            .client
            .get(&place.resource, &place.namespace, &place.name);
        let Some(object) = found.await? else {
            return Ok(None);
        };
        let metadata = Metadata::of(&object).filter(|metadata| metadata.uid == uid);
        Ok(metadata.map(|metadata| (object, metadata)))
    }

    async fn standing(&self, place: &Place, owner: &Owner) -> Result<Standing, Failure> {
        if self.graph.lock().is_absent(&owner.uid, &place.namespace) {
            return Ok(Standing::Absent);
        }
        let Some(resource) = self.monitors.of_kind(owner.group(), &owner.kind) else {
            // It may be defined later.
            let (kind, version) = (&owner.kind, &owner.api_version);
            return Err(Failure::new(format!(
                "no matches for kind {kind:?} in version {version:?}"
            )));
        };
        if resource.namespaced && !place.resource.namespaced {
            return Ok(Standing::Impossible);
        }
        let found = self
            .client
            .get(&resource, &place.namespace, &owner.name)
            .await?;
        let found = found.and_then(|owner| Metadata::of(&owner));
        Ok(match found {
            Some(found) if found.uid == owner.uid => {
                if found.waits_for_dependents() {
                    Standing::Waiting
                } else {
                    Standing::Solid
                }
            }
            _ => Standing::Absent,
        })
    }

    /// Returns whether an owner exists in a namespace where it cannot own the object.
    fn is_elsewhere(&self, place: &Place, owner: &Owner) -> bool {
        let found = self.graph.lock().find(&owner.uid);
        found.is_some_and(|(other, _)| {
            other.resource.namespaced && other.namespace != place.namespace
        })
    }

    /// Writes an event about an owner in another namespace: once, also if several servers do it.
    async fn report(&self, place: &Place, uid: &str, owner: &Owner) {
        let Some(events) = self.monitors.find("", "events") else {
            return;
        };
        let digest = Sha256::digest(format!("{uid}/{}", owner.uid));
        let digest = u64::from_be_bytes(digest[..8].try_into().unwrap_or_default());
        let names = &place.resource.resource.names;
        let namespace = match place.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let (kind, version) = (&owner.kind, &owner.api_version);
        let identity = format!(
            "[{version}/{kind}, namespace: {}, name: {}, uid: {}]",
            place.namespace, owner.name, owner.uid
        );
        let now = self.client.front().now();
        let event = json!({
            "metadata": {"name": format!("{}.{digest:016x}", place.name), "namespace": namespace},
            "involvedObject": {
                "kind": names.kind,
                "apiVersion": names.api_version(),
                "namespace": place.namespace,
                "name": place.name,
                "uid": uid,
            },
            "reason": "OwnerRefInvalidNamespace",
            "message": format!("ownerRef {identity} does not exist in namespace {:?}", place.namespace),
            "type": "Warning",
            "source": {"component": "garbage-collector-controller"},
            "reportingComponent": "garbage-collector-controller",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        });
        // The object is treated in the same way without the event.
        let _ = self.client.create(&events, namespace, &event).await;
    }

    /// Removes the references to owners from an object that `keeps` does not choose.
    pub(super) async fn keep_owners(
        &self,
        place: &Place,
        object: &Object,
        keeps: impl Fn(&Owner) -> bool,
    ) -> Result<(), Failure> {
        self.change_owners(place, object, |references| {
            references.retain(|reference| {
                let owner = serde_json::from_value::<Owner>(reference.clone());
                owner.is_ok_and(|owner| keeps(&owner))
            });
        })
        .await
    }

    /// Makes an object not block the deletion of its owners.
    async fn unblock(&self, place: &Place, object: &Object) -> Result<(), Failure> {
        self.change_owners(place, object, |references| {
            for reference in references {
                reference["blockOwnerDeletion"] = json!(false);
            }
        })
        .await
    }

    async fn change_owners(
        &self,
        place: &Place,
        object: &Object,
        change: impl FnOnce(&mut Vec<Value>),
    ) -> Result<(), Failure> {
        let value = metadata::value(object);
        let references = value["metadata"]["ownerReferences"].as_array();
        let mut references = references.cloned().unwrap_or_default();
        change(&mut references);
        let patch = json!({"metadata": {
            "uid": object.uid(),
            "resourceVersion": object.revision().to_string(),
            "ownerReferences": references,
        }});
        let target = (place.namespace.as_str(), place.name.as_str());
        match self.client.patch(&place.resource, target, &patch).await {
            Err(failure) if failure.is_not_found() => Ok(()),
            patched => patched.map(drop),
        }
    }
}
