//! Requests in the name of others: what each right permits, and no more.

use revstore_apiserver::ApiServer;
use revstore_apiserver::auth::{AuthorizationMode, User};
use serde_json::{Value, json};

use crate::exchange::exchange;
use crate::setup::{TestResult, allow};

/// The group of the rights of the constrained modes.
const GROUP: &str = "authentication.k8s.io";

/// A user with rights, and what it gets in the name of another one.
struct Case {
    /// The verb, group, resources and names of each right.
    rights: Vec<Value>,
    /// The header fields.
    fields: &'static str,
    path: &'static str,
    /// What the answer contains, after its status.
    expected: (u16, &'static str),
}

fn right(verb: &str, group: &str, resource: &str, name: &str) -> Value {
    let mut rule = json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]});
    if !name.is_empty() {
        rule["resourceNames"] = json!([name]);
    }
    rule
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    let case = |rights: &[Value], fields, path, expected| Case {
        rights: rights.to_vec(),
        fields,
        path,
        expected,
    };
    let on = |mode: &str, verb: &str| {
        right(
            &format!("impersonate-on:{mode}:{verb}"),
            "",
            "configmaps",
            "",
        )
    };
    let (maps, map) = (
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
    );
    let bob = "Impersonate-User: bob\r\n";
    let node = "Impersonate-User: system:node:n1\r\n";
    let account = "Impersonate-User: system:serviceaccount:default:a\r\n";
    let be_bob = right("impersonate:user-info", GROUP, "users", "bob");
    let be_all = right("impersonate:user-info", GROUP, "*", "");
    let list = on("user-info", "list");
    let be_node = right("impersonate:arbitrary-node", GROUP, "nodes", "n1");
    let be_account = right("impersonate:serviceaccount", GROUP, "serviceaccounts", "a");
    vec![
        case(&[be_bob.clone(), list.clone()], bob, maps, (200, "")),
        // One of the two rights is missing.
        case(
            std::slice::from_ref(&be_bob),
            bob,
            maps,
            (
                403,
                "cannot impersonate-on:user-info:list resource \\\"configmaps\\\" in API group \\\"\\\" in the namespace \\\"default\\\"",
            ),
        ),
        case(
            std::slice::from_ref(&list),
            bob,
            maps,
            (
                403,
                "cannot impersonate:user-info resource \\\"users\\\" in API group \\\"authentication.k8s.io\\\" at the cluster scope",
            ),
        ),
        case(
            &[be_bob.clone(), list.clone()],
            bob,
            map,
            (403, "impersonate-on:user-info:get"),
        ),
        case(
            &[be_bob.clone(), list.clone()],
            "Impersonate-User: eve\r\n",
            maps,
            (403, "\\\"eve\\\" is forbidden"),
        ),
        case(
            &[be_bob.clone(), list.clone()],
            "Impersonate-User: bob\r\nImpersonate-Group: a\r\n",
            maps,
            (403, "cannot impersonate:user-info resource \\\"groups\\\""),
        ),
        case(
            &[be_bob.clone(), list.clone()],
            "Impersonate-User: bob\r\nImpersonate-Uid: a\r\n",
            maps,
            (403, "cannot impersonate:user-info resource \\\"uids\\\""),
        ),
        case(
            &[be_bob.clone(), list.clone()],
            "Impersonate-User: bob\r\nImpersonate-Extra-acme.io%2fx: a\r\n",
            maps,
            (
                403,
                "cannot impersonate:user-info resource \\\"userextras/acme.io/x\\\"",
            ),
        ),
        case(
            &[be_all.clone(), list.clone()],
            "Impersonate-User: bob\r\nImpersonate-Uid: a\r\nImpersonate-Group: a\r\nImpersonate-Group: b\r\nImpersonate-Group: c\r\nImpersonate-Group: d\r\n",
            maps,
            (200, ""),
        ),
        // Never, whatever the right.
        case(
            &[be_all.clone(), list.clone()],
            "Impersonate-User: bob\r\nImpersonate-Group: system:masters\r\n",
            maps,
            (403, "impersonating the system:masters group is not allowed"),
        ),
        case(
            &[be_all.clone(), list.clone()],
            "Impersonate-User: bob\r\nImpersonate-Group: \r\n",
            maps,
            (403, "impersonating the empty string group is not allowed"),
        ),
        case(
            &[be_all.clone(), list.clone()],
            "Impersonate-User: bob\r\nImpersonate-Extra-scopes: a\r\n",
            maps,
            (403, "impersonating an invalid key in extra is not allowed"),
        ),
        // Nodes and service accounts have modes of their own, and no attributes.
        case(
            &[be_all.clone(), list.clone()],
            node,
            maps,
            (403, "cannot impersonate-on:arbitrary-node:list"),
        ),
        case(
            &[be_all.clone(), list.clone()],
            account,
            maps,
            (403, "cannot impersonate-on:serviceaccount:list"),
        ),
        case(
            &[be_node.clone(), on("arbitrary-node", "list")],
            node,
            maps,
            (200, ""),
        ),
        case(
            &[be_node.clone(), on("arbitrary-node", "list")],
            "Impersonate-User: system:node:n2\r\n",
            maps,
            (403, "\\\"n2\\\" is forbidden"),
        ),
        case(
            &[be_node, on("arbitrary-node", "list")],
            "Impersonate-User: system:node:n1\r\nImpersonate-Group: g\r\n",
            maps,
            (403, "cannot impersonate resource \\\"users\\\""),
        ),
        case(
            &[be_account.clone(), on("serviceaccount", "list")],
            account,
            maps,
            (200, ""),
        ),
        case(
            &[be_account, on("serviceaccount", "list")],
            // The right is one for the name in all namespaces, the account has none.
            "Impersonate-User: system:serviceaccount:kube-system:a\r\n",
            maps,
            (
                403,
                "User \\\"system:serviceaccount:kube-system:a\\\" cannot list resource",
            ),
        ),
        // The oldest mode needs one right, for everything.
        case(
            &[right("impersonate", "", "users", "bob")],
            bob,
            maps,
            (200, ""),
        ),
        case(
            &[right("impersonate", "", "users", "bob")],
            "Impersonate-User: bob\r\nImpersonate-Group: system:masters\r\n",
            maps,
            (403, "impersonate-on:user-info:list"),
        ),
        case(
            &[right("impersonate", GROUP, "users", "bob")],
            bob,
            maps,
            (403, "impersonate-on:user-info:list"),
        ),
        case(
            &[],
            "Impersonate-Group: system:masters\r\n",
            maps,
            (400, "Groups:[]string{\\\"system:masters\\\"}"),
        ),
    ]
}

#[test]
fn requests_in_the_name_of_others_need_the_rights_of_a_mode() -> TestResult {
    let cases = cases();
    let mut builder = ApiServer::builder()
        .authorization_mode(AuthorizationMode::Rbac)
        .user("admin", User::new("root", ["system:masters"]));
    for number in 0..cases.len() {
        let name = format!("deputy-{number}");
        builder = builder.user(&name, User::new(&name, [""; 0]));
    }
    let server = builder.start()?;
    let read = json!([right("list", "", "configmaps", "")]);
    for name in ["bob", "system:node:n1", "system:serviceaccount:default:a"] {
        allow(&server, name, None, &read);
    }
    for (number, case) in cases.iter().enumerate() {
        let name = format!("deputy-{number}");
        allow(&server, &name, None, &case.rights.clone().into());
        let fields = format!("Authorization: Bearer {name}\r\n{}", case.fields);
        let (code, answer) = exchange(server.endpoint(), "GET", case.path, &fields, "");
        let (status, text) = case.expected;
        let what = (case.path, case.fields, &case.rights, &answer);
        assert_eq!(code, status, "{number}: {what:?}");
        assert!(answer.contains(text), "{number}: {what:?}");
    }
    Ok(())
}
