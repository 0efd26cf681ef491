//! Volumes and claims stay while something uses them.

use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;

/// The resources with their finalizers, which controllers remove.
const FINALIZERS: [(&str, &str, &str); 3] = [
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    (
        "storage.k8s.io",
        "volumeattributesclasses",
        "kubernetes.io/vac-protection",
    ),
];

/// The plugin `StorageObjectInUseProtection`.
#[derive(Debug)]
pub(crate) struct StorageObjectInUseProtection;

fn finalizer(request: &Attributes<'_>) -> Option<&'static str> {
    let mut known = FINALIZERS.iter();
    let (.., finalizer) = known.find(|(group, plural, _)| request.is_for(group, plural, ""))?;
    Some(finalizer)
}

impl Plugin for StorageObjectInUseProtection {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Mutate
            && request.operation == Operation::Create
            && finalizer(request).is_some()
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        let metadata = object.and_then(|object| edit::ensure(object, "metadata"));
        if let (Some(metadata), Some(finalizer)) = (metadata, finalizer(request)) {
            edit::set_unset(metadata, "finalizers", json!([]));
            let finalizers = metadata.get_mut("finalizers").and_then(Value::as_array_mut);
            if let Some(finalizers) = finalizers.filter(|all| !all.contains(&finalizer.into())) {
                finalizers.push(finalizer.into());
            }
        }
        Box::pin(async { Ok(()) })
    }
}
