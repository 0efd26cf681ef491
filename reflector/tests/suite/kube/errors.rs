//! Errors that the server reports.

use pollster::block_on;
use revstore_reflector::ListWatch;
use revstore_watch_cache::api::Expired;
use revstore_watch_cache::{RequestError, Revision, WatchOptions};

use super::server::{After, Server, event, list, pod, status, watch, whole};
use super::{fetch_list, next, reflector};

// Shows WC-530: Expired by the code and by its reasons.
#[test]
fn wc_530_errors_of_the_server_are_those_of_a_cache() {
    let expired = |message: &str| RequestError::Expired(Expired::Reported(message.into()));
    let busy = |seconds| RequestError::TooManyRequests {
        message: "busy".into(),
        retry_after_seconds: seconds,
    };
    let cases = [
        (
            "410 Gone",
            "",
            status(410, r#""message":"old","reason":"Expired""#),
            expired("old"),
        ),
        (
            "500 E",
            "",
            status(500, r#""message":"old","reason":"Gone""#),
            expired("old"),
        ),
        ("410 Gone", "", "gone".into(), expired("gone")),
        (
            "410 Gone",
            "",
            status(410, r#""message":"m""#).replace("{}", r#"{"continue":"t"}"#),
            RequestError::Expired(Expired::Continue {
                token: Some("t".into()),
            }),
        ),
        (
            "504 T",
            "",
            status(
                504,
                r#""message":"Timeout: Too large resource version: 9, current: 4""#,
            ),
            RequestError::TooLarge {
                requested: Revision(9),
                current: Revision(4),
            },
        ),
        (
            "429 M",
            "",
            status(429, r#""message":"busy","details":{"retryAfterSeconds":7}"#),
            busy(7),
        ),
        (
            "429 M",
            "Retry-After: 3\r\n",
            status(429, r#""message":"busy""#),
            busy(3),
        ),
        ("429 M", "Retry-After: Fri\r\n", "busy".into(), busy(0)),
        (
            "503 U",
            "",
            "down".into(),
            RequestError::Unavailable("down".into()),
        ),
    ];
    for (line, headers, body, expected) in cases {
        let server = Server::new(1, [whole(line, headers, &body)]);
        let source = server.builder().build().unwrap();
        assert_eq!(fetch_list(&source).unwrap_err(), expected, "{line} {body}");
        server.then([whole(line, headers, &body)]);
        let started = block_on(source.watch(WatchOptions::default()));
        assert_eq!(started.err(), Some(expected), "{line} {body}");
    }
}

#[test]
fn other_errors_keep_their_code_reason_and_message() {
    let forbidden = status(
        403,
        r#""message":"pods is forbidden","reason":"Forbidden","details":{"kind":"pods"}"#,
    );
    let server = Server::new(
        1,
        [
            whole("403 F", "", &forbidden),
            whole("404 N", "", "404 page not found\n"),
            whole("302 F", "Location: /elsewhere\r\n", ""),
        ],
    );
    let source = server.builder().build().unwrap();
    let found: Vec<_> = (0..3)
        .map(|_| {
            let error = fetch_list(&source).unwrap_err();
            let status = error.status();
            (
                status.code,
                status.reason.map_or("", |reason| reason.name()),
                status.message,
                status.details.unwrap_or_default().kind,
            )
        })
        .collect();
    let row =
        |code, reason, text: &str, kind: &str| (code, reason, text.to_owned(), kind.to_owned());
    assert_eq!(
        found,
        [
            row(403, "Forbidden", "pods is forbidden", "pods"),
            row(404, "", "404 page not found\n", ""),
            row(302, "", "", ""),
        ]
    );
}

// Shows WC-506.
#[test]
fn wc_506_after_410_in_a_watch_and_in_a_list_the_reflector_lists_again() {
    let gone = status(
        410,
        r#""message":"too old resource version: 5 (8)","reason":"Expired""#,
    );
    let server = Server::new(
        9,
        [
            list(5, "", &[]),
            watch(
                &[&event("ERROR", &gone), &event("ADDED", &pod("never", 6))],
                After::Hang,
            ),
            whole("410 Gone", "", &gone),
            list(9, "", &[&pod("a", 9)]),
            watch(&[], After::Hang),
        ],
    );
    let mut reflector = reflector(server.builder().build().unwrap());
    let expired = "failed 410: too old resource version: 5 (8)";
    assert_eq!(
        next(&mut reflector, 7),
        [
            "init",
            "done 5",
            expired,
            expired,
            "init",
            "init ns/a",
            "done 9"
        ]
    );
    let targets = server.targets();
    let lists: Vec<&str> = targets
        .iter()
        .filter(|t| !t.contains("watch"))
        .map(|t| &t[13..])
        .collect();
    assert_eq!(
        lists,
        [
            "limit=500&resourceVersion=0",
            "resourceVersion=5",
            "limit=500"
        ]
    );
}
