//! Changes of roles and bindings.

use revstore_apiserver::ApiServer;
use revstore_apiserver::auth::{AuthorizationMode, User};
use serde_json::{Value, json};

use crate::TestResult;
use crate::client::{send, send_as};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn a_change_of_roles_or_bindings_is_in_force_when_it_is_answered() -> TestResult {
    let server = ApiServer::builder()
        .authorization_mode(AuthorizationMode::Rbac)
        .user("t", User::new("ann", ["devs"]))
        .start()?;
    let write = |method: &str, path: &str, object: &Value, expected: u16| {
        let (code, answer) = send(&server, method, &format!("{RBAC}/{path}"), object);
        assert_eq!(code, expected, "{method} {path}: {answer}");
    };
    let expect = |code: u16, when: &str, round: u32| {
        let asked = send_as(&server, "t", "GET", PODS, &Value::Null).0;
        assert_eq!(asked, code, "{when} in round {round}");
    };
    let group = "rbac.authorization.k8s.io";
    let role = |verb: &str| {
        json!({"metadata": {"name": "r"},
            "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]})
    };
    let binding = |kind: &str| {
        json!({"metadata": {"name": "b"}, "roleRef": {"apiGroup": group, "kind": kind, "name": "r"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "ann"}]})
    };
    for round in 0..50 {
        for (prefix, place, kind) in [
            ("", "namespaces/default/", "Role"),
            ("cluster", "", "ClusterRole"),
        ] {
            let (roles, bindings) = (
                format!("{place}{prefix}roles"),
                format!("{place}{prefix}rolebindings"),
            );
            let (this_role, this_binding) = (format!("{roles}/r"), format!("{bindings}/b"));
            write("POST", &bindings, &binding(kind), 201);
            expect(403, "the role is missing", round);
            write("POST", &roles, &role("list"), 201);
            expect(200, "both exist", round);
            write("PUT", &this_role, &role("get"), 200);
            expect(403, "the role has another rule", round);
            write("PUT", &this_role, &role("*"), 200);
            expect(200, "the role has the rule again", round);
            write("DELETE", &this_binding, &Value::Null, 200);
            expect(403, "the binding is gone", round);
            write("POST", &bindings, &binding(kind), 201);
            expect(200, "the binding is back", round);
            write(
                "DELETE",
                &format!("{roles}?fieldSelector=metadata.name%3Dr"),
                &Value::Null,
                200,
            );
            expect(403, "all such roles are gone", round);
            write("DELETE", &this_binding, &Value::Null, 200);
        }
    }
    Ok(())
}
