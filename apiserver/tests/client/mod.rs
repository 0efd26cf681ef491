//! A client that writes the bytes of its requests itself.

pub(crate) mod exchange;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use revstore_apiserver::ApiServer;
use serde_json::Value;

use exchange::exchange;

#[allow(dead_code, reason = "not all programs of tests use it")]
pub(crate) type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Sends one request, and returns the status and the body of the answer.
pub(crate) fn send(server: &ApiServer, method: &str, path: &str, body: &str) -> (u16, String) {
    send_to(server.endpoint(), method, path, body)
}

/// Sends one request to a URL, and returns the status and the body of the answer.
pub(crate) fn send_to(url: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let fields = format!("Content-Type: {content_type}\r\n");
    exchange(url, method, path, &fields, body)
}

pub(crate) fn value(answer: &(u16, String)) -> (u16, Value) {
    (
        answer.0,
        serde_json::from_str(&answer.1).unwrap_or_default(),
    )
}

/// A watch that reads its events as lines.
pub(crate) struct Watch(BufReader<TcpStream>);

impl Watch {
    pub(crate) fn open(server: &ApiServer, path: &str) -> Self {
        let address = server.endpoint().trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("the server listens");
        let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("the server reads");
        Self(BufReader::new(stream))
    }

    /// Returns the next event, or `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            // The connection stays open after the last chunk, which is empty.
            if self.0.read_line(&mut line).ok()? == 0 || line == "0\r\n" {
                return None;
            }
            if line.starts_with('{') {
                return serde_json::from_str(&line).ok();
            }
        }
    }
}
