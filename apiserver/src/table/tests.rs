//! The columns and rows that kube-apiserver 1.36 gave.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{FAMILIES, cells, columns, row_conditions};

/// The columns of kinds, written by `scripts/generate-apiserver.sh`.
const COLUMNS: &str = include_str!("../../tests/data/columns.txt");

/// Returns the lines of the columns of each kind in the table, by its group and its name.
fn known_columns() -> BTreeMap<(&'static str, &'static str), Vec<String>> {
    let mut known: BTreeMap<_, Vec<String>> = BTreeMap::new();
    let mut kind = ("", "");
    for line in COLUMNS.lines() {
        match line.split_once(' ') {
            Some(("kind", name)) => {
                let (group, name) = name.split_once(' ').unwrap();
                kind = (if group == "-" { "" } else { group }, name);
            }
            Some(("column", column)) => known.entry(kind).or_default().push(column.to_owned()),
            Some(("#" | "source", _)) => {}
            _ => panic!("{line}"),
        }
    }
    known
}

#[test]
fn columns_are_those_of_kube_apiserver() {
    let mut known = known_columns();
    let default = ["string name 0 Name", "date - 0 Created At"].map(str::to_owned);
    let listed = revstore_kinds::resources().filter(|resource| resource.has_verb("list"));
    let kinds: BTreeSet<_> = listed.map(|it| (it.group(), it.kind())).collect();
    let mut differences = Vec::new();
    for (group, kind) in kinds {
        let found = columns(group, kind).iter().map(|column| {
            let format = if column.format.is_empty() {
                "-"
            } else {
                column.format
            };
            format!(
                "{} {format} {} {}",
                column.kind, column.priority, column.name
            )
        });
        let found: Vec<String> = found.collect();
        let expected = known.remove(&(group, kind));
        if found != expected.unwrap_or_else(|| default.to_vec()) {
            differences.push(format!("{group} {kind}: {}", found.join(", ")));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(known.is_empty(), "kinds that are not served: {known:?}");
}

#[test]
fn rows_have_a_cell_for_each_column() {
    for printer in FAMILIES.iter().flat_map(|family| family.iter()) {
        let empty = json!({});
        let cells = cells(printer.group, printer.kind, empty.as_object().unwrap(), 0);
        assert_eq!(cells.len(), printer.columns.len(), "{}", printer.kind);
    }
}

fn check(group: &str, kind: &str, object: &Value, expected: &Value) {
    // Two hours after the creation.
    let mut object = object.as_object().cloned().unwrap();
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    metadata["name"] = "x".into();
    metadata["creationTimestamp"] = "1970-01-01T00:00:00Z".into();
    let found = cells(group, kind, &object, 7200);
    assert_eq!(Value::Array(found), *expected, "{kind}");
}

#[test]
fn pods_show_the_state_of_their_containers() {
    let one = json!([{"name": "c"}]);
    let state = |ready: bool, restarts: i64, state: Value| json!([{"name": "c", "ready": ready, "restartCount": restarts, "state": state}]);
    let pod =
        |status: Value| json!({"spec": {"containers": one, "nodeName": "n1"}, "status": status});
    let row = |ready: &str, reason: &str, restarts: &str| {
        json!([
            "x", ready, reason, restarts, "120m", "<none>", "n1", "<none>", "<none>"
        ])
    };
    let running = state(true, 2, json!({"running": {}}));
    let crashed = state(false, 5, json!({"waiting": {"reason": "CrashLoopBackOff"}}));
    let done = state(
        false,
        0,
        json!({"terminated": {"exitCode": 0, "reason": "Completed"}}),
    );
    let failed = state(false, 0, json!({"terminated": {"exitCode": 3}}));
    for (status, expected) in [
        (
            json!({"phase": "Running", "containerStatuses": running}),
            row("1/1", "Running", "2"),
        ),
        (
            json!({"phase": "Running", "containerStatuses": crashed}),
            row("0/1", "CrashLoopBackOff", "5"),
        ),
        (
            json!({"phase": "Succeeded", "containerStatuses": done}),
            row("0/1", "Completed", "0"),
        ),
        (
            json!({"phase": "Failed", "containerStatuses": failed}),
            row("0/1", "ExitCode:3", "0"),
        ),
        (
            json!({"phase": "Failed", "reason": "Evicted"}),
            row("0/1", "Evicted", "0"),
        ),
    ] {
        check("", "Pod", &pod(status), &expected);
    }
    let mut initializing = pod(json!({
        "phase": "Pending",
        "initContainerStatuses": [{"name": "i", "state": {"running": {}}}],
    }));
    initializing["spec"]["initContainers"] = json!([{"name": "i"}]);
    check("", "Pod", &initializing, &row("0/1", "Init:0/1", "0"));
    let mut deleted = pod(json!({"phase": "Pending"}));
    deleted["metadata"] = json!({"deletionTimestamp": "1970-01-01T00:00:00Z"});
    check("", "Pod", &deleted, &row("0/1", "Terminating", "0"));
    let mut restarted = pod(json!({"phase": "Running", "containerStatuses": running}));
    restarted["status"]["containerStatuses"][0]["lastState"] =
        json!({"terminated": {"finishedAt": "1970-01-01T01:59:00Z"}});
    check("", "Pod", &restarted, &row("1/1", "Running", "2 (60s ago)"));
}

#[test]
fn ended_pods_have_a_condition() {
    let of = |phase: &str| {
        let pod = json!({"status": {"phase": phase}});
        row_conditions("", "Pod", pod.as_object().unwrap())
    };
    assert_eq!(of("Running"), Vec::<Value>::new());
    assert_eq!(of("Succeeded")[0]["reason"], "Succeeded");
    assert_eq!(of("Failed")[0]["message"], "The pod failed.");
}

#[test]
fn rows_are_those_of_kube_apiserver() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "img:1"}]}});
    let labels = json!({"matchLabels": {"app": "x"}});
    let spec = json!({"replicas": 2, "selector": labels, "template": template});
    for (group, kind, object, expected) in [
        (
            "apps",
            "Deployment",
            json!({"spec": spec}),
            json!(["x", "0/2", 0, 0, "120m", "c", "img:1", "app=x"]),
        ),
        (
            "apps",
            "StatefulSet",
            json!({"spec": spec}),
            json!(["x", "0/2", "120m", "c", "img:1"]),
        ),
        (
            "apps",
            "DaemonSet",
            json!({"spec": spec}),
            json!(["x", 0, 0, 0, 0, 0, "<none>", "120m", "c", "img:1", "app=x"]),
        ),
        (
            "batch",
            "Job",
            json!({"spec": {"completions": 1, "selector": labels, "template": template}}),
            json!(["x", "Running", "0/1", "", "120m", "c", "img:1", "app=x"]),
        ),
        (
            "batch",
            "CronJob",
            json!({"spec": {
                "schedule": "*/5 * * * *", "suspend": false, "jobTemplate": {"spec": {"template": template}},
            }}),
            json!([
                "x",
                "*/5 * * * *",
                "<none>",
                "False",
                0,
                "<none>",
                "120m",
                "c",
                "img:1",
                "<none>"
            ]),
        ),
        (
            "autoscaling",
            "HorizontalPodAutoscaler",
            json!({"spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 5,
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
                }}],
            }}),
            json!(["x", "Deployment/d", "cpu: <unknown>/80%", "1", 5, 0, "120m"]),
        ),
        (
            "",
            "Service",
            json!({"spec": {
                "type": "NodePort", "clusterIPs": ["10.0.0.1"],
                "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}],
            }}),
            json!([
                "x",
                "NodePort",
                "10.0.0.1",
                "<none>",
                "80:30080/TCP",
                "120m",
                "<none>"
            ]),
        ),
        (
            "",
            "ConfigMap",
            json!({"data": {"k": "v"}}),
            json!(["x", 1, "120m"]),
        ),
        ("", "ServiceAccount", json!({}), json!(["x", "120m"])),
        (
            "rbac.authorization.k8s.io",
            "Role",
            json!({}),
            json!(["x", "1970-01-01T00:00:00Z"]),
        ),
        (
            "storage.k8s.io",
            "StorageClass",
            json!({
                "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                "provisioner": "p", "reclaimPolicy": "Retain",
            }),
            json!(["x (default)", "p", "Retain", "Immediate", false, "120m"]),
        ),
    ] {
        check(group, kind, &object, &expected);
    }
}

#[test]
fn rows_of_newer_kinds_are_those_of_kube_apiserver() {
    for (group, kind, object, expected) in [
        (
            "certificates.k8s.io",
            "PodCertificateRequest",
            json!({
                "spec": {
                    "podName": "p", "serviceAccountName": "s", "nodeName": "n", "signerName": "a.b/c",
                    "unverifiedUserAnnotations": {"a.b/y": "2", "a.b/x": "1"},
                },
                "status": {"conditions": [{"type": "Other"}, {"type": "Issued"}]},
            }),
            json!(["x", "p", "s", "n", "a.b/c", "Issued", "a.b/x=1,a.b/y=2"]),
        ),
        (
            "certificates.k8s.io",
            "PodCertificateRequest",
            json!({}),
            json!(["x", "", "", "", "", "Pending", "<none>"]),
        ),
        (
            "resource.k8s.io",
            "DeviceTaintRule",
            json!({"spec": {"taint": {
                "key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "1970-01-01T01:00:00Z",
            }}}),
            json!(["x", "k", "v", "NoExecute", "60m", "120m"]),
        ),
        (
            "resource.k8s.io",
            "DeviceTaintRule",
            json!({"spec": {"taint": {"key": "k", "effect": "None"}}}),
            json!(["x", "k", "", "None", "", "120m"]),
        ),
        (
            "storagemigration.k8s.io",
            "StorageVersionMigration",
            json!({
                "spec": {"resource": {"group": "apps", "resource": "deployments"}},
                "status": {"conditions": [
                    {"type": "Running", "status": "True"}, {"type": "Failed", "status": "False"},
                ]},
            }),
            json!(["x", "deployments.apps", "Running"]),
        ),
        (
            "storagemigration.k8s.io",
            "StorageVersionMigration",
            json!({"spec": {"resource": {"resource": "pods"}}}),
            json!(["x", "pods", "Unknown"]),
        ),
    ] {
        check(group, kind, &object, &expected);
    }
}
