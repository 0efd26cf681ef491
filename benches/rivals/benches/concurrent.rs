//! The time of operations of a writer and of zero, one and two concurrent readers, and the memory
//! per key.
//!
//! Each round measures all maps, in an order that changes with every round. The program prints
//! median, 99th percentile and mean of single operations in nanoseconds over all rounds, as rows of
//! a table.

#![allow(
    clippy::print_stdout,
    reason = "the table is the output of the program"
)]

use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use revstore_rivals::{ALL, Entry, KEYS, OrderedMap, SCAN_KEYS, fill, key, pseudo_random};

const ROUNDS: usize = 5;
const ROUND_TIME: Duration = Duration::from_millis(600);
/// The largest recorded time, one minute. Longer times are recorded as this value.
const RECORDED_NS_MAX: u64 = 60_000_000_000;
const READERS: [usize; 3] = [0, 1, 2];

/// The times of operations in nanoseconds.
struct Times {
    create: Histogram<u64>,
    update: Histogram<u64>,
    delete: Histogram<u64>,
    get: Histogram<u64>,
    scan: Histogram<u64>,
}

impl Times {
    fn new() -> Self {
        let new = || Histogram::new_with_bounds(1, RECORDED_NS_MAX, 3).expect("valid bounds");
        Self {
            create: new(),
            update: new(),
            delete: new(),
            get: new(),
            scan: new(),
        }
    }

    fn all(&mut self) -> [&mut Histogram<u64>; 5] {
        [
            &mut self.get,
            &mut self.scan,
            &mut self.update,
            &mut self.create,
            &mut self.delete,
        ]
    }

    fn add(&mut self, mut other: Self) {
        for (ours, theirs) in self.all().into_iter().zip(other.all()) {
            ours.add(&*theirs).expect("the same bounds");
        }
    }
}

fn timed(times: &mut Histogram<u64>, run: impl FnOnce()) {
    let started = Instant::now();
    run();
    let nanoseconds = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    times.saturating_record(nanoseconds);
}

fn write(map: &dyn OrderedMap, seed: u64, stop: &AtomicBool) -> Times {
    let mut times = Times::new();
    let mut next = pseudo_random(seed, KEYS);
    while !stop.load(Ordering::Relaxed) {
        let created = key(next() * 2 + 1);
        let updated = key(next() * 2);
        timed(&mut times.create, || map.create(&Entry::new(&created)));
        timed(&mut times.update, || {
            if let Some(entry) = map.get(&updated) {
                entry.write();
            }
        });
        timed(&mut times.delete, || map.delete(&created));
    }
    times
}

fn read(map: &dyn OrderedMap, seed: u64, stop: &AtomicBool) -> Times {
    let mut times = Times::new();
    let mut next = pseudo_random(seed, KEYS - SCAN_KEYS as u64);
    while !stop.load(Ordering::Relaxed) {
        let (one, first) = (key(next() * 2), key(next() * 2));
        timed(&mut times.get, || {
            black_box(map.read(&one));
        });
        timed(&mut times.scan, || {
            black_box(map.scan(&first, SCAN_KEYS));
        });
    }
    times
}

/// Runs one round. Without concurrent readers, a single reader runs after the writer.
fn round(map: &dyn OrderedMap, readers: usize, seed: u64) -> Times {
    let mut times = run(map, true, readers, seed);
    if readers == 0 {
        times.add(run(map, false, 1, seed));
    }
    times
}

fn run(map: &dyn OrderedMap, writes: bool, readers: usize, seed: u64) -> Times {
    let stop = AtomicBool::new(false);
    let mut times = Times::new();
    thread::scope(|scope| {
        let stop = &stop;
        let mut threads = Vec::new();
        if writes {
            threads.push(scope.spawn(move || write(map, seed, stop)));
        }
        for reader in 1..=readers as u64 {
            threads.push(scope.spawn(move || read(map, seed + reader * 1000, stop)));
        }
        thread::sleep(ROUND_TIME);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            times.add(thread.join().expect("the thread does not panic"));
        }
    });
    times
}

/// Returns the resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc exists on Linux");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("statm contains the resident pages") * 4096
}

fn main() {
    println!("| map | bytes per key |\n|---|---|");
    let maps = ALL.map(|(name, new)| {
        let before = resident_bytes();
        let map = new();
        fill(&*map);
        println!("| {name} | {} |", (resident_bytes() - before) / KEYS);
        (name, map)
    });
    let mut times = maps.each_ref().map(|_| READERS.map(|_| Times::new()));
    for number in 0..ROUNDS {
        for position in 0..maps.len() {
            let map = (position + number) % maps.len();
            for (column, readers) in READERS.into_iter().enumerate() {
                let seed = (number * READERS.len() + column) as u64 + 1;
                times[map][column].add(round(&*maps[map].1, readers, seed));
            }
        }
    }
    for (column, readers) in READERS.into_iter().enumerate() {
        let noun = if readers == 1 { "reader" } else { "readers" };
        println!("\n| {readers} {noun} | get | scan of {SCAN_KEYS} | update | create | delete |");
        println!("|---|---|---|---|---|---|");
        for ((name, _), times) in maps.iter().zip(&mut times) {
            let cells = times[column].all().map(|times| {
                let at = |percentile| times.value_at_percentile(percentile);
                format!("{} / {} / {:.0}", at(50.0), at(99.0), times.mean())
            });
            println!("| {name} | {} |", cells.join(" | "));
        }
    }
}
