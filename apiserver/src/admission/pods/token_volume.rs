//! The volume with the token of a service account.

use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use crate::builtin::edit;

/// The beginning of the volume's name.
const PREFIX: &str = "kube-api-access-";
/// Where containers find the token.
const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime of the token in seconds, by which a server knows that it may extend it.
const LIFETIME_SECONDS: i64 = 3607;

/// Mounts the token in all containers of a pod that mount nothing else there, and adds the volume if one does.
/// `new_name` makes a name from its beginning.
pub(super) fn mount(spec: &mut JsonObject, new_name: impl FnOnce(&str) -> String) {
    let volumes = spec.get("volumes").and_then(Value::as_array);
    let mut names = volumes
        .into_iter()
        .flatten()
        .filter_map(|it| it["name"].as_str());
    let existing = names.find(|name| name.starts_with(PREFIX));
    let has_volume = existing.is_some();
    let volume = match existing {
        Some(name) => name.to_owned(),
        None => new_name(PREFIX),
    };
    let mut is_used = false;
    for list in ["initContainers", "containers"] {
        for container in edit::items_mut(spec, list) {
            edit::set_unset(container, "volumeMounts", json!([]));
            let mounts = container
                .get_mut("volumeMounts")
                .and_then(Value::as_array_mut);
            if let Some(mounts) = mounts.filter(|it| it.iter().all(|it| it["mountPath"] != PATH)) {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": PATH}));
                is_used = true;
            }
        }
    }
    if has_volume || !is_used {
        return;
    }
    edit::set_unset(spec, "volumes", json!([]));
    if let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.push(json!({"name": volume, "projected": source()}));
    }
}

/// Returns the content of the volume: the token, the authority of the server and the namespace.
fn source() -> Value {
    let authority = json!({"key": "ca.crt", "path": "ca.crt"});
    let namespace = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    json!({
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": LIFETIME_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [authority]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
        ],
    })
}
