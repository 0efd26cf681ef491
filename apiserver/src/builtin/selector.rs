//! Label selectors as fields of objects.

use std::fmt::Write as _;

use serde_json::Value;

use super::field::Field;

/// Returns whether labels match a label selector. One without requirements matches all, and an absent one
/// nothing.
pub(crate) fn matches(selector: &Field<'_>, labels: &Field<'_>) -> bool {
    if !selector.is_set() {
        return false;
    }
    let label = |key: &str| {
        let value = labels.object().and_then(|labels| labels.get(key));
        value.and_then(Value::as_str).map(str::to_owned)
    };
    let mut equalities = selector.child("matchLabels").entries();
    let mut requirements = selector.child("matchExpressions").items();
    equalities.all(|(key, value)| label(key).as_deref() == Some(value.text()))
        && requirements.all(|requirement| {
            let found = label(requirement.child("key").text());
            let listed = |found: &str| {
                let mut values = requirement.child("values").items();
                values.any(|value| value.text() == found)
            };
            match requirement.child("operator").text() {
                "In" => found.is_some_and(|found| listed(&found)),
                "NotIn" => found.is_none_or(|found| !listed(&found)),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

/// Returns whether labels match the entries of a map.
pub(crate) fn matches_map(selector: &Field<'_>, labels: &Field<'_>) -> bool {
    let mut entries = selector.entries();
    entries.all(|(key, value)| labels.key(key).is_set() && labels.key(key).text() == value.text())
}

/// Returns a label selector as text, as `kubectl` and the scale subresource show it.
pub(crate) fn text(selector: &Field<'_>) -> String {
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (key, value) in selector.child("matchLabels").entries() {
        parts.push((key, format!("{key}={}", value.text())));
    }
    for requirement in selector.child("matchExpressions").items() {
        let key = requirement.child("key").text();
        let mut values: Vec<&str> = requirement
            .child("values")
            .items()
            .map(|value| value.text())
            .collect();
        values.sort_unstable();
        let mut part = String::new();
        // Writing to a string does not fail.
        let _ = match requirement.child("operator").text() {
            "In" => write!(part, "{key} in ({})", values.join(",")),
            "NotIn" => write!(part, "{key} notin ({})", values.join(",")),
            "Exists" => write!(part, "{key}"),
            "DoesNotExist" => write!(part, "!{key}"),
            _ => Ok(()),
        };
        parts.push((key, part));
    }
    parts.sort_by(|one, two| one.0.cmp(two.0));
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    parts.join(",")
}

/// Returns a map of labels as text.
pub(crate) fn map_text(map: &Field<'_>) -> String {
    let parts: Vec<String> = map
        .entries()
        .map(|(key, value)| format!("{key}={}", value.text()))
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Field, matches, text};

    #[test]
    fn selectors_match_and_print() {
        let object = json!({
            "selector": {
                "matchLabels": {"app": "x"},
                "matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["b", "a"]},
                    {"key": "no", "operator": "DoesNotExist"},
                ],
            },
            "yes": {"app": "x", "tier": "a"},
            "no": {"app": "x", "tier": "c"},
        });
        let root = Field::root(object.as_object().unwrap());
        let selector = root.child("selector");
        assert!(matches(&selector, &root.child("yes")));
        assert!(!matches(&selector, &root.child("no")));
        assert!(!matches(&root.child("missing"), &root.child("yes")));
        assert_eq!(text(&selector), "app=x,!no,tier in (a,b)");
    }
}
