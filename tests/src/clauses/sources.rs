//! The tests of the repository.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::clauses::script::Language;
use crate::clauses::{Test, rust, script};
use crate::scenario::library;
use crate::scenario::text;

/// Directories that hold no sources of ours.
const SKIPPED: [&str; 4] = ["target", "node_modules", "build", "__pycache__"];

/// Scenarios that are not replayed as they stand: they are what a real etcd answers where ours
/// differs.
const NOT_REPLAYED: &str = "known_differences.txt";

/// A file of the repository.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path from the root of the repository.
    pub path: String,
    /// What it says.
    pub text: String,
    /// The tests in it, if it may hold some.
    pub tests: Vec<Test>,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// All sources and documents under a directory, in the order of their paths.
///
/// # Errors
/// When a file cannot be read, or is not what its name says.
pub fn read(root: &Path) -> io::Result<Vec<Source>> {
    let mut paths = Vec::new();
    collect(root, &mut paths)?;
    paths.sort_unstable();
    let mut sources = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path)?;
        let tests = tests(&path, &text)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        let path = path.strip_prefix(root).unwrap_or(&path);
        sources.push(Source {
            path: path.to_string_lossy().into_owned(),
            text,
            tests,
        });
    }
    Ok(sources)
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
                collect(&path, paths)?;
            }
        } else if is_text(&path) {
            paths.push(path);
        }
    }
    Ok(())
}

fn is_text(path: &Path) -> bool {
    let ending = ending(path);
    matches!(ending, "rs" | "md" | "proto")
        || is_scenarios(path)
        || Language::of_ending(ending).is_some()
}

fn is_scenarios(path: &Path) -> bool {
    path.parent() == Some(&library::directory()) && ending(path) == "txt"
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(OsStr::to_str).unwrap_or_default()
}

fn tests(path: &Path, text: &str) -> Result<Vec<Test>, String> {
    if ending(path) == "rs" {
        return rust::tests(text);
    }
    if let Some(language) = Language::of_ending(ending(path)) {
        return Ok(script::tests(text, language));
    }
    let replayed = path.file_name() != Some(OsStr::new(NOT_REPLAYED));
    if !is_scenarios(path) || !replayed {
        return Ok(Vec::new());
    }
    let file: text::File = text.parse()?;
    let scenarios = file.scenarios.into_iter();
    Ok(scenarios
        .map(|scenario| Test {
            text: scenario.clauses.join(" "),
            name: scenario.name,
        })
        .collect())
}
