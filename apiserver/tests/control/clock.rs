//! The clock of a server.

use revstore_apiserver::ClockMode;
use serde_json::json;

use crate::client::Watch;
use crate::fixture::{Fixture, MAPS, version};

/// Returns the seconds in a timestamp of one day.
fn seconds(timestamp: &serde_json::Value) -> i64 {
    let text = timestamp.as_str().expect("a timestamp");
    let part = |at: std::ops::Range<usize>| text[at].parse::<i64>().expect("a number");
    part(8..10) * 86_400 + part(11..13) * 3_600 + part(14..16) * 60 + part(17..19)
}

#[test]
fn timestamps_follow_the_clock() {
    let fixture = Fixture::new(ClockMode::Manual);
    fixture.put("early", "");
    let before = fixture.send("GET", &format!("{MAPS}/early"), "").1;
    fixture.ok("ClockAdvance", &json!({"by": "90s"}));
    fixture.put("late", "");
    let after = fixture.send("GET", &format!("{MAPS}/late"), "").1;
    let created = |object: &serde_json::Value| seconds(&object["metadata"]["creationTimestamp"]);
    // The end of a month is in between, or exactly this time.
    let passed = created(&after) - created(&before);
    assert!(passed == 90 || passed < 0, "{passed}");
}

#[test]
fn events_expire_at_their_time_and_are_listed_as_pending() {
    let fixture = Fixture::new(ClockMode::Manual);
    let event = json!({
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"namespace": "default"},
    });
    let path = "/api/v1/namespaces/default/events";
    assert_eq!(fixture.send("POST", path, &event.to_string()).0, 201);
    let pending = fixture.ok("ClockPending", &json!({}));
    let pending = pending["pending"].as_array().expect("a list").clone();
    let kinds: Vec<_> = pending.iter().map(|entry| &entry["kind"]).collect();
    assert!(kinds.contains(&&json!("lease")), "{kinds:?}");
    fixture.ok("ClockAdvance", &json!({"by": "59m"}));
    assert_eq!(fixture.send("GET", &format!("{path}/e"), "").0, 200);
    fixture.ok("ClockAdvance", &json!({"by": "3m"}));
    assert_eq!(fixture.send("GET", &format!("{path}/e"), "").0, 404);
}

#[test]
fn a_watch_ends_and_gets_bookmarks_at_the_time_of_the_clock() {
    let fixture = Fixture::new(ClockMode::Manual);
    let at = fixture.put("a", "");
    let path = format!(
        "{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=100&resourceVersion={at}"
    );
    let mut watch = Watch::open(&fixture.server, &path);
    fixture.ok("Wait", &json!({"watchers": 1}));
    let next = fixture.put("b", "");
    assert_eq!(watch.next().expect("an event")["type"], "ADDED");
    fixture.ok("ClockAdvance", &json!({"by": "61s"}));
    let bookmark = watch.next().expect("a bookmark");
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert!(version(&bookmark["object"]) >= next);
    fixture.ok("ClockAdvance", &json!({"by": "60s"}));
    let mut rest = std::iter::from_fn(|| watch.next());
    assert!(rest.all(|event| event["type"] == "BOOKMARK"));
}

#[test]
fn automatic_time_jumps_to_the_expiry_of_an_event_beside_an_open_watch() {
    let fixture = Fixture::new(ClockMode::Auto);
    let path = "/api/v1/namespaces/default/events";
    let mut watch = Watch::open(
        &fixture.server,
        &format!("{path}?watch=true&timeoutSeconds=90000"),
    );
    fixture.ok("Wait", &json!({"watchers": 1}));
    let event = json!({
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"namespace": "default"},
    });
    assert_eq!(fixture.send("POST", path, &event.to_string()).0, 201);
    assert_eq!(watch.next().expect("an event")["type"], "ADDED");
    assert_eq!(watch.next().expect("an event")["type"], "DELETED");
}
