//! Answers that are none, servers that do not answer, and configurations that cannot be used.

use std::net::TcpListener;
use std::time::Duration;

use pollster::block_on;
use revstore_reflector::ListWatch;
use revstore_reflector::kube::{ConfigError, EVENT_BYTES_MAX, KubeListWatch, TimeLimits};
use revstore_watch_cache::{ListOptions, RequestError, Selector, WatchEvent, WatchOptions};

use super::server::{After, Server, event, list, pod, runtime, watch, whole};
use super::{fetch_list, fetch_watch};

#[test]
fn what_is_no_event_ends_the_watch_with_an_error() {
    let huge = pod("a", 6).replace("\"args\"", &format!("\"{}\"", "x".repeat(EVENT_BYTES_MAX)));
    let cases = [
        ("<html>".to_owned(), "it starts with '<'"),
        (event("ADDED", "{]}"), "unable to decode"),
        (event("ADDED", "{}"), "missing field `metadata`"),
        (
            event(
                "ADDED",
                r#"{"metadata":{"name":"a","resourceVersion":"x"}}"#,
            ),
            "not a number",
        ),
        (
            event("ADDED", r#"{"metadata":{"name":"","resourceVersion":"1"}}"#),
            "name` is empty",
        ),
        (event("RENAMED", &pod("a", 1)), "its type is \"RENAMED\""),
        (event("BOOKMARK", "{}"), "unable to decode a bookmark"),
        (event("ADDED", &huge), "an event is larger than"),
    ];
    for (text, expected) in cases {
        let parts = [
            &event("ADDED", &pod("first", 5)),
            &text,
            &event("ADDED", &pod("c", 8)),
        ];
        let server = Server::new(5, [watch(&parts.map(String::as_str), After::Hang)]);
        let events = fetch_watch(&server.builder().build().unwrap());
        let [
            WatchEvent::Object { .. },
            WatchEvent::Error(RequestError::Internal(error)),
        ] = &events[..]
        else {
            panic!("{expected}: {events:?}");
        };
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_is_no_list_is_an_error() {
    let page = |body: &str| whole("200 OK", "", body);
    let cases = [
        (page("{"), "unable to decode a list"),
        (
            page(r#"{"kind":"PodList","items":[]}"#),
            "missing field `metadata`",
        ),
        (
            page(r#"{"kind":"Table","metadata":{"resourceVersion":"1"}}"#),
            "its kind is \"Table\"",
        ),
        (list(1, "", &["{}"]), "missing field `metadata`"),
        (
            list(1, "", &[&pod("x", 1), &"y".repeat(5_000)]),
            "unable to decode a list",
        ),
        (
            list(1, "", &[&pod(&"y".repeat(5_000), 1)]),
            "a list is larger than 4000 bytes",
        ),
    ];
    for (answer, expected) in cases {
        let server = Server::new(6, [answer]);
        let limit = if expected.contains("larger") {
            4_000
        } else {
            1_000_000
        };
        let source = server.builder().list_bytes_max(limit).build().unwrap();
        let error = fetch_list(&source).unwrap_err();
        assert!(
            matches!(&error, RequestError::Internal(text) if text.contains(expected)),
            "{error}"
        );
    }
    // Items may be absent, and a list may end with its connection.
    let mut answer = page(r#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":null}"#);
    answer.after = After::Close;
    let server = Server::new(6, [answer]);
    assert!(
        fetch_list(&server.builder().build().unwrap())
            .unwrap()
            .is_empty()
    );
    // A list that is cut is not a shorter list.
    let mut answer = list(7, "", &[&pod("a", 1)]);
    answer.bytes.truncate(answer.bytes.len() - 3);
    answer.after = After::Close;
    let server = Server::new(6, [answer]);
    let error = fetch_list(&server.builder().build().unwrap()).unwrap_err();
    assert!(error.is_temporary(), "{error}");
}

#[test]
fn a_server_that_does_not_answer_is_unavailable() {
    let limits = TimeLimits::default().read(Duration::from_millis(50));
    // No answer, and an answer without an end.
    let mut endless = list(1, "", &[]);
    endless.bytes.truncate(endless.bytes.len() - 5);
    endless.after = After::Hang;
    let server = Server::new(7, [endless]);
    let source = server.builder().limits(limits).build().unwrap();
    for _ in 0..2 {
        let error = fetch_list(&source).unwrap_err();
        assert!(matches!(error, RequestError::Unavailable(_)), "{error}");
        server.wait_for("closed");
    }
    let error = block_on(source.watch(WatchOptions::default()))
        .err()
        .unwrap();
    assert!(error.is_temporary(), "{error}");

    // A watch without bytes ends, and is then requested again.
    let server = Server::new(7, [watch(&[&event("ADDED", &pod("a", 1))], After::Hang)]);
    let source = server
        .builder()
        .limits(limits.watch_idle(Duration::from_millis(50)));
    assert_eq!(fetch_watch(&source.build().unwrap()).len(), 1);
    server.wait_for("closed");

    // Nobody listens.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let source = KubeListWatch::builder(format!("http://{free}"), "/api/v1/pods");
    let error = fetch_list(&source.runtime(runtime().clone()).build().unwrap()).unwrap_err();
    assert!(error.is_temporary(), "{error}");
}

#[test]
fn a_request_whose_future_is_dropped_closes_its_connection() {
    let server = Server::new(8, []);
    let source = server.builder().build().unwrap();
    let mut list = Box::pin(source.list(ListOptions::default()));
    assert!(crate::support::poll_once(&mut list).is_pending());
    server.wait_for("GET ");
    drop(list);
    server.wait_for("closed");
    server.then([watch(&[], After::Hang)]);
    let events = block_on(source.watch(WatchOptions::default())).unwrap();
    drop(events);
    server.wait_for("closed");
}

#[test]
fn configurations_that_cannot_be_used_are_refused() {
    let build = |server: &str| {
        let builder = KubeListWatch::builder(server, "/api/v1/pods").runtime(runtime().clone());
        builder.build().err().unwrap()
    };
    for server in [
        "",
        "localhost:80",
        "ftp://a",
        "http://user@a",
        "http://a/?b=c",
        "http://",
    ] {
        assert!(matches!(build(server), ConfigError::Server(_)), "{server}");
    }
    assert_eq!(
        build("https://a").to_string(),
        "invalid TLS configuration: no certificate"
    );
    let builder = || KubeListWatch::builder("http://a", "/p").runtime(runtime().clone());
    let selector = builder().selector("a in", "").build().err().unwrap();
    assert!(matches!(selector, ConfigError::Selector(_)));
    let no_runtime = KubeListWatch::builder("http://a", "/p").build().err();
    assert_eq!(no_runtime, Some(ConfigError::NoRuntime));

    // A token that cannot be read, or is no header, and a selector in the options.
    let source = builder()
        .bearer_token_with(|| Err("no file".into()))
        .build()
        .unwrap();
    assert_eq!(
        fetch_list(&source).unwrap_err(),
        RequestError::Unavailable("no file".into())
    );
    let source = builder().bearer_token("a\nb").build().unwrap();
    assert_eq!(fetch_list(&source).unwrap_err().code(), 400);
    assert!(!format!("{source:?} {:?}", builder().bearer_token("secret")).contains("secret"));
    let options = ListOptions::default().selector(Selector::parse("a=b", "").unwrap());
    assert_eq!(block_on(source.list(options)).err().unwrap().code(), 400);
}
