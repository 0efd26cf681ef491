//! The `revstore` binary.

use std::{
    env,
    error::Error,
    ffi::OsString,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use revstore::{Invocation, control::ctl};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(arguments) = ctl_arguments(env::args_os()) {
        let url = env::var(ctl::URL_VARIABLE).ok();
        return ExitCode::from(ctl::run(arguments, url.as_deref()));
    }
    let invocation = match revstore::parse(env::args_os().skip(1), env::vars_os()) {
        Ok(invocation) => invocation,
        Err(error) => {
            report(&error);
            return ExitCode::from(error.exit_code());
        }
    };
    let result: Result<(), Box<dyn Error>> = match invocation {
        Invocation::Print(text) => print(&text).map_err(Into::into),
        Invocation::Serve { config, warnings } => match revstore::run(&config, &warnings) {
            Ok(signal) => signal.exit_by_signal(),
            Err(error) => Err(error.into()),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

/// Returns the arguments of `revstore ctl`. A binary that stands in for etcd has no subcommands that etcd does not have.
fn ctl_arguments(arguments: impl IntoIterator<Item = OsString>) -> Option<Vec<OsString>> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next()?;
    let program = Path::new(&program).file_stem();
    if program.is_some_and(|program| program == "etcd" || program == "kube-apiserver") {
        return None;
    }
    (arguments.next()? == "ctl").then(|| arguments.collect())
}

/// Writes to standard output. A closed pipe, as after `--help | head`, is not an error.
fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes an error to standard error, because the log may not be open. A failure to write is ignored, because
/// it cannot be reported.
fn report(error: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{error}");
}
