//! Pods get the tolerations of their namespace, and have only those that it permits.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status};
use serde_json::{Value, json};

use crate::admission::builtin::objects;
use crate::admission::pods::tolerations;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::field::Field;
use crate::builtin::{edit, qos_class};

/// The annotations of namespaces with tolerations in JSON: those that pods get, and those that they may have.
const DEFAULT: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const PERMITTED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
/// The members of a toleration.
const TEXTS: [&str; 4] = ["key", "operator", "value", "effect"];
const SECONDS: &str = "tolerationSeconds";

/// The plugin `PodTolerationRestriction`, without a configuration file.
#[derive(Debug)]
pub(crate) struct PodTolerationRestriction;

impl Plugin for PodTolerationRestriction {
    fn handles(&self, _: Phase, request: &Attributes<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update)
            && request.is_for("", "pods", "")
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
            let mut further = Vec::new();
            if request.operation == Operation::Create {
                further = of_namespace(request, DEFAULT).await?;
            }
            if qos_class(&Field::root(pod).child("spec")) != "BestEffort" {
                further.push(json!({
                    "key": "node.kubernetes.io/memory-pressure",
                    "operator": "Exists",
                    "effect": "NoSchedule",
                }));
            }
            if let Some(spec) = edit::ensure(pod, "spec").filter(|_| !further.is_empty()) {
                let own = spec.get("tolerations").and_then(Value::as_array);
                let all = tolerations::merge(own.map_or(&[], Vec::as_slice), &further);
                spec.insert("tolerations".to_owned(), all.into());
            }
            check(request, pod).await
        })
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            match object {
                Some(pod) => check(request, pod).await,
                None => Ok(()),
            }
        })
    }
}

/// Checks that a pod has only tolerations that its namespace permits.
async fn check(request: &Attributes<'_>, pod: &JsonObject) -> Result<(), RequestError> {
    let own = edit::at(pod, &["spec", "tolerations"]).and_then(Value::as_array);
    let Some(own) = own.filter(|own| !own.is_empty()) else {
        return Ok(());
    };
    let permitted = of_namespace(request, PERMITTED).await?;
    if permitted.is_empty() || tolerations::includes_all(&permitted, own) {
        return Ok(());
    }
    let detail = "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace \
                  whitelist";
    Err(Status::unclassified(detail).into())
}

/// Returns the tolerations in an annotation of the request's namespace.
async fn of_namespace(
    request: &Attributes<'_>,
    annotation: &str,
) -> Result<Vec<Value>, RequestError> {
    const NAMESPACES: (&str, &str) = ("", "namespaces");
    let name = request.namespace;
    let Some(namespace) = objects::get(request.front, NAMESPACES, name).await? else {
        let resource = ResourceName::new(NAMESPACES.0, NAMESPACES.1);
        return Err(Status::not_found(&resource, name).into());
    };
    let text = edit::text_at(&namespace, &["metadata", "annotations", annotation]);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    parse(text).map_err(|detail| Status::unclassified(detail).into())
}

/// Parses a list of tolerations. Other members of them are ignored.
fn parse(text: &str) -> Result<Vec<Value>, String> {
    let list: Vec<JsonObject> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    list.iter().map(toleration).collect()
}

fn toleration(object: &JsonObject) -> Result<Value, String> {
    let members = object.iter().filter(|(name, value)| {
        !value.is_null() && (TEXTS.contains(&name.as_str()) || *name == SECONDS)
    });
    let mut found = JsonObject::new();
    for (name, value) in members {
        let fits = if name == SECONDS {
            value.is_i64()
        } else {
            value.is_string()
        };
        if !fits {
            return Err(format!("a toleration cannot have the {name} {value}"));
        }
        found.insert(name.clone(), value.clone());
    }
    Ok(Value::Object(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_in_annotations_have_their_members() {
        let text =
            r#"[{"key":"a","operator":"Exists","tolerationSeconds":5,"other":1,"value":null}]"#;
        let expected = json!({"key": "a", "operator": "Exists", "tolerationSeconds": 5});
        assert_eq!(parse(text).unwrap(), [expected]);
        for text in [
            "{}",
            "[1]",
            "x",
            r#"[{"key":1}]"#,
            r#"[{"tolerationSeconds":"5"}]"#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
