//! A real etcd, the reference of all comparisons with revstore.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use tempfile::TempDir;

use crate::process::{Failure, OutputStream, Process, free_port};
use crate::server::{Endpoint, Options};
use crate::tools::Tool;

/// The maximum number of attempts to start etcd. An attempt fails if another process takes the port first.
const PORT_ATTEMPTS: usize = 5;

/// The name of the data directory inside the temporary directory of an etcd.
pub const DATA: &str = "default.etcd";

/// A running etcd with its own data directory and its own loopback ports.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    address: SocketAddr,
    // Dropped after the process, which writes into it.
    _data: TempDir,
}

impl Etcd {
    /// Starts an etcd with an empty store and waits until it serves requests.
    ///
    /// etcd listens on port 0 and logs the allocated port, so two servers never compete for a port. With
    /// [`Options::json_gateway`], the port is chosen before the start.
    ///
    /// # Errors
    /// If etcd is missing or does not become ready.
    pub fn start(options: &Options) -> io::Result<Self> {
        for _ in 1..PORT_ATTEMPTS {
            match Self::attempt(options, data_dir()?)? {
                Err(failure) if failure.stderr().contains("address already in use") => {}
                result => return result.map_err(io::Error::other),
            }
        }
        Self::attempt(options, data_dir()?)?.map_err(io::Error::other)
    }

    /// Starts an etcd on the directory [`DATA`] of `data`, which another etcd or `etcdctl snapshot restore`
    /// has written.
    ///
    /// # Errors
    /// If etcd is missing or does not become ready.
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
        let ready = if options.tls_flags.is_empty() {
            ready(&mut process)
        } else {
            process.wait_for_output(OutputStream::Stderr, client_address)
        };
        Ok(ready.map(|address| Self {
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
        self.process.output(OutputStream::Stderr)
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
    // Each variable ETCD_* would be a flag to etcd.
    command.env_clear();
    command.arg("--data-dir").arg(data.path().join(DATA));
    command.arg("--unsafe-no-fsync=true");
    command.args(options.flags(port));
    Ok(command)
}

/// Waits until the server serves requests and has set its cluster version. Setting the version adds an entry
/// to the raft log, and tests count the entries.
fn ready(process: &mut Process) -> Result<SocketAddr, Failure> {
    let address = process.wait_for_output(OutputStream::Stderr, client_address)?;
    process.wait_for_http(address, "/version", |body| !body.contains("not_decided"))?;
    Ok(address)
}

/// Returns the address in the log line "serving client traffic".
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
    fn the_address_is_read_from_a_complete_line_only() {
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
