//! A server under test: started on free ports, killed on drop.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, io};

use tempfile::TempDir;
use tokio::time::{self, Instant};

use crate::BoxError;
use crate::client::Clients;

/// The longest time until a server responds to its first request.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// The time between two attempts to send the first request.
const START_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A file system in memory, so that disks do not affect the measurements other than those of the journal.
const MEMORY_DIR: &str = "/dev/shm";

/// An implementation of the server, with the path of its binary.
#[derive(Clone, Debug)]
pub(crate) enum ServerKind {
    /// revstore.
    Revstore(PathBuf),
    /// revstore with a journal, and the value of `--persist-fsync`.
    Persisted(PathBuf, &'static str),
    /// Another build of revstore.
    Before(PathBuf),
    /// The null server: this program.
    Null,
    /// etcd with its data in memory and without `fsync`.
    Etcd(PathBuf),
    /// `mem_etcd` without its write-ahead log.
    MemEtcd(PathBuf),
    /// kine: etcd's API for kube-apiserver over `SQLite`.
    Kine(PathBuf),
}

impl ServerKind {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Revstore(_) => "revstore",
            Self::Persisted(..) => "persist",
            Self::Before(_) => "before",
            Self::Null => "null",
            Self::Etcd(_) => "etcd",
            Self::MemEtcd(_) => "mem_etcd",
            Self::Kine(_) => "kine",
        }
    }

    fn command(&self, client_port: u16, peer_port: u16, dir: &Path) -> io::Result<Command> {
        let client_url = format!("http://127.0.0.1:{client_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let with_etcd_flags = |binary: &Path| {
            let mut command = Command::new(binary);
            command
                .args(["--name", "bench", "--log-level", "error"])
                .args(["--quota-backend-bytes", "17179869184"])
                .args(["--listen-client-urls", &client_url])
                .args(["--advertise-client-urls", &client_url])
                .args(["--listen-peer-urls", &peer_url])
                .args(["--initial-advertise-peer-urls", &peer_url])
                .args(["--initial-cluster", &format!("bench={peer_url}")])
                .arg("--data-dir")
                .arg(dir.join("data"));
            command
        };
        Ok(match self {
            Self::Revstore(binary) | Self::Before(binary) => with_etcd_flags(binary),
            Self::Persisted(binary, fsync) => {
                let mut command = with_etcd_flags(binary);
                command.args(["--persist", "--persist-fsync", fsync]);
                command
            }
            Self::Etcd(binary) => {
                let mut command = with_etcd_flags(binary);
                command.arg("--unsafe-no-fsync");
                command
            }
            Self::MemEtcd(binary) => {
                let mut command = Command::new(binary);
                command
                    .args(["--port", &client_port.to_string()])
                    .args(["--metrics-port", &peer_port.to_string()])
                    .args(["--wal-default", "none", "--wal-dir"])
                    .arg(dir);
                command
            }
            Self::Kine(binary) => {
                let mut command = Command::new(binary);
                let database = dir.join("kine.db");
                command
                    .args([
                        "--listen-address",
                        &format!("tcp://127.0.0.1:{client_port}"),
                    ])
                    .args(["--metrics-bind-address", "0"])
                    .arg("--endpoint")
                    .arg(format!(
                        "sqlite://{}?_journal=WAL&cache=shared",
                        database.display()
                    ));
                command
            }
            Self::Null => {
                let mut command = Command::new(env::current_exe()?);
                command.args(["null", "--listen", &format!("127.0.0.1:{client_port}")]);
                command
            }
        })
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct TestedServer {
    kind: ServerKind,
    process: Child,
    endpoint: String,
    start_time: Duration,
    /// The data directory, removed on drop.
    _dir: TempDir,
}

impl TestedServer {
    /// Starts a server and waits until it responds to a request.
    pub(crate) async fn start(kind: &ServerKind) -> Result<Self, BoxError> {
        Self::start_polling(kind, START_POLL_INTERVAL).await
    }

    /// Starts a server and sends it a request every `pause` until it responds to one.
    pub(crate) async fn start_polling(
        kind: &ServerKind,
        pause: Duration,
    ) -> Result<Self, BoxError> {
        let memory = Path::new(MEMORY_DIR);
        let is_on_disk = matches!(kind, ServerKind::Persisted(..));
        let dir = if memory.is_dir() && !is_on_disk {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        }?;
        let [client_port, peer_port] = free_ports()?;
        let mut command = kind.command(client_port, peer_port, dir.path())?;
        let started = Instant::now();
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", kind.name()))?;
        let mut server = Self {
            kind: kind.clone(),
            process,
            endpoint: format!("http://127.0.0.1:{client_port}"),
            start_time: Duration::ZERO,
            _dir: dir,
        };
        let deadline = started + START_TIMEOUT;
        while !server.responds().await {
            if let Some(status) = server.process.try_wait()? {
                return Err(format!("{} ended at start: {status}", kind.name()).into());
            }
            if Instant::now() > deadline {
                return Err(format!("{} does not respond to requests", kind.name()).into());
            }
            time::sleep(pause).await;
        }
        server.start_time = started.elapsed();
        Ok(server)
    }

    async fn responds(&self) -> bool {
        match Clients::connect(&self.endpoint, 1).await {
            Ok(clients) => clients.revision().await.is_ok(),
            Err(_) => false,
        }
    }

    pub(crate) fn kind(&self) -> &ServerKind {
        &self.kind
    }

    /// Returns the time from the start of the process to its first response.
    pub(crate) fn start_time(&self) -> Duration {
        self.start_time
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for TestedServer {
    fn drop(&mut self) {
        // Both fail if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns two free ports. If another program takes one of them first, the server fails to start.
fn free_ports() -> io::Result<[u16; 2]> {
    let sockets = [
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
    ];
    Ok([
        sockets[0].local_addr()?.port(),
        sockets[1].local_addr()?.port(),
    ])
}
