//! The `revstore` binary.

use std::{
    env,
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use revstore::{Invocation, control::ctl};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(arguments) = ctl::arguments_of(env::args_os()) {
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
