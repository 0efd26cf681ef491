//! Requests with objects.

use revstore_apiserver::ApiServer;
use serde_json::Value;

use crate::exchange::exchange;

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
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let credentials = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let fields = format!("{credentials}Content-Type: application/json\r\n");
    let (status, body) = exchange(server.endpoint(), method, path, &fields, &body);
    (status, serde_json::from_str(&body).unwrap_or_default())
}

/// Returns the status of a get.
pub(crate) fn status(server: &ApiServer, path: &str) -> u16 {
    send(server, "GET", path, &Value::Null).0
}
