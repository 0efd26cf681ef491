//! The policy follows the store.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use revstore_watch_cache::{
    EventType, ListOptions, RequestError, Revision, Scope, WatchEvent, WatchOptions,
};
use serde_json::Value;

use crate::auth::rbac::{GROUP, PolicyKind, Rbac};
use crate::catalog::{Catalog, Following, Resource, Stored};
use crate::verbs::decoded;

/// The pause after an error of the store.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// What takes the objects of one kind from the store into the policy.
#[derive(Debug)]
pub(crate) struct Follower {
    kind: PolicyKind,
    resource: Arc<Resource>,
    stored: Arc<Stored>,
    rbac: Arc<Rbac>,
    /// The revision up to which the policy has the objects.
    since: Revision,
}

impl Follower {
    /// Takes all objects into the policy, and returns what follows their changes.
    ///
    /// # Errors
    /// The objects cannot be read.
    pub(crate) async fn load_all(
        catalog: &Catalog,
        rbac: &Arc<Rbac>,
    ) -> Result<Vec<Self>, RequestError> {
        let mut followers = Vec::new();
        for kind in PolicyKind::ALL {
            let Ok(resource) = catalog.find(GROUP, "v1", kind.plural()) else {
                continue;
            };
            let Some(stored) = resource.stored.clone() else {
                continue;
            };
            let mut follower = Self {
                kind,
                resource,
                stored,
                rbac: rbac.clone(),
                since: Revision(0),
            };
            follower.load().await?;
            followers.push(follower);
        }
        Ok(followers)
    }

    /// Replaces the objects of the policy by those of the store.
    async fn load(&mut self) -> Result<(), RequestError> {
        let listed = self
            .stored
            .cache
            .list(&Scope::All, &ListOptions::default())
            .await?;
        self.since = listed.revision;
        let mut objects = Vec::new();
        // What cannot be read grants nothing, and does not keep the rest from it.
        for object in listed.items.readable() {
            let object = object?;
            let value = Value::Object(decoded(&self.resource, &self.stored, &object)?);
            objects.push((object, value));
        }
        let mut policy = self.rbac.policy.write();
        policy.clear(self.kind);
        for (object, value) in &objects {
            policy.set(self.kind, object.namespace(), object.name(), value);
        }
        Ok(())
    }

    /// Follows the changes until the cache stops.
    pub(crate) async fn run(mut self) {
        let stored = self.stored.clone();
        let following = stored.followed.follow(self.since);
        loop {
            match self.follow(&following).await {
                Ok(()) => {}
                Err(RequestError::Stopped) => return,
                // The cache may load its objects.
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
            // The watch has ended, or its events are gone.
            while let Err(error) = self.load().await {
                if matches!(error, RequestError::Stopped) {
                    return;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            following.reach(self.since);
        }
    }

    /// Follows the changes until the end of a watch.
    async fn follow(&mut self, following: &Following<'_>) -> Result<(), RequestError> {
        let options = WatchOptions::default().resource_version(self.since.to_string());
        let mut watcher = self.stored.cache.watch(&Scope::All, &options).await?;
        loop {
            let next = poll_fn(|context| Pin::new(&mut watcher).poll_next(context)).await;
            match next {
                Some(WatchEvent::Object { event, object, .. }) => {
                    let (namespace, name) = (object.namespace(), object.name());
                    if event == EventType::Deleted {
                        let mut policy = self.rbac.policy.write();
                        policy.remove(self.kind, namespace, name);
                    } else {
                        let value = Value::Object(decoded(&self.resource, &self.stored, &object)?);
                        let mut policy = self.rbac.policy.write();
                        policy.set(self.kind, namespace, name, &value);
                    }
                    self.since = object.revision();
                    following.reach(self.since);
                }
                Some(WatchEvent::Bookmark { revision, .. }) => self.since = revision,
                Some(WatchEvent::Error(error)) => return Err(error),
                None => return Ok(()),
            }
        }
    }
}
