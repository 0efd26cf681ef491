//! Heavy loads on an API server, beside a bystander.
//!
//! Each load runs for a while on each server, one server after the other. Meanwhile three clients, each in a closed
//! loop, request `/livez`, get an object, and change an object and wait for the event of a watch. The table shows what
//! they waited, how much of the load was completed, and the largest resident memory. Clients and server share the
//! machine, so the row without a load is the one to compare with.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;
use tokio::time;

use crate::BoxError;
use crate::bystander::{self, MEMORY_INTERVAL, PAUSE};
use crate::client::LoadResult;
use crate::kube::Servers;
use crate::kube::client::{Call, Connection, Target, Version};
use crate::kube::objects::{NAMESPACE, OBJECTS, PODS, metadata, namespace, object, path, pod};
use crate::kube::server::ApiServer;
use crate::kube::watchers::Watchers;
use crate::scenario::is_selected;

/// The number of creates in flight before the loads.
const IN_FLIGHT: usize = 16;

/// The number of tasks that open watches.
const OPENING_TASKS: u64 = 16;

/// The pause of a client that was told to come back later.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// More than the length of the bookmark after the initial events of a watch.
const END_BYTES: usize = 1_000;

/// The objects that the bystander changes: the same resource as those of the lists.
const CHANGED: &str = "/api/v1/namespaces/bystander/configmaps";

#[derive(Debug, clap::Args)]
pub(crate) struct KubeHeavyCommand {
    #[command(flatten)]
    servers: Servers,
    /// The duration of each load in seconds.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// The number of objects in lists.
    #[arg(long, default_value_t = 100_000)]
    objects: u64,
    /// The number of watches of single nodes that reconnect.
    #[arg(long, default_value_t = 10_000)]
    nodes: u64,
    /// Run only loads whose names contain one of these texts.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// A load: the number of clients, each of which does one thing after the other.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    clients: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    None,
    /// Lists of all objects.
    List {
        accept_encoding: Option<&'static str>,
    },
    /// Watches that begin with all objects, until they have received these.
    WatchList,
    /// All watches of single nodes connect, then all are closed.
    Reconnect,
}

const LOADS: &[Load] = &[
    Load {
        name: "none",
        clients: 1,
        kind: Kind::None,
    },
    Load {
        name: "4 lists of all objects",
        clients: 4,
        kind: Kind::List {
            accept_encoding: None,
        },
    },
    Load {
        name: "4 compressed lists",
        clients: 4,
        kind: Kind::List {
            accept_encoding: Some("gzip"),
        },
    },
    Load {
        name: "20 watch-lists of all objects",
        clients: 20,
        kind: Kind::WatchList,
    },
    Load {
        name: "all watches of nodes reconnect",
        clients: 1,
        kind: Kind::Reconnect,
    },
];

impl KubeHeavyCommand {
    /// Measures all loads on all servers, and returns a table as Markdown.
    pub(crate) async fn run(self) -> Result<String, BoxError> {
        let mut table = String::from(
            "| load | server | livez p50 | p99 | p99.9 | max | get p50 | p99 | p99.9 | max | event p50 | p99 | p99.9 | max \
             | completed/s | refused | max RSS |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for kind in &self.servers.kinds()? {
            let server = Arc::new(ApiServer::start(kind).await?);
            let nodes_revision = self.fill(&server).await?;
            for load in LOADS
                .iter()
                .filter(|load| is_selected(load.name, &self.only))
            {
                eprintln!("{} on {}", load.name, server.name);
                let row = self.measure(*load, &server, &nodes_revision).await?;
                writeln!(table, "| {} | {} |{row}", load.name, server.name)?;
            }
        }
        Ok(table)
    }

    /// Creates all objects. Returns the resource version from which the nodes watch.
    async fn fill(&self, server: &ApiServer) -> Result<String, BoxError> {
        let mut connection = server.connect(Version::Http2).await?;
        for name in [NAMESPACE, "bystander"] {
            let call = Call::create("/api/v1/namespaces", namespace(name));
            connection.call(call).await?;
        }
        let call = |number| Call::create(OBJECTS, object(number, 0));
        connection.run(IN_FLIGHT, self.objects, call).await?;
        let call = |number| Call::create(PODS, pod(number));
        connection.run(IN_FLIGHT, self.nodes, call).await?;
        let changed = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"changed"}}"#;
        connection.call(Call::create(CHANGED, changed)).await?;
        let list = connection
            .call(Call::get(format!("{PODS}?limit=1")))
            .await?;
        Ok(metadata(&list, "resourceVersion").ok_or("a list without a resource version")?)
    }

    async fn measure(
        &self,
        load: Load,
        server: &Arc<ApiServer>,
        nodes_revision: &str,
    ) -> Result<String, BoxError> {
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let mut clients = JoinSet::new();
        for _ in 0..load.clients {
            let client = HeavyClient {
                server: server.clone(),
                kind: load.kind,
                nodes: self.nodes,
                nodes_revision: nodes_revision.to_owned(),
                counts: counts.clone(),
            };
            let stop = stop.clone();
            clients.spawn(async move {
                while !stop.load(Relaxed) {
                    if let Err(error) = client.run().await {
                        eprintln!("{error}");
                        return;
                    }
                }
            });
        }
        let target = &server.target;
        let bystanders = [
            bystander::start(call_loop(target.clone(), "/livez".to_owned(), stop.clone())),
            bystander::start(call_loop(target.clone(), path(0), stop.clone())),
            bystander::start(event_loop(target.clone(), stop.clone())),
        ];
        let started = Instant::now();
        let mut memory: f64 = 0.0;
        while started.elapsed() < Duration::from_secs(self.seconds) {
            time::sleep(MEMORY_INTERVAL).await;
            memory = memory.max(server.resident_mebibytes()?);
        }
        #[expect(clippy::cast_precision_loss, reason = "the figure is rounded")]
        let rate = counts.completed.load(Relaxed) as f64 / started.elapsed().as_secs_f64();
        stop.store(true, Relaxed);
        let mut row = String::new();
        for bystander in bystanders {
            write!(row, "{}", bystander::cells(&bystander.await???))?;
        }
        clients.shutdown().await;
        let refused = counts.refused.load(Relaxed);
        write!(row, " {rate:.1} | {refused} | {memory:.0} MiB |")?;
        Ok(row)
    }
}

/// What the clients of a load have done.
#[derive(Debug, Default)]
struct Counts {
    completed: AtomicU64,
    /// The requests that the server told to come back later.
    refused: AtomicU64,
}

/// A client of a load.
struct HeavyClient {
    server: Arc<ApiServer>,
    kind: Kind,
    nodes: u64,
    nodes_revision: String,
    counts: Arc<Counts>,
}

impl HeavyClient {
    /// Does one thing.
    async fn run(&self) -> Result<(), BoxError> {
        let completed = match self.kind {
            Kind::None => {
                time::sleep(Duration::from_secs(1)).await;
                1
            }
            Kind::List { accept_encoding } => {
                let mut call = Call::get(OBJECTS);
                if let Some(encoding) = accept_encoding {
                    call = call.accepting_encoding(encoding);
                }
                self.read(call, b"").await?
            }
            Kind::WatchList => {
                let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
                self.read(
                    Call::get(format!("{OBJECTS}?{query}")),
                    b"k8s.io/initial-events-end",
                )
                .await?
            }
            Kind::Reconnect => self.reconnect().await?,
        };
        self.counts.completed.fetch_add(completed, Relaxed);
        Ok(())
    }

    /// Reads the answer to a request over a connection of its own: all of it, or if `last` is not empty, until `last`
    /// is in its last bytes. Returns the number of answers, 0 if the request was refused.
    async fn read(&self, call: Call, last: &[u8]) -> Result<u64, BoxError> {
        let mut connection = self.server.connect(Version::Http2).await?;
        let response = connection.send(call).await?;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            self.counts.refused.fetch_add(1, Relaxed);
            time::sleep(REFUSED_PAUSE).await;
            return Ok(0);
        }
        if !response.status().is_success() {
            return Err(format!("a list: {}", response.status()).into());
        }
        let mut body = response.into_body();
        let mut bytes = 0;
        let mut end = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame?.into_data().unwrap_or_default();
            bytes += data.len();
            end.extend_from_slice(&data[data.len().saturating_sub(END_BYTES)..]);
            end.drain(..end.len().saturating_sub(END_BYTES));
            if !last.is_empty() && end.windows(last.len()).any(|it| it == last) {
                return Ok(1);
            }
        }
        if bytes < 1_000 || !last.is_empty() {
            return Err(format!("an answer of {bytes} bytes").into());
        }
        Ok(1)
    }

    /// Opens all watches of nodes. They are closed together. Returns their number.
    async fn reconnect(&self) -> Result<u64, BoxError> {
        let mut opening = JoinSet::new();
        for task in 0..OPENING_TASKS {
            let (server, revision) = (self.server.clone(), self.nodes_revision.clone());
            let count = self.nodes / OPENING_TASKS;
            opening.spawn(async move {
                let path = |number| {
                    let node = task * count + number;
                    format!(
                        "/api/v1/pods?watch=1&resourceVersion={revision}&fieldSelector=spec.nodeName%3Dnode-{node}"
                    )
                };
                Watchers::open(&server, count, path).await
            });
        }
        let mut open = Vec::new();
        while let Some(watchers) = opening.join_next().await {
            open.push(watchers??);
        }
        Ok(self.nodes)
    }
}

/// Sends one request after the other.
async fn call_loop(
    target: Target,
    path: String,
    stop: Arc<AtomicBool>,
) -> Result<LoadResult, BoxError> {
    let mut connection = Connection::open(&target, Version::Http2).await?;
    let mut result = LoadResult::default();
    while !stop.load(Relaxed) {
        let sent = Instant::now();
        connection.call(Call::get(path.as_str())).await?;
        result.latencies.push(sent.elapsed());
        time::sleep(PAUSE).await;
    }
    result.latencies.sort_unstable();
    Ok(result)
}

/// Changes an object, and waits for the event of a watch: the time is that of both.
async fn event_loop(target: Target, stop: Arc<AtomicBool>) -> Result<LoadResult, BoxError> {
    let mut writing = Connection::open(&target, Version::Http2).await?;
    let mut watching = Connection::open(&target, Version::Http2).await?;
    let list = writing.call(Call::get(CHANGED)).await?;
    let revision = metadata(&list, "resourceVersion").ok_or("a list without a resource version")?;
    let watch = Call::get(format!("{CHANGED}?watch=1&resourceVersion={revision}"));
    let mut events = watching.send(watch).await?.into_body();
    let mut result = LoadResult::default();
    let mut received = String::new();
    // Different in each load: a change that changes nothing has no event.
    for number in 0_u64.. {
        if stop.load(Relaxed) {
            break;
        }
        let change = format!(r#""n":"{revision}-{number}""#);
        let patch = format!(r#"{{"data":{{{change}}}}}"#);
        let sent = Instant::now();
        let written = writing.call(Call::merge_patch(format!("{CHANGED}/changed"), patch));
        let event = async {
            received.clear();
            while !received.contains(&change) {
                let frame = events.frame().await.ok_or("the watch has ended")??;
                let data = frame.into_data().unwrap_or_default();
                received.push_str(&String::from_utf8_lossy(&data));
            }
            Ok::<_, BoxError>(())
        };
        tokio::try_join!(async { written.await.map(drop) }, event)?;
        result.latencies.push(sent.elapsed());
        time::sleep(PAUSE).await;
    }
    result.latencies.sort_unstable();
    Ok(result)
}
