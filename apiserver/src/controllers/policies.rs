//! The controller of validating policies: their status says which expressions do not fit the objects that they are for.

use std::sync::Arc;

use http::Method;
use revstore_kinds as kinds;
use revstore_reflector::{Action, WorkQueue};
use serde_json::{Value, json};

use super::client::{Client, Failure};
use super::metadata::value;
use super::monitor::{Change, Monitored, Monitors, Observer};
use crate::catalog::{Origin, Resource};
use crate::openapi;
use crate::policy::type_check::{self, Checked};

/// The number of policies that are treated at the same time, each in a thread of its own.
pub(super) const WORKERS: usize = 1;
const GROUP: &str = "admissionregistration.k8s.io";
const PLURAL: &str = "validatingadmissionpolicies";
/// The manager of the status, as in kube-controller-manager.
const MANAGER: &str = "validatingadmissionpolicy-status";

pub(super) struct PolicyController {
    client: Client,
    monitors: Arc<Monitors>,
    queue: WorkQueue<String>,
}

impl PolicyController {
    pub(super) fn new(client: Client, monitors: Arc<Monitors>, queue: WorkQueue<String>) -> Self {
        Self {
            client,
            monitors,
            queue,
        }
    }

    /// Writes the warnings of a policy whose expressions have changed.
    pub(super) async fn reconcile(self: Arc<Self>, name: String) -> Result<Action, Failure> {
        let Some(resource) = self.monitors.find(GROUP, PLURAL) else {
            return Ok(Action::Done);
        };
        let Some(object) = self.client.get(&resource, "", &name).await? else {
            return Ok(Action::Done);
        };
        let mut policy = value(&object);
        if !is_unchecked(&policy) {
            return Ok(Action::Done);
        }
        let spec = policy["spec"].take();
        let checked = self.kinds(&spec).await?;
        let params = match type_check::param_kind(&spec) {
            Some(kind) => self.schema(&kind.group, &kind.version, &kind.kind).await?,
            None => None,
        };
        // In a thread of its own: there may be megabytes of expressions.
        let checking = tokio::task::spawn_blocking(move || {
            type_check::warnings(&spec, &checked, params.as_ref())
        });
        let warnings = checking
            .await
            .map_err(|error| Failure::new(error.to_string()))?;
        let mut checking = json!({});
        if !warnings.is_empty() {
            checking["expressionWarnings"] = warnings.into();
        }
        let apply = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "status": {"observedGeneration": generation(&policy), "typeChecking": checking},
        });
        let path = resource.path("", &name);
        let path = format!("{path}/status?fieldManager={MANAGER}&force=true");
        let media = "application/apply-patch+yaml";
        match self.client.send(Method::PATCH, &path, media, &apply).await {
            Err(failure) if failure.is_not_found() => Ok(Action::Done),
            sent => sent.map(|_| Action::Done),
        }
    }

    /// Returns the kinds that a policy is for, with their schemas.
    async fn kinds(&self, spec: &Value) -> Result<Vec<Checked>, Failure> {
        let groups = self.client.front().catalog.groups();
        let mut checked = Vec::new();
        for resource in type_check::resources_of(&groups, spec) {
            let names = &resource.names;
            if let Some(schema) = self.schema_of(&resource).await? {
                checked.push(Checked {
                    group: names.group.clone(),
                    version: names.version.clone(),
                    kind: names.kind.clone(),
                    schema,
                });
            }
        }
        Ok(checked)
    }

    /// Returns the schema of a kind, if it is known.
    async fn schema(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Value>, Failure> {
        if let Some(ty) = kinds::kind(group, version, kind) {
            return Ok(Some(kinds::openapi::whole(ty)));
        }
        let groups = self.client.front().catalog.groups();
        let mut versions = groups
            .get(group)
            .into_iter()
            .flat_map(|group| &group.versions);
        let version = versions.find(|known| known.name == version);
        let mut resources = version
            .into_iter()
            .flat_map(|version| version.resources.values());
        match resources.find(|resource| resource.names.kind == kind) {
            Some(resource) => self.schema_of(resource).await,
            None => Ok(None),
        }
    }

    async fn schema_of(&self, resource: &Resource) -> Result<Option<Value>, Failure> {
        let names = &resource.names;
        if resource.origin == Origin::Custom {
            let schema = openapi::custom_schema(self.client.front(), resource).await?;
            return Ok(Some(schema));
        }
        let ty = kinds::kind(&names.group, &names.version, &names.kind);
        Ok(ty.map(kinds::openapi::whole))
    }
}

fn generation(policy: &Value) -> i64 {
    policy["metadata"]["generation"].as_i64().unwrap_or(0)
}

/// Returns whether the status of a policy is that of an older one.
fn is_unchecked(policy: &Value) -> bool {
    let observed = policy["status"]["observedGeneration"].as_i64().unwrap_or(0);
    generation(policy) > observed
}

impl Observer for PolicyController {
    fn wants(&self, resource: &Monitored) -> bool {
        resource.is(GROUP, PLURAL)
    }

    fn observe(&self, _: &Arc<Monitored>, change: Change<'_>) {
        if let Change::Set(object) = change
            && is_unchecked(&value(object))
        {
            self.queue.add(object.name().to_owned());
        }
    }
}
