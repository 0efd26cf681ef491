//! The flow schemas and priority levels that a server creates and keeps.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::{TestResult, Watch, send, value};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

fn get(server: &ApiServer, path: &str) -> Value {
    let (code, found) = value(&send(server, "GET", path, ""));
    assert_eq!(code, 200, "{path}: {found}");
    found
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

/// Returns the next version of an object that a condition holds for.
fn wait(watch: &mut Watch, name: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    loop {
        let event = watch.next().expect("the watch goes on");
        let object = &event["object"];
        if object["metadata"]["name"] == name && event["type"] != "DELETED" && is_right(object) {
            return object.clone();
        }
    }
}

#[test]
fn a_fresh_server_has_those_of_kubernetes() -> TestResult {
    let server = ApiServer::builder().start()?;
    let levels = get(&server, LEVELS);
    assert_eq!(
        names(&levels),
        [
            "catch-all",
            "exempt",
            "global-default",
            "leader-election",
            "node-high",
            "system",
            "workload-high",
            "workload-low",
        ]
    );
    let schemas = get(&server, SCHEMAS);
    assert_eq!(
        names(&schemas),
        [
            "catch-all",
            "exempt",
            "global-default",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-system-service-accounts",
            "probes",
            "service-accounts",
            "system-leader-election",
            "system-node-high",
            "system-nodes",
        ]
    );
    for object in [&levels, &schemas]
        .into_iter()
        .flat_map(|list| list["items"].as_array().into_iter().flatten())
    {
        let metadata = &object["metadata"];
        assert_eq!(metadata["generation"], 1);
        let annotations = json!({"apf.kubernetes.io/autoupdate-spec": "true"});
        assert_eq!(metadata["annotations"], annotations);
        let manager = "api-priority-and-fairness-config-producer-v1";
        assert_eq!(metadata["managedFields"][0]["manager"], manager);
    }
    Ok(())
}

#[test]
fn fixed_specifications_do_not_change() -> TestResult {
    let server = ApiServer::builder().start()?;
    for (path, field, new, expected) in [
        (
            format!("{SCHEMAS}/exempt"),
            "matchingPrecedence",
            json!(2),
            "spec of 'exempt' must equal the fixed value",
        ),
        (
            format!("{LEVELS}/catch-all"),
            "limited",
            json!({"nominalConcurrencyShares": 6, "limitResponse": {"type": "Reject"}}),
            "spec of 'catch-all' must equal the fixed value",
        ),
    ] {
        let mut object = get(&server, &path);
        object["spec"][field] = new;
        let (code, status) = value(&send(&server, "PUT", &path, &object.to_string()));
        assert_eq!(code, 422, "{status}");
        let cause = &status["details"]["causes"][0];
        assert_eq!(cause["field"], "spec");
        let message = cause["message"].as_str().unwrap_or_default();
        assert!(message.ends_with(expected), "{message}");
    }
    // Administrators choose the shares of the exempt level.
    let path = format!("{LEVELS}/exempt");
    let mut level = get(&server, &path);
    level["spec"]["exempt"]["nominalConcurrencyShares"] = json!(5);
    let (code, changed) = value(&send(&server, "PUT", &path, &level.to_string()));
    assert_eq!(code, 200, "{changed}");
    assert_eq!(changed["spec"]["exempt"]["nominalConcurrencyShares"], 5);
    Ok(())
}

#[test]
fn a_deleted_one_is_created_again() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = format!("{SCHEMAS}/catch-all");
    let before = get(&server, &path);
    let mut watch = Watch::open(&server, &format!("{SCHEMAS}?watch=1"));
    assert_eq!(send(&server, "DELETE", &path, "").0, 200);
    let uid = &before["metadata"]["uid"];
    let after = wait(&mut watch, "catch-all", |it| &it["metadata"]["uid"] != uid);
    assert_eq!(after["spec"], before["spec"]);
    Ok(())
}

#[test]
fn a_suggested_one_gets_its_specification_again_unless_it_says_otherwise() -> TestResult {
    let server = ApiServer::builder().start()?;
    let mut watch = Watch::open(&server, &format!("{SCHEMAS}?watch=1"));
    let change = |name: &str, keeps: &str| {
        let path = format!("{SCHEMAS}/{name}");
        let mut schema = get(&server, &path);
        schema["spec"]["matchingPrecedence"] = json!(4321);
        schema["metadata"]["annotations"]["apf.kubernetes.io/autoupdate-spec"] = json!(keeps);
        let (code, changed) = value(&send(&server, "PUT", &path, &schema.to_string()));
        assert_eq!(code, 200, "{changed}");
    };
    change("service-accounts", "false");
    change("probes", "true");
    wait(&mut watch, "probes", |it| {
        it["spec"]["matchingPrecedence"] == 2 && it["metadata"]["generation"] == 3
    });
    let other = get(&server, &format!("{SCHEMAS}/service-accounts"));
    assert_eq!(other["spec"]["matchingPrecedence"], 4321);
    Ok(())
}
