//! The generations of pods that their status is about.

use revstore_watch_cache::registry::JsonObject;

use crate::builtin::edit;
use crate::builtin::field::Field;

const GENERATION: &str = "observedGeneration";

/// Keeps the observed generations of a status and of its conditions that a new status does not have.
pub(super) fn keep_generations(status: &mut JsonObject, old: &JsonObject) {
    let keep = |new: &mut JsonObject, old: &Field<'_>| {
        let generation = old.child(GENERATION).int();
        if let Some(generation) = generation.filter(|number| *number != 0) {
            edit::set_zero(new, GENERATION, generation);
        }
    };
    let old = Field::root(old).child("status");
    keep(status, &old);
    // A type may have several conditions.
    let mut left: Vec<_> = old.child("conditions").items().collect();
    for condition in edit::items_mut(status, "conditions") {
        let kind = edit::text(condition, "type");
        let found = left.iter().position(|old| old.child("type").text() == kind);
        if let Some(found) = found {
            keep(condition, &left.remove(found));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::keep_generations;

    #[test]
    fn generations_that_are_absent_are_kept() {
        let old = json!({"status": {"observedGeneration": 4, "conditions": [
            {"type": "Ready", "observedGeneration": 4},
            {"type": "Ready", "observedGeneration": 3},
            {"type": "Other", "observedGeneration": 2},
        ]}});
        let mut status = json!({"conditions": [
            {"type": "Ready"},
            {"type": "New"},
            {"type": "Other", "observedGeneration": 5},
            {"type": "Ready"},
            {"type": "Ready"},
        ]});
        keep_generations(status.as_object_mut().unwrap(), old.as_object().unwrap());
        let expected = json!({"observedGeneration": 4, "conditions": [
            {"type": "Ready", "observedGeneration": 4},
            {"type": "New"},
            {"type": "Other", "observedGeneration": 5},
            {"type": "Ready", "observedGeneration": 3},
            {"type": "Ready"},
        ]});
        assert_eq!(status, expected);
    }
}
