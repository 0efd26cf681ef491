//! The rules for the defaults of a schema: they must be valid, also by the rules in CEL, and without unknown fields.

use revstore_watch_cache::status::StatusCause;
use serde_json::{Value, json};

use crate::custom::rules::{Node, OBJECT_COST_MAX, Rules};
use crate::custom::schema::causes::Causes;
use crate::custom::schema::embedded::Coercion;
use crate::custom::schema::node::Schema;
use crate::custom::schema::path::Path;
use crate::custom::schema::prune::META_FIELDS;

impl Schema {
    /// Returns what is wrong with the defaults of the schema, which was read from `source`, with paths below `path`.
    pub fn default_errors(&self, source: &Value, path: &str) -> Vec<StatusCause> {
        let mut causes = Causes::default();
        let place = Place {
            root: self,
            is_root: true,
            in_metadata: false,
            above: None,
        };
        let are_used = self.any(&mut |schema| schema.default.is_some() && schema.has_rules());
        let rules = are_used.then(|| Rules::of(source)).flatten();
        let mut checker = Checker {
            left: OBJECT_COST_MAX,
            causes: &mut causes,
        };
        let root = rules.as_ref().and_then(Rules::root);
        checker.node(self, root, &place, &Path::root(path));
        causes.into_unique()
    }
}

/// Where a schema stands in the object around it.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The schema of the object.
    root: &'a Schema,
    is_root: bool,
    in_metadata: bool,
    above: Option<(&'a Place<'a>, Step<'a>)>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Item,
}

impl Place<'_> {
    /// Returns the smallest object that has a value at this place.
    fn surround(&self, value: Value) -> Value {
        let Some((place, step)) = self.above else {
            return value;
        };
        place.surround(match step {
            Step::Field(name) => json!({name: value}),
            Step::Item => json!([value]),
        })
    }
}

struct Checker<'c> {
    /// The cost that is left for the rules of all defaults; less than 0 if no further ones are checked.
    left: i64,
    causes: &'c mut Causes,
}

impl Checker<'_> {
    fn node(&mut self, schema: &Schema, rules: Option<&Node>, place: &Place<'_>, path: &Path<'_>) {
        if self.causes.is_full() || self.left < 0 {
            return;
        }
        let own_place = Place {
            root: schema,
            is_root: place.is_root,
            in_metadata: false,
            above: None,
        };
        let place = if schema.embedded { &own_place } else { place };
        if let Some(default) = &schema.default {
            let path = path.child("default");
            let is_valid = check_default(schema, default, place, &path, self.causes);
            if let Some(rules) = rules.filter(|_| is_valid) {
                self.left = rules.validate_default(default, &path, self.left, self.causes);
            }
        }
        if let Some(items) = &schema.items {
            let below = Place {
                above: Some((place, Step::Item)),
                is_root: false,
                ..*place
            };
            let rules = rules.and_then(Node::of_items);
            self.node(items, rules, &below, &path.child("items"));
        }
        let properties = path.child("properties");
        for (name, property) in &schema.properties {
            let is_meta =
                (schema.embedded || place.is_root) && META_FIELDS.contains(&name.as_str());
            let below = Place {
                above: Some((place, Step::Field(name))),
                is_root: false,
                in_metadata: place.in_metadata || is_meta,
                ..*place
            };
            let rules = rules.and_then(|rules| rules.of_property(name));
            self.node(property, rules, &below, &properties.key(name));
        }
    }
}

/// Adds what is wrong with a default, apart from its rules. Returns whether they are to be evaluated.
fn check_default(
    schema: &Schema,
    default: &Value,
    place: &Place<'_>,
    path: &Path<'_>,
    causes: &mut Causes,
) -> bool {
    let is_object = schema.embedded || place.is_root;
    let field = || path.field();
    let mut how = Coercion {
        is_object,
        drops: false,
    };
    if place.in_metadata {
        how.is_object = true;
        let mut object = place.surround(default.clone());
        if let Some(map) = object.as_object_mut() {
            map.entry("kind").or_insert_with(|| "Validation".into());
            map.entry("apiVersion")
                .or_insert_with(|| "validation/v1".into());
        }
        let root = Path::root("");
        let mut errors = Causes::default();
        match place.root.coerce(&mut object, &how, &root) {
            Err(cause) => errors.push(*cause),
            Ok(_) => place
                .root
                .embedded_errors(&object, true, &root, &mut errors),
        }
        if !errors.is_empty() {
            let errors: Vec<_> = errors
                .into_sorted()
                .iter()
                .map(ToString::to_string)
                .collect();
            let detail = match errors.as_slice() {
                [error] => format!("must result in valid metadata: {error}"),
                errors => format!("must result in valid metadata: [{}]", errors.join(", ")),
            };
            causes.push(StatusCause::invalid(field(), default.clone(), &detail));
            return false;
        }
    } else {
        let mut pruned = default.clone();
        if is_object {
            schema.prune(&mut pruned);
        } else {
            schema.prune_value(&mut pruned);
        }
        if pruned != *default {
            causes.push(StatusCause::invalid(
                field(),
                default.clone(),
                "must not have unknown fields",
            ));
        }
        let mut errors = Causes::default();
        match schema.coerce(&mut pruned, &how, path) {
            Err(cause) => errors.push(*cause),
            Ok(_) => schema.embedded_errors(default, is_object, path, &mut errors),
        }
        if !errors.is_empty() {
            causes.append(errors);
            return false;
        }
    }
    let errors = schema.validate_at(&path.to_string(), default, None);
    let is_valid = errors.is_empty();
    causes.extend(errors);
    is_valid
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use crate::custom::schema::Schema;

    fn errors(property: &Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"a": property}});
        let parsed = Schema::parse(&schema).unwrap();
        let causes = parsed.default_errors(&schema, "s");
        causes
            .iter()
            .map(|cause| cause.to_string().replace("s.properties[a]", "a"))
            .collect()
    }

    #[test]
    fn defaults_must_be_valid_and_pruned() {
        let embedded = |metadata: &Value| {
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                "metadata": {"type": "object", "properties": {"name": metadata}}}})
        };
        for (property, expected) in [
            (
                json!({"type": "integer", "default": "x"}),
                "a.default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ),
            (
                json!({"type": "object", "default": {"b": 1}}),
                "a.default: Invalid value: {\"b\":1}: must not have unknown fields",
            ),
            (
                json!({"type": "object", "default": {"b": 11},
                "properties": {"b": {"type": "integer", "maximum": 10}}}),
                "a.default.b: Invalid value: 11: b in body should be less than or equal to 10",
            ),
            (
                embedded(&json!({"type": "string", "default": "a/b"})),
                "a.properties[metadata].properties[name].default: Invalid value: \"a/b\": must result in valid \
                 metadata: metadata.name: Invalid value: \"a/b\": may not contain '/'",
            ),
        ] {
            assert_eq!(errors(&property), [expected], "{property}");
        }
        assert_eq!(
            errors(&embedded(&json!({"type": "string", "default": "ok"}))),
            [""; 0]
        );
        assert_eq!(
            errors(&json!({"type": "string", "enum": ["a"], "default": "a"})),
            [""; 0]
        );
    }

    #[test]
    fn defaults_must_fulfil_the_rules() {
        let rules = |rules: &[Value]| -> Value {
            let rules = rules.iter().map(|rule| match rule {
                Value::String(_) => json!({"rule": rule}),
                rule => rule.clone(),
            });
            rules.collect()
        };
        let number = |default: i64, of: &[Value]| json!({"type": "integer", "default": default, "x-kubernetes-validations": rules(of)});
        let object = |default: Value, inner: Value, of: &[Value]| {
            json!({"type": "object", "default": default, "properties": {"b": inner},
                "x-kubernetes-validations": rules(of)})
        };
        let small = &[json!("self < 5")];
        let optional = |rule: &str| json!({"rule": rule, "optionalOldSelf": true});
        let failed = "a.default: Invalid value: 5: failed rule: self < 5";
        for (property, expected) in [
            (number(4, small), vec![]),
            (number(5, small), vec![failed]),
            // An update from the default itself, and if that is valid a new value.
            (
                number(5, &[json!("self != oldSelf"), small[0].clone()]),
                vec![
                    "a.default: Invalid value: 5: failed rule: self != oldSelf",
                    failed,
                ],
            ),
            (number(5, &[json!("self == oldSelf")]), vec![]),
            (
                number(5, &[optional("oldSelf.hasValue()")]),
                vec!["a.default: Invalid value: 5: failed rule: oldSelf.hasValue()"],
            ),
            (
                number(5, &[optional("!oldSelf.hasValue()")]),
                vec!["a.default: Invalid value: 5: failed rule: !oldSelf.hasValue()"],
            ),
            (
                object(json!({"b": 5}), number(4, small), &[]),
                vec!["a.default.b: Invalid value: 5: failed rule: self < 5"],
            ),
            (
                object(json!({}), number(5, small), &[]),
                vec!["a.properties[b].default: Invalid value: 5: failed rule: self < 5"],
            ),
            (
                object(
                    json!({}),
                    json!({"type": "integer"}),
                    &[json!("has(self.b)")],
                ),
                vec!["a.default: Invalid value: failed rule: has(self.b)"],
            ),
            (
                json!({"type": "array", "items": object(json!({}), json!({"type": "integer"}), &[json!("has(self.b)")])}),
                vec!["a.items.default: Invalid value: failed rule: has(self.b)"],
            ),
            // Rules in `allOf` are evaluated beside others.
            (
                json!({"type": "integer", "default": 5, "allOf": [{"x-kubernetes-validations": rules(small)}]}),
                vec![],
            ),
            (
                json!({"type": "integer", "default": 5, "allOf": [{"x-kubernetes-validations": rules(small)}],
                    "x-kubernetes-validations": rules(&[json!("self > 0")])}),
                vec![failed],
            ),
            // Rules are not evaluated for what is invalid otherwise.
            (
                json!({"type": "integer", "default": 5, "maximum": 4, "x-kubernetes-validations": [{"rule": "self < 5"}]}),
                vec!["a.default: Invalid value: 5:  in body should be less than or equal to 4"],
            ),
        ] {
            assert_eq!(errors(&property), expected, "{property}");
        }
    }

    #[test]
    fn the_rules_of_all_defaults_share_a_budget() {
        let costly = json!({
            "type": "string", "default": "a".repeat(9_000),
            "x-kubernetes-validations": [{"rule": "self.contains(self)"}],
        });
        let wrong = json!({
            "type": "integer", "default": 5, "x-kubernetes-validations": [{"rule": "self < 5"}],
        });
        let names = (10..40).map(|index| format!("p{index}"));
        let mut properties: Map<_, _> = names.map(|name| (name, costly.clone())).collect();
        properties.insert("z".to_owned(), wrong);
        let found = errors(&json!({"type": "object", "properties": properties}));
        let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with(detail), "{found:?}");
    }
}
