//! Runs of etcd's command line client `etcdctl`.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::poll;
use crate::process::{Failure, OutputStream, Process};
use crate::server::{Endpoint, Options, Servers};
use crate::tools::Tool;
use crate::transcript;

/// `etcdctl` with the endpoint of a server.
#[derive(Debug, Clone)]
pub struct Etcdctl {
    program: &'static Path,
    endpoint: String,
}

/// The result of an `etcdctl` that has exited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit code; `None` if a signal ended the process.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error without the log of the client library, which contains times and addresses.
    pub stderr: String,
}

impl Etcdctl {
    /// Returns an `etcdctl` for the server at `address`.
    ///
    /// # Errors
    /// `NotFound` if the program is missing.
    pub fn new(address: SocketAddr) -> io::Result<Self> {
        Self::at(address.to_string())
    }

    /// Returns an `etcdctl` for an endpoint in any form, such as `unix:///path`.
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

    /// Returns the endpoint of the server in the form that `etcdctl` prints.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Runs `etcdctl` with `arguments` and the standard input `stdin` until it exits.
    ///
    /// # Errors
    /// If it cannot be started or does not exit within [`poll::LIMIT`].
    pub fn run(&self, arguments: &[&str], stdin: &str) -> io::Result<Output> {
        let mut process = self.start(arguments)?;
        match process.send(stdin) {
            // A command that does not read its input may have exited already.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => process.close_stdin(),
        }
        let status = process
            .wait_for_exit(poll::LIMIT)
            .map_err(io::Error::other)?;
        Ok(Output {
            code: status.code(),
            stdout: process.output(OutputStream::Stdout),
            stderr: without_log(&process.output(OutputStream::Stderr)),
        })
    }

    /// Starts `etcdctl` with `arguments`, for commands that run until they are killed.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self, arguments: &[&str]) -> io::Result<Process> {
        let limit = poll::LIMIT.as_secs();
        let mut command = Command::new(self.program);
        // The developer's variables ETCDCTL_* are not passed on. `watch -- command` needs PATH.
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

/// Removes the JSON lines of the client library's log.
fn without_log(stderr: &str) -> String {
    stderr
        .split_inclusive('\n')
        .filter(|line| !line.starts_with(r#"{"level":"#))
        .collect()
}

/// A new server and an `etcdctl` for it.
#[derive(Debug)]
pub struct Session {
    server: Box<dyn Endpoint>,
    ctl: Etcdctl,
}

impl Session {
    /// Starts a new server of the given kind.
    ///
    /// # Panics
    /// If the server does not start or `etcdctl` is missing.
    #[must_use]
    pub fn fresh(servers: &Servers) -> Self {
        Self::with(servers, &Options::default())
    }

    /// Starts a new server of the given kind with `options`.
    ///
    /// # Panics
    /// If the server does not start or `etcdctl` is missing.
    #[must_use]
    pub fn with(servers: &Servers, options: &Options) -> Self {
        let server = servers.fresh(options);
        match Etcdctl::new(server.address()) {
            Ok(ctl) => Self { server, ctl },
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Replays a session with `etcdctl`, in the format of [`transcript`].
    ///
    /// # Panics
    /// If the output or the exit code of a command differs from the session.
    #[track_caller]
    pub fn replay(&self, text: &str) {
        if let Err(mismatch) = transcript::replay(&self.ctl, text) {
            self.fail(&mismatch.to_string());
        }
    }

    /// Runs one command until it exits, with any exit code.
    ///
    /// # Panics
    /// If it does not exit.
    #[track_caller]
    #[must_use]
    pub fn run(&self, arguments: &[&str], stdin: &str) -> Output {
        match self.ctl.run(arguments, stdin) {
            Ok(output) => output,
            Err(error) => self.fail(&error.to_string()),
        }
    }

    /// Runs one command that must succeed and returns its standard output.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    #[must_use]
    pub fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments, "");
        if output.code != Some(0) {
            self.fail(&format!("{arguments:?} failed: {output:#?}"));
        }
        output.stdout
    }

    /// Starts a command that runs until the process is dropped.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn start(&self, arguments: &[&str]) -> Process {
        match self.ctl.start(arguments) {
            Ok(process) => process,
            Err(error) => self.fail(&error.to_string()),
        }
    }

    /// Returns the value of `result`.
    ///
    /// # Panics
    /// If `result` is an error; the message shows it and the log of the server.
    #[track_caller]
    pub fn expect<T>(&self, result: Result<T, Failure>) -> T {
        match result {
            Ok(value) => value,
            Err(failure) => self.fail(&failure.to_string()),
        }
    }

    #[track_caller]
    fn fail(&self, message: &str) -> ! {
        panic!("{message}\n--- the server's log:\n{}", self.server.logs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_the_client_is_removed() {
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
