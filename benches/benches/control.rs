//! What the caller of control waits for: copies of the store of a server, and its replacement.
//!
//! Names are `control/operation/keys` for the time that passes, and `control_cpu/operation/keys` for the CPU time of the
//! calling thread. The second one contains neither waits for a busy machine nor what a second thread copies. A checkpoint and
//! a restore begin when the store before has been freed, as between two tests; `restore_at_once` does not wait for that.
//!
//! Expected for 100,000 keys of one version: at most 15 ms for a checkpoint, a restore and a fork, which is 150 ns for each
//! key. A reset does not depend on the number of keys.

use std::time::Duration;
use std::{fs, thread};

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use nix::time::{ClockId, clock_gettime};
use revstore::control::Control;
use revstore::control::store::{ForkId, RestoreOptions};
use revstore::{ClockMode, Server};
use revstore_benches::fill;

const KEYS: u64 = 100_000;

/// A measurement with the first part of the names.
trait Named: Measurement {
    const NAME: &'static str;
}

impl Named for WallTime {
    const NAME: &'static str = "control";
}

/// The CPU time of the calling thread.
#[derive(Debug)]
struct ThreadTime;

impl Named for ThreadTime {
    const NAME: &'static str = "control_cpu";
}

impl Measurement for ThreadTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        time.expect("a thread has a clock").into()
    }

    fn end(&self, start: Duration) -> Duration {
        self.start().saturating_sub(start)
    }

    fn add(&self, first: &Duration, second: &Duration) -> Duration {
        *first + *second
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        static WALL: WallTime = WallTime;
        WALL.formatter()
    }
}

/// Starts a server with keys in the order of their creation.
fn filled_server(keys: u64) -> Server {
    let server = Server::builder().control(ClockMode::Manual).start();
    let server = server.expect("a server on free ports");
    fill(&server.engine(), keys);
    server
}

fn control(server: &Server) -> &Control {
    server.control().expect("control is on")
}

/// Ends a fork when it is dropped.
struct Running<'a>(&'a Control, ForkId);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let dropped = self.0.drop_copy(&self.1.to_string());
        dropped.expect("a fork that runs");
    }
}

/// Waits until the threads that free stores have ended, on Linux.
fn wait_for_free() {
    let is_freeing = || {
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
        let mut names = threads.filter_map(|thread| {
            let name = thread.ok()?.path().join("comm");
            fs::read_to_string(name).ok()
        });
        names.any(|name| name.trim_end() == "revstore-free")
    };
    while is_freeing() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn copies<M: Named>(c: &mut Criterion<M>) {
    let mut group = c.benchmark_group(M::NAME);
    group.sample_size(20);
    group.throughput(Throughput::Elements(KEYS));
    let server = filled_server(KEYS);
    let control = control(&server);
    group.bench_function("checkpoint/100k", |b| {
        b.iter_batched(
            // There is none at first.
            || {
                drop(control.drop_copy("a"));
                wait_for_free();
            },
            |()| control.checkpoint("a"),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("fork/100k", |b| {
        b.iter_with_large_drop(|| Running(control, control.fork().expect("a fork").id));
    });
    control.checkpoint("a").expect("a checkpoint");
    group.bench_function("restore/100k", |b| {
        b.iter_batched(
            wait_for_free,
            |()| control.restore("a", RestoreOptions::default()),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("restore_at_once/100k", |b| {
        b.iter(|| control.restore("a", RestoreOptions::default()));
    });
}

fn reset<M: Named>(c: &mut Criterion<M>) {
    let mut group = c.benchmark_group(M::NAME);
    group.sample_size(10);
    for (name, keys) in [("reset/1k", 1_000), ("reset/1M", 1_000_000)] {
        let server = filled_server(keys);
        let control = control(&server);
        control.checkpoint("a").expect("a checkpoint");
        group.bench_function(name, |b| {
            b.iter_batched(
                || {
                    let restored = control.restore("a", RestoreOptions::default());
                    restored.expect("the checkpoint");
                },
                |()| control.reset(false),
                BatchSize::PerIteration,
            );
        });
    }
}

criterion_group!(
    name = wall;
    config = Criterion::default();
    targets = copies, reset
);
criterion_group!(
    name = cpu;
    config = Criterion::default().with_measurement(ThreadTime);
    targets = copies, reset
);
criterion_main!(wall, cpu);
