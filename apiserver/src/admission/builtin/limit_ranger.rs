//! What limit ranges give to pods, and demand of pods and claims.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::admission::builtin::limits::{Resources, Rule};
use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;

/// The annotation that says what was given.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// The lists of containers in a pod, as they are named in the annotation.
const CONTAINERS: [(&str, &str); 2] = [
    ("containers", "container"),
    ("initContainers", "init container"),
];
/// The maximum number of errors of one answer. Further ones are left out.
const ERRORS_MAX: usize = 100;

/// The plugin `LimitRanger`.
#[derive(Debug)]
pub(crate) struct LimitRanger;

impl Plugin for LimitRanger {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        match request.operation {
            Operation::Create => {
                request.is_for("", "pods", "")
                    || phase == Phase::Validate && request.is_for("", "persistentvolumeclaims", "")
            }
            Operation::Update => {
                request.is_for("", "pods", "resize")
                    || phase == Phase::Validate && request.is_for("", "persistentvolumeclaims", "")
            }
            _ => false,
        }
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some(pod) = object.filter(|_| !is_deleted(request)) else {
                return Ok(());
            };
            for range in ranges(request).await? {
                give(&range, pod);
            }
            Ok(())
        })
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some(object) = object.filter(|_| !is_deleted(request)) else {
                return Ok(());
            };
            let check = match request.resource.names.plural.as_str() {
                "pods" => check_pod,
                _ => check_claim,
            };
            for range in ranges(request).await? {
                let mut errors: Vec<String> = Vec::new();
                for limit in limits(&range) {
                    check(limit, object, &mut errors);
                }
                errors.truncate(ERRORS_MAX);
                let detail = match errors.as_slice() {
                    [] => continue,
                    [one] => one.clone(),
                    all => format!("[{}]", all.join(", ")),
                };
                return Err(request.forbidden(Some(object), &detail).into());
            }
            Ok(())
        })
    }
}

/// Returns whether the deletion of the object has begun: its finalizers can be removed in any case.
fn is_deleted(request: &Attributes<'_>) -> bool {
    let path = ["metadata", "deletionTimestamp"];
    request
        .old
        .is_some_and(|old| edit::at(old, &path).is_some_and(|time| !time.is_null()))
}

async fn ranges(request: &Attributes<'_>) -> Result<Vec<JsonObject>, RequestError> {
    objects::list(request.front, ("", "limitranges"), Some(request.namespace)).await
}

fn limits(range: &JsonObject) -> impl Iterator<Item = &JsonObject> {
    let limits = edit::at(range, &["spec", "limits"]).and_then(Value::as_array);
    limits.into_iter().flatten().filter_map(Value::as_object)
}

/// Gives the containers of a pod what they do not say, and notes it.
fn give(range: &JsonObject, pod: &mut JsonObject) {
    let (mut requests, mut maxima) = (JsonObject::new(), JsonObject::new());
    for limit in limits(range).filter(|limit| edit::text(limit, "type") == "Container") {
        for (name, target) in [("defaultRequest", &mut requests), ("default", &mut maxima)] {
            let defaults = limit.get(name).and_then(Value::as_object);
            target.extend(defaults.cloned().into_iter().flatten());
        }
    }
    if requests.is_empty() && maxima.is_empty() {
        return;
    }
    let mut notes = Vec::new();
    let Some(spec) = edit::ensure(pod, "spec") else {
        return;
    };
    for (list, word) in CONTAINERS {
        for container in edit::items_mut(spec, list) {
            let name = edit::text(container, "name").to_owned();
            let Some(resources) = edit::ensure(container, "resources") else {
                continue;
            };
            for (member, defaults, what) in [
                ("requests", &requests, "request"),
                ("limits", &maxima, "limit"),
            ] {
                let set = complete(resources, member, defaults);
                if !set.is_empty() {
                    notes.push(format!("{} {what} for {word} {name}", set.join(", ")));
                }
            }
        }
    }
    if notes.is_empty() {
        return;
    }
    let metadata = edit::ensure(pod, "metadata");
    if let Some(annotations) = metadata.and_then(|it| edit::ensure(it, "annotations")) {
        let text = format!("LimitRanger plugin set: {}", notes.join("; "));
        annotations.insert(ANNOTATION.to_owned(), text.into());
    }
}

/// Sets quantities that a member does not have. Returns their names, sorted.
fn complete(resources: &mut JsonObject, member: &str, defaults: &JsonObject) -> Vec<String> {
    if defaults.is_empty() {
        return Vec::new();
    }
    let Some(quantities) = edit::ensure(resources, member) else {
        return Vec::new();
    };
    let mut set = Vec::new();
    for (name, value) in defaults {
        if !quantities.contains_key(name) {
            quantities.insert(name.clone(), value.clone());
            set.push(name.clone());
        }
    }
    set.sort();
    set
}

fn check_pod(limit: &JsonObject, pod: &JsonObject, errors: &mut Vec<String>) {
    let rules = [
        ("min", Rule::Min),
        ("max", Rule::Max),
        ("maxLimitRequestRatio", Rule::Ratio),
    ];
    let subjects: Vec<Resources> = match edit::text(limit, "type") {
        "Container" => {
            let lists = CONTAINERS.iter();
            let lists = lists.filter_map(|(list, _)| edit::at(pod, &["spec", list])?.as_array());
            lists.flatten().map(Resources::of_container).collect()
        }
        "Pod" => vec![Resources::of_pod(pod)],
        _ => return,
    };
    for resources in subjects {
        for (member, rule) in rules {
            check_member(limit, member, rule, &resources, errors);
        }
    }
}

fn check_claim(limit: &JsonObject, claim: &JsonObject, errors: &mut Vec<String>) {
    if edit::text(limit, "type") != "PersistentVolumeClaim" {
        return;
    }
    let spec = claim.get("spec").cloned().unwrap_or_default();
    let mut resources = Resources::of_container(&spec);
    resources.limits.clear();
    check_member(limit, "min", Rule::Min, &resources, errors);
    check_member(limit, "max", Rule::MaxRequest, &resources, errors);
}

fn check_member(
    limit: &JsonObject,
    member: &str,
    rule: Rule,
    resources: &Resources,
    errors: &mut Vec<String>,
) {
    let kind = edit::text(limit, "type");
    let enforced = limit.get(member).and_then(Value::as_object);
    for (name, value) in enforced.into_iter().flatten() {
        if errors.len() < ERRORS_MAX
            && let Some(error) = rule.error(kind, name, value, resources)
            && !errors.contains(&error)
        {
            errors.push(error);
        }
    }
}
