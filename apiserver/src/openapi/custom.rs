//! Documents of custom resources.

use std::sync::Arc;

use revstore_kinds as kinds;
use revstore_kinds::openapi::{self, ApiResource, ApiSubresource, Dialect};
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use serde_json::{Map, Value, json};

use crate::catalog::{Groups, Origin, Resource, Subresource};
use crate::custom::definition::{self, Definition};
use crate::http::Front;

/// The fields of all schemas that a version of OpenAPI 2 for custom resources does not have: kubectl validates objects
/// against the document, and reads these in another way than the server.
const V3_ONLY: [&str; 6] = ["allOf", "anyOf", "default", "not", "nullable", "oneOf"];
/// The schema of the subresource `scale`.
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// Returns the custom resources of a group and version, or those of all.
pub(super) fn resources(groups: &Groups, of: Option<(&str, &str)>) -> Vec<Arc<Resource>> {
    let versions = groups
        .iter()
        .filter(|(_, group)| group.origin == Origin::Custom)
        .flat_map(|(name, group)| group.versions.iter().map(move |version| (name, version)))
        .filter(|(group, version)| {
            of.is_none_or(|of| of == (group.as_str(), version.name.as_str()))
        });
    versions
        .flat_map(|(_, version)| version.resources.values().cloned())
        .collect()
}

/// Returns a text that changes with the documents of resources.
pub(super) fn state_of(resources: &[Arc<Resource>]) -> String {
    let definitions = resources
        .iter()
        .filter_map(|resource| resource.rules.definition());
    let states = definitions.map(|definition| {
        let Definition {
            uid,
            generation,
            accepted,
            ..
        } = &**definition;
        format!(
            " {uid} {generation} {} {}",
            accepted.kind, accepted.list_kind
        )
    });
    states.collect()
}

/// Returns the paths and the schemas of resources, which are of one group and version in OpenAPI 3.
///
/// # Errors
/// A definition cannot be read.
pub(super) async fn documented(
    front: &Front,
    resources: &[Arc<Resource>],
    dialect: Dialect,
) -> Result<(Map<String, Value>, Map<String, Value>), RequestError> {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in resources {
        let schema = schema_of(front, resource).await?;
        let described = described(resource);
        paths.extend(described.paths(dialect));
        let names = &resource.names;
        let kinds =
            |kind: &str| json!([{"group": names.group, "version": names.version, "kind": kind}]);
        let mut object = written(schema, dialect);
        object["x-kubernetes-group-version-kind"] = kinds(&names.kind);
        let list = json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": metadata(dialect, "ListMeta"),
                "items": {"type": "array", "items": {"$ref": reference(dialect, &described.schema)}},
            },
            "x-kubernetes-group-version-kind": kinds(&names.list_kind),
        });
        schemas.extend(described.list_schema.map(|name| (name, list)));
        schemas.insert(described.schema, object);
    }
    Ok((paths, schemas))
}

/// Returns the document of version 3 of the resources of one group and version.
///
/// # Errors
/// A definition cannot be read.
pub(super) async fn v3(
    front: &Front,
    resources: &[Arc<Resource>],
    release: &str,
) -> Result<Value, RequestError> {
    let (paths, own) = documented(front, resources, Dialect::V3).await?;
    let names = resources.first().map(|resource| &resource.names);
    let (group, version) = names.map_or(("", ""), |names| (&names.group, &names.version));
    let has_scale = resources
        .iter()
        .any(|resource| resource.subresource("scale").is_some());
    let scale = kinds::kind("autoscaling", "v1", "Scale").filter(|_| has_scale);
    let mut schemas = openapi::common_schemas(group, version, Dialect::V3, scale);
    schemas.extend(own);
    Ok(openapi::v3_document(paths, schemas, release))
}

/// Returns the schema of the objects of a resource, with that of their metadata.
///
/// # Errors
/// Its definition cannot be read.
pub(super) async fn whole(front: &Front, resource: &Resource) -> Result<Value, RequestError> {
    let schema = written(schema_of(front, resource).await?, Dialect::V3);
    let metadata = kinds::type_named("meta.v1.ObjectMeta");
    Ok(openapi::resolved(&schema, metadata))
}

/// Returns the schema in the definition of a resource, as it is now.
async fn schema_of(front: &Front, resource: &Resource) -> Result<Option<Value>, RequestError> {
    let definitions = front
        .catalog
        .find(definition::GROUP, "v1", definition::PLURAL);
    let stored = definitions.ok().and_then(|found| found.stored.clone());
    let (Some(stored), Some(definition)) = (stored, resource.rules.definition()) else {
        return Ok(None);
    };
    let reference = ObjectRef::cluster(&*definition.name);
    let Some(object) = stored.cache.get(&reference, &GetOptions::default()).await? else {
        return Ok(None);
    };
    let mut object: Value = serde_json::from_slice(object.value())
        .map_err(|error| RequestError::Internal(error.to_string()))?;
    let versions = object
        .pointer_mut("/spec/versions")
        .and_then(Value::as_array_mut);
    let mut versions = versions.into_iter().flatten();
    let version = versions.find(|version| version["name"] == *resource.names.version);
    let schema = version.and_then(|version| version.pointer_mut("/schema/openAPIV3Schema"));
    Ok(schema.map(Value::take))
}

/// Returns the name of the schema of a kind: `com.example.v1.Widget`.
fn schema_name(resource: &Resource, kind: &str) -> String {
    let mut parts: Vec<&str> = resource.names.group.rsplit('.').collect();
    parts.extend([&*resource.names.version, kind]);
    parts.join(".")
}

fn described(resource: &Resource) -> ApiResource {
    let names = &resource.names;
    let schema = schema_name(resource, &names.kind);
    let subresource = |(name, sub): &(String, Subresource)| ApiSubresource {
        name: name.clone(),
        group: sub.group.clone(),
        version: sub.version.clone(),
        kind: sub.kind.clone(),
        verbs: sub.verbs.clone(),
        schema: if name == "scale" {
            SCALE.to_owned()
        } else {
            schema.clone()
        },
        connects: false,
    };
    ApiResource {
        group: names.group.clone(),
        version: names.version.clone(),
        plural: names.plural.clone(),
        kind: names.kind.clone(),
        namespaced: resource.namespaced,
        verbs: resource.verbs.clone(),
        list_schema: Some(schema_name(resource, &names.list_kind)),
        built_in: false,
        subresources: resource.subresources.iter().map(subresource).collect(),
        schema,
    }
}

fn reference(dialect: Dialect, name: &str) -> String {
    match dialect {
        Dialect::V2 => format!("#/definitions/{name}"),
        Dialect::V3 => format!("#/components/schemas/{name}"),
    }
}

fn metadata(dialect: Dialect, kind: &str) -> Value {
    let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}");
    let reference = json!({"$ref": reference(dialect, &name)});
    match dialect {
        Dialect::V2 => reference,
        Dialect::V3 => json!({"allOf": [reference]}),
    }
}

/// Returns the schema of the objects of a version, as its definition has it, for a document.
fn written(schema: Option<Value>, dialect: Dialect) -> Value {
    let mut schema = schema.filter(Value::is_object).unwrap_or_else(|| json!({}));
    schema["type"] = json!("object");
    let preserves = |schema: &Value| schema["x-kubernetes-preserve-unknown-fields"] == true;
    if dialect == Dialect::V2 && preserves(&schema) {
        return json!({"type": "object"});
    }
    let has_properties = schema.get("properties").is_some_and(Value::is_object);
    let is_open = preserves(&schema) && !has_properties;
    adapt(&mut schema, dialect);
    if !is_open || dialect == Dialect::V3 {
        add_metadata(&mut schema, dialect);
    }
    schema
}

/// Gives the schema of an object the fields that all objects have.
fn add_metadata(schema: &mut Value, dialect: Dialect) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    schema["properties"]["apiVersion"] = json!({"type": "string"});
    schema["properties"]["kind"] = json!({"type": "string"});
    schema["properties"]["metadata"] = metadata(dialect, "ObjectMeta");
}

/// Writes a schema and those in it as documents have them.
fn adapt(schema: &mut Value, dialect: Dialect) {
    let is_embedded = schema["x-kubernetes-embedded-resource"] == true;
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    let is = |name: &str| object.get(name) == Some(&Value::Bool(true));
    match dialect {
        Dialect::V2 => {
            if is("nullable") || is("x-kubernetes-preserve-unknown-fields") {
                for name in ["type", "items", "properties"] {
                    object.remove(name);
                }
            }
            if let Some(Value::Object(properties)) = object.get("properties") {
                let nullable: Vec<String> = properties
                    .iter()
                    .filter(|(_, property)| property["nullable"] == true)
                    .map(|(name, _)| name.clone())
                    .collect();
                if let Some(Value::Array(required)) = object.get_mut("required") {
                    required.retain(|name| !nullable.iter().any(|nullable| name == nullable));
                    if required.is_empty() {
                        object.remove("required");
                    }
                }
            }
            for name in V3_ONLY {
                object.remove(name);
            }
        }
        Dialect::V3 => {
            if is("x-kubernetes-int-or-string")
                && !object.contains_key("anyOf")
                && !object.contains_key("allOf")
            {
                let types = json!([{"type": "integer"}, {"type": "string"}]);
                object.insert("anyOf".to_owned(), types);
            }
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(nested) = object.get_mut(name) {
            adapt(nested, dialect);
        }
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties
            .values_mut()
            .for_each(|property| adapt(property, dialect));
    }
    if is_embedded {
        let required = object.remove("required");
        let mut required = required
            .and_then(|names| names.as_array().cloned())
            .unwrap_or_default();
        for name in ["apiVersion", "kind"] {
            required.retain(|known| known != name);
            required.insert(0, name.into());
        }
        object.insert("required".to_owned(), required.into());
        add_metadata(schema, dialect);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Dialect, written};

    fn property(schema: &Value, dialect: Dialect) -> Value {
        let root = json!({"type": "object", "properties": {"x": schema}});
        written(Some(root), dialect)["properties"]["x"].clone()
    }

    /// Recorded from kube-apiserver 1.36.
    #[test]
    fn schemas_are_written_as_by_kubernetes() {
        let metadata = |reference: &Value| {
            json!({"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": reference,
                "spec": {"type": "object"}})
        };
        let object_meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        let v2_meta = json!({"$ref": format!("#/definitions/{object_meta}")});
        let v3_meta = json!({"allOf": [{"$ref": format!("#/components/schemas/{object_meta}")}]});
        let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object"}}});
        let written_embedded = |reference: &Value| {
            json!({"type": "object", "x-kubernetes-embedded-resource": true,
                "required": ["kind", "apiVersion"], "properties": metadata(reference)})
        };
        let preserves = "x-kubernetes-preserve-unknown-fields";
        let int_or_string = json!({"x-kubernetes-int-or-string": true});
        let alternatives = json!({"type": "object", "oneOf": [{"required": ["a"]}], "not": {"required": ["b"]},
            "properties": {"a": {"type": "integer", "minimum": 1}}});
        let partly = json!({"type": "object", "required": ["x"], preserves: true,
            "properties": {"x": {"type": "string"}}});
        let nullable = json!({"type": "object", "required": ["n", "p"], "properties": {
            "n": {"type": "array", "nullable": true, "items": {"type": "string"}}, "p": {"type": "string"}}});
        for (schema, v2, v3) in [
            (
                &embedded,
                written_embedded(&v2_meta),
                written_embedded(&v3_meta),
            ),
            (
                &int_or_string,
                int_or_string.clone(),
                json!({"x-kubernetes-int-or-string": true,
                "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
            (
                &alternatives,
                json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}),
                alternatives.clone(),
            ),
            (
                &partly,
                json!({"required": ["x"], preserves: true}),
                partly.clone(),
            ),
            (
                &nullable,
                json!({"type": "object", "required": ["p"], "properties": {"n": {}, "p": {"type": "string"}}}),
                nullable.clone(),
            ),
            (
                &json!({"type": "string", "default": "a"}),
                json!({"type": "string"}),
                json!({"type": "string", "default": "a"}),
            ),
            (
                &json!({"type": "object", "additionalProperties": true}),
                json!({"type": "object", "additionalProperties": true}),
                json!({"type": "object", "additionalProperties": true}),
            ),
        ] {
            assert_eq!(property(schema, Dialect::V2), v2);
            assert_eq!(property(schema, Dialect::V3), v3);
        }
        let open = json!({"type": "object", preserves: true});
        assert_eq!(written(Some(open), Dialect::V2), json!({"type": "object"}));
        assert_eq!(
            written(None, Dialect::V3)["properties"]["metadata"],
            v3_meta
        );
    }
}
