//! The parameters of bindings.

use std::sync::Arc;

use revstore_cel::Value;
use revstore_watch_cache::Scope;
use revstore_watch_cache::api::{GetOptions, ListOptions, ObjectRef};
use revstore_watch_cache::registry::JsonObject;
use serde_json::Value as Json;

use super::definition::{Definition, ParamKind, ParamRef};
use crate::builtin::field::Field;
use crate::builtin::selector;
use crate::catalog::{Catalog, Resource};
use crate::verbs::decoded;

/// A parameter. `None`: the policy or the binding names none, and its value is null.
pub(crate) type Param = Option<JsonObject>;

/// Returns the resource of a kind.
fn resource_of(catalog: &Catalog, kind: &ParamKind) -> Option<Arc<Resource>> {
    let groups = catalog.groups();
    let versions = &groups.get(&kind.group)?.versions;
    let version = versions
        .iter()
        .find(|version| version.name == kind.version)?;
    let mut resources = version.resources.values();
    resources
        .find(|resource| resource.names.kind == kind.kind && resource.stored.is_some())
        .cloned()
}

/// Returns the resource of the parameters of a policy that has some.
///
/// # Errors
/// There is no such kind.
pub(crate) fn resource(
    catalog: &Catalog,
    policy: &Definition,
) -> Result<Option<Arc<Resource>>, String> {
    let Some(kind) = &policy.param_kind else {
        return Ok(None);
    };
    match resource_of(catalog, kind) {
        Some(resource) => Ok(Some(resource)),
        None => Err(format!(
            "failed to find resource referenced by paramKind: '{kind}'"
        )),
    }
}

/// Returns the parameters of a binding, for a request in a namespace: the policy is evaluated with each of them.
///
/// # Errors
/// There are none, or the binding does not fit.
pub(crate) async fn collect(
    resource: Option<&Arc<Resource>>,
    reference: Option<&ParamRef>,
    namespace: &str,
) -> Result<Vec<Param>, String> {
    let (Some(resource), Some(reference)) = (resource, reference) else {
        return Ok(vec![None]);
    };
    let Some(stored) = &resource.stored else {
        return Ok(vec![None]);
    };
    let namespace = match (resource.namespaced, reference.namespace.as_str()) {
        (true, "") if namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .to_owned(),
            );
        }
        (true, "") => Some(namespace),
        (true, own) => Some(own),
        (false, "") => None,
        (false, _) => {
            return Err(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
                    .to_owned(),
            );
        }
    };
    let mut found = Vec::new();
    if let Some(wanted) = &reference.selector {
        let scope = match namespace {
            Some(namespace) => Scope::Namespace(namespace.to_owned()),
            None => Scope::All,
        };
        let options = ListOptions::default().resource_version("0");
        let listed = stored.cache.list(&scope, &options).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let objects: Result<Vec<_>, _> = listed.items.readable().collect();
        let objects = objects.map_err(|error| error.to_string())?;
        let shown = resource.converted_objects(objects).await;
        for object in shown.map_err(|error| error.to_string())? {
            let param = decoded(resource, stored, &object).map_err(|error| error.to_string())?;
            if has_labels(wanted, &param) {
                found.push(Some(param));
            }
        }
    } else {
        let reference = match namespace {
            Some(namespace) => ObjectRef::namespaced(namespace, &*reference.name),
            None => ObjectRef::cluster(&*reference.name),
        };
        let options = GetOptions::default().resource_version("0");
        let object = stored.cache.get(&reference, &options).await;
        if let Some(object) = object.map_err(|error| error.to_string())? {
            let shown = resource.converted_object(object).await;
            let object = shown.map_err(|error| error.to_string())?;
            let param = decoded(resource, stored, &object).map_err(|error| error.to_string())?;
            found.push(Some(param));
        }
    }
    if found.is_empty() && reference.denies_absent {
        return Err(
            "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned(),
        );
    }
    Ok(found)
}

fn has_labels(wanted: &JsonObject, param: &JsonObject) -> bool {
    let none = JsonObject::new();
    let labels = param
        .get("metadata")
        .and_then(|metadata| metadata.get("labels"))
        .and_then(Json::as_object)
        .unwrap_or(&none);
    selector::matches(&Field::root(wanted), &Field::root(labels))
}

/// Returns a parameter as expressions see it.
pub(crate) fn value(param: &Param) -> Option<Value> {
    let param = param.as_ref()?;
    let fields = param.iter();
    Some(Value::map(fields.map(|(name, value)| {
        (name.as_str(), Value::from_json(value))
    })))
}
