//! The clock of a server.

use revstore_apiserver::{ApiServerBuilder, ClockMode};
use serde_json::{Value, json};

use crate::client::Watch;
use crate::client::exchange::exchange;
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

/// Creates an event, which expires, and returns a watch that has seen it.
fn watch_of_an_event(fixture: &Fixture) -> Watch {
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
    watch
}

#[test]
fn automatic_time_jumps_to_the_expiry_of_an_event_beside_an_open_watch() {
    let fixture = Fixture::new(ClockMode::Auto);
    let mut watch = watch_of_an_event(&fixture);
    assert_eq!(watch.next().expect("an event")["type"], "DELETED");
}

/// Opens a watch of a config map from the current state on, which has had an event. A controller writes others.
fn open_watch(fixture: &Fixture, timeout: u32) -> Watch {
    let at = fixture.put("a", "1");
    let path = format!(
        "{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds={timeout}&resourceVersion={at}&fieldSelector=metadata.name%3Da"
    );
    let mut watch = Watch::open(&fixture.server, &path);
    fixture.ok("Wait", &json!({"watchers": 1}));
    fixture.put("a", "2");
    assert_eq!(watch.next().expect("an event")["type"], "MODIFIED");
    watch
}

#[test]
fn an_advance_passes_each_bookmark_at_its_time() {
    let fixture = Fixture::new(ClockMode::Manual);
    let mut watch = open_watch(&fixture, 600);
    fixture.ok("ClockAdvance", &json!({"by": "10m"}));
    let (events, is_whole) = watch.rest();
    assert!(is_whole);
    assert!(events.iter().all(|it| it["type"] == "BOOKMARK"));
    // One each minute, and one shortly before the end.
    assert!((10..=12).contains(&events.len()), "{events:?}");
}

#[test]
fn a_delayed_create_is_executed_at_its_own_time() {
    let fixture = Fixture::new(ClockMode::Manual);
    for (name, delay) in [("a", "10s"), ("b", "20s"), ("c", "40s")] {
        let rule = json!({"verb": "create", "client": name, "delay": {"time": delay}});
        fixture.ok("FaultAdd", &rule);
    }
    let before = fixture.ok("ClockPending", &json!({}));
    assert_eq!(delays(&before), Vec::<String>::new());
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let url = fixture.server.endpoint();
            scope.spawn(move || {
                let object = json!({"metadata": {"name": name}}).to_string();
                let fields =
                    format!("Content-Type: application/json\r\nRevstore-Client: {name}\r\n");
                assert_eq!(exchange(url, "POST", MAPS, &fields, &object).0, 201);
            });
        }
        while delays(&fixture.ok("ClockPending", &json!({}))).len() < 3 {}
        fixture.ok("ClockAdvance", &json!({"by": "1m"}));
    });
    let created = ["a", "b", "c"].map(|name| {
        let object = fixture.send("GET", &format!("{MAPS}/{name}"), "").1;
        seconds(&object["metadata"]["creationTimestamp"])
    });
    // The end of a month may be in between.
    let passed = |later: i64, earlier: i64| (later - earlier).rem_euclid(86_400);
    assert_eq!(
        [
            passed(created[1], created[0]),
            passed(created[2], created[1])
        ],
        [10, 20]
    );
}

/// Returns the rules whose delays are listed as pending.
fn delays(pending: &Value) -> Vec<String> {
    let entries = pending["pending"].as_array().expect("a list").iter();
    let entries = entries.filter(|entry| entry["kind"] == "delay");
    entries
        .map(|entry| entry["id"].as_str().expect("an id").to_owned())
        .collect()
}

/// Lets all controllers run.
fn with_controllers(builder: ApiServerBuilder) -> ApiServerBuilder {
    builder.controllers("*".parse().expect("a list"))
}

#[test]
fn all_that_an_advance_goes_to_is_listed_as_pending() {
    let fixture = Fixture::with(ClockMode::Manual, with_controllers);
    let mut watch = open_watch(&fixture, 3_000);
    let job = json!({
        "metadata": {"name": "j"},
        "spec": {
            "ttlSecondsAfterFinished": 100,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        },
    });
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let (status, mut job) = fixture.send("POST", path, &job.to_string());
    assert_eq!(status, 201, "{job}");
    let time = job["metadata"]["creationTimestamp"].clone();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": time, "lastTransitionTime": time});
    job["status"] = json!({
        "startTime": time, "completionTime": time, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    });
    let (status, answer) = fixture.send("PUT", &format!("{path}/j/status"), &job.to_string());
    assert_eq!(status, 200, "{answer}");
    let listed = || {
        let pending = fixture.ok("ClockPending", &json!({}));
        let entries = pending["pending"].as_array().expect("a list").iter();
        let text = |entry: &Value, field: &str| entry[field].as_str().expect("a text").to_owned();
        entries
            .map(|entry| (text(entry, "kind"), text(entry, "id"), text(entry, "due")))
            .collect::<Vec<_>>()
    };
    let has = |kind: &str, id: &str| listed().iter().any(|it| (&*it.0, &*it.1) == (kind, id));
    // The controller sees the end of the job a moment later.
    while !has("job", "default/j") {}
    let number = fixture.ok("Watches", &json!({}))["watches"][0]["id"].to_string();
    for (kind, id) in [
        ("bookmark", &*number),
        ("watch", &*number),
        ("compaction", ""),
    ] {
        assert!(has(kind, id), "{kind} in {:?}", listed());
    }
    // The watches of the server itself have nothing to do at any time.
    let other = listed()
        .into_iter()
        .find(|it| it.0 == "bookmark" && it.1 != number);
    assert_eq!(other, None);
    // A controller that begins to wait for a moment between both requests comes before what was listed.
    let mut since = 0;
    for _ in 0..10 {
        let before = listed();
        let reached = fixture.ok("ClockAdvance", &json!({"to_next": true}));
        if before.iter().any(|it| reached["now"] == it.2) {
            assert_eq!(reached["now"], before[0].2, "{before:?}");
        } else {
            since += 1;
        }
    }
    assert!(since <= 3, "{since}");
    fixture.ok("ClockAdvance", &json!({"by": "100s"}));
    let (status, _) = fixture.send("GET", &format!("{path}/j"), "");
    assert_eq!(status, 404);
    assert_eq!(watch.next().expect("an event")["type"], "BOOKMARK");
}

#[test]
fn automatic_time_reaches_the_expiry_of_an_event_at_once() {
    let fixture = Fixture::with(ClockMode::Manual, with_controllers);
    let mut watch = watch_of_an_event(&fixture);
    // Until the expiry, only the compactions and the checks of the caches are due.
    let pending = fixture.ok("ClockPending", &json!({}));
    let entries = pending["pending"].as_array().expect("a list").clone();
    // A controller may wait for a moment, too.
    let is_bookmark = |entry: &Value| entry["kind"] == "bookmark";
    assert!(entries.len() <= 6, "{entries:?}");
    assert!(!entries.iter().any(is_bookmark), "{entries:?}");
    fixture.ok("ClockSet", &json!({"mode": "auto"}));
    assert_eq!(watch.next().expect("an event")["type"], "DELETED");
}
