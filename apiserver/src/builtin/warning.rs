//! Warnings about objects that are valid and yet probably not what their author means. Clients show them
//! from the `Warning` headers of a response.

use revstore_watch_cache::registry::JsonObject;

use super::families::pod;
use super::field::Field;
use super::names;

const RECYCLE: &str = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. \
                       Instead, the recommended approach is to use dynamic provisioning.";

/// The annotation of service accounts whose pods may use no other secrets.
pub(crate) const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

/// Returns the warnings about a new object, or about the version of an object that replaces `old`.
pub fn warnings(object: &JsonObject, old: Option<&JsonObject>) -> Vec<String> {
    let root = Field::root(object);
    let mut warnings = Vec::new();
    let is_new = old.is_none();
    // What has not changed was warned of before.
    let is_changed = old.is_none_or(|old| old.get("spec") != object.get("spec"));
    match root.child("kind").text() {
        // Programs and not people change pods.
        "Pod" if is_new => return pod::warnings(object),
        "Deployment" | "ReplicaSet" | "ReplicationController" | "Job" | "CronJob" if is_changed => {
            if is_new {
                check_name(&root, &mut warnings);
            }
            let spec = root.child("spec");
            let spec = match root.child("kind").text() {
                "CronJob" => spec.at(&["jobTemplate", "spec"]),
                _ => spec,
            };
            warnings.extend(pod::template_warnings(&spec.child("template")));
        }
        "StatefulSet" | "DaemonSet" => {
            let spec = root.child("spec");
            if is_changed {
                warnings.extend(pod::template_warnings(&spec.child("template")));
            }
            let limit = spec.child("revisionHistoryLimit");
            if limit.int().is_some_and(|limit| limit < 0) {
                warnings.push(
                    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a \
                     value >= 0 is recommended"
                        .to_owned(),
                );
            }
        }
        "Service" => check_service(&root, &mut warnings),
        "ServiceAccount" => {
            let is_set = |object: &JsonObject| {
                let annotations = Field::root(object).at(&["metadata", "annotations"]);
                annotations.key(ENFORCE_SECRETS).is_set()
            };
            if is_set(object) && !old.is_some_and(is_set) {
                warnings.push(format!(
                    "metadata.annotations[{ENFORCE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to \
                     isolate access to mounted secrets"
                ));
            }
        }
        "Ingress" if is_new => {
            let class = "kubernetes.io/ingress.class";
            let is_annotated = root.at(&["metadata", "annotations"]).key(class).is_set();
            if is_annotated && !root.at(&["spec", "ingressClassName"]).is_set() {
                warnings.push(format!(
                    "annotation {class:?} is deprecated, please use 'spec.ingressClassName' instead"
                ));
            }
        }
        "PersistentVolume" => {
            let policy = root.at(&["spec", "persistentVolumeReclaimPolicy"]);
            let recycles = policy.text() == "Recycle";
            warnings.extend(recycles.then(|| RECYCLE.to_owned()));
        }
        "Node" => {
            if root.at(&["spec", "configSource"]).is_set() {
                warnings.push("spec.configSource: the feature is removed".to_owned());
            }
            if !root.at(&["spec", "externalID"]).text().is_empty() {
                warnings.push(
                    "spec.externalID: this field is deprecated, and is unused by Kubernetes"
                        .to_owned(),
                );
            }
        }
        "EndpointSlice" if is_new => {
            let names = root.child("addressType").text() == "FQDN";
            let text = "spec.addressType: FQDN endpoints are deprecated";
            warnings.extend(names.then(|| text.to_owned()));
        }
        _ => {}
    }
    warnings
}

/// Returns the warning that every request for a kind gets, or `None`.
pub fn kind_warning(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    match (group, version, kind) {
        ("", "v1", "Endpoints") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        }
        ("", "v1", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        _ => None,
    }
}

/// Returns the warning of a deletion without a propagation policy, or `None`.
pub fn deletion_warning(group: &str, kind: &str) -> Option<&'static str> {
    (group == "batch" && kind == "Job").then_some(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
         remove them or set propagationPolicy=Orphan to suppress this warning",
    )
}

/// Warns of a name that cannot be part of the host names of pods.
fn check_name(root: &Field<'_>, warnings: &mut Vec<String>) {
    let name = root.at(&["metadata", "name"]).text();
    if let Some(error) = names::dns_label_error(name).filter(|_| !name.is_empty()) {
        warnings.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising \
             behavior; a DNS label is recommended: [{error}]"
        ));
    }
}

fn check_service(root: &Field<'_>, warnings: &mut Vec<String>) {
    let spec = root.child("spec");
    let kind = spec.child("type").text();
    let external = spec.child("externalIPs").len() > 0;
    let mut warn = |text: &str| warnings.push(text.to_owned());
    if spec.child("clusterIP").text() == "None" {
        if !spec.child("loadBalancerIP").text().is_empty() {
            warn("spec.loadBalancerIP is ignored for headless services");
        }
        if external {
            warn("spec.externalIPs is ignored for headless services");
        }
        if spec.child("sessionAffinity").text() == "ClientIP" {
            warn("spec.SessionAffinity is ignored for headless services");
        }
    }
    if external {
        warn("spec.externalIPs is deprecated and may no longer be implemented in some clusters");
    }
    if external && kind == "ExternalName" {
        warn("spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    }
    if kind != "ExternalName" && !spec.child("externalName").text().is_empty() {
        warn("spec.externalName is ignored when spec.type is not \"ExternalName\"");
    }
    if spec.child("trafficDistribution").text() == "PreferClose" {
        warn("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"");
    }
}
