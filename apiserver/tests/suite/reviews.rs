//! What is refused of reviews, and of applies that name an object which is gone.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::exchange::exchange;

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn send(server: &ApiServer, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
    let fields = format!("Content-Type: {media}\r\n");
    let (code, answer) = exchange(server.endpoint(), method, path, &fields, &body.to_string());
    (code, serde_json::from_str(&answer).unwrap_or_default())
}

#[test]
fn selectors_of_reviews_have_one_form() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let requirement = json!({"key": "a", "operator": "Exists"});
    for (selector, cause) in [
        (json!({"rawSelector": "a=b"}), None),
        (json!({"requirements": [requirement]}), None),
        (
            json!({}),
            Some(
                "spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required",
            ),
        ),
        (
            json!({"rawSelector": "a=b", "requirements": [requirement]}),
            Some(
                "spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements",
            ),
        ),
    ] {
        let attributes = json!({"verb": "list", "resource": "pods", "fieldSelector": selector});
        let review = json!({"spec": {"user": "u", "resourceAttributes": attributes}});
        let (code, answer) = send(&server, "POST", path, "application/json", &review);
        let message = answer["message"].as_str().unwrap_or_default();
        match cause {
            None => assert_eq!(code, 201, "{answer}"),
            Some(cause) => assert!(code == 422 && message.contains(cause), "{answer}"),
        }
    }
    let path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let attributes = json!({"verb": "get", "path": "/x"});
    let review = json!({"spec": {"user": "u", "nonResourceAttributes": attributes}});
    let (code, answer) = send(&server, "POST", path, "application/json", &review);
    let message = answer["message"].as_str().unwrap_or_default();
    let text = "disallowed on this kind of request";
    assert!(code == 422 && message.contains(text), "{answer}");
    Ok(())
}

#[test]
fn an_apply_creates_no_object_in_the_place_of_another() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/configmaps/m?fieldManager=f";
    let apply = |server: &ApiServer, uid: &str| {
        let metadata = json!({"name": "m", "uid": uid});
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        send(server, "PATCH", path, "application/apply-patch+yaml", &body)
    };
    let (code, answer) = apply(&server, "u1");
    let message = "Operation cannot be fulfilled on configmaps \"m\": uid mismatch: the provided object specified uid u1, and no existing object was found";
    assert_eq!((code, &answer["message"]), (409, &json!(message)));
    let (code, created) = apply(&server, "");
    assert_eq!(code, 201, "{created}");
    let uid = created["metadata"]["uid"].as_str().unwrap_or_default();
    assert_eq!(apply(&server, uid).0, 200);
    Ok(())
}
