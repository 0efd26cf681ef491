//! Images are pulled at each start of a container, so that a pod needs the rights to those that are on its node already.

use std::collections::HashSet;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{FieldPath, StatusCause};
use serde_json::Value;

use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;

const ALWAYS: &str = "Always";
/// The lists of containers of a pod, in the order in which they are visited.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The plugin `AlwaysPullImages`.
#[derive(Debug)]
pub(crate) struct AlwaysPullImages;

impl Plugin for AlwaysPullImages {
    fn handles(&self, _: Phase, request: &Attributes<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update)
            && request.is_for("", "pods", "")
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        if let Some(pod) = object
            && !has_only_known_images(request, pod)
            && let Some(spec) = edit::child_mut(pod, "spec")
        {
            for list in LISTS {
                for container in edit::items_mut(spec, list) {
                    container.insert("imagePullPolicy".to_owned(), ALWAYS.into());
                }
            }
            for volume in edit::items_mut(spec, "volumes") {
                if let Some(image) = edit::child_mut(volume, "image") {
                    image.insert("pullPolicy".to_owned(), ALWAYS.into());
                }
            }
        }
        Box::pin(async { Ok(()) })
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        let cause = object
            .filter(|pod| !has_only_known_images(request, pod))
            .and_then(other_policy);
        Box::pin(async move {
            match cause {
                Some(cause) => Err(request.forbidden(object, &cause.to_string()).into()),
                None => Ok(()),
            }
        })
    }
}

fn items<'a>(pod: &'a JsonObject, list: &str) -> impl Iterator<Item = &'a Value> {
    let items = edit::at(pod, &["spec", list]).and_then(Value::as_array);
    items.into_iter().flatten()
}

fn images(pod: &JsonObject) -> HashSet<&str> {
    let containers = LISTS.iter().flat_map(|list| items(pod, list));
    containers
        .map(|container| container["image"].as_str().unwrap_or_default())
        .collect()
}

/// Returns whether an update has no image that the pod did not have.
fn has_only_known_images(request: &Attributes<'_>, pod: &JsonObject) -> bool {
    let old = request
        .old
        .filter(|_| request.operation == Operation::Update);
    old.is_some_and(|old| images(pod).is_subset(&images(old)))
}

/// Returns the first policy that is another one.
fn other_policy(pod: &JsonObject) -> Option<StatusCause> {
    let spec = || FieldPath::new("spec");
    let unsupported = |path: FieldPath, found: &Value| {
        let found = found.as_str().unwrap_or_default();
        (found != ALWAYS).then(|| StatusCause::not_supported(path, found, &[ALWAYS]))
    };
    let containers = LISTS.iter().flat_map(|list| {
        items(pod, list).enumerate().filter_map(move |(index, it)| {
            let path = spec().child(list).index(index).child("imagePullPolicy");
            unsupported(path, &it["imagePullPolicy"])
        })
    });
    let volumes = items(pod, "volumes").enumerate().filter_map(|(index, it)| {
        let path = spec().child("volumes").index(index).child("image");
        let image = it.get("image").filter(|image| image.is_object())?;
        unsupported(path.child("pullPolicy"), &image["pullPolicy"])
    });
    containers.chain(volumes).next()
}
