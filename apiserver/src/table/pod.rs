//! Rows of pods and pod templates.

use serde_json::Value;

use super::age::{Clock, seconds};
use super::{AGE, Column, NAME, Printer, age, containers, labels, or, text};
use crate::builtin::field::Field;

pub(super) const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "Pod",
        columns: &POD,
        cells: pod_cells,
    },
    Printer {
        group: "",
        kind: "PodTemplate",
        columns: &[
            NAME,
            text("Containers", "The names of the containers."),
            text("Images", "The images of the containers."),
            text("Pod Labels", "The labels of the pods."),
        ],
        cells: |root, _| {
            let template = root.child("template");
            let [names, images] = containers(&template);
            vec![names, images, labels(&template.at(&["metadata", "labels"]))]
        },
    },
];

const POD: [Column; 9] = [
    NAME,
    text("Ready", "The containers that are ready, of all containers."),
    text("Status", "The state of the pod and of its containers."),
    text("Restarts", "The restarts of the containers."),
    AGE,
    text("IP", "The address of the pod.").wide(),
    text("Node", "The node that runs the pod.").wide(),
    text(
        "Nominated Node",
        "The node that will run the pod after a preemption.",
    )
    .wide(),
    text(
        "Readiness Gates",
        "The conditions that are true, of those that the pod needs to be ready.",
    )
    .wide(),
];

/// The state of the containers so far.
#[derive(Default)]
struct Summary {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<i64>,
}

impl Summary {
    fn count_restarts(&mut self, status: &Field<'_>) {
        self.restarts += status.child("restartCount").int().unwrap_or_default();
        let finished = status.at(&["lastState", "terminated", "finishedAt"]);
        self.last_restart = self.last_restart.max(seconds(finished.text()));
    }
}

fn pod_cells(pod: &Field<'_>, clock: Clock) -> Vec<Value> {
    let (spec, status) = (pod.child("spec"), pod.child("status"));
    let restartable: Vec<&str> = spec
        .child("initContainers")
        .items()
        .filter(|container| container.child("restartPolicy").text() == "Always")
        .map(|container| container.child("name").text())
        .collect();
    let total = spec.child("containers").len() + restartable.len();
    let summary = summarize(pod, &restartable);
    let mut reason = summary.reason;
    if pod.at(&["metadata", "deletionTimestamp"]).is_set() {
        let phase = status.child("phase").text();
        if status.child("reason").text() == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !["Failed", "Succeeded"].contains(&phase) {
            "Terminating".clone_into(&mut reason);
        }
    }
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts != 0 => {
            format!("{} ({} ago)", summary.restarts, clock.ago(last))
        }
        _ => summary.restarts.to_string(),
    };
    let first_ip = status.child("podIPs").items().next();
    let ip = first_ip.map_or("", |first| first.child("ip").text());
    vec![
        format!("{}/{total}", summary.ready).into(),
        reason.into(),
        restarts.into(),
        age(pod, clock),
        or(ip, "<none>"),
        or(spec.child("nodeName").text(), "<none>"),
        or(status.child("nominatedNodeName").text(), "<none>"),
        readiness_gates(&spec, &status),
    ]
}

fn summarize(pod: &Field<'_>, restartable: &[&str]) -> Summary {
    let status = pod.child("status");
    let mut summary = Summary {
        reason: status.child("phase").text().to_owned(),
        ..Summary::default()
    };
    if !status.child("reason").text().is_empty() {
        status
            .child("reason")
            .text()
            .clone_into(&mut summary.reason);
    }
    for condition in status.child("conditions").items() {
        let gated = condition.child("reason").text() == "SchedulingGated";
        if condition.child("type").text() == "PodScheduled" && gated {
            "SchedulingGated".clone_into(&mut summary.reason);
        }
    }
    let mut of_restartable = Summary::default();
    let initializing = add_init_containers(pod, restartable, &mut summary, &mut of_restartable);
    let condition = |kind: &str| {
        let mut conditions = status.child("conditions").items();
        conditions.any(|condition| {
            condition.child("type").text() == kind && condition.child("status").text() == "True"
        })
    };
    if !initializing || condition("Initialized") {
        summary.restarts = of_restartable.restarts;
        summary.last_restart = of_restartable.last_restart;
        add_containers(&status, condition("Ready"), &mut summary);
    }
    summary
}

/// Adds the init containers. Returns whether they are not done.
fn add_init_containers(
    pod: &Field<'_>,
    restartable: &[&str],
    summary: &mut Summary,
    of_restartable: &mut Summary,
) -> bool {
    let total = pod.at(&["spec", "initContainers"]).len();
    let statuses = pod.at(&["status", "initContainerStatuses"]);
    for (index, container) in statuses.items().enumerate() {
        summary.count_restarts(&container);
        let restarts = restartable.contains(&container.child("name").text());
        if restarts {
            of_restartable.count_restarts(&container);
        }
        let terminated = container.at(&["state", "terminated"]);
        let waiting = container.at(&["state", "waiting", "reason"]).text();
        let code = terminated.child("exitCode").int().unwrap_or_default();
        if terminated.is_set() && code == 0 {
            continue;
        }
        if restarts && container.child("started").flag() {
            summary.ready += usize::from(container.child("ready").flag());
            continue;
        }
        summary.reason = if terminated.is_set() {
            format!("Init:{}", end_reason(&terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{total}")
        };
        return true;
    }
    false
}

/// Returns why a container has ended.
fn end_reason(terminated: &Field<'_>) -> String {
    let reason = terminated.child("reason").text();
    let signal = terminated.child("signal").int().unwrap_or_default();
    let code = terminated.child("exitCode").int().unwrap_or_default();
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{code}")
    }
}

fn add_containers(status: &Field<'_>, is_ready: bool, summary: &mut Summary) {
    let statuses: Vec<Field<'_>> = status.child("containerStatuses").items().collect();
    let (mut running, mut error) = (false, None);
    for container in statuses.iter().rev() {
        summary.count_restarts(container);
        let state = container.child("state");
        let waiting = state.at(&["waiting", "reason"]).text();
        let terminated = state.child("terminated");
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if terminated.is_set() {
            summary.reason = end_reason(&terminated);
            if terminated.child("exitCode").int().unwrap_or_default() != 0 {
                error = Some(summary.reason.clone());
            }
        } else if container.child("ready").flag() && state.child("running").is_set() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" {
        match error {
            _ if running && is_ready => "Running".clone_into(&mut summary.reason),
            Some(error) => summary.reason = error,
            None if running => "NotReady".clone_into(&mut summary.reason),
            None => {}
        }
    }
}

fn readiness_gates(spec: &Field<'_>, status: &Field<'_>) -> Value {
    let gates = spec.child("readinessGates");
    if gates.len() == 0 {
        return "<none>".into();
    }
    let is_true = |gate: &Field<'_>| {
        let kind = gate.child("conditionType").text();
        let mut conditions = status.child("conditions").items();
        let found = conditions.find(|condition| condition.child("type").text() == kind);
        found.is_some_and(|condition| condition.child("status").text() == "True")
    };
    let count = gates.items().filter(is_true).count();
    format!("{count}/{}", gates.len()).into()
}
