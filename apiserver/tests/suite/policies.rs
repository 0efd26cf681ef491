//! Admission policies: what a client of them could be surprised by. `tests/kubernetes/policies.py` compares answers with
//! those of kube-apiserver.

use std::thread;

use crate::client::exchange::exchange;
use revstore_apiserver::ApiServer;
use revstore_apiserver::auth::{AuthorizationMode, User};
use serde_json::{Value, json};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const GROUP: &str = "admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn send(server: &ApiServer, method: &str, path: &str, body: &str) -> (u16, String) {
    let fields = "Content-Type: application/json\r\n";
    exchange(server.endpoint(), method, path, fields, body)
}

fn path(plural: &str) -> String {
    format!("/apis/{GROUP}/{plural}")
}

fn rule(resources: &str) -> Value {
    json!({"resourceRules": [{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [resources],
    }]})
}

/// Creates a policy with its binding. Returns the statuses of the answers.
fn bind(server: &ApiServer, kind: &str, name: &str, spec: &Value, binding: &Value) -> [u16; 2] {
    let create = |suffix: &str, plural: &str, spec: &Value| {
        let body = json!({
            "apiVersion": GROUP, "kind": format!("{kind}AdmissionPolicy{suffix}"),
            "metadata": {"name": name}, "spec": spec,
        });
        let plural = format!("{}admission{plural}", kind.to_lowercase());
        send(server, "POST", &path(&plural), &body.to_string()).0
    };
    let mut full = json!({"policyName": name});
    if kind == "Validating" {
        full["validationActions"] = json!(["Deny"]);
    }
    for (name, value) in binding.as_object().into_iter().flatten() {
        full[name] = value.clone();
    }
    [
        create("", "policies", spec),
        create("Binding", "policybindings", &full),
    ]
}

fn validate(server: &ApiServer, name: &str, resources: &str, expression: &str) {
    let spec = json!({
        "matchConstraints": rule(resources), "validations": [{"expression": expression}],
    });
    let statuses = bind(server, "Validating", name, &spec, &json!({}));
    assert_eq!(statuses, [201, 201], "{name}");
}

fn map(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
        .to_string()
}

fn data(body: &str) -> Value {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    value["data"].clone()
}

#[test]
fn a_policy_applies_to_the_next_request() -> TestResult {
    let server = ApiServer::builder().start()?;
    for round in 0..10 {
        let name = format!("p{round}");
        assert_eq!(send(&server, "POST", MAPS, &map(&name)).0, 201);
        validate(&server, "p", "configmaps", "oldObject != null");
        let (status, body) = send(&server, "POST", MAPS, &map("other"));
        assert_eq!(status, 422, "{body}");
        assert!(
            body.contains("'p' with binding 'p' denied request"),
            "{body}"
        );
        let one = format!("{}/p", path("validatingadmissionpolicybindings"));
        assert_eq!(send(&server, "DELETE", &one, "").0, 200);
        assert_eq!(
            send(&server, "DELETE", &format!("{MAPS}/{name}"), "").0,
            200
        );
        let one = format!("{}/p", path("validatingadmissionpolicies"));
        assert_eq!(send(&server, "DELETE", &one, "").0, 200);
    }
    Ok(())
}

#[test]
fn policies_do_not_protect_themselves() -> TestResult {
    let server = ApiServer::builder().start()?;
    validate(&server, "all", "*/*", "false");
    assert_eq!(send(&server, "POST", MAPS, &map("a")).0, 422);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
        "nonResourceAttributes": {"path": "/", "verb": "get"},
    }});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(send(&server, "POST", reviews, &review.to_string()).0, 201);
    let all = path("validatingadmissionpolicies");
    assert_eq!(send(&server, "DELETE", &format!("{all}/all"), "").0, 200);
    assert_eq!(send(&server, "POST", MAPS, &map("a")).0, 201);
    Ok(())
}

#[test]
fn one_of_a_thousand_policies_refuses() -> TestResult {
    let server = ApiServer::builder().start()?;
    for index in 0..1_000 {
        let expression = format!("object.metadata.name != 'a{index}'");
        validate(&server, &format!("p{index}"), "configmaps", &expression);
    }
    assert_eq!(send(&server, "POST", MAPS, &map("b")).0, 201);
    let (status, body) = send(&server, "POST", MAPS, &map("a567"));
    assert_eq!(status, 422, "{body}");
    assert!(body.contains("'p567' with binding 'p567'"), "{body}");
    Ok(())
}

#[test]
fn variables_that_need_too_much_fail() -> TestResult {
    let server = ApiServer::builder().start()?;
    let variables = |count: usize| -> Vec<Value> {
        let first = json!({"name": "v0", "expression": "1"});
        let others = (1..count).map(|index| {
            let expression = format!("variables.v{} + 1", index - 1);
            json!({"name": format!("v{index}"), "expression": expression})
        });
        std::iter::once(first).chain(others).collect()
    };
    for (name, count, status) in [("few", 16, 201), ("many", 3_000, 422)] {
        let spec = json!({
            "matchConstraints": rule("configmaps"), "variables": variables(count),
            "validations": [{"expression": format!("variables.v{} > 0", count - 1)}],
        });
        assert_eq!(
            bind(&server, "Validating", name, &spec, &json!({})),
            [201, 201]
        );
        let (found, body) = send(&server, "POST", MAPS, &map(name));
        assert_eq!(found, status, "{body}");
    }
    // All of the budget is for one binding: the policy ends, and the server goes on.
    let round = "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, \
                 [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4].all(e, a + b + c + d + e < 99)))))";
    let variables: Vec<_> = (0..100)
        .map(|index| json!({"name": format!("v{index}"), "expression": round}))
        .collect();
    let all: Vec<_> = (0..100)
        .map(|index| format!("variables.v{index}"))
        .collect();
    let spec = json!({
        "matchConstraints": rule("secrets"), "variables": variables,
        "validations": [{"expression": all.join(" && ")}],
    });
    assert_eq!(
        bind(&server, "Validating", "costly", &spec, &json!({})),
        [201, 201]
    );
    let secret = map("a")
        .replace("ConfigMap", "Secret")
        .replace(r#":"v""#, r#":"dg==""#);
    let (status, body) = send(
        &server,
        "POST",
        &MAPS.replace("configmaps", "secrets"),
        &secret,
    );
    assert_eq!(status, 422);
    assert!(body.contains("running out of cost budget"), "{body}");
    Ok(())
}

#[test]
fn policies_come_and_go_while_requests_run() -> TestResult {
    let server = ApiServer::builder().start()?;
    thread::scope(|scope| {
        for writer in 0..3 {
            let server = &server;
            scope.spawn(move || {
                for index in 0..60 {
                    let (status, body) =
                        send(server, "POST", MAPS, &map(&format!("w{writer}-{index}")));
                    assert!([201, 422].contains(&status), "{status} {body}");
                }
            });
        }
        for _ in 0..20 {
            validate(&server, "p", "configmaps", "false");
            for plural in ["policybindings", "policies"] {
                let one = format!("{}/p", path(&format!("validatingadmission{plural}")));
                assert_eq!(send(&server, "DELETE", &one, "").0, 200);
            }
        }
    });
    assert_eq!(send(&server, "POST", MAPS, &map("last")).0, 201);
    Ok(())
}

#[test]
fn mutations_that_undo_each_other_end() -> TestResult {
    let server = ApiServer::builder().start()?;
    for (name, value, other) in [("one", "a", "b"), ("two", "b", "a")] {
        let expression = format!(
            "[JSONPatch{{op: 'add', path: '/data/{name}', value: '{name}' in object.data ? object.data.{name} + '{value}' \
             : '{value}'}}, JSONPatch{{op: 'add', path: '/data/last', value: '{value}{other}'}}]"
        );
        let spec = json!({
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
            }]},
            "reinvocationPolicy": "IfNeeded",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        });
        assert_eq!(
            bind(&server, "Mutating", name, &spec, &json!({})),
            [201, 201]
        );
    }
    let (status, body) = send(&server, "POST", &format!("{MAPS}?dryRun=All"), &map("a"));
    assert_eq!(
        (status, data(&body)),
        (
            201,
            json!({"k": "v", "one": "aa", "two": "bb", "last": "ba"})
        )
    );
    assert_eq!(send(&server, "GET", &format!("{MAPS}/a"), "").0, 404);
    Ok(())
}

#[test]
fn what_a_policy_makes_of_an_object_is_checked() -> TestResult {
    let server = ApiServer::builder().start()?;
    let patch = |name: &str, expression: &str| {
        let spec = json!({
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["configmaps"],
                "resourceNames": [name],
            }]},
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        });
        assert_eq!(
            bind(&server, "Mutating", name, &spec, &json!({})),
            [201, 201]
        );
    };
    patch(
        "name",
        "[JSONPatch{op: 'replace', path: '/metadata/name', value: 'other'}]",
    );
    patch(
        "uid",
        "[JSONPatch{op: 'replace', path: '/metadata/uid', value: 'other'}]",
    );
    patch(
        "kind",
        "[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]",
    );
    patch(
        "data",
        "[JSONPatch{op: 'replace', path: '/data', value: {'a b': 'c'}}]",
    );
    for name in ["name", "uid", "kind", "data"] {
        assert_eq!(send(&server, "POST", MAPS, &map(name)).0, 201);
        let one = format!("{MAPS}/{name}");
        let (_, before) = send(&server, "GET", &one, "");
        let (status, body) = send(&server, "PUT", &one, &map(name));
        assert!((400..=500).contains(&status), "{name}: {status} {body}");
        assert_eq!(send(&server, "GET", &one, "").1, before, "{name}");
    }
    assert_eq!(send(&server, "GET", &format!("{MAPS}/other"), "").0, 404);
    Ok(())
}

#[test]
fn expressions_see_the_version_that_is_replaced_and_the_kind() -> TestResult {
    let server = ApiServer::builder().start()?;
    let same = "object.metadata.resourceVersion == oldObject.metadata.resourceVersion";
    let spec = |resources: &str, operation: &str, expression: &str| {
        json!({
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resources],
            }]},
            "validations": [{"expression": expression}],
        })
    };
    let none = json!({});
    let updates = spec("configmaps", "UPDATE", same);
    let created = bind(&server, "Validating", "same", &updates, &none);
    assert_eq!(created, [201, 201]);
    let kind = "object.kind == 'Eviction' && object.apiVersion == 'policy/v1'";
    let evictions = spec("pods/eviction", "CREATE", kind);
    let created = bind(&server, "Validating", "kind", &evictions, &none);
    assert_eq!(created, [201, 201]);
    // In what changes objects, a patch has the version, too.
    let expression = "[JSONPatch{op: 'test', path: '/metadata/resourceVersion', value: oldObject.metadata.resourceVersion}]";
    let version_test = json!({
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["configmaps"],
            "resourceNames": ["patched"],
        }]},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    });
    assert_eq!(
        bind(&server, "Mutating", "patches", &version_test, &none),
        [201, 201]
    );

    let one = format!("{MAPS}/one");
    let patched = format!("{MAPS}/patched");
    for name in ["one", "patched"] {
        assert_eq!(send(&server, "POST", MAPS, &map(name)).0, 201);
    }
    let (status, body) = send(&server, "PUT", &one, &map("one"));
    assert_eq!(status, 200, "{body}");
    let changed = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "b"}});
    for (media, path) in [
        ("application/merge-patch+json", &one),
        ("application/merge-patch+json", &patched),
        ("application/apply-patch+yaml", &one),
        ("application/apply-patch+yaml", &patched),
    ] {
        let mut body = changed.clone();
        body["metadata"]["name"] = path[MAPS.len() + 1..].into();
        body["data"][media[12..17].to_owned()] = "x".into();
        let fields = format!("Content-Type: {media}\r\n");
        let path = format!("{path}?fieldManager=m&force=true");
        let path = if media.contains("apply") {
            path
        } else {
            path.replace("&force=true", "")
        };
        let (status, answer) = exchange(
            server.endpoint(),
            "PATCH",
            &path,
            &fields,
            &body.to_string(),
        );
        assert_eq!(status, 200, "{media} {path} {answer}");
    }
    let pods = "/api/v1/namespaces/default/pods";
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(send(&server, "POST", pods, &pod.to_string()).0, 201);
    let (status, body) = send(
        &server,
        "POST",
        &format!("{pods}/p/eviction"),
        &json!({"metadata": {"name": "p"}}).to_string(),
    );
    assert_eq!(status, 201, "{body}");
    Ok(())
}

/// The causes of an answer, as field and message.
fn causes(body: &str) -> Vec<[String; 2]> {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let causes = value["details"]["causes"].as_array().cloned();
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    let causes = causes.unwrap_or_default();
    causes
        .iter()
        .map(|cause| [text(cause, "field"), text(cause, "message")])
        .collect()
}

#[test]
fn who_names_parameters_must_be_able_to_read_them() -> TestResult {
    let server = ApiServer::builder()
        .authorization_mode(AuthorizationMode::Rbac)
        .user("admin", User::new("admin", ["system:masters"]))
        .user("dev", User::new("dev", ["devs"]))
        .start()?;
    let send = |user: &str, method: &str, path: &str, body: &Value| {
        let fields = format!("Content-Type: application/json\r\nAuthorization: Bearer {user}\r\n");
        exchange(server.endpoint(), method, path, &fields, &body.to_string())
    };
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "dev"}, "rules": [
        {"verbs": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]},
    ]});
    let (status, body) = send("admin", "POST", &format!("{rbac}/clusterroles"), &role);
    assert_eq!(status, 201, "{body}");
    let binding = json!({"metadata": {"name": "dev"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dev"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dev"}]});
    let (status, body) = send(
        "admin",
        "POST",
        &format!("{rbac}/clusterrolebindings"),
        &binding,
    );
    assert_eq!(status, 201, "{body}");

    let dev = "&{dev  [devs system:authenticated] map[]}";
    let policy = |name: &str, kind: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "paramKind": {"apiVersion": "v1", "kind": kind}, "matchConstraints": rule("pods"),
            "validations": [{"expression": "true"}],
        }})
    };
    let policies = path("validatingadmissionpolicies");
    let forbidden = |kind: &str| {
        let message = format!(
            "Forbidden: user {dev} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, \
             apiVersion=v1)"
        );
        vec![["spec.paramKind".to_owned(), message]]
    };
    for kind in ["Secret", "NoSuchKind"] {
        let (status, body) = send("dev", "POST", &policies, &policy("p", kind));
        assert_eq!((status, causes(&body)), (422, forbidden(kind)), "{body}");
    }
    assert_eq!(
        send("dev", "POST", &policies, &policy("maps", "ConfigMap")).0,
        201
    );
    assert_eq!(
        send("admin", "POST", &policies, &policy("secrets", "Secret")).0,
        201
    );
    // A kind that stays is not asked for, another one is.
    let one = format!("{policies}/secrets");
    let (_, body) = send("dev", "GET", &one, &json!(null));
    let mut kept: Value = serde_json::from_str(&body)?;
    kept["spec"]["validations"][0]["expression"] = "1 == 1".into();
    assert_eq!(send("dev", "PUT", &one, &kept).0, 200);
    let one = format!("{policies}/maps");
    let (_, body) = send("dev", "GET", &one, &json!(null));
    let mut other: Value = serde_json::from_str(&body)?;
    other["spec"]["paramKind"]["kind"] = "Secret".into();
    let (status, body) = send("dev", "PUT", &one, &other);
    assert_eq!((status, causes(&body)), (422, forbidden("Secret")));

    let bindings = path("validatingadmissionpolicybindings");
    let bind = |user: &str, name: &str, policy: &str, reference: &Value| {
        let mut reference = reference.clone();
        reference["parameterNotFoundAction"] = "Deny".into();
        let binding = json!({"metadata": {"name": name}, "spec": {
            "policyName": policy, "validationActions": ["Deny"], "paramRef": reference,
        }});
        send(user, "POST", &bindings, &binding)
    };
    let refused = |text: String| vec![["spec.paramRef".to_owned(), format!("Forbidden: {text}")]];
    let named = json!({"name": "q", "namespace": "kube-system"});
    let selected = json!({"selector": {}});
    let (status, body) = bind("dev", "a", "secrets", &named);
    let text =
        format!("user {dev} does not have \"get\" permission on the object referenced by paramRef");
    assert_eq!((status, causes(&body)), (422, refused(text)), "{body}");
    let (status, body) = bind("dev", "b", "maps", &selected);
    let text = format!(
        "user {dev} does not have \"list\" permission on the object referenced by paramRef"
    );
    assert_eq!((status, causes(&body)), (422, refused(text)), "{body}");
    let (status, body) = bind("dev", "c", "none", &named);
    let text = format!(
        "unable to get policy none to determine minimum required permissions and user {dev} does not have \"get\" \
         permission for all groups, versions and resources"
    );
    assert_eq!((status, causes(&body)), (422, refused(text)), "{body}");
    assert_eq!(bind("dev", "d", "maps", &named).0, 201);
    assert_eq!(bind("admin", "e", "secrets", &named).0, 201);
    Ok(())
}

#[test]
fn patches_of_custom_resources_may_have_unknown_fields() -> TestResult {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "a": {"type": "string"}, "b": {"type": "string", "default": "set"},
                }}},
            }}}],
        },
    });
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("things.json"), definition.to_string())?;
    let server = ApiServer::builder().load(directory.path()).start()?;
    let mutate = |name: &str, resources: &str, expression: &str| {
        let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
        let spec = json!({
            "matchConstraints": rule(resources), "reinvocationPolicy": "Never",
            "mutations": [mutation],
        });
        let statuses = bind(&server, "Mutating", name, &spec, &json!({}));
        assert_eq!(statuses, [201, 201], "{name}");
    };
    mutate(
        "things",
        "things",
        "[JSONPatch{op: 'add', path: '/spec/zz', value: 'q'}, JSONPatch{op: 'add', path: '/spec/a', value: 'q'}]",
    );
    let maps = "[JSONPatch{op: 'add', path: '/zz', value: 'q'}]";
    mutate("maps", "configmaps", maps);
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {}});
    let things = "/apis/example.com/v1/namespaces/default/things";
    let (status, body) = send(&server, "POST", things, &thing.to_string());
    assert_eq!(status, 201, "{body}");
    let created: Value = serde_json::from_str(&body)?;
    assert_eq!(created["spec"], json!({"a": "q", "b": "set"}));
    let (status, body) = send(&server, "POST", MAPS, &map("a"));
    assert_eq!(status, 500, "{body}");
    assert!(body.contains("unknown field \\\"zz\\\""), "{body}");
    Ok(())
}
