//! The entries of `metadata.managedFields` that requests make.

use crate::client::exchange::exchange;
use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// Sends a request of a client, and returns the status and the object.
fn send(
    server: &ApiServer,
    (agent, media): (&str, &str),
    (method, path): (&str, &str),
    body: &Value,
) -> (u16, Value) {
    let body = match body {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let fields = format!("Content-Type: {media}\r\nUser-Agent: {agent}/1.0\r\n");
    let (status, body) = exchange(server.endpoint(), method, path, &fields, &body);
    let body = serde_json::from_str(&body).unwrap_or_else(|_| body.into());
    (status, body)
}

/// Returns the entries of an object as manager, operation, subresource and fields.
fn entries(object: &Value) -> Vec<(String, String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let entries = entries.into_iter().flatten().map(|entry| {
        (
            text(entry, "manager"),
            text(entry, "operation"),
            text(entry, "subresource"),
            entry["fieldsV1"].clone(),
        )
    });
    entries.collect()
}

fn update(manager: &str, subresource: &str, fields: Value) -> (String, String, String, Value) {
    (manager.into(), "Update".into(), subresource.into(), fields)
}

#[test]
fn writes_of_built_in_kinds_are_tracked() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/configmaps";
    let one = &format!("{path}/a");
    let map = json!({"metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}});
    let (status, created) = send(&server, ("one", JSON), ("POST", path), &map);
    let data = |fields: Value| json!({"f:data": fields});
    let all = data(json!({".": {}, "f:x": {}, "f:y": {}}));
    assert_eq!(
        (status, entries(&created)),
        (201, vec![update("one", "", all)])
    );

    let change = json!({"data": {"x": "2"}});
    let dry = format!("{one}?dryRun=All&fieldManager=named");
    let (_, patched) = send(&server, ("two", MERGE), ("PATCH", &dry), &change);
    assert_eq!(entries(&patched)[0].0, "named");
    let (_, patched) = send(&server, ("two", MERGE), ("PATCH", one), &change);
    let after = vec![
        update("one", "", data(json!({".": {}, "f:y": {}}))),
        update("two", "", data(json!({"f:x": {}}))),
    ];
    assert_eq!(entries(&patched), after);
    // A write without changes is none, and an update that leaves the entries out keeps them.
    let (_, again) = send(&server, ("three", MERGE), ("PATCH", one), &change);
    assert_eq!(again, patched);
    let map = json!({"metadata": {"name": "a"}, "data": {"x": "2", "y": "1"}});
    let (_, again) = send(&server, ("three", JSON), ("PUT", one), &map);
    assert_eq!(again, patched);
    // Lists show the entries.
    let (_, list) = send(&server, ("one", JSON), ("GET", path), &Value::Null);
    assert!(list.to_string().contains("managedFields"), "{list}");

    // Entries of a client that cannot be read are ignored, those with long names refused.
    let entry = |manager: &str, operation: &str| {
        json!({"metadata": {"managedFields": [{
            "manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}}},
        }]}})
    };
    let bad = entry("x", "Replace");
    let (status, kept) = send(&server, ("one", MERGE), ("PATCH", one), &bad);
    assert_eq!((status, entries(&kept)), (200, after));
    let long = entry(&"x".repeat(129), "Update");
    let (status, error) = send(&server, ("one", MERGE), ("PATCH", one), &long);
    let cause = &error["details"]["causes"][0];
    assert_eq!(
        (status, &cause["field"]),
        (422, &json!("metadata.managedFields[0].manager"))
    );

    // Without entries an object is not tracked any more.
    let empty = json!({"metadata": {"managedFields": [{}]}});
    let (_, untracked) = send(&server, ("one", MERGE), ("PATCH", one), &empty);
    assert_eq!(entries(&untracked), []);
    let change = json!({"data": {"x": "3"}});
    let (_, untracked) = send(&server, ("one", MERGE), ("PATCH", one), &change);
    assert_eq!(entries(&untracked), []);
    Ok(())
}

#[test]
fn subresources_are_tracked() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/apis/apps/v1/namespaces/default/replicasets";
    let labels = json!({"a": "b"});
    let set = json!({
        "metadata": {"name": "r"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    send(&server, ("one", JSON), ("POST", path), &set);
    let status = json!({"spec": {"replicas": 7}, "status": {"replicas": 1}});
    let (_, written) = send(
        &server,
        ("two", MERGE),
        ("PATCH", &format!("{path}/r/status")),
        &status,
    );
    let of_status = update("two", "status", json!({"f:status": {"f:replicas": {}}}));
    assert!(entries(&written).contains(&of_status), "{written}");
    assert_eq!(written["spec"]["replicas"], 1);

    let scale = json!({"spec": {"replicas": 3}});
    let (status, answer) = send(
        &server,
        ("three", MERGE),
        ("PATCH", &format!("{path}/r/scale")),
        &scale,
    );
    assert_eq!((status, entries(&answer)), (200, Vec::new()));
    let (_, scaled) = send(
        &server,
        ("one", JSON),
        ("GET", &format!("{path}/r")),
        &Value::Null,
    );
    let of_scale = update("three", "scale", json!({"f:spec": {"f:replicas": {}}}));
    let found = entries(&scaled);
    assert!(found.contains(&of_scale), "{found:?}");
    let own = found.iter().find(|(manager, ..)| manager == "one");
    assert_eq!(
        own.map(|own| own.3["f:spec"]["f:replicas"].clone()),
        Some(Value::Null)
    );
    Ok(())
}
