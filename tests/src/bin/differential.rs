//! Sends random operations to a real etcd and to the revstore services until their responses differ.
//!
//! ```text
//! cargo run --release -p revstore-tests --bin differential -- \
//!     [--operations N] [--seed N] [--threads N]
//! ```
//!
//! Prints the number of operations without a difference, and the shortest sequence that shows one.

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
        let value = arguments
            .next()
            .ok_or_else(|| format!("{argument} takes a number"))?;
        match argument.as_str() {
            "--operations" => operations = value.parse()?,
            "--seed" => seed = value.parse()?,
            "--threads" => threads = value.parse()?,
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    let report = episode::run(seed, operations, threads)?;
    let mut out = io::stdout().lock();
    for finding in &report.findings {
        writeln!(out, "{}", finding.scenario())?;
    }
    for failure in &report.failures {
        writeln!(out, "failed: {failure}")?;
    }
    writeln!(
        out,
        "{} operations without a difference, from seed {seed}",
        report.operations
    )?;
    let clean = report.findings.is_empty() && report.failures.is_empty();
    Ok(ExitCode::from(u8::from(!clean)))
}
