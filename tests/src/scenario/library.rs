//! The scenario files: loading, running and comparing them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, io, thread};

use crate::scenario::run::run;
use crate::scenario::target::TargetKind;
use crate::scenario::text::{Scenario, ScenarioFile};

/// The extension of scenario files.
const EXTENSION: &str = "txt";

/// Returns the directory of the files.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// Returns the path of the file with the given name. The file may be absent.
pub fn path(name: &str) -> PathBuf {
    directory().join(name).with_extension(EXTENSION)
}

/// Returns the names of all files, sorted.
///
/// # Errors
/// If the directory cannot be read.
pub fn names() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory())? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == EXTENSION)
        {
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

/// Loads a file.
///
/// # Errors
/// If the file cannot be read, or is not in the format of [`text`](super::text).
pub fn load(name: &str) -> io::Result<ScenarioFile> {
    let path = path(name);
    let text = fs::read_to_string(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    text.parse()
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

/// Runs scenarios on `threads` threads, each on its own server. The results are in the order of the
/// scenarios.
pub fn run_all(
    scenarios: &[Scenario],
    kind: TargetKind,
    threads: usize,
) -> Vec<io::Result<Scenario>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Relaxed: the counter only returns each number once. It does not order other memory
                // accesses.
                while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = run(scenario, kind);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((scenario.name.as_str(), result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let index = |name: &str| scenarios.iter().position(|scenario| scenario.name == name);
    results.sort_by_key(|(name, _)| index(name));
    results.into_iter().map(|(_, result)| result).collect()
}

/// Describes the scenarios whose responses differ from the expected ones.
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
    // The output includes the steps before the difference, because the difference depends on them.
    let at = steps.position(|(expected, actual)| expected.responses != actual.responses)?;
    let before: String = expected.steps[..at]
        .iter()
        .map(|step| step.action.to_string())
        .collect();
    Some(format!(
        "=== {name} ({})\n{before}--- expected:\n{}--- actual:\n{}",
        expected.clauses.join(" "),
        expected.steps[at],
        actual.steps[at],
    ))
}
