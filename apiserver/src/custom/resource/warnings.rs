//! Warnings about objects that are accepted.

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::custom::text::quoted;

/// The finalizers that need no domain.
const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

fn finalizers(object: &JsonObject) -> Vec<&str> {
    let list = object
        .get("metadata")
        .and_then(|metadata| metadata.get("finalizers"));
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

/// Returns the warnings about finalizers that a new version of an object adds.
pub fn finalizer_warnings(new: &JsonObject, old: Option<&JsonObject>) -> Vec<String> {
    let known = old.map(finalizers).unwrap_or_default();
    let mut added = finalizers(new);
    added.retain(|name| !known.contains(name) && !name.contains('/') && !STANDARD.contains(name));
    added.sort_unstable();
    added.dedup();
    let warning = |name: &str| {
        let path = if name.contains('.') {
            " including a path (/)"
        } else {
            ""
        };
        format!(
            "metadata.finalizers: {}: prefer a domain-qualified finalizer name{path} to avoid accidental \
             conflicts with other finalizer writers",
            quoted(name)
        )
    };
    added.into_iter().map(warning).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn finalizers_without_a_domain_are_warned_about_when_they_are_added() {
        let object = |finalizers: &[&str]| {
            serde_json::from_value(json!({"metadata": {"finalizers": finalizers}})).unwrap()
        };
        let warnings = super::finalizer_warnings(
            &object(&["a", "e.com/f", "orphan", "old"]),
            Some(&object(&["old"])),
        );
        assert_eq!(
            warnings,
            [
                "metadata.finalizers: \"a\": prefer a domain-qualified finalizer name to avoid \
            accidental conflicts with other finalizer writers"
            ]
        );
    }
}
