//! An API server under test: started here and killed on drop, or one that runs already.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::BoxError;
use crate::cpu_time::cpu_time;
use crate::kube::client::{Call, Connection, Target, Version};
use crate::summary::resident_bytes;

/// An API server to measure.
#[derive(Clone, Debug)]
pub(crate) enum ServerKind {
    /// A binary that is started for each run.
    Binary(&'static str, PathBuf),
    /// A server that runs already, with the processes that it consists of.
    Running { target: Target, pids: Vec<u32> },
}

impl ServerKind {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Binary(name, _) => name,
            Self::Running { .. } => "reference",
        }
    }
}

/// A running API server.
#[derive(Debug)]
pub(crate) struct ApiServer {
    pub(crate) name: &'static str,
    pub(crate) target: Target,
    /// The time from the start of the process to the first response of `/readyz`; zero if it was started elsewhere.
    pub(crate) start_time: Duration,
    pids: Vec<u32>,
    process: Option<Child>,
}

impl ApiServer {
    /// Starts a server, and waits until it is ready.
    pub(crate) async fn start(kind: &ServerKind) -> Result<Self, BoxError> {
        let name = kind.name();
        match kind {
            ServerKind::Binary(_, binary) => Self::start_binary(name, binary, &[]).await,
            ServerKind::Running { target, pids } => Ok(Self {
                name,
                target: target.clone(),
                start_time: Duration::ZERO,
                pids: pids.clone(),
                process: None,
            }),
        }
    }

    /// Starts a binary with further flags, and waits until it is ready.
    pub(crate) async fn start_binary(
        name: &'static str,
        binary: &Path,
        flags: &[String],
    ) -> Result<Self, BoxError> {
        let started = Instant::now();
        let process = Command::new(binary)
            .args(["--secure-port=0", "--controllers=none"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let mut server = Self {
            name,
            target: Target {
                url: String::new(),
                token: String::new(),
            },
            start_time: Duration::ZERO,
            pids: vec![process.id()],
            process: Some(process),
        };
        let output = server.process.as_mut().and_then(|it| it.stdout.take());
        let mut line = String::new();
        BufReader::new(output.ok_or("no output")?).read_line(&mut line)?;
        let mut words = line.split_whitespace().skip(2);
        let (url, kubeconfig) = (words.next(), words.next());
        let kubeconfig = std::fs::read_to_string(kubeconfig.ok_or("the server is not ready")?)?;
        let token = kubeconfig
            .lines()
            .find_map(|line| line.trim().strip_prefix("token: "));
        server.target = Target {
            url: url.unwrap_or_default().to_owned(),
            token: token.ok_or("a kubeconfig without a token")?.to_owned(),
        };
        let mut connection = server.connect(Version::Http2).await?;
        connection.call(Call::get("/readyz")).await?;
        server.start_time = started.elapsed();
        Ok(server)
    }

    pub(crate) async fn connect(&self, version: Version) -> Result<Connection, BoxError> {
        Connection::open(&self.target, version).await
    }

    /// Returns the CPU time of all processes of the server.
    pub(crate) fn cpu_time(&self) -> Result<Duration, BoxError> {
        let mut total = Duration::ZERO;
        for pid in &self.pids {
            total += cpu_time(*pid).ok_or("a process of the server does not exist")?;
        }
        Ok(total)
    }

    /// Returns how often the threads of all processes of the server have gone to sleep.
    pub(crate) fn thread_switches(&self) -> Result<u64, BoxError> {
        let mut total = 0;
        for pid in &self.pids {
            for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
                let status = std::fs::read_to_string(thread?.path().join("status"))?;
                let count = status
                    .lines()
                    .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
                total += count
                    .ok_or("no voluntary_ctxt_switches")?
                    .trim()
                    .parse::<u64>()?;
            }
        }
        Ok(total)
    }

    /// Returns the resident memory of all processes of the server, in MiB.
    pub(crate) fn resident_mebibytes(&self) -> Result<f64, BoxError> {
        let mut total = 0;
        for pid in &self.pids {
            total += resident_bytes(*pid)?;
        }
        #[expect(clippy::cast_precision_loss, reason = "some billions")]
        Ok(total as f64 / f64::from(1 << 20))
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Both fail if the process has already ended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
