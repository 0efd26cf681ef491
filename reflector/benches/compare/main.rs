//! Measures informers and reflectors beside those of client-go, in turns.
//!
//! `cargo bench -p revstore-reflector --bench compare -- informer` compares an informer over a source in
//! memory, `-- bookmarks` many reflectors over HTTP with and without bookmarks. Both need Go and
//! Linux. `README.md` has the results.

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "figures are printed, and counts are small"
)]

#[path = "../setup/mod.rs"]
mod setup;

mod bookmarks;
mod informer;
mod process;
mod server;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// An error that is only printed.
type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Debug, Parser)]
#[command(about = "Measures informers and reflectors beside those of client-go")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Added by `cargo bench`.
    #[arg(long, global = true, hide = true)]
    bench: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare an informer over a source in memory: changes, relists, memory.
    Informer {
        /// The number of runs of each program, in turns; the table shows medians.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Compare reflectors of single nodes, with and without bookmarks.
    Bookmarks(bookmarks::Options),
    /// Run the informer once. Used by `informer`.
    #[command(hide = true)]
    InformerOnce,
    /// Run the reflectors of all nodes until standard input ends. Used by `bookmarks`.
    #[command(hide = true)]
    Reflectors { url: String, nodes: usize },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Informer { rounds } => informer::compare(rounds),
        Command::Bookmarks(options) => bookmarks::compare(&options),
        Command::InformerOnce => informer::run_once(),
        Command::Reflectors { url, nodes } => bookmarks::run_reflectors(&url, nodes),
    };
    if let Err(error) = result {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
