//! The verbs of the journal.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use revstore_host::config::GoDuration;
use serde_json::{Value, json};

use super::arguments::Format;
use super::file::is_standard;
use super::output::Output;
use super::table::Columns;
use super::{DIFFERENT, Failed, USAGE};
use crate::replay::{Endpoint, Finding, Options, Replay, Selection, Summary};
use crate::service::TokenFile;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Journal {
    #[command(subcommand)]
    pub(super) verb: Option<JournalVerb>,
    #[command(flatten)]
    pub(super) read: JournalRead,
}

#[derive(Debug, Subcommand)]
pub(super) enum JournalVerb {
    /// Send the requests of a journal to another server, and compare the answers.
    Replay(ReplayJournal),
}

#[derive(Debug, Args)]
pub(super) struct JournalRead {
    /// Go on with new records until interrupted.
    #[arg(long)]
    follow: bool,
    /// Only these methods, such as Put or KV/Put, comma-separated.
    #[arg(long, value_name = "M", value_delimiter = ',')]
    method: Vec<String>,
    /// Only requests of this client.
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Only requests of this user.
    #[arg(long, value_name = "U")]
    user: Option<String>,
    /// Only requests on this connection.
    #[arg(long, value_name = "ID")]
    connection: Option<u64>,
    /// Also the requests themselves, for a replay with -w json.
    #[arg(long)]
    requests: bool,
}

/// The journal is one of `journal --requests -w json`, or one that was saved for a failed test. The requests are sent in the
/// order in which they took effect.
#[derive(Debug, Args)]
#[command(
    after_help = "--token-file has the token of the requests. Exit status: 0 if all answers are as in the journal, 1 if \
                        not, 2 for wrong usage."
)]
pub(super) struct ReplayJournal {
    /// The journal, or - for standard input.
    file: PathBuf,
    /// The URL of an etcd, or of a Kubernetes API for the journal of one: http, https or unix.
    #[arg(long, value_name = "URL")]
    to: String,
    /// The authorities of the server with https, in PEM; by default those of the system.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Only the requests after the record with this number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Only the requests that took effect up to that of the record with this number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    stop_at: Option<u64>,
    /// Replay a journal of which records are missing.
    #[arg(long)]
    partial: bool,
    /// Wait between requests for as long as in the journal, by the clock of its server.
    #[arg(long)]
    timing: bool,
    /// The time in which each answer must arrive.
    #[arg(long, value_name = "30s", default_value = "30s", value_parser = positive)]
    answer_time: Duration,
}

/// The columns of the journal, of which `-w json` has more. The request, which is shown on demand, is the last.
const COLUMNS: Columns = Columns {
    etcd: &[
        "number", "time", "event", "method", "keys", "code", "revision", "duration", "watch",
        "rule", "user", "client", "reason", "error", "request",
    ],
    front: &[
        "number",
        "time",
        "event",
        "method",
        "resource",
        "namespace",
        "name",
        "status",
        "revision",
        "duration",
        "watch",
        "rule",
        "user",
        "client",
        "reason",
        "error",
        "request",
    ],
};

impl JournalRead {
    /// Returns the request of the verb.
    pub(super) fn call(self) -> (&'static str, Value, Output) {
        let columns = if self.requests {
            COLUMNS
        } else {
            COLUMNS.without_last()
        };
        let body = json!({
            "follow": self.follow,
            "methods": self.method,
            "client": self.client,
            "user": self.user,
            "connection": self.connection,
            "requests": self.requests,
        });
        ("JournalRead", body, Output::Stream(columns))
    }
}

fn positive(text: &str) -> Result<Duration, String> {
    match GoDuration::parse(text).ok().map(|it| u64::try_from(it.0)) {
        Some(Ok(nanos)) if nanos > 0 => Ok(Duration::from_nanos(nanos)),
        _ => Err("must be a duration above 0, such as 30s".to_owned()),
    }
}

impl ReplayJournal {
    /// Sends the requests, and writes what differs. Returns the reason for another exit status than 0.
    pub(super) async fn run(
        &self,
        token_file: Option<&Path>,
        format: Format,
        out: &mut impl Write,
    ) -> Result<(), Failed> {
        let usage = |message| Failed {
            status: USAGE,
            message,
        };
        let endpoint = self.endpoint(token_file).map_err(usage)?;
        let selection = Selection {
            after: self.after,
            stop_at: self.stop_at,
            partial: self.partial,
        };
        let from = self.open().map_err(Failed::refused)?;
        let replay = Replay::read(from, &selection)
            .map_err(|error| Failed::refused(format!("{}: {error}", self.file.display())))?;
        let options = Options {
            timing: self.timing,
            answer_time: self.answer_time,
        };
        let mut written = Ok(());
        let print = |found: &Finding| {
            // The requests go on when nobody reads the output.
            let line = match format {
                Format::Json => found.json().to_string(),
                Format::Table => found.to_string(),
            };
            if written.is_ok() {
                written = write_line(out, &line);
            }
        };
        let sent = replay.send(&endpoint, &options, print).await;
        let summary = sent.map_err(|error| Failed::refused(error.to_string()))?;
        let written = written.and_then(|()| write_line(out, &text(summary, format)));
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                return Err(Failed::refused(format!("cannot write the output: {error}")));
            }
            _ => {}
        }
        let Summary {
            sent, differences, ..
        } = summary;
        if differences == 0 {
            return Ok(());
        }
        Err(Failed {
            status: DIFFERENT,
            message: format!("{differences} of {sent} answers differ from the journal"),
        })
    }

    fn endpoint(&self, token_file: Option<&Path>) -> Result<Endpoint, String> {
        let token = token_file.map(|path| {
            let token = TokenFile::open(path).and_then(|file| file.read());
            token.map_err(|error| error.to_string())
        });
        let authorities = self.ca_file.as_ref().map(|path| {
            fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
        });
        let authorities = authorities.transpose()?;
        Endpoint::new(&self.to, token.transpose()?, authorities.as_deref())
    }

    fn open(&self) -> Result<Box<dyn BufRead>, String> {
        if is_standard(&self.file) {
            return Ok(Box::new(io::stdin().lock()));
        }
        match File::open(&self.file) {
            Ok(file) => Ok(Box::new(BufReader::new(file))),
            Err(error) => Err(format!("cannot read {}: {error}", self.file.display())),
        }
    }
}

fn write_line(out: &mut impl Write, line: &str) -> io::Result<()> {
    let shown = line.replace(char::is_control, " ");
    writeln!(out, "{shown}")?;
    out.flush()
}

fn text(summary: Summary, format: Format) -> String {
    let Summary {
        sent,
        differences,
        skipped,
        not_executed,
    } = summary;
    match format {
        Format::Json => json!({
            "sent": sent,
            "differences": differences,
            "skipped": skipped,
            "not_executed": not_executed,
        })
        .to_string(),
        Format::Table => format!(
            "{sent} sent, {differences} different, {skipped} skipped, {not_executed} not executed before"
        ),
    }
}
