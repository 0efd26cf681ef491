//! Events end after a while.

use std::time::Duration;

use revstore_apiserver::ApiServer;
use revstore_engine::ManualClock;
use serde_json::{Value, json};

use crate::TestResult;
use crate::client::{send, status};

const EVENTS: &str = "/api/v1/namespaces/default/events";
const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn event(name: &str) -> Value {
    let object = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    json!({"metadata": {"name": name}, "involvedObject": object, "reason": "Test"})
}

fn create(server: &ApiServer, name: &str) {
    let (code, answer) = send(server, "POST", EVENTS, &event(name));
    assert_eq!(code, 201, "{answer}");
}

#[test]
fn events_end_after_their_time_by_the_clock_of_the_server() -> TestResult {
    let clock = ManualClock::new();
    let server = ApiServer::builder().clock(clock.clone()).start()?;
    create(&server, "first");
    let (code, answer) = send(
        &server,
        "POST",
        "/api/v1/namespaces/default/configmaps",
        &json!({"metadata": {"name": "c"}}),
    );
    assert_eq!(code, 201, "{answer}");
    clock.advance(Duration::from_secs(1800));
    create(&server, "second");
    assert_eq!(server.engine().expect("embedded").leases().len(), 2);

    clock.advance(Duration::from_secs(1800));
    assert_eq!(status(&server, &format!("{EVENTS}/first")), 200);
    // The lease of the first event lives for a minute more.
    clock.advance(Duration::from_secs(60));
    assert_eq!(status(&server, &format!("{EVENTS}/first")), 404);
    assert_eq!(status(&server, &format!("{NEW_EVENTS}/second")), 200);

    // An update begins the time again.
    let path = format!("{EVENTS}/second");
    let (_, mut second) = send(&server, "GET", &path, &Value::Null);
    second["count"] = json!(2);
    let (code, answer) = send(&server, "PUT", &path, &second);
    assert_eq!(code, 200, "{answer}");
    clock.advance(Duration::from_secs(3600));
    assert_eq!(status(&server, &path), 200);
    clock.advance(Duration::from_secs(60));
    assert_eq!(status(&server, &path), 404);
    assert_eq!(server.engine().expect("embedded").leases(), []);
    assert_eq!(
        status(&server, "/api/v1/namespaces/default/configmaps/c"),
        200
    );
    Ok(())
}

#[test]
fn the_time_of_events_is_an_option() -> TestResult {
    let clock = ManualClock::new();
    let server = ApiServer::builder().clock(clock.clone());
    let server = server.event_ttl(Duration::from_millis(1500)).start()?;
    create(&server, "short");
    clock.advance(Duration::from_secs(2));
    assert_eq!(status(&server, &format!("{EVENTS}/short")), 404);

    let server = ApiServer::builder()
        .clock(clock.clone())
        .event_ttl(None)
        .start()?;
    create(&server, "endless");
    assert_eq!(server.engine().expect("embedded").leases(), []);
    Ok(())
}

#[test]
fn a_storm_of_events_needs_few_leases() -> TestResult {
    let server = ApiServer::builder().clock(ManualClock::new()).start()?;
    for number in 0..1500 {
        create(&server, &format!("e{number}"));
    }
    assert_eq!(server.engine().expect("embedded").leases().len(), 2);
    Ok(())
}
