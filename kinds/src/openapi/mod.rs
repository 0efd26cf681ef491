//! OpenAPI documents, generated from the table.

mod gnostic;
mod operation;
mod path;
mod resolve;
mod schema;

use serde_json::{Map, Value, json};

pub use path::{ApiResource, ApiSubresource};
pub use resolve::{resolved, whole};

use crate::table::{self, Resource, Type, Version};

/// The version of OpenAPI that a document is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Swagger 2.0, `/openapi/v2`: one document for all group versions.
    V2,
    /// OpenAPI 3.0, `/openapi/v3/...`: one document for each group version, with defaults.
    V3,
}

impl Dialect {
    /// The pointer to a schema with a name.
    pub(crate) fn reference(self, name: &str) -> String {
        match self {
            Dialect::V2 => format!("#/definitions/{name}"),
            Dialect::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

/// The OpenAPI v3 document of a group version. `release` is the version of Kubernetes that it names.
///
/// ```
/// let version = revstore_kinds::version("apps", "v1").unwrap();
/// let document = revstore_kinds::openapi::v3(version, "v1.36.0");
/// let spec = &document["components"]["schemas"]["io.k8s.api.apps.v1.DeploymentSpec"];
/// assert_eq!(spec["properties"]["replicas"]["format"], "int32");
/// ```
pub fn v3(version: &Version, release: &str) -> Value {
    v3_of(version, version.resources(), release)
}

/// As [`v3`], of some resources of the version.
pub fn v3_of<'a>(
    version: &Version,
    resources: impl IntoIterator<Item = &'a Resource>,
    release: &str,
) -> Value {
    let mut paths = Map::new();
    let mut roots = common_types();
    paths.insert(
        path::root(version.group(), version.name()),
        operation::resource_list(version, Dialect::V3),
    );
    for resource in resources {
        add_resource(resource, Dialect::V3, &mut paths, &mut roots);
    }
    let owners = [("", "v1"), (version.group(), version.name())];
    let schemas = schema::reachable(roots, Dialect::V3, &owners);
    v3_document(paths, schemas, release)
}

/// A v3 document of paths and schemas, such as those of a custom resource: [`ApiResource::paths`] and the schemas of its
/// definition.
pub fn v3_document(paths: Map<String, Value>, schemas: Map<String, Value>, release: &str) -> Value {
    let mut document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": release},
        "components": {
            "securitySchemes": {"BearerToken": {"in": "header", "name": "authorization", "type": "apiKey"}},
        },
    });
    document["paths"] = Value::Object(paths);
    document["components"]["schemas"] = Value::Object(schemas);
    document
}

/// The schemas that v3 documents of custom resources refer to, besides their own: metadata, `Status`, `DeleteOptions` ...,
/// and those of further types, such as `Scale`.
pub fn common_schemas(
    group: &str,
    version: &str,
    dialect: Dialect,
    further: impl IntoIterator<Item = &'static Type>,
) -> Map<String, Value> {
    let mut roots = common_types();
    roots.extend(further);
    roots.extend(
        ["meta.v1.ObjectMeta", "meta.v1.ListMeta"]
            .into_iter()
            .filter_map(table::type_named),
    );
    schema::reachable(roots, dialect, &[("", "v1"), (group, version)])
}

/// The OpenAPI v2 document of group versions. Paths and definitions of custom resources may be added to its `paths` and
/// `definitions`.
///
/// ```
/// let versions = revstore_kinds::groups().iter().flat_map(|group| group.versions());
/// let document = revstore_kinds::openapi::v2(versions.filter(|version| version.on_by_default()), "v1.36.0");
/// assert_eq!(document["swagger"], "2.0");
/// assert!(document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"].is_object());
/// ```
pub fn v2<'a>(versions: impl Iterator<Item = &'a Version>, release: &str) -> Value {
    v2_of(
        versions.map(|version| (version, version.resources())),
        release,
    )
}

/// As [`v2`], of some resources of each version.
pub fn v2_of<'a, R: IntoIterator<Item = &'a Resource>>(
    versions: impl IntoIterator<Item = (&'a Version, R)>,
    release: &str,
) -> Value {
    let mut paths = Map::new();
    let mut roots = common_types();
    let mut owners = Vec::new();
    for (version, resources) in versions {
        owners.push((version.group(), version.name()));
        paths.insert(
            path::root(version.group(), version.name()),
            operation::resource_list(version, Dialect::V2),
        );
        for resource in resources {
            add_resource(resource, Dialect::V2, &mut paths, &mut roots);
        }
    }
    owners.sort_unstable();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": release},
        "paths": paths,
        "definitions": schema::reachable(roots, Dialect::V2, &owners),
        "security": [{"BearerToken": []}],
        "securityDefinitions": {"BearerToken": {"in": "header", "name": "authorization", "type": "apiKey"}},
    })
}

/// A v2 document in protobuf, `application/com.github.proto-openapi.spec.v2@v1.0+protobuf`, which older versions of
/// kubectl read. What the message has no field for is left out.
pub fn v2_protobuf(document: &Value) -> Vec<u8> {
    gnostic::v2::document(document)
}

/// A v3 document in protobuf, `application/com.github.proto-openapi.spec.v3@v1.0+protobuf`. What the message has no field
/// for is left out, such as defaults that are objects.
pub fn v3_protobuf(document: &Value) -> Vec<u8> {
    gnostic::v3::document(document)
}

/// The schema of a type. `owners` are the group versions of kinds that every group version has, such as
/// `DeleteOptions`.
pub fn schema(ty: &'static Type, dialect: Dialect, owners: &[(&str, &str)]) -> Value {
    schema::definition(ty, dialect, owners)
}

fn common_types() -> Vec<&'static Type> {
    let names = [
        "meta.v1.APIResourceList",
        "meta.v1.DeleteOptions",
        "meta.v1.Status",
        "meta.v1.WatchEvent",
    ];
    names.into_iter().filter_map(table::type_named).collect()
}

fn add_resource(
    resource: &Resource,
    dialect: Dialect,
    paths: &mut Map<String, Value>,
    roots: &mut Vec<&'static Type>,
) {
    let described = ApiResource::built_in(resource);
    paths.extend(described.paths(dialect));
    roots.push(resource.object());
    roots.extend(resource.list());
    let objects = described.subresources.iter().filter(|sub| !sub.connects);
    roots.extend(objects.filter_map(|sub| table::kind(&sub.group, &sub.version, &sub.kind)));
}

#[cfg(test)]
mod tests;
