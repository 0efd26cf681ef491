//! A real etcd, the one that everything else is compared with.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use tempfile::TempDir;

use crate::process::{Failure, Process, Stream, free_port};
use crate::server::{Endpoint, Options};
use crate::tools::Tool;

/// How often a start is tried when the port that was free is taken by the time etcd wants it.
const PORT_ATTEMPTS: usize = 5;

/// Where in its directory an etcd has its data.
pub const DATA: &str = "default.etcd";

/// A running etcd with a data directory of its own, on loopback ports of its own.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    address: SocketAddr,
    // Dropped after the process, which writes there.
    _data: TempDir,
}

impl Etcd {
    /// Starts an etcd with an empty store and waits until it serves requests.
    ///
    /// It is told to take port 0 and the port is read from its log, so two servers never compete
    /// for one; only with [`Options::json_gateway`] a free port is looked for beforehand.
    ///
    /// # Errors
    /// When etcd is missing or does not get ready.
    pub fn start(options: &Options) -> io::Result<Self> {
        for _ in 1..PORT_ATTEMPTS {
            match Self::attempt(options, data_dir()?)? {
                Err(failure) if failure.stderr().contains("address already in use") => {}
                result => return result.map_err(io::Error::other),
            }
        }
        Self::attempt(options, data_dir()?)?.map_err(io::Error::other)
    }

    /// Starts an etcd with what another one, or `etcdctl snapshot restore`, has left in the directory
    /// [`DATA`] of `data`.
    ///
    /// # Errors
    /// When etcd is missing or does not get ready.
    pub fn start_on(data: TempDir) -> io::Result<Self> {
        Self::attempt(&Options::default(), data)?.map_err(io::Error::other)
    }

    fn attempt(options: &Options, data: TempDir) -> io::Result<Result<Self, Failure>> {
        let port = if options.json_gateway {
            free_port()?
        } else {
            0
        };
        let mut process = Process::spawn(command(options, port, &data)?)?;
        Ok(ready(&mut process).map(|address| Self {
            process,
            address,
            _data: data,
        }))
    }
}

impl Endpoint for Etcd {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn logs(&self) -> String {
        self.process.output(Stream::Stderr)
    }
}

fn data_dir() -> io::Result<TempDir> {
    TempDir::with_prefix("revstore-tests-etcd-")
}

fn command(options: &Options, port: u16, data: &TempDir) -> io::Result<Command> {
    let program = Tool::Etcd
        .locate()
        .map_err(|missing| io::Error::new(io::ErrorKind::NotFound, missing.to_string()))?;
    let mut command = Command::new(program);
    // Each ETCD_* variable is a flag to etcd.
    command.env_clear();
    command.arg("--data-dir").arg(data.path().join(DATA));
    command.arg("--unsafe-no-fsync=true");
    command.args(options.flags(port));
    Ok(command)
}

/// Waits until the server answers and has finished what it does by itself after a start: setting
/// the cluster version is a write to the raft log, which tests count the entries of.
fn ready(process: &mut Process) -> Result<SocketAddr, Failure> {
    let address = process.wait_for_output(Stream::Stderr, client_address)?;
    process.wait_for_http(address, "/version", |body| !body.contains("not_decided"))?;
    Ok(address)
}

/// The address in the log line that says that clients are served.
fn client_address(log: &str) -> Option<SocketAddr> {
    let line = log
        .split_inclusive('\n')
        .find(|line| line.contains("serving client traffic") && line.ends_with('\n'))?;
    let (_, rest) = line.split_once(r#""address":""#)?;
    rest.split('"').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_address_from_a_whole_line_only() {
        let line = concat!(
            r#"{"level":"info","msg":"serving peer traffic","address":"127.0.0.1:1"}"#,
            "\n",
            r#"{"msg":"serving client traffic insecurely; this is strongly discouraged!","#,
            r#""traffic":"grpc+http","address":"127.0.0.1:33397"}"#,
        );
        assert_eq!(client_address(line), None);
        assert_eq!(
            client_address(&format!("{line}\n")),
            Some(([127, 0, 0, 1], 33397).into())
        );
    }
}
