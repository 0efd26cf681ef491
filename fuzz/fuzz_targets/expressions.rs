//! Expressions in CEL: a text compiles or is refused, and an evaluation ends at the limit of its cost.

#![no_main]

use libfuzzer_sys::fuzz_target;
use revstore_cel::{Environment, Type, Value};
use serde_json::json;

/// The limit of the cost of an evaluation.
const COST_MAX: u64 = 10_000;

fuzz_target!(|source: &str| {
    let environment = Environment::new()
        .with_variable("self", Type::Dyn)
        .with_variable("list", Type::list(Type::String));
    let Ok(program) = environment.compile(source) else {
        return;
    };
    let estimate = program.estimate();
    assert!(estimate.min <= estimate.max);
    let object = Value::from_json(&json!({"a": [1, 2.5, null, true], "b": {"c": "text"}}));
    let list = Value::list(vec!["a".into(), "bc".into()]);
    let _ = program.evaluate(&[("self", object), ("list", list)], COST_MAX);
});
