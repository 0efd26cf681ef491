//! Instruction counts of operations, checked against recorded counts to detect unintended
//! slowdowns.
//!
//! Times depend on the machine and its load; instruction counts depend on them very little. Each
//! case runs under valgrind twice, once with all its operations and once with none. The difference
//! is the count of its operations.
//!
//! `cargo bench -p revstore-benches --bench instructions` compares the counts with
//! `benches/instructions.txt` and fails if one differs by more than the tolerance. A lower count
//! fails too, so that improvements are recorded. `-- --update` writes the file. Without valgrind
//! the program prints that nothing was compared; with `REVSTORE_REQUIRE_VALGRIND=1` it fails then.

mod cases;
mod client;

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use cases::{CASES, Case, KEYS};
use revstore_benches::filled_engine;

/// The allowed difference from the recorded count, in percent. Another version of the compiler or
/// of libc changes counts by a few percent.
const TOLERANCE_PERCENT: f64 = 8.0;

/// The environment variable that makes the program fail without valgrind if it is `1`, as in CI.
const REQUIRE_VALGRIND: &str = "REVSTORE_REQUIRE_VALGRIND";

/// Runs this program under valgrind and returns the number of instructions it executed.
fn instructions(case: &Case, operations: u64) -> Result<f64, String> {
    let this = env::current_exe().map_err(|error| error.to_string())?;
    let run = Command::new("valgrind")
        .args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(this)
        .args(["--run", case.name, &operations.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let output = String::from_utf8_lossy(&run.stderr);
    let count = output
        .lines()
        .find_map(|line| {
            line.split_once("I   refs:")
                .or_else(|| line.split_once("I refs:"))
        })
        .and_then(|(_, count)| count.trim().replace(',', "").parse().ok());
    match count {
        Some(count) if run.status.success() => Ok(count),
        _ => Err(format!("valgrind failed to run {}:\n{output}", case.name)),
    }
}

/// Returns the instructions per operation.
fn measure(case: &Case) -> Result<f64, String> {
    let difference = instructions(case, case.operations)? - instructions(case, 0)?;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let operations = case.operations as f64;
    Ok((difference / operations).round())
}

fn recorded_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.txt")
}

fn recorded(text: &str, name: &str) -> Option<f64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(case, _)| *case == name)
        .and_then(|(_, count)| count.trim().parse().ok())
}

fn update() -> Result<(), String> {
    let mut text = String::new();
    for case in CASES {
        let count = measure(case)?;
        eprintln!("{} {count}", case.name);
        writeln!(text, "{} {count}", case.name).map_err(|error| error.to_string())?;
    }
    fs::write(recorded_path(), text).map_err(|error| error.to_string())
}

fn check() -> Result<(), String> {
    let text = fs::read_to_string(recorded_path()).map_err(|error| error.to_string())?;
    let mut changed = Vec::new();
    for case in CASES {
        let expected = recorded(&text, case.name);
        let expected = expected.ok_or_else(|| format!("no count recorded for {}", case.name))?;
        let count = measure(case)?;
        let change = (count / expected - 1.0) * 100.0;
        eprintln!("{:<40} {count:>9} {change:>+6.1} %", case.name);
        if change.abs() > TOLERANCE_PERCENT {
            changed.push(case.name);
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "more than {TOLERANCE_PERCENT} % from benches/instructions.txt: {}.\n\
         Record an intended change with: just instructions --update",
        changed.join(", ")
    ))
}

fn has_valgrind() -> bool {
    let version = Command::new("valgrind").arg("--version").output();
    version.is_ok_and(|run| run.status.success())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--run", name, operations] = arguments[..] {
        let case = CASES.iter().find(|case| case.name == name);
        let (Some(case), Ok(operations)) = (case, operations.parse()) else {
            return ExitCode::FAILURE;
        };
        (case.run)(&filled_engine(KEYS), operations);
        return ExitCode::SUCCESS;
    }
    if !has_valgrind() {
        eprintln!("NOT RUN: valgrind is not installed");
        if env::var_os(REQUIRE_VALGRIND).is_some_and(|value| value == "1") {
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    let result = if arguments.contains(&"--update") {
        update()
    } else {
        check()
    };
    if let Err(error) = result {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
