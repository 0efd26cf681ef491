//! Clients are warned of the objects of built-in kinds as by kube-apiserver 1.36: `data/warnings.json` has objects, and
//! what the strategies of its registry warned of: `scripts/generate-apiserver.sh`.

use std::sync::Arc;

use revstore_apiserver::builtin::{Rules, creation_warnings, status_warnings, warnings};
use revstore_watch_cache::registry::{JsonObject, Strategy};
use serde_json::Value;

const CASES: &str = include_str!("../data/warnings.json");

fn object(value: &Value) -> JsonObject {
    value.as_object().cloned().unwrap_or_default()
}

/// Returns the warnings of a request.
fn found(case: &Value) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let mut new = object(&case["body"]);
    let text = |name: &str| new[name].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let now = Arc::new(|| "2024-01-01T00:00:00Z".to_owned());
    let rules = Rules::new(group, version, &kind, now);
    if case["verb"] == "create" {
        let mut texts = creation_warnings(&new);
        rules.prepare_create(&mut new)?;
        texts.extend(warnings(&new, None));
        return Ok(texts);
    }
    let mut old = object(&case["old"]);
    rules.default(&mut old);
    if case["verb"] == "status" {
        let rules = rules.status().ok_or("no status")?;
        rules.prepare_update(&mut new, &old)?;
        return Ok(status_warnings(&new));
    }
    rules.prepare_update(&mut new, &old)?;
    Ok(warnings(&new, Some(&old)))
}

#[test]
fn objects_have_the_warnings_of_kube_apiserver() -> Result<(), Box<dyn std::error::Error>> {
    let cases: Vec<Value> = serde_json::from_str(CASES)?;
    assert!(cases.len() > 150);
    let mut failures = Vec::new();
    for case in &cases {
        let found = found(case)?;
        let expected: Vec<String> = serde_json::from_value(case["warnings"].clone())?;
        if found != expected {
            failures.push(format!(
                "{}:\n  found\n    {}\n  expected\n    {}",
                case["id"],
                found.join("\n    "),
                expected.join("\n    ")
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}
