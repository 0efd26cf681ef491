//! How much threads of one engine cost each other: `cargo run --release -p revstore-benches
//! --example readers -- --help`.
//!
//! Each round measures all rows one after the other, and the table shows the median of all rounds:
//! the time of one operation of one measured thread. The rows named `separate` are the control: the
//! same threads on separate engines, which share only the machine.
//!
//! To compare two builds, run this program of one and give it that of the other: their rounds
//! alternate. A build that is older than this program can be compared if its engine has the
//! functions that are called here; copy the file there.

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use revstore_benches::curves::{Line, draw, median};
use revstore_benches::{filled_engine, key, pseudo_random, value};
use revstore_engine::{Engine, KeyRange, Range};

const KEYS: u64 = 200_000;
const ROW_TIME: Duration = Duration::from_millis(150);
const THREADS_MAX: usize = 4;
const SCAN_KEYS: usize = 500;
/// The number of revisions between two compactions of the load `compact`.
const COMPACTED_REVISIONS: u64 = 20_000;

/// What a thread does over and over.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Get,
    Scan,
    Count,
    Update,
    Create,
    /// Nine gets, then an update.
    Mix,
    /// Updates, and a compaction from time to time.
    Compact,
}

/// A row of the table: the measured threads, and a load beside them that is not measured.
struct Row {
    name: String,
    work: Work,
    threads: usize,
    beside: Option<Work>,
    separate: bool,
}

fn row(name: &str, work: Work, threads: usize) -> Row {
    Row {
        name: name.to_owned(),
        work,
        threads,
        beside: None,
        separate: false,
    }
}

fn beside(name: &str, work: Work, load: Work, separate: bool) -> Row {
    Row {
        name: name.to_owned(),
        work,
        threads: 1,
        beside: Some(load),
        separate,
    }
}

fn separate(row: Row) -> Row {
    Row {
        separate: true,
        ..row
    }
}

/// The operations for which `--svg` draws charts, with the names of their rows.
const CURVES: [(&str, Work); 5] = [
    ("get", Work::Get),
    ("scan 500", Work::Scan),
    ("update", Work::Update),
    ("create", Work::Create),
    ("90/10 mix", Work::Mix),
];

/// Returns the name of the row of an operation with some threads.
fn name_of(operation: &str, threads: usize) -> String {
    match threads {
        1 => operation.to_owned(),
        _ => format!("{operation}, {threads} threads"),
    }
}

fn rows() -> Vec<Row> {
    let curves = CURVES.into_iter().flat_map(|(name, work)| {
        (1..=THREADS_MAX).map(move |threads| row(&name_of(name, threads), work, threads))
    });
    let others = [
        separate(row("get, 2 threads, separate", Work::Get, 2)),
        beside("get beside create", Work::Get, Work::Create, false),
        beside("get beside create, separate", Work::Get, Work::Create, true),
        beside("get beside update", Work::Get, Work::Update, false),
        beside("get beside update, separate", Work::Get, Work::Update, true),
        beside("get beside compact", Work::Get, Work::Compact, false),
        beside(
            "get beside compact, separate",
            Work::Get,
            Work::Compact,
            true,
        ),
        separate(row("scan 500, 2 threads, separate", Work::Scan, 2)),
        row("count", Work::Count, 1),
        beside("count beside create", Work::Count, Work::Create, false),
    ];
    curves.chain(others).collect()
}

/// Measures the cost of threads on one engine.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Measures only the rows whose names begin so.
    #[arg(long, default_value = "")]
    only: String,
    /// Measures only the row of this name.
    #[arg(long)]
    row: Option<String>,
    /// This program of another build, to be measured in turn with this one.
    #[arg(long)]
    before: Option<PathBuf>,
    /// Draws the operations with 1 to 4 threads into a file.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// The times of one row in nanoseconds, of all rounds.
#[derive(Default)]
struct Times {
    now: Vec<f64>,
    before: Vec<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let mut rows = rows();
    rows.retain(|row| match &options.row {
        Some(name) => row.name == *name,
        None => row.name.starts_with(&options.only),
    });
    let mut times: BTreeMap<String, Times> = BTreeMap::new();
    for _ in 0..options.rounds {
        for row in &rows {
            times
                .entry(row.name.clone())
                .or_default()
                .now
                .push(run(row));
            if let Some(before) = &options.before {
                let time = run_other(before, &row.name)?;
                times.entry(row.name.clone()).or_default().before.push(time);
            }
        }
    }
    let mut out = io::stdout();
    for row in &rows {
        let times = &times[&row.name];
        let now = median(&times.now);
        write!(out, "{:<32} {now:9.0} ns", row.name)?;
        if options.before.is_some() {
            let before = median(&times.before);
            write!(out, ", before {before:9.0} ns, ratio {:.2}", now / before)?;
        }
        writeln!(out)?;
    }
    if let Some(svg) = &options.svg {
        let line = |name, of: fn(&Times) -> &Vec<f64>| Line {
            name,
            rates: CURVES
                .map(|(operation, _)| rates(&times, operation, of))
                .to_vec(),
        };
        let mut lines = vec![line("revstore", |times| &times.now)];
        if options.before.is_some() {
            lines.push(line("before", |times| &times.before));
        }
        draw(svg, &CURVES.map(|(name, _)| name), &lines)?;
    }
    Ok(())
}

/// Returns the operations per second of all threads together, for 1 to 4 threads.
fn rates(
    times: &BTreeMap<String, Times>,
    operation: &str,
    of: fn(&Times) -> &Vec<f64>,
) -> Vec<f64> {
    let rate = |threads: usize| {
        let time = median(of(times.get(&name_of(operation, threads))?));
        #[expect(clippy::cast_precision_loss, reason = "few threads")]
        let rate = threads as f64 * 1e9 / time;
        Some(rate)
    };
    (1..=THREADS_MAX).map_while(rate).collect()
}

/// Runs one row of another build once; returns what [`run`] does.
fn run_other(program: &Path, name: &str) -> Result<f64, Box<dyn Error>> {
    let output = Command::new(program)
        .args(["--rounds", "1", "--row", name])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let row = text.strip_prefix(name);
    let time = row.and_then(|row| row.split_whitespace().next());
    Ok(time.ok_or("the other build printed no row")?.parse()?)
}

/// Runs a row once; returns the time of one operation of one thread in nanoseconds.
fn run(row: &Row) -> f64 {
    let threads = row.threads + usize::from(row.beside.is_some());
    let engines: Vec<Engine> = (0..if row.separate { threads } else { 1 })
        .map(|_| filled_engine(KEYS))
        .collect();
    let stop = AtomicBool::new(false);
    let start = Barrier::new(threads + 1);
    let (stop, start) = (&stop, &start);
    thread::scope(|scope| {
        let mut measured = Vec::new();
        for thread in 0..threads {
            let engine = &engines[thread % engines.len()];
            let work = match row.beside {
                Some(load) if thread == row.threads => load,
                _ => row.work,
            };
            let slice = slice_of(thread, row.threads);
            let handle = scope.spawn(move || {
                start.wait();
                repeat(engine, work, slice, stop)
            });
            if thread < row.threads {
                measured.push(handle);
            }
        }
        start.wait();
        thread::sleep(ROW_TIME);
        stop.store(true, Ordering::Relaxed);
        let total: f64 = measured
            .into_iter()
            .map(|handle| handle.join().unwrap_or(f64::NAN))
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "few threads")]
        let mean = total / row.threads as f64;
        mean
    })
}

/// Returns the keys of a thread: the first of them and their number. Threads have separate keys.
fn slice_of(thread: usize, threads: usize) -> (u64, u64) {
    let len = KEYS / threads as u64;
    ((thread % threads) as u64 * len, len)
}

/// Works until told to stop; returns the mean time of one operation in nanoseconds.
fn repeat(engine: &Engine, work: Work, (first, len): (u64, u64), stop: &AtomicBool) -> f64 {
    let mut next = pseudo_random(len);
    let names: Vec<Vec<u8>> = (0..65_536).map(|_| key(first + next())).collect();
    let end = key(KEYS);
    let mut done = 0_u64;
    let started = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        done += 1;
        let name = || &names[usize::try_from(done).unwrap_or(0) % names.len()];
        match work {
            Work::Get => drop(black_box(engine.get(name()))),
            Work::Scan => {
                let range =
                    Range::of(KeyRange::within(name().clone(), end.clone())).limit(SCAN_KEYS);
                drop(black_box(engine.range(&range)));
            }
            Work::Count => {
                let range = Range::of(KeyRange::within(name().clone(), end.clone())).count_only();
                drop(black_box(engine.range(&range)));
            }
            Work::Create => drop(engine.put(key(KEYS + done * 1_000_003 % 900_000_000), value())),
            Work::Mix if !done.is_multiple_of(10) => drop(black_box(engine.get(name()))),
            Work::Update | Work::Mix => drop(engine.put(name().clone(), value())),
            Work::Compact => {
                drop(engine.put(name().clone(), value()));
                if done.is_multiple_of(COMPACTED_REVISIONS)
                    && let Ok(compaction) = engine.compact(engine.current_revision())
                {
                    compaction.run();
                }
            }
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let mean = started.elapsed().as_nanos() as f64 / done.max(1) as f64;
    mean
}
