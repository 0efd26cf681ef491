//! The latency of puts while a large compaction runs, and without a compaction: `cargo run
//! --release -p revstore-benches --example pauses`.
//!
//! A separate thread makes puts at a fixed rate and measures the time of each.

use std::error::Error;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use revstore_benches::{key, pseudo_random, value};
use revstore_engine::{Engine, ManualClock};

const KEYS: u64 = 100_000;
/// The number of revisions that each compaction removes.
const COMPACTED_REVISIONS: u64 = 200_000;
const ROUNDS: usize = 7;
const PUT_INTERVAL: Duration = Duration::from_micros(500);

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    for number in 0..KEYS {
        engine.put(key(number), value())?;
    }
    let mut out = io::stdout();
    for _ in 0..ROUNDS {
        for number in 0..COMPACTED_REVISIONS {
            engine.put(key(number % KEYS), value())?;
        }
        let current = engine.current_revision();
        let started = Instant::now();
        let compaction = engine.compact(current)?;
        let with = puts_during(&engine, || compaction.run());
        let took = started.elapsed();
        let without = puts_during(&engine, || thread::sleep(took));
        writeln!(
            out,
            "compaction of {took:?}; puts with it {with}; without {without}"
        )?;
    }
    Ok(())
}

/// Makes puts at a fixed rate from another thread while `work` runs. Returns the quantiles of their
/// latency.
fn puts_during(engine: &Engine, work: impl FnOnce()) -> String {
    let stop = AtomicBool::new(false);
    let mut latencies = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut next = pseudo_random(KEYS);
            let mut latencies = Vec::new();
            let mut due = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                while Instant::now() < due {
                    std::hint::spin_loop();
                }
                due = Instant::now() + PUT_INTERVAL;
                let (key, value) = (key(next()), value());
                let started = Instant::now();
                engine.put(key, value).expect("a valid put");
                latencies.push(started.elapsed());
            }
            latencies
        });
        work();
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer does not panic")
    });
    latencies.sort_unstable();
    let quantile = |per_mille: usize| latencies[(latencies.len() - 1) * per_mille / 1000];
    format!(
        "p50 {:?} p99 {:?} max {:?}",
        quantile(500),
        quantile(990),
        quantile(1000)
    )
}
