//! The command line `revstore ctl`: a client of the service of control, over its JSON form.
//!
//! | file | contents |
//! |---|---|
//! | `arguments.rs` | **the verbs**: their arguments, and the request that each sends |
//! | `fault.rs`, `store.rs`, `journal.rs` | the arguments of `fault add`, the verbs of the store and of the journal |
//! | `values.rs` | values of arguments, checked before a connection is made |
//! | `file.rs` | files that are sent and received |
//! | `client.rs` | one request over HTTP/1.1 |
//! | `output.rs`, `table.rs` | responses as JSON lines and as tables |

mod arguments;
mod client;
mod fault;
mod file;
mod journal;
mod output;
mod store;
mod table;
mod values;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap::Parser;

use self::arguments::{Arguments, Format, Verb};
use self::client::Client;
use self::journal::JournalVerb;
use self::output::{Output, Printer};

/// The variable with the URL of the port of control.
pub const URL_VARIABLE: &str = "REVSTORE_CONTROL";

/// The exit status of a request that was refused, or could not be sent.
const REFUSED: u8 = 1;
/// The exit status of a replay with other answers than those in the journal.
const DIFFERENT: u8 = 1;
/// The exit status of arguments without sense.
const USAGE: u8 = 2;

/// The reason for another exit status than 0.
#[derive(Debug)]
struct Failed {
    status: u8,
    /// The line on standard error.
    message: String,
}

impl Failed {
    fn refused(message: String) -> Self {
        Self {
            status: REFUSED,
            message,
        }
    }
}

/// Returns the arguments after `ctl`, of a process with these arguments, its name included; `None` without this
/// subcommand. A binary that stands in for `etcd` or `kube-apiserver` has no subcommands that those do not have.
pub fn arguments_of(arguments: impl IntoIterator<Item = OsString>) -> Option<Vec<OsString>> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next()?;
    let program = Path::new(&program).file_stem();
    if program.is_some_and(|program| program == "etcd" || program == "kube-apiserver") {
        return None;
    }
    (arguments.next()? == "ctl").then(|| arguments.collect())
}

/// Runs `revstore ctl` with the arguments after these words, and with the value of [`URL_VARIABLE`]. Writes to standard
/// output and standard error, and returns the exit status: 0, 1 if the request was refused, with one line on standard
/// error, or 2 for arguments without sense.
pub fn run(arguments: impl IntoIterator<Item = OsString>, url: Option<&str>) -> u8 {
    let name = OsString::from("revstore ctl");
    let arguments = match Arguments::try_parse_from(std::iter::once(name).chain(arguments)) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help is an error for clap, too, with the exit status 0.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(USAGE);
        }
    };
    match try_run(arguments, url) {
        Ok(()) => 0,
        Err(failed) => {
            report(&failed.message);
            failed.status
        }
    }
}

fn try_run(arguments: Arguments, url: Option<&str>) -> Result<(), Failed> {
    let token_file = arguments.token_file.as_deref();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build();
    let runtime = runtime.map_err(|error| Failed::refused(format!("cannot start: {error}")))?;
    let mut out = io::stdout().lock();
    // It is for another server than the one under control.
    if let Verb::Journal(journal) = &arguments.verb
        && let Some(JournalVerb::Replay(replay)) = &journal.verb
    {
        return runtime.block_on(replay.run(token_file, arguments.write_out, &mut out));
    }
    let usage = |message| Failed {
        status: USAGE,
        message,
    };
    let url = arguments.url.as_deref().or(url);
    let url = url.filter(|url| !url.is_empty()).ok_or_else(|| {
        usage(format!(
            "the URL of the port of control is missing: use --url or the variable {URL_VARIABLE}"
        ))
    })?;
    let call = arguments.verb.call();
    let client = Client::new(url, token_file).map_err(usage)?;
    let is_json = arguments.write_out == Format::Json;
    let mut response = Printer::new(&call.output, is_json);
    let mut print = |line: &[u8]| response.print(&mut out, line);
    let Output::File(path) = &call.output else {
        let sent = runtime.block_on(client.send(call.method, &call.body, print));
        return sent.map_err(Failed::refused);
    };
    let saved = runtime.block_on(file::save(&client, &call, path));
    let saved = saved.map_err(Failed::refused)?;
    let printed = saved.map_or(Ok(()), |line| print(&line));
    printed.map_err(|error| Failed::refused(format!("cannot write the output: {error}")))
}

/// Writes one line to standard error.
fn report(message: &str) {
    let line: Vec<_> = message.split_whitespace().collect();
    let _ = writeln!(io::stderr().lock(), "revstore ctl: {}", line.join(" "));
}
