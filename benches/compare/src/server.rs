//! A server under test: started on free ports, stopped when it is dropped.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, io};

use tempfile::TempDir;
use tokio::time::{self, Instant};

use crate::Failure;
use crate::client::Clients;

/// How long a server may take to answer its first request.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Between two looks whether it does.
const START_PAUSE: Duration = Duration::from_millis(20);

/// Where files live in memory, so that no disk is measured.
const MEMORY_DIR: &str = "/dev/shm";

/// Which server.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Ours.
    Revstore(PathBuf),
    /// Ours, as another build.
    Before(PathBuf),
    /// The one that stores nothing.
    Null,
    /// The real one, with its data in memory and without waiting for it.
    Etcd(PathBuf),
    /// The fastest peer that we know, without its log.
    MemEtcd(PathBuf),
    /// kine: etcd's API for kube-apiserver over `SQLite`.
    Kine(PathBuf),
}

impl Kind {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Revstore(_) => "revstore",
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
        let like_etcd = |binary: &Path| {
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
            Self::Revstore(binary) | Self::Before(binary) => like_etcd(binary),
            Self::Etcd(binary) => {
                let mut command = like_etcd(binary);
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
pub(crate) struct Server {
    kind: Kind,
    process: Child,
    endpoint: String,
    start_time: Duration,
    /// Goes with the server.
    _dir: TempDir,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub(crate) async fn start(kind: &Kind) -> Result<Self, Failure> {
        Self::start_polling(kind, START_PAUSE).await
    }

    /// Starts a server and tries to send it a request every `pause` until it answers one.
    pub(crate) async fn start_polling(kind: &Kind, pause: Duration) -> Result<Self, Failure> {
        let memory = Path::new(MEMORY_DIR);
        let dir = if memory.is_dir() {
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
        while !server.answers().await {
            if let Some(status) = server.process.try_wait()? {
                return Err(format!("{} ended at once: {status}", kind.name()).into());
            }
            if Instant::now() > deadline {
                return Err(format!("{} does not answer", kind.name()).into());
            }
            time::sleep(pause).await;
        }
        server.start_time = started.elapsed();
        Ok(server)
    }

    async fn answers(&self) -> bool {
        match Clients::connect(&self.endpoint, 1).await {
            Ok(clients) => clients.revision().await.is_ok(),
            Err(_) => false,
        }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The time from starting the process to its first response.
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

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ports that were free a moment ago. If somebody takes one meanwhile, the server says so and ends.
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
