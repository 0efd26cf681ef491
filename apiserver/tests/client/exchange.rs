//! One request over a connection of its own.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Sends one request to a URL, with further header fields, each with the end of its line. Returns the status and the body
/// of the answer.
pub(crate) fn exchange(
    url: &str,
    method: &str,
    path: &str,
    fields: &str,
    body: &str,
) -> (u16, String) {
    parsed(&answer(url, method, path, fields, body))
}

/// As [`exchange`], with the address as the host.
#[allow(dead_code, reason = "not all programs of tests use it")]
pub(crate) fn exchange_with_host(
    address: &str,
    method: &str,
    path: &str,
    fields: &str,
    body: &str,
) -> (u16, String) {
    parsed(&answer_of(address, address, method, path, fields, body))
}

fn parsed(answer: &str) -> (u16, String) {
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let body = if answer
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        joined_chunks(body)
    } else {
        body.to_owned()
    };
    (status.unwrap_or_default(), body)
}

/// Sends the request, and returns the answer with its header.
pub(crate) fn answer(url: &str, method: &str, path: &str, fields: &str, body: &str) -> String {
    let address = url.trim_start_matches("http://");
    answer_of(address, "test", method, path, fields, body)
}

fn answer_of(
    address: &str,
    host: &str,
    method: &str,
    path: &str,
    fields: &str,
    body: &str,
) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    // The server may refuse the connection, or answer and close it before it has read a body that is too large.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn joined_chunks(mut text: &str) -> String {
    let mut joined = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap_or_default();
        if length == 0 {
            break;
        }
        joined.push_str(&rest[..length]);
        text = &rest[length + 2..];
    }
    joined
}
