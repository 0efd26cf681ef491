//! The rows of the table: the load on a server, the unit of the measurement, and the target for
//! revstore.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use revstore_proto::etcdserverpb::request_op::Request;
use tokio::time;

use crate::BoxError;
use crate::client::{Clients, Load, LoadResult, end, key, put, scattered};
use crate::cpu_time::cpu_time;
use crate::server::{ServerKind, TestedServer};
use crate::watchers::Watchers;

/// The number of keys in every server.
const KEYS: u64 = 100_000;

/// The number of connections over which requests are distributed.
const CONNECTIONS: usize = 4;

/// The number of keys that are written under watches.
const WATCHED_KEYS: u64 = 10_000;

/// The duration of a load with watches.
const WATCH_TIME: Duration = Duration::from_secs(3);

/// The duration of the puts without compactions, and of the puts with them.
const COMPACTION_TIME: Duration = Duration::from_secs(5);

/// The time between two compactions.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(1);

/// The number of revisions that a compaction keeps.
const COMPACTION_KEEPS: i64 = 1_000;

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) target: TargetValue,
    workload: Workload,
}

/// The unit of a measured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Microseconds of CPU time of the server per operation or event.
    CpuMicroseconds,
    /// The largest latency with a disturbance, divided by the largest latency without it.
    Times,
}

/// The largest value that revstore should have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TargetValue {
    /// A multiple of the value of the null server.
    OfNull(f64),
    /// A multiple of the value of revstore in the scenario `get`.
    OfGet(f64),
    /// A fixed value.
    Value(f64),
}

#[derive(Clone, Copy, Debug)]
enum Workload {
    Put {
        in_flight: usize,
        puts: u64,
    },
    Get {
        in_flight: usize,
        gets: u64,
    },
    GuardedUpdate {
        updates: u64,
    },
    Page(PageLoad),
    Count {
        counts: u64,
    },
    /// Puts whose events go to every watch.
    FanOut {
        watches: usize,
        per_stream: usize,
    },
    /// Puts to keys without watches, while watches of other keys exist.
    IdleWatches {
        watches: usize,
    },
    Compactions,
}

#[derive(Clone, Copy, Debug)]
struct PageLoad {
    from_first: bool,
    /// Whether the page is read at the revision before all updates.
    old: bool,
    limit: i64,
    pages: u64,
}

/// All rows. Rows with reads come first, because later rows add revisions.
pub(crate) const SCENARIOS: &[Scenario] = &[
    row("first page, limit 500", 1.6, page(true, false, 500, 600)),
    row(
        "page in the middle, limit 500",
        1.6,
        page(false, false, 500, 800),
    ),
    row(
        "page in the middle, older revision",
        1.6,
        page(false, true, 500, 800),
    ),
    row("limit 10,000", 1.3, page(false, false, 10_000, 60)),
    row(
        "get",
        1.15,
        Workload::Get {
            in_flight: 64,
            gets: 60_000,
        },
    ),
    row(
        "get, 4 in flight",
        1.15,
        Workload::Get {
            in_flight: 4,
            gets: 20_000,
        },
    ),
    Scenario {
        name: "count, 4 in flight",
        unit: Unit::CpuMicroseconds,
        target: TargetValue::OfGet(2.0),
        workload: Workload::Count { counts: 4_000 },
    },
    row(
        "put, 64 in flight",
        1.15,
        Workload::Put {
            in_flight: 64,
            puts: 60_000,
        },
    ),
    row(
        "put, one in flight",
        1.10,
        Workload::Put {
            in_flight: 1,
            puts: 20_000,
        },
    ),
    row(
        "update transaction",
        1.20,
        Workload::GuardedUpdate { updates: 40_000 },
    ),
    row(
        "event, 100 watches on 100 streams",
        1.1,
        Workload::FanOut {
            watches: 100,
            per_stream: 1,
        },
    ),
    row(
        "event, 100 watches on 5 streams",
        1.1,
        Workload::FanOut {
            watches: 100,
            per_stream: 20,
        },
    ),
    row(
        "put with 1,000 idle watches",
        1.25,
        Workload::IdleWatches { watches: 1_000 },
    ),
    Scenario {
        name: "largest put latency under compaction",
        unit: Unit::Times,
        target: TargetValue::Value(2.0),
        workload: Workload::Compactions,
    },
];

const fn row(name: &'static str, of_null: f64, workload: Workload) -> Scenario {
    Scenario {
        name,
        unit: Unit::CpuMicroseconds,
        target: TargetValue::OfNull(of_null),
        workload,
    }
}

const fn page(from_first: bool, old: bool, limit: i64, pages: u64) -> Workload {
    Workload::Page(PageLoad {
        from_first,
        old,
        limit,
        pages,
    })
}

/// The result of one run of a scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    /// The value in the unit of the scenario.
    pub(crate) value: f64,
    /// Operations or events per second.
    pub(crate) rate: f64,
    /// The median latency.
    pub(crate) median: Duration,
    /// The 99th percentile of the latency.
    pub(crate) p99: Duration,
}

/// Writes [`KEYS`] keys with two versions each.
pub(crate) async fn fill(server: &TestedServer) -> Result<(), BoxError> {
    let clients = Clients::connect(server.endpoint(), CONNECTIONS).await?;
    for _ in 0..2 {
        let load = Load::of(64, KEYS);
        load.run(&clients, async |mut kv, number| {
            kv.put(put("", number)).await.map(drop)
        })
        .await?;
    }
    Ok(())
}

/// Returns whether a name contains one of the texts of `--only`, if there are any.
pub(crate) fn is_selected(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|text| name.contains(text))
}

impl Scenario {
    /// Returns whether a server supports the scenario.
    pub(crate) fn supports(&self, kind: &ServerKind) -> bool {
        match self.workload {
            // The null server has no history.
            Workload::Compactions => !matches!(kind, ServerKind::Null),
            // mem_etcd supports one watch per stream.
            Workload::FanOut { per_stream, .. } => {
                per_stream == 1 || !matches!(kind, ServerKind::MemEtcd(_))
            }
            _ => true,
        }
    }

    /// Puts the load on a server that was [filled](fill), and measures it.
    pub(crate) async fn run(&self, server: &TestedServer) -> Result<Measurement, BoxError> {
        let clients = Clients::connect(server.endpoint(), CONNECTIONS).await?;
        match self.workload {
            Workload::Compactions => under_compaction(&clients).await,
            Workload::FanOut {
                watches,
                per_stream,
            } => {
                let group = "-fan-out";
                let all = |_| (key(group, 0), end(group));
                let watchers = Watchers::start(server.endpoint(), watches, per_stream, all).await?;
                let mut events = 0;
                let before = cpu(server)?;
                let result = puts(&clients, group, Load::during(4, WATCH_TIME)).await?;
                events += result.operations() * watches;
                watchers.wait_for(events as u64).await?;
                Ok(measured(
                    cpu(server)?.saturating_sub(before),
                    events,
                    &result,
                ))
            }
            Workload::IdleWatches { watches } => {
                let group = "-idle-watch";
                // The null server sends every event to every watch, so it is measured without
                // watches.
                let _watchers = if matches!(server.kind(), ServerKind::Null) {
                    None
                } else {
                    let one = |number| (key("-elsewhere", number), "".into());
                    Some(Watchers::start(server.endpoint(), watches, 1, one).await?)
                };
                let before = cpu(server)?;
                let result = puts(&clients, group, Load::during(16, WATCH_TIME)).await?;
                Ok(measured(
                    cpu(server)?.saturating_sub(before),
                    result.operations(),
                    &result,
                ))
            }
            workload => {
                let before = cpu(server)?;
                let result = workload.requests(&clients).await?;
                Ok(measured(
                    cpu(server)?.saturating_sub(before),
                    result.operations(),
                    &result,
                ))
            }
        }
    }
}

impl Workload {
    async fn requests(self, clients: &Clients) -> Result<LoadResult, BoxError> {
        match self {
            Self::Put { in_flight, puts } => {
                let load = Load::of(in_flight, puts);
                load.run(clients, async |mut kv, number| {
                    kv.put(put("", scattered(number, KEYS))).await.map(drop)
                })
                .await
            }
            Self::Get { in_flight, gets } => {
                let load = Load::of(in_flight, gets);
                load.run(clients, async |mut kv, number| {
                    let request = pb::RangeRequest {
                        key: key("", scattered(number, KEYS)),
                        ..pb::RangeRequest::default()
                    };
                    kv.range(request).await.map(drop)
                })
                .await
            }
            Self::GuardedUpdate { updates } => guarded_updates(clients, updates).await,
            Self::Page(page) => page.requests(clients).await,
            Self::Count { counts } => {
                let load = Load::of(4, counts);
                load.run(clients, async |mut kv, number| {
                    let request = pb::RangeRequest {
                        key: key("", scattered(number, KEYS)),
                        range_end: end(""),
                        count_only: true,
                        ..pb::RangeRequest::default()
                    };
                    kv.range(request).await.map(drop)
                })
                .await
            }
            Self::FanOut { .. } | Self::IdleWatches { .. } | Self::Compactions => {
                Err("the load needs more than requests".into())
            }
        }
    }
}

impl PageLoad {
    async fn requests(self, clients: &Clients) -> Result<LoadResult, BoxError> {
        // The first version of each key was written before this revision, the second after it.
        let old = clients.revision().await? - KEYS.cast_signed();
        let revision = if self.old { old } else { 0 };
        let first_max = KEYS.saturating_sub(self.limit.cast_unsigned()).max(1);
        let load = Load::of(4, self.pages);
        load.run(clients, move |mut kv, number| async move {
            let first = if self.from_first {
                0
            } else {
                scattered(number, first_max)
            };
            let request = pb::RangeRequest {
                key: key("", first),
                range_end: end(""),
                limit: self.limit,
                revision,
                ..pb::RangeRequest::default()
            };
            kv.range(request).await.map(drop)
        })
        .await
    }
}

async fn puts(clients: &Clients, group: &'static str, load: Load) -> Result<LoadResult, BoxError> {
    load.run(clients, move |mut kv, number| async move {
        kv.put(put(group, scattered(number, WATCHED_KEYS)))
            .await
            .map(drop)
    })
    .await
}

/// Runs the transaction with which kube-apiserver updates an object: a put if the object is
/// unchanged since it was last read, otherwise a get.
async fn guarded_updates(clients: &Clients, updates: u64) -> Result<LoadResult, BoxError> {
    const GROUP: &str = "-guarded";
    let seen: Arc<Vec<AtomicI64>> = Arc::new((0..updates / 2).map(|_| AtomicI64::new(0)).collect());
    let load = Load::of(64, updates);
    load.run(clients, move |mut kv, number| {
        let seen = seen.clone();
        async move {
            let number = number % seen.len() as u64;
            let seen = &seen[usize::try_from(number).unwrap_or_default()];
            let compare = pb::Compare {
                result: CompareResult::Equal.into(),
                target: CompareTarget::Mod.into(),
                key: key(GROUP, number),
                target_union: Some(TargetUnion::ModRevision(seen.load(Ordering::Relaxed))),
                ..pb::Compare::default()
            };
            let get = pb::RangeRequest {
                key: key(GROUP, number),
                ..pb::RangeRequest::default()
            };
            let op = |request| pb::RequestOp {
                request: Some(request),
            };
            let request = pb::TxnRequest {
                compare: vec![compare],
                success: vec![op(Request::RequestPut(put(GROUP, number)))],
                failure: vec![op(Request::RequestRange(get))],
            };
            let response = kv.txn(request).await?.into_inner();
            if response.succeeded {
                let revision = response.header.map_or(0, |header| header.revision);
                seen.store(revision, Ordering::Relaxed);
            }
            Ok(())
        }
    })
    .await
}

/// Measures puts without compactions, and then with one every second.
async fn under_compaction(clients: &Clients) -> Result<Measurement, BoxError> {
    let load = Load::during(4, COMPACTION_TIME);
    let undisturbed = puts(clients, "-compacted", load).await?;
    let compactor = {
        let clients = clients.clone();
        tokio::spawn(async move {
            loop {
                time::sleep(COMPACTION_INTERVAL).await;
                let revision = clients.revision().await?;
                clients.compact(revision - COMPACTION_KEEPS).await?;
            }
            #[expect(unreachable_code, reason = "gives the block its error type")]
            Ok::<(), tonic::Status>(())
        })
    };
    let disturbed = puts(clients, "-compacted", load).await;
    compactor.abort();
    let disturbed = disturbed?;
    let largest = |result: &LoadResult| result.quantile(1_000).as_secs_f64();
    Ok(Measurement {
        value: largest(&disturbed) / largest(&undisturbed),
        ..measured(Duration::ZERO, disturbed.operations(), &disturbed)
    })
}

fn cpu(server: &TestedServer) -> Result<Duration, BoxError> {
    cpu_time(server.pid()).ok_or_else(|| format!("{} has ended", server.kind().name()).into())
}

fn measured(cpu: Duration, operations: usize, result: &LoadResult) -> Measurement {
    #[expect(clippy::cast_precision_loss, reason = "some millions")]
    let operations = operations.max(1) as f64;
    Measurement {
        value: cpu.as_secs_f64() * 1e6 / operations,
        rate: operations / result.duration.as_secs_f64(),
        median: result.quantile(500),
        p99: result.quantile(990),
    }
}
