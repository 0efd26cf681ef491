//! What webhooks see of requests about pods and accounts, and what their changes do.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::{TestResult, send, value};
use crate::hook_server::{Answer, HookServer};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// The patch of a webhook; `None` is an endless wait.
type Patch = Arc<Mutex<Option<Value>>>;
type Fixture = (ApiServer, HookServer, Patch);

/// Starts a server with a mutating webhook for everything in the core group, whose patch can be set.
fn start() -> Result<Fixture, Box<dyn std::error::Error>> {
    let patch = Arc::new(Mutex::new(Some(json!([]))));
    let shared = patch.clone();
    let hook = HookServer::start(move |_, review| {
        let patch = shared.lock().expect("no panic").clone();
        let Some(patch) = patch else {
            return Answer::Hang;
        };
        let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
        if patch != json!([]) {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = STANDARD.encode(patch.to_string()).into();
        }
        Answer::Json(
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}),
        )
    });
    let server = ApiServer::builder().start()?;
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "m"}, "webhooks": [{
            "name": "m.example.com", "clientConfig": hook.client_config("/"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["pods", "pods/*", "serviceaccounts/*", "configmaps"]}],
        }],
    });
    let configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    assert_eq!(
        send(&server, "POST", configurations, &configuration.to_string()).0,
        201
    );
    Ok((server, hook, patch))
}

fn create_pod(server: &ApiServer, name: &str, spec: &Value) {
    let mut pod = json!({"metadata": {"name": name}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
    let (code, answer) = send(server, "POST", PODS, &pod.to_string());
    assert_eq!(code, 201, "{answer}");
}

#[test]
fn a_deletion_is_shown_with_the_grace_period_of_its_pod() -> TestResult {
    let (server, hook, _) = start()?;
    create_pod(&server, "free", &json!({}));
    create_pod(
        &server,
        "bound",
        &json!({"nodeName": "n", "terminationGracePeriodSeconds": 7}),
    );
    hook.take_requests();
    for (name, query, expected) in [
        ("free", "", 0),
        ("bound", "", 7),
        ("bound", "?gracePeriodSeconds=3", 3),
    ] {
        assert_eq!(
            send(&server, "DELETE", &format!("{PODS}/{name}{query}"), "").0,
            200
        );
        let requests = hook.take_requests();
        let options = &requests[0].1["request"]["options"];
        assert_eq!(options["gracePeriodSeconds"], expected, "{name}: {options}");
    }
    Ok(())
}

#[test]
fn a_request_for_a_token_is_shown_with_its_defaults() -> TestResult {
    let (server, hook, _) = start()?;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "a"}}).to_string();
    assert_eq!(send(&server, "POST", accounts, &account).0, 201);
    hook.take_requests();
    let (code, answer) = send(&server, "POST", &format!("{accounts}/a/token"), "{}");
    assert_eq!(code, 201, "{answer}");
    let requests = hook.take_requests();
    let expected = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {"namespace": "default"},
        "spec": {"audiences": null, "expirationSeconds": 3600, "boundObjectRef": null},
        "status": {"token": "", "expirationTimestamp": null},
    });
    assert_eq!(requests[0].1["request"]["object"], expected);
    Ok(())
}

#[test]
fn evictions_are_as_webhooks_leave_them() -> TestResult {
    let (server, hook, patch) = start()?;
    create_pod(&server, "a", &json!({}));
    let eviction = json!({"metadata": {"name": "a"}}).to_string();
    let evictions = format!("{PODS}/a/eviction");
    let options = json!({"dryRun": ["All"]});
    *patch.lock().expect("no panic") =
        Some(json!([{"op": "add", "path": "/deleteOptions", "value": options}]));
    assert_eq!(send(&server, "POST", &evictions, &eviction).0, 201);
    assert_eq!(send(&server, "GET", &format!("{PODS}/a"), "").0, 200);
    *patch.lock().expect("no panic") = Some(json!([]));
    // A dry run of the options is none of the request, and one of the request is one of the deletion.
    let dry = json!({"metadata": {"name": "a"}, "deleteOptions": options}).to_string();
    hook.take_requests();
    for (query, body, shown) in [("", &dry, false), ("?dryRun=All", &eviction, true)] {
        assert_eq!(
            send(&server, "POST", &format!("{evictions}{query}"), body).0,
            201
        );
        assert_eq!(
            hook.take_requests()[0].1["request"]["dryRun"],
            shown,
            "{query}"
        );
        assert_eq!(send(&server, "GET", &format!("{PODS}/a"), "").0, 200);
    }
    assert_eq!(send(&server, "POST", &evictions, &eviction).0, 201);
    assert_eq!(send(&server, "GET", &format!("{PODS}/a"), "").0, 404);
    Ok(())
}

#[test]
fn bindings_and_evictions_without_metadata_are_shown() -> TestResult {
    let (server, hook, patch) = start()?;
    create_pod(&server, "a", &json!({}));
    hook.take_requests();
    for subresource in ["binding", "eviction"] {
        let url = format!("{PODS}/a/{subresource}");
        let body = json!({"target": {"name": "n"}}).to_string();
        assert_eq!(send(&server, "POST", &url, &body).0, 400);
        let requests = hook.take_requests();
        let request = &requests[0].1["request"];
        assert_eq!(request["subResource"], subresource);
        assert_eq!(request["name"], "a");
        assert_eq!(request["object"]["metadata"]["namespace"], "default");
    }
    // A webhook may add the name.
    *patch.lock().expect("no panic") =
        Some(json!([{"op": "add", "path": "/metadata/name", "value": "a"}]));
    let body = json!({"target": {"name": "n"}}).to_string();
    let url = format!("{PODS}/a/binding");
    assert_eq!(send(&server, "POST", &url, &body).0, 201);
    Ok(())
}

#[test]
fn a_changed_name_is_an_error_of_the_object() -> TestResult {
    let (server, _hook, patch) = start()?;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "a"}}).to_string();
    assert_eq!(send(&server, "POST", maps, &map).0, 201);
    for (change, name, causes) in [
        (
            json!({"op": "add", "path": "/metadata/name", "value": "b"}),
            "b",
            2,
        ),
        (json!({"op": "remove", "path": "/metadata"}), "", 4),
    ] {
        *patch.lock().expect("no panic") = Some(json!([change]));
        let change = r#"{"data":{"x":"y"}}"#;
        let (code, answer) = value(&send(&server, "PATCH", &format!("{maps}/a"), change));
        assert_eq!(code, 422, "{answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(
            message.starts_with(&format!("ConfigMap \"{name}\" is invalid: ")),
            "{message}"
        );
        let found = answer["details"]["causes"].as_array().map(Vec::len);
        assert_eq!(found, Some(causes), "{answer}");
    }
    // One that the client changes is an error of the request.
    *patch.lock().expect("no panic") = Some(json!([]));
    let change = r#"{"metadata":{"name":"b"}}"#;
    let (code, answer) = value(&send(&server, "PATCH", &format!("{maps}/a"), change));
    let message = "the name of the object (b) does not match the name on the URL (a)";
    assert_eq!((code, &answer["message"]), (400, &json!(message)));
    let (_, kept) = value(&send(&server, "GET", &format!("{maps}/a"), ""));
    assert_eq!(kept.get("data"), None);
    Ok(())
}

#[test]
fn a_request_ends_in_its_time_while_a_webhook_hangs() -> TestResult {
    let (server, _hook, patch) = start()?;
    *patch.lock().expect("no panic") = None;
    let map = json!({"metadata": {"name": "a"}}).to_string();
    let maps = "/api/v1/namespaces/default/configmaps";
    let (code, answer) = value(&send(
        &server,
        "POST",
        &format!("{maps}?timeout=50ms"),
        &map,
    ));
    assert_eq!((code, &answer["reason"]), (504, &json!("Timeout")));
    assert_eq!(send(&server, "GET", &format!("{maps}/a"), "").0, 404);
    // The call is counted, although nobody waits for it.
    let (_, metrics) = send(&server, "GET", "/metrics", "");
    let line = "apiserver_admission_webhook_rejection_count{error_type=\"calling_webhook_error\",\
                name=\"m.example.com\",operation=\"CREATE\",rejection_code=\"503\",type=\"admit\"} 1";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
    Ok(())
}
