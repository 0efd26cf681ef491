//! What resource quotas refuse, and what they count.

use std::thread;

use crate::client::exchange::exchange;
use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const SERVICES: &str = "/api/v1/namespaces/default/services";
/// The threads that create objects at the same time, and what each of them creates.
const THREADS: usize = 4;
const CREATES: usize = 8;

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn send(server: &ApiServer, method: &str, path: &str, object: &Value) -> (u16, Value) {
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let fields = format!("Content-Type: {content_type}\r\n");
    let body = object.to_string();
    let (code, body) = exchange(server.endpoint(), method, path, &fields, &body);
    (code, serde_json::from_str(&body).unwrap_or_default())
}

fn post(server: &ApiServer, path: &str, object: &Value) -> (u16, Value) {
    send(server, "POST", path, object)
}

/// Creates a quota, and gives it the status that the controller would.
fn limit(server: &ApiServer, name: &str, spec: &Value, used: &Value) {
    let quota = json!({"metadata": {"name": name}, "spec": spec});
    let (code, answer) = post(server, QUOTAS, &quota);
    assert_eq!(code, 201, "{answer}");
    let status = json!({"status": {"hard": spec["hard"], "used": used}});
    let path = format!("{QUOTAS}/{name}/status");
    let (code, answer) = send(server, "PATCH", &path, &status);
    assert_eq!(code, 200, "{answer}");
}

fn used(server: &ApiServer, name: &str) -> Value {
    let path = format!("{QUOTAS}/{name}");
    let (_, quota) = send(server, "GET", &path, &Value::Null);
    quota["status"]["used"].clone()
}

fn pod(name: &str, resources: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i:1", "resources": resources}]}})
}

fn refusal(resource: &str, name: &str, why: &str) -> Value {
    json!(format!("{resource} \"{name}\" is forbidden: {why}"))
}

#[test]
fn creates_beyond_a_limit_are_refused_and_others_are_counted() -> TestResult {
    let server = ApiServer::builder().start()?;
    let hard = json!({"hard": {"pods": "2", "requests.cpu": "1"}});
    limit(
        &server,
        "x",
        &hard,
        &json!({"pods": "0", "requests.cpu": "0"}),
    );
    let small = json!({"requests": {"cpu": "300m"}});
    let (code, _) = post(&server, PODS, &pod("a", &small));
    assert_eq!(code, 201);
    assert_eq!(
        used(&server, "x"),
        json!({"pods": "1", "requests.cpu": "300m"})
    );
    // A dry run is checked, and not counted.
    let large = json!({"requests": {"cpu": "800m"}});
    for query in ["", "?dryRun=All"] {
        let (code, status) = post(&server, &format!("{PODS}{query}"), &pod("b", &large));
        let why = "exceeded quota: x, requested: requests.cpu=800m, used: requests.cpu=300m, limited: requests.cpu=1";
        assert_eq!(
            (code, &status["message"]),
            (403, &refusal("pods", "b", why))
        );
    }
    let (code, _) = post(&server, &format!("{PODS}?dryRun=All"), &pod("b", &small));
    assert_eq!(code, 201);
    assert_eq!(used(&server, "x")["pods"], "1");
    let (code, _) = post(&server, PODS, &pod("b", &small));
    assert_eq!(code, 201);
    let (code, status) = post(&server, PODS, &pod("c", &small));
    let why = "exceeded quota: x, requested: pods=1, used: pods=2, limited: pods=2";
    assert_eq!(
        (code, &status["message"]),
        (403, &refusal("pods", "c", why))
    );
    // Containers must say what is limited.
    let (code, status) = post(&server, PODS, &pod("d", &json!({})));
    let why = "failed quota: x: must specify requests.cpu for: c";
    assert_eq!(
        (code, &status["message"]),
        (403, &refusal("pods", "d", why))
    );
    Ok(())
}

#[test]
fn updates_need_what_they_add() -> TestResult {
    let server = ApiServer::builder().start()?;
    let hard = json!({"hard": {"services": "5", "services.nodeports": "1"}});
    limit(
        &server,
        "x",
        &hard,
        &json!({"services": "1", "services.nodeports": "0"}),
    );
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let (code, _) = post(&server, SERVICES, &service);
    assert_eq!(code, 201);
    let path = format!("{SERVICES}/s");
    let exposed = json!({"spec": {"type": "NodePort"}});
    let (code, _) = send(&server, "PATCH", &path, &exposed);
    assert_eq!(code, 200);
    let expected = json!({"services": "2", "services.nodeports": "1"});
    assert_eq!(used(&server, "x"), expected);
    let more = json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    let (code, status) = send(&server, "PATCH", &path, &more);
    let why = "exceeded quota: x, requested: services.nodeports=1, used: services.nodeports=1, limited: \
               services.nodeports=1";
    assert_eq!(
        (code, &status["message"]),
        (403, &refusal("services", "s", why))
    );
    // An update that needs nothing more is not counted.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, _) = send(&server, "PATCH", &path, &labels);
    assert_eq!((code, used(&server, "x")), (200, expected));
    Ok(())
}

#[test]
fn scopes_and_unknown_counts() -> TestResult {
    let server = ApiServer::builder().start()?;
    let none = json!({"hard": {"pods": "0"}, "scopes": ["NotBestEffort"]});
    limit(&server, "scoped", &none, &json!({"pods": "0"}));
    let (code, _) = post(&server, PODS, &pod("a", &json!({})));
    assert_eq!(code, 201);
    let (code, status) = post(&server, PODS, &pod("b", &json!({"requests": {"cpu": "1"}})));
    let why = "exceeded quota: scoped, requested: pods=1, used: pods=0, limited: pods=0";
    assert_eq!(
        (code, &status["message"]),
        (403, &refusal("pods", "b", why))
    );
    limit(
        &server,
        "maps",
        &json!({"hard": {"configmaps": "9", "count/configmaps": "9"}}),
        &json!({}),
    );
    let map = json!({"metadata": {"name": "m"}});
    let (code, status) = post(&server, "/api/v1/namespaces/default/configmaps", &map);
    let why = "status unknown for quota: maps, resources: configmaps,count/configmaps";
    assert_eq!(
        (code, &status["message"]),
        (403, &refusal("configmaps", "m", why))
    );
    Ok(())
}

/// Creates config maps by several threads, and returns how many were created.
fn create_in_parallel(server: &ApiServer) -> usize {
    let path = "/api/v1/namespaces/default/configmaps";
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let names = (0..CREATES).map(|number| format!("m-{thread}-{number}"));
                    names
                        .filter(|name| {
                            let map = json!({"metadata": {"name": name}});
                            let (code, answer) = post(server, path, &map);
                            assert!(code == 201 || code == 403, "{answer}");
                            code == 201
                        })
                        .count()
                })
            })
            .collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|number| number.expect("a thread that ends"))
            .sum()
    })
}

#[test]
fn parallel_creates_do_not_exceed_a_limit() -> TestResult {
    let server = ApiServer::builder().start()?;
    let hard = json!({"hard": {"count/configmaps": "10"}});
    limit(&server, "x", &hard, &json!({"count/configmaps": "0"}));
    assert_eq!(create_in_parallel(&server), 10);
    assert_eq!(used(&server, "x"), json!({"count/configmaps": "10"}));
    Ok(())
}

#[test]
fn the_controller_takes_nothing_back_from_requests_in_flight() -> TestResult {
    let server = ApiServer::builder()
        .controllers("resourcequota-controller".parse()?)
        .start()?;
    // The controller counts again at each write of the status.
    let hard = json!({"hard": {"count/configmaps": "10"}});
    limit(&server, "x", &hard, &json!({"count/configmaps": "0"}));
    assert_eq!(create_in_parallel(&server), 10);
    Ok(())
}
