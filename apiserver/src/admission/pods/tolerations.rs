//! Tolerations that include others.

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::builtin::edit;
use crate::builtin::field::values_equal;

/// Returns two lists as one, without tolerations that another one includes. Of equal ones the first stays. Takes the
/// product of both numbers; a list has as many as a request has room for.
pub(super) fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let later = &all[index + 1..];
        let is_included = merged.iter().any(|other| includes(other, toleration))
            || later
                .iter()
                .any(|other| !values_equal(toleration, other) && includes(other, toleration));
        if !is_included {
            merged.push((*toleration).clone());
        }
    }
    merged
}

/// Returns whether a toleration tolerates all that another one does.
fn includes(one: &Value, other: &Value) -> bool {
    if values_equal(one, other) {
        return true;
    }
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return false;
    };
    let text = |object, name| -> &str { edit::text(object, name) };
    let is_for_all_keys = text(one, "key").is_empty() && text(one, "operator") == "Exists";
    if text(other, "key") != text(one, "key") && !is_for_all_keys {
        return false;
    }
    let effect = text(one, "effect");
    if !["", text(other, "effect")].contains(&effect) {
        return false;
    }
    let seconds = |object: &JsonObject| object.get("tolerationSeconds").and_then(Value::as_i64);
    if effect == "NoExecute"
        && let Some(limit) = seconds(one)
        && seconds(other).is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match text(one, "operator") {
        "" | "Equal" => {
            text(other, "operator") == "Equal" && text(one, "value") == text(other, "value")
        }
        operator => operator == "Exists",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_toleration_that_another_one_includes_is_left_out() {
        let all = json!({"operator": "Exists"});
        let key = json!({"key": "a", "operator": "Exists"});
        let value = json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"});
        let short = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let long = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9});
        for (first, second, expected) in [
            (vec![&value], vec![&key], vec![&key]),
            (vec![&key], vec![&value], vec![&key]),
            (vec![&key], vec![&key], vec![&key]),
            (vec![&short], vec![&long], vec![&long]),
            (vec![&value, &short], vec![&all], vec![&all]),
            (vec![&value], vec![&short], vec![&value, &short]),
            (vec![], vec![], vec![]),
        ] {
            let owned = |list: &[&Value]| -> Vec<Value> { list.iter().copied().cloned().collect() };
            let merged = merge(&owned(&first), &owned(&second));
            assert_eq!(merged, owned(&expected), "{first:?} {second:?}");
        }
    }
}
