//! Validation of the spec of pods and of pod templates.

mod affinity;
mod container;
mod environment;
mod probe;
mod resources;
mod security;
mod source;
mod system;
mod volume;

use std::collections::{BTreeSet, HashMap, HashSet};

use revstore_watch_cache::status::StatusCause;

use super::annotations;
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;

pub(in crate::builtin) use affinity::{check_node_selector, check_node_term};
pub(in crate::builtin) use container::PROTOCOLS;
pub(super) use container::relative_errors;
pub(super) use resources::is_of_pods;
pub(in crate::builtin) use resources::{
    check_container_resource, check_overhead, check_resource_name,
};
pub(super) use security::{PROFILE_BYTES_MAX, check_id};
pub(in crate::builtin) use source::{
    check_csi_driver_name, check_persistent as check_volume_source,
};
use volume::Volumes;

/// The kind that a pod template belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::builtin) enum Owner {
    /// A kind that does not restrict the template.
    Any,
    /// A kind whose pods always run, with its name.
    Running(&'static str),
}

/// What the checks of containers need to know of their pod.
pub(super) struct Pod<'a> {
    spec: Field<'a>,
    /// The valid volumes.
    pub(super) volumes: Volumes<'a>,
    /// The names of the claims of resources.
    pub(super) claims: BTreeSet<&'a str>,
}

impl Pod<'_> {
    pub(super) fn restart_policy(&self) -> &str {
        self.spec.child("restartPolicy").text()
    }

    /// Returns how long a container has to end.
    pub(super) fn grace_seconds(&self) -> Option<i64> {
        self.spec.child("terminationGracePeriodSeconds").int()
    }

    /// Returns whether users in the containers are users of the host.
    pub(super) fn uses_host_users(&self) -> bool {
        let users = self.spec.child("hostUsers");
        !users.is_set() || users.flag()
    }
}

/// The lists of containers of a pod: those that run first come first.
pub(super) const CONTAINER_LISTS: [&str; 3] =
    ["initContainers", "containers", "ephemeralContainers"];

/// Returns all containers of a pod, in the order of [`CONTAINER_LISTS`].
pub(in crate::builtin) fn all_containers<'a>(
    spec: &Field<'a>,
) -> impl Iterator<Item = Field<'a>> + use<'a> {
    let spec = *spec;
    CONTAINER_LISTS
        .into_iter()
        .flat_map(move |list| spec.child(list).items())
}

/// Checks a pod.
pub(super) fn check_pod(pod: &Field<'_>, causes: &mut Causes) {
    let spec = pod.child("spec");
    let metadata = pod.child("metadata");
    annotations::check(&metadata.child("annotations"), &spec, causes);
    check_spec(&spec, Some(metadata.child("name").text()), causes);
    if spec.child("serviceAccountName").text().is_empty() {
        for volume in spec.child("volumes").items() {
            for source in volume.at(&["projected", "sources"]).items() {
                let token = source.child("serviceAccountToken");
                if token.is_set() {
                    let detail = "must not be specified when serviceAccountName is not set";
                    causes.forbidden(&token, detail);
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.child(list).items() {
            check_image_spaces(&container, causes);
        }
    }
}

/// Checks what a new pod cannot have yet.
pub(super) fn check_new_pod(pod: &Field<'_>, causes: &mut Causes) {
    let spec = pod.child("spec");
    let containers = spec.child("ephemeralContainers");
    if containers.len() > 0 {
        causes.forbidden(&containers, "cannot be set on create");
    }
    let node = spec.child("nodeName");
    if !node.text().is_empty() && spec.child("schedulingGates").len() > 0 {
        let detail = "cannot be set until all schedulingGates have been cleared";
        causes.forbidden(&node, detail);
    }
    let annotations = pod.at(&["metadata", "annotations"]);
    annotations::check_profiles(&annotations, &spec, causes);
}

/// Checks that the image of a container does not begin or end with a space.
pub(super) fn check_image_spaces(container: &Field<'_>, causes: &mut Causes) {
    let image = container.child("image");
    if image.text().trim() != image.text() {
        causes.invalid(&image, "must not have leading or trailing whitespace");
    }
}

/// Checks a pod template, and what its owner demands of it.
pub(in crate::builtin) fn check_template(template: &Field<'_>, owner: Owner, causes: &mut Causes) {
    let metadata = template.child("metadata");
    let spec = template.child("spec");
    // The paths leave the metadata out.
    let place = |name| metadata.child(name).placed(&template.child(name));
    causes.check_labels(&place("labels"));
    causes.check_annotations(&place("annotations"));
    annotations::check(&place("annotations"), &spec, causes);
    check_spec(&spec, None, causes);
    annotations::check_profiles(&place("annotations"), &spec, causes);
    if spec.child("ephemeralContainers").len() > 0 {
        causes.forbidden(
            &spec.child("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
    if let Owner::Running(kind) = owner {
        let policy = spec.child("restartPolicy");
        if policy.text() != "Always" {
            causes.not_supported(&policy, &["Always"]);
        }
        let deadline = spec.child("activeDeadlineSeconds");
        if deadline.is_set() {
            let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
            causes.forbidden(&deadline, &detail);
        }
    }
}

/// Checks the spec of a pod, or of a template, which has no name.
fn check_spec(spec: &Field<'_>, name: Option<&str>, causes: &mut Causes) {
    let grace = spec.child("terminationGracePeriodSeconds");
    if !grace.is_set() {
        causes.required(&grace, "");
    }
    let volumes = volume::check_volumes(&spec.child("volumes"), name, causes);
    resources::check_claims(&spec.child("resourceClaims"), causes);
    let claims = spec.child("resourceClaims").items();
    let pod = Pod {
        spec: *spec,
        volumes,
        claims: claims
            .map(|claim| claim.child("name").text())
            .filter(|name| !name.is_empty())
            .collect(),
    };
    container::check_containers(spec, &pod, causes);
    resources::check_pod(spec, causes);
    if spec.child("hostNetwork").flag() {
        check_host_ports(spec, name.is_some(), causes);
    }
    causes.check_required_one_of(
        &spec.child("restartPolicy"),
        &["Always", "OnFailure", "Never"],
    );
    causes.check_required_one_of(
        &spec.child("dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    causes.check_labels(&spec.child("nodeSelector"));
    security::check_pod_context(spec, causes);
    affinity::check(&spec.child("affinity"), causes);
    check_dns_config(spec, causes);
    check_gates(spec, causes);
    affinity::check_spread(&spec.child("topologySpreadConstraints"), causes);
    system::check_host_processes(spec, causes);
    check_host_users(spec, causes);
    check_host_name(spec, causes);
    for name in ["serviceAccountName", "nodeName"] {
        causes.check_text(&spec.child(name), names::subdomain_error);
    }
    causes.check_range(
        &spec.child("activeDeadlineSeconds"),
        1,
        i64::from(i32::MAX),
        "must be between 1 and 2147483647, inclusive",
    );
    for name in ["hostname", "subdomain"] {
        causes.check_text(&spec.child(name), names::dns_label_error);
    }
    check_tolerations(&spec.child("tolerations"), causes);
    check_host_aliases(&spec.child("hostAliases"), causes);
    causes.check_text(&spec.child("priorityClassName"), names::subdomain_error);
    let runtime = spec.child("runtimeClassName");
    if runtime.is_set() {
        causes.check_present_text(&runtime, names::subdomain_error);
    }
    let preemption = spec.child("preemptionPolicy");
    if preemption.is_set() {
        causes.check_required_one_of(&preemption, &["PreemptLowerPriority", "Never"]);
    }
    let overhead = spec.child("overhead");
    resources::check_overhead(&overhead, &overhead, causes);
    system::check(spec, causes);
    check_environment_files(spec, causes);
}

fn check_gates(spec: &Field<'_>, causes: &mut Causes) {
    for gate in spec.child("readinessGates").items() {
        causes.check_qualified_name(&gate.child("conditionType"));
    }
    let mut seen = HashSet::new();
    for gate in spec.child("schedulingGates").items() {
        let name = gate.child("name").placed(&gate);
        causes.check_qualified_name(&name);
        if !seen.insert(name.text()) {
            causes.push(StatusCause::duplicate(gate.path(), name.text()));
        }
    }
}

/// Checks that a pod with users of its own shares nothing else with the host.
fn check_host_users(spec: &Field<'_>, causes: &mut Causes) {
    let users = spec.child("hostUsers");
    if !users.is_set() || users.flag() {
        return;
    }
    let detail = "when `hostUsers` is false";
    for (name, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.child(name).flag() {
            causes.forbidden(&spec.child(shown), detail);
        }
    }
    for container in all_containers(spec) {
        let devices = container.child("volumeDevices");
        if devices.len() > 0 {
            causes.forbidden(&devices, detail);
        }
    }
}

/// The maximum length of the name of a host.
const HOST_NAME_BYTES_MAX: usize = 64;

fn check_host_name(spec: &Field<'_>, causes: &mut Causes) {
    let name = spec.child("hostnameOverride");
    if !name.is_set() {
        return;
    }
    if spec.child("setHostnameAsFQDN").flag() {
        let detail = "may not be specified when setHostnameAsFQDN is true";
        causes.forbidden(&name, detail);
    }
    if spec.child("hostNetwork").flag() {
        let detail = "may not be specified when hostNetwork is true";
        causes.forbidden(&name, detail);
    }
    if name.text().len() > HOST_NAME_BYTES_MAX {
        causes.push(StatusCause::too_long(name.path(), HOST_NAME_BYTES_MAX));
    }
    causes.check_present_text(&name, names::subdomain_error);
}

fn check_host_aliases(aliases: &Field<'_>, causes: &mut Causes) {
    for alias in aliases.items() {
        causes.check_present_text(&alias.child("ip"), names::ip_error);
        for name in alias.child("hostnames").items() {
            causes.check_present_text(&name, names::subdomain_error);
        }
    }
}

/// Checks that files with environment variables are in volumes that the pod has of its own.
fn check_environment_files(spec: &Field<'_>, causes: &mut Causes) {
    let volumes: HashMap<&str, Field<'_>> = spec
        .child("volumes")
        .items()
        .map(|volume| (volume.child("name").text(), volume))
        .collect();
    for container in all_containers(spec) {
        for variable in container.child("env").items() {
            let file = variable.at(&["valueFrom", "fileKeyRef"]);
            if !file.is_set() {
                continue;
            }
            let name = file.child("volumeName");
            match volumes.get(name.text()) {
                None => causes.push(StatusCause::not_found(name.path(), name.text())),
                Some(volume) if !volume.child("emptyDir").is_set() => {
                    causes.invalid(&name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    }
}

fn check_host_ports(spec: &Field<'_>, is_pod: bool, causes: &mut Causes) {
    for container in spec.child("containers").items() {
        for port in container.child("ports").items() {
            let host = port.child("hostPort");
            let number = host.int().unwrap_or_default();
            let own = port.child("containerPort").int().unwrap_or_default();
            if (is_pod || number != 0) && number != own {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                causes.push(StatusCause::invalid(host.path(), number, detail));
            }
        }
    }
}

/// The effects of taints and of tolerations.
pub(in crate::builtin) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks tolerations.
pub(in crate::builtin) fn check_tolerations(tolerations: &Field<'_>, causes: &mut Causes) {
    for toleration in tolerations.items() {
        let (key, operator) = (toleration.child("key"), toleration.child("operator"));
        let (value, effect) = (toleration.child("value"), toleration.child("effect"));
        causes.check_text(&key, names::qualified_name_error);
        if key.text().is_empty() && operator.text() != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values \
                          and all keys\"";
            causes.push(StatusCause::invalid(
                operator.path(),
                operator.text(),
                detail,
            ));
        }
        if toleration.child("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            causes.push(StatusCause::invalid(effect.path(), effect.text(), detail));
        }
        match operator.text() {
            "" | "Equal" => {
                if let Some(detail) = names::label_value_error(value.text()) {
                    causes.push(StatusCause::invalid(operator.path(), value.text(), &detail));
                }
            }
            "Exists" if !value.text().is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                causes.push(StatusCause::invalid(operator.path(), value.text(), detail));
            }
            "Exists" => {}
            "Lt" | "Gt" => causes.not_supported(&operator, &["Equal", "Exists", "Lt", "Gt"]),
            _ => causes.not_supported(&operator, &["Equal", "Exists"]),
        }
        if !effect.text().is_empty() {
            causes.check_one_of(&effect, &EFFECTS);
        }
    }
}

/// The maximum number of name servers of a pod.
const NAME_SERVERS_MAX: usize = 3;
/// The maximum number of search paths of a pod, and of their characters with a space between two.
const SEARCHES_MAX: usize = 32;
const SEARCH_BYTES_MAX: usize = 2048;

fn check_dns_config(spec: &Field<'_>, causes: &mut Causes) {
    let config = spec.child("dnsConfig");
    let servers = config.child("nameservers");
    if spec.child("dnsPolicy").text() == "None" && servers.len() == 0 {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        if config.is_set() {
            causes.required(&servers, detail);
        } else {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            causes.required(&config, detail);
        }
        return;
    }
    if servers.len() > NAME_SERVERS_MAX {
        let detail = format!("must not have more than {NAME_SERVERS_MAX} nameservers");
        causes.invalid(&servers, &detail);
    }
    for server in servers.items() {
        causes.check_present_text(&server, names::ip_error);
    }
    let searches = config.child("searches");
    if searches.len() > SEARCHES_MAX {
        let detail = format!("must not have more than {SEARCHES_MAX} search paths");
        causes.invalid(&searches, &detail);
    }
    let bytes: usize = searches.items().map(|search| search.text().len() + 1).sum();
    if bytes.saturating_sub(1) > SEARCH_BYTES_MAX {
        let detail = format!(
            "must not have more than {SEARCH_BYTES_MAX} characters (including spaces) in the search \
             list"
        );
        causes.invalid(&searches, &detail);
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let domain = search.text().strip_suffix('.').unwrap_or(search.text());
        if let Some(detail) = names::underscored_subdomain_error(domain) {
            causes.invalid_at(search.path(), domain, &detail);
        }
    }
    for option in config.child("options").items() {
        if option.child("name").text().is_empty() {
            causes.required(&option, "must not be empty");
        }
    }
}
