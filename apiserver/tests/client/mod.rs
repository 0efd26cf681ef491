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
#[allow(dead_code, reason = "not all programs of tests use it")]
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

#[allow(dead_code, reason = "not all programs of tests use it")]
impl Watch {
    pub(crate) fn open(server: &ApiServer, path: &str) -> Self {
        let address = server.endpoint().trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("the server listens");
        let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("the server reads");
        Self(BufReader::new(stream))
    }

    /// Returns the next event, or `None` at the end of the body.
    ///
    /// # Panics
    /// The body breaks off.
    pub(crate) fn next(&mut self) -> Option<Value> {
        match self.read() {
            Read::Event(event) => Some(event),
            Read::End => None,
            Read::Break => panic!("the watch breaks off instead of ending"),
        }
    }

    /// Reads the remaining events, and returns them with whether the body has ended properly instead of breaking off.
    #[allow(dead_code, reason = "not all programs of tests use it")]
    pub(crate) fn rest(&mut self) -> (Vec<Value>, bool) {
        let mut events = Vec::new();
        loop {
            match self.read() {
                Read::Event(event) => events.push(event),
                Read::End => return (events, true),
                Read::Break => return (events, false),
            }
        }
    }

    fn read(&mut self) -> Read {
        loop {
            let mut line = String::new();
            match self.0.read_line(&mut line) {
                Ok(0) | Err(_) => return Read::Break,
                // The connection stays open after the last chunk, which is empty.
                Ok(_) if line == "0\r\n" => return Read::End,
                Ok(_) => {}
            }
            if line.starts_with('{') {
                let event = serde_json::from_str(&line).expect("a whole event");
                return Read::Event(event);
            }
        }
    }
}

/// What a watch reads next.
enum Read {
    Event(Value),
    /// The last chunk, after which the server sends nothing more.
    End,
    /// The connection ends before the last chunk.
    Break,
}
