//! Waits.

use std::time::Duration;

use futures_util::FutureExt;
use http::StatusCode;
use revstore_control::{Condition, ControlError, Point, Target, WAITS_MAX};
use revstore_engine::{Engine, Revision};
use serde_json::json;
use tonic::Code;

use super::fixture::Fixture;

#[tokio::test]
async fn waits_end_with_their_condition_or_their_timeout() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    let key = json!({"key": "a2V5"});
    let revision = json!({"min_revision": 4});
    let mut waits = [
        Box::pin(fixture.ok("Wait", key.clone())),
        Box::pin(fixture.ok("Wait", revision.clone())),
    ];
    for wait in &mut waits {
        assert!(wait.now_or_never().is_none());
    }
    engine.put("other", "").unwrap();
    engine.put("key", "").unwrap();
    let [by_key, by_revision] = &mut waits;
    assert_eq!(by_key.await, json!({"revision": 3, "time": "0s"}));
    assert!(by_revision.now_or_never().is_none());
    engine.put("other", "").unwrap();
    assert_eq!(by_revision.await["revision"], 4);
    // What is so already is not waited for.
    fixture.ok("Wait", key).await;
    fixture.ok("Wait", revision).await;
    let late = json!({"min_revision": 5, "timeout": "1ms"});
    let (status, code, _) = fixture.refused("Wait", late).await;
    assert_eq!(
        (status, code),
        (StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded)
    );
}

/// A wait in an engine that was replaced would never end.
#[tokio::test]
async fn waits_continue_in_the_engine_that_replaces_theirs() {
    let fixture = Fixture::new();
    let condition = Condition::Key("key".into());
    let mut wait = Box::pin(fixture.control.wait(condition, None));
    assert!((&mut wait).now_or_never().is_none());
    let old = fixture.target.engine();
    let engine = Engine::builder().clock(fixture.control.clock().clone());
    fixture.target.replace_engine(engine.build());
    assert!((&mut wait).now_or_never().is_none());
    old.put("key", "").unwrap();
    assert!(
        (&mut wait).now_or_never().is_none(),
        "the old engine does not count"
    );
    fixture.target.engine().put("key", "").unwrap();
    let point = wait.await.unwrap();
    let expected = Point {
        revision: Revision(2),
        time: Duration::ZERO,
    };
    assert_eq!(point, expected);
}

/// A compaction once ended the wait although the key was not there.
#[tokio::test]
async fn a_wait_that_a_compaction_overtakes_goes_on() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    let condition = Condition::Key("key".into());
    let mut wait = Box::pin(fixture.control.wait(condition, None));
    assert!((&mut wait).now_or_never().is_none());
    for _ in 0..50 {
        engine.put("other", "").unwrap();
    }
    engine.compact(Revision(50)).unwrap().run();
    assert!((&mut wait).now_or_never().is_none());
    engine.put("key", "").unwrap();
    assert_eq!(wait.await.unwrap().revision, Revision(52));
}

#[tokio::test]
async fn ten_thousand_waits_are_refused_beyond_the_bound_and_leave_nothing_behind() {
    const WAITS: usize = 10_000;
    let fixture = Fixture::new();
    let mut waits = Vec::new();
    let mut refused = 0;
    for _ in 0..WAITS {
        let mut wait = Box::pin(fixture.control.wait(Condition::Revision(Revision(2)), None));
        match (&mut wait).now_or_never() {
            None => waits.push(wait),
            Some(result) => {
                assert_eq!(result, Err(ControlError::TooManyWaits));
                refused += 1;
            }
        }
    }
    assert_eq!((waits.len(), refused), (WAITS_MAX, WAITS - WAITS_MAX));
    fixture.control.engine().put("key", "").unwrap();
    for wait in waits {
        assert_eq!(wait.await.unwrap().revision, Revision(2));
    }
    assert_eq!(fixture.control.engine().stats().watches, 0);
    let condition = Condition::Revision(Revision(1));
    fixture.control.wait(condition, None).await.unwrap();
}
