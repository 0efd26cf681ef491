//! The entries of `metadata.managedFields` that requests make.

use std::time::Duration;

use crate::client::exchange::exchange;
use revstore_apiserver::ApiServer;
use revstore_engine::ManualClock;
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

/// Returns the entries of an object that have a manager.
fn entries_of(server: &ApiServer, path: &str, manager: &str) -> Vec<Value> {
    let (_, object) = send(server, ("reader", JSON), ("GET", path), &Value::Null);
    let all = entries(&object).into_iter();
    let own = all.filter(|(name, ..)| name == manager);
    own.map(|(.., fields)| fields).collect()
}

/// Starts a server of things with a scale, whose replicas are the field `a`.
fn start_with_scale() -> Result<ApiServer, Box<dyn std::error::Error>> {
    let mut definition = definition(&["v1"]);
    definition["spec"]["versions"][0]["subresources"]["scale"] =
        json!({"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.replicas"});
    start_with(&definition)
}

#[test]
fn nobody_owns_the_replicas_of_a_scale_of_0() -> TestResult {
    let server = start_with_scale()?;
    let labels = json!({"a": "b"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template},
    });
    let mut custom = thing("v1", &json!({"a": 3, "c": 1}));
    custom["metadata"]["name"] = "d".into();
    for (path, object, field) in [
        (
            "/apis/apps/v1/namespaces/default/deployments",
            deployment,
            "replicas",
        ),
        (
            "/apis/example.com/v1/namespaces/default/things",
            custom,
            "a",
        ),
    ] {
        let (status, answer) = send(&server, ("one", JSON), ("POST", path), &object);
        assert_eq!(status, 201, "{answer}");
        let (one, scale) = (format!("{path}/d"), format!("{path}/d/scale"));
        let write = |replicas: Value| {
            let change = json!({"spec": {"replicas": replicas}});
            let (status, answer) = send(&server, ("hpa", MERGE), ("PATCH", &scale), &change);
            assert_eq!(status, 200, "{answer}");
            answer
        };
        let member = format!("f:{field}");
        let owned = json!({"f:spec": {&member: {}}});
        assert_eq!(write(json!(4))["spec"], json!({"replicas": 4}));
        assert_eq!(entries_of(&server, &one, "hpa"), [owned], "{path}");
        assert_eq!(write(json!(0))["spec"], json!({}));
        assert_eq!(entries_of(&server, &one, "hpa"), [Value::Null; 0], "{path}");
        let created = &entries_of(&server, &one, "one")[0]["f:spec"];
        assert_eq!(created[&member], Value::Null, "{path}");
        let (_, seen) = send(&server, ("one", JSON), ("GET", &scale), &Value::Null);
        assert_eq!(seen["spec"], json!({}));
        let (_, seen) = send(&server, ("one", JSON), ("GET", &one), &Value::Null);
        assert_eq!(seen["spec"][field], 0);
        // An update of a scale without entries makes none.
        assert_eq!(write(json!(2))["spec"], json!({"replicas": 2}));
        assert_eq!(entries_of(&server, &one, "hpa"), [Value::Null; 0], "{path}");
    }
    Ok(())
}

#[test]
fn a_scale_of_0_is_a_number_for_an_object_without_one() -> TestResult {
    let server = start_with_scale()?;
    let path = "/apis/example.com/v1/namespaces/default/things";
    let custom = thing("v1", &json!({}));
    let name = custom["metadata"]["name"].as_str().unwrap_or_default();
    let (status, answer) = send(&server, ("one", JSON), ("POST", path), &custom);
    assert_eq!(status, 201, "{answer}");
    let scale = format!("{path}/{name}/scale");
    let write = |change: &Value| send(&server, ("hpa", MERGE), ("PATCH", &scale), change).0;
    assert_eq!(write(&json!({"spec": {}})), 400);
    assert_eq!(write(&json!({"spec": {"replicas": 0}})), 200);
    let one = format!("{path}/{name}");
    let (_, object) = send(&server, ("one", JSON), ("GET", &one), &Value::Null);
    assert_eq!(object["spec"]["a"], 0);
    assert_eq!(entries_of(&server, &one, "hpa"), [Value::Null; 0]);
    Ok(())
}

/// Returns a definition with these versions, of which the last one is not served; only `v1` has the field `b`.
fn definition(versions: &[&str]) -> Value {
    let version = |name: &&str| {
        let mut fields = json!({"a": {"type": "integer"}, "c": {"type": "integer"}});
        if *name != "v2" {
            fields["b"] = json!({"type": "integer"});
        }
        json!({"name": name, "served": *name != "v3", "storage": *name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": fields}}}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

fn thing(version: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": {"name": "a"}, "spec": spec})
}

const APPLY: &str = "application/apply-patch+yaml";
const THING: &str = "/apis/example.com/v1/namespaces/default/things/a";

/// Applies a thing in a version, and returns the status and the answer.
fn apply(server: &ApiServer, manager: &str, version: &str, spec: &Value) -> (u16, Value) {
    let path = THING.replace("v1", version) + "?fieldManager=" + manager;
    send(
        server,
        ("c", APPLY),
        ("PATCH", &path),
        &thing(version, spec),
    )
}

/// Starts a server that has a definition.
fn start_with(definition: &Value) -> Result<ApiServer, Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("things.json"), definition.to_string())?;
    Ok(ApiServer::builder().load(directory.path()).start()?)
}

fn start_with_versions() -> Result<ApiServer, Box<dyn std::error::Error>> {
    start_with(&definition(&["v1", "v2", "v3"]))
}

#[test]
fn entries_are_compared_in_their_versions() -> TestResult {
    let server = start_with_versions()?;
    let (status, _) = apply(&server, "two", "v2", &json!({"a": 1}));
    assert_eq!(status, 201);
    // A manager of another version owns what it applied.
    let (status, answer) = apply(&server, "one", "v1", &json!({"a": 2}));
    let message = "Apply failed with 1 conflict: conflict with \"two\": .spec.a";
    assert_eq!((status, &answer["message"]), (409, &json!(message)));
    // Version 2 does not have the field, so that its entries cannot be compared.
    let (status, answer) = apply(&server, "one", "v1", &json!({"b": 1}));
    let message = "failed to convert new object: .spec.b: field not declared in schema";
    assert_eq!((status, &answer["message"]), (500, &json!(message)));
    let change = json!({"spec": {"b": 1}});
    let (status, untracked) = send(&server, ("c", MERGE), ("PATCH", THING), &change);
    assert_eq!((status, entries(&untracked)), (200, Vec::new()));
    // A version that is not served can be compared.
    let entry = json!({"manager": "three", "operation": "Update", "apiVersion": "example.com/v3",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:a": {}, "f:b": {}}}});
    let change = json!({"metadata": {"managedFields": [entry]}});
    let (_, tracked) = send(&server, ("c", MERGE), ("PATCH", THING), &change);
    assert_eq!(entries(&tracked).len(), 1, "{tracked}");
    let change = json!({"spec": {"a": 5}});
    let (_, tracked) = send(&server, ("c", MERGE), ("PATCH", THING), &change);
    let fields = |name: &str| json!({"f:spec": {name: {}}});
    let expected = [
        update("c", "", fields("f:a")),
        update("three", "", fields("f:b")),
    ];
    let mut found = entries(&tracked);
    found.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(found, expected);
    Ok(())
}

#[test]
fn entries_of_a_version_that_left_the_definition_make_applies_fail() -> TestResult {
    let server = start_with_versions()?;
    let (status, _) = apply(&server, "two", "v2", &json!({"a": 1}));
    assert_eq!(status, 201);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    let versions = &definition(&["v1", "v3"])["spec"]["versions"];
    let (status, _) = send(
        &server,
        ("c", MERGE),
        ("PATCH", path),
        &json!({"spec": {"versions": versions}}),
    );
    assert_eq!(status, 200);
    let gone = THING.replace("v1", "v2");
    while send(&server, ("c", JSON), ("GET", &gone), &Value::Null).0 != 404 {
        std::thread::yield_now();
    }
    for manager in ["one", "two"] {
        let (status, answer) = apply(&server, manager, "v1", &json!({"a": 1}));
        let message = "request to convert CR to an invalid group/version: example.com/v2";
        assert_eq!((status, &answer["message"]), (500, &json!(message)));
    }
    // Other writes remove the entries, after which the object can be applied.
    let change = json!({"metadata": {"labels": {"x": "y"}}});
    let (status, untracked) = send(&server, ("c", MERGE), ("PATCH", THING), &change);
    assert_eq!((status, entries(&untracked)), (200, Vec::new()));
    let (status, applied) = apply(&server, "one", "v1", &json!({"a": 1}));
    let managers: Vec<String> = entries(&applied).into_iter().map(|entry| entry.0).collect();
    assert_eq!(
        (status, managers),
        (200, vec!["one".into(), "before-first-apply".into()])
    );
    Ok(())
}

#[test]
fn entries_of_unknown_versions_of_built_in_kinds_are_removed() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/configmaps";
    let one = &format!("{path}/a");
    let map = json!({"metadata": {"name": "a"}, "data": {"x": "1"}});
    let (_, created) = send(&server, ("one", JSON), ("POST", path), &map);
    for version in ["v2", "apps/v1", "nothing.example.com/v1"] {
        let mut patched = created["metadata"]["managedFields"].clone();
        let mut other = patched[0].clone();
        other["apiVersion"] = version.into();
        patched.as_array_mut().expect("entries").push(other);
        let change = json!({"metadata": {"managedFields": patched}});
        let (status, kept) = send(&server, ("two", MERGE), ("PATCH", one), &change);
        assert_eq!(
            (status, entries(&kept)),
            (200, entries(&created)),
            "{version}"
        );
    }
    // What is no version leaves no entries.
    let mut patched = created["metadata"]["managedFields"].clone();
    patched[0]["apiVersion"] = "a/b/c".into();
    let change = json!({"metadata": {"managedFields": patched}});
    let (status, kept) = send(&server, ("two", MERGE), ("PATCH", one), &change);
    assert_eq!((status, entries(&kept)), (200, Vec::new()));
    Ok(())
}

#[test]
fn entries_of_both_versions_of_autoscalers_are_compared() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let cpu = |value: u32| {
        json!([{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": value}}}])
    };
    let body = json!({"metadata": {"name": "a"}, "spec": {
        "maxReplicas": 3, "scaleTargetRef": target, "metrics": cpu(50)}});
    let (status, _) = send(&server, ("one", JSON), ("POST", path), &body);
    assert_eq!(status, 201);
    let old = format!("{}/a", path.replace("v2", "v1"));
    let change = json!({"spec": {"targetCPUUtilizationPercentage": 70}});
    let (_, patched) = send(&server, ("two", MERGE), ("PATCH", &old), &change);
    let spec_of = |object: &Value, manager: &str| {
        let entries = entries(object).into_iter();
        let mut of = entries.filter(|entry| entry.0 == manager);
        of.next().map(|entry| entry.3["f:spec"].clone())
    };
    // The field of version 1 is the list of version 2.
    let one = spec_of(&patched, "one").unwrap_or_default();
    assert_eq!(one.get("f:metrics"), None, "{patched}");
    assert_eq!(
        spec_of(&patched, "two"),
        Some(json!({"f:targetCPUUtilizationPercentage": {}}))
    );
    let change = json!({"spec": {"metrics": cpu(80)}});
    let new = format!("{path}/a");
    let (_, patched) = send(&server, ("three", MERGE), ("PATCH", &new), &change);
    assert_eq!(spec_of(&patched, "two"), None, "{patched}");
    Ok(())
}

/// Sends a request again in each of several seconds, and checks that only the first one writes.
fn write_once(
    server: &ApiServer,
    clock: &ManualClock,
    media: &str,
    request: (&str, &str),
    body: &Value,
) {
    let mut versions = Vec::new();
    for _ in 0..4 {
        let (status, object) = send(server, ("m", media), request, body);
        assert!((200..=201).contains(&status), "{request:?} {object}");
        versions.push(object["metadata"]["resourceVersion"].clone());
        clock.advance(Duration::from_secs(1));
    }
    // The first one can create the object, or make the manager an owner.
    assert!(
        versions[1..].iter().all(|version| *version == versions[1]),
        "{request:?} {body}: {versions:?}"
    );
}

#[test]
fn what_is_there_already_is_not_written_in_another_second() -> TestResult {
    let clock = ManualClock::new();
    let server = ApiServer::builder().clock(clock.clone()).start()?;
    let repeat = |media: &str, (method, path): (&str, &str), body: &Value| {
        write_once(&server, &clock, media, (method, path), body);
    };
    let (maps, deployments) = (
        "/api/v1/namespaces/default/configmaps",
        "/apis/apps/v1/namespaces/default/deployments",
    );
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}});
    let one = format!("{maps}/a?fieldManager=m");
    repeat(APPLY, ("PATCH", &one), &map);
    for (field, value) in [
        ("creationTimestamp", json!(null)),
        ("creationTimestamp", json!("2001-01-01T00:00:00Z")),
        ("generation", json!(7)),
        ("selfLink", json!("x")),
    ] {
        let mut map = map.clone();
        map["metadata"][field] = value;
        repeat(APPLY, ("PATCH", &one), &map);
        repeat(JSON, ("PUT", &one), &map);
        repeat(MERGE, ("PATCH", &one), &map);
    }
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "creationTimestamp": null},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}}, "strategy": {},
            "template": {
                "metadata": {"labels": {"a": "b"}, "creationTimestamp": null},
                "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]},
            },
        },
        "status": {"replicas": 3},
    });
    let one = format!("{deployments}/d?fieldManager=m");
    repeat(APPLY, ("PATCH", &one), &deployment);
    repeat(JSON, ("PUT", &one), &deployment);
    let one = format!("{deployments}/d/status?fieldManager=m");
    repeat(APPLY, ("PATCH", &one), &deployment);
    repeat(JSON, ("PUT", &one), &deployment);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut definition = definition(&["v1"]);
    let version = &mut definition["spec"]["versions"][0];
    version["subresources"] = json!({"status": {}});
    version["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({"type": "object", "properties": {"b": {"type": "string"}}});
    let (status, created) = send(&server, ("m", JSON), ("POST", definitions), &definition);
    assert_eq!(status, 201, "{created}");
    let things = "/apis/example.com/v1/namespaces/default/things";
    while send(&server, ("m", JSON), ("GET", things), &json!(null)).0 == 404 {
        std::thread::yield_now();
    }
    let mut thing = thing("v1", &json!({"a": 1}));
    thing["status"] = json!({});
    thing["metadata"]["creationTimestamp"] = json!(null);
    let one = format!("{things}/a?fieldManager=m");
    repeat(APPLY, ("PATCH", &one), &thing);
    thing["status"] = json!({"b": "2"});
    repeat(APPLY, ("PATCH", &one), &thing);
    repeat(MERGE, ("PATCH", &one), &thing);
    Ok(())
}

#[test]
fn an_apply_again_writes_nothing_whatever_the_order_of_managers_was() -> TestResult {
    let clock = ManualClock::new();
    let server = ApiServer::builder().clock(clock.clone()).start()?;
    let apply = |manager: &str, data: &Value| {
        let one = format!("/api/v1/namespaces/default/configmaps/a?fieldManager={manager}");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "creationTimestamp": null}, "data": data});
        let (status, object) = send(&server, ("m", APPLY), ("PATCH", &one), &map);
        assert!((200..=201).contains(&status), "{object}");
        clock.advance(Duration::from_secs(1));
        object["metadata"]["resourceVersion"].clone()
    };
    apply("first", &json!({"x": "1"}));
    let last = apply("second", &json!({"y": "1"}));
    // Its entry would come after the other one with the time of this apply.
    assert_eq!(apply("first", &json!({"x": "1"})), last);
    assert_eq!(apply("second", &json!({"y": "1"})), last);
    Ok(())
}

#[test]
fn owners_that_are_there_twice_are_removed() -> TestResult {
    use crate::client::exchange::answer;

    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/configmaps";
    let owner = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
    let owners = json!([
        owner("a", "1"),
        owner("b", "1"),
        owner("a", "1"),
        owner("c", "2"),
        owner("c", "2")
    ]);
    let kept = json!([owner("a", "1"), owner("b", "1"), owner("c", "2")]);
    let warning = |after: &str| {
        format!(
            "warning: 299 - \".metadata.ownerReferences contains duplicate entries{after}; API server dedups owner \
             references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate \
             UID(s) observed: 1, 2\""
        )
    };
    let mutated = warning(" after mutating admission happens");
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}});
    let one = format!("{path}/a");
    let applied = format!("{path}/b?fieldManager=m");
    for (method, path, media, body, expected) in [
        ("POST", path, JSON, map("a"), warning("")),
        ("PUT", &one, JSON, map("a"), warning("")),
        ("PATCH", &one, MERGE, map("a"), mutated.clone()),
    ] {
        let fields = format!("Content-Type: {media}\r\n");
        let answer = answer(server.endpoint(), method, path, &fields, &body.to_string());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let found: Vec<&str> = head
            .lines()
            .filter(|line| line.starts_with("warning:"))
            .collect();
        assert_eq!(found, [&expected], "{method} {answer}");
        let object: Value = serde_json::from_str(body)?;
        assert_eq!(object["metadata"]["ownerReferences"], kept, "{method}");
    }
    // Those of an apply are a list with the uid as its key.
    let (status, refused) = send(
        &server,
        ("m", "application/apply-patch+yaml"),
        ("PATCH", &applied),
        &map("b"),
    );
    assert_eq!(status, 500, "{refused}");
    Ok(())
}

#[test]
fn custom_resources_are_as_large_as_in_an_etcd() -> TestResult {
    let server = ApiServer::builder().start()?;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut definition = definition(&["v1"]);
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let (status, created) = send(&server, ("m", JSON), ("POST", definitions), &definition);
    assert_eq!(status, 201, "{created}");
    let things = "/apis/example.com/v1/namespaces/default/things";
    while send(&server, ("m", JSON), ("GET", things), &json!(null)).0 == 404 {
        std::thread::yield_now();
    }
    let thing = |name: &str, data: Value| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "data": data});
    let text = |length: usize| json!("x".repeat(length));
    let create = |object: &Value| send(&server, ("m", JSON), ("POST", things), object);
    let (status, created) = create(&thing("small", text(1_570_000)));
    assert_eq!(status, 201, "{}", created["message"]);
    let message = json!("etcdserver: request is too large");
    let (status, refused) = create(&thing("large", text(1_573_000)));
    assert_eq!((status, &refused["message"]), (500, &message));
    // Without the entries it is small enough. They are as large as the names of the fields.
    let fields = |prefix: &str| -> Value {
        let field = |index: usize| (format!("{prefix}{index:06}{}", "x".repeat(90)), json!(1));
        Value::Object((0..8_000).map(field).collect())
    };
    let (status, created) = create(&thing("many", fields("a")));
    assert_eq!(status, 201, "{}", created["message"]);
    assert_eq!(entries(&created), []);
    let one = format!("{things}/small");
    let patch = json!({"data": fields("a")});
    let (status, patched) = send(&server, ("m", MERGE), ("PATCH", &one), &patch);
    assert_eq!(status, 200, "{}", patched["message"]);
    assert_eq!(entries(&patched), []);
    let mut update = thing("small", fields("b"));
    update["metadata"]["resourceVersion"] = patched["metadata"]["resourceVersion"].clone();
    let (status, updated) = send(&server, ("m", JSON), ("PUT", &one), &update);
    assert_eq!(status, 200, "{}", updated["message"]);
    assert_eq!(entries(&updated), []);
    // An apply needs them.
    let one = format!("{things}/applied?fieldManager=m");
    let applied = thing("applied", fields("a"));
    let (status, refused) = send(&server, ("m", APPLY), ("PATCH", &one), &applied);
    assert_eq!((status, &refused["message"]), (500, &message));
    Ok(())
}
