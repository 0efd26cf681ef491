//! Asks a real etcd the questions of the recorded scenarios and writes down what it answers.
//!
//! ```text
//! cargo run -p revstore-tests --bin record -- [--check] [--changed] [NAME...]
//! ```
//!
//! Without names, all files of `tests/scenarios`. With `--check` nothing is written, and what would
//! change is printed and makes the program fail; with `--changed` only scenarios that have steps
//! without answers are asked. Questions that are made from tables are made anew first.
//!
//! The files of [`OURS`] hold what our services answer to the questions of another file, and are
//! recorded from them.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::{env, fs, thread};

use revstore_tests::scenario::families::FAMILIES;
use revstore_tests::scenario::library::{differences, load, names, path, run_all};
use revstore_tests::scenario::target::Kind;
use revstore_tests::scenario::text::{File, Scenario};

/// Files that hold our own answers, and the files whose questions those answer.
const OURS: [(&str, &str); 1] = [("known_differences_ours", "known_differences")];

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
    let kind = if origin(name).is_some() {
        Kind::Ours
    } else {
        Kind::Etcd
    };
    let answered = run_all(&asked, kind, threads);
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

/// The file whose questions this one answers, if it has none of its own.
fn origin(name: &str) -> Option<&'static str> {
    OURS.iter()
        .find(|(ours, _)| *ours == name)
        .map(|(_, origin)| *origin)
}

/// The file as it is, or the questions that it takes from elsewhere with the answers that it has.
fn questions(name: &str) -> io::Result<File> {
    let mut file = if let Some(origin) = origin(name) {
        let mut file = load(origin)?;
        file.comments = vec![format!(
            "# What ours answers to the questions of {origin}.txt."
        )];
        file.scenarios = file.scenarios.iter().map(Scenario::questions).collect();
        file
    } else if let Some(family) = FAMILIES.iter().find(|family| family.name == name) {
        family.questions()
    } else {
        return load(name);
    };
    let known = load(name).unwrap_or_default();
    for scenario in &mut file.scenarios {
        let mut known = known.scenarios.iter();
        // Compared as text, for steps may be laid out otherwise when they are written.
        let asked = scenario.to_string();
        if let Some(known) = known.find(|known| known.questions().to_string() == asked) {
            scenario.clone_from(known);
        }
    }
    Ok(file)
}

fn unanswered(scenario: &Scenario) -> bool {
    // Steps on streams may well cause nothing, the first step of a scenario never does.
    scenario.steps.iter().all(|step| step.answers.is_empty())
}
