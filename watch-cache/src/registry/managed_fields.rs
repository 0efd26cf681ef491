//! The times in the entries of `metadata.managedFields`.

use std::collections::HashMap;

use serde_json::Value;

use super::JsonObject;

/// Sets the entries of a new version to those of the old one, if the versions differ in nothing but the times of entries: who
/// writes what is there already writes nothing. Entries are in the order of their times, so theirs may differ, too.
/// Corresponds to `IgnoreManagedFieldsTimestampsTransformer`, which writes once if the order differs.
pub(super) fn keep_times(new: &mut JsonObject, old: &JsonObject) {
    let (Some(before), Some(after)) = (entries(old), entries(new)) else {
        return;
    };
    let differ_in_time = before != after && equal_without_times(before, after);
    if !differ_in_time || !equal_without_entries(new, old) {
        return;
    }
    let before = before.clone();
    if let Some(Value::Object(metadata)) = new.get_mut("metadata") {
        metadata.insert(ENTRIES.to_owned(), before.into());
    }
}

const ENTRIES: &str = "managedFields";
const TIME: &str = "time";

/// Removes the entries. Returns whether there were some.
pub(super) fn remove(object: &mut JsonObject) -> bool {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    metadata.is_some_and(|metadata| metadata.remove(ENTRIES).is_some())
}

fn entries(object: &JsonObject) -> Option<&Vec<Value>> {
    object.get("metadata")?.get(ENTRIES)?.as_array()
}

/// Returns whether two lists have the same entries but for their times and their order.
fn equal_without_times(before: &[Value], after: &[Value]) -> bool {
    let is_same = |(one, other): (&Value, &Value)| equal_without(one, other, TIME);
    if before.len() != after.len() {
        return false;
    }
    // Most are in the same order.
    if before.iter().zip(after).all(is_same) {
        return true;
    }
    let mut counts: HashMap<Value, isize> = HashMap::new();
    for (entries, step) in [(before, 1), (after, -1)] {
        for entry in entries {
            let mut entry = entry.clone();
            if let Value::Object(members) = &mut entry {
                members.remove(TIME);
            }
            *counts.entry(entry).or_default() += step;
        }
    }
    counts.values().all(|count| *count == 0)
}

/// Returns whether two versions are equal but for the entries.
fn equal_without_entries(one: &JsonObject, other: &JsonObject) -> bool {
    one.len() == other.len()
        && one.iter().all(|(name, value)| match other.get(name) {
            Some(other) if name == "metadata" => equal_without(value, other, ENTRIES),
            other => other == Some(value),
        })
}

/// Returns whether two values are equal but for a member.
fn equal_without(one: &Value, other: &Value, member: &str) -> bool {
    let (Value::Object(one), Value::Object(other)) = (one, other) else {
        return one == other;
    };
    let len = |object: &JsonObject| object.len() - usize::from(object.contains_key(member));
    let mut members = one.iter().filter(|(name, _)| *name != member);
    len(one) == len(other) && members.all(|(name, value)| other.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(data: &str, entries: &Value) -> JsonObject {
        let object = json!({"metadata": {"name": "n", ENTRIES: entries}, "data": data});
        object.as_object().unwrap().clone()
    }

    #[test]
    fn times_stay_if_nothing_else_changes() {
        let entry = |manager: &str, time: &str| json!({"manager": manager, "time": time});
        let old = version("a", &json!([entry("m", "1"), entry("n", "2")]));
        let check = |data: &str, entries: Value, kept: bool| {
            let mut new = version(data, &entries);
            let expected = if kept { old.clone() } else { new.clone() };
            keep_times(&mut new, &old);
            assert_eq!(new, expected);
        };
        check("a", json!([entry("m", "3"), entry("n", "2")]), true);
        check("a", json!([entry("m", "1"), {"manager": "n"}]), true);
        check("b", json!([entry("m", "3"), entry("n", "2")]), false);
        // The order depends on the times.
        check("a", json!([entry("n", "2"), entry("m", "3")]), true);
        check("b", json!([entry("n", "2"), entry("m", "3")]), false);
        check("a", json!([entry("n", "2"), entry("n", "3")]), false);
        check("a", json!([entry("m", "3")]), false);
        check("a", json!([entry("m", "3"), entry("o", "2")]), false);
        check("a", json!(null), false);
    }

    #[test]
    fn other_members_of_the_metadata_are_compared() {
        let entries = |time: &str| json!([{"manager": "m", "time": time}]);
        let (old, mut new) = (version("a", &entries("1")), version("a", &entries("2")));
        new["metadata"]["labels"] = json!({"a": "b"});
        let before = new.clone();
        keep_times(&mut new, &old);
        assert_eq!(new, before);
    }
}
