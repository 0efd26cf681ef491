//! The validation of built-in kinds finds the causes that kube-apiserver 1.36 finds, in its order:
//! `data/validation.json` has objects, and the causes that the strategies of its registry returned for them.
//! Objects without causes are valid. `<any>` stands for a value in the form of an internal type.

use std::sync::Arc;

use revstore_apiserver::builtin::Rules;
use revstore_watch_cache::registry::{JsonObject, Strategy};
use revstore_watch_cache::status::StatusCause;
use serde_json::Value;

const CASES: &str = include_str!("../data/validation.json");
/// The causes about these fields are the store's, which checks the metadata of all kinds, unless a case expects some.
const OF_STORE: [&str; 3] = ["metadata.name", "metadata.labels", "metadata.annotations"];
const UID: &str = "00000000-0000-4000-8000-000000000001";

fn object(value: &Value) -> JsonObject {
    value.as_object().cloned().unwrap_or_default()
}

/// Returns the causes of a request.
fn causes(case: &Value) -> Result<Vec<StatusCause>, String> {
    let mut new = object(&case["body"]);
    let text = |name: &str| new[name].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let now = Arc::new(|| "2024-01-01T00:00:00Z".to_owned());
    let rules = Rules::new(group, version, &kind, now);
    new["metadata"]["uid"] = UID.into();
    if case["verb"] == "create" {
        let prepared = rules.prepare_create(&mut new);
        prepared.map_err(|error| error.to_string())?;
        return Ok(rules.validate_create(&new));
    }
    let mut old = object(&case["old"]);
    old["metadata"]["uid"] = UID.into();
    rules.default(&mut old);
    let rules = if case["verb"] == "status" {
        rules.status().ok_or("no status")?
    } else {
        rules
    };
    let prepared = rules.prepare_update(&mut new, &old);
    prepared.map_err(|error| error.to_string())?;
    Ok(rules.validate_update(&new, &old))
}

fn is_expected(found: &StatusCause, expected: &Value) -> bool {
    let text = |index: usize| expected[index].as_str().unwrap_or_default();
    let same_message = match text(2).split_once("<any>") {
        Some((start, end)) => found.message.starts_with(start) && found.message.ends_with(end),
        None => found.message == text(2),
    };
    found.reason.as_str() == text(0) && found.field == text(1) && same_message
}

fn check(case: &Value) -> Result<(), String> {
    let expected = case["causes"].as_array().ok_or("no causes")?;
    let is_of_store =
        |field: &str| OF_STORE.contains(&field) && expected.iter().all(|cause| cause[1] != field);
    let found: Vec<StatusCause> = causes(case)
        .map_err(|error| format!("{}: {error}", case["id"]))?
        .into_iter()
        .filter(|cause| !is_of_store(&cause.field))
        .collect();
    let same = found.len() == expected.len()
        && found
            .iter()
            .zip(expected)
            .all(|(found, expected)| is_expected(found, expected));
    if same {
        return Ok(());
    }
    let list = |causes: Vec<String>| causes.join("\n    ");
    let found = found
        .iter()
        .map(|cause| format!("{} {cause}", cause.reason.as_str()));
    let expected = expected.iter().map(ToString::to_string);
    Err(format!(
        "{}:\n  found\n    {}\n  expected\n    {}",
        case["id"],
        list(found.collect()),
        list(expected.collect())
    ))
}

#[test]
fn objects_have_the_causes_of_kube_apiserver() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    assert!(!cases.is_empty());
    let failures: Vec<String> = cases.iter().filter_map(|case| check(case).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
