//! Validation of the status of pods.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use revstore_watch_cache::status::StatusCause;

use super::{annotations, restart, spec};
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;

/// The lists of the status of containers, each with that of the containers.
const LISTS: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

/// Checks a new status.
pub(super) fn check(pod: &Field<'_>, old_pod: &Field<'_>, causes: &mut Causes) {
    let path = ["metadata", "annotations"];
    let spec = old_pod.child("spec");
    annotations::check_update(&pod.at(&path), &old_pod.at(&path), &spec, causes);
    let (new, old) = (pod.child("status"), old_pod.child("status"));
    check_conditions(&new.child("conditions"), causes);
    check_nominated_node(&new, &old, &spec, causes);
    causes.check_min(
        &new.child("observedGeneration"),
        0,
        "must be a non-negative integer",
    );
    causes.check_immutable(&new.child("qosClass"), &old.child("qosClass"));
    for (list, containers) in LISTS {
        check_restarts(&new, &old, &spec, (list, containers), causes);
    }
    check_claims(&new, &spec, causes);
    check_extended_claim(&new.child("extendedResourceClaimStatus"), &spec, causes);
    check_ips(&new.child("podIPs"), &old.child("podIPs"), causes);
    check_host_ips(&new, &old, causes);
    for (list, _) in LISTS {
        check_users(&new.child(list), &spec, causes);
    }
    for (list, containers) in LISTS {
        let ephemeral = containers == "ephemeralContainers";
        check_allocated(
            &new.child(list),
            (&spec.child(containers), ephemeral),
            causes,
        );
    }
}

/// The conditions that the system sets.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

fn check_conditions(conditions: &Field<'_>, causes: &mut Causes) {
    for condition in conditions.items() {
        causes.check_min(
            &condition.child("observedGeneration"),
            0,
            "must be a non-negative integer",
        );
        let kind = condition.child("type");
        if !SYSTEM_CONDITIONS.contains(&kind.text()) {
            causes.check_qualified_name(&kind.placed(&condition.child("Type")));
        }
    }
}

fn check_nominated_node(new: &Field<'_>, old: &Field<'_>, spec: &Field<'_>, causes: &mut Causes) {
    let nominated = new.child("nominatedNodeName");
    if nominated.text().is_empty() || nominated.text() == old.child("nominatedNodeName").text() {
        return;
    }
    causes.check_text(&nominated, names::subdomain_error);
    if !spec.child("nodeName").text().is_empty() {
        let detail = "may not be set on pods that are already bound to a node";
        causes.forbidden(&nominated, detail);
    }
}

/// Checks that containers that have ended run again only if they may restart.
fn check_restarts(
    new: &Field<'_>,
    old: &Field<'_>,
    spec: &Field<'_>,
    (list, containers): (&'static str, &'static str),
    causes: &mut Causes,
) {
    let ephemeral = containers == "ephemeralContainers";
    if !ephemeral && restart::restarts_all(spec) {
        return;
    }
    let specs = by_name(&spec.child(containers));
    let running: HashSet<&str> = new
        .child(list)
        .items()
        .filter(|status| !status.at(&["state", "terminated"]).is_set())
        .map(|status| status.child("name").text())
        .collect();
    for (index, status) in old.child(list).items().enumerate() {
        let ended = status.at(&["state", "terminated"]);
        let name = status.child("name").text();
        if !ended.is_set() || !running.contains(name) {
            continue;
        }
        let code = ended.child("exitCode").int().unwrap_or_default();
        let restarts = specs
            .get(name)
            .is_some_and(|container| restart::restarts(container, spec, code));
        if ephemeral || !restarts {
            let path = new.child(list).path().index(index).child("state");
            let detail = "may not be transitioned to non-terminated state";
            causes.push(StatusCause::forbidden(path, detail));
        }
    }
}

/// Returns containers by their names; the first one of two with the same name.
fn by_name<'a>(list: &Field<'a>) -> HashMap<&'a str, Field<'a>> {
    let mut containers = HashMap::new();
    for container in list.items() {
        containers
            .entry(container.child("name").text())
            .or_insert(container);
    }
    containers
}

/// Checks the claims that were made for a pod.
fn check_claims(status: &Field<'_>, spec: &Field<'_>, causes: &mut Causes) {
    let known = spec.child("resourceClaims").items();
    let known: HashSet<&str> = known.map(|claim| claim.child("name").text()).collect();
    let mut seen = HashSet::new();
    for claim in status.child("resourceClaimStatuses").items() {
        let name = claim.child("name");
        if !known.contains(name.text()) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            causes.invalid_at(name.path(), name.text(), detail);
        }
        if !seen.insert(name.text()) {
            causes.push(StatusCause::duplicate(name.path(), name.text()));
        }
        let made = claim.child("resourceClaimName");
        if made.is_set() {
            causes.check_present_text(&made, names::subdomain_error);
        }
    }
}

/// Checks the claim that was made for the extended resources of a pod.
fn check_extended_claim(status: &Field<'_>, spec: &Field<'_>, causes: &mut Causes) {
    if !status.is_set() {
        return;
    }
    let mut containers = by_name(&spec.child("initContainers"));
    containers.extend(by_name(&spec.child("containers")));
    let mappings = status.child("requestMappings");
    if mappings.len() == 0 {
        causes.required(&mappings, "at least one request mapping is required");
    }
    let mut seen = HashSet::new();
    for mapping in mappings.items() {
        let (container, resource, request) = (
            mapping.child("containerName"),
            mapping.child("resourceName"),
            mapping.child("requestName"),
        );
        match containers.get(container.text()) {
            None => causes.invalid_at(
                container.path(),
                container.text(),
                "must match the name of an entry in spec.initContainers.name or spec.containers.name",
            ),
            Some(found)
                if !found
                    .at(&["resources", "requests"])
                    .key(resource.text())
                    .is_set() =>
            {
                causes.invalid_at(
                    resource.path(),
                    resource.text(),
                    "must match the extended resource name of an entry in \
                     spec.initContainers.resources.requests or spec.containers.resources.requests",
                );
            }
            Some(_) => {}
        }
        let placed = request.placed(&status.child("requestName"));
        causes.check_present_text(&placed, names::dns_label_error);
        if !seen.insert((container.text(), resource.text(), request.text())) {
            for field in [container, resource, request] {
                causes.push(StatusCause::duplicate(field.path(), field.text()));
            }
        }
    }
    let claim = status.child("resourceClaimName");
    if causes.check_required(&claim) {
        causes.check_text(&claim, names::subdomain_error);
    }
}

/// Checks the addresses of a pod or of its host: one of each family at most.
fn check_ips(list: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let existing: HashSet<&str> = old.items().map(|item| item.child("ip").text()).collect();
    for item in list.items() {
        let ip = item.child("ip").placed(&item);
        if !existing.contains(ip.text()) {
            causes.check_present_text(&ip, names::ip_error);
        }
    }
    if list.len() < 2 {
        return;
    }
    let parsed: Result<Vec<IpAddr>, &str> = list
        .items()
        .map(|item| {
            let text = item.child("ip").text();
            text.parse().map_err(|_| text)
        })
        .collect();
    let dual = match parsed {
        Err(text) => {
            let detail = format!("failed to check for dual stack with error:invalid IP: {text}");
            causes.push(StatusCause::internal(list.path(), &detail));
            false
        }
        Ok(ips) => ips.iter().any(IpAddr::is_ipv4) && ips.iter().any(IpAddr::is_ipv6),
    };
    if !dual || list.len() > 2 {
        let detail = "may specify no more than one IP for each IP family";
        causes.invalid(list, detail);
    }
}

fn check_host_ips(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let list = new.child("hostIPs");
    let Some(first) = list.items().next() else {
        return;
    };
    let ip = first.child("ip");
    if ip.text() != new.child("hostIP").text() {
        causes.invalid_at(ip.path(), ip.text(), "must be equal to `hostIP`");
    }
    check_ips(&list, &old.child("hostIPs"), causes);
}

/// Checks the users that containers run as.
fn check_users(statuses: &Field<'_>, spec: &Field<'_>, causes: &mut Causes) {
    let system = spec.at(&["os", "name"]);
    for status in statuses.items() {
        let user = status.at(&["user", "linux"]);
        if !user.is_set() {
            continue;
        }
        match system.text() {
            "windows" => causes.forbidden(&user, "cannot be set for a windows pod"),
            "" | "linux" => {
                spec::check_id(&user.child("uid"), causes);
                spec::check_id(&user.child("gid"), causes);
                for group in user.child("supplementalGroups").items() {
                    spec::check_id(&group, causes);
                }
            }
            _ => {}
        }
    }
}

/// The maximum length of a message about the health of a resource.
const MESSAGE_BYTES_MAX: usize = 1024;

/// What a container claims and requests.
struct Resources<'a> {
    claims: HashSet<(&'a str, &'a str)>,
    requests: Field<'a>,
}

impl<'a> Resources<'a> {
    fn of(container: &Field<'a>) -> Self {
        let resources = container.child("resources");
        let claims = resources.child("claims").items();
        Self {
            claims: claims
                .map(|claim| (claim.child("name").text(), claim.child("request").text()))
                .collect(),
            requests: resources.child("requests"),
        }
    }
}

/// Checks the health of the resources that containers have.
fn check_allocated(
    statuses: &Field<'_>,
    (containers, ephemeral): (&Field<'_>, bool),
    causes: &mut Causes,
) {
    let resources: HashMap<&str, Resources<'_>> = by_name(containers)
        .into_iter()
        .map(|(name, container)| (name, Resources::of(&container)))
        .collect();
    for status in statuses.items() {
        let list = status.child("allocatedResourcesStatus");
        if ephemeral {
            if list.len() > 0 {
                causes.forbidden(&list, "must not be specified in container status");
            }
            continue;
        }
        for resource in list.items() {
            if let Some(resources) = resources.get(status.child("name").text()) {
                check_allocated_name(&resource.child("name"), resources, causes);
            }
            check_health(&resource.child("resources"), causes);
        }
    }
}

fn check_allocated_name(name: &Field<'_>, resources: &Resources<'_>, causes: &mut Causes) {
    let (found, detail) = match name.text().strip_prefix("claim:") {
        Some(claim) => (
            resources
                .claims
                .contains(&claim.split_once('/').unwrap_or((claim, ""))),
            "must match one of the container's resource claims in a format \
             'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
        ),
        None => (
            resources.requests.key(name.text()).is_set(),
            "must match one of the container's resource requests",
        ),
    };
    if !found {
        causes.invalid_at(name.path(), name.text(), detail);
    }
}

fn check_health(resources: &Field<'_>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for resource in resources.items() {
        let health = resource.child("health");
        if !["Healthy", "Unhealthy", "Unknown"].contains(&health.text()) {
            causes.not_supported(&health, &["Healthy", "Unhealthy", "Unknown"]);
        }
        let message = resource.child("message");
        if message.is_set() && message.text().is_empty() {
            causes.required(&message, "must be non-empty if specified");
        } else if message.text().len() > MESSAGE_BYTES_MAX {
            causes.push(StatusCause::too_long(message.path(), MESSAGE_BYTES_MAX));
        }
        let id = resource.child("resourceID");
        if !seen.insert(id.text()) {
            causes.push(StatusCause::duplicate(id.path(), id.text()));
        }
    }
}
