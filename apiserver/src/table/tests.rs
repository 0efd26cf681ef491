//! The columns and rows that kube-apiserver 1.36 gave.

use serde_json::{Value, json};

use super::{FAMILIES, cells, columns, row_conditions};

/// The columns of kinds: `*` marks those of the wide output, and types other than `string` follow a colon.
const COLUMNS: [(&str, &str, &str); 60] = [
    ("", "ComponentStatus", "Name, Status, Message, Error"),
    ("", "ConfigMap", "Name, Data, Age"),
    ("", "Endpoints", "Name, Endpoints, Age"),
    (
        "",
        "Event",
        "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*",
    ),
    ("", "LimitRange", "Name, Created At:date"),
    ("", "Namespace", "Name, Status, Age"),
    (
        "",
        "Node",
        "Name, Status, Roles, Age, Version, Internal-IP*, External-IP*, OS-Image*, Kernel-Version*, Container-Runtime*",
    ),
    (
        "",
        "PersistentVolume",
        "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, Reason, Age, VolumeMode*",
    ),
    (
        "",
        "PersistentVolumeClaim",
        "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, VolumeMode*",
    ),
    (
        "",
        "Pod",
        "Name, Ready, Status, Restarts, Age, IP*, Node*, Nominated Node*, Readiness Gates*",
    ),
    ("", "PodTemplate", "Name, Containers, Images, Pod Labels"),
    (
        "",
        "ReplicationController",
        "Name, Desired:integer, Current:integer, Ready:integer, Age, Containers*, Images*, Selector*",
    ),
    ("", "ResourceQuota", "Name, Request, Limit, Age"),
    ("", "Secret", "Name, Type, Data, Age"),
    (
        "",
        "Service",
        "Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector*",
    ),
    ("", "ServiceAccount", "Name, Age"),
    (
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicy",
        "Name, Mutations:integer, ParamKind, Age",
    ),
    (
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicyBinding",
        "Name, PolicyName, ParamRef, Age",
    ),
    (
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        "Name, Webhooks:integer, Age",
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        "Name, Validations:integer, ParamKind, Age",
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        "Name, PolicyName, ParamRef, Age",
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "Name, Webhooks:integer, Age",
    ),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "Name, Created At:date",
    ),
    (
        "apiregistration.k8s.io",
        "APIService",
        "Name, Service, Available, Age",
    ),
    (
        "apps",
        "ControllerRevision",
        "Name, Controller, Revision, Age",
    ),
    (
        "apps",
        "DaemonSet",
        "Name, Desired:integer, Current:integer, Ready:integer, Up-to-date:integer, Available:integer, Node Selector, Age, Containers*, Images*, Selector*",
    ),
    (
        "apps",
        "Deployment",
        "Name, Ready, Up-to-date, Available, Age, Containers*, Images*, Selector*",
    ),
    (
        "apps",
        "ReplicaSet",
        "Name, Desired:integer, Current:integer, Ready:integer, Age, Containers*, Images*, Selector*",
    ),
    (
        "apps",
        "StatefulSet",
        "Name, Ready, Age, Containers*, Images*",
    ),
    (
        "autoscaling",
        "HorizontalPodAutoscaler",
        "Name, Reference, Targets, MinPods, MaxPods, Replicas, Age",
    ),
    (
        "batch",
        "CronJob",
        "Name, Schedule, Timezone, Suspend:boolean, Active:integer, Last Schedule, Age, Containers*, Images*, Selector*",
    ),
    (
        "batch",
        "Job",
        "Name, Status, Completions, Duration, Age, Containers*, Images*, Selector*",
    ),
    (
        "certificates.k8s.io",
        "CertificateSigningRequest",
        "Name, Age, SignerName, Requestor, RequestedDuration, Condition",
    ),
    ("coordination.k8s.io", "Lease", "Name, Holder, Age"),
    (
        "discovery.k8s.io",
        "EndpointSlice",
        "Name, AddressType, Ports, Endpoints, Age",
    ),
    (
        "events.k8s.io",
        "Event",
        "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*",
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "FlowSchema",
        "Name, PriorityLevel, MatchingPrecedence, DistinguisherMethod, Age, MissingPL",
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        "Name, Type, NominalConcurrencyShares, Queues, HandSize, QueueLengthLimit, Age",
    ),
    ("networking.k8s.io", "IPAddress", "Name, ParentRef"),
    (
        "networking.k8s.io",
        "Ingress",
        "Name, Class, Hosts, Address, Ports, Age",
    ),
    (
        "networking.k8s.io",
        "IngressClass",
        "Name, Controller, Parameters, Age",
    ),
    (
        "networking.k8s.io",
        "NetworkPolicy",
        "Name, Pod-Selector, Age",
    ),
    ("networking.k8s.io", "ServiceCIDR", "Name, CIDRs, Age"),
    ("node.k8s.io", "RuntimeClass", "Name, Handler, Age"),
    (
        "policy",
        "PodDisruptionBudget",
        "Name, Min Available, Max Unavailable, Allowed Disruptions:integer, Age",
    ),
    (
        "rbac.authorization.k8s.io",
        "ClusterRole",
        "Name, Created At:date",
    ),
    (
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        "Name, Role, Age, Users*, Groups*, ServiceAccounts*",
    ),
    ("rbac.authorization.k8s.io", "Role", "Name, Created At:date"),
    (
        "rbac.authorization.k8s.io",
        "RoleBinding",
        "Name, Role, Age, Users*, Groups*, ServiceAccounts*",
    ),
    ("resource.k8s.io", "DeviceClass", "Name, Age"),
    ("resource.k8s.io", "ResourceClaim", "Name, State, Age"),
    ("resource.k8s.io", "ResourceClaimTemplate", "Name, Age"),
    (
        "resource.k8s.io",
        "ResourceSlice",
        "Name, Node, Driver, Pool, Age",
    ),
    (
        "scheduling.k8s.io",
        "PriorityClass",
        "Name, Value:integer, Global-Default:boolean, Age, PreemptionPolicy",
    ),
    (
        "storage.k8s.io",
        "CSIDriver",
        "Name, AttachRequired:boolean, PodInfoOnMount:boolean, StorageCapacity:boolean, TokenRequests, RequiresRepublish:boolean, Modes, Age",
    ),
    ("storage.k8s.io", "CSINode", "Name, Drivers:integer, Age"),
    (
        "storage.k8s.io",
        "CSIStorageCapacity",
        "Name, Created At:date",
    ),
    (
        "storage.k8s.io",
        "StorageClass",
        "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age",
    ),
    (
        "storage.k8s.io",
        "VolumeAttachment",
        "Name, Attacher, PV, Node, Attached:boolean, Age",
    ),
    (
        "storage.k8s.io",
        "VolumeAttributesClass",
        "Name, DriverName, Age",
    ),
];

#[test]
fn columns_are_those_of_kube_apiserver() {
    for (group, kind, expected) in COLUMNS {
        let found: Vec<String> = columns(group, kind)
            .iter()
            .map(|column| {
                let wide = if column.priority == 0 { "" } else { "*" };
                match column.kind {
                    "string" => format!("{}{wide}", column.name),
                    other => format!("{}{wide}:{other}", column.name),
                }
            })
            .collect();
        assert_eq!(found.join(", "), expected, "{group}/{kind}");
    }
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
