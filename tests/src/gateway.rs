//! Recorded sessions with the JSON gateway, and their replay.
//!
//! ```text
//! > kv/put {"key":"Zm9v"}            sends POST /v3/kv/put with this body
//! 200                                expects a response with this status
//! {"header":"@2"}                    and this object
//! >> watch {"create_request":{}}     opens a stream and reads as many lines as are listed below the status
//! 200
//! {"result":{"header":"@2","created":true}}
//! GET kv/range                       sends a request with another HTTP method
//! as %token%                         sets the Authorization header from here on; `as nobody` removes it
//! # a comment
//! ```
//!
//! Objects are compared by value, not by the text of the JSON (HT-24). `"header":"@7"` is the header of a
//! server under test at revision 7, `"@"` is such a header without a revision. `"%name%"` is a placeholder:
//! its first occurrence matches any string, and every later occurrence, also in requests, is the same string.
//! `"%_%"` matches any string. Of errors, only the code and the message are compared (HT-22).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Map, Value};

use crate::http::Request;
use crate::scenario::target::{CLUSTER_ID, MEMBER_ID, RAFT_TERM};

/// Replays a session.
///
/// # Errors
/// A description of the first call whose response differs.
pub fn replay(address: SocketAddr, text: &str) -> Result<(), String> {
    let mut placeholders = Placeholders::default();
    let mut user = None;
    for step in parse(text)? {
        match step {
            GatewayStep::As(token) => {
                user = (token != "nobody").then(|| placeholders.substitute(token));
            }
            GatewayStep::Call(call) => {
                let request = placeholders.substitute(call.body);
                call.run(address, &request, user.as_deref(), &mut placeholders)
                    .map_err(|error| format!("{} {} {request}\n{error}", call.method, call.path))?;
            }
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq)]
enum GatewayStep<'a> {
    As(&'a str),
    Call(GatewayCall<'a>),
}

#[derive(Debug, Default, PartialEq)]
struct GatewayCall<'a> {
    method: &'a str,
    path: &'a str,
    body: &'a str,
    is_stream: bool,
    status: u16,
    objects: Vec<Value>,
}

fn parse(text: &str) -> Result<Vec<GatewayStep<'_>>, String> {
    let mut steps = Vec::new();
    for line in text.lines().map(str::trim) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, steps.last_mut()) {
            ("" | "#", _) => {}
            ("as", _) => steps.push(GatewayStep::As(rest)),
            (">" | ">>" | "GET" | "PUT" | "DELETE", _) => {
                let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
                steps.push(GatewayStep::Call(GatewayCall {
                    method: if word.starts_with('>') { "POST" } else { word },
                    path,
                    body,
                    is_stream: word == ">>",
                    ..GatewayCall::default()
                }));
            }
            (status, Some(GatewayStep::Call(call))) if call.status == 0 => {
                call.status = status
                    .parse()
                    .map_err(|_| format!("invalid line {line:?}: expected a status code"))?;
            }
            (_, Some(GatewayStep::Call(call))) => {
                let object = serde_json::from_str(line).map_err(|e| format!("{line}: {e}"))?;
                call.objects.push(object);
            }
            _ => return Err(format!("invalid line {line:?}: expected a step")),
        }
    }
    Ok(steps)
}

impl GatewayCall<'_> {
    fn run(
        &self,
        address: SocketAddr,
        body: &str,
        user: Option<&str>,
        placeholders: &mut Placeholders,
    ) -> Result<(), String> {
        let headers: Vec<_> = user.iter().map(|user| ("Authorization", *user)).collect();
        let path = match self.path {
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/v3/{path}"),
        };
        let request = Request {
            method: self.method,
            path: &path,
            headers: &headers,
            body,
        };
        let response = if self.is_stream {
            request.send_for_lines(address, self.objects.len())
        } else {
            request.send(address)
        };
        let response = response.map_err(|error| error.to_string())?;
        let objects = serde_json::Deserializer::from_str(&response.body).into_iter();
        let objects: Result<Vec<Value>, _> = objects.collect();
        let mut objects = objects.map_err(|error| format!("{error}: {}", response.body))?;
        objects.iter_mut().for_each(normalize);
        let matches_expected = response.status == self.status
            && objects.len() == self.objects.len()
            && (self.objects.iter().zip(&objects))
                .all(|(one, other)| placeholders.matches(one, other));
        if matches_expected {
            return Ok(());
        }
        let lines = |objects: &[Value]| -> String {
            objects
                .iter()
                .flat_map(|object| [object.to_string(), "\n".to_owned()])
                .collect()
        };
        Err(format!(
            "--- expected:\n{}\n{}--- actual:\n{}\n{}",
            self.status,
            lines(&self.objects),
            response.status,
            lines(&objects)
        ))
    }
}

/// Abbreviates headers and removes the fields of errors that only some gateways send.
fn normalize(object: &mut Value) {
    let Value::Object(fields) = object else {
        return;
    };
    if fields.contains_key("code") && fields.contains_key("message") {
        fields.retain(|name, _| name == "code" || name == "message");
    }
    if let Some(header) = fields.get_mut("header")
        && let Some(revision) = header.as_object().and_then(full_header)
    {
        *header = Value::String(format!("@{revision}"));
    }
    for inner in ["result", "error"] {
        if let Some(inner) = fields.get_mut(inner) {
            normalize(inner);
        }
    }
}

/// Returns the revision of a header whose other fields are those of a server under test.
fn full_header(header: &Map<String, Value>) -> Option<&str> {
    let text = |name: &str| header.get(name).and_then(Value::as_str);
    let expected = [
        ("cluster_id", CLUSTER_ID),
        ("member_id", MEMBER_ID),
        ("raft_term", RAFT_TERM),
    ];
    let is_full = (expected.iter()).all(|(name, value)| text(name) == Some(&*value.to_string()));
    is_full.then(|| text("revision").unwrap_or_default())
}

/// The strings that placeholders have matched so far.
#[derive(Debug, Default)]
struct Placeholders(BTreeMap<String, String>);

impl Placeholders {
    fn substitute(&self, text: &str) -> String {
        let substitutions = self.0.iter();
        substitutions.fold(text.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        })
    }

    fn matches(&mut self, expected: &Value, actual: &Value) -> bool {
        match (expected, actual) {
            (Value::String(name), Value::String(_)) if name == "%_%" => true,
            (Value::String(name), Value::String(text))
                if name.starts_with('%') && name.ends_with('%') =>
            {
                self.0.entry(name.clone()).or_insert(text.clone()) == text
            }
            (Value::Object(expected), Value::Object(actual)) => {
                expected.len() == actual.len()
                    && expected.iter().all(|(name, value)| {
                        let found = actual.get(name);
                        found.is_some_and(|found| self.matches(value, found))
                    })
            }
            (Value::Array(expected), Value::Array(actual)) => {
                expected.len() == actual.len()
                    && (expected.iter().zip(actual)).all(|(one, other)| self.matches(one, other))
            }
            (expected, actual) => expected == actual,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_session_is_parsed_into_steps() {
        let text = "
            # authorization
            as %token%
            > kv/put {\"key\": \"a b\"}
            200
            {}
            >> watch
            400
            GET kv/range
            501";
        let steps = parse(text).unwrap();
        let put = GatewayCall {
            method: "POST",
            path: "kv/put",
            body: r#"{"key": "a b"}"#,
            status: 200,
            objects: vec![json!({})],
            ..GatewayCall::default()
        };
        let watch = GatewayCall {
            method: "POST",
            path: "watch",
            is_stream: true,
            status: 400,
            ..GatewayCall::default()
        };
        let get = GatewayCall {
            method: "GET",
            path: "kv/range",
            status: 501,
            ..GatewayCall::default()
        };
        let calls = [put, watch, get].map(GatewayStep::Call);
        assert_eq!(steps[0], GatewayStep::As("%token%"));
        assert_eq!(steps[1..], calls);
        assert!(parse("invalid").is_err() && parse("> a\nb").is_err());
    }

    #[test]
    fn a_placeholder_keeps_its_first_match() {
        let mut placeholders = Placeholders::default();
        let expected = json!({"a": ["%x%", "%_%", "%x%"]});
        assert!(!placeholders.matches(&expected, &json!({"a": ["1", "2"]})));
        assert!(placeholders.matches(&expected, &json!({"a": ["1", "2", "1"]})));
        assert!(!placeholders.matches(&expected, &json!({"a": ["2", "2", "2"]})));
        assert!(!placeholders.matches(&json!({}), &json!({"b": 1})));
        assert_eq!(placeholders.substitute("<%x%>"), "<1>");
    }

    #[test]
    fn ht_22_errors_are_compared_by_code_and_message() {
        let mut error = json!({"error": "e", "code": 3, "message": "m", "details": []});
        normalize(&mut error);
        assert_eq!(error, json!({"code": 3, "message": "m"}));
        let mut line = json!({"error": {"code": 3, "message": "m", "http_code": 400}});
        normalize(&mut line);
        assert_eq!(line, json!({"error": {"code": 3, "message": "m"}}));
    }

    #[test]
    fn headers_of_servers_under_test_are_abbreviated() {
        let header = |term: &str| {
            json!({
                "cluster_id": CLUSTER_ID.to_string(),
                "member_id": MEMBER_ID.to_string(),
                "raft_term": term,
            })
        };
        let mut response = json!({"result": {"header": header("2")}});
        normalize(&mut response);
        assert_eq!(response, json!({"result": {"header": "@"}}));
        let mut other = json!({"header": header("3")});
        normalize(&mut other);
        assert_eq!(other, json!({"header": header("3")}));
    }
}
