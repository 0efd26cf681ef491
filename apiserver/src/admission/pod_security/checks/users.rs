//! The users of the processes.

use serde_json::Value;

use crate::admission::pod_security::pod::{Pod, Violation, context, named, setters};

/// No processes of root, and a promise of it.
pub(in crate::admission::pod_security) fn non_root(pod: Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let says = |context: &Value| context["runAsNonRoot"].as_bool();
    let of_pod = says(pod.context());
    let bad = pod.containers_that(|container| says(context(container)) == Some(false));
    let setters = setters(of_pod == Some(false), &bad);
    if !setters.is_empty() {
        let setters = setters.join(" and ");
        let detail = format!("{setters} must not set securityContext.runAsNonRoot=false");
        return Some(Violation {
            reason: REASON,
            detail,
        });
    }
    let silent =
        pod.containers_that(|container| says(context(container)).is_none() && of_pod != Some(true));
    Violation::unless(&silent, REASON, || {
        let containers = named("container", &silent);
        format!("pod or {containers} must set securityContext.runAsNonRoot=true")
    })
}

/// As [`non_root`], but for pods with users of their own, whose root is not that of the node.
pub(in crate::admission::pod_security) fn non_root_of_node(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() {
        return None;
    }
    non_root(pod)
}

/// No user 0.
pub(in crate::admission::pod_security) fn user(pod: Pod<'_>) -> Option<Violation> {
    let is_root = |context: &Value| context["runAsUser"].as_i64() == Some(0);
    let containers = pod.containers_that(|container| is_root(context(container)));
    let setters = setters(is_root(pod.context()), &containers);
    Violation::unless(&setters, "runAsUser=0", || {
        format!("{} must not set runAsUser=0", setters.join(" and "))
    })
}

/// As [`user`], but for pods with users of their own.
pub(in crate::admission::pod_security) fn user_of_node(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() {
        return None;
    }
    user(pod)
}
