//! The secrets that a pod uses.

use std::collections::HashSet;

use revstore_watch_cache::registry::JsonObject;

use crate::builtin::field::Field;

/// The lists of containers, and how errors name their items.
const CONTAINERS: [(&str, &str); 2] = [
    ("initContainers", "init container"),
    ("containers", "container"),
];
const EPHEMERAL: (&str, &str) = ("ephemeralContainers", "ephemeral container");
/// The paths below a volume at which the name of a secret stands.
const VOLUMES: [&[&str]; 10] = [
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["secret", "secretName"],
    &["scaleIO", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["storageos", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
];

/// Returns what is wrong with a mirror pod: it cannot use what only this server has.
pub(super) fn mirror_error(pod: &JsonObject) -> Option<&'static str> {
    let spec = Field::root(pod).child("spec");
    if !spec.child("serviceAccountName").text().is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    if uses_secrets(&spec) {
        return Some("a mirror pod may not reference secrets");
    }
    let mut sources = spec
        .child("volumes")
        .items()
        .flat_map(|volume| volume.at(&["projected", "sources"]).items());
    let has_token = sources.any(|source| source.child("serviceAccountToken").is_set());
    has_token.then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

fn uses_secrets(spec: &Field<'_>) -> bool {
    let is_named = |field: &Field<'_>| !field.text().is_empty();
    let pulls = spec.child("imagePullSecrets");
    let mut lists = CONTAINERS.into_iter().chain([EPHEMERAL]);
    pulls.items().any(|secret| is_named(&secret.child("name")))
        || lists.any(|(list, _)| {
            let mut containers = spec.child(list).items();
            containers.any(|container| {
                let references = references(&container);
                references.iter().any(|(_, secret)| !secret.is_empty())
            })
        })
        || spec.child("volumes").items().any(|volume| {
            let mut projected = volume.at(&["projected", "sources"]).items();
            VOLUMES.iter().any(|path| is_named(&volume.at(path)))
                || projected.any(|source| is_named(&source.at(&["secret", "name"])))
        })
}

/// Returns the secrets that the environment of a container refers to, each with the name of the variable. All variables
/// come before the sources of several, which have none.
fn references<'a>(container: &Field<'a>) -> Vec<(Option<&'a str>, &'a str)> {
    let variables = container.child("env").items().filter_map(|variable| {
        let reference = variable.at(&["valueFrom", "secretKeyRef"]);
        let name = variable.child("name").text();
        let secret = reference.child("name").text();
        reference.is_set().then_some((Some(name), secret))
    });
    let sources = container.child("envFrom").items().filter_map(|source| {
        let reference = source.child("secretRef");
        let secret = reference.child("name").text();
        reference.is_set().then_some((None, secret))
    });
    variables.chain(sources).collect()
}

/// Returns the names in a list of an account.
fn names<'a>(account: &'a JsonObject, list: &'a str) -> HashSet<&'a str> {
    let items = Field::root(account).child(list).items();
    items.map(|item| item.child("name").text()).collect()
}

/// Returns the first use of a secret in a pod that its account does not allow.
pub(super) fn pod_error(pod: &JsonObject, account: &JsonObject) -> Option<String> {
    let spec = Field::root(pod).child("spec");
    let account_name = Field::root(account).at(&["metadata", "name"]).text();
    let allowed = names(account, "secrets");
    for volume in spec.child("volumes").items() {
        let source = volume.child("secret");
        let secret = source.child("secretName").text();
        if source.is_set() && !allowed.contains(secret) {
            return Some(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {account_name} does \
                 not reference that secret"
            ));
        }
    }
    let error = container_error(pod, account, &CONTAINERS);
    if error.is_some() {
        return error;
    }
    let allowed = names(account, "imagePullSecrets");
    let pulls = spec.child("imagePullSecrets").items().enumerate();
    let mut pulls = pulls.map(|(index, secret)| (index, secret.child("name").text()));
    let (index, secret) = pulls.find(|(_, secret)| !allowed.contains(secret))?;
    Some(format!(
        "imagePullSecrets[{index}].name=\"{secret}\" is not allowed because service account {account_name} does not \
         reference that imagePullSecret"
    ))
}

/// Returns the first use of a secret in an ephemeral container that the account of the pod does not allow.
pub(super) fn ephemeral_error(pod: &JsonObject, account: &JsonObject) -> Option<String> {
    container_error(pod, account, &[EPHEMERAL])
}

fn container_error(
    pod: &JsonObject,
    account: &JsonObject,
    lists: &[(&str, &str)],
) -> Option<String> {
    let account_name = Field::root(account).at(&["metadata", "name"]).text();
    let allowed = names(account, "secrets");
    for (list, what) in lists {
        for container in Field::root(pod).child("spec").child(list).items() {
            let references = references(&container).into_iter();
            let mut wrong = references.filter(|(_, secret)| !allowed.contains(secret));
            let Some((variable, secret)) = wrong.next() else {
                continue;
            };
            let place = match variable {
                Some(variable) => format!("envVar {variable}"),
                None => "envFrom".to_owned(),
            };
            let name = container.child("name").text();
            return Some(format!(
                "{what} {name} with {place} referencing secret.secretName=\"{secret}\" is not allowed because service \
                 account {account_name} does not reference that secret"
            ));
        }
    }
    None
}
