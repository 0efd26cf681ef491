//! The files of scenarios.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, io, thread};

use crate::scenario::run::run;
use crate::scenario::target::Kind;
use crate::scenario::text::{File, Scenario};

/// The ending of their names.
const ENDING: &str = "txt";

/// Where they are.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// The path of the file of that name, which need not be there.
pub fn path(name: &str) -> PathBuf {
    directory().join(name).with_extension(ENDING)
}

/// The names of all files, sorted.
///
/// # Errors
/// When the directory cannot be read.
pub fn names() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory())? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            names.extend(
                path.file_stem()
                    .and_then(|stem| stem.to_str())
                    .map(str::to_owned),
            );
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads a file.
///
/// # Errors
/// When it cannot be read, or is not as [`text`](super::text) says.
pub fn load(name: &str) -> io::Result<File> {
    let path = path(name);
    let text = fs::read_to_string(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    text.parse()
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

/// Runs scenarios, each on a server of its own, on `threads` threads; the results are in the order
/// of the scenarios.
pub fn run_all(scenarios: &[Scenario], kind: Kind, threads: usize) -> Vec<io::Result<Scenario>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Relaxed: each number is taken once, which is all that matters.
                while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = run(scenario, kind);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((scenario.name.as_str(), result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let place = |name: &str| scenarios.iter().position(|scenario| scenario.name == name);
    results.sort_by_key(|(name, _)| place(name));
    results.into_iter().map(|(_, result)| result).collect()
}

/// What is to be said about scenarios that did not go as expected; nothing if all did.
pub fn differences(expected: &[Scenario], actual: &[io::Result<Scenario>]) -> Vec<String> {
    let pairs = expected.iter().zip(actual);
    pairs
        .filter_map(|(expected, actual)| difference(expected, actual))
        .collect()
}

fn difference(expected: &Scenario, actual: &io::Result<Scenario>) -> Option<String> {
    let name = &expected.name;
    let actual = match actual {
        Ok(actual) => actual,
        Err(error) => return Some(format!("=== {name}\n{error}\n")),
    };
    let mut steps = expected.steps.iter().zip(&actual.steps);
    // The steps before it are needed to understand it.
    let at = steps.position(|(expected, actual)| expected.answers != actual.answers)?;
    let before: String = expected.steps[..at]
        .iter()
        .map(|step| step.request.to_string())
        .collect();
    Some(format!(
        "=== {name} ({})\n{before}--- expected:\n{}--- actual:\n{}",
        expected.clauses.join(" "),
        expected.steps[at],
        actual.steps[at],
    ))
}
