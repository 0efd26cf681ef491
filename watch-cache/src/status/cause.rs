//! The causes of a [`Status`](crate::status::Status): which field is wrong, and why.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::status::FieldPath;

/// The machine-readable reason of a [`StatusCause`]. Corresponds to `metav1.CauseType`. Kinds may have
/// reasons of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CauseReason(pub Cow<'static, str>);

impl CauseReason {
    /// A value does not exist.
    pub const NOT_FOUND: Self = Self::known("FieldValueNotFound");
    /// A required value is missing.
    pub const REQUIRED: Self = Self::known("FieldValueRequired");
    /// A value that must be unique exists already.
    pub const DUPLICATE: Self = Self::known("FieldValueDuplicate");
    /// A value is malformed.
    pub const INVALID: Self = Self::known("FieldValueInvalid");
    /// A value is none of the supported ones.
    pub const NOT_SUPPORTED: Self = Self::known("FieldValueNotSupported");
    /// A value is not allowed here.
    pub const FORBIDDEN: Self = Self::known("FieldValueForbidden");
    /// A value is too long.
    pub const TOO_LONG: Self = Self::known("FieldValueTooLong");
    /// A list has too many items.
    pub const TOO_MANY: Self = Self::known("FieldValueTooMany");
    /// A value has the wrong type.
    pub const TYPE_INVALID: Self = Self::known("FieldValueTypeInvalid");
    /// The field could not be checked.
    pub const INTERNAL: Self = Self::known("InternalError");
    /// The server, or the store behind it, sent an unexpected response.
    pub const UNEXPECTED_RESPONSE: Self = Self::known("UnexpectedServerResponse");
    /// Another field manager owns the field.
    pub const FIELD_MANAGER_CONFLICT: Self = Self::known("FieldManagerConflict");
    /// The requested resource version was not reached.
    pub const RESOURCE_VERSION_TOO_LARGE: Self = Self::known("ResourceVersionTooLarge");

    const fn known(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Returns the reason as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CauseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One of the causes of a [`Status`](crate::status::Status). Corresponds to `metav1.StatusCause`, and its
/// constructors to those of `field.Error`.
///
/// ```
/// use revstore_watch_cache::status::{FieldPath, StatusCause};
/// let cause = StatusCause::invalid(FieldPath::new("spec").child("size"), -1, "must not be negative");
/// assert_eq!(cause.to_string(), "spec.size: Invalid value: -1: must not be negative");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// The machine-readable reason; empty if there is none.
    #[serde(skip_serializing_if = "is_unset")]
    pub reason: CauseReason,
    /// The human-readable message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field or the option that caused the error, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn is_unset(reason: &CauseReason) -> bool {
    reason.0.is_empty()
}

impl StatusCause {
    /// Returns a cause without a field.
    pub fn new(reason: CauseReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            field: String::new(),
        }
    }

    fn of(reason: CauseReason, field: impl Into<FieldPath>, what: &str, detail: &str) -> Self {
        let message = if detail.is_empty() {
            what.to_owned()
        } else {
            format!("{what}: {detail}")
        };
        Self {
            reason,
            message,
            field: field.into().into(),
        }
    }

    /// The field names something that does not exist.
    pub fn not_found(field: impl Into<FieldPath>, value: impl Into<Value>) -> Self {
        let what = format!("Not found: {}", Shown(&value.into()));
        Self::of(CauseReason::NOT_FOUND, field, &what, "")
    }

    /// The field must be set.
    pub fn required(field: impl Into<FieldPath>, detail: &str) -> Self {
        Self::of(CauseReason::REQUIRED, field, "Required value", detail)
    }

    /// The value must be unique, and is not.
    pub fn duplicate(field: impl Into<FieldPath>, value: impl Into<Value>) -> Self {
        let what = format!("Duplicate value: {}", Shown(&value.into()));
        Self::of(CauseReason::DUPLICATE, field, &what, "")
    }

    /// The value is malformed.
    pub fn invalid(field: impl Into<FieldPath>, value: impl Into<Value>, detail: &str) -> Self {
        let what = format!("Invalid value: {}", Shown(&value.into()));
        Self::of(CauseReason::INVALID, field, &what, detail)
    }

    /// The value has the wrong type.
    pub fn type_invalid(
        field: impl Into<FieldPath>,
        value: impl Into<Value>,
        detail: &str,
    ) -> Self {
        let what = format!("Invalid value: {}", Shown(&value.into()));
        Self::of(CauseReason::TYPE_INVALID, field, &what, detail)
    }

    /// The value is none of the supported ones.
    pub fn not_supported(
        field: impl Into<FieldPath>,
        value: impl Into<Value>,
        supported: &[&str],
    ) -> Self {
        let what = format!("Unsupported value: {}", Shown(&value.into()));
        let supported: Vec<String> = supported.iter().map(|value| quoted(value)).collect();
        let detail = if supported.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", supported.join(", "))
        };
        Self::of(CauseReason::NOT_SUPPORTED, field, &what, &detail)
    }

    /// The value is not allowed here.
    pub fn forbidden(field: impl Into<FieldPath>, detail: &str) -> Self {
        Self::of(CauseReason::FORBIDDEN, field, "Forbidden", detail)
    }

    /// The value has more than `max` bytes. It is not repeated in the message.
    pub fn too_long(field: impl Into<FieldPath>, max: usize) -> Self {
        let bytes = if max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {max} {bytes}");
        Self::of(CauseReason::TOO_LONG, field, "Too long", &detail)
    }

    /// The list has `found` items, which is more than `max`.
    pub fn too_many(field: impl Into<FieldPath>, found: usize, max: usize) -> Self {
        let what = format!("Too many: {found}");
        let items = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {items}");
        Self::of(CauseReason::TOO_MANY, field, &what, &detail)
    }

    /// The field could not be checked.
    pub fn internal(field: impl Into<FieldPath>, detail: &str) -> Self {
        Self::of(CauseReason::INTERNAL, field, "Internal error", detail)
    }
}

impl fmt::Display for StatusCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.field, self.message)
        }
    }
}

/// A value in a message: strings are quoted as in Go, and all else is JSON.
struct Shown<'a>(&'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => f.write_str(&quoted(text)),
            other => other.fmt(f),
        }
    }
}

/// Quotes a text as Go's `%q`, as texts are quoted in the messages of causes.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            // Writing to a string does not fail.
            '\0'..=' ' | '\u{7f}' if letter != ' ' => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(letter));
            }
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::StatusCause;

    #[test]
    fn messages_are_those_of_kubernetes() {
        for (cause, message) in [
            (StatusCause::required("f", ""), "Required value"),
            (
                StatusCause::required("f", "is required for apply patch"),
                "Required value: is required for apply patch",
            ),
            (
                StatusCause::invalid("f", "a\"\n\u{1}\u{85}é", "bad"),
                "Invalid value: \"a\\\"\\n\\x01\\u0085é\": bad",
            ),
            (StatusCause::invalid("f", 60, ""), "Invalid value: 60"),
            (
                StatusCause::invalid("f", json!({"app": "e"}), "no"),
                "Invalid value: {\"app\":\"e\"}: no",
            ),
            (
                StatusCause::not_supported("f", json!(["Some"]), &["All"]),
                "Unsupported value: [\"Some\"]: supported values: \"All\"",
            ),
            (StatusCause::duplicate("f", "c"), "Duplicate value: \"c\""),
            (StatusCause::not_found("f", "c"), "Not found: \"c\""),
            (
                StatusCause::too_long("f", 10),
                "Too long: may not be more than 10 bytes",
            ),
            (
                StatusCause::too_many("f", 2, 1),
                "Too many: 2: must have at most 1 item",
            ),
            (
                StatusCause::too_long("f", 1),
                "Too long: may not be more than 1 byte",
            ),
            (
                StatusCause::too_many("f", 3, 2),
                "Too many: 3: must have at most 2 items",
            ),
            (StatusCause::forbidden("f", "why"), "Forbidden: why"),
        ] {
            assert_eq!(cause.message, message);
            assert_eq!(cause.to_string(), format!("f: {message}"));
        }
    }
}
