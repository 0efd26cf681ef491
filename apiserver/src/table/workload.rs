//! Rows of workloads.

use serde_json::Value;

use super::age::{Clock, human, seconds};
use super::{
    AGE, CONTAINERS, Column, IMAGES, NAME, Printer, SELECTOR, age, boolean, containers,
    has_condition, integer, labels, name, number, or, selector, shown, text,
};
use crate::builtin::field::Field;

pub(super) const PRINTERS: &[Printer] = &[
    Printer {
        group: "apps",
        kind: "Deployment",
        columns: &[
            NAME,
            text("Ready", "The pods that are ready, of those desired."),
            text("Up-to-date", "The pods of the current template."),
            text(
                "Available",
                "The pods that have been ready for long enough.",
            ),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: |root, clock| {
            let (spec, status) = (root.child("spec"), root.child("status"));
            let mut cells = vec![
                ready(root),
                number(&status.child("updatedReplicas")),
                number(&status.child("availableReplicas")),
                age(root, clock),
            ];
            cells.extend(containers(&spec.child("template")));
            cells.push(crate::builtin::selector::text(&spec.child("selector")).into());
            cells
        },
    },
    Printer {
        group: "apps",
        kind: "ReplicaSet",
        columns: &REPLICA_SET,
        cells: |root, clock| {
            let mut cells = replica_set(root, clock);
            cells.push(selector(&root.at(&["spec", "selector"])));
            cells
        },
    },
    Printer {
        group: "",
        kind: "ReplicationController",
        columns: &REPLICA_SET,
        cells: |root, clock| {
            let mut cells = replica_set(root, clock);
            cells.push(labels(&root.at(&["spec", "selector"])));
            cells
        },
    },
    Printer {
        group: "apps",
        kind: "StatefulSet",
        columns: &[
            NAME,
            text("Ready", "The pods that are ready, of those desired."),
            AGE,
            CONTAINERS,
            IMAGES,
        ],
        cells: |root, clock| {
            let mut cells = vec![ready(root), age(root, clock)];
            cells.extend(containers(&root.at(&["spec", "template"])));
            cells
        },
    },
    Printer {
        group: "apps",
        kind: "DaemonSet",
        columns: &DAEMON_SET,
        cells: |root, clock| {
            let (spec, status) = (root.child("spec"), root.child("status"));
            let template = spec.child("template");
            let mut cells: Vec<Value> = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ]
            .iter()
            .map(|name| number(&status.child(name)))
            .collect();
            cells.push(labels(&template.at(&["spec", "nodeSelector"])));
            cells.push(age(root, clock));
            cells.extend(containers(&template));
            cells.push(selector(&spec.child("selector")));
            cells
        },
    },
    Printer {
        group: "batch",
        kind: "Job",
        columns: &[
            NAME,
            text("Status", "The state of the job."),
            text(
                "Completions",
                "The pods that have succeeded, of those needed.",
            ),
            text("Duration", "The time that the job has run."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: job,
    },
    Printer {
        group: "batch",
        kind: "CronJob",
        columns: &CRON_JOB,
        cells: |root, clock| {
            let (spec, status) = (root.child("spec"), root.child("status"));
            let last = status.child("lastScheduleTime");
            let suspend = spec.child("suspend");
            let suspended = match (suspend.is_set(), suspend.flag()) {
                (false, _) => "<unset>",
                (true, true) => "True",
                (true, false) => "False",
            };
            let job = spec.at(&["jobTemplate", "spec"]);
            let mut cells = vec![
                spec.child("schedule").text().into(),
                or(spec.child("timeZone").text(), "<none>"),
                suspended.into(),
                status.child("active").len().into(),
                if last.is_set() {
                    clock.since(&last).into()
                } else {
                    "<none>".into()
                },
                age(root, clock),
            ];
            cells.extend(containers(&job.child("template")));
            cells.push(selector(&job.child("selector")));
            cells
        },
    },
    Printer {
        group: "apps",
        kind: "ControllerRevision",
        columns: &[
            NAME,
            text("Controller", "The object that has the revision."),
            text("Revision", "The number of the revision."),
            AGE,
        ],
        cells: |root, clock| {
            let mut owners = root.at(&["metadata", "ownerReferences"]).items();
            let controller = owners.find(|owner| owner.child("controller").flag());
            let controller = controller.map_or("<none>".to_owned(), |owner| {
                let version = owner.child("apiVersion").text();
                let kind = owner.child("kind").text().to_lowercase();
                let name = owner.child("name").text();
                match version.split_once('/') {
                    Some((group, _)) => format!("{kind}.{group}/{name}"),
                    None => format!("{kind}/{name}"),
                }
            });
            vec![
                controller.into(),
                number(&root.child("revision")),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "autoscaling",
        kind: "Scale",
        columns: &[text(NAME.name, NAME.description), DESIRED, AVAILABLE, AGE],
        cells: |root, clock| {
            let replicas = |part| number(&root.child(part).child("replicas"));
            vec![
                name(root),
                replicas("spec"),
                replicas("status"),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        columns: &[
            NAME,
            text("Reference", "The object that is scaled."),
            text(
                "Targets",
                "The current and the target value of each metric.",
            ),
            text("MinPods", "The minimum number of pods."),
            text("MaxPods", "The maximum number of pods."),
            text("Replicas", "The number of pods."),
            AGE,
        ],
        cells: |root, clock| {
            let (spec, status) = (root.child("spec"), root.child("status"));
            let target = spec.child("scaleTargetRef");
            let min = spec.child("minReplicas");
            let (kind, name) = (target.child("kind").text(), target.child("name").text());
            vec![
                format!("{kind}/{name}").into(),
                targets(&spec, &status).into(),
                min.int()
                    .map_or("<unset>".to_owned(), |min| min.to_string())
                    .into(),
                number(&spec.child("maxReplicas")),
                number(&status.child("currentReplicas")),
                age(root, clock),
            ]
        },
    },
];

const DESIRED: Column = integer("Desired", "The number of replicas that are desired.");
const AVAILABLE: Column = integer("Available", "The number of replicas.");

/// The columns of scales of custom resources.
pub(crate) const CUSTOM_SCALE: [Column; 4] = [
    NAME,
    DESIRED,
    AVAILABLE,
    Column::new(AGE.name, "date", AGE.description),
];

const REPLICA_SET: [Column; 8] = [
    NAME,
    integer("Desired", "The number of pods that are desired."),
    integer("Current", "The number of pods."),
    integer("Ready", "The number of pods that are ready."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const DAEMON_SET: [Column; 11] = [
    NAME,
    integer("Desired", "The number of nodes that should run the pod."),
    integer("Current", "The number of nodes that run the pod."),
    integer("Ready", "The number of nodes whose pod is ready."),
    integer(
        "Up-to-date",
        "The number of nodes with a pod of the current template.",
    ),
    integer(
        "Available",
        "The number of nodes whose pod has been ready for long enough.",
    ),
    text(
        "Node Selector",
        "The labels of the nodes that should run the pod.",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const CRON_JOB: [Column; 10] = [
    NAME,
    text("Schedule", "When jobs start, in the format of cron."),
    text("Timezone", "The time zone of the schedule."),
    boolean("Suspend", "Whether no more jobs start."),
    integer("Active", "The number of jobs that run."),
    text("Last Schedule", "The time since the last job started."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn ready(root: &Field<'_>) -> Value {
    let number = |path: [&'static str; 2]| root.at(&path).int().unwrap_or_default();
    let (ready, desired) = (
        number(["status", "readyReplicas"]),
        number(["spec", "replicas"]),
    );
    format!("{ready}/{desired}").into()
}

fn replica_set(root: &Field<'_>, clock: Clock) -> Vec<Value> {
    let (spec, status) = (root.child("spec"), root.child("status"));
    let mut cells = vec![
        number(&spec.child("replicas")),
        number(&status.child("replicas")),
        number(&status.child("readyReplicas")),
        age(root, clock),
    ];
    cells.extend(containers(&spec.child("template")));
    cells
}

fn job(root: &Field<'_>, clock: Clock) -> Vec<Value> {
    let (spec, status) = (root.child("spec"), root.child("status"));
    let by_condition = [
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("", "Terminating"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ];
    let deleted = root.at(&["metadata", "deletionTimestamp"]).is_set();
    let state = by_condition.iter().find(|(condition, _)| match *condition {
        "" => deleted,
        condition => has_condition(root, condition),
    });
    let succeeded = status.child("succeeded").int().unwrap_or_default();
    let parallelism = spec.child("parallelism").int().unwrap_or_default();
    let completions = match spec.child("completions").int() {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let start = status.child("startTime");
    let end = seconds(status.child("completionTime").text());
    let duration = match (seconds(start.text()), end) {
        (None, _) => String::new(),
        (Some(_), None) => clock.since(&start),
        (Some(start), Some(end)) => human(end - start),
    };
    let mut cells = vec![
        state.map_or("Running", |(_, state)| state).into(),
        completions.into(),
        duration.into(),
        age(root, clock),
    ];
    cells.extend(containers(&spec.child("template")));
    cells.push(selector(&spec.child("selector")));
    cells
}

/// The number of metrics that are shown.
const METRICS_MAX: usize = 2;

fn targets(spec: &Field<'_>, status: &Field<'_>) -> String {
    let percent = |field: &Field<'_>, absent: &str| match field.int() {
        Some(percent) => format!("{percent}%"),
        None => absent.to_owned(),
    };
    let simple = spec.child("targetCPUUtilizationPercentage");
    if simple.is_set() {
        let current = status.child("currentCPUUtilizationPercentage");
        return format!(
            "cpu: {}/{}",
            percent(&current, "<unknown>"),
            percent(&simple, "<auto>")
        );
    }
    let current: Vec<Field<'_>> = status.child("currentMetrics").items().collect();
    let metrics: Vec<String> = spec
        .child("metrics")
        .items()
        .enumerate()
        .map(|(index, metric)| {
            let member = match metric.child("type").text() {
                "External" => "external",
                "Pods" => "pods",
                "Object" => "object",
                "Resource" => "resource",
                "ContainerResource" => "containerResource",
                _ => return "<unknown type>".to_owned(),
            };
            let (metric, found) = (metric.child(member), current.get(index));
            let target = metric.child("target");
            let now = |name: &'static str| {
                let value = found.map(|found| found.child(member).child("current").child(name));
                value.filter(Field::is_set)
            };
            let is_resource = member.to_lowercase().ends_with("resource");
            let average = target.child("averageValue");
            let unknown = "<unknown>".to_owned();
            let (value, goal) = if average.is_set() || member == "pods" {
                (
                    now("averageValue").map_or(unknown, |value| shown(&value)),
                    shown(&average),
                )
            } else if is_resource {
                let value = now("averageUtilization");
                let value = value.map_or(unknown, |value| percent(&value, "<unknown>"));
                (
                    value,
                    percent(&target.child("averageUtilization"), "<auto>"),
                )
            } else {
                let value = now("value").map_or(unknown, |value| shown(&value));
                (value, shown(&target.child("value")))
            };
            if is_resource {
                format!("{}: {value}/{goal}", metric.child("name").text())
            } else if average.is_set() && member != "pods" {
                format!("{value}/{goal} (avg)")
            } else {
                format!("{value}/{goal}")
            }
        })
        .collect();
    match metrics.len() {
        0 => "<none>".to_owned(),
        count if count > METRICS_MAX => {
            let shown = metrics[..METRICS_MAX].join(", ");
            format!("{shown} + {} more...", count - METRICS_MAX)
        }
        _ => metrics.join(", "),
    }
}
