//! Autoscalers in both versions.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::exchange::exchange;
use crate::client::{TestResult, send, value};

const PREFIX: &str = "autoscaling.alpha.kubernetes.io";

fn path(version: &str) -> String {
    format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers")
}

fn create(server: &ApiServer, name: &str, annotations: &Value) -> (u16, Value) {
    let scaler = json!({"metadata": {"name": name, "annotations": annotations},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3}});
    value(&send(server, "POST", &path("v1"), &scaler.to_string()))
}

#[test]
fn metrics_in_annotations_are_those_of_version_1() -> TestResult {
    let server = ApiServer::builder().start()?;
    let text =
        r#"[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":60}}]"#;
    let annotations = json!({format!("{PREFIX}/metrics"): text});
    let (code, created) = create(&server, "a", &annotations);
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["metadata"]["annotations"], annotations);
    let (_, shown) = value(&send(&server, "GET", &format!("{}/a", path("v2")), ""));
    let target = json!({"type": "Utilization", "averageUtilization": 60});
    let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": target}});
    assert_eq!(shown["spec"]["metrics"], json!([memory]));
    assert_eq!(shown["metadata"].get("annotations"), None);
    Ok(())
}

#[test]
fn malformed_annotations_are_left_out() -> TestResult {
    let server = ApiServer::builder().start()?;
    for (number, (name, text)) in [
        ("behavior", "5"),
        ("behavior", "not json"),
        ("conditions", "\"x\""),
        ("conditions", "[5]"),
        ("metrics", "[1,\"a\"]"),
        ("current-metrics", "[5]"),
    ]
    .into_iter()
    .enumerate()
    {
        let annotations = json!({format!("{PREFIX}/{name}"): text});
        let (code, created) = create(&server, &format!("a{number}"), &annotations);
        assert_eq!(code, 201, "{name} {text}: {created}");
        assert_eq!(
            created["metadata"].get("annotations"),
            None,
            "{name} {text}"
        );
        assert_eq!(
            created["spec"]["targetCPUUtilizationPercentage"], 80,
            "{name} {text}"
        );
    }
    // What is stored can be read in each form.
    for accept in ["application/json", "application/vnd.kubernetes.protobuf"] {
        let fields = format!("Accept: {accept}\r\n");
        let (code, _) = exchange(server.endpoint(), "GET", &path("v2"), &fields, "");
        assert_eq!(code, 200, "{accept}");
    }
    Ok(())
}
