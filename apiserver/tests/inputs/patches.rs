//! What must hold for any object and any patch: the result is not nested more deeply than a body may be, and a patch of a
//! result does what it must.

use revstore_apiserver::decode::{FieldValidation, MAX_DEPTH, from_json};
use revstore_apiserver::patch::{Patch, PatchType};
use serde_json::Value;

/// Applies a patch in each format to an object, and to its result.
pub(crate) fn check(object: &Value, patch: &[u8]) -> Vec<Value> {
    let types = [PatchType::Json, PatchType::Merge, PatchType::Strategic];
    let results = types.iter().filter_map(|patch_type| {
        let patched = apply(*patch_type, object, patch)?;
        assert!(depth(&patched) <= MAX_DEPTH, "{patched}");
        match patch_type {
            PatchType::Json => check_parts(object, patch, &patched),
            PatchType::Merge => {
                // It has no effect on its own result, but for lists of objects with `null`.
                let again = apply(PatchType::Merge, &patched, patch);
                let again = again.expect("the result is an object");
                assert_eq!(depth(&again), depth(&patched), "{object}");
            }
            _ => {
                // Unknown fields can be added, but not merged. Directives in new items of lists are left in them, until
                // they are merged: nothing changes after that.
                let again = apply(PatchType::Strategic, &patched, patch);
                let again =
                    again.and_then(|it| Some((apply(PatchType::Strategic, &it, patch)?, it)));
                if let Some((third, second)) = again {
                    assert_eq!(third, second, "{object}");
                }
            }
        }
        Some(patched)
    });
    results.collect()
}

/// Checks that a JSON patch in two parts, of which the second one is applied to the result of the first one, has the
/// result of the whole.
fn check_parts(object: &Value, patch: &[u8], whole: &Value) {
    let Ok(Value::Array(operations)) = from_json(patch).map(|decoded| decoded.value) else {
        return;
    };
    let middle = operations.len() / 2;
    for at in [1, middle, operations.len().saturating_sub(1)] {
        let Some((first, second)) = operations.split_at_checked(at) else {
            continue;
        };
        let [first, second] = [first, second].map(|part| Value::Array(part.into()).to_string());
        let first = apply(PatchType::Json, object, first.as_bytes());
        let first = first.expect("a part of the patch can be applied");
        let second = apply(PatchType::Json, &first, second.as_bytes());
        assert_eq!(second.as_ref(), Some(whole), "{object}");
    }
}

fn apply(patch_type: PatchType, object: &Value, patch: &[u8]) -> Option<Value> {
    let schema = revstore_kinds::kind("", "v1", "Pod").expect("pods are a built-in kind");
    let (patch, _) = Patch::from_body(patch_type, patch, FieldValidation::Warn).ok()?;
    patch.apply(object, schema).ok()
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(object) => 1 + object.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}
