//! The controller of resource quotas: what a namespace uses of them, counted again after each change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use revstore_reflector::{Action, WorkQueue};
use revstore_watch_cache::api::ObjectRef;
use revstore_watch_cache::{GetOptions, ListOptions, Object, Scope};
use serde_json::{Map, Value, json};

use super::client::{Client, Failure};
use super::metadata::{value, versioned};
use super::monitor::{Change, Monitored, Monitors, Observer};
use crate::custom::definition;
use crate::quota::{Amount, Scopes, tracks, usage};

/// The number of quotas that are counted at the same time.
pub(super) const WORKERS: usize = 2;

/// The time after which a quota that was raised for a request in flight is looked at again.
const PENDING_PAUSE: Duration = Duration::from_millis(20);

pub(super) struct QuotaController {
    client: Client,
    monitors: Arc<Monitors>,
    /// The queue of namespaces and names.
    queue: WorkQueue<(String, String)>,
    /// The quotas of each namespace by their names, with the names of what they limit. Held for one change or look.
    quotas: Mutex<HashMap<String, BTreeMap<String, Vec<String>>>>,
}

impl QuotaController {
    pub(super) fn new(
        client: Client,
        monitors: Arc<Monitors>,
        queue: WorkQueue<(String, String)>,
    ) -> Self {
        Self {
            client,
            monitors,
            queue,
            quotas: Mutex::default(),
        }
    }

    /// Counts what a quota limits, and writes it into its status.
    pub(super) async fn reconcile(
        self: Arc<Self>,
        (namespace, name): (String, String),
    ) -> Result<Action, Failure> {
        let Some(quotas) = self.monitors.find("", "resourcequotas") else {
            return Ok(Action::Done);
        };
        let Some(object) = self.client.get(&quotas, &namespace, &name).await? else {
            return Ok(Action::Done);
        };
        // A request raises the quota before it stores its object. What such a request changes after this look conflicts
        // with the write below.
        let grants = &self.client.front().grants;
        if grants.are_pending(&namespace, &name) {
            return Ok(Action::RequeueAfter(PENDING_PAUSE));
        }
        let mut quota = versioned(&object);
        let hard = quota["spec"]["hard"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        let mut used = self.used(&namespace, &quota["spec"], &hard).await?;
        // What nothing counts any more stays as it was, unless nothing can be left of it.
        let known = quota["status"]["used"].as_object().into_iter().flatten();
        for (name, amount) in known.filter(|(name, _)| hard.contains_key(*name)) {
            if !used.contains_key(name) {
                let is_defined = self.is_defined(name).await?;
                let amount = if is_defined {
                    amount.clone()
                } else {
                    "0".into()
                };
                used.insert(name.clone(), amount);
            }
        }
        let status = json!({"hard": hard, "used": used});
        if quota["status"] == status {
            return Ok(Action::Done);
        }
        quota["status"] = status;
        let target = (namespace.as_str(), name.as_str());
        match self.client.update(&quotas, target, "status", &quota).await {
            Err(failure) if failure.is_not_found() => Ok(Action::Done),
            updated => updated.map(|_| Action::Done),
        }
    }

    /// Returns whether there may be objects of a limit that counts those of a custom resource: whether that is defined.
    async fn is_defined(&self, limit: &str) -> Result<bool, Failure> {
        let definitions = self.monitors.find(definition::GROUP, definition::PLURAL);
        let (Some(name), Some(definitions)) = (limit.strip_prefix("count/"), definitions) else {
            return Ok(true);
        };
        let options = GetOptions::default().resource_version("0");
        let reference = ObjectRef::cluster(name);
        let found = definitions.stored.cache.get(&reference, &options).await?;
        Ok(found.is_some())
    }

    /// Returns what is used of the limits that count something.
    async fn used(
        &self,
        namespace: &str,
        spec: &Value,
        hard: &Map<String, Value>,
    ) -> Result<BTreeMap<String, Value>, Failure> {
        let scopes = Scopes::of(spec);
        let (now, _) = self.client.front().storage.moment(Duration::ZERO);
        let mut sums: BTreeMap<&str, Amount> = BTreeMap::new();
        for resource in self.monitors.all() {
            let (group, plural) = &resource.key;
            let names: Vec<&str> = hard
                .keys()
                .map(String::as_str)
                .filter(|name| resource.namespaced && tracks(group, plural, name))
                .collect();
            if names.is_empty() {
                continue;
            }
            for name in &names {
                sums.entry(name).or_default();
            }
            let scope = Scope::Namespace(namespace.to_owned());
            let options = ListOptions::default();
            let list = resource.stored.cache.list(&scope, &options).await?;
            // What cannot be read uses nothing.
            for object in list.items.readable() {
                let object = value(&object?);
                if !scopes.match_object(group, plural, &object) {
                    continue;
                }
                for (name, amount) in usage(group, plural, &object, now) {
                    let known = names.iter().find(|known| **known == name);
                    if let Some(sum) = known.and_then(|known| sums.get_mut(known)) {
                        sum.add(&amount);
                    }
                }
            }
        }
        let sums = sums.into_iter();
        Ok(sums
            .map(|(name, sum)| (name.to_owned(), sum.to_string().into()))
            .collect())
    }
}

impl Observer for QuotaController {
    fn wants(&self, resource: &Monitored) -> bool {
        resource.namespaced
    }

    fn observe(&self, resource: &Arc<Monitored>, change: Change<'_>) {
        let object = change.object();
        let namespace = object.namespace();
        let mut quotas = self.quotas.lock();
        if resource.is("", "resourcequotas") {
            let own = quotas.entry(namespace.to_owned()).or_default();
            match change {
                Change::Set(_) => own.insert(object.name().to_owned(), limits(object)),
                Change::Gone(_) | Change::Doubted(_) => own.remove(object.name()),
            };
            if own.is_empty() {
                quotas.remove(namespace);
            }
        }
        let own = quotas.get(namespace);
        let names: Vec<_> = own.into_iter().flat_map(BTreeMap::keys).cloned().collect();
        drop(quotas);
        for name in names {
            self.queue.add((namespace.to_owned(), name));
        }
    }

    fn appear(&self, resource: &Arc<Monitored>) {
        let (group, plural) = &resource.key;
        let counts = |limits: &[String]| limits.iter().any(|name| tracks(group, plural, name));
        let mut affected = Vec::new();
        for (namespace, own) in &*self.quotas.lock() {
            let names = own.iter().filter(|(_, limits)| counts(limits));
            affected.extend(names.map(|(name, _)| (namespace.clone(), name.clone())));
        }
        for quota in affected {
            self.queue.add(quota);
        }
    }
}

/// Returns the names of what a quota limits.
fn limits(quota: &Object) -> Vec<String> {
    let quota = value(quota);
    let hard = quota["spec"]["hard"].as_object();
    hard.into_iter().flat_map(Map::keys).cloned().collect()
}
