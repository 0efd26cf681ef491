//! The errors of bodies that cannot be decoded.

use std::fmt::Write as _;

use revstore_watch_cache::status::Status;
use serde_json::Value;
use thiserror::Error;

/// The error of a body that cannot be decoded. The texts are those of kube-apiserver, where its parsers
/// and ours notice the same error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The JSON is malformed.
    #[error("{0}")]
    Json(String),
    /// The YAML is malformed.
    #[error("yaml: {0}")]
    Yaml(String),
    /// The body is JSON or YAML, but not an object.
    #[error("json: cannot unmarshal {0} into Go value of type map[string]interface {{}}")]
    NotAnObject(&'static str),
    /// Lists and objects are nested too deeply.
    #[error("exceeded max depth of {max}")]
    TooDeep {
        /// The number of allowed levels.
        max: usize,
    },
    /// An object of a custom resource does not say its kind.
    #[error("Object 'Kind' is missing")]
    KindMissing,
    /// The aliases of a YAML document stand for too much text.
    #[error("yaml: document contains excessive aliasing")]
    TooManyAliases,
}

/// The number of bytes of a body in an error message.
const SUMMARY_BYTES: usize = 30;

impl DecodeError {
    /// Returns the answer to a request for an object of the kind `expected` whose body has no kind that
    /// could be read: 400.
    pub fn status(&self, expected: &str, body: &[u8]) -> Status {
        let cause = match self {
            Self::Json(_) | Self::NotAnObject(_) => {
                format!("couldn't get version/kind; json parse error: {self}")
            }
            other => other.to_string(),
        };
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {expected}): {cause} ({})",
            summary(body)
        ))
    }
}

/// Returns the first bytes of a body: JSON as it is, and all else in hexadecimal digits.
fn summary(body: &[u8]) -> String {
    let Some(first) = body.first() else {
        return "<empty>".to_owned();
    };
    let shown = &body[..body.len().min(SUMMARY_BYTES)];
    let mut text = if *first == b'{' {
        String::from_utf8_lossy(shown).into_owned()
    } else {
        shown.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    if body.len() > SUMMARY_BYTES {
        text.push_str(" ...");
    }
    text
}

/// Returns the answer to a request for an object of the kind `expected` whose body has the kind `kind`,
/// and is not that or is malformed: 400.
pub fn unhandled(kind: &str, version: &str, expected: &str, detail: &str) -> Status {
    Status::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {expected}: {detail}"
    ))
}

/// Returns the message about strict errors, of which there is at least one.
///
/// ```
/// use revstore_apiserver::decode::strict_message;
/// let errors = ["unknown field \"a\"".to_owned(), "duplicate field \"b\"".to_owned()];
/// assert_eq!(
///     strict_message(&errors),
///     "strict decoding error: unknown field \"a\", duplicate field \"b\""
/// );
/// ```
pub fn strict_message(errors: &[String]) -> String {
    format!("strict decoding error: {}", errors.join(", "))
}

/// The beginning of the text of a list of errors in YAML.
pub(super) const YAML_ERRORS: &str = "yaml: unmarshal errors:\n";

/// Returns the texts of the warnings about strict errors. The error of a YAML document consists of several.
pub fn strict_warnings(errors: &[String]) -> Vec<String> {
    errors
        .iter()
        .flat_map(|error| error.strip_prefix(YAML_ERRORS).unwrap_or(error).split('\n'))
        .map(|line| line.trim().to_owned())
        .collect()
}

/// Returns Go's name of the JSON type of a value.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::{DecodeError, strict_warnings, unhandled};

    #[test]
    fn statuses_show_the_beginning_of_the_body() {
        let error = DecodeError::Json("unexpected end of JSON input".to_owned());
        for (body, shown) in [
            ("", "(<empty>)"),
            ("{\"a\":", "({\"a\":)"),
            ("[]", "(5b5d)"),
            (
                "{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\":",
                "({\"aaaaaaaaaaaaaaaaaaaaaaaaaaaa ...)",
            ),
        ] {
            let status = error.status("Widget", body.as_bytes());
            assert_eq!(status.code, 400);
            assert_eq!(
                status.message,
                format!(
                    "the object provided is unrecognized (must be of type Widget): couldn't get \
                     version/kind; json parse error: unexpected end of JSON input {shown}"
                )
            );
        }
        assert_eq!(
            unhandled("Secret", "v1", "ConfigMap", "no").message,
            "Secret in version \"v1\" cannot be handled as a ConfigMap: no"
        );
    }

    #[test]
    fn each_line_about_yaml_is_a_warning() {
        let errors = [
            "yaml: unmarshal errors:\n  line 2: key \"a\" already set in map\n  line 5: key \"c\" already set in map".to_owned(),
            "unknown field \"x\"".to_owned(),
        ];
        assert_eq!(
            strict_warnings(&errors),
            [
                "line 2: key \"a\" already set in map",
                "line 5: key \"c\" already set in map",
                "unknown field \"x\""
            ]
        );
    }
}
