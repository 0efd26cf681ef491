//! Watches that are held, cut and canceled.

use revstore_apiserver::ClockMode;
use revstore_apiserver::control_api::fault::RuleId;
use revstore_apiserver::control_api::journal::{EndReason, Event, Filter};
use serde_json::json;
use tonic::Code;

use crate::client::Watch;
use crate::fixture::{Fixture, MAPS, version};

/// Opens a watch from the current state on.
fn open(fixture: &Fixture) -> (Watch, i64) {
    let at = version(&fixture.send("GET", MAPS, "").1);
    let path = format!("{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={at}");
    let watch = Watch::open(&fixture.server, &path);
    fixture.ok("Wait", &json!({"watchers": 1}));
    (watch, at)
}

#[test]
fn a_held_watch_gets_its_events_in_order_when_it_is_released() {
    let fixture = Fixture::new(ClockMode::System);
    let (mut watch, _) = open(&fixture);
    fixture.ok("WatchHold", &json!({}));
    for name in ["a", "b", "c"] {
        fixture.put(name, "");
    }
    let watches = fixture.ok("Watches", &json!({}));
    let held = &watches["watches"][0];
    assert_eq!(
        (&held["state"], &held["resource"]),
        (&json!("held"), &json!("configmaps"))
    );
    assert!(held["lag"].as_i64() >= Some(3), "{held}");
    fixture.ok("WatchRelease", &json!({"id": held["id"]}));
    for name in ["a", "b", "c"] {
        let event = watch.next().expect("an event");
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
}

#[test]
fn a_rule_holds_until_it_is_removed() {
    let fixture = Fixture::new(ClockMode::System);
    let (mut watch, _) = open(&fixture);
    let rule = fixture.ok("FaultAdd", &json!({"resource": "configmaps", "hold": true}));
    fixture.put("a", "");
    while fixture.ok("Watches", &json!({}))["watches"][0]["state"] != "held" {}
    fixture.put("b", "");
    fixture.ok("FaultClear", &json!({"id": rule["id"]}));
    for name in ["a", "b"] {
        let event = watch.next().expect("an event");
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
}

#[test]
fn a_command_releases_what_a_rule_holds() {
    let fixture = Fixture::new(ClockMode::System);
    let (mut watch, _) = open(&fixture);
    let mut held_then_released = |names: [&str; 2]| {
        fixture.put(names[0], "");
        while fixture.ok("Watches", &json!({}))["watches"][0]["state"] != "held" {}
        fixture.put(names[1], "");
        fixture.ok("WatchRelease", &json!({}));
        for name in names {
            let event = watch.next().expect("an event");
            assert_eq!(event["object"]["metadata"]["name"], name);
        }
    };
    fixture.ok("FaultAdd", &json!({"hold": true, "next": 1}));
    held_then_released(["a", "b"]);
    // A rule that fires for later events holds these.
    fixture.ok("FaultAdd", &json!({"hold": true}));
    held_then_released(["c", "d"]);
    held_then_released(["e", "f"]);
}

#[test]
fn a_canceled_watch_ends_with_an_expired_error_and_a_cut_one_breaks_off() {
    let fixture = Fixture::new(ClockMode::System);
    let (mut watch, _) = open(&fixture);
    fixture.ok("WatchCancelCompacted", &json!({}));
    let error = watch.next().expect("an event");
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(error["object"]["reason"], "Expired");
    assert_eq!(watch.next(), None);
    while fixture.ok("Watches", &json!({}))["watches"] != json!([]) {}
    let (mut watch, _) = open(&fixture);
    fixture.ok("WatchCut", &json!({}));
    assert_eq!(watch.rest(), (Vec::new(), false));
    let (status, answer) = fixture.control("WatchCut", &json!({"id": 999}));
    assert_eq!(status, 404, "{answer}");
}

#[test]
fn a_bookmark_is_sent_now() {
    let fixture = Fixture::new(ClockMode::Manual);
    let (mut watch, at) = open(&fixture);
    fixture.ok("WatchBookmark", &json!({}));
    let bookmark = watch.next().expect("a bookmark");
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(version(&bookmark["object"]), at);
}

#[test]
fn bookmarks_count_only_for_watches_that_allow_them() {
    let fixture = Fixture::new(ClockMode::Manual);
    let _watch = open(&fixture);
    let _without = Watch::open(&fixture.server, &format!("{MAPS}?watch=true"));
    fixture.ok("Wait", &json!({"watchers": 2}));
    assert_eq!(fixture.ok("WatchBookmark", &json!({}))["watches"], 1);
    assert_eq!(fixture.ok("WatchBookmark", &json!({"id": 2}))["watches"], 0);
    assert_eq!(fixture.ok("WatchHold", &json!({}))["watches"], 2);
}

#[test]
fn a_server_stops_while_all_watches_are_held() {
    let fixture = Fixture::new(ClockMode::System);
    let (mut watch, _) = open(&fixture);
    fixture.ok("FaultAdd", &json!({"hold": true}));
    fixture.put("a", "");
    fixture.ok("WatchHold", &json!({}));
    fixture.server.stop();
    assert_eq!(watch.next(), None);
}

#[test]
fn watches_end_properly_after_their_events_and_a_last_bookmark() {
    const WATCHES: usize = 20;
    const WRITES: usize = 40;
    let open_all = |fixture: &Fixture, round: usize| {
        let at = version(&fixture.send("GET", MAPS, "").1);
        let path = format!("{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={at}");
        let watches: Vec<_> = (0..WATCHES)
            .map(|_| Watch::open(&fixture.server, &path))
            .collect();
        fixture.ok("Wait", &json!({"watchers": WATCHES}));
        // The watches have something left to send when they end.
        let written: Vec<i64> = (0..WRITES)
            .map(|number| fixture.put(&format!("c{round}-{number}"), ""))
            .collect();
        (watches, written)
    };
    let check = |watches: Vec<Watch>, written: &[i64]| {
        for mut watch in watches {
            let (events, is_whole) = watch.rest();
            assert!(is_whole, "the watch breaks off after {events:?}");
            let (last, events) = events.split_last().expect("a last bookmark");
            assert_eq!(last["type"], "BOOKMARK", "{last}");
            let through = version(&last["object"]);
            let sent: Vec<i64> = events.iter().map(|it| version(&it["object"])).collect();
            let expected = written.iter().copied().filter(|it| *it <= through);
            assert_eq!(sent, expected.collect::<Vec<_>>());
        }
    };
    let fixture = Fixture::new(ClockMode::Manual);
    fixture.ok("StoreCheckpoint", &json!({"name": "c"}));
    for round in 0..3 {
        let (watches, written) = open_all(&fixture, round);
        fixture.ok("StoreRestore", &json!({"name": "c"}));
        check(watches, &written);
        while fixture.ok("Watches", &json!({}))["watches"] != json!([]) {}
    }
    let (watches, written) = open_all(&fixture, 3);
    fixture.server.stop();
    check(watches, &written);
}

#[test]
fn the_journal_has_one_record_of_the_end_of_each_watch_with_its_reason() {
    let fixture = Fixture::new(ClockMode::Manual);
    let control = fixture.server.control().expect("control").clone();
    let path = format!("{MAPS}?watch=true&timeoutSeconds=60&resourceVersion=1");
    let open = || {
        let watch = Watch::open(&fixture.server, &path);
        fixture.ok("Wait", &json!({"watchers": 1}));
        watch
    };
    let wait = || while fixture.ok("Watches", &json!({}))["watches"] != json!([]) {};

    let mut watch = open();
    fixture.ok("WatchCancelCompacted", &json!({}));
    assert!(watch.rest().1);
    wait();
    let mut watch = open();
    fixture.ok("WatchCut", &json!({}));
    assert!(!watch.rest().1);
    wait();
    let mut watch = open();
    fixture.ok("ClockAdvance", &json!({"by": "61s"}));
    assert!(watch.rest().1);
    wait();
    drop(open());
    wait();
    let mut watch = open();
    fixture.ok("StoreJump", &json!({"revision": 5_000}));
    assert!(watch.rest().1);
    wait();
    // A rule decides, at the next event.
    let rule = json!({"verb": "watch", "cancel_compacted": true, "next": 1});
    let rule = fixture.ok("FaultAdd", &rule)["id"].as_u64().map(RuleId);
    let mut watch = Watch::open(&fixture.server, &format!("{MAPS}?watch=true"));
    fixture.ok("Wait", &json!({"watchers": 1}));
    fixture.put("a", "");
    assert!(watch.rest().1);
    wait();
    // A request that opens no watch ends none.
    assert_eq!(
        fixture
            .send("GET", &format!("{MAPS}?watch=true&resourceVersion=x"), "")
            .0,
        500
    );
    let mut watch = Watch::open(&fixture.server, &format!("{MAPS}?watch=true"));
    fixture.ok("Wait", &json!({"watchers": 1}));
    fixture.server.stop();
    watch.rest();

    let journal = control.journal(&Filter::default(), 0);
    let ends = journal.records.iter().filter(|it| it.event == Event::Ended);
    let ends: Vec<_> = ends
        .map(|it| {
            let outcome = it.outcome.as_ref().map(|outcome| outcome.code);
            (it.watch, it.reason.map(EndReason::name), it.rule, outcome)
        })
        .collect();
    let expected = [
        (Some(1), Some("compacted"), None, Some(Code::OutOfRange)),
        (Some(2), Some("cut"), None, None),
        (Some(3), Some("timeout"), None, Some(Code::Ok)),
        (Some(4), Some("client gone"), None, None),
        (Some(5), Some("store replaced"), None, Some(Code::Ok)),
        (Some(6), Some("compacted"), rule, Some(Code::OutOfRange)),
        (Some(7), Some("server stopped"), None, Some(Code::Ok)),
    ];
    assert_eq!(ends, expected);
    let requests = journal
        .records
        .iter()
        .filter(|it| it.event == Event::Request);
    let watches = requests
        .filter(|it| it.method == "watch")
        .map(|it| it.status);
    assert_eq!(watches.collect::<Vec<_>>(), [Some(500)]);
}
