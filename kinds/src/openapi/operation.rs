//! Verbs as operations.

use serde_json::{Map, Value, json};

use super::schema::PATCH;
use super::{ApiResource, ApiSubresource, Dialect};
use crate::table::Version;

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const RESOURCE_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";

const LIST_PARAMETERS: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
const DELETE_PARAMETERS: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "orphanDependents",
    "propagationPolicy",
];
const DELETE_COLLECTION_PARAMETERS: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
];
const WRITE_PARAMETERS: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH_PARAMETERS: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    /// A list of all namespaces.
    ListAll,
    Patch,
    Replace,
}

/// A verb of a resource or subresource.
#[derive(Debug)]
pub(super) struct Operation<'a> {
    pub(super) resource: &'a ApiResource,
    pub(super) sub: Option<&'a ApiSubresource>,
    pub(super) verb: Verb,
}

impl Operation<'_> {
    fn method(&self) -> &'static str {
        match self.verb {
            Verb::Create => "post",
            Verb::Delete | Verb::DeleteCollection => "delete",
            Verb::Get | Verb::List | Verb::ListAll => "get",
            Verb::Patch => "patch",
            Verb::Replace => "put",
        }
    }

    fn connects(&self) -> bool {
        self.sub.is_some_and(|sub| sub.connects)
    }

    fn action(&self) -> &'static str {
        match self.verb {
            _ if self.connects() => "connect",
            Verb::DeleteCollection => "deletecollection",
            Verb::List | Verb::ListAll => "list",
            _ => self.method(),
        }
    }

    /// `patchAppsV1NamespacedDeploymentStatus`.
    fn id(&self) -> String {
        let ApiResource {
            group,
            version,
            kind,
            namespaced,
            ..
        } = self.resource;
        let prefix = match self.verb {
            _ if self.connects() => "connect",
            Verb::Create => "create",
            Verb::Delete | Verb::DeleteCollection => "delete",
            Verb::Get => "read",
            Verb::List | Verb::ListAll => "list",
            Verb::Patch => "patch",
            Verb::Replace => "replace",
        };
        let method = if self.connects() {
            capitalized(self.method())
        } else {
            String::new()
        };
        let collection = if self.verb == Verb::DeleteCollection {
            "Collection"
        } else {
            ""
        };
        let (scope, suffix) = match self.verb {
            Verb::ListAll => ("", "ForAllNamespaces"),
            _ if *namespaced => ("Namespaced", ""),
            _ => ("", ""),
        };
        let (group, version) = (group_name(group), capitalized(version));
        let sub = self
            .sub
            .map(|sub| capitalized(&sub.name))
            .unwrap_or_default();
        format!("{prefix}{group}{version}{method}{collection}{scope}{kind}{sub}{suffix}")
    }

    fn parameters(&self) -> &'static [&'static str] {
        match self.verb {
            _ if self.connects() => &[],
            Verb::Create | Verb::Replace => WRITE_PARAMETERS,
            Verb::Delete => DELETE_PARAMETERS,
            Verb::DeleteCollection => DELETE_COLLECTION_PARAMETERS,
            Verb::Get => &[],
            Verb::List | Verb::ListAll => LIST_PARAMETERS,
            Verb::Patch => PATCH_PARAMETERS,
        }
    }

    /// The schema of objects in requests and answers.
    fn object(&self) -> &str {
        self.sub.map_or(&self.resource.schema, |sub| &sub.schema)
    }

    fn request(&self) -> Option<&str> {
        match self.verb {
            _ if self.connects() => None,
            Verb::Create | Verb::Replace => Some(self.object()),
            Verb::Delete | Verb::DeleteCollection => Some(DELETE_OPTIONS),
            Verb::Patch => Some(PATCH),
            Verb::Get | Verb::List | Verb::ListAll => None,
        }
    }

    fn answer(&self) -> &str {
        match self.verb {
            Verb::Delete | Verb::DeleteCollection => STATUS,
            Verb::List | Verb::ListAll => self.resource.list_schema.as_deref().unwrap_or(STATUS),
            _ => self.object(),
        }
    }

    fn codes(&self) -> &'static [&'static str] {
        match self.verb {
            _ if self.connects() => &["200"],
            Verb::Create => &["200", "201", "202"],
            Verb::Replace | Verb::Patch => &["200", "201"],
            Verb::Delete => &["200", "202"],
            Verb::DeleteCollection | Verb::Get | Verb::List | Verb::ListAll => &["200"],
        }
    }

    /// The media types of answers.
    fn produces(&self) -> Vec<&'static str> {
        if self.connects() {
            return vec!["*/*"];
        }
        let mut types = vec!["application/json", "application/yaml"];
        let watch = matches!(self.verb, Verb::List | Verb::ListAll);
        if self.resource.built_in {
            types.push("application/vnd.kubernetes.protobuf");
        }
        if watch && self.resource.built_in {
            types.extend([
                "application/json;stream=watch",
                "application/vnd.kubernetes.protobuf;stream=watch",
            ]);
        }
        types
    }

    /// The media types of requests.
    fn consumes(&self) -> Vec<&'static str> {
        if self.verb != Verb::Patch || self.connects() {
            return vec!["*/*"];
        }
        let mut types = vec![
            "application/json-patch+json",
            "application/merge-patch+json",
        ];
        if self.resource.built_in {
            types.push("application/strategic-merge-patch+json");
        }
        types.push("application/apply-patch+yaml");
        types
    }

    fn kind(&self) -> Value {
        if let Some(sub) = self.sub {
            return json!({"group": sub.group, "version": sub.version, "kind": sub.kind});
        }
        let ApiResource {
            group,
            version,
            kind,
            ..
        } = self.resource;
        json!({"group": group, "version": version, "kind": kind})
    }

    fn write(&self, dialect: Dialect) -> Value {
        let mut operation = json!({
            "operationId": self.id(),
            "tags": [tag(&self.resource.group, &self.resource.version)],
            "x-kubernetes-action": self.action(),
            "x-kubernetes-group-version-kind": self.kind(),
        });
        let mut parameters: Vec<Value> = self
            .parameters()
            .iter()
            .map(|name| parameter(name, dialect))
            .collect();
        let required = !matches!(self.verb, Verb::Delete | Verb::DeleteCollection);
        let mut responses = Map::new();
        match dialect {
            Dialect::V3 => {
                if let Some(schema) = self.request() {
                    operation["requestBody"] =
                        json!({"content": content(&self.consumes(), schema)});
                    if required {
                        operation["requestBody"]["required"] = json!(true);
                    }
                }
                for code in self.codes() {
                    let content = if self.connects() {
                        json!({"*/*": {"schema": {"type": "string"}}})
                    } else {
                        content(&self.produces(), self.answer())
                    };
                    responses.insert(
                        (*code).to_owned(),
                        json!({"description": "OK", "content": content}),
                    );
                }
            }
            Dialect::V2 => {
                operation["consumes"] = json!(self.consumes());
                operation["produces"] = json!(self.produces());
                operation["schemes"] = json!(["https"]);
                if let Some(schema) = self.request() {
                    let mut body =
                        json!({"in": "body", "name": "body", "schema": reference(schema, dialect)});
                    if required {
                        body["required"] = json!(true);
                    }
                    parameters.insert(0, body);
                }
                for code in self.codes() {
                    let schema = if self.connects() {
                        json!({"type": "string"})
                    } else {
                        reference(self.answer(), dialect)
                    };
                    responses.insert(
                        (*code).to_owned(),
                        json!({"description": "OK", "schema": schema}),
                    );
                }
            }
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        operation["responses"] = Value::Object(responses);
        if !parameters.is_empty() {
            operation["parameters"] = json!(parameters);
        }
        operation
    }
}

/// The operations of a path, and the parameters that they share: those in the path and `pretty`.
pub(super) fn path_item(
    operations: Vec<Operation<'_>>,
    in_path: &[&str],
    dialect: Dialect,
) -> Value {
    let connects = operations.iter().any(Operation::connects);
    let mut item: Map<String, Value> = operations
        .into_iter()
        .map(|operation| (operation.method().to_owned(), operation.write(dialect)))
        .collect();
    let mut parameters: Vec<Value> = in_path
        .iter()
        .map(|name| path_parameter(name, dialect))
        .collect();
    if !connects {
        parameters.push(parameter("pretty", dialect));
    }
    item.insert("parameters".to_owned(), json!(parameters));
    Value::Object(item)
}

/// The path of a group version, which lists its resources.
pub(super) fn resource_list(version: &Version, dialect: Dialect) -> Value {
    let types = [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
    ];
    let mut operation = json!({
        "operationId": format!("get{}{}APIResources", group_name(version.group()), capitalized(version.name())),
        "tags": [tag(version.group(), version.name())],
    });
    let ok = match dialect {
        Dialect::V3 => json!({"description": "OK", "content": content(&types, RESOURCE_LIST)}),
        Dialect::V2 => {
            operation["consumes"] = json!(types);
            operation["produces"] = json!(types);
            operation["schemes"] = json!(["https"]);
            json!({"description": "OK", "schema": reference(RESOURCE_LIST, dialect)})
        }
    };
    operation["responses"] = json!({"200": ok, "401": {"description": "Unauthorized"}});
    json!({"get": operation})
}

fn content(types: &[&str], schema: &str) -> Value {
    let schema = reference(schema, Dialect::V3);
    types
        .iter()
        .map(|media| ((*media).to_owned(), json!({"schema": schema})))
        .collect::<Map<_, _>>()
        .into()
}

fn reference(schema: &str, dialect: Dialect) -> Value {
    json!({"$ref": dialect.reference(schema)})
}

fn parameter(name: &str, dialect: Dialect) -> Value {
    let ty = match name {
        "allowWatchBookmarks" | "force" | "orphanDependents" | "sendInitialEvents" | "watch" => {
            "boolean"
        }
        "gracePeriodSeconds" | "limit" | "timeoutSeconds" => "integer",
        _ => "string",
    };
    match dialect {
        Dialect::V3 => {
            json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}})
        }
        Dialect::V2 => json!({"name": name, "in": "query", "type": ty, "uniqueItems": true}),
    }
}

fn path_parameter(name: &str, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V3 => {
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
        }
        Dialect::V2 => {
            json!({"name": name, "in": "path", "required": true, "type": "string", "uniqueItems": true})
        }
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
        .unwrap_or_default()
}

/// The group in ids of operations: `RbacAuthorization` of `rbac.authorization.k8s.io`.
fn group_name(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    group
        .trim_end_matches(".k8s.io")
        .split('.')
        .map(capitalized)
        .collect()
}

fn tag(group: &str, version: &str) -> String {
    let name = group_name(group);
    let first = name.chars().next().map(|first| first.to_ascii_lowercase());
    format!(
        "{}{}_{version}",
        first.unwrap_or_default(),
        name.get(1..).unwrap_or_default()
    )
}
