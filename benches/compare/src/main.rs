//! A comparison of revstore with etcd, `mem_etcd`, and the null server, which stores nothing: its
//! cost is the cost of the transport.
//!
//! `run` starts the servers whose binaries exist, puts the same load on each, and prints the CPU
//! time of the server per operation as Markdown. CPU time is the figure to compare where client and
//! server share a machine; rates and latencies are printed too. `scaling` plots the cost of the
//! engine's operations by the number of keys, watches and revisions.
//!
//! | module | contents |
//! |---|---|
//! | `server` | a server under test: start, readiness, stop |
//! | `null` | the null server |
//! | `client` | connections, and requests in a closed loop |
//! | `watchers` | watch streams that count the received events |
//! | `cpu_time` | the CPU time of a process |
//! | `heavy` | heavy loads beside a bystander |
//! | `bystander` | clients that measure how long small requests take beside a load |
//! | `kube` | load on Kubernetes API servers |
//! | `persist` | the cost of the journal |
//! | `scenario` | the rows of the table: load, unit and target |
//! | `report` | medians as Markdown tables |
//! | `plot` | medians and curves as SVG |
//! | `scaling` | measurements of the engine by its size |
//! | `summary` | the table of the README |

mod bystander;
mod client;
mod cpu_time;
mod heavy;
mod kube;
mod null;
mod persist;
mod plot;
mod report;
mod scaling;
mod scenario;
mod server;
mod summary;
mod watchers;

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tokio::runtime;

use crate::report::Report;
use crate::scenario::{SCENARIOS, is_selected};
use crate::server::{ServerKind, TestedServer};

/// An error that is only printed.
type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Debug, Parser)]
#[command(about = "Compares revstore with etcd, mem_etcd and a null server, which stores nothing")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare the servers.
    Run(RunCommand),
    /// Measure small requests beside heavy loads.
    Heavy(HeavyCommand),
    /// Measure Kubernetes API servers: start, memory, CPU time per operation.
    Kube(kube::KubeCommand),
    /// Measure small requests to Kubernetes API servers beside heavy loads.
    KubeHeavy(kube::KubeHeavyCommand),
    /// Measure what many roles and bindings cost a request to a Kubernetes API server.
    KubeAuthorization(kube::KubeAuthorizationCommand),
    /// Measure what a call of a webhook costs a write to a Kubernetes API server.
    KubeWebhook(kube::KubeWebhookCommand),
    /// Measure puts without a journal, and with each policy of `--persist-fsync`.
    Persist(PersistCommand),
    /// Run the null server, which stores nothing.
    Null {
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Measure the comparison table of the README.
    Summary(SummaryCommand),
    /// Plot the cost of the engine's operations by the size of the store.
    Scaling {
        /// The directory for the plots.
        #[arg(long, default_value = "benches/plots")]
        out: PathBuf,
    },
}

/// The servers to measure.
#[derive(Debug, clap::Args)]
struct Binaries {
    /// The binary of revstore [default: the one in the directory of this program].
    #[arg(long)]
    revstore: Option<PathBuf>,
    /// The binary of etcd, left out if it does not exist [default: $ETCD, then
    /// tests/.tools/bin/etcd].
    #[arg(long)]
    etcd: Option<PathBuf>,
    /// The binary of `mem_etcd`, left out if not given.
    #[arg(long)]
    mem_etcd: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct RunCommand {
    #[command(flatten)]
    binaries: Binaries,
    /// The binary of another build of revstore, usually from before a change.
    #[arg(long)]
    before: Option<PathBuf>,
    /// The number of runs, each with newly started servers; the report shows medians.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Run only scenarios whose names contain one of these texts.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The file for the plot [default: no plot].
    #[arg(long)]
    svg: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct HeavyCommand {
    #[command(flatten)]
    binaries: Binaries,
    /// The binary of another build of revstore, usually from before a change.
    #[arg(long)]
    before: Option<PathBuf>,
    /// The duration of each load in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Run only loads whose names contain one of these texts.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct PersistCommand {
    /// The binary of revstore [default: the one in the directory of this program].
    #[arg(long)]
    revstore: Option<PathBuf>,
    /// The number of runs, each with newly started servers; the report shows medians.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// The duration of each load in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    millis: u64,
}

#[derive(Debug, clap::Args)]
struct SummaryCommand {
    #[command(flatten)]
    binaries: Binaries,
    /// The binary of kine, left out if not given.
    #[arg(long)]
    kine: Option<PathBuf>,
    /// The number of runs, each with newly started servers; the report shows medians.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// The number of starts that are measured in each run.
    #[arg(long, default_value_t = 5)]
    starts: usize,
    /// The file whose table is replaced [default: prints the table].
    #[arg(long)]
    write: Option<PathBuf>,
}

impl Binaries {
    fn kinds(&self) -> Result<Vec<ServerKind>, BoxError> {
        let revstore = revstore(self.revstore.clone())?;
        let chosen = self
            .etcd
            .clone()
            .or_else(|| std::env::var_os("ETCD").map(PathBuf::from));
        let etcd = chosen.unwrap_or_else(|| PathBuf::from("tests/.tools/bin/etcd"));
        let mut kinds = vec![ServerKind::Revstore(revstore)];
        if etcd.exists() {
            kinds.push(ServerKind::Etcd(etcd));
        } else {
            eprintln!("{} does not exist: etcd is left out", etcd.display());
        }
        kinds.extend(self.mem_etcd.clone().map(ServerKind::MemEtcd));
        Ok(kinds)
    }
}

/// Returns the chosen binary of revstore, or the one in the directory of this program.
fn revstore(chosen: Option<PathBuf>) -> Result<PathBuf, BoxError> {
    let default = std::env::current_exe()?.with_file_name("revstore");
    let revstore = chosen.unwrap_or(default);
    if !revstore.exists() {
        return Err(format!("{} does not exist: build it first", revstore.display()).into());
    }
    Ok(revstore)
}

impl PersistCommand {
    async fn run(self) -> Result<(), BoxError> {
        let binary = revstore(self.revstore)?;
        let duration = Duration::from_millis(self.millis);
        let table = persist::table(&binary, self.runs, duration).await?;
        Ok(io::stdout().lock().write_all(table.as_bytes())?)
    }
}

impl SummaryCommand {
    async fn run(self) -> Result<(), BoxError> {
        let mut kinds = self.binaries.kinds()?;
        kinds.extend(self.kine.clone().map(ServerKind::Kine));
        let table = summary::table(kinds, self.runs, self.starts).await?;
        match &self.write {
            Some(path) => summary::write_into(path, &table),
            None => Ok(io::stdout().lock().write_all(table.as_bytes())?),
        }
    }
}

impl HeavyCommand {
    async fn run(self) -> Result<(), BoxError> {
        let mut kinds = self.binaries.kinds()?;
        kinds.extend(self.before.clone().map(ServerKind::Before));
        let table = heavy::table(kinds, self.seconds, &self.only).await?;
        Ok(io::stdout().lock().write_all(table.as_bytes())?)
    }
}

impl RunCommand {
    async fn run(self) -> Result<(), BoxError> {
        let mut kinds = self.binaries.kinds()?;
        kinds.push(ServerKind::Null);
        kinds.extend(self.before.clone().map(ServerKind::Before));
        let mut report = Report::default();
        for run in 1..=self.runs {
            // Changes the order of the servers in every run.
            kinds.rotate_left(1);
            let mut servers = Vec::new();
            for kind in &kinds {
                let server = TestedServer::start(kind).await?;
                scenario::fill(&server).await?;
                servers.push(server);
            }
            for scenario in SCENARIOS
                .iter()
                .filter(|it| is_selected(it.name, &self.only))
            {
                eprintln!("run {run} of {}: {}", self.runs, scenario.name);
                for server in servers.iter().filter(|it| scenario.supports(it.kind())) {
                    match scenario.run(server).await {
                        Ok(measured) => report.add(scenario, server.kind(), measured),
                        // The table is printed without this measurement.
                        Err(error) => {
                            eprintln!("{} on {}: {error}", scenario.name, server.kind().name());
                        }
                    }
                }
            }
        }
        io::stdout()
            .lock()
            .write_all(report.markdown().as_bytes())?;
        if let Some(path) = &self.svg {
            plot::comparison(&report, path)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(run) => block_on(run.run()),
        Command::Heavy(heavy) => block_on(heavy.run()),
        Command::Kube(kube) => block_on(async {
            let table = kube.run().await?;
            Ok(io::stdout().lock().write_all(table.as_bytes())?)
        }),
        Command::KubeHeavy(heavy) => block_on(async {
            let table = heavy.run().await?;
            Ok(io::stdout().lock().write_all(table.as_bytes())?)
        }),
        Command::KubeAuthorization(authorization) => block_on(async {
            let table = authorization.run().await?;
            Ok(io::stdout().lock().write_all(table.as_bytes())?)
        }),
        Command::KubeWebhook(webhook) => block_on_thread(async {
            let table = webhook.run().await?;
            Ok(io::stdout().lock().write_all(table.as_bytes())?)
        }),
        Command::Persist(persist) => block_on(persist.run()),
        Command::Summary(summary) => block_on(summary.run()),
        Command::Null { listen } => block_on(null::serve(listen)),
        Command::Scaling { out } => scaling::plot(&out),
    };
    if let Err(error) = result {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Does the work in this thread alone.
fn block_on_thread(work: impl Future<Output = Result<(), BoxError>>) -> Result<(), BoxError> {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

fn block_on(work: impl Future<Output = Result<(), BoxError>>) -> Result<(), BoxError> {
    runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(work)
}
