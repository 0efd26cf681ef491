//! Rules and the errors that kube-apiserver 1.36 answers to them.

use serde_json::{Value, json};

use super::{Rules, check};
use crate::custom::schema::Causes;

fn schema() -> Value {
    json!({"type": "object", "x-kubernetes-validations": [
        {"rule": "self.metadata.name.startsWith('a')", "message": "name must start with a"},
    ], "properties": {"spec": {"type": "object", "x-kubernetes-validations": [
        {"rule": "self.min <= self.max", "messageExpression": "'min %d is above max %d'.format([self.min, self.max])",
         "reason": "FieldValueForbidden", "fieldPath": ".min"},
        {"rule": "!has(self.x) || 10 / self.x > 0", "message": "x must not be 0"},
        {"rule": "!has(self.port) || self.port < 100"},
        {"rule": "!oldSelf.hasValue() || oldSelf.value().max <= self.max", "optionalOldSelf": true, "message": "max cannot shrink"},
    ], "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer"}, "x": {"type": "integer"},
        "port": {"x-kubernetes-int-or-string": true},
        "items": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"],
            "items": {"type": "object", "required": ["key"], "properties": {"key": {"type": "string", "maxLength": 10},
                "value": {"type": "integer", "x-kubernetes-validations": [
                    {"rule": "self >= oldSelf", "message": "value cannot decrease"}]}}}},
        "labels": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string", "maxLength": 20,
            "x-kubernetes-validations": [{"rule": "self != 'bad'", "message": "bad label"}]}},
    }}}})
}

/// Returns the errors of an object with a spec.
fn errors(name: &str, spec: &Value, old: Option<&Value>) -> Vec<String> {
    let object = |spec: &Value| json!({"metadata": {"name": name}, "spec": spec});
    let rules = Rules::of(&schema()).expect("there are rules");
    let mut causes = Causes::default();
    rules.validate(&object(spec), old.map(object).as_ref(), &mut causes);
    causes.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_are_evaluated_with_the_errors_of_upstream() {
    for (name, spec, expected) in [
        ("a", json!({"min": 1, "max": 2}), None),
        (
            "b",
            json!({"min": 1, "max": 2}),
            Some("<nil>: Invalid value: name must start with a"),
        ),
        (
            "a",
            json!({"min": 3, "max": 2}),
            Some("spec.min: Forbidden: min 3 is above max 2"),
        ),
        (
            "a",
            json!({"min": 1, "max": 2, "x": 0}),
            Some(
                "spec: Invalid value: \"object\": division by zero evaluating rule: x must not be 0",
            ),
        ),
        (
            "a",
            json!({"min": 1}),
            Some(
                "spec: Invalid value: \"object\": no such key: max evaluating rule: self.min <= self.max",
            ),
        ),
        (
            "a",
            json!({"min": 1, "max": 2, "port": "x"}),
            Some(
                "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, \
                 function or macro signature for rule: !has(self.port) || self.port < 100",
            ),
        ),
        (
            "a",
            json!({"min": 1, "max": 2, "labels": {"l": "bad"}}),
            Some("spec.labels[l]: Invalid value: \"bad\": bad label"),
        ),
    ] {
        let found = errors(name, &spec, None);
        assert_eq!(found.first().map(String::as_str), expected, "{spec}");
    }
}

#[test]
fn transition_rules_compare_and_unchanged_errors_are_forgiven() {
    let old =
        json!({"min": 1, "max": 2, "items": [{"key": "k", "value": 5}], "labels": {"l": "bad"}});
    let change = |field: &str, value: Value| {
        let mut new = old.clone();
        new[field] = value;
        errors("a", &new, Some(&old))
    };
    assert!(change("max", json!(3)).is_empty());
    assert_eq!(
        change("max", json!(1)),
        ["spec: Invalid value: max cannot shrink"]
    );
    assert_eq!(
        change("items", json!([{"key": "k", "value": 4}])),
        ["spec.items[0].value: Invalid value: 4: value cannot decrease"]
    );
    assert!(
        change(
            "items",
            json!([{"key": "j", "value": 1}, {"key": "k", "value": 6}])
        )
        .is_empty()
    );
}

/// Returns the errors of a schema whose spec has a rule.
fn refusals(rule: &Value) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [rule],
        "properties": {"n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "string"}}}}}});
    let mut causes = Causes::default();
    check(&schema, "s", &mut causes);
    causes.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_are_checked_with_their_definition() {
    for (rule, expected) in [
        (
            json!({"rule": "self.nope > 1"}),
            "compilation failed: ERROR: <input>:1:5: undefined field 'nope'",
        ),
        (
            json!({"rule": "self.n"}),
            "cel expression must evaluate to a bool",
        ),
        (
            json!({"rule": "self.n > 0", "messageExpression": "self.n"}),
            "messageExpression must evaluate to a string",
        ),
        (
            json!({"rule": "self.n > 0", "fieldPath": ".nope"}),
            "must be a valid path",
        ),
        (
            json!({"rule": "self.n > 0", "optionalOldSelf": true}),
            "may not be set if oldSelf is not used in rule",
        ),
        (
            json!({"rule": "int('a') == self.n"}),
            "program instantiation failed: type conversion error from 'string' to 'int'",
        ),
        (
            json!({"rule": "self.list.all(a, self.list.all(b, a == b))"}),
            "estimated rule cost exceeds budget by factor of more than 100x",
        ),
    ] {
        let found = refusals(&rule);
        assert!(
            found.first().is_some_and(|error| error.contains(expected)),
            "{found:?}"
        );
    }
    assert!(refusals(&json!({"rule": "self.n > 0", "fieldPath": ".n"})).is_empty());
}
