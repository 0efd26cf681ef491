//! The stock `etcdctl`, run against one server.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::poll;
use crate::process::{Failure, Process, Stream};
use crate::server::{Endpoint, Options, Servers};
use crate::tools::Tool;
use crate::transcript;

/// `etcdctl` with the endpoint of a server.
#[derive(Debug, Clone)]
pub struct Etcdctl {
    program: &'static Path,
    endpoint: String,
}

/// What a finished `etcdctl` left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error without the client library's log, which has times and addresses in it.
    pub stderr: String,
}

impl Etcdctl {
    /// An `etcdctl` that talks to the server at `address`.
    ///
    /// # Errors
    /// `NotFound` when the program is missing.
    pub fn new(address: SocketAddr) -> io::Result<Self> {
        Self::at(address.to_string())
    }

    /// An `etcdctl` that talks to a server at an endpoint of any kind, such as `unix:///path`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn at(endpoint: impl Into<String>) -> io::Result<Self> {
        let program = Tool::Etcdctl
            .locate()
            .map_err(|missing| io::Error::new(io::ErrorKind::NotFound, missing.to_string()))?;
        Ok(Self {
            program,
            endpoint: endpoint.into(),
        })
    }

    /// Where the server is, in the form that `etcdctl` prints it.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Runs `etcdctl` with `arguments` to its end and gives it `stdin` to read.
    ///
    /// # Errors
    /// When it cannot be started, or does not end within [`poll::LIMIT`].
    pub fn run(&self, arguments: &[&str], stdin: &str) -> io::Result<Output> {
        let mut process = self.start(arguments)?;
        match process.send(stdin) {
            // A command that does not read its input may have ended already.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => process.close_stdin(),
        }
        let status = process
            .wait_for_exit(poll::LIMIT)
            .map_err(io::Error::other)?;
        Ok(Output {
            code: status.code(),
            stdout: process.output(Stream::Stdout),
            stderr: without_log(&process.output(Stream::Stderr)),
        })
    }

    /// Starts `etcdctl` with `arguments`, for commands that go on until they are killed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, arguments: &[&str]) -> io::Result<Process> {
        let limit = poll::LIMIT.as_secs();
        let mut command = Command::new(self.program);
        // No ETCDCTL_* variable of the developer gets through; PATH is for `watch -- command`.
        command.env_clear().env("ETCDCTL_API", "3");
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
            .arg(format!("--endpoints={}", self.endpoint))
            .arg(format!("--dial-timeout={limit}s"))
            .arg(format!("--command-timeout={limit}s"))
            .args(arguments);
        Process::spawn(command)
    }
}

/// Removes the JSON lines that the client library logs.
fn without_log(stderr: &str) -> String {
    stderr
        .split_inclusive('\n')
        .filter(|line| !line.starts_with(r#"{"level":"#))
        .collect()
}

/// A fresh server and an `etcdctl` for it: what most cases want.
#[derive(Debug)]
pub struct Session {
    server: Box<dyn Endpoint>,
    ctl: Etcdctl,
}

impl Session {
    /// Starts a fresh server of the given kind.
    ///
    /// # Panics
    /// When the server does not start or `etcdctl` is missing.
    #[must_use]
    pub fn fresh(servers: &Servers) -> Self {
        Self::with(servers, &Options::default())
    }

    /// Starts a fresh server of the given kind with `options`.
    ///
    /// # Panics
    /// When the server does not start or `etcdctl` is missing.
    #[must_use]
    pub fn with(servers: &Servers, options: &Options) -> Self {
        let server = servers.fresh(options);
        match Etcdctl::new(server.address()) {
            Ok(ctl) => Self { server, ctl },
            Err(error) => panic!("{error}"),
        }
    }

    /// Where the server is.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Replays a session with `etcdctl`, as described at [`transcript`].
    ///
    /// # Panics
    /// When it does not go as written.
    #[track_caller]
    pub fn replay(&self, text: &str) {
        if let Err(mismatch) = transcript::replay(&self.ctl, text) {
            self.fail(&mismatch.to_string());
        }
    }

    /// Runs one command to its end, whatever its outcome.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    #[must_use]
    pub fn run(&self, arguments: &[&str], stdin: &str) -> Output {
        match self.ctl.run(arguments, stdin) {
            Ok(output) => output,
            Err(error) => self.fail(&error.to_string()),
        }
    }

    /// Runs one command that has to succeed and returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    #[must_use]
    pub fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments, "");
        if output.code != Some(0) {
            self.fail(&format!("{arguments:?} failed: {output:#?}"));
        }
        output.stdout
    }

    /// Starts a command that goes on until the process is dropped.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn start(&self, arguments: &[&str]) -> Process {
        match self.ctl.start(arguments) {
            Ok(process) => process,
            Err(error) => self.fail(&error.to_string()),
        }
    }

    /// The value of `result`, or a panic that shows the failure and the server's log.
    ///
    /// # Panics
    /// When `result` is an error.
    #[track_caller]
    pub fn expect<T>(&self, result: Result<T, Failure>) -> T {
        match result {
            Ok(value) => value,
            Err(failure) => self.fail(&failure.to_string()),
        }
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("{what}\n--- the server's log:\n{}", self.server.logs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_log_is_no_part_of_the_output() {
        let stderr = concat!(
            r#"{"level":"warn","ts":"2026","msg":"retrying of unary invoker failed"}"#,
            "\nError: etcdserver: key is not provided\n"
        );
        assert_eq!(
            without_log(stderr),
            "Error: etcdserver: key is not provided\n"
        );
    }
}
