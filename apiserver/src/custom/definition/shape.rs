//! The type of definitions: which fields they have, with which types.

use revstore_kinds::normalize_base64;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use serde_json::{Map, Value, json};

use super::KIND;
use crate::custom::schema::{CAUSES_MAX, Path, coerce_metadata, kind_of};

/// The type of a value.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    /// Bytes as base64.
    Bytes,
    Integer,
    Number,
    Flag,
    /// Any JSON but null.
    Any,
    List(&'static Shape),
    Map(&'static Shape),
    /// A structure, with the name of its type in Go.
    Struct(&'static str, &'static [Field]),
    /// A schema, whose fields are [`SCHEMA_FIELDS`].
    Schema,
    /// A schema, `true` or `false`.
    SchemaOrFlag,
    /// A schema, or a list of them.
    SchemaOrList,
    /// A schema, or a list of texts.
    SchemaOrTexts,
}

/// Whether a field is written if it is empty.
#[derive(Clone, Copy)]
enum Empty {
    /// It is left out.
    Omit,
    /// It is written if it is set.
    Keep,
    /// It is always written.
    Add,
}

type Field = (&'static str, Shape, Empty);

use Empty::{Add, Keep, Omit};
use Shape::{
    Any, Bytes, Flag, Integer, List, Number, SchemaOrFlag, SchemaOrList, SchemaOrTexts, Struct,
    Text,
};

const TEXTS: Shape = List(&Text);
const SCHEMA: Shape = Shape::Schema;
const SCHEMAS: Shape = List(&SCHEMA);
const SCHEMA_MAP: Shape = Shape::Map(&SCHEMA);

const SCHEMA_FIELDS: &[Field] = &[
    ("id", Text, Omit),
    ("$schema", Text, Omit),
    ("$ref", Text, Keep),
    ("description", Text, Omit),
    ("type", Text, Omit),
    ("format", Text, Omit),
    ("title", Text, Omit),
    ("default", Any, Keep),
    ("maximum", Number, Keep),
    ("exclusiveMaximum", Flag, Omit),
    ("minimum", Number, Keep),
    ("exclusiveMinimum", Flag, Omit),
    ("maxLength", Integer, Keep),
    ("minLength", Integer, Keep),
    ("pattern", Text, Omit),
    ("maxItems", Integer, Keep),
    ("minItems", Integer, Keep),
    ("uniqueItems", Flag, Omit),
    ("multipleOf", Number, Keep),
    ("enum", List(&Any), Omit),
    ("maxProperties", Integer, Keep),
    ("minProperties", Integer, Keep),
    ("required", TEXTS, Omit),
    ("items", SchemaOrList, Keep),
    ("allOf", SCHEMAS, Omit),
    ("oneOf", SCHEMAS, Omit),
    ("anyOf", SCHEMAS, Omit),
    ("not", SCHEMA, Keep),
    ("properties", SCHEMA_MAP, Omit),
    ("additionalProperties", SchemaOrFlag, Keep),
    ("patternProperties", SCHEMA_MAP, Omit),
    ("dependencies", Shape::Map(&SchemaOrTexts), Omit),
    ("additionalItems", SchemaOrFlag, Keep),
    ("definitions", SCHEMA_MAP, Omit),
    (
        "externalDocs",
        Struct(
            "ExternalDocumentation",
            &[("description", Text, Omit), ("url", Text, Omit)],
        ),
        Keep,
    ),
    ("example", Any, Keep),
    ("nullable", Flag, Omit),
    ("x-kubernetes-preserve-unknown-fields", Flag, Keep),
    ("x-kubernetes-embedded-resource", Flag, Omit),
    ("x-kubernetes-int-or-string", Flag, Omit),
    ("x-kubernetes-list-map-keys", TEXTS, Omit),
    ("x-kubernetes-list-type", Text, Keep),
    ("x-kubernetes-map-type", Text, Keep),
    (
        "x-kubernetes-validations",
        List(&Struct("ValidationRule", RULE_FIELDS)),
        Omit,
    ),
];

const RULE_FIELDS: &[Field] = &[
    ("rule", Text, Add),
    ("message", Text, Omit),
    ("messageExpression", Text, Omit),
    ("reason", Text, Keep),
    ("fieldPath", Text, Omit),
    ("optionalOldSelf", Flag, Keep),
];

const NAMES_FIELDS: &[Field] = &[
    ("plural", Text, Add),
    ("singular", Text, Omit),
    ("shortNames", TEXTS, Omit),
    ("kind", Text, Add),
    ("listKind", Text, Omit),
    ("categories", TEXTS, Omit),
];
const NAMES: Shape = Struct("CustomResourceDefinitionNames", NAMES_FIELDS);

const COLUMN: Shape = Struct(
    "CustomResourceColumnDefinition",
    &[
        ("name", Text, Add),
        ("type", Text, Add),
        ("format", Text, Omit),
        ("description", Text, Omit),
        ("priority", Integer, Omit),
        ("jsonPath", Text, Add),
    ],
);

const SCALE: Shape = Struct(
    "CustomResourceSubresourceScale",
    &[
        ("specReplicasPath", Text, Add),
        ("statusReplicasPath", Text, Add),
        ("labelSelectorPath", Text, Keep),
    ],
);

const SUBRESOURCES: Shape = Struct(
    "CustomResourceSubresources",
    &[
        (
            "status",
            Struct("CustomResourceSubresourceStatus", &[]),
            Keep,
        ),
        ("scale", SCALE, Keep),
    ],
);

const VERSION: Shape = Struct(
    "CustomResourceDefinitionVersion",
    &[
        ("name", Text, Add),
        ("served", Flag, Add),
        ("storage", Flag, Add),
        ("deprecated", Flag, Omit),
        ("deprecationWarning", Text, Keep),
        (
            "schema",
            Struct(
                "CustomResourceValidation",
                &[("openAPIV3Schema", SCHEMA, Keep)],
            ),
            Keep,
        ),
        ("subresources", SUBRESOURCES, Keep),
        ("additionalPrinterColumns", List(&COLUMN), Omit),
        (
            "selectableFields",
            List(&Struct("SelectableField", &[("jsonPath", Text, Add)])),
            Omit,
        ),
    ],
);

const SERVICE: Shape = Struct(
    "ServiceReference",
    &[
        ("namespace", Text, Add),
        ("name", Text, Add),
        ("path", Text, Keep),
        ("port", Integer, Keep),
    ],
);

const WEBHOOK: Shape = Struct(
    "WebhookConversion",
    &[
        (
            "clientConfig",
            Struct(
                "WebhookClientConfig",
                &[
                    ("url", Text, Keep),
                    ("service", SERVICE, Keep),
                    ("caBundle", Bytes, Omit),
                ],
            ),
            Keep,
        ),
        ("conversionReviewVersions", TEXTS, Keep),
    ],
);

const SPEC: Shape = Struct(
    "CustomResourceDefinitionSpec",
    &[
        ("group", Text, Add),
        ("names", NAMES, Add),
        ("scope", Text, Add),
        ("versions", List(&VERSION), Keep),
        (
            "conversion",
            Struct(
                "CustomResourceConversion",
                &[("strategy", Text, Add), ("webhook", WEBHOOK, Keep)],
            ),
            Keep,
        ),
        ("preserveUnknownFields", Flag, Omit),
    ],
);

const CONDITION: Shape = Struct(
    "CustomResourceDefinitionCondition",
    &[
        ("type", Text, Add),
        ("status", Text, Add),
        ("lastTransitionTime", Text, Omit),
        ("reason", Text, Omit),
        ("message", Text, Omit),
        ("observedGeneration", Integer, Omit),
    ],
);

const STATUS: Shape = Struct(
    "CustomResourceDefinitionStatus",
    &[
        ("conditions", List(&CONDITION), Keep),
        ("acceptedNames", NAMES, Add),
        ("storedVersions", TEXTS, Keep),
        ("observedGeneration", Integer, Omit),
    ],
);

const DEFINITION: &[Field] = &[
    ("kind", Text, Keep),
    ("apiVersion", Text, Keep),
    ("metadata", Any, Keep),
    ("spec", SPEC, Add),
    ("status", STATUS, Add),
];

/// Gives a definition the form of its type: unknown and empty fields are removed. Returns the paths of the
/// unknown ones, such as `spec.nope`.
///
/// # Errors
/// 400 if a field has the wrong type.
pub fn admit(definition: &mut JsonObject) -> Result<Vec<String>, RequestError> {
    let refused = |error: String| {
        RequestError::BadRequest(format!(
            "{KIND} in version \"v1\" cannot be handled as a {KIND}: {error}"
        ))
    };
    let mut unknown = coerce_metadata(definition, false).map_err(refused)?;
    let mut reader = Reader {
        unknown: Vec::new(),
        steps: Vec::new(),
    };
    let root = Path::root("");
    reader
        .fields(definition, KIND, DEFINITION, &root)
        .map_err(refused)?;
    unknown.extend(reader.unknown);
    Ok(unknown)
}

struct Reader {
    unknown: Vec<String>,
    /// The names of fields from the root, as decoding errors show them.
    steps: Vec<String>,
}

impl Reader {
    fn fields(
        &mut self,
        map: &mut Map<String, Value>,
        owner: &str,
        fields: &[Field],
        path: &Path<'_>,
    ) -> Result<(), String> {
        let mut result = Ok(());
        map.retain(|name, value| {
            let path = path.child(name);
            let Some((_, shape, empty)) = fields.iter().find(|(known, _, _)| known == name) else {
                if self.unknown.len() < CAUSES_MAX {
                    self.unknown.push(path.to_string());
                }
                return false;
            };
            if result.is_err() || value.is_null() {
                return false;
            }
            self.steps.push(name.clone());
            result = self.value(value, *shape, owner, &path);
            self.steps.pop();
            !matches!(empty, Omit) || !is_empty(value)
        });
        for (name, shape, empty) in fields {
            if matches!(empty, Add) && !map.contains_key(*name) {
                let mut zero = match shape {
                    Flag => json!(false),
                    Struct(..) => json!({}),
                    _ => json!(""),
                };
                self.value(&mut zero, *shape, owner, path)?;
                map.insert((*name).to_owned(), zero);
            }
        }
        result
    }

    fn value(
        &mut self,
        value: &mut Value,
        shape: Shape,
        owner: &str,
        path: &Path<'_>,
    ) -> Result<(), String> {
        let mismatch = |reader: &Self, value: &Value, expected: &str| {
            let steps = reader.steps.join(".");
            let found = match value {
                Value::Number(number) if expected.starts_with("int") => format!("number {number}"),
                other => kind_of(other).to_owned(),
            };
            Err(format!(
                "json: cannot unmarshal {found} into Go struct field {owner}.{steps} of type {expected}"
            ))
        };
        match (shape, &mut *value) {
            (Text, Value::String(_))
            | (Number, Value::Number(_))
            | (Flag | SchemaOrFlag, Value::Bool(_))
            | (Any, _) => Ok(()),
            (Bytes, Value::String(text)) => normalize_base64(text),
            (Integer, Value::Number(number)) if number.is_i64() => Ok(()),
            (Shape::Map(inner), Value::Object(map)) => {
                for (name, value) in map.iter_mut() {
                    if value.is_null() {
                        *value = json!({});
                    }
                    self.steps.push(name.clone());
                    self.value(value, *inner, owner, &path.child(name))?;
                    self.steps.pop();
                }
                Ok(())
            }
            (List(inner), Value::Array(list)) => self.list(list, *inner, owner, path),
            (SchemaOrList, Value::Array(list)) => self.list(list, SCHEMA, owner, path),
            (SchemaOrTexts, Value::Array(list)) => self.list(list, Text, owner, path),
            (Struct(name, fields), Value::Object(map)) => self.fields(map, name, fields, path),
            (Shape::Schema | SchemaOrFlag | SchemaOrList | SchemaOrTexts, Value::Object(map)) => {
                self.fields(map, "JSONSchemaProps", SCHEMA_FIELDS, path)
            }
            (SchemaOrFlag, _) => Err("boolean or JSON schema expected".into()),
            (Text, other) => mismatch(self, other, "string"),
            (Bytes, other) => mismatch(self, other, "[]uint8"),
            (Integer, other) => mismatch(self, other, "int64"),
            (Number, other) => mismatch(self, other, "float64"),
            (Flag, other) => mismatch(self, other, "bool"),
            (List(Text), other) => mismatch(self, other, "[]string"),
            (Struct(name, _), other) => mismatch(self, other, &format!("v1.{name}")),
            (_, other) => mismatch(self, other, "v1.JSONSchemaProps"),
        }
    }

    fn list(
        &mut self,
        list: &mut [Value],
        shape: Shape,
        owner: &str,
        path: &Path<'_>,
    ) -> Result<(), String> {
        for (index, item) in list.iter_mut().enumerate() {
            if item.is_null() {
                match shape {
                    Text => *item = json!(""),
                    Struct(..) | Shape::Schema => *item = json!({}),
                    _ => continue,
                }
            }
            self.value(item, shape, owner, &path.index(index))?;
        }
        Ok(())
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(true) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::admit;

    #[test]
    fn definitions_get_the_form_of_their_type() {
        let mut definition = serde_json::from_value(json!({"metadata": {"name": "a", "odd": 1}, "spec": {
            "group": "example.com", "names": {"plural": "ws", "kind": "W", "shortNames": []}, "nope": 1,
            "preserveUnknownFields": false, "versions": [{"name": "v1", "subresources": {"status": {}}, "schema":
                {"openAPIV3Schema": {"type": "object", "nullable": false, "x-mine": 1, "properties": {"a": {
                    "type": "string", "default": null, "minLength": 0, "description": ""}}}}}]}}))
        .unwrap();
        let unknown = admit(&mut definition).unwrap();
        assert_eq!(
            unknown,
            [
                "metadata.odd",
                "spec.nope",
                "spec.versions[0].schema.openAPIV3Schema.x-mine"
            ]
        );
        assert_eq!(
            Value::Object(definition.clone()),
            json!({"metadata": {"name": "a"}, "spec": {
            "group": "example.com", "names": {"plural": "ws", "kind": "W"}, "scope": "", "versions": [{"name": "v1",
                "served": false, "storage": false, "subresources": {"status": {}}, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"a": {"type": "string", "minLength": 0}}}}}]},
            "status": {"acceptedNames": {"plural": "", "kind": ""}}})
        );
        assert_eq!(admit(&mut definition).unwrap(), [""; 0]);
    }

    #[test]
    fn fields_of_wrong_types_are_refused() {
        for (spec, expected) in [
            (
                json!({"group": 1}),
                "cannot unmarshal number into Go struct field \
                CustomResourceDefinitionSpec.spec.group of type string",
            ),
            (
                json!({"versions": [{"schema": {"openAPIV3Schema": {"properties": {"a": {"type": 5}}}}}]}),
                "cannot unmarshal number into Go struct field \
                JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties.a.type of type string",
            ),
            (
                json!([]),
                "cannot unmarshal array into Go struct field CustomResourceDefinition.spec of type \
                v1.CustomResourceDefinitionSpec",
            ),
        ] {
            let mut definition = serde_json::from_value(json!({"spec": spec})).unwrap();
            let error = admit(&mut definition).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "CustomResourceDefinition in version \"v1\" cannot be handled as \
                a CustomResourceDefinition: json: {expected}"
                )
            );
        }
    }
}
