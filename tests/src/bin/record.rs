//! Asks a real etcd the questions of the recorded scenarios and writes down what it answers.
//!
//! ```text
//! cargo run -p revstore-tests --bin record -- [--check] [--changed] [NAME...]
//! ```
//!
//! Without names, all files of `tests/scenarios`. With `--check` nothing is written, and what would
//! change is printed and makes the program fail; with `--changed` only scenarios that have steps
//! without answers are asked. Questions that are made from tables are made anew first.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::{env, fs, thread};

use revstore_tests::scenario::families::FAMILIES;
use revstore_tests::scenario::library::{differences, load, names, path, run_all};
use revstore_tests::scenario::target::Kind;
use revstore_tests::scenario::text::{File, Scenario};

/// What the command line asks for.
#[derive(Debug, Default)]
struct Arguments {
    check: bool,
    changed: bool,
    names: BTreeSet<String>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = arguments()?;
    let mut different = 0;
    for name in &arguments.names {
        different += record(name, &arguments)?;
    }
    Ok(ExitCode::from(u8::from(arguments.check && different > 0)))
}

fn arguments() -> io::Result<Arguments> {
    let mut arguments = Arguments::default();
    for argument in env::args().skip(1) {
        match argument.as_str() {
            "--check" => arguments.check = true,
            "--changed" => arguments.changed = true,
            name => {
                arguments.names.insert(name.to_owned());
            }
        }
    }
    if arguments.names.is_empty() {
        arguments.names.extend(names()?);
        arguments
            .names
            .extend(FAMILIES.iter().map(|family| family.name.to_owned()));
    }
    Ok(arguments)
}

/// Records a file; returns how many of its scenarios were answered differently than it says.
fn record(name: &str, arguments: &Arguments) -> Result<usize, Box<dyn Error>> {
    let mut file = questions(name)?;
    let (asked, kept): (Vec<_>, Vec<_>) = file
        .scenarios
        .iter()
        .cloned()
        .partition(|scenario| !arguments.changed || unanswered(scenario));
    let threads = thread::available_parallelism()?.get() * 2;
    let answered = run_all(&asked, Kind::Etcd, threads);
    let mut out = io::stdout().lock();
    let differences = differences(&asked, &answered);
    if arguments.check {
        for difference in &differences {
            writeln!(out, "{difference}")?;
        }
    } else {
        let answered = answered.into_iter().collect::<io::Result<Vec<_>>>()?;
        for scenario in &mut file.scenarios {
            let mut known = answered.iter().chain(&kept);
            if let Some(known) = known.find(|known| known.name == scenario.name) {
                scenario.clone_from(known);
            }
        }
        fs::write(path(name), file.to_string())?;
    }
    writeln!(
        out,
        "{name}: {} scenarios, {} asked, {} answered differently",
        file.scenarios.len(),
        asked.len(),
        differences.len(),
    )?;
    Ok(differences.len())
}

/// The file as it is, or, if it comes from a table, the table's questions with the file's answers.
fn questions(name: &str) -> io::Result<File> {
    let Some(family) = FAMILIES.iter().find(|family| family.name == name) else {
        return load(name);
    };
    let mut file = family.questions();
    let known = load(name).unwrap_or_default();
    for scenario in &mut file.scenarios {
        let mut known = known.scenarios.iter();
        if let Some(known) = known.find(|known| known.questions() == *scenario) {
            scenario.clone_from(known);
        }
    }
    Ok(file)
}

fn unanswered(scenario: &Scenario) -> bool {
    // Steps on streams may well cause nothing, the first step of a scenario never does.
    scenario.steps.iter().all(|step| step.answers.is_empty())
}
