//! What a pod shares with its node.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::admission::pod_security::pod::{
    Pod, Texts, Violation, context, items, named, plural, quoted, setters, text, uses,
};

/// No namespaces of the node.
pub(in crate::admission::pod_security) fn namespaces(pod: Pod<'_>) -> Option<Violation> {
    let members = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let set = members.filter(|name| pod.spec[*name] == true);
    let set: Vec<String> = set.map(|name| format!("{name}=true")).collect();
    Violation::unless(&set, "host namespaces", || set.join(", "))
}

/// No ports of the node.
pub(in crate::admission::pod_security) fn ports(pod: Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let containers = pod.containers_that(|container| {
        let used = items(&container["ports"]).filter_map(|port| port["hostPort"].as_i64());
        let used: Vec<String> = used
            .filter(|port| *port != 0)
            .map(|port| port.to_string())
            .collect();
        let is_used = !used.is_empty();
        ports.extend(used);
        is_used
    });
    Violation::unless(&containers, "hostPort", || {
        let shown: Vec<&str> = ports.iter().map(String::as_str).collect();
        format!(
            "{} {} {} {}",
            named("container", &containers),
            uses(containers.len()),
            plural("hostPort", ports.len()),
            shown.join(", ")
        )
    })
}

/// No probes and hooks that ask other hosts than the pod.
pub(in crate::admission::pod_security) fn probes(pod: Pod<'_>) -> Option<Violation> {
    let (mut containers, mut hosts) = (Texts::new(), Texts::new());
    for container in pod.containers() {
        let lifecycle = &container["lifecycle"];
        let handlers = [
            &container["livenessProbe"],
            &container["readinessProbe"],
            &container["startupProbe"],
            &lifecycle["postStart"],
            &lifecycle["preStop"],
        ];
        let asked = handlers.into_iter().flat_map(handler_hosts);
        let asked: Vec<&str> = asked.filter(|host| !host.is_empty()).collect();
        if !asked.is_empty() {
            containers.insert(text(&container["name"]));
        }
        hosts.extend(asked);
    }
    let containers: Vec<&str> = containers.into_iter().collect();
    Violation::unless(&containers, "probe or lifecycle host", || {
        format!(
            "{} {} {} {}",
            named("container", &containers),
            uses(containers.len()),
            plural("probe or lifecycle host", hosts.len()),
            quoted(hosts)
        )
    })
}

fn handler_hosts(handler: &Value) -> [&str; 2] {
    ["httpGet", "tcpSocket"].map(|kind| text(&handler[kind]["host"]))
}

/// No processes of a Windows node.
pub(in crate::admission::pod_security) fn process(pod: Pod<'_>) -> Option<Violation> {
    let is_set = |context: &Value| context["windowsOptions"]["hostProcess"] == true;
    let containers = pod.containers_that(|container| is_set(context(container)));
    let setters = setters(is_set(pod.context()), &containers);
    Violation::unless(&setters, "hostProcess", || {
        let setters = setters.join(" and ");
        format!("{setters} must not set securityContext.windowsOptions.hostProcess=true")
    })
}
