//! The `revstore-apiserver` binary.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use revstore_apiserver::{CommandLine, Invocation, parse};
use revstore_control::ctl;
use revstore_host::config::ConfigError;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(arguments) = ctl::arguments_of(env::args_os()) {
        let url = env::var(ctl::URL_VARIABLE).ok();
        return ExitCode::from(ctl::run(arguments, url.as_deref()));
    }
    let mut arguments = env::args_os();
    let program = arguments.next().map(PathBuf::from).unwrap_or_default();
    // The names in a directory of binaries for envtest.
    let ended = match program.file_name().and_then(OsStr::to_str) {
        Some("etcd") => serve_etcd(),
        Some("kube-apiserver") => serve_in_place(&CommandLine::new(arguments, env::vars_os())),
        _ => serve(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err((error, exit_code)) => {
            let _ = writeln!(io::stderr(), "revstore-apiserver: {error}");
            ExitCode::from(exit_code)
        }
    }
}

/// An error, and the exit status of a process that ends with it.
type Failure = (Box<dyn Error>, u8);

fn serve() -> Result<(), Failure> {
    match invalid(parse(env::args_os().skip(1), env::vars_os()))? {
        Invocation::Print(text) => print(&text),
        Invocation::Serve { config, warnings } => {
            let stopped = revstore_apiserver::run(*config, &warnings);
            stopped.map_err(failed)?.exit()
        }
    }
}

fn serve_in_place(line: &CommandLine) -> Result<(), Failure> {
    match invalid(line.parse_in_place())? {
        Invocation::Print(text) => print(&text),
        Invocation::Serve { config, warnings } => {
            let stopped = revstore_apiserver::run_in_place(*config, &warnings, line);
            stopped.map_err(failed)?.exit()
        }
    }
}

fn serve_etcd() -> Result<(), Failure> {
    match invalid(revstore::parse(env::args_os().skip(1), env::vars_os()))? {
        revstore::Invocation::Print(text) => print(&text),
        revstore::Invocation::Serve { config, warnings } => {
            let stopped = revstore_apiserver::run_etcd(&config, &warnings);
            stopped.map_err(failed)?.exit_by_signal()
        }
    }
}

/// Writes to standard output. A closed pipe, as after `--help | head`, is not an error.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error)),
        _ => Ok(()),
    }
}

fn invalid<T>(parsed: Result<T, ConfigError>) -> Result<T, Failure> {
    parsed.map_err(|error| {
        let exit_code = error.exit_code();
        (error.into(), exit_code)
    })
}

fn failed(error: impl Error + 'static) -> Failure {
    (error.into(), 1)
}
