//! The `revstore` binary: arguments in, exit status out.

use std::{
    env,
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use revstore::Invocation;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
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
            Ok(signal) => signal.die(),
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

/// A reader that has seen enough, as `--help | head` has, is no failure.
fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Tells the user something before, or without, a log. There is nothing to be done if even that
/// fails.
fn report(what: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{what}");
}
