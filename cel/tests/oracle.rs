//! Expressions and their types, errors, values and costs, as kube-apiserver finds them.
//!
//! `tests/oracle` is a Go program with the evaluator of kube-apiserver 1.36. Its answers to `tests/data/expressions.txt`
//! are recorded in `tests/data/answers.jsonl`; `REVSTORE_RECORD=1 cargo test -p revstore-cel --test oracle` records
//! them anew; `tests/data/different.txt` lists the known differences. Where Go is installed, random expressions are compared, too.

#![expect(clippy::unwrap_used, reason = "a test, also outside of its functions")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, thread};

use revstore_cel::{CALL_COST_MAX, CompileError, Declared, Environment, to_value};
use serde_json::{Value as Json, json};

#[path = "oracle/random.rs"]
mod random;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn read_json(name: &str) -> Json {
    serde_json::from_str(&fs::read_to_string(data(name)).unwrap()).unwrap()
}

/// What our evaluator answers, in the form of the Go program.
fn answer(expr: &str, schema: &Json, object: &Json) -> Json {
    let declared = Declared::from_schema(schema, "selfType", false).unwrap();
    let environment = Environment::new().with_declared("self", &declared);
    let program = match environment.compile(expr) {
        Ok(program) => program,
        Err(CompileError::Invalid(issues)) => return json!({"check": issues.to_string()}),
        Err(other) => return json!({"plan": other.to_string()}),
    };
    let estimate = program.estimate();
    let evaluation = program.evaluate(&[("self", to_value(object, schema, false))], CALL_COST_MAX);
    let mut found = json!({
        "type": program.result_type().to_string(), "min": estimate.min, "max": estimate.max, "cost": evaluation.cost,
    });
    match evaluation.result {
        Ok(value) => found["value"] = value.to_string().into(),
        Err(error) => found["error"] = error.to_string().into(),
    }
    found
}

/// Returns why two answers differ.
fn difference(expr: &str, theirs: &Json, ours: &Json) -> Option<String> {
    let has = |answer: &Json, key: &str| answer.get(key).is_some();
    let text = |answer: &Json, key: &str| {
        answer
            .get(key)
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    // A panic there, such as in the cost of `sort` on a list that is an error.
    if text(theirs, "error").starts_with("internal error") {
        return None;
    }
    let mut parts = Vec::new();
    let is_syntax = text(theirs, "check").contains("Syntax error");
    for key in [
        "check", "plan", "type", "min", "max", "value", "error", "cost",
    ] {
        if has(theirs, "plan") && key != "plan" {
            continue;
        }
        // Errors of syntax and of constants have texts of their own.
        let is_free = key == "plan" || key == "check" && is_syntax || key == "error";
        let is_same = if is_free {
            has(theirs, key) == has(ours, key)
        } else if has(theirs, "check") {
            text(theirs, key) == text(ours, key)
        } else {
            theirs.get(key) == ours.get(key)
        };
        if !is_same {
            let of = |answer: &Json| {
                answer
                    .get(key)
                    .map_or_else(|| "-".to_owned(), Json::to_string)
            };
            parts.push(format!("{key}: {} but {}", of(theirs), of(ours)));
        }
    }
    (!parts.is_empty()).then(|| format!("{expr}\n    {}", parts.join("\n    ")))
}

/// Asks the Go program, if it can be built.
fn ask(expressions: &[String], schema: &Json, object: &Json) -> Option<Vec<Json>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle");
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cel-oracle-{}", std::process::id()));
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(sources)
        .env("GOTOOLCHAIN", "local")
        .output();
    let reason = match built {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(format!("go: {error}")),
    };
    if let Some(reason) = reason {
        let is_required = env::var("REVSTORE_REQUIRE_CLIENTS").is_ok_and(|value| value == "1");
        assert!(!is_required, "the program cannot be built: {reason}");
        // Tests capture what `eprintln!` prints.
        let _ = writeln!(std::io::stderr(), "NOT RUN: {}", reason.trim());
        return None;
    }
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: Vec<_> = expressions
        .iter()
        .map(|expr| json!({"Expr": expr, "Schema": schema, "Object": object}).to_string())
        .collect();
    let writer = thread::spawn(move || {
        for line in lines {
            writeln!(input, "{line}").unwrap();
        }
    });
    let output = BufReader::new(child.stdout.take().unwrap());
    let answers: Vec<Json> = output
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    fs::remove_file(program).unwrap();
    assert_eq!(answers.len(), expressions.len());
    Some(answers)
}

fn compare<'a>(pairs: impl Iterator<Item = (&'a str, Json)>, accepted: &[String]) {
    let (schema, object) = (read_json("schema.json"), read_json("object.json"));
    let mut count = 0;
    let differences: Vec<_> = pairs
        .filter_map(|(expr, theirs)| {
            count += 1;
            difference(expr, &theirs, &answer(expr, &schema, &object))
        })
        .filter(|text| {
            !accepted
                .iter()
                .any(|line| text.starts_with(&format!("{line}\n")))
        })
        .collect();
    assert!(count > 0);
    assert!(
        differences.is_empty(),
        "{} of {count} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// The expressions whose answers are known to differ, with the reasons.
fn accepted() -> Vec<String> {
    let text = fs::read_to_string(data("different.txt")).unwrap();
    text.lines()
        .filter(|line| !line.starts_with("## "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn expressions_are_as_recorded() {
    let expressions = fs::read_to_string(data("expressions.txt")).unwrap();
    let expressions: Vec<_> = expressions.lines().map(str::to_owned).collect();
    if env::var("REVSTORE_RECORD").is_ok_and(|value| value == "1") {
        let (schema, object) = (read_json("schema.json"), read_json("object.json"));
        let answers = ask(&expressions, &schema, &object).expect("Go is installed");
        let lines: Vec<_> = answers.iter().map(Json::to_string).collect();
        fs::write(data("answers.jsonl"), lines.join("\n") + "\n").unwrap();
    }
    let answers = fs::read_to_string(data("answers.jsonl")).unwrap();
    let answers: Vec<Json> = answers
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), expressions.len());
    compare(
        expressions.iter().map(String::as_str).zip(answers),
        &accepted(),
    );
}

/// The seed of the random expressions, unless `REVSTORE_SEED` is set: a run that fails can be repeated.
const SEED: u64 = 1;

#[test]
fn random_expressions_are_as_those_of_kube_apiserver() {
    let (schema, object) = (read_json("schema.json"), read_json("object.json"));
    // The nightly run chooses others.
    let seed = env::var("REVSTORE_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let expressions = random::expressions(seed, 2_000);
    let Some(answers) = ask(&expressions, &schema, &object) else {
        return;
    };
    let _ = writeln!(std::io::stderr(), "REVSTORE_SEED={seed}");
    compare(expressions.iter().map(String::as_str).zip(answers), &[]);
}
