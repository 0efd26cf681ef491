//! Resources as paths.

use serde_json::{Map, Value};

use super::Dialect;
use super::operation::{Operation, Verb, path_item};
use crate::table::{Resource, Subresource, Type};

/// A resource whose paths are in a document: a built-in one, or a custom one.
#[derive(Debug, Clone)]
pub struct ApiResource {
    /// The group, empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The name in paths.
    pub plural: String,
    /// The kind of its objects.
    pub kind: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Its verbs, as in discovery.
    pub verbs: Vec<String>,
    /// The name of the schema of its objects: `io.k8s.api.apps.v1.Deployment`.
    pub schema: String,
    /// The name of the schema of its lists.
    pub list_schema: Option<String>,
    /// Whether its objects have protobuf and strategic merge patches, as those of built-in kinds.
    pub built_in: bool,
    /// Its subresources.
    pub subresources: Vec<ApiSubresource>,
}

/// A subresource in a document.
#[derive(Debug, Clone)]
pub struct ApiSubresource {
    /// The name, such as `status`.
    pub name: String,
    /// The group of its kind.
    pub group: String,
    /// The version of its kind.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// Its verbs, as in discovery.
    pub verbs: Vec<String>,
    /// The name of the schema of its objects.
    pub schema: String,
    /// Whether requests to it are connections (`exec`, `proxy`) rather than objects.
    pub connects: bool,
}

impl ApiResource {
    /// A built-in resource.
    pub fn built_in(resource: &Resource) -> Self {
        let owned = |verbs: &[&str]| verbs.iter().map(|verb| (*verb).to_owned()).collect();
        ApiResource {
            group: resource.group().to_owned(),
            version: resource.version().to_owned(),
            plural: resource.plural().to_owned(),
            kind: resource.kind().to_owned(),
            namespaced: resource.namespaced(),
            verbs: owned(resource.verbs()),
            schema: resource.object().openapi_name().unwrap_or_default(),
            list_schema: resource.list().and_then(Type::openapi_name),
            built_in: true,
            subresources: resource
                .subresources()
                .iter()
                .map(ApiSubresource::built_in)
                .collect(),
        }
    }

    /// The paths with their operations.
    pub fn paths(&self, dialect: Dialect) -> Map<String, Value> {
        let mut paths = Map::new();
        let root = root(&self.group, &self.version);
        let all = format!("{root}{}", self.plural);
        let collection = if self.namespaced {
            format!("{root}namespaces/{{namespace}}/{}", self.plural)
        } else {
            all.clone()
        };
        let mut add = |path: String, operations: Vec<Operation<'_>>, parameters: &[&str]| {
            if !operations.is_empty() {
                paths.insert(path, path_item(operations, parameters, dialect));
            }
        };
        if self.namespaced && self.has("list") {
            add(all, vec![self.operation(Verb::ListAll)], &[]);
        }
        let namespace: &[&str] = if self.namespaced { &["namespace"] } else { &[] };
        let on_collection = [
            ("deletecollection", Verb::DeleteCollection),
            ("list", Verb::List),
            ("create", Verb::Create),
        ];
        add(
            collection.clone(),
            self.operations(&on_collection),
            namespace,
        );
        let name: &[&str] = if self.namespaced {
            &["name", "namespace"]
        } else {
            &["name"]
        };
        let on_object = [
            ("delete", Verb::Delete),
            ("get", Verb::Get),
            ("patch", Verb::Patch),
            ("update", Verb::Replace),
        ];
        add(
            format!("{collection}/{{name}}"),
            self.operations(&on_object),
            name,
        );
        for sub in &self.subresources {
            let verbs = [
                ("create", Verb::Create),
                ("delete", Verb::Delete),
                ("get", Verb::Get),
                ("patch", Verb::Patch),
                ("update", Verb::Replace),
            ];
            let operations = verbs
                .into_iter()
                .filter(|(verb, _)| sub.verbs.iter().any(|known| known == verb))
                .map(|(_, verb)| Operation {
                    resource: self,
                    sub: Some(sub),
                    verb,
                })
                .collect();
            add(
                format!("{collection}/{{name}}/{}", sub.name),
                operations,
                name,
            );
        }
        paths
    }

    fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    fn operation(&self, verb: Verb) -> Operation<'_> {
        Operation {
            resource: self,
            sub: None,
            verb,
        }
    }

    fn operations(&self, verbs: &[(&str, Verb)]) -> Vec<Operation<'_>> {
        verbs
            .iter()
            .filter(|(verb, _)| self.has(verb))
            .map(|(_, verb)| self.operation(*verb))
            .collect()
    }
}

impl ApiSubresource {
    fn built_in(sub: &Subresource) -> Self {
        ApiSubresource {
            name: sub.name().to_owned(),
            group: sub.group().to_owned(),
            version: sub.version().to_owned(),
            kind: sub.kind().to_owned(),
            verbs: sub.verbs().iter().map(|verb| (*verb).to_owned()).collect(),
            schema: sub.object().openapi_name().unwrap_or_default(),
            connects: sub.kind().ends_with("Options"),
        }
    }
}

/// The path of a group version, with a slash at its end.
pub(super) fn root(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}/")
    } else {
        format!("/apis/{group}/{version}/")
    }
}
