//! What a pod sees and sets of the kernel.

use crate::admission::pod_security::pod::{
    Pod, Texts, Violation, context, items, named, quoted, text,
};

/// The sysctls that are safe, each with the minor version from which on it is allowed.
const SAFE_SYSCTLS: [(u64, &str); 12] = [
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
];

/// The usual view of `/proc`.
pub(in crate::admission::pod_security) fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let mut types = Texts::new();
    let containers = pod.containers_that(|container| {
        let mount = context(container)["procMount"].as_str();
        let other = mount.filter(|mount| *mount != "Default");
        types.extend(other);
        other.is_some()
    });
    Violation::unless(&containers, "procMount", || {
        let (containers, types) = (named("container", &containers), quoted(types));
        format!("{containers} must not set securityContext.procMount to {types}")
    })
}

/// As [`proc_mount`], but for pods with users of their own.
pub(in crate::admission::pod_security) fn proc_mount_of_users(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() {
        return None;
    }
    proc_mount(pod)
}

/// Only safe sysctls.
pub(in crate::admission::pod_security) fn sysctls(pod: Pod<'_>) -> Option<Violation> {
    sysctls_of(0, pod)
}

pub(in crate::admission::pod_security) fn sysctls_1_27(pod: Pod<'_>) -> Option<Violation> {
    sysctls_of(27, pod)
}

pub(in crate::admission::pod_security) fn sysctls_1_29(pod: Pod<'_>) -> Option<Violation> {
    sysctls_of(29, pod)
}

pub(in crate::admission::pod_security) fn sysctls_1_32(pod: Pod<'_>) -> Option<Violation> {
    sysctls_of(32, pod)
}

fn sysctls_of(minor: u64, pod: Pod<'_>) -> Option<Violation> {
    let is_safe = |name: &&str| {
        let mut safe = SAFE_SYSCTLS.iter().filter(|(from, _)| *from <= minor);
        safe.any(|(_, safe)| safe == name)
    };
    let sysctls = items(&pod.context()["sysctls"]);
    let names = sysctls.map(|sysctl| text(&sysctl["name"]));
    let names: Vec<&str> = names.filter(|name| !is_safe(name)).collect();
    Violation::unless(&names, "forbidden sysctls", || names.join(", "))
}
