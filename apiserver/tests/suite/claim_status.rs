//! Who may write which part of the status of a claim of devices.

use revstore_apiserver::ApiServer;
use revstore_apiserver::auth::{AuthorizationMode, User};
use serde_json::{Value, json};

use crate::client::exchange::exchange;
use crate::client::{TestResult, send, value};

const CLAIM: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Gives the users `ann` and `driver` rights on subresources of claims, in the namespace, or in all.
fn allow(server: &ApiServer, name: &str, namespace: Option<&str>, rule: Value) {
    let mut rule = rule;
    rule["apiGroups"] = json!(["resource.k8s.io"]);
    let (path, kind) = match namespace {
        Some(namespace) => (format!("{RBAC}/namespaces/{namespace}"), ""),
        None => (RBAC.to_owned(), "cluster"),
    };
    let granted = json!({"metadata": {"name": name}, "rules": [rule]});
    let role_kind = if kind.is_empty() {
        "Role"
    } else {
        "ClusterRole"
    };
    let subject = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": name},
        "subjects": [subject("User", "ann"), subject("Group", "system:serviceaccounts:default")]});
    for (plural, object) in [("roles", granted), ("rolebindings", binding)] {
        let path = format!("{path}/{kind}{plural}");
        assert_eq!(
            send(server, "POST", &path, &object.to_string()).0,
            201,
            "{path}"
        );
    }
}

/// Patches the status, and returns the status code and the causes of a refusal.
fn patch(server: &ApiServer, user: &str, status: &Value) -> (u16, Vec<(String, String)>) {
    let fields = format!("{user}Content-Type: application/merge-patch+json\r\n");
    let body = json!({ "status": status }).to_string();
    let path = format!("{CLAIM}/status");
    let answer = value(&exchange(server.endpoint(), "PATCH", &path, &fields, &body));
    let causes = answer.1["details"]["causes"].as_array();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = causes.into_iter().flatten().map(|cause| {
        assert_eq!(cause["reason"], "FieldValueForbidden", "{cause}");
        (text(&cause["field"]), text(&cause["message"]))
    });
    (answer.0, causes.collect())
}

/// Returns the cause of a change that needs a permission on a subresource.
fn cause(part: &str, verbs: &str, user: &str, name: &str) -> (String, String) {
    let (field, what, resource) = match part {
        "binding" => (
            "status.allocation",
            "status.allocation or status.reservedFor",
            "binding",
        ),
        _ => ("status.devices", "status.devices", "driver"),
    };
    let verb = verbs
        .trim_start_matches('[')
        .split([' ', ']'])
        .next()
        .unwrap_or_default();
    let (name, place) = match name {
        "" => (String::new(), "at the cluster scope".to_owned()),
        name => (
            format!(" \"{name}\""),
            "in the namespace \"default\"".to_owned(),
        ),
    };
    let message = format!(
        "Forbidden: changing {what} requires resource=\"resourceclaims/{resource}\", verb=\"{verbs}\" permission: \
         resourceclaims.resource.k8s.io{name} is forbidden: User \"{user}\" cannot {verb} resource \
         \"resourceclaims/{resource}\" in API group \"resource.k8s.io\" {place}"
    );
    (field.to_owned(), message)
}

#[test]
fn each_part_of_the_status_of_a_claim_needs_a_right_of_its_own() -> TestResult {
    let server = ApiServer::builder()
        .authorization_mode(AuthorizationMode::Rbac)
        .user("t", User::new("ann", ["devs"]))
        .start()?;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r",
        "exactly": {"deviceClassName": "x"}}]}}});
    let path = CLAIM.trim_end_matches("/c");
    assert_eq!(send(&server, "POST", path, &claim.to_string()).0, 201);
    let all = json!({"verbs": ["patch"], "resources": ["resourceclaims/status"]});
    allow(&server, "status", Some("default"), all);
    let ann = "Authorization: Bearer t\r\n";
    let on = |node: &str| {
        format!(
            "Impersonate-User: system:serviceaccount:default:d\r\nImpersonate-Group: system:serviceaccounts:default\r\n\
             Impersonate-Extra-authentication.kubernetes.io%2fnode-name: {node}\r\n"
        )
    };

    // The allocation, and who uses it, take a right in all namespaces.
    let allocation = json!({"devices": {"results": [{"request": "r", "driver": "d.e", "pool": "p", "device": "x"},
            {"request": "r", "driver": "f.e", "pool": "p", "device": "x"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In",
            "values": ["n1"]}]}]}});
    let reserved = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
    let bound = json!({"allocation": allocation, "reservedFor": reserved});
    let refused = (422, vec![cause("binding", "patch", "ann", "")]);
    assert_eq!(patch(&server, ann, &bound), refused);
    let binding = json!({"verbs": ["patch"], "resources": ["resourceclaims/binding"]});
    allow(&server, "binding-here", Some("default"), binding.clone());
    assert_eq!(patch(&server, ann, &bound), refused);
    allow(&server, "binding", None, binding);
    assert_eq!(patch(&server, ann, &bound), (200, Vec::new()));
    // A change of nothing takes no right.
    assert_eq!(patch(&server, ann, &json!({})).0, 200);

    // What drivers say takes a right for each of them, in the namespace.
    let device =
        |driver: &str| json!({"driver": driver, "pool": "p", "device": "x", "data": {"a": 1}});
    let devices = json!({"devices": [device("f.e"), device("d.e")]});
    let arbitrary = |driver| cause("driver", "[arbitrary-node:patch]", "ann", driver);
    let refused = (422, vec![arbitrary("d.e"), arbitrary("f.e")]);
    assert_eq!(patch(&server, ann, &devices), refused);
    let rule = json!({"verbs": ["arbitrary-node:patch"], "resources": ["resourceclaims/driver"],
        "resourceNames": ["f.e"]});
    allow(&server, "arbitrary", Some("default"), rule);
    assert_eq!(patch(&server, ann, &devices), (422, vec![arbitrary("d.e")]));
    assert_eq!(
        patch(&server, ann, &json!({"devices": [device("f.e")]})).0,
        200
    );

    // A service account on the node of the claim needs less.
    let name = "system:serviceaccount:default:d";
    let both = "[associated-node:patch arbitrary-node:patch]";
    let refused = (422, vec![cause("driver", both, name, "d.e")]);
    assert_eq!(patch(&server, &on("n1"), &devices), refused);
    let rule = json!({"verbs": ["associated-node:patch"], "resources": ["resourceclaims/driver"],
        "resourceNames": ["d.e"]});
    allow(&server, "associated", Some("default"), rule);
    let refused = (
        422,
        vec![cause("driver", "[arbitrary-node:patch]", name, "d.e")],
    );
    assert_eq!(patch(&server, &on("n2"), &devices), refused);
    assert_eq!(patch(&server, ann, &devices), (422, vec![arbitrary("d.e")]));
    assert_eq!(patch(&server, &on("n1"), &devices), (200, Vec::new()));

    // The devices of an allocation go with it, which takes no right of their drivers.
    let free = json!({"allocation": null, "reservedFor": null});
    assert_eq!(patch(&server, ann, &free), (200, Vec::new()));
    let (_, left) = value(&send(&server, "GET", CLAIM, ""));
    assert_eq!(left["status"], json!({}), "{left}");
    Ok(())
}
