//! Conversion webhooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use revstore_apiserver::ApiServer;
use revstore_engine::{KeyRange, Range};
use serde_json::{Value, json};

use crate::client::exchange::exchange;
use crate::client::{TestResult, Watch, send, value};
use crate::hook_server::{Answer, Authority, HookServer, Identity};

const V1: &str = "/apis/example.com/v1/namespaces/default/things";
const V2: &str = "/apis/example.com/v2/namespaces/default/things";

/// Returns a definition whose version 1 has the field `spec.text`, and version 2, which is stored, `spec.words`.
fn definition(client_config: &Value) -> Value {
    let version = |name: &str, stored: bool, field: &str, schema: Value| {
        let spec = json!({"type": "object", "properties": {field: schema,
            "size": {"type": "integer", "default": 1}}});
        json!({"name": name, "served": true, "storage": stored, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": spec,
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
    };
    let texts = json!({"type": "array", "items": {"type": "string"}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [version("v1", false, "text", json!({"type": "string"})), version("v2", true, "words", texts)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": client_config, "conversionReviewVersions": ["v1"]}},
        },
    })
}

/// Starts a server with the definition, and waits until both versions are served.
fn start(hook: &HookServer) -> Result<ApiServer, Box<dyn std::error::Error>> {
    start_with(&hook.client_config("/convert"))
}

fn start_with(client_config: &Value) -> Result<ApiServer, Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let text = definition(client_config).to_string();
    std::fs::write(directory.path().join("things.json"), text)?;
    Ok(ApiServer::builder().load(directory.path()).start()?)
}

/// Converts the objects of a review.
fn convert(review: &Value) -> Value {
    let request = &review["request"];
    let target = request["desiredAPIVersion"].as_str().expect("a version");
    let objects = request["objects"].as_array().expect("objects").iter();
    let converted = objects.map(|object| {
        let mut new = object.clone();
        new["apiVersion"] = target.into();
        if new["spec"].is_null() {
            new["spec"] = json!({});
        }
        let spec = new["spec"].as_object_mut().expect("a spec");
        if target.ends_with("v1") {
            let words = spec.remove("words").unwrap_or_default();
            let words: Vec<&str> = words
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            spec.insert("text".to_owned(), words.join(" ").into());
        } else {
            let text = spec.remove("text").unwrap_or_default();
            let text = text.as_str().unwrap_or_default();
            spec.insert(
                "words".to_owned(),
                json!(text.split(' ').collect::<Vec<_>>()),
            );
        }
        new
    });
    json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": {
        "uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted.collect::<Vec<_>>()}})
}

fn thing(version: &str, name: &str, spec: &Value) -> String {
    let thing = json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing",
        "metadata": {"name": name}, "spec": spec});
    thing.to_string()
}

#[test]
fn objects_are_read_and_written_in_all_versions() -> TestResult {
    let hook = HookServer::start(|_, review| Answer::Json(convert(review)));
    let server = start(&hook)?;
    let created = thing("v1", "a", &json!({"text": "x y"}));
    let (status, created) = value(&send(&server, "POST", V1, &created));
    assert_eq!(
        (status, &created["spec"]),
        (201, &json!({"text": "x y", "size": 1})),
        "{created}"
    );
    let (_, stored) = value(&send(&server, "GET", &format!("{V2}/a"), ""));
    assert_eq!(stored["apiVersion"], "example.com/v2");
    assert_eq!(stored["spec"], json!({"words": ["x", "y"], "size": 1}));
    assert_eq!(stored["metadata"]["uid"], created["metadata"]["uid"]);

    // Written in the stored version, and seen by a watch and a list of the other one.
    let mut watch = Watch::open(
        &server,
        &format!(
            "{V1}?watch=true&resourceVersion={}",
            created["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or_default()
        ),
    );
    let patch = r#"{"spec":{"words":["z"]}}"#;
    assert_eq!(send(&server, "PATCH", &format!("{V2}/a"), patch).0, 200);
    let event = watch.next().expect("an event");
    assert_eq!(event["object"]["spec"]["text"], "z", "{event}");
    assert_eq!(event["object"]["apiVersion"], "example.com/v1");
    let (_, list) = value(&send(&server, "GET", V1, ""));
    assert_eq!(list["items"][0]["spec"]["text"], "z", "{list}");
    assert_eq!(list["items"][0]["metadata"]["generation"], 2);

    // Changes of the other version and of its status.
    let (status, patched) = value(&send(
        &server,
        "PATCH",
        &format!("{V1}/a"),
        r#"{"spec":{"text":"u v"}}"#,
    ));
    assert_eq!(
        (status, &patched["spec"]["text"]),
        (200, &json!("u v")),
        "{patched}"
    );
    let status = send(
        &server,
        "PATCH",
        &format!("{V1}/a/status"),
        r#"{"status":{"ok":true}}"#,
    );
    assert_eq!(status.0, 200, "{}", status.1);
    let (_, stored) = value(&send(&server, "GET", &format!("{V2}/a"), ""));
    assert_eq!(stored["spec"]["words"], json!(["u", "v"]));
    assert_eq!(stored["status"], json!({"ok": true}));
    let version = stored["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    let unchanged = send(&server, "PATCH", &format!("{V1}/a"), "{}");
    assert_eq!(
        value(&unchanged).1["metadata"]["resourceVersion"],
        version,
        "nothing was written"
    );
    let put = {
        let mut put = value(&send(&server, "GET", &format!("{V1}/a"), "")).1;
        put["spec"]["text"] = "w".into();
        put["metadata"]["finalizers"] = json!(["example.com/f"]);
        put.to_string()
    };
    assert_eq!(send(&server, "PUT", &format!("{V1}/a"), &put).0, 200);
    assert_eq!(send(&server, "PUT", &format!("{V1}/a"), &put).0, 409);
    let (status, deleted) = value(&send(&server, "DELETE", &format!("{V1}/a"), ""));
    assert_eq!(
        (status, &deleted["spec"]["text"]),
        (200, &json!("w")),
        "{deleted}"
    );
    let finalized = send(
        &server,
        "PATCH",
        &format!("{V1}/a"),
        r#"{"metadata":{"finalizers":null}}"#,
    );
    assert_eq!(finalized.0, 200, "{}", finalized.1);
    assert_eq!(send(&server, "GET", &format!("{V2}/a"), "").0, 404);
    Ok(())
}

#[test]
fn another_webhook_ends_the_watches_whose_objects_the_previous_one_converts() -> TestResult {
    let start_hook = || HookServer::start(|_, review| Answer::Json(convert(review)));
    let (previous, next) = (start_hook(), start_hook());
    let server = start(&previous)?;
    let body = thing("v2", "a", &json!({"words": ["x"]}));
    let (status, created) = value(&send(&server, "POST", V2, &body));
    assert_eq!(status, 201, "{created}");
    let path = format!("{V1}?watch=true&timeoutSeconds=120");
    let mut watch = Watch::open(&server, &path);
    assert_eq!(watch.next().ok_or("an object")?["type"], "ADDED");

    let webhook = json!({"webhook": {"clientConfig": next.client_config("/convert")}});
    let change = json!({"spec": {"conversion": webhook}}).to_string();
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    assert_eq!(send(&server, "PATCH", definition, &change).0, 200);
    let (events, is_whole) = watch.rest();
    assert!(events.is_empty() && is_whole, "{events:?}");
    drop(previous);

    // Clients list again.
    let since = created["metadata"]["resourceVersion"].as_str();
    let since = format!("{path}&resourceVersion={}", since.unwrap_or_default());
    let event = Watch::open(&server, &since).next().ok_or("an event")?;
    assert_eq!(event["object"]["code"], 410, "{event}");
    let mut watch = Watch::open(&server, &path);
    assert_eq!(watch.next().ok_or("an object")?["type"], "ADDED");
    let other = r#"{"spec":{"words":["z"]}}"#;
    assert_eq!(send(&server, "PATCH", &format!("{V2}/a"), other).0, 200);
    let event = watch.next().ok_or("an event")?;
    assert_eq!(event["object"]["spec"]["text"], "z", "{event}");
    assert!(!next.take_requests().is_empty());
    Ok(())
}

#[test]
fn lists_are_converted_in_batches_and_once() -> TestResult {
    let hook = HookServer::start(|_, review| Answer::Json(convert(review)));
    let server = start(&hook)?;
    for number in 0..510 {
        let body = thing("v2", &format!("t{number:04}"), &json!({"words": ["a"]}));
        assert_eq!(send(&server, "POST", V2, &body).0, 201);
    }
    assert!(
        hook.take_requests().is_empty(),
        "the stored version needs no conversion"
    );
    for calls in [2, 0] {
        let (status, list) = value(&send(&server, "GET", V1, ""));
        assert_eq!(
            (status, list["items"].as_array().map(Vec::len)),
            (200, Some(510))
        );
        assert!(
            list["items"]
                .as_array()
                .into_iter()
                .flatten()
                .all(|item| item["spec"]["text"] == "a")
        );
        assert_eq!(hook.take_requests().len(), calls);
    }
    assert_eq!(hook.connections(), 1, "the connection is kept");
    let (_, page) = value(&send(&server, "GET", &format!("{V1}?limit=2"), ""));
    assert_eq!(page["metadata"]["remainingItemCount"], 508);
    assert_eq!(page["items"][1]["spec"]["text"], "a");
    let (status, deleted) = value(&send(&server, "DELETE", &format!("{V1}?limit=2"), ""));
    assert_eq!(
        (status, &deleted["items"][0]["spec"]["text"]),
        (200, &json!("a"))
    );
    Ok(())
}

#[test]
fn a_webhook_that_fails_is_an_error_of_the_request() -> TestResult {
    let behavior = Arc::new(std::sync::Mutex::new(Value::Null));
    let shared = behavior.clone();
    let hook = HookServer::start(move |_, review| {
        let edit = shared.lock().expect("no panic").clone();
        if let Some(kind) = edit.as_str() {
            return match kind {
                "close" => Answer::Close,
                "stream" => Answer::Stream,
                "garbage" => Answer::Raw(200, Vec::new(), "garbage".to_owned()),
                "empty" => Answer::Raw(200, Vec::new(), String::new()),
                "gzip" => {
                    let fields = vec![("content-encoding", "gzip".to_owned())];
                    Answer::Raw(200, fields, "\u{1f}bomb".to_owned())
                }
                "redirect" => {
                    let fields = vec![("location", "/convert".to_owned())];
                    Answer::Raw(307, fields, String::new())
                }
                _ => Answer::Raw(500, Vec::new(), "boom".to_owned()),
            };
        }
        let mut answer = convert(review);
        for (pointer, value) in edit.as_object().into_iter().flatten() {
            *answer.pointer_mut(pointer).expect("the field is there") = value.clone();
        }
        Answer::Json(answer)
    });
    let server = start(&hook)?;
    let body = thing("v2", "a", &json!({"words": ["a"]}));
    assert_eq!(send(&server, "POST", V2, &body).0, 201);
    let object = "/response/convertedObjects/0";
    let url = format!("Post \"https://{}/convert?timeout=30s\"", hook.address);
    let subject = "conversion webhook for example.com/v2, Kind=Thing";
    for (edit, expected) in [
        (json!("500"), "failed: an error on the server (\"boom\") has prevented the request from succeeding".to_owned()),
        (json!("close"), format!("failed: {url}: EOF")),
        (json!("stream"), "failed: the response body has more than 16777216 bytes".to_owned()),
        (json!("empty"), "failed: 0-length response with status code: 200 and content type: ".to_owned()),
        (json!("garbage"), "failed: couldn't get version/kind; json parse error: ".to_owned()),
        (json!("gzip"), "failed: couldn't get version/kind; json parse error: ".to_owned()),
        (json!("redirect"),
            "failed: Post \"/convert\": stopped after 10 redirects".to_owned()),
        (json!({"/response/uid": "x"}), "failed: expected response.uid=".to_owned()),
        (json!({"/response/result": {"status": "Failure", "message": "no"}}), "failed: no".to_owned()),
        (json!({"/response/convertedObjects": []}), "returned 0 objects, expected 1".to_owned()),
        (json!({format!("{object}/kind"): "Other"}),
            "returned invalid object at index 0: invalid kind (expected Thing, received Other)".to_owned()),
        (json!({format!("{object}/apiVersion"): "example.com/v3"}),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v1, received example.com/v3)"
                .to_owned()),
        (json!({format!("{object}/metadata/name"): "b"}),
            "returned invalid object: must have the same name: a != b".to_owned()),
        (json!({format!("{object}/metadata"): {"name": "a", "namespace": "default", "uid": "x"}}),
            "returned invalid object: must have the same UID: ".to_owned()),
    ] {
        *behavior.lock().expect("no panic") = edit.clone();
        let paths = [format!("{V1}/a"), V1.to_owned()];
        for path in paths {
            let (status, answer) = value(&send(&server, "GET", &path, ""));
            let message = answer["message"].as_str().unwrap_or_default();
            assert_eq!(status, 500, "{edit}");
            assert!(message.starts_with(&format!("{subject} {expected}")), "{edit}: {message}");
        }
        let created = send(&server, "POST", V1, &thing("v1", "c", &json!({"text": "c"})));
        assert_eq!(created.0, 500, "{edit}");
    }
    // The stored version needs no webhook, and nothing was half written.
    let (status, list) = value(&send(&server, "GET", V2, ""));
    assert_eq!(
        (status, list["items"].as_array().map(Vec::len)),
        (200, Some(1))
    );
    // A watch ends with the error.
    *behavior.lock().expect("no panic") = json!("500");
    let mut watch = Watch::open(&server, &format!("{V1}?watch=true"));
    let event = watch.next().expect("an event");
    assert_eq!(
        (event["type"].as_str(), &event["object"]["code"]),
        (Some("ERROR"), &json!(500))
    );
    // What is fixed works again.
    *behavior.lock().expect("no panic") = Value::Null;
    assert_eq!(send(&server, "GET", &format!("{V1}/a"), "").0, 200);
    Ok(())
}

#[test]
fn a_conversion_keeps_all_metadata_but_labels_and_annotations() -> TestResult {
    let hook = HookServer::start(|_, review| {
        let mut answer = convert(review);
        let objects = answer["response"]["convertedObjects"].as_array_mut();
        for object in objects.into_iter().flatten() {
            object["metadata"]["labels"] = json!({"by": "hook"});
            object["metadata"]["finalizers"] = json!(["hook/f"]);
            object["metadata"]["generation"] = 77.into();
        }
        Answer::Json(answer)
    });
    let server = start(&hook)?;
    let body = thing("v2", "a", &json!({"words": ["a"]}));
    assert_eq!(send(&server, "POST", V2, &body).0, 201);
    let (_, shown) = value(&send(&server, "GET", &format!("{V1}/a"), ""));
    assert_eq!(shown["metadata"]["labels"], json!({"by": "hook"}));
    assert_eq!(shown["metadata"]["finalizers"], Value::Null);
    assert_eq!(shown["metadata"]["generation"], 1);
    Ok(())
}

#[test]
fn a_write_is_answered_with_what_was_stored() -> TestResult {
    // The webhook keeps two words.
    let hook = HookServer::start(|_, review| {
        let mut answer = convert(review);
        let objects = answer["response"]["convertedObjects"].as_array_mut();
        for object in objects.into_iter().flatten() {
            if let Some(words) = object["spec"]["words"].as_array_mut() {
                words.truncate(2);
            }
        }
        Answer::Json(answer)
    });
    let server = start(&hook)?;
    let expect = |method: &str, path: &str, body: &str, text: &str| {
        let (status, object) = value(&send(&server, method, path, body));
        assert!(matches!(status, 200 | 201), "{object}");
        let spec = json!({"text": text, "size": 1});
        assert_eq!(object["spec"], spec, "{method} {path}: {object}");
        assert_eq!(object["apiVersion"], "example.com/v1");
        object
    };
    let body = thing("v1", "a", &json!({"text": "a b c"}));
    expect("POST", &format!("{V1}?dryRun=All"), &body, "a b");
    let created = expect("POST", V1, &body, "a b");
    let one = format!("{V1}/a");
    assert_eq!(expect("GET", &one, "", "a b"), created);
    let patch = r#"{"spec":{"text":"d e f"},"metadata":{"finalizers":["example.com/f"]}}"#;
    expect("PATCH", &format!("{one}?dryRun=All"), patch, "d e");
    let patched = expect("PATCH", &one, patch, "d e");
    assert_eq!(expect("GET", &one, "", "d e"), patched);
    let deleted = expect("DELETE", &one, "", "d e");
    assert_eq!(expect("GET", &one, "", "d e"), deleted);
    Ok(())
}

#[test]
fn a_write_that_changes_nothing_stores_the_newest_form_once() -> TestResult {
    const JSON_PATCH: &str = "Content-Type: application/json-patch+json\r\n";
    let hook = HookServer::start(|_, review| Answer::Json(convert(review)));
    let server = start(&hook)?;
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    let change = |patch: &Value| {
        let text = patch.to_string();
        let (status, answer) = exchange(server.endpoint(), "PATCH", definition, JSON_PATCH, &text);
        assert_eq!(status, 200, "{answer}");
    };
    let body = thing("v2", "a", &json!({"words": ["a"]}));
    assert_eq!(send(&server, "POST", V2, &body).0, 201);
    // A write of what was read has a resource version of its own once.
    let write_twice = |path: &str| {
        let (_, read) = value(&send(&server, "GET", path, ""));
        let mut versions = vec![read["metadata"]["resourceVersion"].clone()];
        for _ in 0..2 {
            let (_, read) = value(&send(&server, "GET", path, ""));
            let (status, written) = value(&send(&server, "PUT", path, &read.to_string()));
            assert_eq!(status, 200, "{written}");
            versions.push(written["metadata"]["resourceVersion"].clone());
        }
        assert!(versions[0] != versions[1], "{path}: {versions:?}");
        assert_eq!(versions[1], versions[2], "{path}");
    };
    let one = format!("{V2}/a");
    for (field, written) in [("more", one.clone()), ("other", format!("{V1}/a"))] {
        change(&json!([{
            "op": "add",
            "path": format!("/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/{field}"),
            "value": {"type": "string", "default": "x"},
        }]));
        while value(&send(&server, "GET", &one, "")).1["spec"][field] != "x" {
            thread::yield_now();
        }
        write_twice(&written);
    }
    // The same for objects of an earlier storage version, whichever version they are written in.
    change(&json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": true},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": false},
    ]));
    let stored = || {
        let engine = server.engine().expect("embedded");
        let found = engine.range(&Range::of(KeyRange::all())).expect("a range");
        let found = found
            .kvs
            .iter()
            .filter(|kv| kv.value().starts_with(br#"{"apiVersion":"example.com/"#));
        let texts = found.map(|kv| String::from_utf8_lossy(kv.value())[..30].to_owned());
        texts.collect::<Vec<_>>().concat()
    };
    assert!(stored().contains("example.com/v2"), "{}", stored());
    while !stored().contains("example.com/v1") {
        let (status, read) = value(&send(&server, "GET", &one, ""));
        if status != 200 {
            // The resource is loading.
            continue;
        }
        let (status, answer) = send(&server, "PUT", &one, &read.to_string());
        assert!([200, 404, 409, 429].contains(&status), "{answer}");
    }
    Ok(())
}

#[test]
fn what_a_webhook_returns_has_the_fields_of_the_version() -> TestResult {
    let hook = HookServer::start(|_, review| {
        let mut answer = convert(review);
        let objects = answer["response"]["convertedObjects"].as_array_mut();
        for object in objects.into_iter().flatten() {
            object["spec"]["odd"] = "hook".into();
            object["spec"]
                .as_object_mut()
                .expect("a spec")
                .remove("size");
        }
        Answer::Json(answer)
    });
    let server = start(&hook)?;
    let body = thing("v2", "a", &json!({"words": ["a"], "size": 3}));
    assert_eq!(send(&server, "POST", V2, &body).0, 201);
    let (_, shown) = value(&send(&server, "GET", &format!("{V1}/a"), ""));
    assert_eq!(shown["spec"], json!({"text": "a"}));
    let body = thing("v1", "b", &json!({"text": "b", "size": 3}));
    assert_eq!(send(&server, "POST", V1, &body).0, 201);
    let (_, stored) = value(&send(&server, "GET", &format!("{V2}/b"), ""));
    assert_eq!(stored["spec"], json!({"words": ["b"], "size": 1}));
    Ok(())
}

#[test]
fn policies_see_and_change_objects_in_the_version_of_their_rules() -> TestResult {
    let fails = Arc::new(AtomicBool::new(false));
    let shared = fails.clone();
    let hook = HookServer::start(move |_, review| {
        if shared.load(Ordering::SeqCst) {
            return Answer::Raw(500, Vec::new(), "boom".to_owned());
        }
        Answer::Json(convert(review))
    });
    let server = start(&hook)?;
    let rules = json!({"matchPolicy": "Equivalent", "resourceRules": [{"apiGroups": ["example.com"],
        "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["things"]}]});
    let configure = |kind: &str, spec: Value, binding: Value| {
        for (kind, spec) in [(kind.to_owned(), spec), (format!("{kind}Binding"), binding)] {
            let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": "p"}, "spec": spec});
            let plural = kind.to_lowercase().replace("policy", "policies");
            let plural = plural.replace("policiesbinding", "policybindings");
            let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
            let (status, answer) = send(&server, "POST", &path, &object.to_string());
            assert_eq!(status, 201, "{answer}");
        }
    };
    let validation = json!({"expression": "object.spec.text != 'bad' && (oldObject == null || oldObject.spec.text != '')",
        "message": "bad text"});
    configure(
        "ValidatingAdmissionPolicy",
        json!({"matchConstraints": rules, "validations": [validation]}),
        json!({"policyName": "p", "validationActions": ["Deny"]}),
    );
    let post = |name: &str, words: Value| {
        let body = thing("v2", name, &json!({"words": words}));
        value(&send(&server, "POST", V2, &body))
    };
    let (status, created) = post("a", json!(["ok"]));
    assert_eq!(status, 201, "{created}");
    let (status, refused) = post("b", json!(["bad"]));
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(status == 422 && message.ends_with("bad text"), "{refused}");
    let path = format!("{V2}/a");
    let patched = value(&send(&server, "PATCH", &path, r#"{"spec":{"size":2}}"#));
    assert_eq!(patched.0, 200, "{}", patched.1);

    let mutations = json!([
        {"patchType": "ApplyConfiguration", "applyConfiguration":
            {"expression": "Object{spec: Object.spec{text: object.spec.text + ' one'}}"}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression":
            "[JSONPatch{op: 'replace', path: '/spec/text', value: object.spec.text + ' two'}]"}},
    ]);
    configure(
        "MutatingAdmissionPolicy",
        json!({"matchConstraints": rules, "reinvocationPolicy": "Never", "failurePolicy": "Fail", "mutations": mutations}),
        json!({"policyName": "p"}),
    );
    let (status, created) = post("c", json!(["x"]));
    assert_eq!(status, 201, "{created}");
    assert_eq!(created["apiVersion"], "example.com/v2");
    assert_eq!(created["spec"]["words"], json!(["x", "one", "two"]));

    fails.store(true, Ordering::SeqCst);
    let (status, refused) = post("d", json!(["x"]));
    let message = refused["message"].as_str().unwrap_or_default();
    let expected = "denied request: failed to configure policy: conversion webhook for example.com/v2, Kind=Thing failed";
    assert!(status == 403 && message.contains(expected), "{refused}");
    let policy = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/p";
    assert_eq!(send(&server, "DELETE", policy, "").0, 200);
    let (status, refused) = post("d", json!(["x"]));
    let message = refused["message"].as_str().unwrap_or_default();
    let expected = "denied request: failed to configure binding: failed to convert object version: conversion webhook";
    assert!(status == 422 && message.contains(expected), "{refused}");
    Ok(())
}

#[test]
fn certificates_are_verified_and_can_be_renewed() -> TestResult {
    let authority = Authority::new();
    let hook = HookServer::with_identity(
        authority.issue(&["127.0.0.1"], |params| {
            params.not_before = rcgen::date_time_ymd(2019, 1, 1);
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }),
        authority.bundle(),
        &[],
        |_, review| Answer::Json(convert(review)),
    );
    let server = start(&hook)?;
    let body = thing("v2", "a", &json!({"words": ["a"]}));
    assert_eq!(send(&server, "POST", V2, &body).0, 201);
    let read = || {
        let (status, answer) = value(&send(&server, "GET", &format!("{V1}/a"), ""));
        (
            status,
            answer["message"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let expect = |expected: &str| {
        let (status, message) = read();
        assert_eq!(status, 500);
        let prefix = "tls: failed to verify certificate: x509: ";
        assert!(
            message.contains(&format!("{prefix}{expected}")),
            "{message}"
        );
    };
    expect("certificate has expired or is not yet valid: current time ");
    hook.renew(authority.issue(&["127.0.0.2"], |_| {}));
    expect("certificate is valid for 127.0.0.2, not 127.0.0.1");
    hook.renew(authority.issue(&["localhost"], |_| {}));
    expect("cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs");
    hook.renew(Authority::new().issue(&["127.0.0.1"], |_| {}));
    expect("certificate signed by unknown authority");
    hook.renew(authority.issue(&["127.0.0.1"], |_| {}));
    assert_eq!(read().0, 200);
    Ok(())
}

#[test]
fn a_certificate_that_has_signed_itself_and_http2_are_accepted() -> TestResult {
    let (identity, bundle) = Identity::self_signed(&["127.0.0.1"]);
    let hook = HookServer::with_identity(identity, bundle, &[b"h2"], |_, review| {
        Answer::Json(convert(review))
    });
    let server = start(&hook)?;
    let created = send(
        &server,
        "POST",
        V1,
        &thing("v1", "a", &json!({"text": "a"})),
    );
    assert_eq!(created.0, 201, "{}", created.1);
    Ok(())
}

#[test]
fn a_certificate_that_is_itself_trusted_is_accepted() -> TestResult {
    // As with envtest: the bundle is the certificate, which an authority has signed that it does not contain.
    for (names, year, expected) in [
        (["127.0.0.1"], 4096, None),
        (
            ["127.0.0.2"],
            4096,
            Some("certificate is valid for 127.0.0.2, not 127.0.0.1"),
        ),
        (
            ["127.0.0.1"],
            2020,
            Some("certificate has expired or is not yet valid"),
        ),
    ] {
        let identity = Authority::new().issue(&names, |params| {
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
        });
        let bundle = identity.bundle();
        let hook = HookServer::with_identity(identity, bundle, &[], |_, review| {
            Answer::Json(convert(review))
        });
        let server = start(&hook)?;
        let body = thing("v1", "a", &json!({"text": "a"}));
        let (status, answer) = send(&server, "POST", V1, &body);
        match expected {
            None => assert_eq!(status, 201, "{answer}"),
            Some(expected) => {
                assert_eq!(status, 500);
                assert!(answer.contains(expected), "{answer}");
            }
        }
    }
    Ok(())
}

#[test]
fn services_are_found_by_the_flag_or_not_at_all() -> TestResult {
    let hook = HookServer::start(|_, review| Answer::Json(convert(review)));
    let service = json!({"service": {"namespace": "system", "name": "hooks", "path": "/convert"},
        "caBundle": hook.bundle});
    let create =
        |server: &ApiServer| send(server, "POST", V1, &thing("v1", "a", &json!({"text": "a"})));
    let server = start_with(&service)?;
    let (status, message) = create(&server);
    assert_eq!(status, 500);
    let expected =
        r#"Post \"https://hooks.system.svc:443/convert?timeout=30s\": service \"hooks\" not found"#;
    assert!(message.contains(expected), "{message}");

    let directory = tempfile::tempdir()?;
    let text = definition(&service).to_string();
    std::fs::write(directory.path().join("things.json"), text)?;
    let route = format!("system/hooks:443={}", hook.address).parse()?;
    let builder = ApiServer::builder().load(directory.path());
    let server = builder.webhook_route(route).start()?;
    assert_eq!(create(&server).0, 201);
    Ok(())
}

#[test]
fn a_definition_is_deleted_while_its_webhook_fails() -> TestResult {
    let fails = Arc::new(AtomicBool::new(false));
    let shared = fails.clone();
    let hook = HookServer::start(move |_, review| {
        if shared.load(Ordering::SeqCst) {
            Answer::Close
        } else {
            Answer::Json(convert(review))
        }
    });
    let server = start(&hook)?;
    let created = send(
        &server,
        "POST",
        V1,
        &thing("v1", "a", &json!({"text": "a"})),
    );
    assert_eq!(created.0, 201, "{}", created.1);
    fails.store(true, Ordering::SeqCst);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    // The watch may begin after the deletion.
    let (_, list) = value(&send(&server, "GET", path, ""));
    let version = list["metadata"]["resourceVersion"].as_str();
    let version = version.unwrap_or_default();
    let mut watch = Watch::open(
        &server,
        &format!("{path}?watch=true&resourceVersion={version}"),
    );
    assert_eq!(
        send(&server, "DELETE", &format!("{path}/things.example.com"), "").0,
        200
    );
    while watch.next().expect("an event")["type"] != "DELETED" {}
    Ok(())
}

#[test]
fn a_webhook_that_hangs_costs_the_time_of_the_request() -> TestResult {
    let hook = HookServer::start(|_, _| Answer::Hang);
    let directory = tempfile::tempdir()?;
    let text = definition(&hook.client_config("/")).to_string();
    std::fs::write(directory.path().join("things.json"), text)?;
    let server = ApiServer::builder().load(directory.path()).start()?;
    let path = format!("{V1}?timeout=100ms");
    let (status, answer) = value(&send(
        &server,
        "POST",
        &path,
        &thing("v1", "a", &json!({"text": "a"})),
    ));
    assert_eq!((status, &answer["reason"]), (504, &json!("Timeout")));
    let (_, list) = value(&send(&server, "GET", V2, ""));
    assert_eq!(list["items"], json!([]));
    Ok(())
}

#[test]
fn entries_are_compared_in_the_versions_that_a_webhook_makes() -> TestResult {
    let fails = Arc::new(AtomicBool::new(false));
    let shared = fails.clone();
    let hook = HookServer::start(move |_, review| {
        if shared.load(Ordering::SeqCst) {
            return Answer::Raw(500, Vec::new(), "boom".to_owned());
        }
        Answer::Json(convert(review))
    });
    let server = start(&hook)?;
    let apply = |version: &str, manager: &str, spec: &Value| {
        let path = format!(
            "{}/a?fieldManager={manager}",
            if version == "v1" { V1 } else { V2 }
        );
        let fields = "Content-Type: application/apply-patch+yaml\r\n";
        let body = thing(version, "a", spec);
        value(&exchange(server.endpoint(), "PATCH", &path, fields, &body))
    };
    let owners = |object: &Value| -> Vec<(String, String, Value)> {
        let entries = object["metadata"]["managedFields"].as_array();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let entries = entries.into_iter().flatten().map(|entry| {
            let spec = entry["fieldsV1"]["f:spec"].clone();
            (text(&entry["manager"]), text(&entry["apiVersion"]), spec)
        });
        // A manager whose apply changes nothing has no time, by which entries are sorted.
        let mut owners: Vec<_> = entries.collect();
        owners.sort_by_cached_key(|owner: &(String, String, Value)| owner.0.clone());
        owners
    };
    let entry = |manager: &str, version: &str, fields: Value| {
        (manager.to_owned(), format!("example.com/{version}"), fields)
    };
    let (status, made) = apply("v1", "one", &json!({"text": "x y", "size": 2}));
    assert_eq!(status, 201, "{made}");
    // The words of version 2 are the text of version 1.
    let (status, conflict) = apply("v2", "two", &json!({"words": ["z"]}));
    let message = "Apply failed with 1 conflict: conflict with \"one\": .spec.text";
    assert_eq!((status, &conflict["message"]), (409, &json!(message)));
    let (status, shared) = apply("v2", "two", &json!({"words": ["x", "y"]}));
    assert_eq!(status, 200, "{shared}");
    let (text, size) = (json!({"f:size": {}, "f:text": {}}), json!({"f:size": {}}));
    let words = json!({"f:words": {}});
    let expected = vec![entry("one", "v1", text), entry("two", "v2", words.clone())];
    assert_eq!(owners(&shared), expected);
    // A manager that goes on in another version gives up what it applied in the first one.
    let (status, moved) = apply("v2", "one", &json!({"words": ["x", "y"]}));
    assert_eq!(status, 200, "{moved}");
    let expected = vec![entry("one", "v2", words.clone()), entry("two", "v2", words)];
    assert_eq!(owners(&moved), expected);
    assert_eq!(moved["spec"], json!({"words": ["x", "y"], "size": 1}));
    // Updates take fields from managers of other versions.
    let (status, made) = apply("v1", "one", &json!({"size": 3}));
    assert_eq!(status, 200, "{made}");
    let patch = r#"{"spec":{"size":4}}"#;
    let object = format!("{V2}/a?fieldManager=three");
    let (_, patched) = value(&send(&server, "PATCH", &object, patch));
    let expected = vec![
        entry("three", "v2", size.clone()),
        entry("two", "v2", json!({"f:words": {}})),
    ];
    assert_eq!(owners(&patched), expected, "{patched}");
    let (status, made) = apply("v1", "one", &json!({"size": 4}));
    assert_eq!(status, 200, "{made}");
    // Without its webhook an update in the stored version loses the entries, and an apply fails.
    fails.store(true, Ordering::SeqCst);
    let (status, failed) = apply("v2", "two", &json!({"words": ["x", "y"]}));
    let message = failed["message"].as_str().unwrap_or_default();
    let expected = "conversion webhook for example.com/v2, Kind=Thing failed: ";
    assert!(status == 500 && message.starts_with(expected), "{failed}");
    let (status, untracked) = value(&send(&server, "PATCH", &object, r#"{"spec":{"size":5}}"#));
    assert_eq!(
        (status, owners(&untracked)),
        (200, Vec::new()),
        "{untracked}"
    );
    Ok(())
}
