//! Rows of nodes, namespaces, events, configuration, leases, devices and CRDs.

use serde_json::Value;

use super::age::Clock;
use super::{AGE, Column, NAME, Printer, age, or, text};
use crate::builtin::field::Field;

pub(super) const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "Node",
        columns: &NODE,
        cells: node,
    },
    Printer {
        group: "",
        kind: "Namespace",
        columns: &[NAME, text("Status", "The phase of the namespace."), AGE],
        cells: |root, clock| {
            vec![
                root.at(&["status", "phase"]).text().into(),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "",
        kind: "Event",
        columns: &EVENT,
        cells: event,
    },
    Printer {
        group: "events.k8s.io",
        kind: "Event",
        columns: &EVENT,
        cells: event,
    },
    Printer {
        group: "",
        kind: "ConfigMap",
        columns: &[NAME, text("Data", "The number of keys."), AGE],
        cells: |root, clock| {
            let count = root.child("data").len() + root.child("binaryData").len();
            vec![count.into(), age(root, clock)]
        },
    },
    Printer {
        group: "",
        kind: "Secret",
        columns: &[
            NAME,
            text("Type", "The type of the secret."),
            text("Data", "The number of keys."),
            AGE,
        ],
        cells: |root, clock| {
            vec![
                root.child("type").text().into(),
                root.child("data").len().into(),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "",
        kind: "ServiceAccount",
        columns: &[NAME, AGE],
        cells: |root, clock| vec![age(root, clock)],
    },
    Printer {
        group: "",
        kind: "ComponentStatus",
        columns: &[
            NAME,
            text("Status", "Whether the component is healthy."),
            text("Message", "What the component says."),
            text("Error", "What is wrong with the component."),
        ],
        cells: |root, _| {
            let mut conditions = root.child("conditions").items();
            let health = conditions.find(|condition| condition.child("type").text() == "Healthy");
            let Some(health) = health else {
                return vec!["Unknown".into(), "".into(), "".into()];
            };
            let healthy = health.child("status").text() == "True";
            vec![
                if healthy { "Healthy" } else { "Unhealthy" }.into(),
                health.child("message").text().into(),
                health.child("error").text().into(),
            ]
        },
    },
    Printer {
        group: "coordination.k8s.io",
        kind: "Lease",
        columns: &[NAME, text("Holder", "Who holds the lease."), AGE],
        cells: |root, clock| {
            vec![
                root.at(&["spec", "holderIdentity"]).text().into(),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "coordination.k8s.io",
        kind: "LeaseCandidate",
        columns: &[
            NAME,
            text("LeaseName", "The lease."),
            text("BinaryVersion", "The version of the candidate."),
            text(
                "EmulationVersion",
                "The version that the candidate behaves as.",
            ),
            AGE,
        ],
        cells: |root, clock| {
            let spec = root.child("spec");
            let of = |name: &'static str| Value::from(spec.child(name).text());
            let [lease, binary, emulation] = ["leaseName", "binaryVersion", "emulationVersion"];
            vec![of(lease), of(binary), of(emulation), age(root, clock)]
        },
    },
    Printer {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        columns: &[
            NAME,
            text("Handler", "The configuration of the runtime."),
            AGE,
        ],
        cells: |root, clock| vec![root.child("handler").text().into(), age(root, clock)],
    },
    Printer {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        columns: &[
            NAME,
            text("Service", "The service that serves the API, or Local."),
            text("Available", "Whether the API is available, and why not."),
            AGE,
        ],
        cells: |root, clock| {
            let service = root.at(&["spec", "service"]);
            let shown = if service.is_set() {
                let (namespace, name) = (service.child("namespace"), service.child("name"));
                format!("{}/{}", namespace.text(), name.text())
            } else {
                "Local".to_owned()
            };
            let mut conditions = root.at(&["status", "conditions"]).items();
            let found = conditions.find(|condition| condition.child("type").text() == "Available");
            let available = found.map_or("Unknown".to_owned(), |condition| {
                match (
                    condition.child("status").text(),
                    condition.child("reason").text(),
                ) {
                    ("True", _) => "True".to_owned(),
                    (status, reason) => format!("{status} ({reason})"),
                }
            });
            vec![shown.into(), available.into(), age(root, clock)]
        },
    },
    Printer {
        group: "resource.k8s.io",
        kind: "ResourceClaim",
        columns: &[NAME, text("State", "The state of the claim."), AGE],
        cells: |root, clock| {
            let status = root.child("status");
            let mut states = Vec::new();
            if root.at(&["metadata", "deletionTimestamp"]).is_set() {
                states.push("deleted");
            }
            if status.child("allocation").is_set() {
                states.push("allocated");
            }
            if status.child("reservedFor").len() > 0 {
                states.push("reserved");
            }
            if !states.contains(&"allocated") {
                states.push("pending");
            }
            vec![states.join(",").into(), age(root, clock)]
        },
    },
    Printer {
        group: "resource.k8s.io",
        kind: "ResourceClaimTemplate",
        columns: &[NAME, AGE],
        cells: |root, clock| vec![age(root, clock)],
    },
    Printer {
        group: "resource.k8s.io",
        kind: "DeviceClass",
        columns: &[NAME, AGE],
        cells: |root, clock| vec![age(root, clock)],
    },
    Printer {
        group: "resource.k8s.io",
        kind: "ResourceSlice",
        columns: &[
            NAME,
            text("Node", "The node of the devices."),
            text("Driver", "The driver of the devices."),
            text("Pool", "The pool of the devices."),
            AGE,
        ],
        cells: |root, clock| {
            let spec = root.child("spec");
            vec![
                or(spec.child("nodeName").text(), "<unset>"),
                spec.child("driver").text().into(),
                spec.at(&["pool", "name"]).text().into(),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "resource.k8s.io",
        kind: "DeviceTaintRule",
        columns: &[
            NAME,
            text("Key", "The key of the taint."),
            text("Value", "The value of the taint."),
            text("Effect", "What the taint does to pods."),
            text("TimeAdded", "The time since the devices have the taint."),
            AGE,
        ],
        cells: |root, clock| {
            let taint = root.at(&["spec", "taint"]);
            let of = |name: &'static str| Value::from(taint.child(name).text());
            let added = taint.child("timeAdded");
            let since = if added.is_set() {
                clock.since(&added)
            } else {
                String::new()
            };
            let [key, value, effect] = ["key", "value", "effect"].map(of);
            vec![key, value, effect, since.into(), age(root, clock)]
        },
    },
];

const NODE: [Column; 10] = [
    NAME,
    text("Status", "Whether the node is ready, and takes pods."),
    text("Roles", "The roles of the node."),
    AGE,
    text("Version", "The version of the kubelet."),
    text("Internal-IP", "The address inside of the cluster.").wide(),
    text("External-IP", "The address outside of the cluster.").wide(),
    text("OS-Image", "The operating system.").wide(),
    text("Kernel-Version", "The version of the kernel.").wide(),
    text("Container-Runtime", "The runtime of the containers.").wide(),
];

const EVENT: [Column; 10] = [
    text("Last Seen", "The time since the event last happened."),
    text("Type", "The type of the event."),
    text("Reason", "Why the event happened."),
    text("Object", "The object that the event is about."),
    text("Subobject", "The part of the object.").wide(),
    text("Source", "Who reports the event.").wide(),
    text("Message", "What happened."),
    text("First Seen", "The time since the event first happened.").wide(),
    text("Count", "How often the event happened.").wide(),
    text("Name", "The name of the event.")
        .with_format("name")
        .wide(),
];

fn node(root: &Field<'_>, clock: Clock) -> Vec<Value> {
    let (spec, status) = (root.child("spec"), root.child("status"));
    let mut conditions = status.child("conditions").items();
    let ready = conditions.find(|condition| condition.child("type").text() == "Ready");
    let mut state = match ready {
        None => "Unknown",
        Some(ready) if ready.child("status").text() == "True" => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if spec.child("unschedulable").flag() {
        state.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = root
        .at(&["metadata", "labels"])
        .entries()
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                None => (key == "kubernetes.io/role").then(|| value.text()),
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let info = status.child("nodeInfo");
    let address = |kind: &str| {
        let mut addresses = status.child("addresses").items();
        let found = addresses.find(|address| address.child("type").text() == kind);
        or(
            found.map_or("", |found| found.child("address").text()),
            "<none>",
        )
    };
    let known = |name: &'static str| match info.child(name).text() {
        "" => "<unknown>".to_owned(),
        text => text.to_owned(),
    };
    let mut kernel = known("kernelVersion");
    let architecture = info.child("architecture").text();
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        state.into(),
        or(&roles.join(","), "<none>"),
        age(root, clock),
        info.child("kubeletVersion").text().into(),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage").into(),
        kernel.into(),
        known("containerRuntimeVersion").into(),
    ]
}

/// Returns the first of several fields that has a value, for the two forms of events.
fn either<'a>(root: &Field<'a>, names: [&'a str; 2]) -> Field<'a> {
    let [one, other] = names.map(|name| root.child(name));
    if one.is_set() { one } else { other }
}

fn event(root: &Field<'_>, clock: Clock) -> Vec<Value> {
    let first = either(root, ["firstTimestamp", "deprecatedFirstTimestamp"]);
    let first = if first.is_set() {
        first
    } else {
        root.child("eventTime")
    };
    let last = either(root, ["lastTimestamp", "deprecatedLastTimestamp"]);
    let series = root.child("series");
    let last = if series.is_set() {
        series.child("lastObservedTime")
    } else if last.is_set() {
        last
    } else {
        first
    };
    let count = if series.is_set() {
        series.child("count").int().unwrap_or_default()
    } else {
        let count = either(root, ["count", "deprecatedCount"]).int();
        count.filter(|count| *count != 0).unwrap_or(1)
    };
    let object = either(root, ["involvedObject", "regarding"]);
    let kind = object.child("kind").text().to_lowercase();
    let target = match object.child("name").text() {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = either(root, ["source", "deprecatedSource"]);
    let reporter = either(root, ["reportingComponent", "reportingController"]).text();
    let first_of = |one: &'_ str, other: &'_ str| {
        if one.is_empty() {
            other.to_owned()
        } else {
            one.to_owned()
        }
    };
    let component = first_of(source.child("component").text(), reporter);
    let host = first_of(
        source.child("host").text(),
        root.child("reportingInstance").text(),
    );
    let source = if host.is_empty() {
        component
    } else {
        format!("{component}, {host}")
    };
    vec![
        clock.since(&last).into(),
        root.child("type").text().into(),
        root.child("reason").text().into(),
        target.into(),
        object.child("fieldPath").text().into(),
        source.into(),
        either(root, ["message", "note"]).text().trim().into(),
        clock.since(&first).into(),
        count.into(),
        root.at(&["metadata", "name"]).text().into(),
    ]
}
