//! The built-in resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{JsonObject, Strategy};
use serde_json::{Value, json};

use crate::catalog::{Catalog, Group, Names, Origin, Resource, Rules, Version};
use crate::storage::Storage;

#[derive(Debug)]
struct Plain(Names);
impl Strategy for Plain {
    fn api_version(&self) -> &str {
        &self.0.version
    }
    fn kind(&self) -> &str {
        &self.0.kind
    }
    fn has_generation(&self) -> bool {
        false
    }
}
impl Rules for Plain {
    fn columns(&self) -> Value {
        json!([])
    }
    fn cells(&self, object: &JsonObject) -> Vec<Value> {
        vec![object["metadata"]["name"].clone()]
    }
}

/// Adds all built-in resources.
pub(crate) fn add_builtin(catalog: &Catalog, storage: &Storage) -> Result<(), RequestError> {
    let verbs = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    let mut resources = BTreeMap::new();
    for (plural, singular, kind, namespaced) in [
        ("configmaps", "configmap", "ConfigMap", true),
        ("namespaces", "namespace", "Namespace", false),
        ("pods", "pod", "Pod", true),
    ] {
        let names = Names {
            version: "v1".into(),
            plural: plural.into(),
            singular: singular.into(),
            kind: kind.into(),
            list_kind: format!("{kind}List"),
            ..Names::default()
        };
        let stored = storage.add(&names, namespaced, &[], Plain(names.clone()))?;
        resources.insert(
            plural.to_owned(),
            Arc::new(Resource {
                rules: Arc::new(Plain(names.clone())),
                names,
                fields: Vec::new(),
                origin: Origin::Builtin,
                namespaced,
                verbs: verbs.map(str::to_owned).to_vec(),
                subresources: Vec::new(),
                stored: Some(stored),
            }),
        );
    }
    catalog.change(|groups| {
        groups.insert(
            String::new(),
            Group {
                origin: Origin::Builtin,
                versions: vec![Version {
                    name: "v1".into(),
                    resources,
                }],
            },
        );
    });
    Ok(())
}
