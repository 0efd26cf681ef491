//! The service through its HTTP interface, without sockets: JSON and gRPC, access, errors, bounds.

#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test may panic as the test itself"
)]

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use revstore_control::call::{Method, MethodKind};
use revstore_control::clock::{ClockMode, ControlClock};
use revstore_control::fault::Rules;
use revstore_control::journal::Journal;
use revstore_control::open::Open;
use revstore_control::proto::{self, control_client::ControlClient};
use revstore_control::service::{Access, ControlService, REQUEST_BYTES_MAX, TokenFile};
use revstore_control::store::{FORKS_MAX, Fork, Frozen};
use revstore_control::{
    AlarmName, Condition, Control, ControlError, Hooks, Point, Target, WAITS_MAX,
};
use revstore_engine::{Engine, LeaseId, Put, Revision};
use serde_json::{Value, json};
use tokio::sync::watch;
use tonic::Code;
use tower_service::Service;

fn hooks() -> Hooks {
    let method = |name, kind| Method { name, kind };
    let methods = [
        method("etcdserverpb.KV/Put", MethodKind::Keys),
        method("etcdserverpb.Watch/Watch", MethodKind::Watch),
        method("etcdserverpb.Lease/LeaseKeepAlive", MethodKind::KeepAlive),
    ];
    Hooks {
        rules: Rules::new(&methods),
        journal: Journal::new(),
        open: Open::new(),
    }
}

/// The bytes that checkpoints may take.
const MEMORY_LIMIT: u64 = 10_000;

/// A server that consists of an engine and a text, which a test can replace.
#[derive(Debug)]
struct Replaceable {
    engine: Mutex<Engine>,
    state: Mutex<String>,
    replaced: watch::Sender<u64>,
}

impl Target for Replaceable {
    fn engine(&self) -> Engine {
        self.engine.lock().clone()
    }

    fn replacements(&self) -> watch::Receiver<u64> {
        self.replaced.subscribe()
    }

    fn node_state(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(self.state.lock().clone()))
    }

    fn check_replaceable(&self) -> Result<(), ControlError> {
        Ok(())
    }

    fn replace(&self, frozen: Frozen) -> Result<(), ControlError> {
        let state = frozen.node.map(|state| state.downcast::<String>().unwrap());
        *self.state.lock() = state.map_or_else(String::new, |state| (*state).clone());
        self.replace_engine(frozen.engine);
        Ok(())
    }

    fn fork(&self, frozen: Frozen, clock: ControlClock) -> Result<Box<dyn Fork>, ControlError> {
        Ok(Box::new(Forked(frozen.engine, clock)))
    }

    fn alarm(&self, _: AlarmName, _: bool) -> Result<Vec<AlarmName>, ControlError> {
        Err(ControlError::Refused("an engine has no alarms".into()))
    }
}

/// A fork without ports.
#[derive(Debug)]
struct Forked(Engine, ControlClock);

impl Fork for Forked {
    fn endpoint(&self) -> String {
        format!("http://revision-{}", self.0.current_revision())
    }

    fn control(&self) -> String {
        format!("http://{}-{}", self.1.mode(), self.1.time().as_secs())
    }
}

impl Replaceable {
    fn replace_engine(&self, engine: Engine) {
        *self.engine.lock() = engine;
        self.replaced.send_modify(|count| *count += 1);
    }
}

struct Fixture {
    control: Control,
    target: Arc<Replaceable>,
    service: ControlService,
}

impl Fixture {
    fn new() -> Self {
        Self::with(Access {
            token: None,
            any_host: false,
        })
    }

    fn with(access: Access) -> Self {
        let clock = ControlClock::new(ClockMode::Manual);
        let engine = Engine::builder().clock(clock.clone()).build();
        let target = Arc::new(Replaceable {
            engine: Mutex::new(engine),
            state: Mutex::default(),
            replaced: watch::Sender::new(0),
        });
        let control = Control::new(clock, target.clone(), hooks(), MEMORY_LIMIT);
        let service = ControlService::new(control.clone(), access);
        Self {
            control,
            target,
            service,
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> (StatusCode, String) {
        let Ok(response) = self.service.clone().call(request).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn post(&self, method: &str, body: impl Into<Bytes>) -> (StatusCode, Value) {
        let (status, text) = self.send(post(method, body)).await;
        assert!(
            text.ends_with('\n') && text.lines().count() == 1,
            "{text:?}"
        );
        (status, serde_json::from_str(&text).unwrap())
    }

    async fn ok(&self, method: &str, body: Value) -> Value {
        let (status, answer) = self.post(method, body.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{method} {body}: {answer}");
        answer
    }

    async fn refused(&self, method: &str, body: Value) -> (StatusCode, Code, String) {
        let (status, answer) = self.post(method, body.to_string()).await;
        assert_eq!(answer.as_object().unwrap().len(), 2, "{answer}");
        let code = i32::try_from(answer["code"].as_i64().unwrap()).unwrap();
        (
            status,
            Code::from_i32(code),
            answer["error"].as_str().unwrap().to_owned(),
        )
    }

    fn grpc(&self) -> ControlClient<WithHost> {
        ControlClient::new(WithHost(self.service.clone()))
    }
}

fn post(method: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let request = Request::post(format!("/control/v1/{method}")).header("host", "localhost:2378");
    request.body(Full::new(body.into())).unwrap()
}

/// The service with the authority that a connection would add.
#[derive(Clone)]
struct WithHost(ControlService);

impl Service<Request<tonic::body::Body>> for WithHost {
    type Response = Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = <ControlService as Service<Request<tonic::body::Body>>>::Future;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<tonic::body::Body>) -> Self::Future {
        let host = http::HeaderValue::from_static("127.0.0.1:2378");
        request.headers_mut().insert("host", host);
        self.0.call(request)
    }
}

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

#[tokio::test]
async fn the_store_is_compacted() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    for value in ["a", "b", "c"] {
        engine.put("key", value).unwrap();
    }
    let compacted = fixture.ok("StoreCompact", json!({"revision": 3})).await;
    assert_eq!(
        compacted,
        json!({"revision": 4, "time": "0s", "compacted": 3})
    );
    assert_eq!(fixture.ok("StoreCompact", json!({})).await["compacted"], 4);
    assert_eq!(engine.compacted_revision(), Some(Revision(4)));
    for revision in [4, 5, 100] {
        let (_, code, _) = fixture
            .refused("StoreCompact", json!({"revision": revision}))
            .await;
        assert_eq!(code, Code::OutOfRange);
    }
}

#[tokio::test]
async fn checkpoints_keep_keys_leases_and_the_state_of_the_node() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    let lease = engine.grant(LeaseId::new(7), 60).unwrap().id;
    engine
        .put_with(&Put::new("session", "").attached_to(lease))
        .unwrap();
    *fixture.target.state.lock() = "users".to_owned();
    fixture.control.advance(Duration::from_secs(20)).unwrap();
    let kept = fixture.ok("StoreCheckpoint", json!({"name": "a"})).await;
    let expected = json!({"revision": 2, "time": "20s", "name": "a", "checkpoint": 2});
    assert_eq!(kept, expected);
    engine.put("later", "").unwrap();
    "other users".clone_into(&mut fixture.target.state.lock());
    // The time that the lease has left in the checkpoint does not pass.
    fixture.control.advance(Duration::from_secs(100)).unwrap();
    assert!(engine.get("session").is_none());
    for round in 0..2 {
        let restored = fixture.ok("StoreRestore", json!({"name": "a"})).await;
        assert_eq!(restored["revision"], 2, "{round}");
        let engine = fixture.control.engine();
        assert!(engine.get("session").is_some() && engine.get("later").is_none());
        assert_eq!(*fixture.target.state.lock(), "users");
        let (leases, _) = fixture.control.leases(10);
        assert_eq!(leases[0].status.remaining, Duration::from_secs(40));
        fixture.control.advance(Duration::from_secs(40)).unwrap();
        assert!(
            engine.get("session").is_none(),
            "the restored lease expires by the clock"
        );
    }
    let bumped = json!({"name": "a", "bump_revision": 1_000, "mark_compacted": true});
    assert_eq!(fixture.ok("StoreRestore", bumped).await["revision"], 1_002);
    assert_eq!(
        fixture.control.engine().compacted_revision(),
        Some(Revision(1_002))
    );
    for (body, expected) in [
        (json!({"name": "b"}), Code::NotFound),
        (
            json!({"name": "a", "bump_revision": -1}),
            Code::InvalidArgument,
        ),
        (
            json!({"name": "a", "bump_revision": i64::MAX}),
            Code::OutOfRange,
        ),
    ] {
        let (_, code, text) = fixture.refused("StoreRestore", body).await;
        assert_eq!(code, expected, "{text}");
    }
    assert_eq!(
        fixture.control.point().revision,
        Revision(1_002),
        "nothing was changed"
    );
    fixture.ok("StoreDrop", json!({"id": "a"})).await;
    let (_, code, _) = fixture.refused("StoreRestore", json!({"name": "a"})).await;
    assert_eq!(code, Code::NotFound);
}

#[tokio::test]
async fn checkpoints_beyond_the_memory_limit_are_refused() {
    let fixture = Fixture::new();
    let value = "x".repeat(4_000);
    fixture.control.engine().put("key", value).unwrap();
    for name in ["a", "b", "a"] {
        fixture.ok("StoreCheckpoint", json!({"name": name})).await;
    }
    let (status, code, text) = fixture
        .refused("StoreCheckpoint", json!({"name": "c"}))
        .await;
    assert_eq!(
        (status, code),
        (StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted)
    );
    assert!(
        text.ends_with("and --control-memory-limit is 10000"),
        "{text}"
    );
    fixture.ok("StoreDrop", json!({"id": "a"})).await;
    fixture.ok("StoreCheckpoint", json!({"name": "c"})).await;
    for name in ["", &"x".repeat(300)] {
        let (_, code, _) = fixture
            .refused("StoreCheckpoint", json!({"name": name}))
            .await;
        assert_eq!(code, Code::InvalidArgument);
    }
}

#[tokio::test]
async fn the_store_is_reset_and_jumps() {
    let fixture = Fixture::new();
    fixture.control.engine().put("key", "").unwrap();
    "users".clone_into(&mut fixture.target.state.lock());
    assert_eq!(
        fixture.ok("StoreJump", json!({"revision": 100})).await["revision"],
        99
    );
    let engine = fixture.control.engine();
    assert_eq!(*fixture.target.state.lock(), "users");
    assert_eq!(engine.put("other", "").unwrap().revision, Revision(100));
    assert!(engine.get("key").is_some());
    for revision in [1, 100, 101] {
        let (_, code, _) = fixture
            .refused("StoreJump", json!({"revision": revision}))
            .await;
        assert_eq!(code, Code::OutOfRange, "{revision}");
    }
    let (_, code, _) = fixture.refused("StoreJump", json!({"revision": 0})).await;
    assert_eq!(code, Code::InvalidArgument);
    let (_, code, _) = fixture
        .refused("StoreJump", json!({"revision": i64::MAX}))
        .await;
    assert_eq!(code, Code::OutOfRange);
    let reset = fixture
        .ok("StoreReset", json!({"keep_revision": true}))
        .await;
    assert_eq!(reset["revision"], 100);
    let engine = fixture.control.engine();
    assert_eq!(engine.compacted_revision(), Some(Revision(100)));
    assert_eq!(engine.stats().live_keys, 0);
    assert_eq!(*fixture.target.state.lock(), "");
    assert_eq!(fixture.ok("StoreReset", json!({})).await["revision"], 1);
}

#[tokio::test]
async fn forks_are_listed_bounded_and_dropped() {
    let fixture = Fixture::new();
    fixture.control.engine().put("key", "").unwrap();
    fixture.control.advance(Duration::from_secs(5)).unwrap();
    let fork = fixture.ok("StoreFork", json!({})).await;
    let expected = json!({
        "revision": 2, "time": "5s", "id": "fork-1",
        "endpoint": "http://revision-2", "control": "http://manual-5",
    });
    assert_eq!(fork, expected);
    for _ in 1..FORKS_MAX {
        fixture.control.fork().unwrap();
    }
    let (_, code, _) = fixture.refused("StoreFork", json!({})).await;
    assert_eq!(code, Code::ResourceExhausted);
    fixture.ok("StoreDrop", json!({"id": "fork-1"})).await;
    let (_, code, text) = fixture.refused("StoreDrop", json!({"id": "fork-1"})).await;
    assert_eq!(
        (code, &*text),
        (
            Code::NotFound,
            "there is no fork and no checkpoint \"fork-1\""
        )
    );
    let listed = fixture.ok("StoreForks", json!({})).await;
    assert_eq!(listed["forks"].as_array().unwrap().len(), FORKS_MAX - 1);
    assert_eq!(listed["forks"][0]["id"], "fork-2");
}

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

#[tokio::test]
async fn requests_without_sense_are_refused_and_change_nothing() {
    let fixture = Fixture::new();
    let cases = [
        (
            "ClockSet",
            json!({"mode": "fast"}),
            "unknown mode \"fast\" of the clock: must be system, manual or auto",
        ),
        (
            "ClockSet",
            json!({}),
            "unknown mode \"\" of the clock: must be system, manual or auto",
        ),
        (
            "ClockAdvance",
            json!({}),
            "a duration to advance by, or to_next, is required",
        ),
        (
            "ClockAdvance",
            json!({"by": "1s", "to_next": true}),
            "by and to_next exclude each other",
        ),
        (
            "ClockAdvance",
            json!({"by": "-1s"}),
            "by \"-1s\" is negative",
        ),
        (
            "ClockAdvance",
            json!({"by": "1"}),
            "by: time: missing unit in duration \"1\"",
        ),
        (
            "ClockAdvance",
            json!({"by": "999999999h"}),
            "by: time: invalid duration \"999999999h\"",
        ),
        (
            "StoreCompact",
            json!({"revision": -1}),
            "revision -1 is negative",
        ),
        (
            "Expire",
            json!({}),
            "\"\" is not the id of a lease: a hexadecimal number above 0 is required",
        ),
        (
            "Expire",
            json!({"id": "xyz"}),
            "\"xyz\" is not the id of a lease: a hexadecimal number above 0 is required",
        ),
        (
            "Expire",
            json!({"id": "1", "number": 1}),
            "id and number exclude each other",
        ),
        (
            "Alarm",
            json!({"action": "raise", "name": "fire"}),
            "unknown alarm \"fire\": must be nospace or corrupt",
        ),
        (
            "Alarm",
            json!({"action": "ring", "name": "nospace"}),
            "unknown action \"ring\": must be raise or clear",
        ),
        (
            "Wait",
            json!({}),
            "a condition is required: min_revision, key or watchers",
        ),
        ("Wait", json!({"key": ""}), "the key is empty"),
        (
            "Wait",
            json!({"min_revision": -1}),
            "revision -1 is negative",
        ),
        (
            "Wait",
            json!({"key": "a2V5", "timeout": "soon"}),
            "timeout: time: invalid duration \"soon\"",
        ),
    ];
    for (method, body, message) in cases {
        let (status, code, text) = fixture.refused(method, body).await;
        assert_eq!(
            (status, code),
            (StatusCode::BAD_REQUEST, Code::InvalidArgument),
            "{text}"
        );
        assert_eq!(text, message);
    }
    assert_eq!(fixture.control.clock().time(), Duration::ZERO);
}

#[tokio::test]
async fn a_target_without_alarms_says_so() {
    let fixture = Fixture::new();
    let (_, code, text) = fixture
        .refused("Alarm", json!({"action": "raise", "name": "nospace"}))
        .await;
    assert_eq!(
        (code, &*text),
        (Code::FailedPrecondition, "an engine has no alarms")
    );
    assert_eq!(fixture.control.clock().time(), Duration::ZERO);
}

#[tokio::test]
async fn damaged_json_is_refused() {
    let fixture = Fixture::new();
    let nested = "[".repeat(100_000);
    let bodies = [
        "{",
        "[]",
        "null1",
        "{\"by\": 1}",
        "{\"unknown\": 1}",
        "{\"by\":\"1s\"} {}",
        "\u{0}",
        &nested,
    ];
    for body in bodies {
        let (status, answer) = fixture.post("ClockAdvance", body.to_owned()).await;
        let start = &body[..body.len().min(20)];
        assert_eq!(status, StatusCode::BAD_REQUEST, "{start}: {answer}");
        assert!(
            answer["error"]
                .as_str()
                .unwrap()
                .starts_with("invalid JSON: "),
            "{answer}"
        );
    }
    let (status, _) = fixture.post("ClockAdvance", vec![0xff; 10]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let huge = format!("{{\"by\":\"{}\"}}", "1s".repeat(REQUEST_BYTES_MAX));
    let (status, answer) = fixture.post("ClockAdvance", huge).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(answer["error"], "the request is larger than 1048576 bytes");
    assert_eq!(fixture.control.clock().time(), Duration::ZERO);
}

#[tokio::test]
async fn other_paths_and_methods_are_not_found() {
    let fixture = Fixture::new();
    for path in [
        "/",
        "/control/v1",
        "/control/v1/",
        "/control/v1/Nothing",
        "/control/v1/clockset",
        "/v3/kv/range",
    ] {
        let request = Request::post(path).header("host", "localhost");
        let (status, text) = fixture.send(request.body(Full::default()).unwrap()).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["code"], i32::from(Code::Unimplemented));
    }
    let request = Request::get("/control/v1/ClockSet").header("host", "localhost");
    let (status, _) = fixture.send(request.body(Full::default()).unwrap()).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}

/// An upload that stops in the middle must not keep its connection forever.
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_given_up() {
    let mut fixture = Fixture::new();
    let never = http_body_util::StreamBody::new(futures_util::stream::pending::<
        Result<http_body::Frame<Bytes>, std::convert::Infallible>,
    >());
    let request = Request::post("/control/v1/ClockSet").header("host", "localhost");
    let Ok(response) = fixture.service.call(request.body(never).unwrap()).await;
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn access_is_checked_for_json_and_grpc() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "secret\n").unwrap();
    let fixture = Fixture::with(Access {
        token: Some(TokenFile::open(&path).unwrap()),
        any_host: false,
    });
    let (status, answer) = fixture.post("ClockPending", "{}").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(answer["code"], i32::from(Code::Unauthenticated));
    let send = async |name: &'static str, value: &'static str| {
        let mut request = post("ClockPending", "{}");
        let headers = request.headers_mut();
        headers.insert("authorization", "Bearer secret".parse().unwrap());
        headers.insert(name, value.parse().unwrap());
        fixture.send(request).await.0
    };
    assert_eq!(send("accept", "*/*").await, StatusCode::OK);
    assert_eq!(
        send("authorization", "Bearer other").await,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(send("host", "example.com").await, StatusCode::FORBIDDEN);
    assert_eq!(
        send("origin", "http://localhost:2378").await,
        StatusCode::FORBIDDEN
    );

    let mut client = fixture.grpc();
    let refused = client
        .clock_pending(proto::ClockPendingRequest::default())
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    let mut request = tonic::Request::new(proto::ClockPendingRequest::default());
    let token = "Bearer secret".parse().unwrap();
    request.metadata_mut().insert("authorization", token);
    client.clock_pending(request).await.unwrap();
}

#[tokio::test]
async fn all_methods_are_served_over_grpc() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    let mut client = fixture.grpc();
    let mode = "manual".to_owned();
    let set = client
        .clock_set(proto::ClockSetRequest { mode })
        .await
        .unwrap();
    assert_eq!(set.into_inner().mode, "manual");
    engine.grant(LeaseId::new(5), 10).unwrap();
    let advance = proto::ClockAdvanceRequest {
        by: "2s".to_owned(),
        to_next: false,
    };
    assert_eq!(
        client
            .clock_advance(advance)
            .await
            .unwrap()
            .into_inner()
            .now,
        "2s"
    );
    let pending = client
        .clock_pending(proto::ClockPendingRequest::default())
        .await;
    assert_eq!(pending.unwrap().into_inner().pending[0].due, "10s");
    let leases = client
        .leases(proto::LeasesRequest::default())
        .await
        .unwrap();
    assert_eq!(leases.into_inner().leases[0].remaining, "8s");
    let number = 5;
    let expire = proto::ExpireRequest {
        number,
        ..Default::default()
    };
    assert_eq!(
        client.expire(expire).await.unwrap().into_inner().id,
        "0000000000000005"
    );
    engine.put("key", "").unwrap();
    let compact = client
        .store_compact(proto::StoreCompactRequest { revision: 2 })
        .await;
    assert_eq!(compact.unwrap().into_inner().compacted, 2);
    let alarm = proto::AlarmRequest {
        action: "clear".to_owned(),
        name: "corrupt".to_owned(),
    };
    let refused = client.alarm(alarm).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::FailedPrecondition, "an engine has no alarms")
    );
    let condition = Some(proto::wait_request::Condition::Key("key".into()));
    let wait = proto::WaitRequest {
        condition,
        timeout: String::new(),
    };
    assert_eq!(client.wait(wait).await.unwrap().into_inner().revision, 2);
}
