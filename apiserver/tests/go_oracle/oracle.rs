//! The Go program that gives the expected results.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, thread};

use serde_json::{Value, json};

/// A question.
pub(crate) struct Request<'a> {
    pub(crate) operation: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) object: Value,
    pub(crate) patch: Value,
    pub(crate) text: String,
}

impl<'a> Request<'a> {
    pub(crate) fn text(operation: &'a str, text: &str) -> Self {
        Self {
            operation,
            kind: "",
            object: Value::Null,
            patch: Value::Null,
            text: text.to_owned(),
        }
    }
}

/// The answer to a question.
pub(crate) struct Answer {
    pub(crate) result: Result<Value, String>,
    /// The computed patch.
    pub(crate) patch: Option<Value>,
    /// The errors of strict decoding.
    pub(crate) strict: Vec<String>,
}

/// The running program.
pub(crate) struct Oracle {
    program: Child,
}

impl Oracle {
    /// Builds and starts the program, or reports why this is not possible.
    pub(crate) fn start() -> Option<Self> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle");
        let program =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("oracle-{}", std::process::id()));
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
        let program = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Some(Self { program })
    }

    /// Returns the seeds of a test: always the same ones, so that a run that fails can be repeated, unless
    /// `REVSTORE_RANDOM` is set.
    #[expect(clippy::unused_self, reason = "only a test that runs needs seeds")]
    pub(crate) fn seeds(&self, cases: usize) -> Vec<u64> {
        if let Ok(seed) = env::var("REVSTORE_SEED") {
            return vec![seed.parse().expect("a seed is a number")];
        }
        let mut random = if env::var_os("REVSTORE_RANDOM").is_some() {
            fastrand::Rng::new()
        } else {
            fastrand::Rng::with_seed(1)
        };
        (0..cases).map(|_| random.u64(..)).collect()
    }

    /// Asks all questions.
    pub(crate) fn ask<'a>(&mut self, requests: impl Iterator<Item = Request<'a>>) -> Vec<Answer> {
        let mut input = self.program.stdin.take().unwrap();
        let lines: Vec<_> = requests
            .map(|request| {
                json!({
                    "Op": request.operation, "Kind": request.kind, "Object": request.object,
                    "Patch": request.patch, "Text": request.text,
                })
                .to_string()
            })
            .collect();
        let count = lines.len();
        let writer = thread::spawn(move || {
            for line in lines {
                writeln!(input, "{line}").unwrap();
            }
        });
        let output = BufReader::new(self.program.stdout.take().unwrap());
        let answers: Vec<_> = output.lines().map(|line| answer(&line.unwrap())).collect();
        writer.join().unwrap();
        assert_eq!(answers.len(), count);
        assert!(self.program.wait().unwrap().success());
        answers
    }
}

fn answer(line: &str) -> Answer {
    let mut fields: Value = serde_json::from_str(line).unwrap();
    let result = match fields.get("error").and_then(Value::as_str) {
        Some(error) => Err(error.to_owned()),
        // `null` is left out.
        None => Ok(fields
            .get_mut("result")
            .map(Value::take)
            .unwrap_or_default()),
    };
    let strict = fields.get("strict").and_then(Value::as_array);
    let strict = strict.into_iter().flatten().filter_map(Value::as_str);
    Answer {
        strict: strict.map(str::to_owned).collect(),
        patch: fields.get_mut("patch").map(Value::take),
        result,
    }
}
