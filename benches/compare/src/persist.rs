//! The cost of the journal: puts without `--persist`, and with each policy of `--persist-fsync`.
//!
//! All servers run at the same time, with their data directories in that of temporary files. Each load is put on one
//! after the other, in an order that changes with every run.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::BoxError;
use crate::client::{Clients, Load, put, scattered};
use crate::cpu_time::cpu_time;
use crate::server::{ServerKind, TestedServer};

/// The number of keys that the puts overwrite.
const KEYS: u64 = 10_000;

/// The number of connections, if there are so many puts in flight.
const CONNECTIONS_MAX: usize = 4;

/// The policies: the values of `--persist-fsync`, and `off` for a server without a journal.
const POLICIES: [&str; 4] = ["off", "never", "interval", "always"];

/// The loads: the number of puts in flight.
const IN_FLIGHT: [usize; 3] = [1, 64, 512];

/// A measurement, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Costs {
    cpu: f64,
    wall: f64,
    p50: f64,
    p99: f64,
}

/// Measures all loads on a server with each policy, and returns the medians of `runs` as a table.
pub(crate) async fn table(
    binary: &Path,
    runs: usize,
    duration: Duration,
) -> Result<String, BoxError> {
    let mut kinds = POLICIES.map(|policy| match policy {
        "off" => ServerKind::Revstore(binary.to_owned()),
        policy => ServerKind::Persisted(binary.to_owned(), policy),
    });
    let mut measured = vec![Vec::new(); IN_FLIGHT.len() * POLICIES.len()];
    for run in 1..=runs {
        eprintln!("run {run} of {runs}");
        kinds.rotate_left(1);
        let mut servers = Vec::new();
        for kind in &kinds {
            servers.push(TestedServer::start(kind).await?);
        }
        for (load, in_flight) in IN_FLIGHT.into_iter().enumerate() {
            for server in &servers {
                let policy = POLICIES.iter().position(|it| *it == policy(server.kind()));
                let at = load * POLICIES.len() + policy.unwrap_or_default();
                measured[at].push(measure(server, in_flight, duration).await?);
            }
        }
    }
    let mut table = String::from(
        "| puts in flight | `--persist-fsync` | CPU time for a put | time for a put | p50 | p99 |\n\
         |---|---|---|---|---|---|\n",
    );
    for (at, measured) in measured.iter().enumerate() {
        let (load, policy) = (at / POLICIES.len(), at % POLICIES.len());
        let of = |cost: fn(&Costs) -> f64| median(measured.iter().map(cost).collect());
        let [cpu, wall] = [of(|it| it.cpu), of(|it| it.wall)];
        let [p50, p99] = [of(|it| it.p50), of(|it| it.p99)];
        writeln!(
            table,
            "| {} | {} | {cpu:.1} | {wall:.1} | {p50:.0} | {p99:.0} |",
            IN_FLIGHT[load], POLICIES[policy]
        )?;
    }
    Ok(table)
}

fn policy(kind: &ServerKind) -> &'static str {
    match kind {
        ServerKind::Persisted(_, policy) => policy,
        _ => POLICIES[0],
    }
}

async fn measure(
    server: &TestedServer,
    in_flight: usize,
    duration: Duration,
) -> Result<Costs, BoxError> {
    let clients = Clients::connect(server.endpoint(), in_flight.min(CONNECTIONS_MAX)).await?;
    let before = cpu_time(server.pid()).unwrap_or_default();
    let load = Load::during(in_flight, duration);
    let result = load
        .run(&clients, |mut kv, number| async move {
            kv.put(put("", scattered(number, KEYS))).await.map(drop)
        })
        .await?;
    let after = cpu_time(server.pid()).unwrap_or_default();
    let cpu = after.saturating_sub(before);
    let puts = u32::try_from(result.operations())?.max(1);
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    Ok(Costs {
        cpu: micros(cpu / puts),
        wall: micros(result.duration / puts),
        p50: micros(result.quantile(500)),
        p99: micros(result.quantile(990)),
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
