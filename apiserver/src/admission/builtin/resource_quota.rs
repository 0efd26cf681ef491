//! Resource quotas: objects beyond their limits are refused, and others counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{ObjectRef, Storage as _, Update, UpdateOptions};
use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::quota::{Amount, Scopes, tracks, usage};

/// The group and the resource of the quotas.
const QUOTAS: (&str, &str) = ("", "resourcequotas");
/// The resources that all containers must request or limit if a quota limits them.
const REQUIRED: [(&str, &str, &str); 6] = [
    ("cpu", "requests", "cpu"),
    ("limits.cpu", "limits", "cpu"),
    ("limits.memory", "limits", "memory"),
    ("memory", "requests", "memory"),
    ("requests.cpu", "requests", "cpu"),
    ("requests.memory", "requests", "memory"),
];

type Amounts = BTreeMap<String, Amount>;

/// The plugin `ResourceQuota`.
#[derive(Debug)]
pub(crate) struct ResourceQuota;

impl Plugin for ResourceQuota {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        let names = &request.resource.names;
        let (group, plural) = (names.group.as_str(), names.plural.as_str());
        let is_counted = !request.namespace.is_empty()
            && request.resource.stored.is_some()
            && (group, plural) != ("", "namespaces")
            && !(["", "events.k8s.io"].contains(&group) && plural == "events");
        let changes = || {
            group.is_empty()
                && match request.subresource {
                    "" => ["pods", "persistentvolumeclaims", "services"].contains(&plural),
                    "resize" => plural == "pods",
                    _ => false,
                }
        };
        phase == Phase::Validate
            && is_counted
            && match request.operation {
                Operation::Create => request.subresource.is_empty(),
                Operation::Update => changes(),
                _ => false,
            }
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some(object) = object.filter(|object| may_grow(request, object)) else {
                return Ok(());
            };
            let quotas = objects::list(request.front, QUOTAS, Some(request.namespace)).await?;
            if quotas.is_empty() {
                return Ok(());
            }
            let demand = Demand::new(request, object);
            let mut raised = Vec::new();
            for quota in quotas {
                let quota = Value::Object(quota);
                if demand.raise(&quota)?.is_some() {
                    raised.push(quota);
                }
            }
            if !request.dry_run {
                for quota in raised {
                    demand.count(&quota).await?;
                }
            }
            Ok(())
        })
    }
}

/// Returns whether a request may need more than before. What pods need does not change, but in a resize.
fn may_grow(request: &Attributes<'_>, object: &JsonObject) -> bool {
    let Some(old) = request.old.filter(|_| request.is_for("", "pods", "")) else {
        return true;
    };
    let is_terminating = |pod: &JsonObject| {
        let seconds = pod.get("spec").map(|spec| &spec["activeDeadlineSeconds"]);
        seconds.and_then(Value::as_i64).is_some_and(|it| it >= 0)
    };
    is_terminating(old) != is_terminating(object)
}

/// What one request needs of quotas.
struct Demand<'a> {
    request: &'a Attributes<'a>,
    shown: &'a JsonObject,
    object: Value,
    old: Option<Value>,
    used: Amounts,
    used_before: Amounts,
}

impl<'a> Demand<'a> {
    fn new(request: &'a Attributes<'a>, shown: &'a JsonObject) -> Self {
        let names = &request.resource.names;
        let (now, _) = request.front.storage.moment(Duration::ZERO);
        let used = |object: &Value| {
            let used = usage(&names.group, &names.plural, object, now);
            used.into_iter().collect()
        };
        let object = Value::Object(shown.clone());
        let old = request.old.cloned().map(Value::Object);
        Self {
            request,
            shown,
            used: used(&object),
            used_before: old.as_ref().map(used).unwrap_or_default(),
            object,
            old,
        }
    }

    /// Returns what is used of a quota together with the object, or `None` if that changes nothing.
    ///
    /// # Errors
    /// 403 if that is more than the limits.
    fn raise(&self, quota: &Value) -> Result<Option<Value>, RequestError> {
        let names = &self.request.resource.names;
        let (group, plural) = (names.group.as_str(), names.plural.as_str());
        let (hard, used) = (&quota["status"]["hard"], &quota["status"]["used"]);
        let limits = hard.as_object().into_iter().flatten();
        let limited: BTreeSet<&str> = limits
            .map(|(name, _)| name.as_str())
            .filter(|name| tracks(group, plural, name))
            .collect();
        let scopes = Scopes::of(&quota["spec"]);
        if limited.is_empty() || !scopes.match_object(group, plural, &self.object) {
            return Ok(None);
        }
        let quota_name = quota["metadata"]["name"].as_str().unwrap_or_default();
        let refuse = |detail: &str| Err(self.request.forbidden(Some(self.shown), detail).into());
        if (group, plural) == ("", "pods")
            && let Some(missing) = missing(&self.object, &limited)
        {
            return refuse(&format!(
                "failed quota: {quota_name}: must specify {missing}"
            ));
        }
        if limited.iter().any(|name| used.get(name).is_none()) {
            let names: Vec<&str> = limited.into_iter().collect();
            let names = names.join(",");
            return refuse(&format!(
                "status unknown for quota: {quota_name}, resources: {names}"
            ));
        }
        let was_counted = self.old.as_ref();
        let was_counted = was_counted.is_some_and(|old| scopes.match_object(group, plural, old));
        let mut sums = used.clone();
        let mut exceeded: [Vec<String>; 3] = Default::default();
        let mut is_changed = false;
        for (name, amount) in &self.used {
            let before = self.used_before.get(name).filter(|_| was_counted);
            let more = before.map_or_else(|| amount.clone(), |before| amount.above(before));
            let limit = limited
                .contains(name.as_str())
                .then(|| Amount::of(&hard[name]));
            let Some(limit) = limit.flatten().filter(|_| !more.is_zero()) else {
                continue;
            };
            let known = Amount::of(&used[name]).unwrap_or_default();
            let mut sum = known.clone();
            sum.add(&more);
            if sum.exceeds(&limit) {
                for (list, amount) in exceeded.iter_mut().zip([&more, &known, &limit]) {
                    list.push(format!("{name}={amount}"));
                }
            }
            sums[name] = json!(sum.to_string());
            is_changed = true;
        }
        let [requested, known, limited] = exceeded.map(|list| list.join(","));
        if !requested.is_empty() {
            return refuse(&format!(
                "exceeded quota: {quota_name}, requested: {requested}, used: {known}, limited: {limited}"
            ));
        }
        Ok(is_changed.then_some(sums))
    }

    /// Writes what is used of a quota together with the object, if its newest version allows it.
    async fn count(&self, quota: &Value) -> Result<(), RequestError> {
        let front = self.request.front;
        let Ok(resource) = front.catalog.find(QUOTAS.0, "v1", QUOTAS.1) else {
            return Ok(());
        };
        let Some(stored) = &resource.stored else {
            return Ok(());
        };
        let name = quota["metadata"]["name"].as_str().unwrap_or_default();
        // Before the write: who sees the count of the write sees the grant, too, or its end.
        let grant = front.grants.begin(self.request.namespace, name);
        self.request.exchange.grants.lock().push(grant);
        let reference = ObjectRef::namespaced(self.request.namespace, name);
        let options = UpdateOptions::default();
        let update = Box::new(|found: Option<&revstore_watch_cache::Object>| {
            let value = found
                .map(|found| found.value().to_vec())
                .unwrap_or_default();
            let mut quota: Value = serde_json::from_slice(&value)
                .map_err(|error| RequestError::Internal(error.to_string()))?;
            let Some(used) = self.raise(&quota)? else {
                return Ok(Update::new(value));
            };
            quota["status"]["used"] = used;
            Ok(Update::new(quota.to_string()))
        });
        match stored
            .cache
            .guaranteed_update(&reference, &options, update)
            .await
        {
            // A quota that is gone limits nothing.
            Err(RequestError::NotFound { .. }) => Ok(()),
            written => written.map(drop),
        }
    }
}

/// Returns the limited resources that containers of a pod do not say, with the names of these containers.
fn missing(pod: &Value, limited: &BTreeSet<&str>) -> Option<String> {
    let spec = &pod["spec"];
    let says = |resources: &Value, list: &str, name: &str| resources[list].get(name).is_some();
    // What is set for the pod as a whole is enough.
    let is_whole = ["requests", "limits"].iter().any(|list| {
        let set = spec["resources"][*list].as_object().into_iter().flatten();
        set.map(|(name, _)| name.as_str())
            .any(|name| ["cpu", "memory"].contains(&name) || name.starts_with("hugepages-"))
    });
    if is_whole {
        return None;
    }
    let lists = ["containers", "initContainers"].into_iter();
    let containers: Vec<&Value> = lists
        .filter_map(|list| spec[list].as_array())
        .flatten()
        .collect();
    let required = REQUIRED
        .iter()
        .filter(|(limit, ..)| limited.contains(limit));
    let texts: Vec<String> = required
        .filter_map(|(limit, list, name)| {
            let silent = containers.iter();
            let silent = silent.filter(|container| !says(&container["resources"], list, name));
            let names: BTreeSet<&str> = silent
                .filter_map(|container| container["name"].as_str())
                .collect();
            let names: Vec<&str> = names.into_iter().collect();
            (!names.is_empty()).then(|| format!("{limit} for: {}", names.join(",")))
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}
