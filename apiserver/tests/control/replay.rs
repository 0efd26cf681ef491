//! A journal of requests, sent to a second server.

use revstore_apiserver::ClockMode;
use revstore_apiserver::control_api::fault::{Action, Failure, Rule, Selector, Trigger};
use revstore_apiserver::control_api::journal::Filter;
use revstore_apiserver::control_api::journal::{KEPT_BYTES_MAX, KeptBody, LeftOut};
use revstore_apiserver::control_api::replay::{
    Answer, Endpoint, Finding, Options, Replay, Selection, Summary,
};
use serde_json::{Value, json};

use crate::client::exchange::exchange;
use crate::fixture::{Fixture, MAPS, names};

fn replay_of(fixture: &Fixture, after: u64) -> Replay {
    let control = fixture.server.control().expect("control");
    let page = control.journal(&Filter::default(), 0);
    let selection = Selection {
        after,
        ..Selection::default()
    };
    Replay::of_page(&page, &selection).expect("a whole journal")
}

fn send(replay: &Replay, to: &Fixture) -> (Summary, Vec<Finding>) {
    let endpoint = Endpoint::new(to.server.endpoint(), None, None).expect("a URL");
    let (mut findings, options) = (Vec::new(), Options::default());
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    let sent = replay.send(&endpoint, &options, |found| findings.push(found.clone()));
    let summary = runtime.block_on(sent).expect("answers");
    (summary, findings)
}

/// Returns the names and the data of the config maps of a list.
fn maps(fixture: &Fixture) -> (Vec<String>, Vec<Value>) {
    let list = fixture.send("GET", MAPS, "").1;
    let items = list["items"].as_array().expect("a list");
    let data = items.iter().map(|item| item["data"].clone()).collect();
    (names(&list).into_iter().map(str::to_owned).collect(), data)
}

#[test]
fn objects_are_written_again_on_a_second_server() {
    let fixture = Fixture::new(ClockMode::System);
    for name in ["a", "b", "c"] {
        let object = json!({"metadata": {"name": name}, "data": {"text": name}});
        assert_eq!(fixture.send("POST", MAPS, &object.to_string()).0, 201);
    }
    let patch = |fields: &str, body: &str| {
        let path = format!("{MAPS}/a?fieldManager=test");
        exchange(fixture.server.endpoint(), "PATCH", &path, fields, body).0
    };
    let merge = "Content-Type: application/merge-patch+json\r\n";
    assert_eq!(patch(merge, r#"{"data":{"more":"1"}}"#), 200);
    let json_patch = "Content-Type: application/json-patch+json\r\n";
    let operation = r#"[{"op":"replace","path":"/data/text","value":"2"}]"#;
    assert_eq!(patch(json_patch, operation), 200);
    let other = json!({"metadata": {"name": "b"}}).to_string();
    assert_eq!(fixture.send("PUT", &format!("{MAPS}/a"), &other).0, 400);
    assert_eq!(fixture.send("DELETE", &format!("{MAPS}/b"), "").0, 200);
    assert_eq!(fixture.send("GET", &format!("{MAPS}/b"), "").0, 404);
    assert_eq!(
        fixture
            .send("GET", &format!("{MAPS}?labelSelector=a"), "")
            .0,
        200
    );
    // A lost answer is executed, a refused request is not.
    let control = fixture.server.control().expect("control");
    let rule = |action| Rule {
        selector: Selector::default(),
        trigger: Trigger::Next(1),
        action,
    };
    let failure = || Failure::new(tonic::Code::Unavailable, "lost");
    control
        .add_fault(rule(Action::ErrorAfter(failure())))
        .expect("a rule");
    let object = json!({"metadata": {"name": "lost"}}).to_string();
    assert_eq!(fixture.send("POST", MAPS, &object).0, 503);
    control
        .add_fault(rule(Action::Error(failure())))
        .expect("a rule");
    let object = json!({"metadata": {"name": "refused"}}).to_string();
    assert_eq!(fixture.send("POST", MAPS, &object).0, 503);

    let replay = replay_of(&fixture, 0);
    let second = Fixture::new(ClockMode::System);
    let (summary, findings) = send(&replay, &second);
    assert_eq!(findings, []);
    assert_eq!((summary.sent, summary.not_executed), (10, 1));
    assert_eq!(maps(&second), maps(&fixture));
    assert!(maps(&second).0.contains(&"lost".to_owned()));
    // Now the objects are there.
    let (summary, findings) = send(&replay, &second);
    assert_eq!(summary.differences, 3, "{findings:?}");
    let Finding::Difference {
        recorded, replayed, ..
    } = &findings[0]
    else {
        panic!("expected a difference");
    };
    let answer = |status, code: &str, error: &str| Answer {
        code: code.to_owned(),
        error: error.to_owned(),
        status,
        ..Answer::default()
    };
    assert_eq!(*recorded, answer(201, "OK", ""));
    let exists = r#"configmaps "a" already exists"#;
    assert_eq!((replayed.status, &*replayed.error), (409, exists));
}

#[test]
fn a_fork_of_the_beginning_answers_the_same() {
    let fixture = Fixture::new(ClockMode::Manual);
    fixture.put("a", "1");
    let fork = fixture.ok("StoreFork", &json!({}));
    let begun = fixture
        .server
        .control()
        .expect("control")
        .journal(&Filter::default(), 0)
        .next;
    let first = fixture.send("GET", &format!("{MAPS}/a"), "").1;
    // A write that is conditional on a version that both have.
    let mut object = first.clone();
    object["data"]["text"] = json!("2");
    let path = format!("{MAPS}/a");
    assert_eq!(fixture.send("PUT", &path, &object.to_string()).0, 200);
    assert_eq!(fixture.send("PUT", &path, &object.to_string()).0, 409);
    let replay = replay_of(&fixture, begun);
    let endpoint = fork["endpoint"].as_str().expect("a URL");
    let endpoint = Endpoint::new(endpoint, None, None).expect("a URL");
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    let mut findings = Vec::new();
    let options = Options::default();
    let sent = replay.send(&endpoint, &options, |found| findings.push(found.clone()));
    let summary = runtime.block_on(sent).expect("answers");
    assert_eq!((summary.sent, findings), (3, vec![]));
}

#[test]
fn credentials_and_large_bodies_are_not_kept() {
    let fixture = Fixture::new(ClockMode::System);
    let text = "x".repeat(KEPT_BYTES_MAX);
    let object = json!({"metadata": {"name": "large"}, "data": {"text": text}});
    assert_eq!(fixture.send("POST", MAPS, &object.to_string()).0, 201);
    let review = json!({
        "kind": "TokenReview",
        "apiVersion": "authentication.k8s.io/v1",
        "spec": {"token": "a-secret-token"},
    });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    assert_eq!(fixture.send("POST", path, &review.to_string()).0, 201);
    let fields = "Authorization: Bearer another-secret\r\n";
    fixture.get_with(MAPS, fields);
    let control = fixture.server.control().expect("control");
    let page = control.journal(&Filter::default(), 0);
    let of = |number: usize| {
        &page.records[number]
            .request
            .as_ref()
            .expect("a request")
            .body
    };
    assert_eq!(*of(0), KeptBody::LeftOut(LeftOut::Size));
    assert_eq!(*of(1), KeptBody::LeftOut(LeftOut::Secret));
    assert_eq!(*of(2), KeptBody::Kept(bytes::Bytes::new()));
    assert!(!format!("{page:?}").contains("secret-"), "{page:?}");
    assert!(!format!("{page:?}").contains("another-secret"), "{page:?}");
    let second = Fixture::new(ClockMode::System);
    let (summary, findings) = send(&replay_of(&fixture, 0), &second);
    assert_eq!(summary.skipped, 2);
    let skipped = |number, method: &str, reason: &str| Finding::Skipped {
        number,
        method: method.to_owned(),
        reason: reason.to_owned(),
    };
    assert_eq!(
        findings[..2],
        [skipped(1, "create", "size"), skipped(2, "create", "secret")]
    );
}

#[test]
fn a_watch_is_opened_and_ended_again() {
    let fixture = Fixture::new(ClockMode::Manual);
    fixture.put("a", "1");
    // It ends at its time limit.
    let path = format!("{MAPS}?watch=true&timeoutSeconds=1");
    let endpoint = fixture.server.endpoint().to_owned();
    let watch = std::thread::spawn(move || exchange(&endpoint, "GET", &path, "", "").0);
    fixture.ok("Wait", &json!({"watchers": 1}));
    fixture.ok("ClockAdvance", &json!({"by": "2s"}));
    assert_eq!(watch.join().expect("a thread"), 200);
    fixture.put("a", "2");
    let second = Fixture::new(ClockMode::Manual);
    let (summary, findings) = send(&replay_of(&fixture, 0), &second);
    assert_eq!(findings, []);
    assert_eq!(summary.sent, 4);
    assert_eq!(maps(&second), maps(&fixture));
}
