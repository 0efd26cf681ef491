//! The service account of a pod: it exists, and the pod gets its token and its secrets for images.

use std::time::Duration;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::{ObjectRef, RequestError};
use serde_json::{Value, json};

use super::{secret_references, token_volume};
use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::{ENFORCE_SECRETS, edit};

/// The account of pods that name none.
const DEFAULT: &str = "default";
/// How often the default account of a namespace is looked up: a controller creates it after the namespace.
const LOOKUPS_MAX: u32 = 10;
/// The pause before the second look-up. Each further one is longer by as much: all are 0.9 s.
const PAUSE: Duration = Duration::from_millis(20);
/// The annotation of pods that a kubelet has from elsewhere, and shows here.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The plugin `ServiceAccount`.
#[derive(Debug)]
pub(crate) struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        match request.operation {
            Operation::Create => request.is_for("", "pods", ""),
            Operation::Update => {
                phase == Phase::Validate && request.is_for("", "pods", "ephemeralcontainers")
            }
            Operation::Delete | Operation::Connect => false,
        }
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some(pod) = object else {
                return Ok(());
            };
            // The kubelet deletes a mirror pod that differs from its own.
            if !is_mirror(pod) {
                complete(request, pod).await?;
            }
            check(request, pod).await
        })
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            match object {
                Some(pod) => check(request, pod).await,
                None => Ok(()),
            }
        })
    }
}

/// Gives a new pod what its account has.
async fn complete(request: &Attributes<'_>, pod: &mut JsonObject) -> Result<(), RequestError> {
    let name = match edit::text_at(pod, &["spec", "serviceAccountName"]) {
        "" => DEFAULT.to_owned(),
        name => name.to_owned(),
    };
    let account = account(request, pod, &name).await?;
    let Some(spec) = edit::ensure(pod, "spec") else {
        return Ok(());
    };
    // Both names are those of one field.
    spec.insert("serviceAccount".to_owned(), name.as_str().into());
    spec.insert("serviceAccountName".to_owned(), name.into());
    let field = "automountServiceAccountToken";
    let automount = |object: &JsonObject| object.get(field).and_then(Value::as_bool);
    if automount(spec).or(automount(&account)).unwrap_or(true) {
        token_volume::mount(spec, |prefix| match &request.resource.stored {
            Some(stored) => stored.store.generated_name(prefix),
            None => prefix.to_owned(),
        });
    }
    let field = "imagePullSecrets";
    let secrets = edit::at(&account, &[field]).and_then(Value::as_array);
    let named = |secret: &Value| match secret["name"].as_str() {
        Some(name) if !name.is_empty() => json!({ "name": name }),
        _ => json!({}),
    };
    let secrets: Vec<Value> = secrets.into_iter().flatten().map(named).collect();
    if !secrets.is_empty() {
        edit::set_zero(spec, field, secrets);
    }
    Ok(())
}

async fn check(request: &Attributes<'_>, pod: &JsonObject) -> Result<(), RequestError> {
    let refuse = |detail: &str| Err(request.forbidden(Some(pod), detail).into());
    let is_create = request.operation == Operation::Create;
    let name = edit::text_at(pod, &["spec", "serviceAccountName"]);
    if is_create && is_mirror(pod) {
        return match secret_references::mirror_error(pod) {
            Some(detail) => refuse(detail),
            None => Ok(()),
        };
    }
    if name.is_empty() {
        let (namespace, pod) = (request.namespace, edit::text_at(pod, &["metadata", "name"]));
        return refuse(&format!(
            "no service account specified for pod {namespace}/{pod}"
        ));
    }
    let account = account(request, pod, name).await?;
    let enforce = edit::text_at(&account, &["metadata", "annotations", ENFORCE_SECRETS]);
    if !["1", "t", "T", "TRUE", "true", "True"].contains(&enforce) {
        return Ok(());
    }
    if is_create {
        return match secret_references::pod_error(pod, &account) {
            Some(detail) => refuse(&detail),
            None => Ok(()),
        };
    }
    match secret_references::ephemeral_error(pod, &account) {
        // kube-apiserver answers this with 500.
        Some(detail) => Err(RequestError::Unclassified(detail)),
        None => Ok(()),
    }
}

fn is_mirror(pod: &JsonObject) -> bool {
    edit::at(pod, &["metadata", "annotations", MIRROR]).is_some()
}

/// Returns the account of a pod.
async fn account(
    request: &Attributes<'_>,
    pod: &JsonObject,
    name: &str,
) -> Result<JsonObject, RequestError> {
    let namespace = request.namespace;
    let reference = ObjectRef::namespaced(namespace, name);
    let lookups = if name == DEFAULT { LOOKUPS_MAX } else { 1 };
    for lookup in 0..lookups {
        tokio::time::sleep(PAUSE * lookup).await;
        let found = objects::find(request.front, ("", "serviceaccounts"), &reference).await?;
        if let Some(account) = found {
            return Ok(account);
        }
    }
    let detail = format!(
        "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
    );
    Err(request.forbidden(Some(pod), &detail).into())
}
