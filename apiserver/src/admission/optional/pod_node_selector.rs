//! Pods run only on the nodes that their namespace selects.

use std::collections::BTreeMap;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::names::{label_value_error, qualified_name_error};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{Status, quoted};

use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;
use crate::builtin::field::Field;

/// The annotation of namespaces with the labels of their nodes.
const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";

/// The plugin `PodNodeSelector`, without a configuration file.
#[derive(Debug)]
pub(crate) struct PodNodeSelector;

impl Plugin for PodNodeSelector {
    fn handles(&self, _: Phase, request: &Attributes<'_>) -> bool {
        request.operation == Operation::Create && request.is_for("", "pods", "")
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
            let labels = labels_of_namespace(request).await?;
            check(request, pod, &labels)?;
            if labels.is_empty() {
                return Ok(());
            }
            let spec = edit::ensure(pod, "spec");
            if let Some(selector) = spec.and_then(|spec| edit::ensure(spec, "nodeSelector")) {
                let labels = labels.into_iter();
                selector.extend(labels.map(|(label, value)| (label, value.into())));
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
            let Some(pod) = object else {
                return Ok(());
            };
            let labels = labels_of_namespace(request).await?;
            check(request, pod, &labels)
        })
    }
}

/// Checks that a pod selects no other value of a label than its namespace.
fn check(
    request: &Attributes<'_>,
    pod: &JsonObject,
    labels: &BTreeMap<String, String>,
) -> Result<(), RequestError> {
    let selector = Field::root(pod).at(&["spec", "nodeSelector"]);
    let differs = |(label, value): (&str, Field<'_>)| {
        let of_namespace = labels.get(label);
        of_namespace.is_some_and(|expected| expected != value.text())
    };
    if selector.entries().any(differs) {
        let resource = request.resource.names.resource_name();
        let name = edit::text_at(pod, &["metadata", "name"]);
        let detail = "pod node label selector conflicts with its namespace node label selector";
        return Err(Status::forbidden(&resource, name, detail).into());
    }
    Ok(())
}

/// Returns the labels of the nodes of the request's namespace.
async fn labels_of_namespace(
    request: &Attributes<'_>,
) -> Result<BTreeMap<String, String>, RequestError> {
    let name = request.namespace;
    let Some(namespace) = objects::get(request.front, ("", "namespaces"), name).await? else {
        let detail = format!("namespace {name} does not exist");
        return Err(Status::internal_error(detail).into());
    };
    let text = edit::text_at(&namespace, &["metadata", "annotations", ANNOTATION]);
    parse(text).map_err(|detail| Status::unclassified(detail).into())
}

/// Parses labels such as `a=b,c=d`. Corresponds to `labels.ConvertSelectorToLabelsMap`.
fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let parts = text.split(',').filter(|_| !text.is_empty());
    parts
        .map(|part| {
            let sides: Vec<&str> = part.split('=').collect();
            let [label, value] = sides[..] else {
                return Err(format!("invalid selector: [{}]", sides.join(" ")));
            };
            let (label, value) = (label.trim(), value.trim());
            let invalid = |text: &str, error: String| {
                Err(format!("<nil>: Invalid value: {}: {error}", quoted(text)))
            };
            if let Some(error) = qualified_name_error(label) {
                invalid(label, error)
            } else if let Some(error) = label_value_error(value) {
                invalid(value, error)
            } else {
                Ok((label.to_owned(), value.to_owned()))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn labels_are_parsed() {
        assert!(parse("").unwrap().is_empty());
        let labels = parse("a.b/c=d, e = ").unwrap();
        assert_eq!(labels["a.b/c"], "d");
        assert_eq!(labels["e"], "");
        assert_eq!(parse("a").unwrap_err(), "invalid selector: [a]");
        assert_eq!(parse("a=b=c").unwrap_err(), "invalid selector: [a b c]");
        assert!(parse("a=b,").is_err() && parse("-=b").is_err() && parse("a=-").is_err());
    }
}
