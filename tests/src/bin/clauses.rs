//! Lists the clauses of the specifications in `docs/` with the tests that cite them.
//!
//! ```text
//! cargo run -p revstore-tests --bin clauses -- [--check]
//! ```
//!
//! Prints a Markdown table. With `--check` it prints only errors and a summary. It fails if a clause with the
//! force `must` or `should` has no test and states no reason, or if a citation names a clause that does not
//! exist. [`revstore_tests::clauses`] defines citations and tests.

use std::env;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use revstore_tests::clauses::{Citation, Clauses, root};

/// The maximum number of places that the table shows for a clause.
const PLACES_MAX: usize = 4;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let check = match arguments.as_slice() {
        [] => false,
        [argument] if argument == "--check" => true,
        _ => return Err(format!("invalid arguments {arguments:?}: --check is allowed").into()),
    };
    let clauses = Clauses::load()?;
    let citations = clauses.citations(&root())?;
    let mut out = io::stdout().lock();
    if !check {
        writeln!(out, "| Clause | Force | Tests |\n|---|---|---|")?;
    }
    let (mut tested, mut exempt, mut planned, mut wrong) = (0, 0, 0, 0);
    for clause in clauses.all() {
        let cited = citations.get(&clause.id).map_or(&[][..], Vec::as_slice);
        let tests: Vec<_> = cited.iter().filter(|citation| citation.in_test).collect();
        if !check {
            let shown = tests
                .iter()
                .take(PLACES_MAX)
                .map(|test| test.place.as_str());
            let shown = shown.collect::<Vec<_>>().join(", ");
            let more = if tests.len() > PLACES_MAX {
                ", ..."
            } else {
                ""
            };
            writeln!(out, "| {} | {} | {shown}{more} |", clause.id, clause.force)?;
        }
        tested += usize::from(!tests.is_empty());
        exempt += usize::from(tests.is_empty() && clause.is_exempt());
        planned += usize::from(clause.force == "planned");
        if clause.needs_test() && tests.is_empty() {
            writeln!(out, "no test cites {}: {}", clause.id, clause.text)?;
            wrong += 1;
        }
    }
    for (id, cited) in citations.iter().filter(|(id, _)| clauses.get(id).is_none()) {
        for Citation { place, .. } in cited {
            writeln!(out, "{place} cites the unknown clause {id}")?;
            wrong += 1;
        }
    }
    writeln!(
        out,
        "{} clauses: {tested} cited by tests, {exempt} exempt with a reason, {planned} planned; {wrong} errors",
        clauses.all().len(),
    )?;
    Ok(ExitCode::from(u8::from(check && wrong > 0)))
}
