//! What pods of one operating system cannot have.

use super::all_containers;
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;

/// Checks that a pod has nothing that its operating system does not have.
pub(super) fn check(spec: &Field<'_>, causes: &mut Causes) {
    let system = spec.child("os");
    if !system.is_set() {
        return;
    }
    let name = system.child("name");
    match name.text() {
        "" => causes.required(&name, ""),
        "linux" => check_linux(spec, causes),
        "windows" => check_windows(spec, causes),
        _ => causes.not_supported(&name.placed(&system), &["linux", "windows"]),
    }
}

fn check_linux(spec: &Field<'_>, causes: &mut Causes) {
    let contexts = all_containers(spec).map(|container| container.child("securityContext"));
    for context in std::iter::once(spec.child("securityContext")).chain(contexts) {
        let options = context.child("windowsOptions");
        if options.is_set() {
            let detail = "windows options cannot be set for a linux pod";
            causes.forbidden(&options, detail);
        }
    }
}

/// The fields of the spec, or of its security context, that pods of Windows do not have. Flags that are
/// false and lists that are empty are absent.
const NOT_OF_WINDOWS: [(&[&str], bool); 15] = [
    (&["securityContext", "appArmorProfile"], true),
    (&["securityContext", "seLinuxOptions"], true),
    (&["hostUsers"], true),
    (&["hostPID"], false),
    (&["hostIPC"], false),
    (&["securityContext", "seccompProfile"], true),
    (&["securityContext", "fsGroup"], true),
    (&["securityContext", "fsGroupChangePolicy"], true),
    (&["securityContext", "sysctls"], false),
    (&["shareProcessNamespace"], true),
    (&["securityContext", "runAsUser"], true),
    (&["securityContext", "runAsGroup"], true),
    (&["securityContext", "supplementalGroups"], true),
    (&["securityContext", "supplementalGroupsPolicy"], true),
    (&["securityContext", "seLinuxChangePolicy"], true),
];
/// The same of the security context of a container.
const NOT_OF_WINDOWS_CONTAINERS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

fn check_windows(spec: &Field<'_>, causes: &mut Causes) {
    let detail = "cannot be set for a windows pod";
    for (path, is_pointer) in NOT_OF_WINDOWS {
        let field = spec.at(path);
        let is_set = if is_pointer {
            field.is_set()
        } else {
            !field.is_zero()
        };
        if is_set {
            causes.forbidden(&field, detail);
        }
    }
    for container in all_containers(spec) {
        for name in NOT_OF_WINDOWS_CONTAINERS {
            let field = container.child("securityContext").child(name);
            if field.is_set() {
                causes.forbidden(&field, detail);
            }
        }
    }
}

/// Checks that all containers of a pod, or none, are processes of the host.
pub(super) fn check_host_processes(spec: &Field<'_>, causes: &mut Causes) {
    let path = ["securityContext", "windowsOptions", "hostProcess"];
    let pod = spec.at(&path);
    let (mut containers, mut on_host) = (0, 0);
    for container in all_containers(spec) {
        containers += 1;
        let own = container.at(&path);
        if pod.is_set() && own.is_set() && pod.flag() != own.flag() {
            let detail = format!(
                "pod hostProcess value must be identical if both are specified, was {}",
                pod.flag()
            );
            causes.invalid(&own, &detail);
        }
        let is_on_host = if own.is_set() { own.flag() } else { pod.flag() };
        on_host += usize::from(is_on_host);
    }
    if on_host == 0 {
        return;
    }
    if on_host != containers {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess \
             containers";
        causes.invalid_at(spec.path(), "", detail);
    }
    let network = spec.child("hostNetwork");
    if !network.flag() {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        causes.invalid_at(network.path(), false, detail);
    }
}

/// The maximum size of the specification of a managed account.
const CREDENTIALS_BYTES_MAX: usize = 64 * 1024;
/// The maximum length of the name of a user, and the length that its domain must stay below.
const USER_BYTES_MAX: usize = 104;
const DOMAIN_BYTES_BELOW: usize = 256;
/// The maximum length of the name of a domain in the form of `NetBIOS`.
const NETBIOS_CHARS_MAX: usize = 15;

/// Checks the options of Windows in a security context.
pub(super) fn check_windows_options(options: &Field<'_>, causes: &mut Causes) {
    let name = options.child("gmsaCredentialSpecName");
    if name.is_set() {
        causes.check_present_text(&name, names::subdomain_error);
    }
    let credentials = options.child("gmsaCredentialSpec");
    if credentials.is_set() && credentials.text().is_empty() {
        let detail = "gmsaCredentialSpec cannot be an empty string";
        causes.invalid(&credentials, detail);
    } else if credentials.text().len() > CREDENTIALS_BYTES_MAX {
        let detail = "gmsaCredentialSpec size must be under 64 KiB";
        causes.invalid(&credentials, detail);
    }
    let user = options.child("runAsUserName");
    if user.is_set() {
        check_user_name(&user, causes);
    }
}

fn check_user_name(field: &Field<'_>, causes: &mut Causes) {
    let text = field.text();
    if text.is_empty() {
        causes.invalid(field, "runAsUserName cannot be an empty string");
        return;
    }
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        causes.invalid(field, "runAsUserName cannot contain control characters");
        return;
    }
    let (domain, user) = match text.split_once('\\') {
        Some((_, rest)) if rest.contains('\\') => {
            causes.invalid(
                field,
                "runAsUserName cannot contain more than one backslash",
            );
            return;
        }
        Some((domain, user)) => (Some(domain), user),
        None => (None, text),
    };
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_BYTES_BELOW) {
        let detail = "runAsUserName's Domain length must be under 256 characters";
        causes.invalid(field, detail);
    }
    if domain.is_some_and(|domain| !is_netbios(domain) && !is_dns(domain)) {
        let detail = "runAsUserName's Domain doesn't match the NetBios nor the DNS format";
        causes.invalid(field, detail);
    }
    if user.is_empty() {
        causes.invalid(field, "runAsUserName's User cannot be empty");
    } else if user.len() > USER_BYTES_MAX {
        let detail = "runAsUserName's User length must not be longer than 104 characters";
        causes.invalid(field, detail);
    }
    if !user.is_empty() && user.chars().all(|letter| ". ".contains(letter)) {
        let detail = "runAsUserName's User cannot contain only periods or spaces";
        causes.invalid(field, detail);
    }
    if user.contains(|letter| "\"/\\:;|=,+*?<>@[]".contains(letter)) {
        let detail =
            "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]";
        causes.invalid(field, detail);
    }
}

fn is_netbios(domain: &str) -> bool {
    !domain.is_empty()
        && !domain.starts_with('.')
        && domain.chars().count() <= NETBIOS_CHARS_MAX
        && !domain.contains(|letter| "\\/:*?\"<>|".contains(letter))
}

fn is_dns(domain: &str) -> bool {
    domain
        .to_ascii_lowercase()
        .split('.')
        .all(|label| names::dns_label_error(label).is_none())
}
