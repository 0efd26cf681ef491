//! Admission webhooks.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use revstore_apiserver::ApiServer;
use revstore_engine::ManualClock;
use serde_json::{Value, json};

use crate::client::exchange::exchange;
use crate::client::{TestResult, send, send_to, value};
use crate::hook_server::{Answer, Authority, HookServer};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// Creates a configuration with one webhook for all requests about config maps, changed by `changes`.
fn configure(server: &ApiServer, kind: &str, name: &str, client_config: &Value, changes: &Value) {
    let mut webhook = json!({
        "name": format!("{name}.example.com"), "clientConfig": client_config, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    });
    for (field, value) in changes.as_object().into_iter().flatten() {
        webhook[field] = value.clone();
    }
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": name}, "webhooks": [webhook],
    });
    let plural = format!("{}webhookconfigurations", kind.to_lowercase());
    let created = send(
        server,
        "POST",
        &format!("{GROUP}/{plural}"),
        &configuration.to_string(),
    );
    assert_eq!(created.0, 201, "{}", created.1);
}

/// Returns the answer to a review.
fn verdict(review: &Value, response: Value) -> Value {
    let mut response = response;
    response["uid"] = review["request"]["uid"].clone();
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
}

fn patched(review: &Value, patch: &Value) -> Answer {
    let patch = STANDARD.encode(patch.to_string());
    let response = json!({"allowed": true, "patchType": "JSONPatch", "patch": patch});
    Answer::Json(verdict(review, response))
}

fn map(name: &str) -> String {
    json!({"metadata": {"name": name, "labels": {"l": "x"}}, "data": {"a": "1"}}).to_string()
}

#[test]
fn webhooks_change_and_refuse_objects() -> TestResult {
    let hook = HookServer::start(|path, review| {
        let request = &review["request"];
        match path {
            "/mutate" if request["operation"] == "CREATE" => patched(
                review,
                &json!([{"op": "add", "path": "/data/b", "value": "2"}]),
            ),
            "/mutate" => Answer::Json(verdict(review, json!({"allowed": true, "warnings": ["w"]}))),
            _ => {
                let is_bad = request["object"]["data"]["a"] == "bad"
                    || request["oldObject"]["data"]["a"] == "keep";
                let status = json!({"message": "no", "code": 403, "reason": "Forbidden"});
                Answer::Json(verdict(
                    review,
                    json!({"allowed": !is_bad, "status": status}),
                ))
            }
        }
    });
    let server = ApiServer::builder().start()?;
    configure(
        &server,
        "Mutating",
        "m",
        &hook.client_config("/mutate"),
        &json!({}),
    );
    configure(
        &server,
        "Validating",
        "v",
        &hook.client_config("/validate"),
        &json!({}),
    );
    let (status, created) = value(&send(&server, "POST", MAPS, &map("a")));
    assert_eq!(
        (status, &created["data"]),
        (201, &json!({"a": "1", "b": "2"})),
        "{created}"
    );
    let requests = hook.take_requests();
    let paths: Vec<&str> = requests.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/mutate", "/validate"]);
    let request = &requests[1].1["request"];
    assert_eq!(
        request["kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    assert_eq!(
        request["resource"],
        json!({"group": "", "version": "v1", "resource": "configmaps"})
    );
    assert_eq!(
        (&request["name"], &request["namespace"]),
        (&json!("a"), &json!("default"))
    );
    assert_eq!(
        (&request["operation"], &request["dryRun"]),
        (&json!("CREATE"), &json!(false))
    );
    assert_eq!(request["userInfo"]["username"], "admin");
    assert_eq!(request["options"]["kind"], "CreateOptions");
    assert_eq!(
        (&request["object"]["data"]["b"], &request["oldObject"]),
        (&json!("2"), &Value::Null)
    );

    let first = &requests[0].1["request"]["object"];
    assert_eq!(
        (&first["apiVersion"], &first["kind"]),
        (&json!("v1"), &json!("ConfigMap"))
    );
    assert_eq!(first["metadata"]["namespace"], "default");

    let one = format!("{MAPS}/a");
    let (status, refused) = value(&send(&server, "PATCH", &one, r#"{"data":{"a":"bad"}}"#));
    let message = "admission webhook \"v.example.com\" denied the request: no";
    assert_eq!(
        (status, &refused["message"]),
        (403, &json!(message)),
        "{refused}"
    );
    assert_eq!(
        (&refused["reason"], &refused["code"]),
        (&json!("Forbidden"), &json!(403))
    );
    assert_eq!(
        send(&server, "PATCH", &one, r#"{"data":{"a":"keep"}}"#).0,
        200
    );
    hook.take_requests();
    assert_eq!(send(&server, "DELETE", &one, "").0, 403);
    let requests = hook.take_requests();
    let request = &requests[requests.len() - 1].1["request"];
    assert_eq!(
        (&request["operation"], &request["object"]),
        (&json!("DELETE"), &Value::Null)
    );
    assert_eq!(request["oldObject"]["data"]["a"], "keep");
    Ok(())
}

#[test]
fn a_webhook_that_fails_is_met_by_its_policy() -> TestResult {
    let behavior = Arc::new(Mutex::new("close"));
    let shared = behavior.clone();
    let hook = HookServer::start(move |_, review| {
        let response = json!({"allowed": true});
        match *shared.lock().expect("no panic") {
            "close" => Answer::Close,
            "stream" => Answer::Stream,
            "hang" => Answer::Hang,
            "garbage" => Answer::Raw(200, Vec::new(), "garbage".to_owned()),
            "redirect" => {
                let fields = vec![("location", "/".to_owned())];
                Answer::Raw(302, fields, String::new())
            }
            "absent" => Answer::Json(
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}),
            ),
            "uid" => {
                let mut answer = verdict(review, response);
                answer["response"]["uid"] = "x".into();
                Answer::Json(answer)
            }
            "type" => Answer::Json(verdict(review, json!({"allowed": true, "patch": "W10="}))),
            "undecodable" => patched(review, &json!("no patch")),
            "kind" => patched(
                review,
                &json!([{"op": "replace", "path": "/kind", "value": "Secret"}]),
            ),
            "missing" => patched(review, &json!([{"op": "remove", "path": "/none"}])),
            _ => Answer::Raw(500, Vec::new(), "boom".to_owned()),
        }
    });
    let server = ApiServer::builder().start()?;
    let once = json!({"timeoutSeconds": 1});
    configure(&server, "Mutating", "m", &hook.client_config("/"), &once);
    let called = "Internal error occurred: failed calling webhook \"m.example.com\": failed to call webhook: ";
    let invalid = "Internal error occurred: failed calling webhook \"m.example.com\": received invalid webhook response: ";
    let url = format!("Post \"https://{}/?timeout=1s\"", hook.address);
    let cases = [
        ("close", format!("{called}{url}: EOF"), true),
        ("500", format!("{called}an error on the server (\"boom\") has prevented"), true),
        ("stream", called.to_owned(), true),
        ("hang", format!("{called}{url}: context deadline exceeded"), true),
        ("garbage", format!("{called}couldn't get version/kind; json parse error: "), true),
        ("redirect", format!("{called}Post \"/\": stopped after 10 redirects"), true),
        ("absent", format!("{invalid}webhook response was absent"), true),
        ("uid", format!("{invalid}expected response.uid="), true),
        ("type", format!("{invalid}webhook returned response.patch but not response.patchType"), true),
        ("undecodable", "Internal error occurred: failed calling webhook \"m.example.com\": received undecodable patch \
            in webhook response: ".to_owned(), true),
        ("kind", "Internal error occurred: no kind \"Secret\" is registered for version \"v1\"".to_owned(), false),
        ("missing", "Internal error occurred: ".to_owned(), false),
    ];
    for (kind, expected, _) in &cases {
        *behavior.lock().expect("no panic") = kind;
        let (status, answer) = value(&send(&server, "POST", MAPS, &map("a")));
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!(
            (status, &answer["reason"]),
            (500, &json!("InternalError")),
            "{kind}: {answer}"
        );
        assert!(message.starts_with(expected), "{kind}: {message}");
    }
    let configuration = format!("{GROUP}/mutatingwebhookconfigurations/m");
    let ignore = r#"{"metadata":{"finalizers":null}}"#;
    assert_eq!(send(&server, "PATCH", &configuration, ignore).0, 200);
    assert_eq!(send(&server, "DELETE", &configuration, "").0, 200);
    let ignored = json!({"timeoutSeconds": 1, "failurePolicy": "Ignore"});
    configure(&server, "Mutating", "m", &hook.client_config("/"), &ignored);
    for (kind, _, is_ignored) in &cases {
        *behavior.lock().expect("no panic") = kind;
        let (status, _) = send(&server, "POST", MAPS, &map(kind));
        assert_eq!(status, if *is_ignored { 201 } else { 500 }, "{kind}");
    }
    Ok(())
}

#[test]
fn answers_of_all_statuses_of_success_are_read_to_their_end() -> TestResult {
    let hook = HookServer::start(|path, review| {
        let text = verdict(review, json!({"allowed": true})).to_string();
        let status = path.trim_start_matches('/').parse().expect("a status");
        let fields = vec![("content-type", "application/json".to_owned())];
        Answer::Raw(status, fields, format!("{}{text}", " ".repeat(1 << 20)))
    });
    let server = ApiServer::builder().start()?;
    for status in [200, 201, 202, 203, 206] {
        let name = format!("v{status}");
        let config = hook.client_config(&format!("/{status}"));
        configure(&server, "Validating", &name, &config, &json!({}));
        let (code, answer) = send(&server, "POST", MAPS, &map(&name));
        assert_eq!(code, 201, "{status}: {answer}");
    }
    assert_eq!(hook.take_requests().len(), 1 + 2 + 3 + 4 + 5);
    Ok(())
}

#[test]
fn connections_are_shared_kept_and_replaced_over_both_versions_of_http() -> TestResult {
    let protocols: [&[&[u8]]; 2] = [&[b"h2"], &[b"http/1.1"]];
    for protocols in protocols {
        let authority = Authority::new();
        let identity = authority.issue(&["127.0.0.1"], |_| {});
        let hook =
            HookServer::with_identity(identity, authority.bundle(), protocols, |_, review| {
                Answer::Json(verdict(review, json!({"allowed": true})))
            });
        let server = ApiServer::builder().start()?;
        let config = hook.client_config("/");
        configure(&server, "Mutating", "a", &config, &json!({}));
        configure(&server, "Validating", "b", &config, &json!({}));
        assert_eq!(send(&server, "POST", MAPS, &map("first")).0, 201);
        // Over HTTP/1.1 a call may open a connection and then get one that has become idle.
        let is_http2 = protocols[0] == b"h2";
        let most = |connections: usize| if is_http2 { connections } else { 10 };
        assert!(hook.connections() <= most(1));
        // Bodies that are larger than the windows of HTTP/2.
        let text = "x".repeat(100 << 10);
        thread::scope(|scope| {
            for writer in 0..4 {
                let (server, text) = (&server, &text);
                scope.spawn(move || {
                    for number in 0..5 {
                        let name = format!("w{writer}-{number}");
                        let map = json!({"metadata": {"name": name}, "data": {"a": text}});
                        let (status, answer) = send(server, "POST", MAPS, &map.to_string());
                        assert_eq!(status, 201, "{answer}");
                    }
                });
            }
        });
        assert_eq!(hook.take_requests().len(), 2 * 21);
        let opened = hook.connections();
        assert!(opened <= most(1), "{opened}");
        hook.disconnect();
        // A call may use a connection of which the server has not seen the end.
        let is_written = |_| send(&server, "POST", MAPS, &map("after")).0 == 201;
        assert!((0..100).any(is_written));
        let (status, answer) = send(&server, "POST", MAPS, &map("again"));
        assert_eq!(status, 201, "{answer}");
        let again = hook.connections() - opened;
        assert!((1..=most(1)).contains(&again), "{again}");
    }
    Ok(())
}

#[test]
fn an_apply_that_is_refused_as_not_found_ends() -> TestResult {
    let hook = HookServer::start(|_, review| {
        let status = json!({"code": 404, "reason": "NotFound", "message": "no"});
        Answer::Json(verdict(review, json!({"allowed": false, "status": status})))
    });
    let server = ApiServer::builder().start()?;
    assert_eq!(send(&server, "POST", MAPS, &map("a")).0, 201);
    configure(
        &server,
        "Validating",
        "v",
        &hook.client_config("/"),
        &json!({}),
    );
    let fields = "Content-Type: application/apply-patch+yaml\r\n";
    let path = |name: &str| format!("{MAPS}/{name}?fieldManager=m&force=true");
    // The object exists, or is created.
    for name in ["a", "b"] {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "2"}});
        let answer = exchange(
            server.endpoint(),
            "PATCH",
            &path(name),
            fields,
            &body.to_string(),
        );
        let (code, answer) = value(&answer);
        let message = "admission webhook \"v.example.com\" denied the request: no";
        assert_eq!((code, &answer["message"]), (404, &json!(message)), "{name}");
        assert_eq!(hook.take_requests().len(), 1, "{name}");
    }
    Ok(())
}

#[test]
fn a_failing_webhook_for_everything_can_be_removed() -> TestResult {
    let hook = HookServer::start(|_, _| Answer::Close);
    let server = ApiServer::builder().start()?;
    let all = json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]});
    configure(&server, "Validating", "v", &hook.client_config("/"), &all);
    assert_eq!(send(&server, "POST", MAPS, &map("a")).0, 500);
    let path = format!("{GROUP}/validatingwebhookconfigurations/v");
    assert_eq!(send(&server, "DELETE", &path, "").0, 200);
    assert_eq!(send(&server, "POST", MAPS, &map("a")).0, 201);
    Ok(())
}

#[test]
fn a_webhook_may_use_the_server_and_lose_its_configuration_within_its_call() -> TestResult {
    let url: Arc<OnceLock<String>> = Arc::default();
    let shared = url.clone();
    let hook = HookServer::start(move |_, review| {
        if review["request"]["name"] == "outer" {
            let url = shared.get().expect("the server runs");
            assert_eq!(send_to(url, "POST", MAPS, &map("inner")).0, 201);
            let path = format!("{GROUP}/mutatingwebhookconfigurations/m");
            assert_eq!(send_to(url, "DELETE", &path, "").0, 200);
        }
        Answer::Json(verdict(review, json!({"allowed": true})))
    });
    let server = ApiServer::builder()
        .max_mutating_requests_inflight(1)
        .start()?;
    url.set(server.endpoint().to_owned())
        .expect("it is set once");
    configure(
        &server,
        "Mutating",
        "m",
        &hook.client_config("/"),
        &json!({}),
    );
    assert_eq!(send(&server, "POST", MAPS, &map("outer")).0, 201);
    assert_eq!(send(&server, "GET", &format!("{MAPS}/inner"), "").0, 200);
    assert_eq!(hook.take_requests().len(), 2);
    Ok(())
}

#[test]
fn webhooks_that_undo_each_other_are_asked_twice() -> TestResult {
    let hook = HookServer::start(|path, review| {
        let data = json!([{"op": "replace", "path": "/data/a", "value": path}]);
        patched(review, &data)
    });
    let server = ApiServer::builder().start()?;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    configure(&server, "Mutating", "b", &hook.client_config("/b"), &again);
    configure(&server, "Mutating", "a", &hook.client_config("/a"), &again);
    configure(
        &server,
        "Mutating",
        "c",
        &hook.client_config("/c"),
        &json!({}),
    );
    let (status, created) = value(&send(&server, "POST", MAPS, &map("x")));
    assert_eq!(status, 201, "{created}");
    let requests = hook.take_requests();
    let paths: Vec<&str> = requests.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/a", "/b", "/c", "/a", "/b"]);
    assert_eq!(created["data"]["a"], "/b");
    Ok(())
}

#[test]
fn webhooks_are_called_for_what_they_select() -> TestResult {
    let hook =
        HookServer::start(|_, review| Answer::Json(verdict(review, json!({"allowed": true}))));
    let server = ApiServer::builder().start()?;
    let config = |path: &str| hook.client_config(path);
    let expression = |key: &str, operator: &str| json!({"matchExpressions": [{"key": key, "operator": operator}]});
    let cluster = json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
        "resources": ["*"], "scope": "Cluster"}]});
    configure(
        &server,
        "Validating",
        "a",
        &config("/object"),
        &json!({"objectSelector": expression("l", "Exists")}),
    );
    configure(
        &server,
        "Validating",
        "b",
        &config("/other"),
        &json!({"objectSelector": expression("z", "Exists")}),
    );
    configure(
        &server,
        "Validating",
        "c",
        &config("/namespace"),
        &json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}),
    );
    configure(
        &server,
        "Validating",
        "d",
        &config("/elsewhere"),
        &json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "else"}}}),
    );
    configure(&server, "Validating", "e", &config("/cluster"), &cluster);
    configure(
        &server,
        "Validating",
        "f",
        &config("/effects"),
        &json!({"sideEffects": "NoneOnDryRun"}),
    );
    let called = || {
        let mut paths: Vec<String> = hook
            .take_requests()
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        paths.sort();
        paths
    };
    assert_eq!(send(&server, "POST", MAPS, &map("a")).0, 201);
    assert_eq!(called(), ["/effects", "/namespace", "/object"]);
    assert_eq!(
        send(&server, "POST", &format!("{MAPS}?dryRun=All"), &map("b")).0,
        201
    );
    assert_eq!(called(), ["/effects", "/namespace", "/object"]);
    let namespace = r#"{"metadata":{"name":"n"}}"#;
    assert_eq!(
        send(&server, "POST", "/api/v1/namespaces", namespace).0,
        201
    );
    assert_eq!(called(), ["/cluster"]);
    Ok(())
}

#[test]
fn match_conditions_say_which_requests_a_webhook_sees() -> TestResult {
    let hook =
        HookServer::start(|_, review| Answer::Json(verdict(review, json!({"allowed": true}))));
    let server = ApiServer::builder().start()?;
    let conditions = |expressions: &[&str]| {
        let conditions = expressions.iter().enumerate();
        let conditions = conditions.map(
            |(index, expression)| json!({"name": format!("c{index}"), "expression": expression}),
        );
        json!({"matchConditions": conditions.collect::<Vec<_>>()})
    };
    let add = |name: &str, expressions: &[&str], policy: &str| {
        let mut changes = conditions(expressions);
        changes["failurePolicy"] = policy.into();
        let config = hook.client_config(&format!("/{name}"));
        configure(&server, "Validating", name, &config, &changes);
    };
    let create = |name: &str| {
        let answer = value(&send(&server, "POST", MAPS, &map(name)));
        let mut paths: Vec<String> = hook
            .take_requests()
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        paths.sort();
        (answer.0, answer.1, paths)
    };
    let is_admin = "request.userInfo.username == 'admin'";
    let may = "authorizer.requestResource.check('delete').allowed()";
    let fails = "object.data.missing == 'x'";
    add("holds", &[is_admin, may, "object.data.a == '1'"], "Fail");
    add("new", &["oldObject == null"], "Fail");
    add(
        "false",
        &[is_admin, "request.operation == 'DELETE'"],
        "Fail",
    );
    add("ignored", &[fails], "Ignore");
    // One that is false counts more than errors.
    add("both", &[fails, "request.name != 'a'"], "Fail");
    let (status, answer, called) = create("a");
    assert_eq!(status, 201, "{answer}");
    assert_eq!(called, ["/holds", "/new"]);

    // An error refuses the request, before a webhook is asked.
    let (status, answer, called) = create("b");
    let message = "configmaps \"b\" is forbidden: expression 'object.data.missing == 'x'' resulted in error: \
                   no such key: missing";
    assert_eq!(
        (status, &answer["reason"], &answer["message"]),
        (403, &json!("Forbidden"), &json!(message)),
        "{answer}"
    );
    assert_eq!(called, [""; 0]);

    // A change of the configuration counts at once.
    let path = format!("{GROUP}/validatingwebhookconfigurations/both");
    let mut changed = value(&send(&server, "GET", &path, "")).1;
    changed["webhooks"][0]["matchConditions"][0]["expression"] = "true".into();
    let put = send(&server, "PUT", &path, &changed.to_string());
    assert_eq!(put.0, 200, "{}", put.1);
    let (status, answer, called) = create("b");
    assert_eq!(status, 201, "{answer}");
    assert_eq!(called, ["/both", "/holds", "/new"]);
    Ok(())
}

#[test]
fn a_write_that_a_webhook_makes_the_same_writes_nothing() -> TestResult {
    let hook = HookServer::start(|_, review| {
        patched(
            review,
            &json!([{"op": "add", "path": "/data/a", "value": "1@normal"}]),
        )
    });
    let clock = ManualClock::new();
    let server = ApiServer::builder().clock(clock.clone()).start()?;
    let config = hook.client_config("/");
    configure(&server, "Mutating", "m", &config, &json!({}));
    assert_eq!(send(&server, "POST", MAPS, &map("n")).0, 201);
    let path = format!("{MAPS}/n?fieldManager=m");
    for (method, media) in [
        ("PUT", "application/json"),
        ("PATCH", "application/merge-patch+json"),
        ("PATCH", "application/apply-patch+yaml"),
    ] {
        let mut body: Value = serde_json::from_str(&map("n"))?;
        body["apiVersion"] = "v1".into();
        body["kind"] = "ConfigMap".into();
        let fields = format!("Content-Type: {media}\r\n");
        let path = match media {
            "application/apply-patch+yaml" => format!("{path}&force=true"),
            _ => path.clone(),
        };
        let mut versions = Vec::new();
        for _ in 0..4 {
            clock.advance(Duration::from_secs(1));
            let answer = exchange(server.endpoint(), method, &path, &fields, &body.to_string());
            let (status, object) = value(&answer);
            assert_eq!(status, 200, "{object}");
            assert_eq!(object["data"]["a"], "1@normal");
            versions.push(object["metadata"]["resourceVersion"].clone());
        }
        // The first one can make the manager an owner.
        assert!(
            versions[2..].iter().all(|version| *version == versions[1]),
            "{media} {versions:?}"
        );
    }
    Ok(())
}
