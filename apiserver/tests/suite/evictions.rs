//! Evictions and bindings of pods, as their clients see them.

use std::thread;

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::{TestResult, send, value};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
/// The number of evictions at a time of `kubectl drain`, and of pods that the budget of a test lets go.
const EVICTIONS: usize = 10;

fn go(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    value(&send(server, method, path, &body.to_string()))
}

/// Creates a pod on a node, or without one, and returns its resource version.
fn create_pod(server: &ApiServer, name: &str, node: &str, status: &Value) -> String {
    let containers = json!([{"name": "c", "image": "i"}]);
    let pod = json!({"metadata": {"name": name, "labels": {"a": "x"}},
        "spec": {"nodeName": node, "containers": containers}});
    let (code, created) = go(server, "POST", PODS, &pod);
    assert_eq!(code, 201, "{created}");
    let path = format!("{PODS}/{name}/status");
    let (code, patched) = go(server, "PATCH", &path, &json!({"status": status}));
    assert_eq!(code, 200, "{patched}");
    version(&patched)
}

fn version(object: &Value) -> String {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.unwrap_or_default().to_owned()
}

fn running() -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
}

fn evict(server: &ApiServer, name: &str, options: &Value) -> (u16, Value) {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
        "deleteOptions": options});
    go(server, "POST", &format!("{PODS}/{name}/eviction"), &body)
}

fn create_budget(server: &ApiServer, status: &Value) {
    let budget = json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": EVICTIONS,
        "selector": {"matchLabels": {"a": "x"}}}});
    let (code, created) = go(server, "POST", BUDGETS, &budget);
    assert_eq!(code, 201, "{created}");
    let status = json!({"status": status});
    let (code, patched) = go(server, "PATCH", &format!("{BUDGETS}/b/status"), &status);
    assert_eq!(code, 200, "{patched}");
}

#[test]
fn evictions_at_a_time_are_all_counted() -> TestResult {
    let server = ApiServer::builder().start()?;
    let names: Vec<String> = (0..=EVICTIONS).map(|number| format!("p{number}")).collect();
    for name in &names {
        create_pod(&server, name, "n", &running());
    }
    create_budget(
        &server,
        &json!({"observedGeneration": 1, "disruptionsAllowed": EVICTIONS, "currentHealthy": 10, "desiredHealthy": 0,
            "expectedPods": 11}),
    );
    let (last, first) = names.split_last().ok_or("no pods")?;
    let codes: Vec<u16> = thread::scope(|scope| {
        let threads: Vec<_> = first
            .iter()
            .map(|name| scope.spawn(|| evict(&server, name, &Value::Null).0))
            .collect();
        let codes = threads.into_iter().map(thread::ScopedJoinHandle::join);
        codes.map(|code| code.expect("no panic")).collect()
    });
    assert_eq!(codes, [201; EVICTIONS]);
    let (_, budget) = go(&server, "GET", &format!("{BUDGETS}/b"), &Value::Null);
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    let counted = budget["status"]["disruptedPods"].as_object();
    assert_eq!(counted.map(serde_json::Map::len), Some(EVICTIONS));
    assert_eq!(evict(&server, last, &Value::Null).0, 429);
    Ok(())
}

#[test]
fn preconditions_of_an_eviction_are_those_before_its_condition() -> TestResult {
    let server = ApiServer::builder().start()?;
    for (name, status) in [
        ("running", running()),
        ("pending", json!({"phase": "Pending", "reason": "New"})),
        ("ended", json!({"phase": "Failed"})),
    ] {
        let old = create_pod(&server, name, "n", &json!({"message": "old"}));
        let path = format!("{PODS}/{name}/status");
        let (_, patched) = go(&server, "PATCH", &path, &json!({"status": status}));
        let new = version(&patched);
        let preconditions = json!({"preconditions": {"resourceVersion": old}});
        let (code, refused) = evict(&server, name, &preconditions);
        let message = format!(
            "Operation cannot be fulfilled on Pod \"{name}\": the ResourceVersion in the precondition ({old}) does not \
             match the ResourceVersion in record ({new}). The object might have been modified"
        );
        assert_eq!((code, &refused["message"]), (409, &json!(message)));
        let uid = &patched["metadata"]["uid"];
        let preconditions = json!({"preconditions": {"resourceVersion": new, "uid": uid}});
        let (code, answer) = evict(&server, name, &preconditions);
        assert_eq!(code, 201, "{name}: {answer}");
        let (code, pod) = go(&server, "GET", &format!("{PODS}/{name}"), &Value::Null);
        if name == "ended" {
            assert_eq!(code, 404);
            continue;
        }
        assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
        assert_eq!(pod["status"]["message"], "old");
        let conditions = pod["status"]["conditions"].as_array();
        let last = conditions.and_then(|conditions| conditions.last());
        assert_eq!(
            last.map(|last| &last["type"]),
            Some(&json!("DisruptionTarget"))
        );
    }
    Ok(())
}

#[test]
fn a_pod_that_is_not_ready_is_evicted_without_counting() -> TestResult {
    let server = ApiServer::builder().start()?;
    create_pod(&server, "p", "n", &json!({"phase": "Running"}));
    create_budget(
        &server,
        &json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
            "expectedPods": 1}),
    );
    let (code, answer) = evict(&server, "p", &Value::Null);
    assert_eq!(code, 201, "{answer}");
    let (_, budget) = go(&server, "GET", &format!("{BUDGETS}/b"), &Value::Null);
    assert_eq!(budget["status"].get("disruptedPods"), None);
    Ok(())
}

#[test]
fn an_option_for_corrupt_objects_is_none_of_evictions() -> TestResult {
    let server = ApiServer::builder().start()?;
    create_pod(&server, "p", "", &json!({}));
    let options = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true});
    let (code, answer) = evict(&server, "p", &options);
    let message = "Eviction.policy \"p\" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: \
                   Invalid value: true: can not be set for pod eviction, try after removing the option";
    assert_eq!((code, &answer["message"]), (422, &json!(message)));
    Ok(())
}

#[test]
fn bodies_of_subresources_name_their_pod() -> TestResult {
    let server = ApiServer::builder().start()?;
    create_pod(&server, "p", "", &json!({}));
    let namespace =
        "the namespace of the provided object does not match the namespace sent on the request";
    for (kind, subresource) in [("Binding", "binding"), ("Eviction", "eviction")] {
        let name = format!("name in URL does not match name in {kind} object");
        for (metadata, message) in [
            (json!({"name": "q"}), &*name),
            (json!({}), &*name),
            (Value::Null, &*name),
            (json!({"name": "p", "namespace": "other"}), namespace),
        ] {
            let body = json!({"metadata": metadata, "target": {"name": "n"}});
            let path = format!("{PODS}/p/{subresource}");
            let (code, answer) = go(&server, "POST", &path, &body);
            assert_eq!((code, &answer["message"]), (400, &json!(message)), "{body}");
        }
        let body = json!({"metadata": 5, "target": {"name": "n"}});
        assert_eq!(
            go(&server, "POST", &format!("{PODS}/p/{subresource}"), &body).0,
            400
        );
    }
    let (code, pod) = go(&server, "GET", &format!("{PODS}/p"), &Value::Null);
    assert_eq!((code, pod["spec"].get("nodeName")), (200, None));
    Ok(())
}

#[test]
fn a_binding_may_require_a_version_of_its_pod() -> TestResult {
    let server = ApiServer::builder().start()?;
    let nominated = json!({"nominatedNodeName": "m"});
    let old = create_pod(&server, "p", "", &json!({}));
    let new = create_pod(&server, "q", "", &nominated);
    let (_, patched) = go(
        &server,
        "PATCH",
        &format!("{PODS}/p/status"),
        &json!({"status": nominated}),
    );
    let current = version(&patched);
    let bind = |collection: &str, metadata: &Value| {
        let body = json!({"metadata": metadata, "target": {"kind": "Node", "name": "n"}});
        go(&server, "POST", collection, &body)
    };
    let (own, named) = (
        format!("{PODS}/p/binding"),
        "/api/v1/namespaces/default/bindings",
    );
    let metadata = json!({"name": "p", "resourceVersion": old});
    for path in [&*own, named] {
        let (code, answer) = bind(path, &metadata);
        let message = format!(
            "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, Key: \
             /registry/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: ResourceVersion in \
             precondition: {old}, ResourceVersion in object meta: {current}"
        );
        assert_eq!((code, &answer["message"]), (409, &json!(message)));
    }
    let (code, answer) = bind(&own, &json!({"name": "p", "uid": "other"}));
    assert_eq!(code, 409, "{answer}");
    assert_eq!(
        bind(&own, &json!({"name": "p", "resourceVersion": current})).0,
        201
    );
    // The uid in a binding that is not sent to its pod is none of its conditions.
    let metadata = json!({"name": "q", "uid": "other", "resourceVersion": new});
    assert_eq!(bind(named, &metadata).0, 201);
    for name in ["p", "q"] {
        let (_, pod) = go(&server, "GET", &format!("{PODS}/{name}"), &Value::Null);
        assert_eq!(pod["spec"]["nodeName"], "n");
        assert_eq!(pod["status"].get("nominatedNodeName"), None);
    }
    Ok(())
}
