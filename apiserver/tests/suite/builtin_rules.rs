//! The rules of built-in kinds give what kube-apiserver 1.36 gave: `data/builtin-rules.json` has objects that
//! clients sent, with its responses. Values in angle brackets stand for any value.

use std::sync::Arc;

use revstore_apiserver::builtin::Rules;
use revstore_watch_cache::registry::{JsonObject, Strategy};
use revstore_watch_cache::status::StatusCause;
use serde_json::{Value, json};

const CASES: &str = include_str!("../data/builtin-rules.json");
/// The causes about these fields are the store's, which checks the metadata of all kinds.
const OF_STORE: [&str; 2] = ["metadata.name", "metadata.labels"];

fn object(value: &Value) -> JsonObject {
    value.as_object().cloned().unwrap_or_default()
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_zero),
        Value::Bool(true) => false,
    }
}

/// Returns where two values differ. Zero values equal absent ones.
fn difference(path: &str, found: &Value, expected: &Value) -> Option<String> {
    let any = expected
        .as_str()
        .is_some_and(|text| text.starts_with('<') && !text.starts_with("<uid"));
    if any || found == expected || is_zero(found) && is_zero(expected) {
        return None;
    }
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            let mut names = found.keys().chain(expected.keys());
            names.find_map(|name| {
                let of = |map: &JsonObject| map.get(name).cloned().unwrap_or_default();
                difference(&format!("{path}.{name}"), &of(found), &of(expected))
            })
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            let mut items = found.iter().zip(expected).enumerate();
            items.find_map(|(index, (found, expected))| {
                difference(&format!("{path}[{index}]"), found, expected)
            })
        }
        _ => Some(format!("{path}: {found} and not {expected}")),
    }
}

/// Removes what the rules do not decide, or what is ignored.
fn comparable(value: &Value, ignored: &[&str]) -> Value {
    let mut value = value.clone();
    for name in ["apiVersion", "kind"] {
        value.as_object_mut().map(|map| map.remove(name));
    }
    let metadata = object(&value["metadata"]);
    value["metadata"] = ["labels", "annotations", "finalizers", "generation"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), metadata.get(*name)?.clone())))
        .collect::<JsonObject>()
        .into();
    for path in ignored {
        let mut at = &mut value;
        let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
        for parent in parents.split('.').filter(|parent| !parent.is_empty()) {
            at = &mut at[parent];
        }
        at.as_object_mut().map(|map| map.remove(last));
    }
    // What the store allocates to services.
    if let Some(spec) = value["spec"].as_object_mut() {
        let is_allocated = |spec: &JsonObject| spec.get("clusterIP") != Some(&json!("None"));
        if spec.contains_key("sessionAffinity") && is_allocated(spec) {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        spec.remove("healthCheckNodePort");
        for port in spec
            .get_mut("ports")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
    value
}

fn check_causes(found: &[StatusCause], expected: &Value) -> Result<(), String> {
    let key = |field: &str, message: Option<&str>| (field.to_owned(), message.map(str::to_owned));
    let expected: Vec<_> = expected
        .as_array()
        .into_iter()
        .flatten()
        .map(|cause| {
            let field = cause["field"].as_str().unwrap_or_default();
            let reason = cause["reason"].as_str().unwrap_or_default();
            (reason, key(field, cause["message"].as_str()))
        })
        .filter(|(_, (field, _))| !OF_STORE.contains(&field.as_str()))
        .collect();
    let mut left: Vec<&StatusCause> = found.iter().collect();
    for (reason, (field, message)) in &expected {
        let matches = |cause: &&StatusCause| {
            let text = message.as_deref().map(|message| {
                let (start, end) = message.split_once("<any>").unwrap_or((message, ""));
                cause.message.starts_with(start) && cause.message.ends_with(end)
            });
            cause.reason.as_str() == *reason && cause.field == *field && text != Some(false)
        };
        match left.iter().position(matches) {
            Some(index) => drop(left.remove(index)),
            None => return Err(format!("no {reason} for {field}: {message:?} in {found:?}")),
        }
    }
    if left.is_empty() {
        Ok(())
    } else {
        Err(format!("unexpected: {left:?}"))
    }
}

/// Gives an object what admission has given to the recorded one before it was prepared.
fn admit(new: &mut JsonObject, case: &Value) {
    let fields: &[(&str, &str)] = match case["kind"].as_str() {
        Some("Pod") => &[
            ("spec", "tolerations"),
            ("spec", "priority"),
            ("spec", "preemptionPolicy"),
        ],
        Some("Node") => &[("spec", "taints")],
        Some("PersistentVolume" | "PersistentVolumeClaim") => &[("metadata", "finalizers")],
        _ => &[],
    };
    for (parent, name) in fields {
        let versions = [&case["expect"], &case["body"], &case["old"]];
        let mut values = versions.iter().map(|version| &version[parent][name]);
        if let Some(value) = values.find(|value| !value.is_null()) {
            let parent = new.entry(*parent).or_insert_with(|| json!({}));
            parent[name] = value.clone();
        }
    }
}

fn check(case: &Value) -> Result<(), String> {
    let text = |name: &str| case[name].as_str().unwrap_or_default();
    let now = Arc::new(|| "2024-01-01T00:00:00Z".to_owned());
    let mut rules = Rules::new(text("group"), text("version"), text("kind"), now);
    let mut new = object(&case["body"]);
    new["metadata"]["namespace"] = text("namespace").into();
    admit(&mut new, case);
    let causes = if text("verb") == "create" {
        let uid = &case["expect"]["metadata"]["uid"];
        if !uid.is_null() {
            new["metadata"]["uid"] = uid.clone();
        }
        if rules.has_generation() {
            new["metadata"]["generation"] = 1.into();
        }
        rules
            .prepare_create(&mut new)
            .map_err(|error| error.to_string())?;
        rules.validate_create(&new)
    } else {
        if text("verb") == "status" {
            rules = rules.status().ok_or("no status")?;
        }
        let old = object(&case["old"]);
        rules
            .prepare_update(&mut new, &old)
            .map_err(|error| error.to_string())?;
        let generation = case["expect"]["metadata"]["generation"].clone();
        if !generation.is_null() {
            // The store counts.
            new["metadata"]["generation"] = generation;
        }
        rules.validate_update(&new, &old)
    };
    let name = case["body"]["metadata"]["name"]
        .as_str()
        .unwrap_or_default();
    let expected = case["causes"].as_array().into_iter().flatten();
    let mut expected = expected.filter(|cause| cause["field"] == "metadata.name");
    let wrong_name = expected.find_map(|cause| cause["message"].as_str());
    match (wrong_name, rules.name_error(name)) {
        (Some(wrong), Some(error)) if wrong.ends_with(&error) => {}
        (None, None) => {}
        (wrong, found) => return Err(format!("name {name}: {found:?} and not {wrong:?}")),
    }
    check_causes(&causes, &case["causes"])?;
    if case["expect"].is_null() {
        return Ok(());
    }
    let ignored: Vec<&str> = case["ignore"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let found = comparable(&Value::Object(new), &ignored);
    let expected = comparable(&case["expect"], &ignored);
    difference("", &found, &expected).map_or(Ok(()), Err)
}

#[test]
fn objects_get_what_kube_apiserver_gives_them() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    assert!(!cases.is_empty());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let error = check(case).err()?;
            Some(format!(
                "{} {} {}: {error}",
                case["id"], case["verb"], case["kind"]
            ))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
