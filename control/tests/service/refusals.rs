//! Requests that are refused.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use revstore_control::service::REQUEST_BYTES_MAX;
use serde_json::{Value, json};
use tonic::Code;
use tower_service::Service;

use super::fixture::Fixture;

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

/// Languages write null for what is no number, and a rule without a trigger fires for ever.
#[tokio::test]
async fn null_for_a_number_of_a_rule_is_refused() {
    let fixture = Fixture::new();
    for name in [
        "probability",
        "next",
        "every",
        "seed",
        "connection",
        "from_revision",
        "fromRevision",
        "stale_revision",
    ] {
        let rule = json!({"reset": true, name: null});
        let (_, code, text) = fixture.refused("FaultAdd", rule).await;
        assert_eq!(code, Code::InvalidArgument);
        assert_eq!(
            text,
            format!("invalid JSON: {name} is null: leave it out, or give a number")
        );
    }
    let listed = fixture.ok("FaultList", json!({})).await;
    assert_eq!(listed["faults"], json!([]));
    // Other fields may be null, as everywhere in protobuf's JSON.
    fixture
        .ok("FaultAdd", json!({"reset": true, "user": null}))
        .await;
}

/// They were cut off at the maximum.
#[tokio::test]
async fn numbers_beyond_64_bits_are_refused() {
    let fixture = Fixture::new();
    for (name, number) in [
        ("next", json!(18_446_744_073_709_551_616.0)),
        ("connection", json!(1e300)),
        ("next", json!("18446744073709551616")),
        ("next", json!(-1)),
        ("next", json!(-1.0)),
        ("from_revision", json!(9_223_372_036_854_775_808_u64)),
        ("fromRevision", json!(9_223_372_036_854_775_808.0)),
    ] {
        let rule = json!({"reset": true, name: number});
        let (_, code, text) = fixture.refused("FaultAdd", rule).await;
        assert_eq!(code, Code::InvalidArgument, "{text}");
    }
    let rule = json!({"reset": true, "next": u64::MAX});
    fixture.ok("FaultAdd", rule).await;
    let (_, code, _) = fixture
        .refused("StoreJump", json!({"revision": 1e19}))
        .await;
    assert_eq!(code, Code::InvalidArgument);
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

#[tokio::test(start_paused = true)]
async fn requests_over_grpc_have_the_same_limits() {
    let mut fixture = Fixture::new();
    let mut client = fixture.grpc();
    let too_large = revstore_control::proto::ClockAdvanceRequest {
        by: "1s".repeat(REQUEST_BYTES_MAX),
        to_next: false,
    };
    let refused = client.clock_advance(too_large).await.unwrap_err();
    let expected = "the request is larger than 1048576 bytes";
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::ResourceExhausted, expected)
    );
    let chunk = revstore_control::proto::StoreFileChunk {
        data: vec![0; REQUEST_BYTES_MAX + 1].into(),
    };
    let chunks = futures_util::stream::iter([chunk]);
    let refused = client.store_load(chunks).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let never = http_body_util::StreamBody::new(futures_util::stream::pending::<
        Result<http_body::Frame<Bytes>, std::convert::Infallible>,
    >());
    let request = Request::post("/revstore.control.v1.Control/ClockPending")
        .header("host", "localhost")
        .header("content-type", "application/grpc");
    let Ok(response) = fixture.service.call(request.body(never).unwrap()).await;
    let status = tonic::Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn the_journal_is_not_asked_for_unknown_methods() {
    let fixture = Fixture::new();
    let (status, code, text) = fixture
        .refused("JournalRead", json!({"methods": ["Put", "Putt"]}))
        .await;
    assert_eq!(
        (status, code),
        (StatusCode::BAD_REQUEST, Code::InvalidArgument)
    );
    assert!(text.contains("\"Putt\""), "{text}");
}
