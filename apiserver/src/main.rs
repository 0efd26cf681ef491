//! The `revstore-apiserver` binary.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use revstore_apiserver::Invocation;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let invocation = match revstore_apiserver::parse(env::args_os().skip(1), env::vars_os()) {
        Ok(invocation) => invocation,
        Err(error) => {
            report(&error);
            return ExitCode::from(error.exit_code());
        }
    };
    let result: Result<(), Box<dyn Error>> = match invocation {
        Invocation::Print(text) => io::stdout().write_all(text.as_bytes()).map_err(Into::into),
        Invocation::Serve { config, warnings } => match revstore_apiserver::run(*config, &warnings)
        {
            Ok(signal) => signal.exit(),
            Err(error) => Err(error.into()),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&*error);
            ExitCode::FAILURE
        }
    }
}

fn report(error: &dyn Error) {
    let _ = writeln!(io::stderr(), "revstore-apiserver: {error}");
}
