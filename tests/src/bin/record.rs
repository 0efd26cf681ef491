//! Records scenarios: sends their requests to a real etcd and writes the responses into the files.
//!
//! ```text
//! cargo run -p revstore-tests --bin record -- [--check] [--changed] [NAME...]
//! ```
//!
//! Without names, it records all files of `tests/scenarios`. With `--check` it writes nothing, prints the
//! scenarios whose responses differ, and fails if a scenario differs. With `--changed` it runs only scenarios
//! without responses. Scenarios of generated tables are generated again first.
//!
//! The files of [`OURS`] contain the responses of the revstore services to the requests of another file.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::{env, fs, thread};

use revstore_tests::scenario::families::TABLES;
use revstore_tests::scenario::library::{differences, load, names, path, run_all};
use revstore_tests::scenario::target::TargetKind;
use revstore_tests::scenario::text::{Scenario, ScenarioFile};

/// The files with responses of revstore, and the files with their requests.
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
            .extend(TABLES.iter().map(|table| table.name.to_owned()));
    }
    Ok(arguments)
}

/// Records a file and returns the number of its scenarios with different responses than before.
fn record(name: &str, arguments: &Arguments) -> Result<usize, Box<dyn Error>> {
    let mut file = load_requests(name)?;
    let (selected, kept): (Vec<_>, Vec<_>) = file
        .scenarios
        .iter()
        .cloned()
        .partition(|scenario| !arguments.changed || has_no_responses(scenario));
    let threads = thread::available_parallelism()?.get() * 2;
    let kind = if origin(name).is_some() {
        TargetKind::Ours
    } else {
        TargetKind::Etcd
    };
    let recorded = run_all(&selected, kind, threads);
    let mut out = io::stdout().lock();
    let differences = differences(&selected, &recorded);
    if arguments.check {
        for difference in &differences {
            writeln!(out, "{difference}")?;
        }
    } else {
        let recorded = recorded.into_iter().collect::<io::Result<Vec<_>>>()?;
        for scenario in &mut file.scenarios {
            let mut known = recorded.iter().chain(&kept);
            if let Some(known) = known.find(|known| known.name == scenario.name) {
                scenario.clone_from(known);
            }
        }
        fs::write(path(name), file.to_string())?;
    }
    writeln!(
        out,
        "{name}: {} scenarios, {} run, {} with different responses",
        file.scenarios.len(),
        selected.len(),
        differences.len(),
    )?;
    Ok(differences.len())
}

/// Returns the name of the file that the requests of the file `name` are copied from, if any.
fn origin(name: &str) -> Option<&'static str> {
    OURS.iter()
        .find(|(ours, _)| *ours == name)
        .map(|(_, origin)| *origin)
}

/// Loads a file. Requests that belong to a generated table or to another file are taken from there.
fn load_requests(name: &str) -> io::Result<ScenarioFile> {
    let mut file = if let Some(origin) = origin(name) {
        let mut file = load(origin)?;
        file.comments = vec![format!(
            "# The responses of revstore to the requests of {origin}.txt."
        )];
        file.scenarios = file
            .scenarios
            .iter()
            .map(Scenario::without_responses)
            .collect();
        file
    } else if let Some(table) = TABLES.iter().find(|table| table.name == name) {
        table.without_responses()
    } else {
        return load(name);
    };
    let known = load(name).unwrap_or_default();
    for scenario in &mut file.scenarios {
        let mut known = known.scenarios.iter();
        // Compared as text, because formatting may change the layout of the steps.
        let has_no_responses = scenario.to_string();
        if let Some(known) =
            known.find(|known| known.without_responses().to_string() == has_no_responses)
        {
            scenario.clone_from(known);
        }
    }
    Ok(file)
}

fn has_no_responses(scenario: &Scenario) -> bool {
    // Some steps have no responses, but never all steps of a scenario.
    scenario.steps.iter().all(|step| step.responses.is_empty())
}
