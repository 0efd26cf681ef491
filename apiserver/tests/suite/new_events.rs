//! Events of `events.k8s.io` have the rules of kube-apiserver 1.36, which are stricter than those of the core group:
//! `data/events.json` has objects, and the causes that the strategy of its registry returned, without that of the resource
//! version (`go run ./strategies causes` in `scripts/apiserver`).

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::exchange::exchange;

type TestResult = Result<(), Box<dyn std::error::Error>>;

const CASES: &str = include_str!("../data/events.json");
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn send(server: &ApiServer, method: &str, path: &str, object: &Value) -> (u16, Value) {
    let fields = "Content-Type: application/json\r\n";
    let (code, body) = exchange(server.endpoint(), method, path, fields, &object.to_string());
    (code, serde_json::from_str(&body).unwrap_or_default())
}

/// Returns the causes of an answer as reason, field and message, in which `<any>` stands for an object.
fn causes(answer: &Value) -> Vec<[String; 3]> {
    let causes = answer["details"]["causes"].as_array();
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    let causes = causes.into_iter().flatten().map(|cause| {
        let message = text(cause, "message");
        let message = match (message.split_once(": {"), message.rsplit_once("}: ")) {
            (Some((start, _)), Some((_, end))) => format!("{start}: <any>: {end}"),
            _ => message,
        };
        [text(cause, "reason"), text(cause, "field"), message]
    });
    causes.collect()
}

#[test]
fn new_events_have_strict_rules() -> TestResult {
    let server = ApiServer::builder().start()?;
    let cases: Vec<Value> = serde_json::from_str(CASES)?;
    assert!(cases.len() > 8);
    for case in &cases {
        let id = case["id"].as_str().unwrap_or_default();
        let mut new = case["body"].clone();
        new["metadata"]["name"] = id.into();
        let (code, answer) = if case["verb"] == "create" {
            send(&server, "POST", EVENTS, &new)
        } else {
            let mut old = case["old"].clone();
            old["metadata"]["name"] = id.into();
            let (code, created) = send(&server, "POST", EVENTS, &old);
            assert_eq!(code, 201, "{created}");
            send(&server, "PUT", &format!("{EVENTS}/{id}"), &new)
        };
        let expected: Vec<[String; 3]> = serde_json::from_value(case["causes"].clone())?;
        assert_eq!(causes(&answer), expected, "{id}: {answer}");
        assert_eq!(code == 422, !expected.is_empty(), "{id}: {answer}");
    }
    Ok(())
}

#[test]
fn events_of_the_core_group_have_other_rules() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/events";
    let event =
        json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "count": 1});
    assert_eq!(send(&server, "POST", path, &event).0, 201);
    let mut changed = event;
    changed["message"] = "m".into();
    assert_eq!(send(&server, "PUT", &format!("{path}/e"), &changed).0, 200);
    // The newer form can change only its series.
    let (_, mut new) = send(&server, "GET", &format!("{EVENTS}/e"), &json!(null));
    new["note"] = "n".into();
    let (code, answer) = send(&server, "PUT", &format!("{EVENTS}/e"), &new);
    assert_eq!(code, 422, "{answer}");
    Ok(())
}
