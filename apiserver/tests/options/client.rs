//! A client that writes its requests itself.

use std::io::{Read, Write};
use std::net::TcpStream;

use revstore_apiserver::ApiServer;
use serde_json::Value;

/// Sends one request, and returns the status and the body of the answer.
pub(crate) fn send(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    send_as(server, "", method, path, body)
}

/// Sends one request with a bearer token.
pub(crate) fn send_as(
    server: &ApiServer,
    token: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let address = server.endpoint().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let credentials = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: test\r\n{credentials}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the server answers");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (
        status.unwrap_or_default(),
        serde_json::from_str(body).unwrap_or_default(),
    )
}

/// Returns the status of a get.
pub(crate) fn status(server: &ApiServer, path: &str) -> u16 {
    send(server, "GET", path, &Value::Null).0
}
