//! Custom resources whose versions have different fields, without a webhook.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::{TestResult, send, value};

const V2: &str = "/apis/example.com/v2/namespaces/default/foos";

/// Starts a server with a definition whose versions have the given fields. The second element is whether it is stored.
fn start(versions: [(&str, bool, Value); 2]) -> Result<ApiServer, Box<dyn std::error::Error>> {
    let versions = versions.map(|(name, storage, fields)| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}})
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}},
    });
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("foos.json"), definition.to_string())?;
    Ok(ApiServer::builder().load(directory.path()).start()?)
}

fn foo(version: &str, spec: &Value) -> String {
    let object = json!({"apiVersion": format!("example.com/{version}"), "kind": "Foo",
        "metadata": {"name": "a", "labels": {"app": "a"}}, "spec": spec});
    object.to_string()
}

#[test]
fn the_storage_version_need_not_be_the_first_one() -> TestResult {
    let (a, b) = (
        json!({"a": {"type": "string"}}),
        json!({"b": {"type": "string"}}),
    );
    let server = start([("v1", false, a), ("v2", true, b)])?;
    let sent = foo("v2", &json!({"b": "B"}));
    assert_eq!(send(&server, "POST", V2, &sent).0, 201);

    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {"paramKind": {"apiVersion": "example.com/v2", "kind": "Foo"},
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "validations": [{"expression": "false",
                "messageExpression": "params.apiVersion + ' ' + params.spec.b"}]},
    });
    let (status, answer) = send(&server, "POST", policies, &policy.to_string());
    assert_eq!(status, 201, "{answer}");
    let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let maps = "/api/v1/namespaces/default/configmaps";
    for reference in [
        json!({"name": "a"}),
        json!({"selector": {"matchLabels": {"app": "a"}}}),
    ] {
        let mut reference = reference;
        reference["namespace"] = "default".into();
        reference["parameterNotFoundAction"] = "Deny".into();
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "b"},
            "spec": {"policyName": "p", "paramRef": reference, "validationActions": ["Deny"]},
        });
        let (status, answer) = send(&server, "POST", bindings, &binding.to_string());
        assert_eq!(status, 201, "{answer}");
        let refused = send(&server, "POST", maps, r#"{"metadata":{"name":"m"}}"#);
        let (status, refused) = value(&refused);
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(
            status == 422 && message.ends_with("example.com/v2 B"),
            "{refused}"
        );
        let binding = format!("{bindings}/b");
        assert_eq!(send(&server, "DELETE", &binding, "").0, 200);
    }

    let (status, deleted) = value(&send(&server, "DELETE", V2, ""));
    assert_eq!(status, 200, "{deleted}");
    let item = &deleted["items"][0];
    assert_eq!(
        (&item["apiVersion"], &item["spec"]),
        (&json!("example.com/v2"), &json!({"b": "B"}))
    );
    Ok(())
}
