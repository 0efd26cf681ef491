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
    /// The name of the container.
    pub(in crate::builtin) container: &'a str,
    pub(in crate::builtin) annotation: Field<'a>,
    list: &'static str,
    index: usize,
    of_pod: Field<'a>,
}

impl OldProfile<'_> {
    /// Returns whether the pod has the same profile for all its containers.
    pub(in crate::builtin) fn is_that_of_pod(&self) -> bool {
        let own = field_of(self.annotation.text());
        own.is_some_and(|own| own == self.of_pod.value())
    }
}

/// Returns the annotations with profiles of a pod, or a template, whose containers have no fields for them.
pub(in crate::builtin) fn old_profiles<'a>(
    object: &Field<'a>,
) -> impl Iterator<Item = OldProfile<'a>> + use<'a> {
    let annotations = object.at(&["metadata", "annotations"]);
    let spec = object.child("spec");
    let of_pod = spec.at(&["securityContext", "appArmorProfile"]);
    let of = move |list, index, container: Field<'a>| {
        let name = container.child("name").text();
        let own = container.at(&["securityContext", "appArmorProfile"]);
        let mut annotations = annotations.entries();
        let found = annotations.find(|(key, _)| key.strip_prefix(ANNOTATION) == Some(name));
        found
            .filter(|_| !own.is_set())
            .map(|(_, annotation)| OldProfile {
                container: name,
                annotation,
                list,
                index,
                of_pod,
            })
    };
    CONTAINER_LISTS.into_iter().flat_map(move |list| {
        let containers = spec.child(list).items().enumerate();
        containers.filter_map(move |(index, container)| of(list, index, container))
    })
}

/// Sets the fields of the containers of a new pod whose annotations have other profiles than the pod.
pub(super) fn copy_to_fields(pod: &mut JsonObject) {
    let root = Field::root(pod);
    if root.at(&["spec", "os", "name"]).text() == "windows" {
        return;
    }
    let fields: Vec<(&str, usize, Value)> = old_profiles(&root)
        .filter(|old| !old.is_that_of_pod())
        .filter_map(|old| {
            let field = field_of(old.annotation.text()).filter(is_valid)?;
            Some((old.list, old.index, field))
        })
        .collect();
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
