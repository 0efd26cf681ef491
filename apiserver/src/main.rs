//! The `revstore-apiserver` binary.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use revstore_apiserver::Invocation;
use revstore_control::ctl;

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
    // The name in a directory of binaries for envtest.
    let invocation = if program
        .file_name()
        .is_some_and(|name| name == "kube-apiserver")
    {
        revstore_apiserver::parse_in_place(arguments, env::vars_os())
    } else {
        revstore_apiserver::parse(arguments, env::vars_os())
    };
    let invocation = match invocation {
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
