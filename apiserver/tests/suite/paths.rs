//! What paths name: namespaces, names with ports, logs.

use revstore_apiserver::ApiServer;
use serde_json::json;

use crate::client::{TestResult, Watch, send, value};

const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn a_namespace_is_watched_by_the_path_of_old_clients() -> TestResult {
    let server = ApiServer::builder().start()?;
    let mut watch = Watch::open(&server, "/api/v1/watch/namespaces/default");
    let event = watch.next().ok_or("the watch has ended")?;
    assert_eq!(event["type"], "ADDED", "{event}");
    assert_eq!(event["object"]["metadata"]["name"], "default");
    // Other namespaces are none of its events.
    for name in ["other", "default"] {
        let path = format!("/api/v1/namespaces/{name}");
        let namespace = json!({"metadata": {"name": name}}).to_string();
        send(&server, "POST", "/api/v1/namespaces", &namespace);
        let label = json!({"metadata": {"labels": {"seen": "yes"}}}).to_string();
        assert_eq!(send(&server, "PATCH", &path, &label).0, 200);
    }
    let event = watch.next().ok_or("the watch has ended")?;
    assert_eq!(event["object"]["metadata"]["name"], "default");
    assert_eq!(event["type"], "MODIFIED");
    Ok(())
}

#[test]
fn a_namespace_is_in_no_namespace() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default";
    for (path, code) in [
        (path.to_owned(), 200),
        (format!("{path}/status"), 200),
        (format!("{path}/namespaces"), 404),
        (format!("{path}/namespaces/default"), 404),
    ] {
        assert_eq!(send(&server, "GET", &path, "").0, code, "{path}");
    }
    let namespace = json!({"metadata": {"name": "new"}, "spec": {"finalizers": []}}).to_string();
    assert_eq!(
        send(&server, "POST", "/api/v1/namespaces", &namespace).0,
        201
    );
    let new = "/api/v1/namespaces/new";
    assert_eq!(send(&server, "PUT", new, &namespace).0, 200);
    assert_eq!(
        send(&server, "PUT", &format!("{new}/status"), &namespace).0,
        200
    );
    assert_eq!(
        send(&server, "PUT", &format!("{new}/finalize"), &namespace).0,
        200
    );
    assert_eq!(send(&server, "DELETE", new, "").0, 200);
    Ok(())
}

/// Creates a service with the port 80, a node, and two pods, of which one has an address.
fn proxied() -> Result<ApiServer, Box<dyn std::error::Error>> {
    let server = ApiServer::builder().start()?;
    let service =
        json!({"metadata": {"name": "s1"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
    let pod = |name| {
        json!({"metadata": {"name": name}, "spec": {
            "nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}})
    };
    for (path, object) in [
        ("/api/v1/namespaces/default/services", service),
        ("/api/v1/nodes", json!({"metadata": {"name": "n1"}})),
        (PODS, pod("p1")),
        (PODS, pod("p2")),
    ] {
        let created = send(&server, "POST", path, &object.to_string());
        assert_eq!(created.0, 201, "{}", created.1);
    }
    let status = json!({"status": {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}});
    let path = format!("{PODS}/p1/status");
    assert_eq!(send(&server, "PATCH", &path, &status.to_string()).0, 200);
    Ok(server)
}

#[test]
fn names_of_proxied_requests_have_schemes_and_ports() -> TestResult {
    let server = proxied()?;
    let kubelet =
        "Internal error occurred: this server has no connection to the kubelet of node \"n1\"";
    let no_endpoints = "no endpoints available for service \"s1\"";
    for (path, code, message) in [
        ("namespaces/default/services/s1/proxy/", 503, no_endpoints),
        (
            "namespaces/default/services/s1:web/proxy/a",
            503,
            no_endpoints,
        ),
        (
            "namespaces/default/services/s1:80/proxy/",
            503,
            no_endpoints,
        ),
        (
            "namespaces/default/services/https:s1:web/proxy/",
            503,
            no_endpoints,
        ),
        (
            "namespaces/default/services/s1:81/proxy/",
            503,
            "no service port 81 found for service \"s1\"",
        ),
        (
            "namespaces/default/services/ftp:s1:80/proxy/",
            400,
            "invalid service request \"ftp:s1:80\"",
        ),
        (
            "namespaces/default/services/no:80/proxy/",
            404,
            "services \"no\" not found",
        ),
        ("namespaces/default/pods/p1/proxy/", 500, kubelet),
        ("namespaces/default/pods/p1:80/proxy/", 500, kubelet),
        ("namespaces/default/pods/http:p1:80/proxy/x", 500, kubelet),
        (
            "namespaces/default/pods/p2:80/proxy/",
            400,
            "address not allowed",
        ),
        (
            "namespaces/default/pods/a:b:c:d/proxy/",
            400,
            "invalid pod request \"a:b:c:d\"",
        ),
        ("nodes/n1/proxy/", 500, kubelet),
        ("nodes/n1:10250/proxy/metrics", 500, kubelet),
        ("nodes/https:n1:10250/proxy/metrics", 500, kubelet),
        ("nodes/no:10250/proxy/", 404, "nodes \"no\" not found"),
    ] {
        let (found, answer) = value(&send(&server, "GET", &format!("/api/v1/{path}"), ""));
        let found = (found, answer["message"].as_str().unwrap_or_default());
        assert_eq!(found, (code, message), "{path}");
    }
    Ok(())
}

#[test]
fn options_of_logs_are_checked_before_a_kubelet_is_needed() -> TestResult {
    let server = proxied()?;
    for (options, code) in [
        ("tailLines=5&follow=true", 500),
        ("tailLines=-1", 422),
        ("sinceSeconds=5&sinceTime=2026-01-02T03:04:05Z", 422),
        ("limitBytes=0", 422),
        ("tailLines=x", 400),
    ] {
        for name in ["p1", "no"] {
            let path = format!("{PODS}/{name}/log?{options}");
            let (found, answer) = value(&send(&server, "GET", &path, ""));
            let expected = if (name, code) == ("no", 500) {
                404
            } else {
                code
            };
            assert_eq!(found, expected, "{path}: {answer}");
        }
    }
    let (_, answer) = value(&send(
        &server,
        "GET",
        &format!("{PODS}/p1/log?tailLines=-1"),
        "",
    ));
    assert_eq!(answer["details"]["kind"], "PodLogOptions");
    assert_eq!(answer["details"]["causes"][0]["field"], "tailLines");
    Ok(())
}
