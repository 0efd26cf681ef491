//! The rules by which a schema is structural.

use revstore_watch_cache::status::StatusCause;

use super::causes::Causes;
use super::node::{Checks, Schema};
use super::path::Path;

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

impl Schema {
    /// Returns why the schema is not structural, with paths below `path`.
    pub fn structural_errors(&self, path: &str) -> Vec<StatusCause> {
        let path = Path::root(path);
        let mut causes = Causes::default();
        check_node(self, Level::Root, &path, &mut causes);
        check_complete(&self.checks, self, &path, &path, &mut causes);
        causes.into_sorted()
    }
}

fn forbid(causes: &mut Causes, path: &Path<'_>, field: &str, detail: &str) {
    causes.push(StatusCause::forbidden(path.child(field).field(), detail));
}

fn check_node(schema: &Schema, level: Level, path: &Path<'_>, causes: &mut Causes) {
    if causes.is_full() {
        return;
    }
    let items = path.child("items");
    match &schema.items {
        Some(schema) => check_node(schema, Level::Item, &items, causes),
        None if schema.kind == "array" => {
            causes.push(StatusCause::required(items.field(), "must be specified"));
        }
        None => {}
    }
    let properties = path.child("properties");
    for (name, property) in &schema.properties {
        check_node(property, Level::Field, &properties.key(name), causes);
    }
    if schema.additional.is_set() {
        if level == Level::Root {
            forbid(
                causes,
                path,
                "additionalProperties",
                "must not be used at the root",
            );
        }
        if let Some(additional) = schema.additional.schema() {
            check_node(
                additional,
                Level::Field,
                &path.child("additionalProperties"),
                causes,
            );
        }
    }
    check_extensions(schema, path, causes);
    let skips = Skips {
        any_of: is_int_or_string(&schema.checks.any_of),
        first_all_of: schema
            .checks
            .all_of
            .first()
            .is_some_and(|first| is_int_or_string(&first.checks.any_of)),
    };
    check_values(&schema.checks, skips, path, causes);
    check_type(schema, level, path, causes);
    check_metadata(schema, level, path, causes);
}

fn check_extensions(schema: &Schema, path: &Path<'_>, causes: &mut Causes) {
    let detail = "must be false if x-kubernetes-int-or-string is true";
    for (name, is_set) in [
        (
            "x-kubernetes-preserve-unknown-fields",
            schema.preserves_unknown(),
        ),
        ("x-kubernetes-embedded-resource", schema.embedded),
    ] {
        if schema.int_or_string && is_set {
            causes.push(StatusCause::invalid(path.child(name).field(), true, detail));
        }
    }
}

fn check_type(schema: &Schema, level: Level, path: &Path<'_>, causes: &mut Causes) {
    let field = || path.child("type").field();
    let kind = schema.kind.as_str();
    if schema.embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if kind.is_empty() {
            StatusCause::required(field(), detail)
        } else {
            StatusCause::invalid(field(), kind, detail)
        });
    } else if kind.is_empty() && !schema.int_or_string && !schema.preserves_unknown() {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        causes.push(StatusCause::required(field(), detail));
    }
    if schema.embedded && schema.additional.is_set() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        forbid(causes, path, "additionalProperties", detail);
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        causes.push(StatusCause::invalid(
            field(),
            kind,
            "must be object at the root",
        ));
    }
}

/// Checks that a schema restricts nothing of an object's metadata but its name.
fn check_metadata(schema: &Schema, level: Level, path: &Path<'_>, causes: &mut Causes) {
    let properties = path.child("properties");
    let is_object = level == Level::Root || schema.embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema.properties.get(name)
            && is_object
            && property.kind != "string"
        {
            let field = properties.key(name).child("type").field();
            causes.push(StatusCause::invalid(
                field,
                property.kind.as_str(),
                "must be string",
            ));
        }
    }
    if let Some(metadata) = schema.properties.get("metadata") {
        let path = properties.key("metadata");
        if is_object && metadata.kind != "object" {
            let field = path.child("type").field();
            causes.push(StatusCause::invalid(
                field,
                metadata.kind.as_str(),
                "must be object",
            ));
        }
        if level == Level::Root {
            let mut rest = metadata.clone();
            rest.kind = String::new();
            rest.default = None;
            if rest
                .properties
                .keys()
                .all(|name| ["name", "generateName"].contains(&name.as_str()))
            {
                rest.properties.clear();
            }
            if rest != Schema::default() {
                let detail = "must not specify anything other than name and generateName, but metadata is \
                              implicitly specified";
                causes.push(StatusCause::forbidden(path.field(), detail));
            }
        }
    }
    if schema.embedded && !schema.preserves_unknown() && schema.properties.is_empty() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        causes.push(StatusCause::required(properties.field(), detail));
    }
}

/// Returns whether alternatives are those of an integer or a string.
fn is_int_or_string(any_of: &[Schema]) -> bool {
    let is_only = |schema: &Schema, kind: &str| {
        *schema
            == Schema {
                kind: kind.to_owned(),
                ..Schema::default()
            }
    };
    matches!(any_of, [first, second] if is_only(first, "integer") && is_only(second, "string"))
}

/// The alternatives that may have types.
#[derive(Clone, Copy, Default)]
struct Skips {
    any_of: bool,
    first_all_of: bool,
}

fn check_values(checks: &Checks, skips: Skips, path: &Path<'_>, causes: &mut Causes) {
    if causes.is_full() {
        return;
    }
    let any_of = path.child("anyOf");
    for (index, schema) in checks.any_of.iter().enumerate() {
        if !skips.any_of {
            check_nested(schema, Skips::default(), &any_of.index(index), causes);
        }
    }
    let all_of = path.child("allOf");
    for (index, schema) in checks.all_of.iter().enumerate() {
        let skips = Skips {
            any_of: skips.first_all_of && index == 0,
            first_all_of: false,
        };
        check_nested(schema, skips, &all_of.index(index), causes);
    }
    let one_of = path.child("oneOf");
    for (index, schema) in checks.one_of.iter().enumerate() {
        check_nested(schema, Skips::default(), &one_of.index(index), causes);
    }
    if let Some(schema) = &checks.not {
        check_nested(schema, Skips::default(), &path.child("not"), causes);
    }
    if let Some(pattern) = &checks.pattern
        && let Some(error) = pattern.error()
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        causes.push(StatusCause::invalid(
            path.child("pattern").field(),
            pattern.text(),
            &detail,
        ));
    }
}

/// Checks a schema below `allOf`, `anyOf`, `oneOf` or `not`, which must have value checks only.
fn check_nested(schema: &Schema, skips: Skips, path: &Path<'_>, causes: &mut Causes) {
    check_values(&schema.checks, skips, path, causes);
    if let Some(items) = &schema.items {
        check_nested(items, Skips::default(), &path.child("items"), causes);
    }
    let properties = path.child("properties");
    for (name, property) in &schema.properties {
        check_nested(property, Skips::default(), &properties.key(name), causes);
    }
    let is_additional = !matches!(
        schema.additional,
        super::node::Additional::Unset | super::node::Additional::Allowed(false)
    );
    for (name, is_set, state) in [
        ("type", !schema.kind.is_empty(), "empty"),
        ("additionalProperties", is_additional, "undefined"),
        ("default", schema.default.is_some(), "undefined"),
        ("title", schema.has_title, "empty"),
        ("description", schema.has_description, "empty"),
        ("nullable", schema.nullable, "false"),
        (
            "x-kubernetes-preserve-unknown-fields",
            schema.preserves_unknown(),
            "false",
        ),
        ("x-kubernetes-embedded-resource", schema.embedded, "false"),
        ("x-kubernetes-int-or-string", schema.int_or_string, "false"),
        (
            "x-kubernetes-list-map-keys",
            !schema.list_keys.is_empty(),
            "empty",
        ),
        (
            "x-kubernetes-list-type",
            schema.list_type.is_some(),
            "undefined",
        ),
        (
            "x-kubernetes-map-type",
            schema.map_type.is_some(),
            "undefined",
        ),
        (
            "x-kubernetes-validations",
            !schema.rules.is_empty(),
            "empty",
        ),
    ] {
        if is_set {
            forbid(
                causes,
                path,
                name,
                &format!("must be {state} to be structural"),
            );
        }
    }
    if schema.properties.contains_key("metadata") {
        let field = properties.key("metadata").field();
        causes.push(StatusCause::forbidden(
            field,
            "must not be specified in a nested context",
        ));
    }
}

/// Checks that each field with value checks is specified outside of them, too.
fn check_complete(
    checks: &Checks,
    schema: &Schema,
    at: &Path<'_>,
    from: &Path<'_>,
    causes: &mut Causes,
) {
    if let Some(not) = &checks.not {
        check_nested_complete(not, Some(schema), at, &from.child("not"), causes);
    }
    for (name, list) in [
        ("allOf", &checks.all_of),
        ("anyOf", &checks.any_of),
        ("oneOf", &checks.one_of),
    ] {
        let from = from.child(name);
        for (index, nested) in list.iter().enumerate() {
            check_nested_complete(nested, Some(schema), at, &from.index(index), causes);
        }
    }
}

fn check_nested_complete(
    nested: &Schema,
    schema: Option<&Schema>,
    at: &Path<'_>,
    from: &Path<'_>,
    causes: &mut Causes,
) {
    if causes.is_full() {
        return;
    }
    let Some(schema) = schema else {
        let detail = format!("because it is defined in {from}");
        causes.push(StatusCause::required(at.field(), &detail));
        return;
    };
    check_complete(&nested.checks, schema, at, from, causes);
    if let Some(items) = &nested.items {
        check_nested_complete(
            items,
            schema.items.as_deref(),
            &at.child("items"),
            &from.child("items"),
            causes,
        );
    }
    let (properties, from_properties) = (at.child("properties"), from.child("properties"));
    for (name, property) in &nested.properties {
        let (at, from) = (properties.key(name), from_properties.key(name));
        check_nested_complete(property, schema.properties.get(name), &at, &from, causes);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::custom::schema::Schema;

    fn errors(schema: &Value) -> Vec<String> {
        let schema = Schema::parse(schema).unwrap();
        let causes = schema.structural_errors("s");
        causes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn schemas_that_are_not_structural_are_refused_with_the_texts_of_kubernetes() {
        for (schema, expected) in [
            (
                json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}}),
                "s.properties[spec].type: Required value: must not be empty for specified object fields",
            ),
            (
                json!({"type": "object", "properties": {"metadata": {
                    "type": "object", "properties": {"labels": {"type": "object"}}}}}),
                "s.properties[metadata]: Forbidden: must not specify anything other than name and \
                 generateName, but metadata is implicitly specified",
            ),
            (
                json!({}),
                "s.type: Required value: must not be empty at the root",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                "s.type: Invalid value: \"array\": must be object at the root",
            ),
            (
                json!({"type": "object", "additionalProperties": true}),
                "s.additionalProperties: Forbidden: must not be used at the root",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "array"}}}),
                "s.properties[a].items: Required value: must be specified",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}),
                "s.properties[a].items.type: Required value: must not be empty for specified array items",
            ),
            (
                json!({"type": "object", "oneOf": [{"properties": {"a": {"minimum": 1}}}]}),
                "s.properties[a]: Required value: because it is defined in s.oneOf[0].properties[a]",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "not": {"type": "string"}}}}),
                "s.properties[a].not.type: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "object",
                "x-kubernetes-embedded-resource": true}}}),
                "s.properties[a].properties: Required value: must not be empty if \
                 x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ),
            (
                json!({"type": "object", "properties": {"kind": {"type": "integer"}}}),
                "s.properties[kind].type: Invalid value: \"integer\": must be string",
            ),
        ] {
            assert_eq!(errors(&schema), [expected], "{schema}");
        }
        let pattern = errors(
            &json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
        );
        assert!(pattern[0].starts_with(
            "s.properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: "
        ));
    }

    #[test]
    fn structural_schemas_are_accepted() {
        let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
        for schema in [
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties":
                {"name": {"type": "string", "maxLength": 3}}}, "kind": {"type": "string"}}}),
            json!({"type": "object", "properties": {"q": {"x-kubernetes-int-or-string": true}}}),
            json!({"type": "object", "properties": {"q": {"x-kubernetes-int-or-string": true,
                "anyOf": int_or_string}}}),
            json!({"type": "object", "properties": {"q": {"x-kubernetes-int-or-string": true,
                "allOf": [{"anyOf": int_or_string}, {"pattern": "x"}]}}}),
            json!({"type": "object", "properties": {"a": {"type": "integer"}},
                "oneOf": [{"required": ["a"]}, {"not": {"anyOf": [{"required": ["a"]}]}}]}),
        ] {
            assert_eq!(errors(&schema), [""; 0], "{schema}");
        }
    }
}
