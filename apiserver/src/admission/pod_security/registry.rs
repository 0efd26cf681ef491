//! The checks of each level and version.

use crate::admission::pod_security::checks::{host, kernel, privileges, profiles, users, volumes};
use crate::admission::pod_security::pod::{Pod, Violation};
use crate::admission::pod_security::policy::{Level, Standard, Version};

/// What a check does.
type CheckPod = fn(Pod<'_>) -> Option<Violation>;

/// A check of a level.
struct Check {
    id: &'static str,
    level: Level,
    /// The checks from a minor version on, in the order of the versions.
    versions: &'static [(u64, CheckPod)],
    /// The check of the baseline that it replaces.
    replaces: &'static str,
}

const fn baseline(id: &'static str, versions: &'static [(u64, CheckPod)]) -> Check {
    Check {
        id,
        level: Level::Baseline,
        versions,
        replaces: "",
    }
}

const fn restricted(id: &'static str, versions: &'static [(u64, CheckPod)]) -> Check {
    Check {
        level: Level::Restricted,
        ..baseline(id, versions)
    }
}

const fn replacing(
    replaces: &'static str,
    id: &'static str,
    versions: &'static [(u64, CheckPod)],
) -> Check {
    Check {
        replaces,
        ..restricted(id, versions)
    }
}

/// All checks in the order in which they are reported: the baseline first, each level by the names of its checks.
const CHECKS: &[Check] = &[
    baseline("appArmorProfile", &[(0, profiles::app_armor)]),
    baseline("capabilities_baseline", &[(0, privileges::capabilities)]),
    baseline("hostNamespaces", &[(0, host::namespaces)]),
    baseline("hostPathVolumes", &[(0, volumes::host_path)]),
    baseline("hostPorts", &[(0, host::ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, host::probes)]),
    baseline("privileged", &[(0, privileges::privileged)]),
    baseline(
        "procMount",
        &[(0, kernel::proc_mount), (35, kernel::proc_mount_of_users)],
    ),
    baseline(
        "seLinuxOptions",
        &[(0, profiles::se_linux), (31, profiles::se_linux_1_31)],
    ),
    baseline(
        "seccompProfile_baseline",
        &[(0, profiles::seccomp_annotations), (19, profiles::seccomp)],
    ),
    baseline(
        "sysctls",
        &[
            (0, kernel::sysctls),
            (27, kernel::sysctls_1_27),
            (29, kernel::sysctls_1_29),
            (32, kernel::sysctls_1_32),
        ],
    ),
    baseline("windowsHostProcess", &[(0, host::process)]),
    restricted(
        "allowPrivilegeEscalation",
        &[
            (8, privileges::escalation),
            (25, privileges::escalation_but_windows),
        ],
    ),
    replacing(
        "capabilities_baseline",
        "capabilities_restricted",
        &[
            (22, privileges::all_capabilities),
            (25, privileges::all_capabilities_but_windows),
        ],
    ),
    replacing(
        "procMount",
        "procMount_restricted",
        &[(35, kernel::proc_mount)],
    ),
    replacing(
        "hostPathVolumes",
        "restrictedVolumes",
        &[(0, volumes::restricted)],
    ),
    restricted(
        "runAsNonRoot",
        &[(0, users::non_root), (35, users::non_root_of_node)],
    ),
    restricted("runAsUser", &[(23, users::user), (35, users::user_of_node)]),
    replacing(
        "seccompProfile_baseline",
        "seccompProfile_restricted",
        &[
            (19, profiles::required_seccomp),
            (25, profiles::required_seccomp_but_windows),
        ],
    ),
];

/// Returns all violations of a standard.
pub(super) fn violations(standard: Standard, pod: Pod<'_>) -> Vec<Violation> {
    checks(standard).filter_map(|check| check(pod)).collect()
}

fn checks(standard: Standard) -> impl Iterator<Item = CheckPod> {
    let minor = match standard.version {
        Version::Minor(minor) => minor,
        Version::Latest => u64::MAX,
    };
    let of_version = move |check: &Check| {
        let versions = check.versions.iter().rev();
        let mut versions = versions.filter(|(from, _)| *from <= minor);
        versions.next().map(|(_, check)| *check)
    };
    let is_on = move |check: &&Check| check.level <= standard.level;
    let is_replaced = move |check: &Check| {
        let mut others = CHECKS.iter().filter(is_on);
        others.any(|other| other.replaces == check.id && of_version(other).is_some())
    };
    let checks = CHECKS.iter().filter(is_on);
    checks
        .filter(move |check| !is_replaced(check))
        .filter_map(of_version)
}

/// Returns what pods with some violations are told.
pub(super) fn details(violations: &[Violation]) -> String {
    let details = violations
        .iter()
        .map(|violation| match violation.detail.as_str() {
            "" => violation.reason.to_owned(),
            detail => format!("{} ({detail})", violation.reason),
        });
    details.collect::<Vec<_>>().join(", ")
}

/// Returns the reasons only, which many pods have in common.
pub(super) fn reasons(violations: &[Violation]) -> String {
    let reasons: Vec<&str> = violations
        .iter()
        .map(|violation| violation.reason)
        .collect();
    reasons.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_in_the_order_of_their_names() {
        let keys: Vec<(Level, &str)> = CHECKS.iter().map(|check| (check.level, check.id)).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for check in CHECKS {
            assert!(check.versions.is_sorted_by_key(|(from, _)| *from));
            let replaced = CHECKS.iter().find(|other| other.id == check.replaces);
            assert_eq!(
                replaced.is_some(),
                !check.replaces.is_empty(),
                "{}",
                check.id
            );
        }
    }

    #[test]
    fn versions_have_the_checks_of_their_time() {
        for (level, version, count) in [
            (Level::Privileged, Version::Latest, 0),
            (Level::Baseline, Version::Minor(0), 11),
            (Level::Baseline, Version::Minor(33), 11),
            (Level::Baseline, Version::Minor(34), 12),
            (Level::Baseline, Version::Latest, 12),
            (Level::Baseline, Version::Minor(1_000), 12),
            (Level::Restricted, Version::Minor(0), 12),
            (Level::Restricted, Version::Minor(8), 13),
            (Level::Restricted, Version::Minor(23), 14),
            (Level::Restricted, Version::Latest, 15),
        ] {
            let standard = Standard { level, version };
            assert_eq!(checks(standard).count(), count, "{standard}");
        }
    }
}
