//! The rows of the table: what is asked of a server, what it is counted by, and what revstore is
//! held to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use revstore_proto::etcdserverpb::request_op::Request;
use tokio::time;

use crate::Failure;
use crate::client::{Clients, Done, Load, end, key, put, scattered};
use crate::server::{Kind, Server};
use crate::usage::cpu_time;
use crate::watchers::Watchers;

/// Keys that every server is filled with.
const KEYS: u64 = 100_000;

/// Connections that requests are spread over.
const CONNECTIONS: usize = 4;

/// Keys that watched writes go to.
const WATCHED_KEYS: u64 = 10_000;

/// How long a load with watches lasts.
const WATCH_TIME: Duration = Duration::from_secs(3);

/// How long puts go on without compactions, and then with them.
const COMPACTION_TIME: Duration = Duration::from_secs(5);

/// Between two compactions.
const COMPACTION_PAUSE: Duration = Duration::from_secs(1);

/// Revisions that a compaction leaves.
const COMPACTION_KEEPS: i64 = 1_000;

/// A row.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) target: Target,
    work: Work,
}

/// What a measured value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Microseconds of the server's CPU time for each operation or event.
    CpuMicroseconds,
    /// The largest latency with something, divided by the largest without it.
    Times,
}

/// What revstore is held to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// So many times what the null server takes.
    OfNull(f64),
    /// So many times what revstore takes for a get.
    OfGet(f64),
    /// So much.
    Value(f64),
}

#[derive(Clone, Copy, Debug)]
enum Work {
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
    Page(Page),
    Count {
        counts: u64,
    },
    /// Every event goes to every watch.
    FanOut {
        watches: usize,
        per_stream: usize,
    },
    /// Puts to keys that nobody watches, while watches of single keys stand by.
    StandBy {
        watches: usize,
    },
    Compactions,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    from_first: bool,
    /// At the revision before all updates.
    old: bool,
    limit: i64,
    pages: u64,
}

/// All rows. Those that read come first, while the history is still as the filling left it.
pub(crate) const SCENARIOS: &[Scenario] = &[
    row("first page, limit 500", 1.6, page(true, false, 500, 600)),
    row(
        "page in the middle, limit 500",
        1.6,
        page(false, false, 500, 800),
    ),
    row("the same, older revision", 1.6, page(false, true, 500, 800)),
    row("limit 10,000", 1.3, page(false, false, 10_000, 60)),
    row(
        "get",
        1.15,
        Work::Get {
            in_flight: 64,
            gets: 60_000,
        },
    ),
    row(
        "get, 4 in flight",
        1.15,
        Work::Get {
            in_flight: 4,
            gets: 20_000,
        },
    ),
    Scenario {
        name: "count, 4 in flight",
        unit: Unit::CpuMicroseconds,
        target: Target::OfGet(2.0),
        work: Work::Count { counts: 4_000 },
    },
    row(
        "put, 64 in flight",
        1.15,
        Work::Put {
            in_flight: 64,
            puts: 60_000,
        },
    ),
    row(
        "put, one in flight",
        1.10,
        Work::Put {
            in_flight: 1,
            puts: 20_000,
        },
    ),
    row(
        "update transaction",
        1.20,
        Work::GuardedUpdate { updates: 40_000 },
    ),
    row(
        "event, 100 watches on 100 streams",
        1.1,
        Work::FanOut {
            watches: 100,
            per_stream: 1,
        },
    ),
    row(
        "event, 100 watches on 5 streams",
        1.1,
        Work::FanOut {
            watches: 100,
            per_stream: 20,
        },
    ),
    row(
        "put beside 1,000 watches",
        1.25,
        Work::StandBy { watches: 1_000 },
    ),
    Scenario {
        name: "largest put latency under compaction",
        unit: Unit::Times,
        target: Target::Value(2.0),
        work: Work::Compactions,
    },
];

const fn row(name: &'static str, of_null: f64, work: Work) -> Scenario {
    Scenario {
        name,
        unit: Unit::CpuMicroseconds,
        target: Target::OfNull(of_null),
        work,
    }
}

const fn page(from_first: bool, old: bool, limit: i64, pages: u64) -> Work {
    Work::Page(Page {
        from_first,
        old,
        limit,
        pages,
    })
}

/// What one run of a scenario gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// In the unit of the scenario.
    pub(crate) value: f64,
    /// Operations or events in a second.
    pub(crate) rate: f64,
    pub(crate) median: Duration,
    pub(crate) slow: Duration,
}

/// Gives a server [`KEYS`] keys of two versions each.
pub(crate) async fn fill(server: &Server) -> Result<(), Failure> {
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

impl Scenario {
    /// Whether the server has what it takes.
    pub(crate) fn suits(&self, kind: &Kind) -> bool {
        match self.work {
            // It has no history.
            Work::Compactions => !matches!(kind, Kind::Null),
            // It takes one watch on a stream.
            Work::FanOut { per_stream, .. } => per_stream == 1 || !matches!(kind, Kind::MemEtcd(_)),
            _ => true,
        }
    }

    /// Puts the load on a server that was [filled](fill).
    pub(crate) async fn run(&self, server: &Server) -> Result<Measured, Failure> {
        let clients = Clients::connect(server.endpoint(), CONNECTIONS).await?;
        match self.work {
            Work::Compactions => under_compaction(&clients).await,
            Work::FanOut {
                watches,
                per_stream,
            } => {
                let group = "-fan-out";
                let all = |_| (key(group, 0), end(group));
                let watchers = Watchers::start(server.endpoint(), watches, per_stream, all).await?;
                let mut events = 0;
                let before = cpu(server)?;
                let done = puts(&clients, group, Load::during(4, WATCH_TIME)).await?;
                events += done.operations() * watches;
                watchers.wait_for(events as u64).await?;
                Ok(measured(cpu(server)?.saturating_sub(before), events, &done))
            }
            Work::StandBy { watches } => {
                let group = "-stand-by";
                // Watches of the null server are told everything; it shows a put alone.
                let _watchers = if matches!(server.kind(), Kind::Null) {
                    None
                } else {
                    let one = |number| (key("-elsewhere", number), "".into());
                    Some(Watchers::start(server.endpoint(), watches, 1, one).await?)
                };
                let before = cpu(server)?;
                let done = puts(&clients, group, Load::during(16, WATCH_TIME)).await?;
                Ok(measured(
                    cpu(server)?.saturating_sub(before),
                    done.operations(),
                    &done,
                ))
            }
            work => {
                let before = cpu(server)?;
                let done = work.requests(&clients).await?;
                Ok(measured(
                    cpu(server)?.saturating_sub(before),
                    done.operations(),
                    &done,
                ))
            }
        }
    }
}

impl Work {
    async fn requests(self, clients: &Clients) -> Result<Done, Failure> {
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
            Self::FanOut { .. } | Self::StandBy { .. } | Self::Compactions => {
                Err("not requests alone".into())
            }
        }
    }
}

impl Page {
    async fn requests(self, clients: &Clients) -> Result<Done, Failure> {
        // Filling made as many revisions again after the one in the middle.
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

async fn puts(clients: &Clients, group: &'static str, load: Load) -> Result<Done, Failure> {
    load.run(clients, move |mut kv, number| async move {
        kv.put(put(group, scattered(number, WATCHED_KEYS)))
            .await
            .map(drop)
    })
    .await
}

/// What kube-apiserver sends to update an object: a put if the object is as it was last seen, or else
/// a look at it.
async fn guarded_updates(clients: &Clients, updates: u64) -> Result<Done, Failure> {
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
            let look = pb::RangeRequest {
                key: key(GROUP, number),
                ..pb::RangeRequest::default()
            };
            let op = |request| pb::RequestOp {
                request: Some(request),
            };
            let request = pb::TxnRequest {
                compare: vec![compare],
                success: vec![op(Request::RequestPut(put(GROUP, number)))],
                failure: vec![op(Request::RequestRange(look))],
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

/// Puts, first alone and then with a compaction every second.
async fn under_compaction(clients: &Clients) -> Result<Measured, Failure> {
    let load = Load::during(4, COMPACTION_TIME);
    let alone = puts(clients, "-compacted", load).await?;
    let compactor = {
        let clients = clients.clone();
        tokio::spawn(async move {
            loop {
                time::sleep(COMPACTION_PAUSE).await;
                let revision = clients.revision().await?;
                clients.compact(revision - COMPACTION_KEEPS).await?;
            }
            #[expect(unreachable_code, reason = "it says what kind of error may come")]
            Ok::<(), tonic::Status>(())
        })
    };
    let disturbed = puts(clients, "-compacted", load).await;
    compactor.abort();
    let disturbed = disturbed?;
    let largest = |done: &Done| done.quantile(1_000).as_secs_f64();
    Ok(Measured {
        value: largest(&disturbed) / largest(&alone),
        ..measured(Duration::ZERO, disturbed.operations(), &disturbed)
    })
}

fn cpu(server: &Server) -> Result<Duration, Failure> {
    cpu_time(server.pid()).ok_or_else(|| format!("{} is gone", server.kind().name()).into())
}

fn measured(cpu: Duration, operations: usize, done: &Done) -> Measured {
    #[expect(clippy::cast_precision_loss, reason = "some millions")]
    let operations = operations.max(1) as f64;
    Measured {
        value: cpu.as_secs_f64() * 1e6 / operations,
        rate: operations / done.took.as_secs_f64(),
        median: done.quantile(500),
        slow: done.quantile(990),
    }
}
