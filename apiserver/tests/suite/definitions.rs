//! Definitions of custom resources that change while clients use their resources.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::{TestResult, Watch, send, value};
use crate::server::DEFINITIONS;

const NAME: &str = "things.example.com";
const V1: &str = "/apis/example.com/v1/namespaces/default/things";
const V2: &str = "/apis/example.com/v2/namespaces/default/things";
/// The seconds after which a watch that has not ended is a failure.
const LIMIT_SECONDS: u32 = 120;

/// Returns a version whose objects have the fields `fields` in `spec`.
fn version(name: &str, served: bool, fields: &Value) -> Value {
    let spec = json!({"type": "object", "default": {}, "properties": fields});
    json!({"name": name, "served": served, "storage": name == "v1", "schema": {"openAPIV3Schema": {
        "type": "object", "properties": {"spec": spec}}}})
}

fn definition(group: &str, scope: &str, versions: &[Value]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": scope, "versions": versions,
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
        },
    })
}

/// Creates a definition as soon as there is none of its name, and waits until it is established. Returns it.
fn define(server: &ApiServer, definition: &Value) -> Value {
    let created = loop {
        let (code, answer) = value(&send(server, "POST", DEFINITIONS, &definition.to_string()));
        match code {
            201 => break answer,
            _ => assert_eq!(code, 409, "{answer}"),
        }
    };
    let is = |object: &Value, kind: &str| {
        let mut conditions = object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        conditions.any(|it| it["type"] == kind && it["status"] == "True")
    };
    let path = format!("{DEFINITIONS}?watch=1&timeoutSeconds={LIMIT_SECONDS}");
    let mut watch = Watch::open(server, &path);
    while let Some(event) = watch.next() {
        let object = &event["object"];
        if object["metadata"]["uid"] == created["metadata"]["uid"] && is(object, "Established") {
            return object.clone();
        }
    }
    panic!("the definition is not established");
}

/// Changes a definition.
fn patch(server: &ApiServer, path: &str, change: &Value) {
    let (code, answer) = value(&send(server, "PATCH", path, &change.to_string()));
    assert_eq!(code, 200, "{answer}");
}

fn thing(version: &str, name: &str) -> String {
    let api_version = format!("example.com/{version}");
    json!({"apiVersion": api_version, "kind": "Thing", "metadata": {"name": name}}).to_string()
}

/// Opens a watch with the objects that there are, of which it returns the first one.
fn watch(server: &ApiServer, path: &str) -> (Watch, Value) {
    let path = format!("{path}?watch=1&timeoutSeconds={LIMIT_SECONDS}");
    let mut watch = Watch::open(server, &path);
    let event = watch.next().expect("the watch has an event");
    assert_eq!(event["type"], "ADDED", "{event}");
    (watch, event["object"].clone())
}

#[test]
fn a_definition_that_is_created_again_at_once_with_another_scope_is_served_with_it() -> TestResult {
    let server = ApiServer::builder().start()?;
    for round in 0..8 {
        let (scope, path) = match round % 2 {
            0 => ("Cluster", "/apis/example.com/v1/things"),
            _ => ("Namespaced", V1),
        };
        let versions = [version("v1", true, &json!({}))];
        define(&server, &definition("example.com", scope, &versions));
        let (code, discovery) = value(&send(&server, "GET", "/apis/example.com/v1", ""));
        assert_eq!(code, 200, "{discovery}");
        let is_namespaced = &discovery["resources"][0]["namespaced"];
        assert_eq!(*is_namespaced, scope == "Namespaced", "round {round}");
        let (code, answer) = value(&send(&server, "POST", path, &thing("v1", "a")));
        assert_eq!(code, 201, "round {round}: {answer}");
        let path = format!("{DEFINITIONS}/{NAME}");
        assert_eq!(send(&server, "DELETE", &path, "").0, 200);
    }
    Ok(())
}

#[test]
fn a_change_of_the_versions_of_a_definition_ends_the_watches_of_all_of_them() -> TestResult {
    let server = ApiServer::builder().start()?;
    let field = json!({"field": {"type": "string"}});
    let first = version("v1", true, &field);
    let versions = [first, version("v2", true, &field)];
    define(&server, &definition("example.com", "Namespaced", &versions));
    let path = format!("{DEFINITIONS}/{NAME}");
    assert_eq!(send(&server, "POST", V1, &thing("v1", "a")).0, 201);

    // The defaults are those of the version that is stored.
    let defaulted = json!({"field": {"type": "string", "default": "x"}});
    let first = version("v1", true, &defaulted);
    let changes = [
        (version("v2", true, &field), 200),
        (version("v2", false, &field), 404),
    ];
    for (second, code) in changes {
        let (one, object) = watch(&server, V1);
        let (other, _) = watch(&server, V2);
        let change = json!({"spec": {"versions": [first, second]}});
        patch(&server, &path, &change);
        for mut watch in [one, other] {
            let (events, is_whole) = watch.rest();
            assert!(events.is_empty() && is_whole, "{events:?}");
        }
        // The objects that a client knows have the form of before.
        let since = object["metadata"]["resourceVersion"].as_str();
        let since = since.unwrap_or_default();
        let query = format!("watch=1&timeoutSeconds={LIMIT_SECONDS}&resourceVersion={since}");
        let event = Watch::open(&server, &format!("{V1}?{query}")).next();
        let event = event.ok_or("there is an event")?;
        assert_eq!(event["object"]["code"], 410, "{event}");
        assert_eq!(send(&server, "GET", V2, "").0, code);
        if code == 200 {
            let (mut watch, object) = watch(&server, V2);
            assert_eq!(object["spec"]["field"], "x");
            patch(
                &server,
                &format!("{V1}/a"),
                &json!({"metadata": {"labels": {"a": "b"}}}),
            );
            let event = watch.next().ok_or("there is an event")?;
            assert_eq!(event["object"]["spec"]["field"], "x");
        }
    }
    Ok(())
}

#[test]
fn a_change_of_the_status_or_the_metadata_of_a_definition_ends_no_watch() -> TestResult {
    let server = ApiServer::builder().start()?;
    let versions = [version("v1", true, &json!({}))];
    let mut defined = define(&server, &definition("example.com", "Namespaced", &versions));
    assert_eq!(send(&server, "POST", V1, &thing("v1", "a")).0, 201);
    let (mut watch, _) = watch(&server, V1);

    let conditions = defined["status"]["conditions"].as_array_mut();
    conditions.ok_or("it has conditions")?.push(json!({
        "type": "Example", "status": "True", "reason": "Test", "message": "",
        "lastTransitionTime": "2024-01-01T00:00:00Z"}));
    let path = format!("{DEFINITIONS}/{NAME}");
    patch(
        &server,
        &format!("{path}/status"),
        &json!({"status": defined["status"]}),
    );
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    patch(&server, &path, &labels);
    // When a later definition is established, the changes before it have taken effect.
    define(&server, &definition("example.org", "Namespaced", &versions));
    assert_eq!(send(&server, "POST", V1, &thing("v1", "b")).0, 201);
    let event = watch.next().ok_or("the watch goes on")?;
    assert_eq!(event["object"]["metadata"]["name"], "b", "{event}");
    Ok(())
}

#[test]
fn the_status_of_definitions_says_whether_those_in_groups_of_kubernetes_are_approved() -> TestResult
{
    let server = ApiServer::builder().start()?;
    let versions = [version("v1", true, &json!({}))];
    let condition = |annotation: &str, group: &str| {
        let mut definition = definition(group, "Namespaced", &versions);
        definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": annotation});
        let defined = define(&server, &definition);
        let conditions = defined["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let found = conditions.find(|it| it["type"] == "KubernetesAPIApprovalPolicyConformant");
        found.map(|it| json!([it["status"], it["reason"], it["message"]]))
    };
    assert_eq!(
        condition("https://example.com/1", "a.k8s.io"),
        Some(json!([
            "True",
            "ApprovedAnnotation",
            "approved in https://example.com/1"
        ]))
    );
    assert_eq!(
        condition("unapproved, a test", "b.kubernetes.io"),
        Some(json!([
            "False",
            "UnapprovedAnnotation",
            "not approved: \"unapproved, a test\""
        ]))
    );
    assert_eq!(condition("unapproved", "example.com"), None);
    Ok(())
}
