//! JSON as Go writes it.

use revstore_structured_merge::escape_html;
use serde_json::Value;

/// The JSON of an object as Go writes it: with the members in the order of their declaration.
pub(super) struct GoText(String);

impl GoText {
    pub(super) fn new() -> Self {
        Self("{".to_owned())
    }

    pub(super) fn set(self, name: &str, value: &Value) -> Self {
        self.set_text(name, &escape_html(value.to_string()))
    }

    /// Sets a member that is left out without a value.
    pub(super) fn set_some(self, name: &str, value: &Value) -> Self {
        let is_empty = value.is_null() || value == "";
        if is_empty {
            self
        } else {
            self.set(name, value)
        }
    }

    pub(super) fn set_text(mut self, name: &str, text: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        for part in ["\"", name, "\":", text] {
            self.0.push_str(part);
        }
        self
    }

    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    /// Returns the JSON of a list, if it has items.
    pub(super) fn list(items: &[String]) -> Option<String> {
        (!items.is_empty()).then(|| format!("[{}]", items.join(",")))
    }
}

/// Returns a value that Go writes although it is empty.
pub(super) fn or_empty(value: &Value) -> Value {
    if value.is_null() {
        "".into()
    } else {
        value.clone()
    }
}

pub(super) fn or_zero(value: &Value) -> Value {
    if value.is_null() {
        "0".into()
    } else {
        value.clone()
    }
}
