//! Lists which clauses of the behaviour specifications are cited by which test.
//!
//! ```text
//! cargo run -p revstore-tests --bin clauses -- [--check]
//! ```
//!
//! Prints a Markdown table for each section. With `--check` prints only what is wrong, and fails if
//! there is any: a clause that has to match an etcd and that no test cites, or a citation of a clause
//! that does not exist.

use std::env;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use revstore_tests::clauses::coverage::Coverage;
use revstore_tests::clauses::list::List;
use revstore_tests::clauses::sources;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut check = false;
    for argument in env::args().skip(1) {
        match argument.as_str() {
            "--check" => check = true,
            _ => return Err(format!("{argument}: not an option").into()),
        }
    }
    let list = List::load()?;
    let sources = sources::read(&sources::root())?;
    let coverage = Coverage::of(&list, &sources);
    let mut out = io::stdout().lock();
    if !check {
        writeln!(out, "{coverage}")?;
    }
    let (gaps, unknown) = (coverage.gaps(), coverage.unknown());
    for clause in &gaps {
        writeln!(out, "no test cites {}: {}", clause.id, clause.about)?;
    }
    for (id, path) in unknown {
        writeln!(out, "{path} cites {id}, which does not exist")?;
    }
    writeln!(
        out,
        "{} clauses without a test, {} citations of none",
        gaps.len(),
        unknown.len()
    )?;
    let clean = gaps.is_empty() && unknown.is_empty();
    Ok(ExitCode::from(u8::from(check && !clean)))
}
