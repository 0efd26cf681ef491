//! The server under test: a process that is stopped, killed and started again at the same address.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::BoxError;
use crate::server::authority::Authority;

/// The time limit of a start and of a stop.
const LIMIT: Duration = Duration::from_secs(60);

/// The time between two looks at a process.
const INTERVAL: Duration = Duration::from_millis(10);

/// How the server is started.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) binary: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) address: SocketAddr,
    /// Whether what was acknowledged is there after a restart.
    pub(crate) is_durable: bool,
    /// Whether it is a real etcd.
    pub(crate) is_etcd: bool,
    further: Vec<OsString>,
}

impl Setup {
    /// Chooses an address that is free now.
    pub(crate) fn new(
        binary: &Path,
        directory: &Path,
        is_durable: bool,
        further: &[OsString],
    ) -> Result<Self, BoxError> {
        let version = Command::new(binary).arg("--version").output();
        let version = version.map_err(|error| format!("{}: {error}", binary.display()))?;
        let is_etcd = !String::from_utf8_lossy(&version.stdout).contains("revstore");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok(Self {
            binary: binary.to_owned(),
            directory: directory.to_owned(),
            address: listener.local_addr()?,
            is_durable: is_durable || is_etcd,
            is_etcd,
            further: further.to_vec(),
        })
    }

    fn command(&self, authority: &Authority) -> io::Result<Command> {
        let url = format!("https://{}", self.address);
        let file = |name: &str| authority.path(name).into_os_string();
        let mut command = Command::new(&self.binary);
        let mut flag = |name: &str, value: OsString| {
            command.arg(name).arg(value);
        };
        flag("--name", "soak".into());
        flag("--listen-client-urls", url.clone().into());
        flag("--advertise-client-urls", url.into());
        flag("--listen-peer-urls", "http://127.0.0.1:0".into());
        flag("--cert-file", file("server.pem"));
        flag("--key-file", file("server.pem"));
        flag("--trusted-ca-file", file("ca.crt"));
        flag("--client-crl-file", file("revoked.crl"));
        flag("--data-dir", self.directory.join("data").into());
        flag("--quota-backend-bytes", "8589934592".into());
        command.arg("--client-cert-auth");
        if self.is_durable && !self.is_etcd {
            command.args(["--persist", "--persist-fsync", "always"]);
        }
        command.args(&self.further);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("server.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?);
        command.stderr(log);
        Ok(command)
    }
}

/// A running server. Dropping the value kills it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
}

/// The resources that a server uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) rss_mib: u64,
    pub(crate) descriptors: u64,
}

impl Server {
    /// Starts a server; returns when it accepts connections.
    pub(crate) async fn start(setup: &Setup, authority: &Authority) -> Result<Self, BoxError> {
        let child = setup.command(authority)?.spawn()?;
        let mut server = Self { child };
        let deadline = Instant::now() + LIMIT;
        while tokio::net::TcpStream::connect(setup.address).await.is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("the server ended at its start: {status}").into());
            }
            if Instant::now() > deadline {
                return Err("the server did not start".into());
            }
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(server)
    }

    fn pid(&self) -> Result<Pid, BoxError> {
        Ok(Pid::from_raw(i32::try_from(self.child.id())?))
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) -> Result<(), BoxError> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks the process to end, and waits for that.
    pub(crate) async fn terminate(&mut self) -> Result<ExitStatus, BoxError> {
        kill(self.pid()?, Signal::SIGTERM)?;
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err("the server did not end after SIGTERM".into());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Returns whether the process has ended by itself.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, BoxError> {
        Ok(self.child.try_wait()?)
    }

    pub(crate) fn usage(&self) -> Result<Usage, BoxError> {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = fs::read_to_string(process.join("status"))?;
        let rss = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
        let kib: u64 = rss
            .and_then(|it| it.trim().strip_suffix(" kB"))
            .ok_or("no resident size")?
            .parse()?;
        Ok(Usage {
            rss_mib: kib / 1024,
            descriptors: fs::read_dir(process.join("fd"))?.count() as u64,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
