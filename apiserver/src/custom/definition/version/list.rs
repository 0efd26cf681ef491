//! The rules for the versions of a definition. What all versions have in common is reported once, as in
//! Kubernetes, at the paths of an older form of definitions.

use revstore_watch_cache::status::{FieldPath, StatusCause};
use serde_json::Value;

use crate::custom::definition::selectable::find_field;
use crate::custom::rules;
use crate::custom::schema::{Causes, SCHEMA_NODES_MAX, Schema, SchemaError};
use crate::custom::text::label_error;
use crate::evaluation;

/// The maximum number of selectable fields of a version.
const SELECTABLE_MAX: usize = 8;
/// The maximum length of the warning of a deprecated version.
const WARNING_BYTES_MAX: usize = 256;
/// The types of columns.
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
/// The formats of columns.
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
/// The fields of a schema at the root if the status is a resource of its own.
const ROOT_FIELDS: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];
/// The same in the text of the error.
const ROOT_FIELDS_TEXT: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum \
    MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs \
    Example XPreserveUnknownFields XValidations]";

/// Returns a text of an object, or an empty one.
pub(in crate::custom::definition) fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a list of an object, or an empty one.
pub(in crate::custom::definition) fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Calls a check for a field of the versions: once if all have the same value, or for each one.
fn for_each<'a>(
    versions: &'a [Value],
    name: &str,
    mut check: impl FnMut(Option<usize>, &'a Value),
) {
    let of = |version: &'a Value| version.get(name);
    let Some(first) = versions.first().map(of) else {
        return;
    };
    if versions.iter().all(|version| of(version) == first) {
        if let Some(value) = first {
            check(None, value);
        }
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        if let Some(value) = of(version) {
            check(Some(index), value);
        }
    }
}

/// Returns the path of a version, or that of the spec for what all versions have in common.
fn path_of(index: Option<usize>) -> FieldPath {
    let spec = FieldPath::new("spec");
    match index {
        Some(index) => spec.child("versions").index(index),
        None => spec,
    }
}

fn has_status(version: &Value) -> bool {
    version
        .get("subresources")
        .is_some_and(|subresources| subresources.get("status").is_some())
}

pub(in crate::custom::definition) fn check_versions(spec: &Value, causes: &mut Causes) {
    let versions = list(spec, "versions");
    let any_status = versions.iter().any(has_status);
    let mut schemas: Vec<Option<Schema>> = vec![None; versions.len().max(1)];
    let mut nodes = 0;
    for (index, version) in versions.iter().enumerate() {
        let path = || path_of(Some(index));
        let schema = version
            .get("schema")
            .and_then(|schema| schema.get("openAPIV3Schema"));
        if schema.is_none() {
            let field = path().child("schema").child("openAPIV3Schema");
            causes.push(StatusCause::required(field, ""));
        }
        let name = text(version, "name");
        if let Some(error) = label_error(name) {
            causes.push(StatusCause::invalid(path().child("name"), name, &error));
        }
        check_warning(version, &path(), causes);
    }
    for_each(versions, "schema", |index, schema| {
        let path = match index {
            Some(_) => path_of(index).child("schema"),
            None => path_of(None).child("validation"),
        };
        let status = index.map_or(any_status, |index| has_status(&versions[index]));
        let Some(schema) = schema.get("openAPIV3Schema") else {
            return;
        };
        let path = path.child("openAPIV3Schema");
        match Schema::parse(schema) {
            Ok(parsed) => {
                nodes += parsed.count();
                if nodes > SCHEMA_NODES_MAX {
                    let error = SchemaError::TooLarge.to_string();
                    causes.push(StatusCause::invalid(path, "", &error));
                    return;
                }
                check_schema(schema, &parsed, status, &path, causes);
                schemas[index.unwrap_or_default()] = Some(parsed);
            }
            Err(error) => causes.push(StatusCause::invalid(path, "", &error.to_string())),
        }
    });
    for_each(versions, "subresources", |index, subresources| {
        check_subresources(subresources, &path_of(index).child("subresources"), causes);
    });
    for_each(versions, "additionalPrinterColumns", |index, columns| {
        for (at, column) in columns.as_array().into_iter().flatten().enumerate() {
            let path = path_of(index).child("additionalPrinterColumns").index(at);
            check_column(column, &path, causes);
        }
    });
    let is_shared = schemas.iter().skip(1).all(Option::is_none);
    for_each(versions, "selectableFields", |index, fields| {
        let at = if is_shared {
            0
        } else {
            index.unwrap_or_default()
        };
        let fields = fields.as_array().map_or(&[][..], Vec::as_slice);
        check_selectable(
            fields,
            schemas[at].as_ref(),
            &path_of(index).child("selectableFields"),
            causes,
        );
    });
}

fn check_warning(version: &Value, path: &FieldPath, causes: &mut Causes) {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else {
        return;
    };
    let mut invalid = |detail: &str| {
        causes.push(StatusCause::invalid(
            path.clone().child("deprecationWarning"),
            warning,
            detail,
        ));
    };
    if version["deprecated"] != true {
        invalid("can only be set for deprecated versions");
        return;
    }
    if warning.len() > WARNING_BYTES_MAX {
        invalid("must be <= 256 characters long");
    }
    if warning.is_empty() {
        invalid("must not be an empty string");
    }
    let is_hidden = |letter: char| letter.is_control() || letter.is_whitespace() && letter != ' ';
    if let Some(at) = warning.find(is_hidden) {
        invalid(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

fn check_schema(
    schema: &Value,
    parsed: &Schema,
    has_status: bool,
    path: &FieldPath,
    causes: &mut Causes,
) {
    let root = path.to_string();
    let before = causes.len();
    let fields = schema.as_object().into_iter().flatten();
    let mut others = fields
        .map(|(name, _)| name.as_str())
        .filter(|name| !ROOT_FIELDS.contains(name));
    if has_status && text(schema, "type") != "object" && schema.get("type").is_some() {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is \
                      enabled";
        causes.push(StatusCause::invalid(
            path.clone().child("type"),
            text(schema, "type"),
            detail,
        ));
    } else if has_status && others.next().is_some() {
        let detail = format!(
            "only {ROOT_FIELDS_TEXT} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        causes.push(StatusCause::invalid(path.clone(), schema.clone(), &detail));
    }
    if schema["nullable"] == true {
        let detail = "nullable cannot be true at the root";
        causes.push(StatusCause::forbidden(
            path.clone().child("nullable"),
            detail,
        ));
    }
    let unsupported = parsed.unsupported_errors(&root);
    if !parsed.is_unreadable() {
        let structural = parsed.structural_errors(&root);
        let is_structural = structural.is_empty();
        let mut is_checked = is_structural;
        if is_structural {
            let defaults =
                evaluation::compile(schema.as_object(), || parsed.default_errors(schema, &root));
            is_checked = defaults.is_empty();
            causes.extend(defaults);
        }
        causes.extend(structural);
        causes.extend(unsupported);
        // Rules are checked where the structure and the defaults are right.
        if is_checked {
            rules::check(schema, &root, causes);
        }
        return;
    }
    causes.extend(unsupported);
    if causes.len() == before && parsed.any(&mut |schema| schema.has_dialect) {
        let detail = "OpenAPIV3Schema 'schema' is not supported";
        causes.push(StatusCause::invalid(path.clone(), "", detail));
    }
}

fn check_subresources(subresources: &Value, path: &FieldPath, causes: &mut Causes) {
    let Some(scale) = subresources.get("scale") else {
        return;
    };
    for (name, prefixes, detail) in [
        (
            "specReplicasPath",
            &[".spec."][..],
            "should be a json path under .spec",
        ),
        (
            "statusReplicasPath",
            &[".status."],
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            &[".spec.", ".status."],
            "should be a json path under either .spec or .status",
        ),
    ] {
        let value = text(scale, name);
        let field = || path.clone().child("scale").child(name);
        if value.is_empty() {
            if name != "labelSelectorPath" {
                causes.push(StatusCause::required(field(), ""));
            }
        } else if !value.starts_with('.') {
            let detail = "must be a simple json path starting with .";
            causes.push(StatusCause::invalid(field(), value, detail));
        } else if !prefixes.iter().any(|prefix| value.starts_with(prefix)) {
            causes.push(StatusCause::invalid(field(), value, detail));
        }
    }
}

fn check_column(column: &Value, path: &FieldPath, causes: &mut Causes) {
    let field = |name: &str| path.clone().child(name);
    let (kind, format, json_path) = (
        text(column, "type"),
        text(column, "format"),
        text(column, "jsonPath"),
    );
    if text(column, "name").is_empty() {
        causes.push(StatusCause::required(field("name"), ""));
    }
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        causes.push(StatusCause::required(field("type"), &types));
    } else if !COLUMN_TYPES.contains(&kind) {
        causes.push(StatusCause::invalid(field("type"), kind, &types));
    }
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        causes.push(StatusCause::invalid(field("format"), format, &detail));
    }
    if json_path.is_empty() {
        causes.push(StatusCause::required(field("JSONPath"), ""));
    } else if !json_path.starts_with('.') {
        let detail = "must be a simple json path starting with .";
        causes.push(StatusCause::invalid(field("JSONPath"), json_path, detail));
    }
}

fn check_selectable(
    fields: &[Value],
    schema: Option<&Schema>,
    path: &FieldPath,
    causes: &mut Causes,
) {
    let Some(schema) = schema else {
        return;
    };
    let mut seen: Vec<&str> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let json_path = text(field, "jsonPath");
        let field = || path.clone().index(index).child("jsonPath");
        if json_path.is_empty() {
            causes.push(StatusCause::required(field(), ""));
            continue;
        }
        let found = match find_field(json_path, schema) {
            Ok(found) => found,
            Err(error) => {
                let detail = format!("is an invalid path: {error}");
                causes.push(StatusCause::invalid(field(), json_path, &detail));
                continue;
            }
        };
        if json_path.starts_with(".metadata") {
            causes.push(StatusCause::invalid(
                field(),
                json_path,
                "must not point to fields in metadata",
            ));
        }
        if !["string", "boolean", "integer"].contains(&found.kind.as_str()) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            causes.push(StatusCause::invalid(field(), json_path, detail));
        }
        if seen.contains(&json_path) {
            causes.push(StatusCause::duplicate(field(), json_path));
        } else if seen.len() <= SELECTABLE_MAX {
            seen.push(json_path);
        }
    }
    if seen.len() > SELECTABLE_MAX {
        causes.push(StatusCause::too_many(
            path.clone(),
            fields.len(),
            SELECTABLE_MAX,
        ));
    }
}
