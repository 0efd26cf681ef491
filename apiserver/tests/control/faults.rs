//! Faults of requests.

use std::io::{Read, Write};
use std::net::TcpStream;

use revstore_apiserver::ClockMode;
use revstore_apiserver::control_api::fault::{
    Action, FrontSelector, RULES_MAX, Rule, Selector, Trigger,
};
use serde_json::json;

use crate::fixture::{Fixture, MAPS, names, version};

#[test]
fn the_next_updates_conflict() {
    let fixture = Fixture::new(ClockMode::System);
    fixture.put("a", "1");
    let rule = json!({
        "verb": "update", "resource": "configmaps", "namespace": "default", "name": "a",
        "next": 2, "http": {"status": 409},
    });
    fixture.ok("FaultAdd", &rule);
    let object = json!({"metadata": {"name": "a"}, "data": {"text": "2"}}).to_string();
    let path = format!("{MAPS}/a");
    for _ in 0..2 {
        let (status, answer) = fixture.send("PUT", &path, &object);
        assert_eq!((status, &answer["reason"]), (409, &json!("Conflict")));
        assert_eq!(answer["details"]["name"], "a");
    }
    assert_eq!(fixture.send("PUT", &path, &object).0, 200);
    let faults = fixture.ok("FaultList", &json!({}));
    assert_eq!(faults["faults"][0]["fired"], 2);
}

#[test]
fn an_object_that_exists_already_has_the_name_in_the_body() {
    let fixture = Fixture::new(ClockMode::System);
    let rule = json!({"verb": "create", "next": 1, "http": {"status": 409}});
    fixture.ok("FaultAdd", &rule);
    let object = json!({"metadata": {"name": "a"}}).to_string();
    let (status, answer) = fixture.send("POST", MAPS, &object);
    assert_eq!((status, &answer["reason"]), (409, &json!("AlreadyExists")));
    assert_eq!(answer["message"], "configmaps \"a\" already exists");
    assert_eq!(answer["details"]["name"], "a");
    assert_eq!(fixture.send("POST", MAPS, &object).0, 201);
}

#[test]
fn too_many_requests_have_a_time_to_wait() {
    let fixture = Fixture::new(ClockMode::System);
    let rule = json!({"verb": "list", "next": 1, "http": {"status": 429, "retry_after": 3}});
    fixture.ok("FaultAdd", &rule);
    let head = fixture.head_of(MAPS).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 429"), "{head}");
    assert!(head.contains("\r\nretry-after: 3\r\n"), "{head}");
    assert_eq!(fixture.send("GET", MAPS, "").0, 200);
}

#[test]
fn an_error_after_a_write_loses_only_the_answer() {
    let fixture = Fixture::new(ClockMode::System);
    let rule = json!({"verb": "create", "next": 1, "error_after": "504:lost"});
    fixture.ok("FaultAdd", &rule);
    let object = json!({"metadata": {"name": "a"}}).to_string();
    let (status, answer) = fixture.send("POST", MAPS, &object);
    assert_eq!((status, &answer["message"]), (504, &json!("lost")));
    assert_eq!(fixture.send("GET", &format!("{MAPS}/a"), "").0, 200);
    assert_eq!(fixture.send("POST", MAPS, &object).0, 409);
}

#[test]
fn stale_reads_are_those_at_the_time_of_the_rule() {
    let fixture = Fixture::new(ClockMode::System);
    let first = fixture.put("a", "old");
    let rule = fixture.ok(
        "FaultAdd",
        &json!({"resource": "configmaps", "stale": true}),
    );
    let second = fixture.put("a", "new");
    fixture.put("b", "");
    let list = fixture
        .send("GET", &format!("{MAPS}?resourceVersion=0"), "")
        .1;
    assert_eq!(
        names(&list),
        ["a", "kube-root-ca.crt"][..names(&list).len()]
    );
    assert_eq!(list["items"][0]["data"]["text"], "old");
    assert_eq!(version(&list), first);
    let object = fixture.send("GET", &format!("{MAPS}/a"), "").1;
    assert_eq!(object["data"]["text"], "old");
    // A server that lags cannot answer this.
    let later = format!("{MAPS}?resourceVersion={second}");
    assert_eq!(fixture.send("GET", &later, "").0, 504);
    fixture.ok("FaultClear", &json!({"id": rule["id"]}));
    assert_eq!(fixture.send("GET", &format!("{MAPS}/b"), "").0, 200);
}

#[test]
fn rules_select_by_client_and_user_and_are_checked() {
    let fixture = Fixture::new(ClockMode::System);
    fixture.ok(
        "FaultAdd",
        &json!({"client": "one", "error": "UNAVAILABLE:no"}),
    );
    fixture.ok("FaultAdd", &json!({"user": "ann", "error": "403:no"}));
    let get = |fields: &str| fixture.get_with(MAPS, fields).0;
    assert_eq!(get("Revstore-Client: one\r\n"), 503);
    assert_eq!(get("User-Agent: one\r\n"), 503);
    assert_eq!(get("Revstore-Client: two\r\nUser-Agent: one\r\n"), 200);
    assert_eq!(get("Impersonate-User: ann\r\n"), 403);
    for impossible in [
        json!({"methods": ["Range"], "error": "500:x"}),
        json!({"prefix": "YQ==", "error": "500:x"}),
        json!({"lose_keep_alive": true}),
        json!({"verb": "list", "hold": true}),
        json!({"verb": "update", "stale": true}),
        json!({"verb": "foo", "reset": true}),
        json!({"verb": "", "reset": true}),
        json!({"verb": "create", "name": "x", "reset": true}),
        json!({"verb": "create", "resource": "pods", "name": "x", "reset": true}),
        json!({"verb": "post", "resource": "pods", "reset": true}),
        json!({"verb": "list", "resource": "/readyz", "reset": true}),
        json!({"resource": "/readyz", "name": "x", "reset": true}),
        json!({"http": {"status": 200}}),
        json!({"http": {"status": 503, "retry_after": 0}}),
        json!({"resource": "Pods", "reset": true}),
        json!({"resource": "nodes", "namespace": "x", "reset": true}),
        json!({"resource": "clusterroles.rbac.authorization.k8s.io", "namespace": "x", "reset": true}),
        json!({"resource": "nodes/status", "namespace": "x", "reset": true}),
        json!({"stale_revision": 3, "reset": true}),
        json!({"error": "600:x"}),
    ] {
        let (status, answer) = fixture.control("FaultAdd", &impossible);
        assert_eq!(status, 400, "{impossible} {answer}");
    }
    for possible in [
        json!({"verb": "create", "resource": "pods/eviction", "name": "x", "reset": true}),
        json!({"verb": "post", "resource": "/version", "reset": true}),
        json!({"verb": "get", "resource": "/readyz", "reset": true}),
        json!({"verb": "list", "name": "x", "reset": true}),
        json!({"resource": "namespaces", "namespace": "x", "reset": true}),
        json!({"resource": "pods/log", "namespace": "x", "reset": true}),
        json!({"resource": "/Path", "reset": true}),
    ] {
        fixture.ok("FaultAdd", &possible);
    }
    let (_, answer) = fixture.control("FaultAdd", &json!({"verb": "foo", "reset": true}));
    let text = answer["error"].as_str().unwrap_or_default();
    assert!(
        text.starts_with("unknown verb \"foo\": it must be one of get, list, watch"),
        "{text}"
    );
    assert_eq!(
        fixture
            .control("Alarm", &json!({"action": "raise", "name": "nospace"}))
            .0,
        400
    );
}

#[test]
fn connections_are_reset_refused_and_delays_wait_for_the_clock() {
    let fixture = Fixture::new(ClockMode::Manual);
    fixture.ok("FaultAdd", &json!({"next": 1, "reset": true}));
    assert_eq!(fixture.send("GET", MAPS, "").0, 0);
    assert_eq!(fixture.send("GET", MAPS, "").0, 200);
    fixture.ok("FaultAdd", &json!({"next": 1, "refuse": true}));
    assert_eq!(fixture.send("GET", MAPS, "").0, 0);
    assert_eq!(fixture.send("GET", MAPS, "").0, 200);
    fixture.ok("FaultAdd", &json!({"next": 1, "delay": {"time": "1h"}}));
    std::thread::scope(|scope| {
        let delayed = scope.spawn(|| fixture.send("GET", MAPS, "").0);
        while fixture.ok("FaultList", &json!({}))["faults"][2]["fired"] != 1 {}
        assert!(!delayed.is_finished());
        // The delay is added after the rule has fired, and is due an hour after that.
        fixture.ok("ClockAdvance", &json!({"by": "1h"}));
        while !delayed.is_finished() {
            fixture.ok("ClockAdvance", &json!({"by": "1h"}));
        }
        assert_eq!(delayed.join().expect("no panic"), 200);
    });
}

#[test]
fn goaway_is_announced_over_http_1() {
    let fixture = Fixture::new(ClockMode::Manual);
    fixture.ok("FaultAdd", &json!({"next": 1, "goaway": true}));
    let address = fixture.server.endpoint().trim_start_matches("http://");
    let mut connection = TcpStream::connect(address).expect("the server listens");
    let head = format!("GET {MAPS} HTTP/1.1\r\nHost: test\r\n\r\n");
    connection
        .write_all(head.as_bytes())
        .expect("the server reads");
    // The server closes the connection after the answer.
    let mut answer = String::new();
    connection
        .read_to_string(&mut answer)
        .expect("the server closes");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[test]
fn ten_thousand_rules_leave_the_server_working() {
    let fixture = Fixture::new(ClockMode::System);
    let control = fixture.server.control().expect("control");
    let rule = |number: usize| Rule {
        selector: Selector {
            front: FrontSelector {
                name: Some(format!("object-{number}")),
                ..FrontSelector::default()
            },
            ..Selector::default()
        },
        trigger: Trigger::Always,
        action: Action::Http {
            status: 500,
            retry_after: None,
        },
    };
    for number in 0..RULES_MAX {
        control.add_fault(rule(number)).expect("there is room");
    }
    control.add_fault(rule(0)).expect_err("there are too many");
    assert_eq!(fixture.send("GET", MAPS, "").0, 200);
    assert_eq!(
        fixture.send("GET", &format!("{MAPS}/object-9999"), "").0,
        500
    );
    fixture.ok("FaultClear", &json!({}));
    assert_eq!(
        fixture.send("GET", &format!("{MAPS}/object-9999"), "").0,
        404
    );
}
