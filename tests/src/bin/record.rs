//! Records scenarios: sends their requests to a real etcd and writes its answers into the files.
//!
//! ```text
//! cargo run -p revstore-tests --bin record -- [--check] [--changed] [NAME...]
//! ```
//!
//! Without names, it records all files of `tests/scenarios`. With `--check` it writes nothing, prints what
//! would change, and fails if there is anything. With `--changed` it runs only scenarios without answers.
//! Scenarios of tables are generated anew first.
//!
//! The files of [`OURS`] hold the answers of the revstore services to the requests of another file.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::{env, fs, thread};

use revstore_tests::scenario::families::FAMILIES;
use revstore_tests::scenario::library::{differences, load, names, path, run_all};
use revstore_tests::scenario::target::TargetKind;
use revstore_tests::scenario::text::{Scenario, ScenarioFile};

/// The files with answers of revstore, and the files with their requests.
const OURS: [(&str, &str); 1] = [("known_differences_ours", "known_differences")];

/// The command line.
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

/// Records a file and returns how many of its scenarios have other answers than before.
fn record(name: &str, arguments: &Arguments) -> Result<usize, Box<dyn Error>> {
    let mut file = load_requests(name)?;
    let (selected, kept): (Vec<_>, Vec<_>) = file
        .scenarios
        .iter()
        .cloned()
        .partition(|scenario| !arguments.changed || unanswered(scenario));
    let threads = thread::available_parallelism()?.get() * 2;
    let kind = if origin(name).is_some() {
        TargetKind::Ours
    } else {
        TargetKind::Etcd
    };
    let answered = run_all(&selected, kind, threads);
    let mut out = io::stdout().lock();
    let differences = differences(&selected, &answered);
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
        "{name}: {} scenarios, {} run, {} with other answers",
        file.scenarios.len(),
        selected.len(),
        differences.len(),
    )?;
    Ok(differences.len())
}

/// Returns the file with the requests of this one, if it has none of its own.
fn origin(name: &str) -> Option<&'static str> {
    OURS.iter()
        .find(|(ours, _)| *ours == name)
        .map(|(_, origin)| *origin)
}

/// Loads a file. Requests that come from a table or from another file are taken from there.
fn load_requests(name: &str) -> io::Result<ScenarioFile> {
    let mut file = if let Some(origin) = origin(name) {
        let mut file = load(origin)?;
        file.comments = vec![format!(
            "# The answers of revstore to the requests of {origin}.txt."
        )];
        file.scenarios = file
            .scenarios
            .iter()
            .map(Scenario::without_answers)
            .collect();
        file
    } else if let Some(family) = FAMILIES.iter().find(|family| family.name == name) {
        family.without_answers()
    } else {
        return load(name);
    };
    let known = load(name).unwrap_or_default();
    for scenario in &mut file.scenarios {
        let mut known = known.scenarios.iter();
        // Compared as text, because formatting may lay out steps in another way.
        let unanswered = scenario.to_string();
        if let Some(known) = known.find(|known| known.without_answers().to_string() == unanswered) {
            scenario.clone_from(known);
        }
    }
    Ok(file)
}

fn unanswered(scenario: &Scenario) -> bool {
    // Some steps have no answers, but never all steps of a scenario.
    scenario.steps.iter().all(|step| step.answers.is_empty())
}
