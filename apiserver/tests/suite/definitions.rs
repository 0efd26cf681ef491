//! Definitions of custom resources that change while clients use their resources.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::{TestResult, Watch, send, value};
use crate::server::DEFINITIONS;

const NAME: &str = "things.example.com";
const V1: &str = "/apis/example.com/v1/namespaces/default/things";
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

fn thing(version: &str, name: &str) -> String {
    let api_version = format!("example.com/{version}");
    json!({"apiVersion": api_version, "kind": "Thing", "metadata": {"name": name}}).to_string()
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
