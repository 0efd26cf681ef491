//! Sequences of writes to one object, with their managers.

use revstore_structured_merge::{FieldSet, Write, apply, read_entries, set_entries, track_update};
use serde_json::{Map, Value, json};

use crate::fields::{Schema, object};
use crate::generate::Generator;

type Object = Map<String, Value>;

/// What a client leaves that applies without the server.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns a random sequence of writes.
pub(crate) fn sequence(random: &mut Generator) -> Vec<Value> {
    let count = 2 + random.below(8);
    let writes = (0..count).map(|_| {
        let verb = ["apply", "apply", "update", "patch"][random.below(4)];
        let manager = ["one", "two", "kubectl"][random.below(3)];
        let subresource = if random.chance(5) { "status" } else { "" };
        let version = if random.chance(6) { "v2" } else { "v1" };
        let api_version = format!("example.com/{version}");
        let mut sent = json!({
            "apiVersion": api_version, "kind": "Widget", "metadata": {"name": "w"},
            "spec": object(random, 2),
        });
        for field in ["labels", "annotations"] {
            if random.chance(3) {
                let mut texts = Map::new();
                texts.insert(
                    ["a", "b"][random.below(2)].to_owned(),
                    ["x", "y"][random.below(2)].into(),
                );
                sent["metadata"][field] = texts.into();
            }
        }
        if verb == "update" && random.chance(2) {
            let last = sent.to_string();
            sent["metadata"]["annotations"][LAST_APPLIED] = last.into();
        }
        if random.chance(3) {
            sent["status"] = object(random, 1);
        }
        json!({
            "Verb": verb, "Manager": manager, "Subresource": subresource, "Version": version,
            "Force": random.chance(3), "Object": sent,
        })
    });
    writes.collect()
}

/// Makes the writes, and returns the object or the error after each.
pub(crate) fn outcomes(writes: &[Value]) -> Vec<Value> {
    let mut live: Option<Object> = None;
    let outcomes = writes.iter().map(|step| match make(step, live.as_ref()) {
        Ok(mut object) => {
            let metadata = object.entry("metadata").or_insert_with(|| json!({}));
            metadata["uid"] = "u".into();
            live = Some(object.clone());
            json!({"object": object})
        }
        Err(error) => json!({"error": error}),
    });
    outcomes.collect()
}

fn make(step: &Value, live: Option<&Object>) -> Result<Object, String> {
    let text = |name: &str| step[name].as_str().unwrap_or_default();
    let api_version = format!("example.com/{}", text("Version"));
    let ignored = FieldSet::of_names(match text("Subresource") {
        "" => &["status"],
        _ => &["spec", "metadata.labels"],
    });
    let write = Write {
        manager: text("Manager"),
        api_version: &api_version,
        subresource: text("Subresource"),
        time: "2026-01-01T00:00:00Z",
        ignored: &ignored,
    };
    let empty: Object = json!({"apiVersion": api_version, "kind": "Widget"})
        .as_object()
        .cloned()
        .unwrap();
    let mut sent = step["Object"].as_object().cloned().unwrap();
    let converted = live.map(|live| {
        let mut live = live.clone();
        live.insert("apiVersion".to_owned(), api_version.as_str().into());
        live
    });
    if text("Verb") == "apply" {
        let live = converted.unwrap_or_default();
        let force = step["Force"] == true;
        return apply((&live, &empty), &sent, &Schema::Resource, &write, force)
            .map_err(|error| error.to_string());
    }
    let live = converted.unwrap_or_else(|| empty.clone());
    if text("Verb") == "patch" && live.contains_key("metadata") {
        let mut patched = live.clone();
        let mut spec = patched
            .get("spec")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        spec.extend(sent["spec"].as_object().cloned().unwrap_or_default());
        patched.insert("spec".to_owned(), spec.into());
        sent = patched;
    } else if live.contains_key("metadata") {
        sent["metadata"]["uid"] = "u".into();
    }
    // An object that cannot be compared has no entries.
    let _ = track_update(&live, &mut sent, &Schema::Resource, &write);
    Ok(sent)
}

/// Returns an outcome without times, with its entries in the order of their managers.
pub(crate) fn comparable(outcome: &Value) -> Value {
    let mut outcome = outcome.clone();
    if let Some(object) = outcome.get_mut("object").and_then(Value::as_object_mut) {
        let mut entries = read_entries(object).unwrap();
        for entry in &mut entries {
            entry.time = None;
        }
        set_entries(object, entries);
    }
    // A text of JSON, in which floats can have two forms.
    let annotations = outcome.pointer_mut("/object/metadata/annotations");
    let last = annotations.and_then(|annotations| annotations.get_mut(LAST_APPLIED));
    if let Some(last) = last {
        *last = serde_json::from_str(last.as_str().unwrap()).unwrap();
    }
    outcome
}
