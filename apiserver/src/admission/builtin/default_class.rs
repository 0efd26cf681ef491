//! The class of claims and ingresses that name none.

use std::cmp::Reverse;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;

use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;

/// The plugin `DefaultStorageClass`.
#[derive(Debug)]
pub(crate) struct DefaultStorageClass;

/// The plugin `DefaultIngressClass`.
#[derive(Debug)]
pub(crate) struct DefaultIngressClass;

/// The annotations by which a storage class is the default one.
const STORAGE_ANNOTATIONS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

impl Plugin for DefaultStorageClass {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Mutate
            && request.operation == Operation::Create
            && request.is_for("", "persistentvolumeclaims", "")
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        let classes = ("storage.k8s.io", "storageclasses");
        let named = "volume.beta.kubernetes.io/storage-class";
        let field = "storageClassName";
        Box::pin(set(
            request,
            object,
            classes,
            &STORAGE_ANNOTATIONS,
            (named, field),
        ))
    }
}

impl Plugin for DefaultIngressClass {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Mutate
            && request.operation == Operation::Create
            && request.is_for("networking.k8s.io", "ingresses", "")
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        let classes = ("networking.k8s.io", "ingressclasses");
        let annotations = &["ingressclass.kubernetes.io/is-default-class"];
        let named = "kubernetes.io/ingress.class";
        Box::pin(set(
            request,
            object,
            classes,
            annotations,
            (named, "ingressClassName"),
        ))
    }
}

/// Gives an object the newest default class. `annotation` and `field` are those by which an object names one.
async fn set(
    request: &Attributes<'_>,
    object: Option<&mut JsonObject>,
    classes: (&str, &str),
    defaults: &[&str],
    (annotation, field): (&str, &str),
) -> Result<(), RequestError> {
    let Some(object) = object else {
        return Ok(());
    };
    let is_set = |path: &[&str]| edit::at(object, path).is_some_and(|value| !value.is_null());
    if is_set(&["metadata", "annotations", annotation]) || is_set(&["spec", field]) {
        return Ok(());
    }
    let mut found = objects::list(request.front, classes, None).await?;
    found.retain(|class| {
        let mut annotations = defaults.iter();
        annotations.any(|name| edit::text_at(class, &["metadata", "annotations", name]) == "true")
    });
    let text = |class: &JsonObject, name| edit::text_at(class, &["metadata", name]).to_owned();
    let class = found.iter().min_by_key(|class| {
        (
            Reverse(text(class, "creationTimestamp")),
            text(class, "name"),
        )
    });
    if let (Some(class), Some(spec)) = (class, edit::ensure(object, "spec")) {
        spec.insert(field.to_owned(), text(class, "name").into());
    }
    Ok(())
}
