//! Definitions of `apiextensions.k8s.io/v1beta1`: the version in which kube-apiserver stores them.

use revstore_watch_cache::registry::JsonObject;
use serde_json::{Map, Value, json};

use crate::custom::definition::API_VERSION;

/// The API version of definitions that kube-apiserver has stored.
const V1BETA1: &str = "apiextensions.k8s.io/v1beta1";

/// What is the same in all versions stands once in the definition: its name there and in a version.
const SHARED: [(&str, &str); 4] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Converts a stored definition to `apiextensions.k8s.io/v1`, if it is in the old version.
pub(crate) fn to_v1(definition: &mut JsonObject) {
    if definition.get("apiVersion").and_then(Value::as_str) != Some(V1BETA1) {
        return;
    }
    definition.insert("apiVersion".to_owned(), API_VERSION.into());
    let Some(Value::Object(spec)) = definition.get_mut("spec") else {
        return;
    };
    let first = spec.remove("version");
    let shared = SHARED.map(|(name, in_version)| (in_version, spec.remove(name)));
    let versions = spec.entry("versions").or_insert_with(|| json!([]));
    if let Value::Array(versions) = versions {
        if let Some(name) = first.filter(|_| versions.is_empty()) {
            versions.push(json!({"name": name, "served": true, "storage": true}));
        }
        for version in versions.iter_mut().filter_map(Value::as_object_mut) {
            for (name, value) in &shared {
                if let Some(value) = value
                    && !version.contains_key(*name)
                {
                    version.insert((*name).to_owned(), value.clone());
                }
            }
            rename_paths(version);
        }
    }
    // The fields of unknown names are kept if nothing is said about them.
    match spec.get("preserveUnknownFields") {
        Some(Value::Bool(false)) => {
            spec.remove("preserveUnknownFields");
        }
        _ => {
            spec.insert("preserveUnknownFields".to_owned(), true.into());
        }
    }
    let conversion = spec
        .entry("conversion")
        .or_insert_with(|| json!({"strategy": "None"}));
    if let Value::Object(conversion) = conversion {
        convert_webhook(conversion);
    }
}

fn rename_paths(version: &mut Map<String, Value>) {
    let columns = version.get_mut("additionalPrinterColumns");
    let columns = columns.and_then(Value::as_array_mut).into_iter().flatten();
    for column in columns.filter_map(Value::as_object_mut) {
        if let Some(path) = column.remove("JSONPath") {
            column.insert("jsonPath".to_owned(), path);
        }
    }
}

fn convert_webhook(conversion: &mut Map<String, Value>) {
    let mut webhook = Map::new();
    for (name, new) in [
        ("webhookClientConfig", "clientConfig"),
        ("conversionReviewVersions", "conversionReviewVersions"),
    ] {
        if let Some(value) = conversion.remove(name) {
            webhook.insert(new.to_owned(), value);
        }
    }
    if !webhook.is_empty() {
        conversion.insert("webhook".to_owned(), webhook.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(definition: Value) -> Value {
        let Value::Object(mut definition) = definition else {
            panic!("no object");
        };
        to_v1(&mut definition);
        definition.into()
    }

    #[test]
    fn what_versions_share_is_moved_to_each_of_them() {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let shown = converted(json!({
            "apiVersion": V1BETA1,
            "spec": {
                "version": "v1",
                "versions": [
                    {"name": "v1", "served": true, "storage": true},
                    {"name": "v2", "served": true, "storage": false, "subresources": {"status": {}}},
                ],
                "validation": schema,
                "subresources": {"scale": {}},
                "additionalPrinterColumns": [{"name": "A", "JSONPath": ".a"}],
                "selectableFields": [{"jsonPath": ".a"}],
                "conversion": {
                    "strategy": "Webhook",
                    "webhookClientConfig": {"url": "https://a"},
                    "conversionReviewVersions": ["v1"],
                },
                "preserveUnknownFields": false,
            },
        }));
        let columns = json!([{"name": "A", "jsonPath": ".a"}]);
        let fields = json!([{"jsonPath": ".a"}]);
        let expected = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "spec": {
                "versions": [
                    {
                        "name": "v1", "served": true, "storage": true, "schema": schema,
                        "subresources": {"scale": {}}, "additionalPrinterColumns": columns, "selectableFields": fields,
                    },
                    {
                        "name": "v2", "served": true, "storage": false, "schema": schema,
                        "subresources": {"status": {}}, "additionalPrinterColumns": columns, "selectableFields": fields,
                    },
                ],
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": {"url": "https://a"}, "conversionReviewVersions": ["v1"]},
                },
            },
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_old_definitions_leave_out_has_its_default() {
        let shown = converted(json!({"apiVersion": V1BETA1, "spec": {"version": "v1"}}));
        let expected = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "spec": {
                "versions": [{"name": "v1", "served": true, "storage": true}],
                "preserveUnknownFields": true,
                "conversion": {"strategy": "None"},
            },
        });
        assert_eq!(shown, expected);
        let broken = converted(json!({"apiVersion": V1BETA1, "spec": 1}));
        assert_eq!(broken["spec"], 1);
    }
}
