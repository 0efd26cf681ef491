//! Validation of the annotations of pods that have a meaning of their own.

use std::collections::HashSet;

use revstore_watch_cache::status::quoted;

use super::app_armor::ANNOTATION as APP_ARMOR;
use super::spec::{all_containers, relative_errors};
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;

/// The annotation of pods that mirror those that a node runs by itself.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation with the cost of the deletion of a pod.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The annotations that came before the fields with profiles.
pub(in crate::builtin) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(in crate::builtin) const SECCOMP_CONTAINER: &str =
    "container.seccomp.security.alpha.kubernetes.io/";

/// Checks the annotations of a pod or of a template.
pub(super) fn check(annotations: &Field<'_>, spec: &Field<'_>, causes: &mut Causes) {
    let mirror = annotations.key(MIRROR);
    if mirror.is_set() && spec.child("nodeName").text().is_empty() {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        causes.invalid(&mirror, detail);
    }
    let cost = annotations.key(DELETION_COST);
    if cost.is_set() && !is_cost(cost.text()) {
        causes.invalid(&cost, "must be a 32bit integer");
    }
    for (key, profile) in annotations.entries() {
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            check_seccomp(&profile.placed(&annotations.child(key)), causes);
        }
    }
    let app_armor: Vec<_> = annotations
        .entries()
        .filter_map(|(key, profile)| Some((key.strip_prefix(APP_ARMOR)?, profile)))
        .collect();
    if app_armor.is_empty() {
        return;
    }
    let containers: HashSet<&str> = all_containers(spec)
        .map(|container| container.child("name").text())
        .collect();
    for (name, profile) in app_armor {
        if !containers.contains(name) {
            causes.invalid_at(profile.path(), name, "container not found");
        }
        let text = profile.text();
        if !["", "runtime/default", "unconfined"].contains(&text) && !text.starts_with("localhost/")
        {
            let detail = format!("invalid AppArmor profile name: {}", quoted(text));
            causes.invalid(&profile, &detail);
        }
    }
}

fn is_cost(text: &str) -> bool {
    let first = text.bytes().next();
    let begins = first.is_some_and(|byte| byte == b'-' || (b'1'..=b'9').contains(&byte));
    (begins || text == "0") && text.parse::<i32>().is_ok()
}

fn check_seccomp(profile: &Field<'_>, causes: &mut Causes) {
    let text = profile.text();
    if ["runtime/default", "docker/default", "unconfined"].contains(&text) {
        return;
    }
    match text.strip_prefix("localhost/") {
        Some(path) => {
            for detail in relative_errors(path) {
                causes.invalid_at(profile.path(), path, detail);
            }
        }
        None => causes.invalid(profile, "must be a valid seccomp profile"),
    }
}

/// Checks that the annotations with profiles agree with the fields.
pub(super) fn check_profiles(annotations: &Field<'_>, spec: &Field<'_>, causes: &mut Causes) {
    let profile = spec.at(&["securityContext", "seccompProfile"]);
    check_agreement("seccomp", &annotations.key(SECCOMP_POD), &profile, causes);
    for container in all_containers(spec) {
        let key = format!("{SECCOMP_CONTAINER}{}", container.child("name").text());
        let profile = container.at(&["securityContext", "seccompProfile"]);
        check_agreement("seccomp", &annotations.key(&key), &profile, causes);
    }
    if spec.at(&["os", "name"]).text() == "windows" {
        return;
    }
    let of_pod = spec.at(&["securityContext", "appArmorProfile"]);
    for container in all_containers(spec) {
        let key = format!("{APP_ARMOR}{}", container.child("name").text());
        let own = container.at(&["securityContext", "appArmorProfile"]);
        let profile = if own.is_set() {
            own
        } else {
            of_pod.placed(&own)
        };
        check_agreement("apparmor", &annotations.key(&key), &profile, causes);
    }
}

fn check_agreement(what: &str, annotation: &Field<'_>, profile: &Field<'_>, causes: &mut Causes) {
    if !annotation.is_set() || !profile.is_set() {
        return;
    }
    let (kind, text) = (profile.child("type"), annotation.text());
    let local = profile.child("localhostProfile");
    let agrees = match kind.text() {
        "Unconfined" => text == "unconfined",
        "RuntimeDefault" => {
            text == "runtime/default" || what == "seccomp" && text == "docker/default"
        }
        "Localhost" => match text.strip_prefix("localhost/") {
            Some(name) => {
                if !local.is_set() || name != local.text() {
                    let detail = format!("{what} profile in annotation and field must match");
                    causes.forbidden(&local, &detail);
                }
                true
            }
            None => false,
        },
        _ => true,
    };
    if !agrees {
        let detail = format!("{what} type in annotation and field must match");
        causes.forbidden(&kind, &detail);
    }
}

/// Checks what changes in the annotations of a pod.
pub(super) fn check_update(
    new: &Field<'_>,
    old: &Field<'_>,
    spec: &Field<'_>,
    causes: &mut Causes,
) {
    for (key, value) in old.entries() {
        let changed = new.key(key);
        if changed.is_set() && changed.text() == value.text() {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            let detail = "may not remove or update AppArmor annotations";
            causes.forbidden(&changed, detail);
        }
        if key == MIRROR {
            let detail = "may not remove or update mirror pod annotation";
            causes.forbidden(&changed, detail);
        }
    }
    for (key, value) in new.entries().filter(|(key, _)| !old.key(key).is_set()) {
        if key.starts_with(APP_ARMOR) {
            causes.forbidden(&value, "may not add AppArmor annotations");
        }
        if key == MIRROR {
            causes.forbidden(&value, "may not add mirror pod annotation");
        }
    }
    check(new, spec, causes);
}
