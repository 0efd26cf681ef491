//! Rows of budgets, quotas, priorities, role bindings, admission and flow control.

use serde_json::Value;

use super::{AGE, Column, NAME, Printer, age, boolean, integer, number, or, shown, text};
use crate::builtin::field::Field;

const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) const PRINTERS: &[Printer] = &[
    Printer {
        group: "policy",
        kind: "PodDisruptionBudget",
        columns: &[
            NAME,
            text("Min Available", "How many pods must stay available."),
            text("Max Unavailable", "How many pods may be unavailable."),
            integer("Allowed Disruptions", "How many pods may be evicted now."),
            AGE,
        ],
        cells: |root, clock| {
            let spec = root.child("spec");
            let limit = |name: &'static str| match spec.child(name) {
                field if field.is_set() => Value::from(shown(&field)),
                _ => "N/A".into(),
            };
            vec![
                limit("minAvailable"),
                limit("maxUnavailable"),
                number(&root.at(&["status", "disruptionsAllowed"])),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "",
        kind: "ResourceQuota",
        columns: &[
            NAME,
            text("Request", "What is used, of what may be requested."),
            text("Limit", "What is used, of what limits may add up to."),
            AGE,
        ],
        cells: |root, clock| {
            let (hard, used) = (root.at(&["status", "hard"]), root.at(&["status", "used"]));
            let list = |limits: bool| {
                let resources = hard
                    .entries()
                    .filter(|(name, _)| name.starts_with("limits.") == limits)
                    .map(|(name, hard)| {
                        format!("{name}: {}/{}", shown(&used.key(name)), shown(&hard))
                    });
                Value::from(resources.collect::<Vec<_>>().join(", "))
            };
            vec![list(false), list(true), age(root, clock)]
        },
    },
    Printer {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        columns: &[
            NAME,
            integer("Value", "The priority of the pods."),
            boolean(
                "Global-Default",
                "Whether pods without a class have this one.",
            ),
            AGE,
            text("PreemptionPolicy", "Whether the pods displace others."),
        ],
        cells: |root, clock| {
            vec![
                number(&root.child("value")),
                root.child("globalDefault").flag().into(),
                age(root, clock),
                root.child("preemptionPolicy").text().into(),
            ]
        },
    },
    Printer {
        group: RBAC,
        kind: "RoleBinding",
        columns: &BINDING,
        cells: binding,
    },
    Printer {
        group: RBAC,
        kind: "ClusterRoleBinding",
        columns: &BINDING,
        cells: binding,
    },
    Printer {
        group: ADMISSION,
        kind: "ValidatingWebhookConfiguration",
        columns: &WEBHOOKS,
        cells: |root, clock| vec![root.child("webhooks").len().into(), age(root, clock)],
    },
    Printer {
        group: ADMISSION,
        kind: "MutatingWebhookConfiguration",
        columns: &WEBHOOKS,
        cells: |root, clock| vec![root.child("webhooks").len().into(), age(root, clock)],
    },
    Printer {
        group: ADMISSION,
        kind: "ValidatingAdmissionPolicy",
        columns: &[
            NAME,
            integer("Validations", "The number of validations."),
            PARAM_KIND,
            AGE,
        ],
        cells: |root, clock| {
            let count = root.at(&["spec", "validations"]).len();
            vec![count.into(), param_kind(root), age(root, clock)]
        },
    },
    Printer {
        group: ADMISSION,
        kind: "MutatingAdmissionPolicy",
        columns: &[
            NAME,
            integer("Mutations", "The number of mutations."),
            PARAM_KIND,
            AGE,
        ],
        cells: |root, clock| {
            let count = root.at(&["spec", "mutations"]).len();
            vec![count.into(), param_kind(root), age(root, clock)]
        },
    },
    Printer {
        group: ADMISSION,
        kind: "ValidatingAdmissionPolicyBinding",
        columns: &POLICY_BINDING,
        cells: |root, clock| vec![policy_name(root), param_ref(root), age(root, clock)],
    },
    Printer {
        group: ADMISSION,
        kind: "MutatingAdmissionPolicyBinding",
        columns: &POLICY_BINDING,
        cells: |root, clock| vec![policy_name(root), param_ref(root), age(root, clock)],
    },
    Printer {
        group: FLOW_CONTROL,
        kind: "FlowSchema",
        columns: &[
            NAME,
            text("PriorityLevel", "The priority level of the requests."),
            text("MatchingPrecedence", "The order among schemas."),
            text("DistinguisherMethod", "How flows are distinguished."),
            AGE,
            text("MissingPL", "Whether the priority level is missing."),
        ],
        cells: |root, clock| {
            let spec = root.child("spec");
            let mut conditions = root.at(&["status", "conditions"]).items();
            let dangling =
                conditions.find(|condition| condition.child("type").text() == "Dangling");
            vec![
                spec.at(&["priorityLevelConfiguration", "name"])
                    .text()
                    .into(),
                number(&spec.child("matchingPrecedence")),
                or(spec.at(&["distinguisherMethod", "type"]).text(), "<none>"),
                age(root, clock),
                dangling
                    .map_or("?", |condition| condition.child("status").text())
                    .into(),
            ]
        },
    },
    Printer {
        group: FLOW_CONTROL,
        kind: "PriorityLevelConfiguration",
        columns: &[
            NAME,
            text("Type", "Whether requests are limited."),
            text(
                "NominalConcurrencyShares",
                "The share of the concurrent requests.",
            ),
            text("Queues", "The number of queues."),
            text("HandSize", "The number of queues of a flow."),
            text("QueueLengthLimit", "The maximum length of a queue."),
            AGE,
        ],
        cells: |root, clock| {
            let spec = root.child("spec");
            let limited = spec.child("limited");
            let queuing = limited.at(&["limitResponse", "queuing"]);
            let of = |parent: &Field<'_>, name: &'static str| match parent.object() {
                Some(object) => {
                    let value = object.get(name).and_then(Value::as_i64);
                    value.unwrap_or_default().into()
                }
                None => Value::from("<none>"),
            };
            vec![
                spec.child("type").text().into(),
                of(&limited, "nominalConcurrencyShares"),
                of(&queuing, "queues"),
                of(&queuing, "handSize"),
                of(&queuing, "queueLengthLimit"),
                age(root, clock),
            ]
        },
    },
];

const BINDING: [Column; 6] = [
    NAME,
    text("Role", "The role that is granted."),
    AGE,
    text("Users", "The users who get the role.").wide(),
    text("Groups", "The groups that get the role.").wide(),
    text("ServiceAccounts", "The service accounts that get the role.").wide(),
];
const WEBHOOKS: [Column; 3] = [NAME, integer("Webhooks", "The number of webhooks."), AGE];
const PARAM_KIND: Column = text("ParamKind", "The kind of the parameters.");
const POLICY_BINDING: [Column; 4] = [
    NAME,
    text("PolicyName", "The policy that is bound."),
    text("ParamRef", "The object with the parameters."),
    AGE,
];

fn binding(root: &Field<'_>, clock: super::Clock) -> Vec<Value> {
    let role = root.child("roleRef");
    let subjects = |kind: &str| {
        let found = root
            .child("subjects")
            .items()
            .filter(|subject| subject.child("kind").text() == kind)
            .map(|subject| {
                let (namespace, name) = (
                    subject.child("namespace").text(),
                    subject.child("name").text(),
                );
                if kind == "ServiceAccount" && !namespace.is_empty() {
                    format!("{namespace}/{name}")
                } else {
                    name.to_owned()
                }
            });
        Value::from(found.collect::<Vec<_>>().join(", "))
    };
    vec![
        format!(
            "{}/{}",
            role.child("kind").text(),
            role.child("name").text()
        )
        .into(),
        age(root, clock),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn param_kind(root: &Field<'_>) -> Value {
    let kind = root.at(&["spec", "paramKind"]);
    if kind.is_set() {
        format!(
            "{}/{}",
            kind.child("apiVersion").text(),
            kind.child("kind").text()
        )
        .into()
    } else {
        "<unset>".into()
    }
}

fn policy_name(root: &Field<'_>) -> Value {
    root.at(&["spec", "policyName"]).text().into()
}

fn param_ref(root: &Field<'_>) -> Value {
    let reference = root.at(&["spec", "paramRef"]);
    let (namespace, name) = (
        reference.child("namespace").text(),
        reference.child("name").text(),
    );
    if name.is_empty() {
        "<unset>".into()
    } else {
        format!(
            "{}/{name}",
            if namespace.is_empty() { "*" } else { namespace }
        )
        .into()
    }
}
