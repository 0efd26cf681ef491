//! Many reflectors, each of one node's pods, while the pods of a few nodes change and all connections are
//! cut from time to time: with and without bookmarks, ours and those of client-go.
//!
//! An idle reflector remembers the resource version of its last list. When the server's window has moved
//! on, its next watch is refused with 410 and it lists again, unless a bookmark has told it a newer one.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use revstore_reflector::kube::KubeListWatch;
use revstore_reflector::{Informer, Reflector};

use crate::BoxError;
use crate::process::{Figures, Running, client_go, cpu_time, medians, resident_bytes};
use crate::server::{Counters, Server};

/// The number of nodes whose pods change.
const BUSY_NODES: usize = 10;
const PODS_PER_NODE: usize = 10;
/// The number of writes before their delivery is awaited. Less than the window, so that no watch falls
/// behind it.
const BURST: usize = 200;
/// The time after which a server sends bookmarks, on the clock of the cache.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(66);
/// The age of watches before they are cut. Reflectors treat those below a second as failures.
const WATCH_AGE: Duration = Duration::from_millis(1_200);
/// The limit of all waits.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The number of runs of each row, in turns; the table shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The number of nodes, each with one reflector.
    #[arg(long, default_value_t = 1_000)]
    nodes: usize,
    /// The number of times that all connections are cut.
    #[arg(long, default_value_t = 3)]
    cuts: usize,
    /// The number of changes before each cut.
    #[arg(long, default_value_t = 5_000)]
    changes: usize,
    /// The number of events that the server keeps.
    #[arg(long, default_value_t = 2_000)]
    window: usize,
}

/// The figures, with their titles, in the order of the table.
const COLUMNS: [(&str, &str); 8] = [
    ("lists", "lists"),
    ("expired", "410"),
    ("objects", "objects listed"),
    ("list_kb", "kB of lists"),
    ("watch_kb", "kB of watches"),
    ("client_ms", "CPU of the clients, ms"),
    ("server_ms", "CPU of the server, ms"),
    ("client_mb", "memory of the clients, MB"),
];

/// Runs all combinations in turns, and prints the medians as a table.
pub(crate) fn compare(options: &Options) -> Result<(), BoxError> {
    allow_open_files()?;
    let programs = [
        ("here", std::env::current_exe()?),
        ("client-go", client_go()?),
    ];
    let rows =
        [true, false].map(|bookmarks| programs.each_ref().map(|program| (bookmarks, program)));
    let rows = rows.concat();
    let mut runs: Vec<Vec<Figures>> = vec![Vec::new(); rows.len()];
    for round in 1..=options.rounds {
        for (row, (bookmarks, (name, program))) in rows.iter().enumerate() {
            let figures = measure(options, *bookmarks, program)?;
            eprintln!(
                "round {round} of {}: {name}, bookmarks {bookmarks}: {figures:?}",
                options.rounds
            );
            runs[row].push(figures);
        }
    }
    let titles = COLUMNS.map(|(_, title)| title).join(" | ");
    println!(
        "| Reflectors | bookmarks | {titles} |\n|---|---|{}",
        "---|".repeat(COLUMNS.len())
    );
    for ((bookmarks, (name, _)), runs) in rows.iter().zip(&runs) {
        let medians = medians(runs);
        let cells = COLUMNS
            .map(|(name, _)| format!("{:.0}", medians[name]))
            .join(" | ");
        println!(
            "| {name} | {} | {cells} |",
            if *bookmarks { "on" } else { "off" }
        );
    }
    Ok(())
}

/// Measures the time from the first change to the last new watch, divided by the number of cuts.
fn measure(options: &Options, bookmarks: bool, program: &Path) -> Result<Figures, BoxError> {
    let server = Server::start(options.nodes, PODS_PER_NODE, options.window, bookmarks)?;
    let counters = server.counters();
    let url = format!("http://{}", server.address);
    let mut clients = Running::start(
        Command::new(program)
            .args(["reflectors", &url, &options.nodes.to_string()])
            // Both list before they watch.
            .env("KUBE_FEATURE_WatchListClient", "false"),
    )?;
    let nodes = options.nodes as u64;
    let until = |what: &str, counter: &AtomicU64, least: u64, clients: &mut Running| {
        let began = Instant::now();
        while counter.load(Ordering::Relaxed) < least {
            clients.check()?;
            if began.elapsed() > PATIENCE {
                return Err(
                    format!("{what}: {counter:?} of {least}; {:?}", server.counters()).into(),
                );
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok::<_, BoxError>(())
    };
    until("open watches", &counters.open, nodes, &mut clients)?;
    thread::sleep(WATCH_AGE);

    let before = snapshot(counters, clients.id())?;
    let delivered = counters.events.load(Ordering::Relaxed);
    let mut change = 0;
    for _ in 0..options.cuts {
        for _ in 0..options.changes {
            let (node, number) = (change % BUSY_NODES, change / BUSY_NODES % PODS_PER_NODE);
            change += 1;
            server.write(node, number, change as u64)?;
            if change % BURST == 0 {
                let least = delivered + change as u64;
                until("events", &counters.events, least, &mut clients)?;
            }
        }
        let sent = counters.bookmarks.load(Ordering::Relaxed);
        server.advance_clock(BOOKMARK_PERIOD);
        if bookmarks {
            until("bookmarks", &counters.bookmarks, sent + nodes, &mut clients)?;
        }
        // The clients read what was sent.
        thread::sleep(Duration::from_millis(300));
        let started = counters.watches.load(Ordering::Relaxed);
        server.cut_connections();
        until(
            "new watches",
            &counters.watches,
            started + nodes,
            &mut clients,
        )?;
        until("open watches", &counters.open, nodes, &mut clients)?;
        thread::sleep(WATCH_AGE);
    }
    let after = snapshot(counters, clients.id())?;
    let mut figures: Figures = after
        .iter()
        .map(|(name, after)| (name.clone(), (after - before[name]) / options.cuts as f64))
        .collect();
    figures.insert(
        "client_mb".into(),
        resident_bytes(clients.id())? as f64 / 1e6,
    );
    Ok(figures)
}

fn snapshot(counters: &Counters, clients: u32) -> Result<Figures, BoxError> {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let cpu = |process| Ok::<_, BoxError>(cpu_time(process)? * 1e3);
    Ok([
        ("lists", count(&counters.lists)),
        ("expired", count(&counters.expired)),
        ("objects", count(&counters.listed_objects)),
        ("list_kb", count(&counters.list_bytes) / 1e3),
        ("watch_kb", count(&counters.watch_bytes) / 1e3),
        ("events", count(&counters.events)),
        ("bookmarks", count(&counters.bookmarks)),
        ("client_ms", cpu(clients)?),
        ("server_ms", cpu(std::process::id())?),
    ]
    .map(|(name, figure)| (name.to_owned(), figure))
    .into())
}

/// Raises the limit of open files, as Go does: each watch has a connection.
fn allow_open_files() -> Result<(), BoxError> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

/// Runs an informer for the pods of each node until standard input ends.
pub(crate) fn run_reflectors(url: &str, nodes: usize) -> Result<(), BoxError> {
    allow_open_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    for node in 0..nodes {
        let pods = KubeListWatch::builder(url, "/api/v1/pods")
            .selector("", format!("spec.nodeName=node-{node}"))
            .runtime(runtime.handle().clone())
            .build()?;
        let reflector = Reflector::builder(Arc::new(pods)).build();
        runtime.spawn(Informer::builder(reflector).build().run());
    }
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
