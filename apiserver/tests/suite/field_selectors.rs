//! Field selectors of built-in kinds.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::{TestResult, Watch, send, value};

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const CORE: &str = "/api/v1/namespaces/default/events";

fn event(name: &str, regarding: &str) -> String {
    json!({
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c", "reportingInstance": "i", "action": "a", "type": "Normal", "reason": "r",
        "regarding": {"kind": "Pod", "namespace": "default", "name": regarding},
    })
    .to_string()
}

fn names(server: &ApiServer, path: &str) -> Vec<Value> {
    let (code, list) = value(&send(server, "GET", path, ""));
    assert_eq!(code, 200, "{path}: {list}");
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| item["metadata"]["name"].clone()).collect()
}

/// The fields have the names of the version of the request.
#[test]
fn events_are_selected_by_the_fields_of_either_version() -> TestResult {
    let server = ApiServer::builder().start()?;
    for (name, regarding) in [("e1", "p1"), ("e2", "p2")] {
        assert_eq!(
            send(&server, "POST", EVENTS, &event(name, regarding)).0,
            201
        );
    }
    for (path, selector) in [
        (EVENTS, "regarding.name=p2,regarding.kind=Pod"),
        (EVENTS, "reportingController=c,regarding.name!=p1"),
        (EVENTS, "reason=r,type=Normal,metadata.name=e2"),
        (CORE, "involvedObject.name=p2"),
        (CORE, "reportingComponent=c,involvedObject.name!=p1"),
    ] {
        let path = format!("{path}?fieldSelector={}", selector.replace('=', "%3D"));
        assert_eq!(names(&server, &path), ["e2"], "{path}");
    }
    for (path, field) in [
        (EVENTS, "involvedObject.name"),
        (EVENTS, "reportingComponent"),
        (EVENTS, "source"),
        (EVENTS, "regarding.other"),
        (CORE, "regarding.name"),
        (CORE, "reportingController"),
    ] {
        for (method, suffix) in [("GET", ""), ("GET", "&watch=1"), ("DELETE", "")] {
            let path = format!("{path}?fieldSelector={field}%3Dx{suffix}");
            let (code, status) = value(&send(&server, method, &path, ""));
            assert_eq!(code, 400, "{method} {path}: {status}");
            let expected = format!("field label not supported: {field}");
            assert_eq!(status["message"], expected, "{method} {path}");
        }
    }
    let path = format!("{EVENTS}?watch=1&fieldSelector=regarding.name%3Dp2");
    let mut watch = Watch::open(&server, &path);
    let first = watch.next().ok_or("an event")?;
    assert_eq!(first["object"]["metadata"]["name"], "e2");
    let path = format!("{EVENTS}?fieldSelector=regarding.name%3Dp1");
    assert_eq!(send(&server, "DELETE", &path, "").0, 200);
    assert_eq!(names(&server, EVENTS), ["e2"]);
    Ok(())
}

/// Fields that an object does not have are those of Go's types: false, 0.
#[test]
fn absent_fields_have_the_values_of_go() -> TestResult {
    let server = ApiServer::builder().start()?;
    let nodes = "/api/v1/nodes";
    for (name, unschedulable) in [("open", false), ("closed", true)] {
        let mut node = json!({"metadata": {"name": name}, "spec": {}});
        if unschedulable {
            node["spec"]["unschedulable"] = json!(true);
        }
        assert_eq!(send(&server, "POST", nodes, &node.to_string()).0, 201);
    }
    let pods = "/api/v1/namespaces/default/pods";
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    assert_eq!(send(&server, "POST", pods, &pod.to_string()).0, 201);
    let status =
        json!({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}});
    let path = format!("{pods}/p/status");
    assert_eq!(send(&server, "PATCH", &path, &status.to_string()).0, 200);
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
    let job = json!({"metadata": {"name": "j"}, "spec": spec});
    assert_eq!(send(&server, "POST", jobs, &job.to_string()).0, 201);
    for (path, selector, expected) in [
        (nodes, "spec.unschedulable=false", "open"),
        (nodes, "spec.unschedulable=true", "closed"),
        (
            pods,
            "spec.hostNetwork=false,status.podIPs=,status.podIP=10.0.0.1",
            "p",
        ),
        (jobs, "status.successful=0", "j"),
    ] {
        let selector = selector.replace('=', "%3D");
        let path = format!("{path}?fieldSelector={selector}");
        assert_eq!(names(&server, &path), [expected], "{path}");
    }
    let event = json!({
        "metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "source": {"component": "s"},
    });
    assert_eq!(send(&server, "POST", CORE, &event.to_string()).0, 201);
    let path = format!("{CORE}?fieldSelector=source%3Ds");
    assert_eq!(names(&server, &path), ["e"]);
    Ok(())
}
