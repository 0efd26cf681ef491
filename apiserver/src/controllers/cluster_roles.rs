//! The controller of aggregated roles: their rules are those of the roles that their selectors choose.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use revstore_reflector::{Action, WorkQueue};
use revstore_watch_cache::{ListOptions, Scope};
use serde_json::{Value, json};

use super::client::{Client, Failure};
use super::metadata::value;
use super::monitor::{Change, Monitored, Monitors, Observer};
use crate::builtin::field::Field;
use crate::builtin::selector;

/// The number of roles that are treated at the same time.
pub(super) const WORKERS: usize = 1;
const GROUP: &str = "rbac.authorization.k8s.io";
const PLURAL: &str = "clusterroles";
/// The manager of the rules, as in kube-controller-manager.
const MANAGER: &str = "clusterrole-aggregation-controller";

pub(super) struct ClusterRoleController {
    client: Client,
    monitors: Arc<Monitors>,
    queue: WorkQueue<String>,
    /// The names of the roles that are aggregated. Held for one change or look.
    aggregated: Mutex<BTreeSet<String>>,
}

impl ClusterRoleController {
    pub(super) fn new(client: Client, monitors: Arc<Monitors>, queue: WorkQueue<String>) -> Self {
        Self {
            client,
            monitors,
            queue,
            aggregated: Mutex::default(),
        }
    }

    /// Gives a role the rules of those that it selects.
    pub(super) async fn reconcile(self: Arc<Self>, name: String) -> Result<Action, Failure> {
        let Some(resource) = self.monitors.find(GROUP, PLURAL) else {
            return Ok(Action::Done);
        };
        let Some(object) = self.client.get(&resource, "", &name).await? else {
            return Ok(Action::Done);
        };
        let role = value(&object);
        let Some(selectors) = selectors(&role) else {
            return Ok(Action::Done);
        };
        let options = ListOptions::default();
        let list = resource.stored.cache.list(&Scope::All, &options).await?;
        let mut others = Vec::new();
        // What cannot be read has no rules.
        for object in list.items.readable() {
            let object = object?;
            if object.name() != name {
                others.push((object.name().to_owned(), value(&object)));
            }
        }
        others.sort_by(|(one, _), (other, _)| one.cmp(other));
        let rules = union(selectors, &others);
        let before = role["rules"].as_array().cloned().unwrap_or_default();
        if before == rules {
            return Ok(Action::Done);
        }
        let apply = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rules,
        });
        let path = format!(
            "{}?fieldManager={MANAGER}&force=true",
            resource.path("", &name)
        );
        let media = "application/apply-patch+yaml";
        self.client
            .send(Method::PATCH, &path, media, &apply)
            .await?;
        Ok(Action::Done)
    }
}

/// Returns the selectors of an aggregated role.
fn selectors(role: &Value) -> Option<&Vec<Value>> {
    let selectors = role.get("aggregationRule")?.get("clusterRoleSelectors");
    selectors?.as_array()
}

/// Returns the rules of the selected roles, in the order of the selectors and of names, each once.
fn union(selectors: &[Value], others: &[(String, Value)]) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        for (_, role) in others {
            if !selects(selector, role) {
                continue;
            }
            for rule in role["rules"].as_array().into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

fn selects(selector: &Value, role: &Value) -> bool {
    let labels = role.get("metadata").and_then(|it| it.get("labels"));
    let both = json!({"selector": selector, "labels": labels});
    both.as_object().is_some_and(|both| {
        let root = Field::root(both);
        selector::matches(&root.child("selector"), &root.child("labels"))
    })
}

impl Observer for ClusterRoleController {
    fn wants(&self, resource: &Monitored) -> bool {
        resource.is(GROUP, PLURAL)
    }

    fn observe(&self, _: &Arc<Monitored>, change: Change<'_>) {
        let object = change.object();
        let mut aggregated = self.aggregated.lock();
        match change {
            Change::Set(object) if selectors(&value(object)).is_some() => {
                aggregated.insert(object.name().to_owned());
            }
            _ => {
                aggregated.remove(object.name());
            }
        }
        // Each role may be selected by each.
        let names: Vec<String> = aggregated.iter().cloned().collect();
        drop(aggregated);
        for name in names {
            self.queue.add(name);
        }
    }
}
