//! The profiles of the security modules of the kernel: `AppArmor`, seccomp and `SELinux`.

use revstore_watch_cache::status::quoted as go_quoted;
use serde_json::Value;

use crate::admission::pod_security::pod::{
    Pod, Texts, Violation, context, named, plural, quoted, setters, text,
};

/// The types of profiles that do not turn the module off.
const CONFINED: [&str; 2] = ["RuntimeDefault", "Localhost"];
/// The annotations of containers with their profiles, which fields have replaced.
const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// No `AppArmor` profiles that turn it off.
pub(in crate::admission::pod_security) fn app_armor(pod: Pod<'_>) -> Option<Violation> {
    let types = Types::of(pod, "appArmorProfile");
    let mut setters = types.setters();
    let annotations = pod.annotations().filter(|(name, value)| {
        let is_allowed =
            value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/");
        name.starts_with(APP_ARMOR_PREFIX) && !is_allowed
    });
    let mut annotations: Vec<String> = annotations.map(shown_annotation).collect();
    annotations.sort();
    if !annotations.is_empty() {
        setters.push(plural("annotation", annotations.len()));
    }
    let values = types.bad.into_iter();
    let values: Vec<&str> = values
        .chain(annotations.iter().map(String::as_str))
        .collect();
    let reason = match values.len() {
        1 => "forbidden AppArmor profile",
        _ => "forbidden AppArmor profiles",
    };
    Violation::unless(&setters, reason, || {
        let (setters, values) = (setters.join(" and "), quoted(values));
        format!("{setters} must not set AppArmor profile type to {values}")
    })
}

/// No annotations with seccomp profiles that turn it off.
pub(in crate::admission::pod_security) fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
    let is_container = |name: &str| pod.containers().any(|container| container["name"] == name);
    let annotations = pod.annotations().filter(|(name, value)| {
        let is_allowed = ["runtime/default", "docker/default"].contains(value)
            || value.starts_with("localhost/");
        let is_read =
            *name == SECCOMP_POD || name.strip_prefix(SECCOMP_PREFIX).is_some_and(is_container);
        is_read && !is_allowed
    });
    let mut annotations: Vec<String> = annotations.map(shown_annotation).collect();
    annotations.sort();
    Violation::unless(&annotations, "seccompProfile", || {
        let word = plural("annotation", annotations.len());
        format!("forbidden {word} {}", annotations.join(", "))
    })
}

fn shown_annotation((name, value): (&str, &str)) -> String {
    format!("{name}={}", go_quoted(value))
}

/// No seccomp profiles that turn it off.
pub(in crate::admission::pod_security) fn seccomp(pod: Pod<'_>) -> Option<Violation> {
    Types::of(pod, "seccompProfile").seccomp_violation()
}

/// A seccomp profile for each container.
pub(in crate::admission::pod_security) fn required_seccomp(pod: Pod<'_>) -> Option<Violation> {
    let types = Types::of(pod, "seccompProfile");
    if !types.setters().is_empty() {
        return types.seccomp_violation();
    }
    if !pod.context()["seccompProfile"].is_null() {
        return None;
    }
    let silent = pod.containers_that(|container| context(container)["seccompProfile"].is_null());
    Violation::unless(&silent, "seccompProfile", || {
        let containers = named("container", &silent);
        format!(
            "pod or {containers} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        )
    })
}

/// As [`required_seccomp`], but for Linux only.
pub(in crate::admission::pod_security) fn required_seccomp_but_windows(
    pod: Pod<'_>,
) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    required_seccomp(pod)
}

/// The types of profiles that are not allowed, and who sets them.
struct Types<'a> {
    is_pod: bool,
    containers: Vec<&'a str>,
    bad: Texts<'a>,
}

impl<'a> Types<'a> {
    fn of(pod: Pod<'a>, member: &str) -> Self {
        let mut bad = Texts::new();
        let mut sets_bad = |context: &'a Value| {
            let profile = &context[member];
            let kind = text(&profile["type"]);
            let is_bad = !profile.is_null() && !CONFINED.contains(&kind);
            if is_bad {
                bad.insert(kind);
            }
            is_bad
        };
        let is_pod = sets_bad(pod.context());
        let containers = pod.containers_that(|container| sets_bad(context(container)));
        Self {
            is_pod,
            containers,
            bad,
        }
    }

    fn setters(&self) -> Vec<String> {
        setters(self.is_pod, &self.containers)
    }

    fn seccomp_violation(self) -> Option<Violation> {
        let setters = self.setters();
        Violation::unless(&setters, "seccompProfile", || {
            let (setters, bad) = (setters.join(" and "), quoted(self.bad));
            format!("{setters} must not set securityContext.seccompProfile.type to {bad}")
        })
    }
}

/// Only the usual types of `SELinux`, and no users and roles.
pub(in crate::admission::pod_security) fn se_linux(pod: Pod<'_>) -> Option<Violation> {
    se_linux_of(
        pod,
        &["", "container_t", "container_init_t", "container_kvm_t"],
    )
}

pub(in crate::admission::pod_security) fn se_linux_1_31(pod: Pod<'_>) -> Option<Violation> {
    let allowed = [
        "",
        "container_t",
        "container_init_t",
        "container_kvm_t",
        "container_engine_t",
    ];
    se_linux_of(pod, &allowed)
}

fn se_linux_of<'a>(pod: Pod<'a>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut has_user, mut has_role) = (Texts::new(), false, false);
    let mut sets_bad = |context: &'a Value| {
        // Absent options set nothing.
        let options = &context["seLinuxOptions"];
        let [kind, user, role] = ["type", "user", "role"].map(|name| text(&options[name]));
        let is_other = !allowed.contains(&kind);
        if is_other {
            types.insert(kind);
        }
        has_user |= !user.is_empty();
        has_role |= !role.is_empty();
        is_other || !user.is_empty() || !role.is_empty()
    };
    let is_pod = sets_bad(pod.context());
    let containers = pod.containers_that(|container| sets_bad(context(container)));
    let setters = setters(is_pod, &containers);
    Violation::unless(&setters, "seLinuxOptions", || {
        let mut what = Vec::new();
        if !types.is_empty() {
            let types: Vec<&str> = types.into_iter().collect();
            what.push(named("type", &types));
        }
        what.extend(has_user.then(|| "user may not be set".to_owned()));
        what.extend(has_role.then(|| "role may not be set".to_owned()));
        let (setters, what) = (setters.join(" and "), what.join("; "));
        format!("{setters} set forbidden securityContext.seLinuxOptions: {what}")
    })
}
