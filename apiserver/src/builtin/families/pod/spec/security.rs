//! Validation of security contexts.

use std::collections::HashSet;

use revstore_watch_cache::status::StatusCause;

use super::container::check_relative;
use super::system;
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;

/// The text about the number of a user or a group.
const ID_RANGE: &str = "must be between 0 and 2147483647, inclusive";

/// Checks the number of a user or of a group.
pub(in crate::builtin::families::pod) fn check_id(id: &Field<'_>, causes: &mut Causes) {
    causes.check_range(id, 0, i64::from(i32::MAX), ID_RANGE);
}

/// Checks the security context of a container.
pub(super) fn check_context(container: &Field<'_>, host_users: bool, causes: &mut Causes) {
    let context = container.child("securityContext");
    if !context.is_set() {
        return;
    }
    check_id(&context.child("runAsUser"), causes);
    check_id(&context.child("runAsGroup"), causes);
    let mount = context.child("procMount");
    causes.check_one_of(&mount, &["Default", "Unmasked"]);
    if mount.text() == "Unmasked" && host_users {
        causes.invalid(&mount, "`hostUsers` must be false to use `Unmasked`");
    }
    check_seccomp(&context.child("seccompProfile"), causes);
    let escalation = context.child("allowPrivilegeEscalation");
    if escalation.is_set() && !escalation.flag() {
        if context.child("privileged").flag() {
            causes.invalid(
                &context,
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        for capability in context.at(&["capabilities", "add"]).items() {
            if capability.text() == "CAP_SYS_ADMIN" {
                causes.invalid(
                    &context,
                    "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` \
                     CAP_SYS_ADMIN",
                );
            }
        }
    }
    system::check_windows_options(&context.child("windowsOptions"), causes);
    check_app_armor(&context.child("appArmorProfile"), causes);
}

/// Checks the security context of a pod.
pub(super) fn check_pod_context(spec: &Field<'_>, causes: &mut Causes) {
    let context = spec.child("securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        check_id(&context.child(name), causes);
    }
    for group in context.child("supplementalGroups").items() {
        check_id(&group, causes);
    }
    let shared = spec.child("shareProcessNamespace");
    if shared.flag() && spec.child("hostPID").flag() {
        causes.invalid_at(
            context.child("shareProcessNamespace").path(),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    check_sysctls(spec, causes);
    causes.check_one_of(
        &context.child("fsGroupChangePolicy"),
        &["Always", "OnRootMismatch"],
    );
    check_seccomp(&context.child("seccompProfile"), causes);
    system::check_windows_options(&context.child("windowsOptions"), causes);
    check_app_armor(&context.child("appArmorProfile"), causes);
    causes.check_one_of(
        &context.child("supplementalGroupsPolicy"),
        &["Merge", "Strict"],
    );
    causes.check_one_of(&context.child("seLinuxChangePolicy"), &["Recursive"]);
}

/// The maximum length of the name of a parameter of the kernel.
const SYSCTL_BYTES_MAX: usize = 253;
/// The parameters of the namespace of inter-process communication.
const IPC_SYSCTLS: [&str; 10] = [
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

/// Checks the parameters of the kernel.
fn check_sysctls(spec: &Field<'_>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for sysctl in spec.at(&["securityContext", "sysctls"]).items() {
        let name = sysctl.child("name");
        if causes.check_required(&name) {
            if !is_sysctl(name.text()) {
                causes.invalid(
                    &name,
                    "must have at most 253 characters and match regex \
                     ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
                );
            } else if seen.contains(name.text()) {
                causes.duplicate(&name);
            }
        }
        let parameter = normalized(name.text());
        let is_ipc =
            IPC_SYSCTLS.contains(&parameter.as_str()) || parameter.starts_with("fs.mqueue.");
        if spec.child("hostNetwork").flag() && parameter.starts_with("net.") {
            causes.invalid(&name, "may not be specified when 'hostNetwork' is true");
        } else if spec.child("hostIPC").flag() && is_ipc {
            causes.invalid(&name, "may not be specified when 'hostIPC' is true");
        }
        seen.insert(name.text());
    }
}

/// Returns whether a text consists of names between dots and slashes.
fn is_sysctl(text: &str) -> bool {
    let is_outer = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_segment = |segment: &str| {
        let bytes = segment.as_bytes();
        bytes.first().is_some_and(is_outer)
            && bytes.last().is_some_and(is_outer)
            && bytes
                .iter()
                .all(|byte| is_outer(byte) || b"-_".contains(byte))
    };
    text.len() <= SYSCTL_BYTES_MAX && text.split(['.', '/']).all(is_segment)
}

/// Returns the name of a parameter with dots, where its first separator may be a slash.
fn normalized(name: &str) -> String {
    if name.find(['.', '/']).map(|index| &name[index..=index]) != Some("/") {
        return name.to_owned();
    }
    let swapped = name.chars().map(|letter| match letter {
        '/' => '.',
        '.' => '/',
        letter => letter,
    });
    swapped.collect()
}

fn check_seccomp(profile: &Field<'_>, causes: &mut Causes) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.child("type"), profile.child("localhostProfile"));
    if kind.text().is_empty() {
        let detail = "type is required when seccompProfile is set";
        causes.required(&kind, detail);
    } else {
        causes.check_one_of(&kind, &["Localhost", "RuntimeDefault", "Unconfined"]);
    }
    match (kind.text(), local.is_set()) {
        ("Localhost", false) => {
            causes.required(&local, "must be set when seccomp type is Localhost");
        }
        ("Localhost", true) => check_relative(&local, causes),
        (_, true) => {
            let detail = "can only be set when seccomp type is Localhost";
            causes.invalid_at(local.path(), profile.value(), detail);
        }
        (_, false) => {}
    }
}

/// The maximum length of the name of a profile.
pub(in crate::builtin::families::pod) const PROFILE_BYTES_MAX: usize = 4095;

fn check_app_armor(profile: &Field<'_>, causes: &mut Causes) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.child("type"), profile.child("localhostProfile"));
    match kind.text() {
        "Localhost" => {
            let trimmed = local.text().trim();
            if trimmed != local.text() {
                causes.invalid(&local, "must not be padded with whitespace");
            } else if trimmed.is_empty() {
                causes.required(&local, "must be set when AppArmor type is Localhost");
            }
            if local.text().len() > PROFILE_BYTES_MAX {
                causes.push(StatusCause::too_long(local.path(), PROFILE_BYTES_MAX));
            }
        }
        "RuntimeDefault" | "Unconfined" if local.is_set() => {
            causes.invalid(&local, "can only be set when AppArmor type is Localhost");
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => {
            let detail = "type is required when appArmorProfile is set";
            causes.required(&kind, detail);
        }
        _ => causes.not_supported(&kind, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}
