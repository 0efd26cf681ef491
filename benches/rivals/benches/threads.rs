//! The number of operations per second of 1 to 4 threads that do the same.
//!
//! Each round measures all maps, in an order that changes with every round. The program prints the
//! medians over all rounds, as tables, and draws `benches/plots/maps.svg`.

#![allow(
    clippy::print_stdout,
    reason = "the tables are the output of the program"
)]

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use revstore_rivals::curves::{Line, draw, median};
use revstore_rivals::{
    ALL, COUNTED, Entry, KEYS, LOCKED, MASSTREE, OrderedMap, fill, key, pseudo_random,
};

const ROUNDS: usize = 5;
const ROUND_TIME: Duration = Duration::from_millis(150);
const THREADS: [usize; 4] = [1, 2, 3, 4];
const MAPS: [&str; 3] = [COUNTED, LOCKED, MASSTREE];
const SCAN_KEYS: usize = 500;
/// In the mix, one of so many operations is an update.
const MIX_UPDATE_EVERY: u64 = 10;
/// The unit of `/proc/stat` and `/proc/self/stat`, which is fixed for programs.
const TICKS_PER_SECOND: f64 = 100.0;

const PLOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plots/maps.svg");

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Get,
    Scan,
    Update,
    Create,
    Mix,
}

const OPERATIONS: [(Operation, &str); 5] = [
    (Operation::Get, "get"),
    (Operation::Scan, "scan of 500"),
    (Operation::Update, "update"),
    (Operation::Create, "create"),
    (Operation::Mix, "90 % get, 10 % update"),
];

/// The rates of one map: for each operation and number of threads those of all rounds.
type Rates = [[Vec<f64>; THREADS.len()]; OPERATIONS.len()];

/// A key whose number is changed in place, because formatting one would cost as much as a read.
struct Key(Vec<u8>);

impl Key {
    fn new() -> Self {
        Self(key(0))
    }

    /// Equal to [`key`].
    fn set(&mut self, number: u64) -> &[u8] {
        const NAMESPACE_AT: usize = "/registry/pods/default-namespace-".len();
        let digits_at = self.0.len() - 8;
        decimal(&mut self.0[NAMESPACE_AT..NAMESPACE_AT + 3], number / 20_000);
        decimal(&mut self.0[digits_at..], number);
        &self.0
    }
}

fn decimal(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789"[(number % 10) as usize];
        number /= 10;
    }
}

/// Runs an operation until `stop`, and returns how often. Threads create different keys.
fn work(
    map: &dyn OrderedMap,
    operation: Operation,
    (thread, threads): (u64, u64),
    seed: u64,
    stop: &AtomicBool,
) -> u64 {
    let mut next = pseudo_random(seed, KEYS - SCAN_KEYS as u64);
    let mut key = Key::new();
    let mut count = 0;
    let update = |key: &[u8]| {
        if let Some(entry) = map.get(key) {
            entry.write();
        }
    };
    while !stop.load(Ordering::Relaxed) {
        match operation {
            Operation::Create => {
                let number = count * threads + thread;
                assert!(number < KEYS, "a round is too short for that many keys");
                map.create(&Entry::new(key.set(created(number))));
            }
            Operation::Scan => {
                black_box(map.scan(key.set(next() * 2), SCAN_KEYS));
            }
            Operation::Update => update(key.set(next() * 2)),
            Operation::Mix if count % MIX_UPDATE_EVERY == 0 => update(key.set(next() * 2)),
            Operation::Get | Operation::Mix => {
                black_box(map.read(key.set(next() * 2)));
            }
        }
        count += 1;
    }
    count
}

/// Returns the key that is created as number `number`. All are different, because the step and the
/// number of keys are coprime.
fn created(number: u64) -> u64 {
    (number * 618_033 % KEYS) * 2 + 1
}

/// Returns the operations per second of all threads together.
fn measure(map: &dyn OrderedMap, operation: Operation, threads: usize, seed: u64) -> f64 {
    let stop = AtomicBool::new(false);
    let start = Barrier::new(threads + 1);
    let (counts, took) = thread::scope(|scope| {
        let (stop, start) = (&stop, &start);
        let handles: Vec<_> = (0..threads as u64)
            .map(|thread| {
                scope.spawn(move || {
                    start.wait();
                    let seed = seed + thread * 1000;
                    work(map, operation, (thread, threads as u64), seed, stop)
                })
            })
            .collect();
        start.wait();
        let started = Instant::now();
        thread::sleep(ROUND_TIME);
        stop.store(true, Ordering::Relaxed);
        let counts: Vec<u64> = handles
            .into_iter()
            .map(|handle| handle.join().expect("the thread does not panic"))
            .collect();
        (counts, started.elapsed())
    });
    if operation == Operation::Create {
        for (thread, count) in counts.iter().enumerate() {
            for number in 0..*count {
                map.delete(&key(created(number * threads as u64 + thread as u64)));
            }
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let count = counts.iter().sum::<u64>() as f64;
    count / took.as_secs_f64()
}

/// Returns the processor time since the start of the machine that all programs used, and that this
/// one used, in seconds.
fn processor_time() -> Option<(f64, f64)> {
    let sum = |text: &str, fields: &[usize]| -> Option<f64> {
        let words: Vec<_> = text.split_whitespace().collect();
        let values = fields.iter().map(|at| words.get(*at)?.parse::<f64>().ok());
        Some(values.sum::<Option<f64>>()? / TICKS_PER_SECOND)
    };
    // User, nice, system, irq, softirq, steal.
    let all = sum(&fs::read_to_string("/proc/stat").ok()?, &[1, 2, 3, 6, 7, 8])?;
    let own = fs::read_to_string("/proc/self/stat").ok()?;
    // User and system, counted from the end of the name of the program.
    let own = sum(own.rsplit_once(") ")?.1, &[11, 12])?;
    Some((all, own))
}

fn main() -> Result<(), Box<dyn Error>> {
    let maps = MAPS.map(|name| {
        let new = ALL.iter().find(|(other, _)| *other == name);
        let map = new.expect("a map of the list").1();
        fill(&*map);
        map
    });
    let mut check = Key::new();
    assert_eq!(check.set(1_234_567), key(1_234_567));
    let mut rates: Vec<Rates> = MAPS.iter().map(|_| Rates::default()).collect();
    let (before, started) = (processor_time(), Instant::now());
    for round in 0..ROUNDS {
        for (at, (operation, _)) in OPERATIONS.iter().enumerate() {
            for (column, threads) in THREADS.into_iter().enumerate() {
                for position in 0..maps.len() {
                    let map = (position + round) % maps.len();
                    let rate = measure(&*maps[map], *operation, threads, round as u64 + 1);
                    rates[map][at][column].push(rate);
                }
            }
        }
    }
    let (after, took) = (processor_time(), started.elapsed().as_secs_f64());
    for (at, (_, name)) in OPERATIONS.iter().enumerate() {
        println!("\n| {name}, thousand per second | 1 thread | 2 | 3 | 4 |\n|---|---|---|---|---|");
        for (map, rates) in MAPS.iter().zip(&rates) {
            let cells = rates[at]
                .each_ref()
                .map(|rates| format!("{:.0}", median(rates) / 1e3));
            println!("| {map} | {} |", cells.join(" | "));
        }
    }
    if let (Some(before), Some(after)) = (before, after) {
        let others = (after.0 - before.0) - (after.1 - before.1);
        println!(
            "\nOther programs used {:.2} processors on average meanwhile.",
            others / took
        );
    }
    let lines: Vec<_> = MAPS
        .iter()
        .zip(&rates)
        .map(|(name, rates)| Line {
            name,
            rates: rates
                .iter()
                .map(|row| row.iter().map(|rates| median(rates)).collect())
                .collect(),
        })
        .collect();
    draw(Path::new(PLOT), &OPERATIONS.map(|(_, name)| name), &lines)
}
