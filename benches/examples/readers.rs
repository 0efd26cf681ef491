//! How much threads of one engine cost each other: `cargo run --release -p revstore-benches
//! --example readers [ROUNDS [PREFIX]]`.
//!
//! Each round measures all rows, or those whose names begin with the prefix, one after the other, and the table shows the median of all rounds:
//! the time of one operation of one measured thread. The rows named `separate` are the control: the
//! same threads on separate engines, which share only the machine.

use std::error::Error;
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use revstore_benches::{filled_engine, key, pseudo_random, value};
use revstore_engine::{Engine, KeyRange, Range};

const KEYS: u64 = 200_000;
const ROW_TIME: Duration = Duration::from_millis(150);
const ROUNDS: usize = 15;
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
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    work: Work,
    threads: usize,
    beside: Option<Work>,
    separate: bool,
}

const fn row(name: &'static str, work: Work, threads: usize) -> Row {
    Row {
        name,
        work,
        threads,
        beside: None,
        separate: false,
    }
}

const fn beside(name: &'static str, work: Work, load: Work, separate: bool) -> Row {
    Row {
        name,
        work,
        threads: 1,
        beside: Some(load),
        separate,
    }
}

const fn separate(row: Row) -> Row {
    Row {
        separate: true,
        ..row
    }
}

const ROWS: [Row; 19] = [
    row("get", Work::Get, 1),
    row("get, 2 threads", Work::Get, 2),
    separate(row("get, 2 threads, separate", Work::Get, 2)),
    row("get, 4 threads", Work::Get, 4),
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
    row("scan 500", Work::Scan, 1),
    row("scan 500, 2 threads", Work::Scan, 2),
    separate(row("scan 500, 2 threads, separate", Work::Scan, 2)),
    row("count", Work::Count, 1),
    beside("count beside create", Work::Count, Work::Create, false),
    row("update", Work::Update, 1),
    row("create", Work::Create, 1),
    row("90/10 mix", Work::Mix, 1),
    row("90/10 mix, 2 threads", Work::Mix, 2),
];

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = match std::env::args().nth(1) {
        Some(rounds) => rounds.parse()?,
        None => ROUNDS,
    };
    let prefix = std::env::args().nth(2).unwrap_or_default();
    let rows: Vec<&Row> = ROWS
        .iter()
        .filter(|row| row.name.starts_with(&prefix))
        .collect();
    let mut times = vec![Vec::new(); rows.len()];
    for _ in 0..rounds {
        for (row, times) in rows.iter().zip(&mut times) {
            times.push(run(row));
        }
    }
    let mut out = io::stdout();
    for (row, times) in rows.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        writeln!(out, "{:<32} {median:9.0} ns", row.name)?;
    }
    Ok(())
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
