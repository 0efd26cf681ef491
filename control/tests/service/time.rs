//! Time and leases.

use std::time::Duration;

use http::StatusCode;
use revstore_control::clock::ClockMode;
use revstore_engine::{LeaseId, Put};
use serde_json::json;
use tonic::Code;

use super::fixture::Fixture;

#[tokio::test]
async fn the_clock_is_set_advanced_and_listed() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    let lease = engine.grant(LeaseId::new(0x1f), 60).unwrap().id;
    engine
        .put_with(&Put::new("key", "value").attached_to(lease))
        .unwrap();
    let pending = fixture.ok("ClockPending", json!({})).await;
    let expected = json!({
        "revision": 2, "time": "0s", "more": 0,
        "pending": [{"kind": "lease", "id": "000000000000001f", "due": "1m0s"}],
    });
    assert_eq!(pending, expected);
    let advanced = fixture.ok("ClockAdvance", json!({"by": "59.5s"})).await;
    let expected = json!({"revision": 2, "time": "59.5s", "mode": "manual", "now": "59.5s"});
    assert_eq!(advanced, expected);
    let advanced = fixture.ok("ClockAdvance", json!({"to_next": true})).await;
    let expected = json!({"revision": 3, "time": "1m0s", "mode": "manual", "now": "1m0s"});
    assert_eq!(advanced, expected);
    assert!(engine.get("key").is_none());
    let (status, code, text) = fixture
        .refused("ClockAdvance", json!({"to_next": true}))
        .await;
    assert_eq!(
        (status, code),
        (StatusCode::BAD_REQUEST, Code::FailedPrecondition)
    );
    assert_eq!(text, "there is no next due time: nothing is pending");
    for mode in ["auto", "system", "manual"] {
        assert_eq!(
            fixture.ok("ClockSet", json!({"mode": mode})).await["mode"],
            mode
        );
    }
    assert_eq!(fixture.control.clock().mode(), ClockMode::Manual);
}

#[tokio::test]
async fn a_change_of_the_clock_is_answered_with_the_time_that_it_has_reached() {
    let fixture = Fixture::new();
    let clock = fixture.control.clock().clone();
    *fixture.target.restless.lock() = Some(clock);
    let second = Duration::from_secs(1);
    let time = |point: revstore_control::Point| point.time;
    assert_eq!(fixture.control.advance(second).map(time), Ok(second));
    let set = fixture.control.set_clock(ClockMode::Manual);
    assert_eq!(time(set), 2 * second);
    fixture.control.engine().grant(None, 10).unwrap();
    let next = fixture.control.advance_to_next();
    assert_eq!(next.map(time), Ok(13 * second));
}

#[tokio::test]
async fn leases_are_listed_and_expire_now() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    let negative = LeaseId::new(-2).unwrap();
    for (id, ttl) in [(7_i64, 100), (negative.get(), 50)] {
        let lease = engine.grant(LeaseId::new(id), ttl).unwrap().id;
        let put = Put::new(format!("key/{id}"), "").attached_to(lease);
        engine.put_with(&put).unwrap();
    }
    fixture.control.advance(Duration::from_secs(10)).unwrap();
    let listed = fixture.ok("Leases", json!({"limit": 1})).await;
    let first = json!({
        "id": "fffffffffffffffe", "number": -2, "ttl": "50s", "remaining": "40s", "keys": 1,
    });
    let expected = json!({"revision": 3, "time": "10s", "leases": [first], "more": 1});
    assert_eq!(listed, expected);
    let expired = fixture
        .ok("Expire", json!({"id": "fffffffffffffffe"}))
        .await;
    let expected = json!({"revision": 4, "time": "10s", "id": "fffffffffffffffe"});
    assert_eq!(expired, expected);
    assert_eq!(
        fixture.ok("Expire", json!({"number": 7})).await["revision"],
        5
    );
    let (status, code, text) = fixture.refused("Expire", json!({"id": "7"})).await;
    assert_eq!((status, code), (StatusCode::NOT_FOUND, Code::NotFound));
    assert_eq!(text, "lease 0000000000000007 does not exist");
}
