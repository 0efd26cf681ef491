//! Validation of security contexts.

use crate::builtin::causes::Causes;
use crate::builtin::field::Field;

/// The text about the number of a user or a group.
const ID_RANGE: &str = "must be between 0 and 2147483647, inclusive";

fn check_id(id: &Field<'_>, causes: &mut Causes) {
    causes.check_range(id, 0, i64::from(i32::MAX), ID_RANGE);
}

/// Checks the security context of a container.
pub(super) fn check_context(context: &Field<'_>, causes: &mut Causes) {
    if !context.is_set() {
        return;
    }
    check_id(&context.child("runAsUser"), causes);
    check_id(&context.child("runAsGroup"), causes);
    causes.check_one_of(&context.child("procMount"), &["Default", "Unmasked"]);
    check_profiles(context, causes);
    let escalation = context.child("allowPrivilegeEscalation");
    if escalation.is_set() && !escalation.flag() {
        if context.child("privileged").flag() {
            causes.invalid(
                context,
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        for capability in context.at(&["capabilities", "add"]).items() {
            if capability.text() == "CAP_SYS_ADMIN" {
                causes.invalid(
                    context,
                    "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` \
                     CAP_SYS_ADMIN",
                );
            }
        }
    }
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
    causes.check_one_of(
        &context.child("fsGroupChangePolicy"),
        &["Always", "OnRootMismatch"],
    );
    causes.check_one_of(
        &context.child("supplementalGroupsPolicy"),
        &["Merge", "Strict"],
    );
    causes.check_one_of(
        &context.child("seLinuxChangePolicy"),
        &["MountOption", "Recursive"],
    );
    check_profiles(&context, causes);
}

fn check_profiles(context: &Field<'_>, causes: &mut Causes) {
    for name in ["seccompProfile", "appArmorProfile"] {
        let profile = context.child(name);
        if !profile.is_set() {
            continue;
        }
        let kind = profile.child("type");
        if !causes.check_required(&kind) {
            continue;
        }
        causes.check_one_of(&kind, &["Localhost", "RuntimeDefault", "Unconfined"]);
        let local = profile.child("localhostProfile");
        match (kind.text(), local.is_set()) {
            ("Localhost", false) => {
                causes.required(&local, "must be set when seccomp type is Localhost");
            }
            ("Localhost", true) | (_, false) => {}
            (_, true) => causes.invalid(&local, "can only be set when seccomp type is Localhost"),
        }
    }
}
