//! How long a put takes at worst while a large compaction runs, and while none does:
//! `cargo run --release -p revstore-benches --example pauses`.
//!
//! Puts are sent at a fixed rate from a thread of their own, timed from when they are sent.

use std::error::Error;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use revstore_benches::{key, shuffled, value};
use revstore_engine::{Engine, ManualClock};

const KEYS: u64 = 100_000;
/// Revisions that each compaction drops.
const DROPPED: u64 = 200_000;
const ROUNDS: usize = 7;
const PUT_EVERY: Duration = Duration::from_micros(500);

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    for number in 0..KEYS {
        engine.put(key(number), value())?;
    }
    let mut out = io::stdout();
    for _ in 0..ROUNDS {
        for number in 0..DROPPED {
            engine.put(key(number % KEYS), value())?;
        }
        let mark = engine.current_revision();
        let started = Instant::now();
        let compaction = engine.compact(mark)?;
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

/// Puts at a fixed rate from another thread for as long as `work` takes.
fn puts_during(engine: &Engine, work: impl FnOnce()) -> String {
    let done = AtomicBool::new(false);
    let mut latencies = thread::scope(|scope| {
        let putting = scope.spawn(|| {
            let mut next = shuffled(KEYS);
            let mut latencies = Vec::new();
            let mut due = Instant::now();
            while !done.load(Ordering::Relaxed) {
                while Instant::now() < due {
                    std::hint::spin_loop();
                }
                due = Instant::now() + PUT_EVERY;
                let (key, value) = (key(next()), value());
                let sent = Instant::now();
                engine.put(key, value).expect("a legal put");
                latencies.push(sent.elapsed());
            }
            latencies
        });
        work();
        done.store(true, Ordering::Relaxed);
        putting.join().expect("a thread that puts")
    });
    latencies.sort_unstable();
    let at = |share: usize| latencies[(latencies.len() - 1) * share / 1000];
    format!("p50 {:?} p99 {:?} max {:?}", at(500), at(990), at(1000))
}
