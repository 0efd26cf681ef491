//! Field selectors of built-in kinds.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::{TestResult, Watch, send, value};

/// The labels of each kind, written by `scripts/generate-apiserver.sh`.
const LABELS: &str = include_str!("../../data/selectable-fields.txt");
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
        (pods, "spec.host=", "p"),
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

/// Returns the labels of a kind, and what is wrong with another one.
fn labels(group: &str, version: &str, kind: &str) -> (Vec<&'static str>, &'static str) {
    let group = if group.is_empty() { "-" } else { group };
    let start = format!("{group} {version} {kind} ");
    let Some(line) = LABELS.lines().find_map(|line| line.strip_prefix(&*start)) else {
        let error =
            "%q is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
        return (vec!["metadata.name", "metadata.namespace"], error);
    };
    let (labels, error) = line.split_once(" [").expect("an error");
    let labels = labels
        .split(' ')
        .map(|label| label.split_once('=').map_or(label, |(label, _)| label));
    (labels.collect(), error.trim_end_matches(']'))
}

#[test]
fn the_labels_of_each_kind_are_those_of_kubernetes() -> TestResult {
    let server = ApiServer::builder()
        .runtime_config("api/all=true".parse()?)
        .start()?;
    let mut kinds = 0;
    for resource in revstore_kinds::resources().filter(|resource| resource.has_verb("list")) {
        let (group, version) = (resource.group(), resource.version());
        let root = if group.is_empty() { "/api" } else { "/apis" };
        let path = [root, group, version, resource.plural()].join("/");
        let path = path.replace("//", "/");
        let get = |label: &str| {
            let path = format!("{path}?limit=1&fieldSelector={label}%3Dx");
            value(&send(&server, "GET", &path, ""))
        };
        let (known, error) = labels(group, version, resource.kind());
        for label in &known {
            let (code, answer) = get(label);
            assert_eq!(code, 200, "{path} {label}: {answer}");
        }
        for label in [
            "no.such",
            "metadata.namespace",
            "metadata.uid",
            "spec.nodeName",
        ] {
            if known.contains(&label) {
                continue;
            }
            let (code, answer) = get(label);
            assert_eq!(code, 400, "{path} {label}: {answer}");
            let error = error
                .replace("%q", &format!("{label:?}"))
                .replace("%s", label);
            assert_eq!(answer["message"], error, "{path}");
        }
        kinds += 1;
    }
    assert!(kinds > 60);
    Ok(())
}
