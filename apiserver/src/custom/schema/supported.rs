//! The rules for schemas of definitions beyond their structure.

use revstore_watch_cache::status::{FieldPath, StatusCause};
use serde_json::{Value, json};

use super::causes::Causes;
use super::node::{Additional, Schema};
use super::path::Path;

/// The types of values.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// The fields of the metadata and the type of an object.
const META_FIELDS: [&str; 3] = ["metadata", "kind", "apiVersion"];

/// What the place of a schema forbids.
#[derive(Clone, Copy, Default)]
struct Place<'a> {
    /// Why defaults are forbidden, if they are.
    no_defaults: Option<&'a str>,
    /// Whether the schema describes metadata.
    in_metadata: bool,
}

impl Schema {
    /// Returns which fields of the schema are not supported or do not fit together, with paths below
    /// `path`.
    pub fn unsupported_errors(&self, path: &str) -> Vec<StatusCause> {
        let mut causes = Causes::default();
        check(self, true, Place::default(), &Path::root(path), &mut causes);
        causes.into_unique()
    }
}

fn check(schema: &Schema, is_root: bool, place: Place<'_>, path: &Path<'_>, causes: &mut Causes) {
    if causes.is_full() {
        return;
    }
    check_fields(schema, place, path, causes);
    let additional = path.child("additionalProperties");
    if let Additional::Schema(child) = &schema.additional {
        let place = Place {
            no_defaults: if place.in_metadata {
                Some(" inside additionalProperties applying to object metadata")
            } else {
                place.no_defaults
            },
            ..place
        };
        check(child, false, place, &additional, causes);
    }
    let excludes = !matches!(
        schema.additional,
        Additional::Unset | Additional::Allowed(true)
    );
    if excludes && !schema.properties.is_empty() {
        let detail = "additionalProperties and properties are mutual exclusive";
        causes.push(StatusCause::forbidden(additional.field(), detail));
    }
    let properties = path.child("properties");
    for (name, property) in &schema.properties {
        let is_meta = (is_root || schema.embedded) && META_FIELDS.contains(&name.as_str());
        let reason = format!(" in top-level {name}");
        let place = Place {
            no_defaults: if is_meta && is_root {
                Some(&reason)
            } else {
                place.no_defaults
            },
            in_metadata: place.in_metadata || is_meta,
        };
        check(property, false, place, &properties.key(name), causes);
    }
    let checks = &schema.checks;
    if let Some(not) = &checks.not {
        check(not, false, place, &path.child("not"), causes);
    }
    for (name, list) in [
        ("allOf", &checks.all_of),
        ("oneOf", &checks.one_of),
        ("anyOf", &checks.any_of),
        ("items", &schema.item_list),
    ] {
        let path = path.child(name);
        for (index, nested) in list.iter().enumerate() {
            check(nested, false, place, &path.index(index), causes);
        }
    }
    if let Some(items) = &schema.items {
        check(items, false, place, &path.child("items"), causes);
    }
    check_maps_and_lists(schema, path, causes);
    check_list_keys(schema, path, causes);
    check_rules(schema, path, causes);
}

fn check_fields(schema: &Schema, place: Place<'_>, path: &Path<'_>, causes: &mut Causes) {
    let kind = schema.kind.as_str();
    if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(StatusCause::not_supported(
            path.child("type").field(),
            kind,
            &TYPES,
        ));
    }
    if let Some(reason) = place.no_defaults
        && schema.default.is_some()
    {
        let detail = format!("must not be set{reason}");
        causes.push(StatusCause::forbidden(
            path.child("default").field(),
            &detail,
        ));
    }
    for name in &schema.unsupported {
        let detail = format!("{name} is not supported");
        causes.push(StatusCause::forbidden(path.child(name).field(), &detail));
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        causes.push(StatusCause::forbidden(path.child("type").field(), detail));
    }
    if !schema.item_list.is_empty() {
        let detail = "items must be a schema object and not an array";
        causes.push(StatusCause::forbidden(path.child("items").field(), detail));
    }
    if place.in_metadata && schema.embedded {
        let field = path.child("x-kubernetes-embedded-resource").field();
        causes.push(StatusCause::forbidden(
            field,
            "must not be used inside of resource meta",
        ));
    }
    if schema.checks.unique_items {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(StatusCause::forbidden(
            path.child("uniqueItems").field(),
            detail,
        ));
    }
    if schema.preserve_unknown == Some(false) {
        let field = path.child("x-kubernetes-preserve-unknown-fields").field();
        causes.push(StatusCause::invalid(
            field,
            false,
            "must be true or undefined",
        ));
    }
}

/// Returns the error of a type that is not the expected one.
fn wrong_type(field: FieldPath, kind: &str, detail: &str) -> StatusCause {
    if kind.is_empty() {
        StatusCause::required(field, detail)
    } else {
        StatusCause::invalid(field, kind, detail)
    }
}

fn check_maps_and_lists(schema: &Schema, path: &Path<'_>, causes: &mut Causes) {
    let type_field = || path.child("type").field();
    if let Some(map_type) = &schema.map_type {
        if schema.kind != "object" {
            let detail = "must be object if x-kubernetes-map-type is specified";
            causes.push(wrong_type(type_field(), &schema.kind, detail));
        }
        if !["atomic", "granular"].contains(&map_type.as_str()) {
            let field = path.child("x-kubernetes-map-type").field();
            causes.push(StatusCause::not_supported(
                field,
                map_type.as_str(),
                &["atomic", "granular"],
            ));
        }
    }
    let Some(list_type) = schema.list_type.as_deref() else {
        return;
    };
    if schema.kind != "array" {
        let detail = "must be array if x-kubernetes-list-type is specified";
        causes.push(wrong_type(type_field(), &schema.kind, detail));
    } else if let Some(items) = &schema.items
        && list_type == "set"
    {
        let (name, value) = match items.kind.as_str() {
            "array" => (
                "x-kubernetes-list-type",
                items.list_type.as_deref().unwrap_or("atomic"),
            ),
            "object" => (
                "x-kubernetes-map-type",
                items.map_type.as_deref().unwrap_or_default(),
            ),
            _ => ("", "atomic"),
        };
        if value != "atomic" {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            // Upstream prints the text of an absent value.
            let shown = items.list_type.as_deref().unwrap_or("null");
            let items = path.child("items");
            causes.push(StatusCause::invalid(
                items.child(name).field(),
                shown,
                detail,
            ));
        }
    }
    if !["atomic", "set", "map"].contains(&list_type) {
        let field = path.child("x-kubernetes-list-type").field();
        causes.push(StatusCause::not_supported(
            field,
            list_type,
            &["atomic", "set", "map"],
        ));
    }
}

fn check_list_keys(schema: &Schema, path: &Path<'_>, causes: &mut Causes) {
    let list_type = schema.list_type.as_deref();
    if !schema.list_keys.is_empty() && list_type != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        let field = path.child("x-kubernetes-list-type").field();
        causes.push(wrong_type(field, list_type.unwrap_or_default(), detail));
    }
    let keys_field = || path.child("x-kubernetes-list-map-keys").field();
    if list_type == Some("map") && schema.list_keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        causes.push(StatusCause::required(keys_field(), detail));
    }
    let items_path = path.child("items");
    let Some(items) = &schema.items else {
        if list_type == Some("map") {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            causes.push(StatusCause::required(items_path.field(), detail));
        }
        return;
    };
    if !matches!(list_type, Some("map" | "set")) {
        return;
    }
    if items.nullable {
        let detail = format!(
            "cannot be nullable when x-kubernetes-list-type is {}",
            list_type.unwrap_or_default()
        );
        causes.push(StatusCause::forbidden(
            items_path.child("nullable").field(),
            &detail,
        ));
    }
    if list_type != Some("map") {
        return;
    }
    if items.kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(StatusCause::invalid(
            items_path.child("type").field(),
            items.kind.as_str(),
            detail,
        ));
        return;
    }
    let properties = items_path.child("properties");
    for (index, key) in schema.list_keys.iter().enumerate() {
        let path = properties.key(key);
        let shown = || json!(schema.list_keys);
        if schema.list_keys[..index].contains(key) {
            causes.push(StatusCause::invalid(
                keys_field(),
                shown(),
                "must not contain duplicate entries",
            ));
        }
        let Some(property) = items.properties.get(key) else {
            let detail = "entries must all be names of item properties";
            causes.push(StatusCause::invalid(keys_field(), shown(), detail));
            continue;
        };
        if ["array", "object"].contains(&property.kind.as_str()) {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            causes.push(StatusCause::invalid(
                path.child("type").field(),
                items.kind.as_str(),
                detail,
            ));
        }
        if !items.checks.required.contains(key) && property.default.is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                          required property";
            causes.push(StatusCause::required(path.child("default").field(), detail));
        }
        if property.nullable {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(StatusCause::forbidden(
                path.child("nullable").field(),
                detail,
            ));
        }
    }
}

/// Checks the form of the rules. Their expressions are not read.
fn check_rules(schema: &Schema, path: &Path<'_>, causes: &mut Causes) {
    let rules = path.child("x-kubernetes-validations");
    let has_breaks = |text: &str| text.contains(['\n', '\r']);
    for (index, rule) in schema.rules.iter().enumerate() {
        let path = rules.index(index);
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        let (expression, message) = (text("rule").trim(), text("message"));
        let message_field = path.child("message");
        if expression.is_empty() {
            causes.push(StatusCause::required(
                path.child("rule").field(),
                "rule is not specified",
            ));
        } else if !message.is_empty() && message.trim().is_empty() {
            let detail = "must be non-empty if specified";
            causes.push(StatusCause::invalid(message_field.field(), message, detail));
        } else if has_breaks(message.trim()) {
            causes.push(StatusCause::invalid(
                message_field.field(),
                message,
                "must not contain line breaks",
            ));
        } else if has_breaks(expression) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            causes.push(StatusCause::required(message_field.field(), detail));
        }
        let computed = text("messageExpression");
        if !computed.is_empty() && computed.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            causes.push(StatusCause::required(
                path.child("messageExpression").field(),
                detail,
            ));
        }
        let reasons = [
            "FieldValueDuplicate",
            "FieldValueForbidden",
            "FieldValueInvalid",
            "FieldValueRequired",
        ];
        if let Some(reason) = rule.get("reason").and_then(Value::as_str)
            && !reasons.contains(&reason)
        {
            causes.push(StatusCause::not_supported(
                path.child("reason").field(),
                reason,
                &reasons,
            ));
        }
        let field_path = text("fieldPath");
        let field = || path.child("fieldPath").field();
        if !field_path.is_empty() && field_path.trim().is_empty() {
            causes.push(StatusCause::invalid(
                field(),
                field_path,
                "must be non-empty if specified",
            ));
        }
        if has_breaks(field_path) {
            causes.push(StatusCause::invalid(
                field(),
                field_path,
                "must not contain line breaks",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::custom::schema::Schema;

    fn errors(schema: &Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"a": schema}});
        let schema = Schema::parse(&schema).unwrap();
        let causes = schema.unsupported_errors("s");
        causes
            .iter()
            .map(|cause| cause.to_string().replace("s.properties[a]", "a"))
            .collect()
    }

    #[test]
    fn unsupported_fields_are_refused_with_the_texts_of_kubernetes() {
        let keyed = |key: &Value| {
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": key}}})
        };
        for (schema, expected) in [
            (
                json!({"type": "nosuch"}),
                "a.type: Unsupported value: \"nosuch\": supported values: \"array\", \
                \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ),
            (
                json!({"type": "array", "uniqueItems": true}),
                "a.uniqueItems: Forbidden: uniqueItems cannot be \
                set to true since the runtime complexity becomes quadratic",
            ),
            (
                json!({"type": "string", "$ref": "#/x"}),
                "a.$ref: Forbidden: $ref is not supported",
            ),
            (
                json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": false}),
                "a.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ),
            (
                json!({"type": "string", "x-kubernetes-list-type": "set"}),
                "a.type: Invalid value: \"string\": \
                must be array if x-kubernetes-list-type is specified",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
                "a.items.x-kubernetes-map-type: Invalid value: \"null\": must be atomic as item of a list with \
                x-kubernetes-list-type=set",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-map-keys": ["k"]}),
                "a.x-kubernetes-list-type: \
                Required value: must be map if x-kubernetes-list-map-keys is non-empty",
            ),
            (
                keyed(&json!({"type": "string"})),
                "a.items.properties[k].default: Required value: this property \
                is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ),
            (
                keyed(&json!({"type": "object", "default": {}})),
                "a.items.properties[k].type: Invalid value: \
                \"object\": must be a scalar type if parent array's x-kubernetes-list-type is map",
            ),
            (
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
                "a.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ),
            (
                json!({"type": "string", "x-kubernetes-validations": [{"rule": ""}]}),
                "a.x-kubernetes-validations[0].rule: Required value: rule is not specified",
            ),
        ] {
            assert_eq!(errors(&schema), [expected], "{schema}");
        }
        assert_eq!(
            errors(&keyed(&json!({"type": "string", "default": "x"}))),
            [""; 0]
        );
    }
}
