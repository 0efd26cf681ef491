//! Attempts to grant more rights than one has.

use serde_json::json;

use crate::requests::{Case, JSON};
use crate::setup::{NAME, NAMESPACE};

const ROOT: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Returns attempts of a user who may write roles and bindings to give away what they do not have.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = roles();
    cases.extend(bindings());
    cases.extend(aggregations());
    cases
}

fn here() -> String {
    format!("{ROOT}/namespaces/{NAMESPACE}")
}

fn roles() -> Vec<Case> {
    let root = ROOT;
    let here = here();
    let mut cases = Vec::new();
    let secrets = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]});
    for rule in [
        secrets.clone(),
        json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
        json!({"verbs": ["*"], "apiGroups": [""], "resources": ["events", "pods"]}),
        json!({"verbs": ["get"], "apiGroups": ["", "apps"], "resources": ["events"]}),
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["events/status"]}),
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": [NAME]}),
        json!({"verbs": ["escalate", "bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"]}),
        json!({"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]}),
    ] {
        for (path, kind) in [
            (format!("{root}/clusterroles"), "ClusterRole"),
            (format!("{here}/roles"), "Role"),
        ] {
            let role = |name: &str| {
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                    "metadata": {"name": name, "labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
                    "rules": [rule]})
            };
            let new = role("new");
            cases.push(Case::new("POST", &*path).body(JSON, &new, "rules"));
            cases.push(Case::new("POST", format!("{path}?dryRun=All")).body(JSON, &new, "dry run"));
            cases.push(Case::new("PUT", format!("{path}/{NAME}")).body(JSON, role(NAME), "update"));
            cases.push(Case::new("PUT", format!("{path}/new")).body(
                JSON,
                &new,
                "create by update",
            ));
            let rules = json!({ "rules": [rule] });
            for media_type in [
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
            ] {
                cases.push(
                    Case::new("PATCH", format!("{path}/{NAME}")).body(media_type, &rules, "patch"),
                );
            }
            let patch = json!([{"op": "add", "path": "/rules", "value": [rule]}]);
            cases.push(Case::new("PATCH", format!("{path}/{NAME}")).body(
                "application/json-patch+json",
                patch,
                "patch",
            ));
            let applied = format!("{path}/new?fieldManager=m&force=true");
            cases.push(Case::new("PATCH", applied).body(
                "application/apply-patch+yaml",
                &new,
                "apply",
            ));
        }
    }
    cases
}

fn bindings() -> Vec<Case> {
    let (root, here) = (ROOT, here());
    let mut cases = Vec::new();
    for (bindings, kind, role_kind, role) in [
        (
            "clusterrolebindings",
            "ClusterRoleBinding",
            "ClusterRole",
            "cluster-admin",
        ),
        (
            "clusterrolebindings",
            "ClusterRoleBinding",
            "ClusterRole",
            "system:aggregate-to-admin",
        ),
        (
            "rolebindings",
            "RoleBinding",
            "ClusterRole",
            "cluster-admin",
        ),
        ("rolebindings", "RoleBinding", "Role", "one-name"),
    ] {
        let path = if kind == "RoleBinding" {
            format!("{here}/{bindings}")
        } else {
            format!("{root}/{bindings}")
        };
        let subject =
            json!({"kind": "User", "name": "grantor", "apiGroup": "rbac.authorization.k8s.io"});
        let role_ref =
            json!({"kind": role_kind, "name": role, "apiGroup": "rbac.authorization.k8s.io"});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "new"},
            "roleRef": role_ref, "subjects": [subject]});
        cases.push(Case::new("POST", &*path).body(JSON, &binding, "bind"));
        cases.push(Case::new("POST", format!("{path}?dryRun=All")).body(JSON, &binding, "dry run"));
        cases.push(Case::new("PUT", format!("{path}/new")).body(
            JSON,
            &binding,
            "create by update",
        ));
        let applied = format!("{path}/new?fieldManager=m");
        cases.push(Case::new("PATCH", applied).body(
            "application/apply-patch+yaml",
            &binding,
            "apply",
        ));
        // The role of a binding cannot change.
        let other = json!({"roleRef": role_ref});
        let existing = format!("{path}/{NAME}");
        cases.push(
            Case::new("PATCH", existing)
                .body("application/merge-patch+json", other, "another role")
                .refused(),
        );
    }
    cases
}

fn aggregations() -> Vec<Case> {
    let root = ROOT;
    let mut cases = Vec::new();
    let aggregation = json!({"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "new"},
        "aggregationRule": aggregation});
    cases.push(Case::new("POST", format!("{root}/clusterroles")).body(JSON, role, "aggregation"));
    let patch = json!({ "aggregationRule": aggregation });
    cases.push(
        Case::new("PATCH", format!("{root}/clusterroles/{NAME}")).body(
            "application/merge-patch+json",
            patch,
            "aggregation",
        ),
    );
    cases
}

/// Returns a grant of what the user of [`all`] has.
pub(crate) fn allowed_grant() -> Case {
    let role = json!({"metadata": {"name": "granted"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["events"]}]});
    Case::new("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles").body(
        JSON,
        role,
        "a right of one's own",
    )
}
