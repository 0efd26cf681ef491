//! Custom resources whose versions have different fields, without a webhook.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::{TestResult, Watch, send, value};

const V1: &str = "/apis/example.com/v1/namespaces/default/foos";
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
fn fields_and_defaults_are_those_of_the_stored_and_the_shown_version() -> TestResult {
    let text = json!({"type": "string"});
    let of = |default: &str| json!({"type": "string", "default": default});
    let server = start([
        (
            "v1",
            true,
            json!({"a": text, "both": of("one"), "one": of("1")}),
        ),
        (
            "v2",
            false,
            json!({"a": text, "n": text, "both": text, "two": of("2")}),
        ),
    ])?;
    let expect = |found: (u16, Value), status: u16, spec: &Value| {
        assert_eq!((found.0, &found.1["spec"]), (status, spec), "{}", found.1);
    };
    let (v1, v2) = (
        json!({"a": "A", "both": "one", "one": "1"}),
        json!({"a": "A", "both": "one"}),
    );
    let mut watch = Watch::open(&server, &format!("{V2}?watch=true"));
    let sent = foo("v2", &json!({"a": "A", "n": "N"}));
    expect(value(&send(&server, "POST", V2, &sent)), 201, &v2);
    let (one, other) = (format!("{V1}/a"), format!("{V2}/a"));
    expect(value(&send(&server, "GET", &one, "")), 200, &v1);
    expect(value(&send(&server, "GET", &other, "")), 200, &v2);
    assert_eq!(watch.next().expect("an event")["object"]["spec"], v2);
    let (_, list) = value(&send(&server, "GET", V2, ""));
    assert_eq!(list["items"][0]["spec"], v2, "{list}");

    // A change in a version removes the fields that it does not have.
    let patch = r#"{"spec":{"one":"x","a":"B"}}"#;
    let changed = json!({"a": "B", "both": "one", "one": "x"});
    expect(value(&send(&server, "PATCH", &one, patch)), 200, &changed);
    let (_, mut read) = value(&send(&server, "GET", &other, ""));
    read["spec"]["n"] = "N".into();
    read["spec"]["a"] = "C".into();
    let v2 = json!({"a": "C", "both": "one"});
    let put = send(&server, "PUT", &other, &read.to_string());
    expect(value(&put), 200, &v2);
    let v1 = json!({"a": "C", "both": "one", "one": "1"});
    expect(value(&send(&server, "GET", &one, "")), 200, &v1);
    Ok(())
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
