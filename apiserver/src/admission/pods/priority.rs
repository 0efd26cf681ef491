//! The priority of pods, from classes.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;

/// The group and the resource of the classes.
const CLASSES: (&str, &str) = ("scheduling.k8s.io", "priorityclasses");

/// The plugin `Priority`.
#[derive(Debug)]
pub(crate) struct Priority;

impl Plugin for Priority {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        writes
            && match phase {
                Phase::Mutate => request.is_for("", "pods", ""),
                Phase::Validate => request.is_for(CLASSES.0, CLASSES.1, ""),
            }
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some(pod) = object else {
                return Ok(());
            };
            match request.old {
                Some(old) => {
                    inherit(pod, old);
                    Ok(())
                }
                None => prioritize(request, pod).await,
            }
        })
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some(class) = object.filter(|class| is_default(class)) else {
                return Ok(());
            };
            let Some(default) = default_class(request).await? else {
                return Ok(());
            };
            let name = edit::text_at(&default, &["metadata", "name"]);
            if request.operation == Operation::Update
                && name == edit::text_at(class, &["metadata", "name"])
            {
                return Ok(());
            }
            let detail = format!(
                "PriorityClass {name} is already marked as default. Only one default can exist"
            );
            Err(request.forbidden(object, &detail).into())
        })
    }
}

/// Keeps what an update leaves out.
fn inherit(pod: &mut JsonObject, old: &JsonObject) {
    let Some(spec) = edit::ensure(pod, "spec") else {
        return;
    };
    for name in ["priority", "preemptionPolicy"] {
        if let Some(value) = edit::at(old, &["spec", name]) {
            edit::set_unset(spec, name, value.clone());
        }
    }
}

async fn prioritize(request: &Attributes<'_>, pod: &mut JsonObject) -> Result<(), RequestError> {
    let name = edit::text_at(pod, &["spec", "priorityClassName"]).to_owned();
    let class = if name.is_empty() {
        default_class(request).await?
    } else {
        let found = objects::get(request.front, CLASSES, &name).await?;
        if found.is_none() {
            let detail = format!("no PriorityClass with name {name} was found");
            return Err(request.forbidden(Some(pod), &detail).into());
        }
        found
    };
    let none =
        json!({"metadata": {"name": ""}, "value": 0, "preemptionPolicy": "PreemptLowerPriority"});
    let class = class.map_or(none, Value::Object);
    let priority = class["value"].as_i64().unwrap_or_default();
    let found = edit::at(pod, &["spec", "priority"]).and_then(Value::as_i64);
    if let Some(found) = found.filter(|found| *found != priority) {
        let detail = format!(
            "the integer value of priority ({found}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        );
        return Err(request.forbidden(Some(pod), &detail).into());
    }
    let policy = class["preemptionPolicy"].as_str();
    let found = edit::text_at(pod, &["spec", "preemptionPolicy"]);
    if let Some(policy) = policy.filter(|policy| !found.is_empty() && found != *policy) {
        let detail = format!(
            "the string value of PreemptionPolicy ({found}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(request.forbidden(Some(pod), &detail).into());
    }
    if let Some(spec) = edit::ensure(pod, "spec") {
        let name = class["metadata"]["name"].as_str().unwrap_or_default();
        if !name.is_empty() {
            spec.insert("priorityClassName".to_owned(), name.into());
        }
        spec.insert("priority".to_owned(), priority.into());
        if let Some(policy) = policy {
            spec.insert("preemptionPolicy".to_owned(), policy.into());
        }
    }
    Ok(())
}

/// Returns the class of pods that name none: that with the lowest priority, if there are several.
async fn default_class(request: &Attributes<'_>) -> Result<Option<JsonObject>, RequestError> {
    let classes = objects::list(request.front, CLASSES, None).await?;
    let defaults = classes.into_iter().filter(is_default);
    Ok(defaults.min_by_key(|class| class.get("value").and_then(Value::as_i64)))
}

fn is_default(class: &JsonObject) -> bool {
    class.get("globalDefault") == Some(&Value::Bool(true))
}
