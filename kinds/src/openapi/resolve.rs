//! Schemas without references.

use serde_json::{Map, Value, json};

use super::{Dialect, schema};
use crate::table::Type;

/// Returns the schema of a type in OpenAPI 3, with the schemas that it refers to in the place of the references. Where a
/// schema contains itself, the inner one is an object of which nothing is said. Integers or strings are marked as those of
/// structural schemas are.
///
/// ```
/// let pod = revstore_kinds::kind("", "v1", "Pod").unwrap();
/// let schema = revstore_kinds::openapi::whole(pod);
/// let containers = &schema["properties"]["spec"]["properties"]["containers"];
/// assert_eq!(containers["items"]["properties"]["image"]["type"], "string");
/// ```
pub fn whole(ty: &'static Type) -> Value {
    let reference = ty.openapi_name().map(|name| Dialect::V3.reference(&name));
    resolved(&json!({"$ref": reference}), [ty])
}

/// Returns a schema in OpenAPI 3, with the schemas of types in the place of the references to them, as in [`whole`].
pub fn resolved(schema: &Value, types: impl IntoIterator<Item = &'static Type>) -> Value {
    let types = types.into_iter().collect();
    let schemas = schema::reachable(types, Dialect::V3, &[]);
    resolve(schema, &schemas, &mut Vec::new())
}

/// `outer` are the references that lead to the schema.
fn resolve<'a>(
    schema: &'a Value,
    schemas: &'a Map<String, Value>,
    outer: &mut Vec<&'a str>,
) -> Value {
    let Some(name) = reference(schema) else {
        return with_resolved_parts(schema, schemas, outer);
    };
    let Some(found) = schemas.get(name).filter(|_| !outer.contains(&name)) else {
        return json!({"type": "object"});
    };
    outer.push(name);
    let resolved = with_resolved_parts(found, schemas, outer);
    outer.pop();
    resolved
}

/// Returns the name that a schema refers to. In OpenAPI 3 a reference with something beside it is inside of `allOf`.
fn reference(schema: &Value) -> Option<&str> {
    let wrapped = schema.get("allOf").and_then(Value::as_array);
    let mut candidates = std::iter::once(schema).chain(wrapped.into_iter().flatten());
    let path = candidates.find_map(|schema| schema.get("$ref")?.as_str())?;
    path.rsplit('/').next()
}

fn with_resolved_parts<'a>(
    schema: &'a Value,
    schemas: &'a Map<String, Value>,
    outer: &mut Vec<&'a str>,
) -> Value {
    let Some(own) = schema.as_object() else {
        return schema.clone();
    };
    if own
        .get("format")
        .is_some_and(|format| format == "int-or-string")
    {
        return json!({"x-kubernetes-int-or-string": true});
    }
    let parts = own.iter().map(|(name, part)| {
        let part = match (name.as_str(), part) {
            ("properties", Value::Object(properties)) => {
                let properties = properties
                    .iter()
                    .map(|(name, property)| (name.clone(), resolve(property, schemas, outer)));
                Value::Object(properties.collect())
            }
            ("items" | "additionalProperties", Value::Object(_)) => resolve(part, schemas, outer),
            _ => part.clone(),
        };
        (name.clone(), part)
    });
    Value::Object(parts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn a_schema_that_contains_itself_ends() {
        let definition = table::kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let schema = whole(definition.expect("a known kind"));
        let versions = &schema["properties"]["spec"]["properties"]["versions"]["items"];
        let schema = &versions["properties"]["schema"]["properties"]["openAPIV3Schema"];
        assert_eq!(schema["properties"]["title"]["type"], "string");
        assert_eq!(schema["properties"]["not"], json!({"type": "object"}));
    }

    #[test]
    fn no_reference_is_left() {
        for resource in table::resources() {
            let schema = whole(resource.object()).to_string();
            assert!(!schema.contains("#/components/"), "{}", resource.kind());
        }
    }
}
