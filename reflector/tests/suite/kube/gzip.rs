//! Compressed answers.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use pollster::block_on;
use revstore_reflector::ListWatch;
use revstore_watch_cache::{RequestError, WatchOptions};

use super::fetch_list;
use super::server::{After, Answer, Server, list, pod, status, whole};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns an answer with a body as it is.
fn answer(status: &str, encoding: &str, body: &[u8]) -> Answer {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nContent-Encoding: {encoding}\r\n\r\n"
    );
    Answer {
        bytes: [head.as_bytes(), body].concat(),
        after: After::Request,
    }
}

fn body_of(answer: &Answer) -> Vec<u8> {
    let text = String::from_utf8(answer.bytes.clone()).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.into()
}

#[test]
fn lists_and_errors_are_decompressed_wherever_they_are_cut() {
    let body = body_of(&list(5, "", &[&pod("a", 1), &pod("b", 2)]));
    let (begin, end) = body.split_at(body.len() / 2);
    // As one member of gzip, and as two.
    let members = [gzip(&body), [gzip(begin), gzip(end)].concat()];
    for (seed, compressed) in (0..20).zip(members.iter().cycle()) {
        let forbidden = gzip(status(403, r#""message":"no""#).as_bytes());
        let server = Server::new(
            seed,
            [
                answer("200 OK", "gzip", compressed),
                answer("403 F", "GZIP", &forbidden),
                answer("200 OK", "identity", &body),
            ],
        );
        let source = server.builder().build().unwrap();
        assert_eq!(fetch_list(&source).unwrap(), ["a", "b"]);
        let head = server.wait_for("GET ");
        assert!(head.contains("accept-encoding: gzip\r\n"), "{head}");
        let error = fetch_list(&source).unwrap_err().status();
        assert_eq!((error.code, error.message.as_str()), (403, "no"));
        assert_eq!(fetch_list(&source).unwrap(), ["a", "b"]);
    }
}

#[test]
fn a_damaged_list_is_an_error_and_not_a_shorter_list() {
    let body = body_of(&list(5, "", &[&pod("a", 1)]));
    let whole_body = gzip(&body);
    let mut flipped = whole_body.clone();
    let checksum = flipped.len() - 6;
    flipped[checksum] ^= 1;
    let trailing = [&whole_body[..], b"more"].concat();
    let cut = whole_body[..whole_body.len() - 3].to_vec();
    for damaged in [flipped, trailing, cut, body, Vec::new()] {
        let server = Server::new(1, [answer("200 OK", "gzip", &damaged)]);
        let error = fetch_list(&server.builder().build().unwrap()).unwrap_err();
        assert!(error.is_temporary(), "{error}");
    }
}

#[test]
fn a_list_is_limited_after_its_decompression() {
    let spaces = [body_of(&list(5, "", &[])), vec![b' '; 50_000_000]].concat();
    let compressed = gzip(&spaces);
    assert!(compressed.len() < 300_000);
    let fetch = |max| {
        let server = Server::new(1, [answer("200 OK", "gzip", &compressed)]);
        fetch_list(&server.builder().list_bytes_max(max).build().unwrap())
    };
    assert!(fetch(spaces.len()).unwrap().is_empty());
    let error = fetch(spaces.len() - 1).unwrap_err();
    assert!(
        matches!(&error, RequestError::Internal(text) if text.contains("larger than")),
        "{error}"
    );
    // The status of an error is known without its body.
    let server = Server::new(1, [answer("503 U", "gzip", &gzip(&vec![b'x'; 1_000_000]))]);
    let error = fetch_list(&server.builder().build().unwrap()).unwrap_err();
    assert_eq!(error.code(), 503);
}

#[test]
fn an_encoding_that_was_not_asked_for_is_an_error() {
    let server = Server::new(
        1,
        [answer("200 OK", "br", b"x"), answer("500 E", "br", b"x")],
    );
    let source = server.builder().build().unwrap();
    let error = fetch_list(&source).unwrap_err();
    assert!(error.to_string().contains("encoded as \"br\""), "{error}");
    assert_eq!(fetch_list(&source).unwrap_err().code(), 500);

    let server = Server::new(
        1,
        [
            answer("200 OK", "gzip", &gzip(b"{}")),
            whole("200 OK", "", ""),
        ],
    );
    let source = server.builder().build().unwrap();
    let error = block_on(source.watch(WatchOptions::default()))
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("a watch is compressed"),
        "{error}"
    );
    let head = server.wait_for("GET ");
    assert!(head.contains("accept-encoding: identity\r\n"), "{head}");
}
