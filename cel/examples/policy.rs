//! Checks objects by rules. Run it with `cargo run -p revstore-cel --example policy`.

use std::io::{self, Write};

use revstore_cel::{CALL_COST_MAX, Environment, Type, Value};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let environment = Environment::new().with_variable("object", Type::Dyn);
    let rules = [
        "object.spec.replicas <= 5",
        "object.metadata.name.matches('^[a-z]+$')",
        "object.spec.?paused.orValue(false) == false",
        "object.spec.missing == 1",
    ];
    let object = Value::from_json(&json!({"metadata": {"name": "web"}, "spec": {"replicas": 7}}));
    let mut out = io::stdout().lock();
    for rule in rules {
        let program = environment.compile(rule)?;
        let evaluation = program.evaluate(&[("object", object.clone())], CALL_COST_MAX);
        match evaluation.result {
            Ok(value) => writeln!(out, "{rule}: {value}, cost {}", evaluation.cost)?,
            Err(error) => writeln!(out, "{rule}: {error}")?,
        }
    }
    Ok(())
}
