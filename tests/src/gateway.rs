//! Sessions with the JSON gateway written down as text, and replayed.
//!
//! ```text
//! > kv/put {"key":"Zm9v"}            POST /v3/kv/put with this body ...
//! 200                                ... is answered with this status ...
//! {"header":"@2"}                    ... and this object
//! >> watch {"create_request":{}}     a stream: as many lines are read as stand below
//! 200
//! {"result":{"header":"@2","created":true}}
//! GET kv/range                       another verb
//! as %token%                         from here on with this Authorization; `as nobody` without
//! # a comment
//! ```
//!
//! Objects are compared as such, whatever blanks and order they come in (HT-24). In them
//! `"header":"@7"` is a header of our servers at revision 7, and `"@"` one without a revision.
//! `"%name%"` stands for a text that is not known beforehand: where it is seen first, it takes on
//! the text at its place, and from then on it has to be the same one, also in requests. `"%_%"` is
//! any text each time. Of errors only code and message are compared (HT-22).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Map, Value};

use crate::http::Request;
use crate::scenario::target::{CLUSTER_ID, MEMBER_ID, RAFT_TERM};

/// Replays a session.
///
/// # Errors
/// Says where it went differently.
pub fn replay(address: SocketAddr, text: &str) -> Result<(), String> {
    let mut names = Names::default();
    let mut user = None;
    for step in parse(text)? {
        match step {
            Step::As(token) => user = (token != "nobody").then(|| names.fill_in(token)),
            Step::Call(call) => {
                let request = names.fill_in(call.body);
                call.run(address, &request, user.as_deref(), &mut names)
                    .map_err(|error| format!("{} {} {request}\n{error}", call.method, call.path))?;
            }
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Step<'a> {
    As(&'a str),
    Call(Call<'a>),
}

#[derive(Debug, Default, PartialEq)]
struct Call<'a> {
    method: &'a str,
    path: &'a str,
    body: &'a str,
    is_stream: bool,
    status: u16,
    objects: Vec<Value>,
}

fn parse(text: &str) -> Result<Vec<Step<'_>>, String> {
    let mut steps = Vec::new();
    for line in text.lines().map(str::trim) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, steps.last_mut()) {
            ("" | "#", _) => {}
            ("as", _) => steps.push(Step::As(rest)),
            (">" | ">>" | "GET" | "PUT" | "DELETE", _) => {
                let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
                steps.push(Step::Call(Call {
                    method: if word.starts_with('>') { "POST" } else { word },
                    path,
                    body,
                    is_stream: word == ">>",
                    ..Call::default()
                }));
            }
            (status, Some(Step::Call(call))) if call.status == 0 => {
                call.status = status.parse().map_err(|_| format!("{line}: no status"))?;
            }
            (_, Some(Step::Call(call))) => {
                let object = serde_json::from_str(line).map_err(|e| format!("{line}: {e}"))?;
                call.objects.push(object);
            }
            _ => return Err(format!("{line}: no step")),
        }
    }
    Ok(steps)
}

impl Call<'_> {
    fn run(
        &self,
        address: SocketAddr,
        body: &str,
        user: Option<&str>,
        names: &mut Names,
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
        let answer = if self.is_stream {
            request.send_for_lines(address, self.objects.len())
        } else {
            request.send(address)
        };
        let answer = answer.map_err(|error| error.to_string())?;
        let objects = serde_json::Deserializer::from_str(&answer.body).into_iter();
        let objects: Result<Vec<Value>, _> = objects.collect();
        let mut objects = objects.map_err(|error| format!("{error}: {}", answer.body))?;
        objects.iter_mut().for_each(normalise);
        let agrees = answer.status == self.status
            && objects.len() == self.objects.len()
            && (self.objects.iter().zip(&objects)).all(|(one, other)| names.agree(one, other));
        if agrees {
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
            answer.status,
            lines(&objects)
        ))
    }
}

/// Abbreviates headers, and takes off errors what only some gateways say.
fn normalise(object: &mut Value) {
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
            normalise(inner);
        }
    }
}

/// The revision of a header that is otherwise as expected of a server under test.
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

/// Texts that became known.
#[derive(Debug, Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn fill_in(&self, text: &str) -> String {
        let filled_in = self.0.iter();
        filled_in.fold(text.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        })
    }

    fn agree(&mut self, expected: &Value, actual: &Value) -> bool {
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
                        found.is_some_and(|found| self.agree(value, found))
                    })
            }
            (Value::Array(expected), Value::Array(actual)) => {
                expected.len() == actual.len()
                    && (expected.iter().zip(actual)).all(|(one, other)| self.agree(one, other))
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
    fn a_session_is_read_step_by_step() {
        let text = "
            # who
            as %token%
            > kv/put {\"key\": \"a b\"}
            200
            {}
            >> watch
            400
            GET kv/range
            501";
        let steps = parse(text).unwrap();
        let put = Call {
            method: "POST",
            path: "kv/put",
            body: r#"{"key": "a b"}"#,
            status: 200,
            objects: vec![json!({})],
            ..Call::default()
        };
        let watch = Call {
            method: "POST",
            path: "watch",
            is_stream: true,
            status: 400,
            ..Call::default()
        };
        let get = Call {
            method: "GET",
            path: "kv/range",
            status: 501,
            ..Call::default()
        };
        let calls = [put, watch, get].map(Step::Call);
        assert_eq!(steps[0], Step::As("%token%"));
        assert_eq!(steps[1..], calls);
        assert!(parse("nonsense").is_err() && parse("> a\nb").is_err());
    }

    #[test]
    fn names_take_on_what_is_there_first() {
        let mut names = Names::default();
        let expected = json!({"a": ["%x%", "%_%", "%x%"]});
        assert!(!names.agree(&expected, &json!({"a": ["1", "2"]})));
        assert!(names.agree(&expected, &json!({"a": ["1", "2", "1"]})));
        assert!(!names.agree(&expected, &json!({"a": ["2", "2", "2"]})));
        assert!(!names.agree(&json!({}), &json!({"b": 1})));
        assert_eq!(names.fill_in("<%x%>"), "<1>");
    }

    #[test]
    fn ht_22_of_errors_code_and_message_count() {
        let mut error = json!({"error": "e", "code": 3, "message": "m", "details": []});
        normalise(&mut error);
        assert_eq!(error, json!({"code": 3, "message": "m"}));
        let mut line = json!({"error": {"code": 3, "message": "m", "http_code": 400}});
        normalise(&mut line);
        assert_eq!(line, json!({"error": {"code": 3, "message": "m"}}));
    }

    #[test]
    fn headers_of_our_servers_are_abbreviated() {
        let header = |term: &str| {
            json!({
                "cluster_id": CLUSTER_ID.to_string(),
                "member_id": MEMBER_ID.to_string(),
                "raft_term": term,
            })
        };
        let mut answer = json!({"result": {"header": header("2")}});
        normalise(&mut answer);
        assert_eq!(answer, json!({"result": {"header": "@"}}));
        let mut other = json!({"header": header("3")});
        normalise(&mut other);
        assert_eq!(other, json!({"header": header("3")}));
    }
}
