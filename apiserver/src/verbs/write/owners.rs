//! The owner references of objects that are written.

use std::collections::HashSet;

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::builtin::field::without_empty;
use crate::http::Exchange;

/// When owner references are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In what a client has sent.
    Sent,
    /// After the plugins that change objects.
    Mutated,
}

/// Removes owner references that an object has twice, with a warning.
pub(crate) fn remove_duplicates(exchange: &Exchange, stage: Stage, object: &mut JsonObject) {
    let metadata = object.get_mut("metadata");
    let owners = metadata.and_then(|metadata| metadata.get_mut("ownerReferences"));
    let Some(owners) = owners.and_then(Value::as_array_mut) else {
        return;
    };
    if owners.len() < 2 {
        return;
    }
    let duplicates = duplicates(owners);
    if duplicates.is_empty() {
        return;
    }
    let after = match stage {
        Stage::Sent => "",
        Stage::Mutated => " after mutating admission happens",
    };
    exchange.warn(format!(
        ".metadata.ownerReferences contains duplicate entries{after}; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        duplicates.join(", ")
    ));
}

/// Removes what is in a list twice, and returns the uids of what is removed.
fn duplicates(owners: &mut Vec<Value>) -> Vec<String> {
    let mut known = HashSet::new();
    let mut removed = Vec::new();
    owners.retain(|owner| {
        let is_new = known.insert(without_empty(owner));
        if !is_new {
            removed.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        is_new
    });
    removed
}
