//! Which requests a webhook is called for.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status};
use serde_json::{Map, Value};

use super::hook::{Hook, Rule, Scope};
use super::validating::shown;
use super::versions::equivalents;
use crate::admission::{Attributes, Operation};
use crate::catalog::Resource;
use crate::policy::{Matched, Scene, Subject, Variables};

/// A webhook that is called for a request.
#[derive(Debug)]
pub(super) struct Invocation<'a> {
    pub(super) hook: &'a Hook,
    /// The other version of the resource that the webhook is asked about.
    pub(super) other: Option<std::sync::Arc<Resource>>,
}

/// Returns how a webhook is called for a request, or `None` if it is not.
///
/// # Errors
/// The namespace of a request that a rule matches does not exist, or a selector is invalid, or its match conditions
/// cannot be evaluated.
pub(super) async fn invocation<'a>(
    hook: &'a Hook,
    request: &Attributes<'_>,
    object: Option<&JsonObject>,
) -> Result<Option<Invocation<'a>>, RequestError> {
    let in_namespace = matches_namespace(hook, request, object).await;
    if matches!(in_namespace, Ok(false)) {
        return Ok(None);
    }
    let selected = matches_object(hook, request, object);
    if matches!(selected, Ok(false)) {
        return Ok(None);
    }
    let names = &request.resource.names;
    let own = [&*names.group, &*names.version, &*names.plural];
    let mut invocation = hook
        .rules
        .iter()
        .any(|rule| matches_rule(rule, request, own))
        .then_some(Invocation { hook, other: None });
    if invocation.is_none() && hook.is_equivalent {
        let others = equivalents(request);
        // Earlier rules first.
        let mut pairs = hook
            .rules
            .iter()
            .flat_map(|rule| others.iter().map(move |other| (rule, other)));
        let found = pairs.find(|(rule, other)| {
            let names = &other.names;
            matches_rule(rule, request, [&names.group, &names.version, &names.plural])
        });
        invocation = found.map(|(_, other)| Invocation {
            hook,
            other: Some(other.clone()),
        });
    }
    let Some(invocation) = invocation else {
        return Ok(None);
    };
    in_namespace?;
    selected?;
    let holds = meets_conditions(&invocation, request, object).await?;
    Ok(holds.then_some(invocation))
}

/// Returns whether the match conditions of a webhook hold.
///
/// # Errors
/// They cannot be evaluated, or the objects not be converted.
async fn meets_conditions(
    invocation: &Invocation<'_>,
    request: &Attributes<'_>,
    object: Option<&JsonObject>,
) -> Result<bool, RequestError> {
    let Some(conditions) = invocation.hook.conditions() else {
        return Ok(true);
    };
    let new = shown(request, invocation, object).await?;
    let old = shown(request, invocation, request.old).await?;
    let subject = Subject::new(request);
    let matched = match &invocation.other {
        Some(other) => Matched::Equivalent(other.clone()),
        None => Matched::Own,
    };
    let scene = Scene::of_webhook(&subject, &matched, new.as_deref(), old.as_deref());
    let held = conditions.hold(&scene, None, &Variables::default()).await;
    held.map_err(|error| {
        let resource = request.resource.names.resource_name();
        Status::forbidden(&resource, &request.name, &error).into()
    })
}

/// Returns whether a rule is about a request for a group, version and resource.
fn matches_rule(rule: &Rule, request: &Attributes<'_>, names: [&str; 3]) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|it| it == "*" || it == wanted);
    let [group, version, plural] = names;
    let is_namespace = [group, version, plural] == ["", "v1", "namespaces"];
    let is_in_namespace = !is_namespace && !request.namespace.is_empty();
    let in_scope = match rule.scope {
        Scope::All => true,
        Scope::Namespaced => is_in_namespace,
        Scope::Cluster => !is_in_namespace,
        Scope::Unknown => false,
    };
    let resource = |text: &String| {
        let (resource, subresource) = text.split_once('/').unwrap_or((text, ""));
        (resource == "*" || resource == plural)
            && (subresource == "*" || subresource == request.subresource)
    };
    in_scope
        && has(&rule.operations, request.operation.name())
        && has(&rule.groups, group)
        && has(&rule.versions, version)
        && rule.resources.iter().any(resource)
}

fn internal(error: &str) -> RequestError {
    RequestError::Internal(error.to_owned())
}

fn labels(object: Option<&JsonObject>) -> Option<&Map<String, Value>> {
    object?.get("metadata")?.get("labels")?.as_object()
}

fn matches_object(
    hook: &Hook,
    request: &Attributes<'_>,
    object: Option<&JsonObject>,
) -> Result<bool, RequestError> {
    let selector = hook.objects.as_ref().map_err(|error| internal(error))?;
    if selector.is_empty() {
        return Ok(true);
    }
    let mut versions = [object, request.old].into_iter().flatten();
    Ok(versions
        .any(|version| version.contains_key("metadata") && selector.matches(labels(Some(version)))))
}

async fn matches_namespace(
    hook: &Hook,
    request: &Attributes<'_>,
    object: Option<&JsonObject>,
) -> Result<bool, RequestError> {
    let is_namespaces = request.resource.names.plural == "namespaces";
    if request.namespace.is_empty() && !is_namespaces {
        return Ok(true);
    }
    let selector = hook.namespaces.as_ref().map_err(|error| internal(error))?;
    if selector.is_empty() {
        return Ok(true);
    }
    if is_namespaces
        && request.subresource.is_empty()
        && [Operation::Create, Operation::Update].contains(&request.operation)
    {
        return Ok(selector.matches(labels(object)));
    }
    let namespace = namespace(request).await?;
    Ok(selector.matches(labels(Some(&namespace))))
}

/// Returns the namespace of a request: from the cache, or from the store if it is not there yet.
async fn namespace(request: &Attributes<'_>) -> Result<JsonObject, RequestError> {
    let name = request.namespace;
    let missing = || Status::not_found(&ResourceName::new("", "namespaces"), name);
    let resource = request.front.catalog.find("", "v1", "namespaces");
    let resource = resource.map_err(|_| missing())?;
    let stored = resource.stored.as_ref().ok_or_else(missing)?;
    let reference = ObjectRef::cluster(name);
    let cached = GetOptions::default().resource_version("0");
    let mut found = stored.cache.get(&reference, &cached).await?;
    if found.is_none() {
        found = stored.cache.get(&reference, &GetOptions::default()).await?;
    }
    let found = found.ok_or_else(missing)?;
    Ok(serde_json::from_slice(found.value()).unwrap_or_default())
}
