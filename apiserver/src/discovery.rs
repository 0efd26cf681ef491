//! Discovery: the groups, versions and resources of the server, plain and aggregated.

use revstore_watch_cache::RequestError;
use std::fmt::Write as _;

use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, VARY};
use revstore_watch_cache::status::Status;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::catalog::{Group, Groups, Names, Origin, Resource, Subresource, Version};
use crate::components::Components;
use crate::http::{Answer, Exchange, Form, Offer, Route, method_not_allowed};

/// The content type of the aggregated form.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers `/api`, `/apis` and what is below them.
// WC-411.
pub(crate) fn answer(
    groups: &Groups,
    exchange: &Exchange,
    parts: &[&str],
    is_read: bool,
) -> Result<Answer, RequestError> {
    let is_root = parts.len() == 1;
    let forms: &[Form] = if is_root {
        &[Form::Whole, Form::AggregatedDiscovery]
    } else {
        &[Form::Whole]
    };
    let group = match parts {
        ["api", ..] => groups.get_key_value(""),
        ["apis", name, ..] => match groups.get_key_value(*name) {
            Some(found) if !name.is_empty() => Some(found),
            _ => return Ok(Answer::page_not_found()),
        },
        _ => None,
    };
    let version = match (parts, group) {
        (["api", name] | ["apis", _, name], Some((_, group))) => {
            let found = group.versions.iter().find(|known| known.name == *name);
            match (found, group.origin) {
                (None, Origin::Custom) => return Ok(Answer::page_not_found()),
                (None, Origin::Builtin) => return Err(Status::unknown_resource().into()),
                _ => found,
            }
        }
        _ => None,
    };
    // The lists of groups take all methods.
    if !is_read && !matches!(parts, ["apis"] | ["apis", _]) {
        return Err(method_not_allowed().into());
    }
    let is_builtin = group.is_some_and(|(_, group)| group.origin == Origin::Builtin);
    let accepted = exchange.negotiate(Offer {
        forms,
        protobuf: false,
        route: (version.is_some() && is_builtin).then_some(Route::Object),
    })?;
    if accepted.form == Form::AggregatedDiscovery {
        return Ok(aggregated(groups, exchange, parts[0] == "api"));
    }
    let value = match (parts, group, version) {
        (_, Some((name, _)), Some(version)) => resource_list(name, version),
        (["api"], _, _) => api_versions(groups, exchange),
        (["apis"], _, _) => {
            let named = groups.iter().filter(|(name, _)| !name.is_empty());
            let list: Vec<Value> = named
                .map(|(name, group)| group_value(name, group, false))
                .collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list})
        }
        (["apis", _], Some((name, group)), _) => group_value(name, group, true),
        _ => return Ok(Answer::page_not_found()),
    };
    Ok(Answer::value(StatusCode::OK, accepted, &value))
}

fn api_versions(groups: &Groups, exchange: &Exchange) -> Value {
    let versions = groups
        .get("")
        .map(|group| group.versions.as_slice())
        .unwrap_or_default();
    let versions: Vec<&str> = versions
        .iter()
        .map(|version| version.name.as_str())
        .collect();
    json!({
        "kind": "APIVersions",
        "versions": versions,
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": exchange.header("host")},
        ],
    })
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn group_value(name: &str, group: &Group, has_type: bool) -> Value {
    let version = |version: &Version| json!({"groupVersion": api_version(name, &version.name), "version": version.name});
    let mut value = json!({
        "name": name,
        "versions": group.versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": group.preferred().map(version),
    });
    if has_type {
        value["kind"] = "APIGroup".into();
        value["apiVersion"] = "v1".into();
    }
    value
}

fn resource_list(group: &str, version: &Version) -> Value {
    let mut list = Vec::new();
    for resource in version.resources.values() {
        list.push(resource_value(resource));
        for (name, subresource) in &resource.subresources {
            list.push(subresource_value(resource, name, subresource));
        }
    }
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version(group, &version.name),
        "resources": list,
    })
}

/// Returns the hash that tells clients whether the storage versions of two servers agree. It depends on the
/// kind only.
fn storage_version_hash(names: &Names) -> String {
    use base64::Engine as _;
    let text = format!("{}/{}/{}", names.group, names.version, names.kind);
    let hash = Sha256::digest(text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&hash[..8])
}

fn resource_value(resource: &Resource) -> Value {
    let names = &resource.names;
    let mut value = json!({
        "name": names.plural,
        "singularName": names.singular,
        "namespaced": resource.namespaced,
        "kind": names.kind,
        "verbs": resource.verbs,
    });
    if !names.short_names.is_empty() {
        value["shortNames"] = json!(names.short_names);
    }
    if !names.categories.is_empty() {
        value["categories"] = json!(names.categories);
    }
    if resource.stored.is_some() && !Components::are(resource) {
        value["storageVersionHash"] = storage_version_hash(names).into();
    }
    value
}

fn subresource_value(resource: &Resource, name: &str, subresource: &Subresource) -> Value {
    let mut value = json!({
        "name": format!("{}/{name}", resource.names.plural),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": subresource.kind,
        "verbs": subresource.verbs,
    });
    let own = (&resource.names.group, &resource.names.version);
    if (&subresource.group, &subresource.version) != own {
        value["group"] = subresource.group.as_str().into();
        value["version"] = subresource.version.as_str().into();
    }
    value
}

/// Returns the aggregated form, which has an `ETag`.
fn aggregated(groups: &Groups, exchange: &Exchange, is_core: bool) -> Answer {
    let items: Vec<Value> = groups
        .iter()
        .filter(|(name, _)| name.is_empty() == is_core)
        .map(|(name, group)| aggregated_group(name, group))
        .collect();
    let value = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    let body = value.to_string();
    let hash = Sha256::digest(body.as_bytes());
    let mut tag = "\"".to_owned();
    for byte in hash {
        // Writing to a string does not fail.
        let _ = write!(tag, "{byte:02X}");
    }
    tag.push('"');
    let is_known = exchange.header("if-none-match") == tag;
    let mut answer = if is_known {
        Answer::new(StatusCode::NOT_MODIFIED, AGGREGATED, "")
    } else {
        Answer::new(StatusCode::OK, AGGREGATED, body + "\n")
    };
    if is_known {
        answer
            .headers
            .retain(|(name, _): &(HeaderName, _)| name != CONTENT_TYPE);
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        answer = answer.header(ETAG, tag);
    }
    answer
        .header(VARY, HeaderValue::from_static("Accept"))
        .header(CACHE_CONTROL, HeaderValue::from_static("public"))
}

fn aggregated_group(name: &str, group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            let resources = version.resources.values();
            json!({
                "version": version.name,
                "resources": resources.map(|resource| aggregated_resource(resource)).collect::<Vec<_>>(),
                "freshness": "Current",
            })
        })
        .collect();
    let metadata = if name.is_empty() {
        json!({"creationTimestamp": null})
    } else {
        json!({"name": name, "creationTimestamp": null})
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let names = &resource.names;
    let is_custom = resource.origin == Origin::Custom;
    let kind = |group: &str, version: &str, kind: &str| {
        // Of built-in kinds the group and version are left out where they are those of the list.
        let is_own = group == names.group && version == names.version && !is_custom;
        let (group, version) = if is_own { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut value = json!({
        "resource": names.plural,
        "responseKind": kind(&names.group, &names.version, &names.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": names.singular,
        "verbs": resource.verbs,
    });
    if !names.short_names.is_empty() {
        value["shortNames"] = json!(names.short_names);
    }
    if !names.categories.is_empty() {
        value["categories"] = json!(names.categories);
    }
    if !resource.subresources.is_empty() {
        let subresources = resource.subresources.iter();
        value["subresources"] = subresources
            .map(|(name, sub)| {
                json!({
                    "subresource": name,
                    "responseKind": kind(&sub.group, &sub.version, &sub.kind),
                    "verbs": sub.verbs,
                })
            })
            .collect();
    }
    value
}
