//! The namespace controller: the content of a namespace that is deleted goes first, then the namespace.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use revstore_reflector::{Action, WorkQueue};
use revstore_watch_cache::registry::Propagation;
use revstore_watch_cache::{ListOptions, Object, Scope};
use serde_json::{Value, json};

use super::client::{Client, Failure};
use super::metadata::{Metadata, text, value, versioned};
use super::monitor::{Change, Monitored, Monitors, Observer};

/// The finalizer of the controller in the spec of a namespace.
const FINALIZER: &str = "kubernetes";
/// The number of namespaces that are treated at the same time.
pub(super) const WORKERS: usize = 4;
/// The number of objects that are listed at a time.
const PAGE: i64 = 500;
/// The time after which a namespace that is gone is looked at again: a create that was admitted before the deletion began
/// may have been executed after it. As long as kube-controller-manager waits before it deletes.
const LAST_LOOK: Duration = Duration::from_secs(5);

pub(super) struct NamespaceController {
    client: Client,
    monitors: Arc<Monitors>,
    queue: WorkQueue<String>,
    /// The namespaces that are being deleted, whose content is followed. Held for one change or look.
    terminating: Mutex<HashSet<String>>,
}

/// What is left in a namespace.
#[derive(Debug, Default)]
struct Remaining {
    /// The number of objects, by the name of their resource.
    objects: BTreeMap<String, usize>,
    /// The number of objects with a finalizer.
    finalizers: BTreeMap<String, usize>,
    /// Why objects could not be deleted.
    errors: Vec<String>,
}

impl NamespaceController {
    pub(super) fn new(client: Client, monitors: Arc<Monitors>, queue: WorkQueue<String>) -> Self {
        Self {
            client,
            monitors,
            queue,
            terminating: Mutex::default(),
        }
    }

    /// Goes on with the deletion of a namespace, if it has begun.
    pub(super) async fn reconcile(self: Arc<Self>, name: String) -> Result<Action, Failure> {
        let Some(namespaces) = self.monitors.find("", "namespaces") else {
            return Ok(Action::Done);
        };
        let Some(object) = self.client.get(&namespaces, "", &name).await? else {
            return self.sweep(&name).await;
        };
        let namespace = value(&object);
        if text(&namespace, &["metadata", "deletionTimestamp"]).is_empty() {
            self.terminating.lock().remove(&name);
            return Ok(Action::Done);
        }
        let finalizers = namespace["spec"]["finalizers"].as_array();
        if !finalizers.is_some_and(|all| all.contains(&json!(FINALIZER))) {
            return Ok(Action::Done);
        }
        // From now on each change of its content leads to another round.
        self.terminating.lock().insert(name.clone());
        let remaining = self.empty(&name).await;
        let object = self
            .update_status(&namespaces, &name, object, &remaining)
            .await?;
        if let Some(error) = remaining.errors.first() {
            return Err(Failure::new(error.clone()));
        }
        if remaining.objects.is_empty()
            && let Some(object) = object
        {
            self.finalize(&namespaces, &name, &object).await?;
        }
        Ok(Action::Done)
    }

    /// Deletes what is in a namespace, pods first. Returns what is left.
    async fn empty(&self, namespace: &str) -> Remaining {
        let mut remaining = Remaining::default();
        let (pods, others): (Vec<_>, Vec<_>) = self
            .monitors
            .all()
            .into_iter()
            .filter(|resource| resource.namespaced)
            .partition(|resource| resource.is("", "pods"));
        for resources in [pods, others] {
            for resource in resources {
                let emptied = self.empty_resource(&resource, namespace, &mut remaining);
                if let Err(failure) = emptied.await {
                    remaining.errors.push(failure.to_string());
                }
            }
            if !remaining.objects.is_empty() {
                break;
            }
        }
        remaining
    }

    async fn empty_resource(
        &self,
        resource: &Monitored,
        namespace: &str,
        remaining: &mut Remaining,
    ) -> Result<(), Failure> {
        let scope = Scope::Namespace(namespace.to_owned());
        let mut options = ListOptions::default().limit(PAGE);
        let mut failed = None;
        loop {
            let list = resource.stored.cache.list(&scope, &options).await?;
            let token = list.continue_token.clone();
            for object in list.items.readable() {
                let deleted = self.delete(resource, &object?).await;
                failed = deleted.err().or(failed);
                tokio::task::yield_now().await;
            }
            let Some(token) = token else {
                break;
            };
            options = ListOptions::default().limit(PAGE).continue_token(token);
        }
        let options = ListOptions::default();
        let list = resource.stored.cache.list(&scope, &options).await?;
        let (group, plural) = &resource.key;
        for object in list.items.readable() {
            let metadata = Metadata::of(&object?).unwrap_or_default();
            *remaining
                .objects
                .entry(format!("{plural}.{group}"))
                .or_default() += 1;
            for finalizer in metadata.finalizers {
                *remaining.finalizers.entry(finalizer).or_default() += 1;
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn delete(&self, resource: &Monitored, object: &Object) -> Result<(), Failure> {
        let is_deleting = Metadata::of(object).is_some_and(|metadata| metadata.is_deleting);
        if is_deleting {
            return Ok(());
        }
        let target = (object.namespace(), object.name());
        let deleted = self
            .client
            .delete(
                resource,
                target,
                (object.uid(), ""),
                Propagation::Background,
            )
            .await;
        match deleted {
            // Another object has the name now. It is in the next list.
            Err(failure) if failure.is_conflict() => Ok(()),
            deleted => deleted,
        }
    }

    /// Deletes what requests that were under way have left in a namespace that does not exist.
    async fn sweep(&self, namespace: &str) -> Result<Action, Failure> {
        let mut found = Vec::new();
        for resource in self.monitors.all() {
            if resource.namespaced {
                let scope = Scope::Namespace(namespace.to_owned());
                let options = ListOptions::default();
                let list = resource.stored.cache.list(&scope, &options).await?;
                for object in list.items.readable() {
                    found.push((resource.clone(), object?));
                }
            }
        }
        // What was there before the namespace was not belongs to no namespace.
        let namespaces = self.monitors.find("", "namespaces");
        let exists = match namespaces {
            Some(namespaces) => self.client.get(&namespaces, "", namespace).await?.is_some(),
            None => true,
        };
        if exists {
            return Ok(Action::Done);
        }
        for (resource, object) in found {
            self.delete(&resource, &object).await?;
        }
        if self.terminating.lock().remove(namespace) {
            return Ok(Action::RequeueAfter(LAST_LOOK));
        }
        Ok(Action::Done)
    }

    /// Writes the conditions of a namespace. Returns its newest version; `None` if it is gone.
    async fn update_status(
        &self,
        namespaces: &Monitored,
        name: &str,
        object: Object,
        remaining: &Remaining,
    ) -> Result<Option<Value>, Failure> {
        let mut namespace = versioned(&object);
        let conditions = remaining.conditions();
        let now = self.client.front().now();
        let before = namespace["status"]["conditions"].as_array();
        let before = before.cloned().unwrap_or_default();
        let mut after = before.clone();
        for (kind, is_true, reason, message) in conditions {
            let status = if is_true { "True" } else { "False" };
            let old = after.iter().position(|condition| condition["type"] == kind);
            let time = old.map(|position| &after[position]);
            let time = time.filter(|condition| condition["status"] == status);
            let time = time.map_or_else(|| json!(now), |it| it["lastTransitionTime"].clone());
            let condition = json!({
                "type": kind,
                "status": status,
                "lastTransitionTime": time,
                "reason": reason,
                "message": message,
            });
            match old {
                Some(position) => after[position] = condition,
                None => after.push(condition),
            }
        }
        // A namespace that is empty at once gets its conditions, too: others may hold it.
        if before == after && text(&namespace, &["status", "phase"]) == "Terminating" {
            return Ok(Some(namespace));
        }
        namespace["status"] = json!({"phase": "Terminating", "conditions": after});
        let target = ("", name);
        match self
            .client
            .update(namespaces, target, "status", &namespace)
            .await
        {
            Err(failure) if failure.is_not_found() => Ok(None),
            updated => updated.map(Some),
        }
    }

    /// Removes the finalizer of the controller.
    async fn finalize(
        &self,
        namespaces: &Monitored,
        name: &str,
        namespace: &Value,
    ) -> Result<(), Failure> {
        let mut namespace = namespace.clone();
        if let Some(finalizers) = namespace["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        let sent = self
            .client
            .update(namespaces, ("", name), "finalize", &namespace);
        match sent.await {
            Err(failure) if failure.is_not_found() => Ok(()),
            sent => sent.map(drop),
        }
    }
}

impl Remaining {
    /// Returns the conditions of the namespace: type, status, reason and message.
    fn conditions(&self) -> [(&'static str, bool, &'static str, String); 5] {
        let listed = |counts: &BTreeMap<String, usize>, middle: &str| {
            let parts = counts.iter();
            let parts =
                parts.map(|(name, count)| format!("{name} {middle} {count} resource instances"));
            parts.collect::<Vec<_>>().join(", ")
        };
        let condition = |kind, is_true: bool, reasons: [&'static str; 2], messages: [String; 2]| {
            let [when_false, when_true] = messages;
            let message = if is_true { when_true } else { when_false };
            (kind, is_true, reasons[usize::from(is_true)], message)
        };
        let errors = self.errors.join(", ");
        let (count, objects) = (self.errors.len(), listed(&self.objects, "has"));
        let finalizers = listed(&self.finalizers, "in");
        [
            (
                "NamespaceDeletionDiscoveryFailure",
                false,
                "ResourcesDiscovered",
                "All resources successfully discovered".to_owned(),
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed".to_owned(),
            ),
            condition(
                "NamespaceDeletionContentFailure",
                count > 0,
                ["ContentDeleted", "ContentDeletionFailed"],
                [
                    "All content successfully deleted, may be waiting on finalization".to_owned(),
                    format!("Failed to delete all resource types, {count} remaining: {errors}"),
                ],
            ),
            condition(
                "NamespaceContentRemaining",
                !self.objects.is_empty(),
                ["ContentRemoved", "SomeResourcesRemain"],
                [
                    "All content successfully removed".to_owned(),
                    format!("Some resources are remaining: {objects}"),
                ],
            ),
            condition(
                "NamespaceFinalizersRemaining",
                !self.finalizers.is_empty(),
                ["ContentHasNoFinalizers", "SomeFinalizersRemain"],
                [
                    "All content-preserving finalizers finished".to_owned(),
                    format!("Some content in the namespace has finalizers remaining: {finalizers}"),
                ],
            ),
        ]
    }
}

impl Observer for NamespaceController {
    fn wants(&self, resource: &Monitored) -> bool {
        resource.namespaced || resource.is("", "namespaces")
    }

    fn observe(&self, resource: &Arc<Monitored>, change: Change<'_>) {
        let object = change.object();
        if resource.is("", "namespaces") {
            let is_deleting = Metadata::of(object).is_some_and(|metadata| metadata.is_deleting);
            if is_deleting || !matches!(change, Change::Set(_)) {
                self.queue.add(object.name().to_owned());
            }
        } else if self.terminating.lock().contains(object.namespace()) {
            self.queue.add(object.namespace().to_owned());
        }
    }
}
