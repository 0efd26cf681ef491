//! Profiles of `AppArmor` in annotations, from before there were fields for them.

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;

use super::spec::{CONTAINER_LISTS, PROFILE_BYTES_MAX};
use crate::builtin::edit;
use crate::builtin::field::Field;

/// The annotation of a container, without its name at the end.
pub(super) const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The annotation with the profile of a container that has no field for it.
#[derive(Clone, Copy, Debug)]
pub(in crate::builtin) struct OldProfile<'a> {
    pub(in crate::builtin) annotation: Field<'a>,
    of_pod: Field<'a>,
}

impl OldProfile<'_> {
    /// Returns whether the pod has the same profile for all its containers.
    pub(in crate::builtin) fn is_that_of_pod(&self) -> bool {
        let own = field_of(self.annotation.text());
        own.is_some_and(|own| own == self.of_pod.value())
    }
}

/// Returns the annotation of a pod, or a template, with the profile of one of its containers, unless the container has a
/// field for it.
pub(in crate::builtin) fn old_profile<'a>(
    object: &Field<'a>,
    container: &Field<'a>,
) -> Option<OldProfile<'a>> {
    let context = container.child("securityContext");
    if context.child("appArmorProfile").is_set() {
        return None;
    }
    let annotations = object.at(&["metadata", "annotations"]);
    let key = format!("{ANNOTATION}{}", container.child("name").text());
    Some(OldProfile {
        annotation: annotations.entry(&key)?,
        of_pod: object.at(&["spec", "securityContext", "appArmorProfile"]),
    })
}

/// Sets the fields of the containers of a new pod whose annotations have other profiles than the pod.
pub(super) fn copy_to_fields(pod: &mut JsonObject) {
    let root = Field::root(pod);
    let has_annotation = root.at(&["metadata", "annotations"]).len() > 0;
    if !has_annotation || root.at(&["spec", "os", "name"]).text() == "windows" {
        return;
    }
    let mut fields: Vec<(&str, usize, Value)> = Vec::new();
    for list in CONTAINER_LISTS {
        for (index, container) in root.at(&["spec", list]).items().enumerate() {
            let old = old_profile(&root, &container).filter(|old| !old.is_that_of_pod());
            let field = old.and_then(|old| field_of(old.annotation.text()).filter(is_valid));
            fields.extend(field.map(|field| (list, index, field)));
        }
    }
    for (list, index, field) in fields {
        let spec = edit::ensure(pod, "spec");
        let containers = spec.and_then(|spec| spec.get_mut(list)?.as_array_mut());
        let container = containers.and_then(|list| list.get_mut(index)?.as_object_mut());
        if let Some(context) = container.and_then(|it| edit::ensure(it, "securityContext")) {
            context.insert("appArmorProfile".to_owned(), field);
        }
    }
}

/// Returns the field that stands for the text of an annotation, or `None` for other texts.
fn field_of(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let profile = annotation.strip_prefix("localhost/");
            let profile = profile.filter(|profile| !profile.is_empty())?;
            Some(json!({"type": "Localhost", "localhostProfile": profile}))
        }
    }
}

fn is_valid(field: &Value) -> bool {
    field["localhostProfile"]
        .as_str()
        .is_none_or(|profile| profile.trim() == profile && profile.len() <= PROFILE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects, and what the strategies of kube-apiserver made of them: `scripts/generate-apiserver.sh`.
    const CASES: &str = include_str!("../../../../tests/data/prepared.json");

    #[test]
    fn annotations_become_fields_as_by_kube_apiserver() {
        let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
        let id = |case: &&Value| case["id"].as_str().unwrap().starts_with("pod-app-armor");
        let mut checked = 0;
        for case in cases.iter().filter(id) {
            let mut pod = case["body"].as_object().unwrap().clone();
            if case["verb"] == "create" {
                copy_to_fields(&mut pod);
            }
            let expected = case["expect"].as_object().unwrap();
            for list in CONTAINER_LISTS {
                let contexts = |pod: &JsonObject| -> Vec<Value> {
                    let spec = Field::root(pod).child("spec");
                    let containers = spec.child(list).items();
                    containers
                        .map(|container| container.child("securityContext").value())
                        .collect()
                };
                assert_eq!(contexts(&pod), contexts(expected), "{} {list}", case["id"]);
                checked += contexts(expected).len();
            }
        }
        assert!(checked > 30);
    }
}
