//! Tolerations that include others.

use std::collections::{HashMap, HashSet, hash_map};

use serde_json::Value;

use crate::builtin::field::without_empty;

/// Returns two lists as one, without tolerations that another one includes. Of equal ones the first stays. It takes time for
/// the sum of both numbers.
pub(in crate::admission) fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let mut identities = HashMap::new();
    let all: Vec<Toleration<'_>> = first
        .iter()
        .chain(second)
        .map(|value| {
            let next = identities.len();
            let identity = *identities.entry(without_empty(value)).or_insert(next);
            Toleration::of(value, identity)
        })
        .collect();
    let mut later = Limits::default();
    let mut in_later: Vec<bool> = Vec::with_capacity(all.len());
    for toleration in all.iter().rev() {
        in_later.push(later.has_other(toleration));
        later.insert(toleration);
    }
    let mut earlier = Limits::default();
    let mut merged = Vec::new();
    let mut known = vec![false; identities.len()];
    for (toleration, is_in_later) in all.iter().zip(in_later.into_iter().rev()) {
        if !is_in_later && !known[toleration.identity] && !earlier.has_other(toleration) {
            known[toleration.identity] = true;
            earlier.insert(toleration);
            merged.push(toleration.value.clone());
        }
    }
    merged
}

/// Returns whether each toleration of a list is in another one, or a toleration in that includes it. It takes time for the sum
/// of both numbers.
pub(in crate::admission) fn includes_all(others: &[Value], list: &[Value]) -> bool {
    // No other one has this identity.
    const NONE: usize = usize::MAX;
    let known: HashSet<Value> = others.iter().map(without_empty).collect();
    let mut limits = Limits::default();
    for (identity, value) in others.iter().enumerate() {
        limits.insert(&Toleration::of(value, identity));
    }
    list.iter().all(|value| {
        known.contains(&without_empty(value)) || limits.has_other(&Toleration::of(value, NONE))
    })
}

/// A toleration in a list.
struct Toleration<'a> {
    value: &'a Value,
    is_object: bool,
    /// The same for equal tolerations.
    identity: usize,
    key: &'a str,
    effect: &'a str,
    operator: &'a str,
    text: &'a str,
    seconds: Option<i64>,
}

impl<'a> Toleration<'a> {
    fn of(value: &'a Value, identity: usize) -> Self {
        let text = |name| value.get(name).and_then(Value::as_str).unwrap_or_default();
        Self {
            value,
            is_object: value.is_object(),
            identity,
            key: text("key"),
            effect: text("effect"),
            operator: text("operator"),
            text: text("value"),
            seconds: value.get("tolerationSeconds").and_then(Value::as_i64),
        }
    }
}

/// What tolerations have in common of which one includes the other if it lasts as long: the key, the effect, and the value
/// unless all are tolerated. An empty key or effect is that of all.
type Class<'a> = (&'a str, &'a str, Option<&'a str>);

/// How long a toleration lasts: one without a limit longer than any other.
type Limit = (bool, i64);

/// The longest limits of tolerations, by their classes.
#[derive(Default)]
struct Limits<'a>(HashMap<Class<'a>, Longest>);

/// The longest limit of a class, with the identity of its toleration, and the longest one of other tolerations.
struct Longest {
    first: (Limit, usize),
    second: Option<(Limit, usize)>,
}

impl<'a> Limits<'a> {
    fn insert(&mut self, toleration: &Toleration<'a>) {
        let value = match toleration.operator {
            _ if !toleration.is_object => return,
            "" | "Equal" => Some(toleration.text),
            "Exists" => None,
            _ => return,
        };
        let limit = match toleration.seconds {
            Some(seconds) if toleration.effect == "NoExecute" => (false, seconds),
            _ => (true, 0),
        };
        let new = (limit, toleration.identity);
        match self.0.entry((toleration.key, toleration.effect, value)) {
            hash_map::Entry::Vacant(place) => {
                place.insert(Longest {
                    first: new,
                    second: None,
                });
            }
            hash_map::Entry::Occupied(mut known) => known.get_mut().add(new),
        }
    }

    /// Returns whether one of the tolerations, which is not equal to this one, includes it.
    fn has_other(&self, toleration: &Toleration<'a>) -> bool {
        let effects = ["", toleration.effect];
        let has = |key: &'a str, effect: &'a str, value: Option<&'a str>| {
            let longest = self.0.get(&(key, effect, value));
            let limit = longest.and_then(|longest| longest.without(toleration.identity));
            limit.is_some_and(|(is_unlimited, limit)| {
                is_unlimited || toleration.seconds.is_some_and(|seconds| seconds <= limit)
            })
        };
        let mut effects = effects.into_iter().filter(|_| toleration.is_object);
        effects.any(|effect| {
            let is_equal = toleration.operator == "Equal"
                && has(toleration.key, effect, Some(toleration.text));
            is_equal || has(toleration.key, effect, None) || has("", effect, None)
        })
    }
}

impl Longest {
    fn add(&mut self, new: (Limit, usize)) {
        if new.1 == self.first.1 {
            // Equal tolerations have the same limit.
            return;
        }
        let other = if new.0 > self.first.0 {
            std::mem::replace(&mut self.first, new)
        } else {
            new
        };
        if self.second.is_none_or(|second| other.0 > second.0) {
            self.second = Some(other);
        }
    }

    /// Returns the longest limit of tolerations but one.
    fn without(&self, identity: usize) -> Option<Limit> {
        if self.first.1 == identity {
            self.second.map(|(limit, _)| limit)
        } else {
            Some(self.first.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use revstore_watch_cache::registry::JsonObject;

    use super::*;
    use crate::builtin::edit;
    use crate::builtin::field::values_equal;

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

    #[test]
    fn tolerations_are_in_a_list_or_included_by_one() {
        let all = json!({"operator": "Exists"});
        let key = json!({"key": "a", "operator": "Exists"});
        let value = json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"});
        let implied = json!({"key": "a", "value": "b", "effect": "NoSchedule"});
        let short = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let long = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9});
        for (others, list, expected) in [
            (vec![&all], vec![&key, &value, &short], true),
            (vec![&key], vec![&value], true),
            (vec![&key], vec![&key, &key], true),
            (vec![&key], vec![&all], false),
            (vec![&value], vec![&value], true),
            (vec![&value], vec![&implied], false),
            (vec![&implied], vec![&implied], true),
            (vec![&long], vec![&short], true),
            (vec![&short], vec![&long], false),
            (vec![&short, &long], vec![&long, &short], true),
            (vec![], vec![&key], false),
            (vec![], vec![], true),
        ] {
            let owned = |list: &[&Value]| -> Vec<Value> { list.iter().copied().cloned().collect() };
            let found = includes_all(&owned(&others), &owned(&list));
            assert_eq!(found, expected, "{others:?} {list:?}");
            let is_in = |one: &&Value| others.iter().any(|other| includes(other, one));
            assert_eq!(list.iter().all(is_in), expected, "{others:?} {list:?}");
        }
    }

    /// The rule that [`merge`] follows, in time for the product of both numbers.
    fn plain_merge(first: &[Value], second: &[Value]) -> Vec<Value> {
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

    #[test]
    fn lists_are_merged_by_the_rule() {
        let seed = std::env::var("REVSTORE_SEED").map_or(1, |seed| seed.parse().unwrap());
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut shorter = 0;
        for case in 0..20_000 {
            let mut list = || -> Vec<Value> {
                let mut toleration = |_| {
                    let mut members = JsonObject::new();
                    for (name, values) in [
                        ("key", &["", "a", "b"][..]),
                        ("operator", &["", "Equal", "Exists", "Exists", "Gt"]),
                        ("effect", &["", "NoExecute", "NoSchedule"]),
                        ("value", &["", "x", "y"]),
                    ] {
                        if rng.bool() {
                            let value = values[rng.usize(..values.len())];
                            members.insert(name.to_owned(), value.into());
                        }
                    }
                    if rng.bool() {
                        let seconds = [json!(1), json!(2), json!(-1), json!(null), json!(1.5)];
                        let seconds = seconds[rng.usize(..seconds.len())].clone();
                        members.insert("tolerationSeconds".to_owned(), seconds);
                    }
                    if rng.u8(..20) == 0 {
                        let other = [
                            json!({}),
                            json!([]),
                            json!([null]),
                            json!([{"a": []}]),
                            json!(0),
                        ];
                        let other = other[rng.usize(..other.len())].clone();
                        members.insert("other".to_owned(), other);
                    }
                    if rng.u8(..50) == 0 {
                        return [json!(null), json!([]), json!("a")][rng.usize(..3)].clone();
                    }
                    Value::Object(members)
                };
                let count = [0, 1, 2, 3, 5, 8][case % 6];
                (0..count).map(&mut toleration).collect()
            };
            let (first, second) = (list(), list());
            let merged = merge(&first, &second);
            shorter += usize::from(merged.len() < first.len() + second.len());
            assert_eq!(
                merged,
                plain_merge(&first, &second),
                "REVSTORE_SEED={seed}, case {case}: {first:?} {second:?}"
            );
        }
        assert!(shorter > 5_000, "{shorter}");
    }

    // With a comparison of each pair, this takes minutes.
    #[test]
    fn many_tolerations_are_merged_in_linear_time() {
        let list = |range: std::ops::Range<usize>| -> Vec<Value> {
            let toleration = |number: usize| {
                json!({"key": format!("k{}", number % 7), "operator": "Equal", "effect": "NoExecute",
                "value": format!("v{number}"), "tolerationSeconds": 1})
            };
            range.map(toleration).collect()
        };
        let merged = merge(&list(0..20_000), &list(10_000..40_000));
        assert_eq!(merged, list(0..40_000));
    }
}
