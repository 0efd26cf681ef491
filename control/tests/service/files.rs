//! Dumps, and files that replace the store.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use revstore_control::ControlError;
use revstore_control::proto::{StoreDumpRequest, StoreFileChunk};
use revstore_control::store::{DUMPS_MAX, DumpForm};
use revstore_engine::Revision;
use serde_json::json;
use tonic::Code;
use tower_service::Service;

use super::fixture::{Fixture, MEMORY_LIMIT, post};

#[tokio::test]
async fn a_dump_is_the_body_of_the_response_with_its_point_in_headers() {
    let fixture = Fixture::new();
    fixture.control.engine().put("a", "1").unwrap();
    "users".clone_into(&mut fixture.target.state.lock());
    for (body, content_type, expected) in [
        ("{}", "text/plain; charset=utf-8", "Text\nusers\na=1\n"),
        ("", "text/plain; charset=utf-8", "Text\nusers\na=1\n"),
        (
            r#"{"binary": true}"#,
            "application/octet-stream",
            "Binary\nusers\na=1\n",
        ),
    ] {
        let Ok(response) = fixture.service.clone().call(post("StoreDump", body)).await;
        let (parts, body) = response.into_parts();
        assert_eq!(parts.status, StatusCode::OK);
        assert_eq!(parts.headers["content-type"], content_type);
        assert_eq!(parts.headers["revstore-revision"], "2");
        assert_eq!(parts.headers["revstore-time"], "0s");
        assert_eq!(body.collect().await.unwrap().to_bytes(), expected);
    }
    let (_, code, _) = fixture.refused("StoreDump", json!({"form": "text"})).await;
    assert_eq!(code, Code::InvalidArgument);
}

/// Writers go on while a client reads slowly, and the dump has none of their writes.
#[tokio::test]
async fn a_dump_of_many_chunks_is_of_one_revision() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    let value = "x".repeat(10_000);
    for key in 0..200 {
        engine.put(format!("key-{key}"), value.clone()).unwrap();
    }
    let mut grpc = fixture.grpc();
    let chunks = grpc.store_dump(StoreDumpRequest::default()).await.unwrap();
    let mut chunks = chunks.into_inner();
    let first = chunks.message().await.unwrap().unwrap();
    assert_eq!((first.revision, &*first.time), (201, "0s"));
    for key in 0..200 {
        engine.put(format!("key-{key}"), "late").unwrap();
    }
    engine.compact(Revision(401)).unwrap().run();
    let mut dump = first.data.to_vec();
    while let Some(chunk) = chunks.message().await.unwrap() {
        assert_eq!(chunk.revision, 201);
        dump.extend_from_slice(&chunk.data);
    }
    let dump = String::from_utf8(dump).unwrap();
    assert_eq!(dump.lines().count(), 202);
    assert!(!dump.contains("late"));
}

/// Clients that never read hold no more than the bound, and give it back when they go.
#[tokio::test]
async fn dumps_that_nobody_reads_are_bounded() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    for key in 0..200 {
        engine
            .put(format!("key-{key}"), "x".repeat(10_000))
            .unwrap();
    }
    let mut grpc = fixture.grpc();
    let mut held = Vec::new();
    for _ in 0..DUMPS_MAX {
        held.push(grpc.store_dump(StoreDumpRequest::default()).await.unwrap());
    }
    let (status, code, text) = fixture.refused("StoreDump", json!({})).await;
    assert_eq!(
        (status, code),
        (StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted)
    );
    assert_eq!(text, "too many dumps: 16 are being written");
    let error = fixture.control.dump(DumpForm::Text, &mut Vec::new());
    assert_eq!(error, Err(ControlError::TooManyDumps));
    drop(held);
    // The threads of the dumps end by themselves.
    while fixture
        .control
        .dump(DumpForm::Text, &mut Vec::new())
        .is_err()
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_file_replaces_the_store_in_all_forms() {
    let fixture = Fixture::new();
    fixture.control.engine().put("old", "").unwrap();
    let point = fixture.control.load(b"Text\nusers\na=1\nb=2\n").unwrap();
    assert_eq!(point.revision, Revision(3));
    assert_eq!(*fixture.target.state.lock(), "users");
    assert!(fixture.control.engine().get("old").is_none());

    let (status, answer) = fixture.post("StoreLoad", "Text\nothers\nc=1\n").await;
    assert_eq!(
        (status, answer),
        (StatusCode::OK, json!({"revision": 2, "time": "0s"}))
    );
    assert_eq!(*fixture.target.state.lock(), "others");

    let chunk = |data: &'static str| StoreFileChunk { data: data.into() };
    let chunks = stream::iter([chunk("Etcd"), chunk(""), chunk("Snapshot\n\nd=1\n")]);
    let loaded = fixture.grpc().store_import(chunks).await.unwrap();
    assert_eq!(loaded.into_inner().revision, 2);
    assert!(fixture.control.engine().get("d").is_some());
}

#[tokio::test]
async fn a_file_that_is_not_valid_changes_nothing() {
    let fixture = Fixture::new();
    fixture.control.engine().put("key", "").unwrap();
    let unchanged = || {
        assert!(fixture.control.engine().get("key").is_some());
        assert_eq!(*fixture.target.replaced.borrow(), 0);
    };
    for (method, file, expected) in [
        ("StoreLoad", &b"nothing"[..], "line 1: another form"),
        ("StoreImport", b"Dump\n", "line 1: another form"),
        (
            "StoreLoad",
            b"\xff",
            "invalid utf-8 sequence of 1 bytes from index 0",
        ),
    ] {
        let (status, answer) = fixture.post(method, file).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(answer, json!({"error": expected, "code": 3}));
        unchanged();
    }
    // A bug in the reader is an error, too.
    let (_, answer) = fixture.post("StoreLoad", "panic").await;
    assert_eq!(answer["code"], 13);
    unchanged();
    // A file that ends early, because its client has failed.
    let lost = [Ok(Frame::data("Text\n\n".into())), Err("lost")];
    let body = StreamBody::new(stream::iter(lost));
    let request = Request::post("/control/v1/StoreLoad").header("host", "localhost");
    let Ok(response) = fixture
        .service
        .clone()
        .call(request.body(body).unwrap())
        .await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    unchanged();
    "journal".clone_into(&mut fixture.target.state.lock());
    let (_, answer) = fixture.post("StoreLoad", "Text\n").await;
    assert_eq!(answer, json!({"error": "there is a journal", "code": 9}));
    unchanged();
}

/// A body of a stated length whose first frame is never asked for.
struct Unread(u64);

impl Body for Unread {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // Read only to discard it.
        Poll::Ready((std::mem::take(&mut self.0) > 0).then(|| Ok(Frame::data(Bytes::new()))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0)
    }
}

#[tokio::test]
async fn files_count_against_the_memory_limit() {
    let fixture = Fixture::new();
    let limit = usize::try_from(MEMORY_LIMIT).unwrap();
    let fits = format!("Text\n\nkey={}", "x".repeat(limit - 10));
    assert_eq!(fits.len(), limit);
    let (status, _) = fixture.post("StoreLoad", fits.clone()).await;
    assert_eq!(status, StatusCode::OK);
    let (status, answer) = fixture.post("StoreLoad", fits.clone() + "x").await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let error = "the file has more bytes than --control-memory-limit, which is 10000";
    assert_eq!(answer, json!({"error": error, "code": 8}));
    let request = Request::post("/control/v1/StoreLoad").header("host", "localhost");
    let request = request.body(Unread(u64::MAX)).unwrap();
    let Ok(response) = fixture.service.clone().call(request).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    // In chunks, whose sum is not known before.
    let chunks = std::iter::repeat_with(|| StoreFileChunk {
        data: Bytes::from_static(&[b'x'; 1_000]),
    });
    let error = fixture.grpc().store_load(stream::iter(chunks)).await;
    assert_eq!(error.unwrap_err().code(), Code::ResourceExhausted);
    // Beside a checkpoint.
    fixture.control.load(b"Text\n\nkey=value\n").unwrap();
    fixture.control.checkpoint("a").unwrap();
    let (status, answer) = fixture.post("StoreLoad", fits.clone()).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer["code"], 8);
    fixture.control.drop_copy("a").unwrap();
    let (status, _) = fixture.post("StoreLoad", fits).await;
    assert_eq!(status, StatusCode::OK, "all of it was given back");
}

/// A client that sends nothing more gets an error, and its bytes do not count any more.
#[tokio::test(start_paused = true)]
async fn a_file_that_does_not_arrive_is_refused() {
    let fixture = Fixture::new();
    let first = StoreFileChunk {
        data: Bytes::from_static(&[b'x'; 9_000]),
    };
    let chunks = stream::iter([first]).chain(stream::pending());
    let error = fixture.grpc().store_load(chunks).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    let (status, answer) = fixture
        .post("StoreLoad", format!("Text\n\nkey={}", "x".repeat(9_000)))
        .await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}
