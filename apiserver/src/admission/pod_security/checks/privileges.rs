//! The privileges of containers.

use crate::admission::pod_security::pod::{
    Pod, Texts, Violation, context, items, named, quoted, text,
};

/// The capabilities that a container has by default.
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// No privileged containers.
pub(in crate::admission::pod_security) fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let containers = pod.containers_that(|container| context(container)["privileged"] == true);
    Violation::unless(&containers, "privileged", || {
        let containers = named("container", &containers);
        format!("{containers} must not set securityContext.privileged=true")
    })
}

/// No processes that get more privileges than their parents.
pub(in crate::admission::pod_security) fn escalation(pod: Pod<'_>) -> Option<Violation> {
    let containers =
        pod.containers_that(|container| context(container)["allowPrivilegeEscalation"] != false);
    Violation::unless(&containers, "allowPrivilegeEscalation != false", || {
        let containers = named("container", &containers);
        format!("{containers} must set securityContext.allowPrivilegeEscalation=false")
    })
}

/// As [`escalation`], but for Linux only.
pub(in crate::admission::pod_security) fn escalation_but_windows(
    pod: Pod<'_>,
) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    escalation(pod)
}

/// No more capabilities than by default.
pub(in crate::admission::pod_security) fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let (containers, added) = adding(pod, &DEFAULT_CAPABILITIES);
    Violation::unless(&containers, "non-default capabilities", || {
        not_adding(&containers, added)
    })
}

/// No capabilities, except that of ports below 1024.
pub(in crate::admission::pod_security) fn all_capabilities(pod: Pod<'_>) -> Option<Violation> {
    let keeping = pod.containers_that(|container| {
        let dropped = &context(container)["capabilities"]["drop"];
        !items(dropped).any(|name| name == "ALL")
    });
    let (containers, added) = adding(pod, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let keeping = named("container", &keeping);
        details.push(format!(
            "{keeping} must set securityContext.capabilities.drop=[\"ALL\"]"
        ));
    }
    if !containers.is_empty() {
        details.push(not_adding(&containers, added));
    }
    Violation::unless(&details, "unrestricted capabilities", || details.join("; "))
}

/// As [`all_capabilities`], but for Linux only.
pub(in crate::admission::pod_security) fn all_capabilities_but_windows(
    pod: Pod<'_>,
) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    all_capabilities(pod)
}

/// Returns the containers that add other capabilities than the allowed ones, and these capabilities.
fn adding<'a>(pod: Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, Texts<'a>) {
    let mut added = Texts::new();
    let containers = pod.containers_that(|container| {
        let names = items(&context(container)["capabilities"]["add"]).map(text);
        let others: Vec<&str> = names.filter(|name| !allowed.contains(name)).collect();
        let is_other = !others.is_empty();
        added.extend(others);
        is_other
    });
    (containers, added)
}

fn not_adding(containers: &[&str], added: Texts<'_>) -> String {
    let (containers, added) = (named("container", containers), quoted(added));
    format!("{containers} must not include {added} in securityContext.capabilities.add")
}
