//! Runs random operations against a real etcd and against our services until they differ.
//!
//! ```text
//! cargo run --release -p revstore-tests --bin differential -- \
//!     [--operations N] [--seed N] [--threads N]
//! ```
//!
//! Prints how many operations ran without a difference, and the smallest sequence that shows one.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::{env, thread};

use revstore_tests::differential::episode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (mut operations, mut seed) = (10_000, 0);
    let mut threads = thread::available_parallelism()?.get();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or("a number is missing")?;
        match argument.as_str() {
            "--operations" => operations = value.parse()?,
            "--seed" => seed = value.parse()?,
            "--threads" => threads = value.parse()?,
            _ => return Err(format!("{argument}: not an option").into()),
        }
    }
    let outcome = episode::run(seed, operations, threads)?;
    let mut out = io::stdout().lock();
    for finding in &outcome.findings {
        writeln!(out, "{}", finding.scenario())?;
    }
    for broken in &outcome.broken {
        writeln!(out, "did not end: {broken}")?;
    }
    writeln!(
        out,
        "{} operations without a difference, from seed {seed}",
        outcome.operations
    )?;
    let clean = outcome.findings.is_empty() && outcome.broken.is_empty();
    Ok(ExitCode::from(u8::from(!clean)))
}
