//! T-65: what clients of the watch cache cost by what they do: poll or watch, and in which form.
//!
//! `cargo bench -p revstore-watch-cache --bench costs`, with the name of a figure for that one only.
//! `README.md` has the results.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "counts are small"
)]

#[allow(dead_code, reason = "each benchmark uses a part")]
mod setup;

use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream as _;
use nix::time::ClockId;
use pollster::block_on;
use revstore_engine::{Engine, ManualClock};
use revstore_watch_cache::cache::ObjectIndex;
use revstore_watch_cache::encode::{FormId, JsonForm, MetadataForm, TableColumn, TableForm};
use revstore_watch_cache::{
    CacheWatcher, EngineSource, JsonKind, ListOptions, ResourceCache, ResourceConfig, Scope,
    WatchCache, WatchOptions,
};

use setup::{Bench, IN_USE, PEAK, print_line};

/// The time of each phase of the deliveries.
const PHASE: Duration = Duration::from_secs(2);

const METADATA: FormId = FormId(1);
const TABLE: FormId = FormId(2);

fn main() {
    let chosen = std::env::args()
        .nth(1)
        .filter(|name| !name.starts_with("--"));
    let figures: [(&str, fn()); 5] = [
        ("memory", memory_of_objects),
        ("polling", polling_beside_watching),
        ("lists", delivery_beside_lists),
        ("forms", lists_in_forms),
        ("events", events_in_forms),
    ];
    for (name, measure) in figures {
        if chosen.as_deref().is_none_or(|chosen| chosen == name) {
            measure();
        }
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = ClockId::CLOCK_THREAD_CPUTIME_ID.now();
    time.expect("the thread has a clock").into()
}

/// Returns what `work` returns, and the CPU time that it took.
fn measured<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = cpu_time();
    let result = work();
    (result, cpu_time().saturating_sub(began))
}

fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Returns a pod whose JSON has about `bytes` bytes.
fn pod(name: u64, bytes: usize) -> String {
    let node = format!("node-{}", name % 1_000);
    let small = setup::pod(name, &node);
    let padding = "x".repeat(bytes.saturating_sub(small.len() + 14));
    format!("{},\"padding\":\"{padding}\"}}", &small[..small.len() - 1])
}

/// Returns an engine with pods of about `bytes` bytes.
fn engine(objects: u64, bytes: usize) -> Engine {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    for name in 0..objects {
        put(&engine, name, bytes);
    }
    engine
}

fn put(engine: &Engine, name: u64, bytes: usize) {
    let key = format!("/registry/pods/ns{:02}/pod-{name:06}", name % 100);
    let put = engine.put(key, pod(name, bytes));
    put.expect("the put succeeds");
}

fn watch(pods: &ResourceCache, engine: &Engine) -> CacheWatcher {
    let version = engine.current_revision().to_string();
    let options = WatchOptions::default().resource_version(version);
    block_on(pods.watch(&Scope::All, &options)).expect("the cache is ready")
}

/// Measures the memory that the cache adds to that of the engine, whose values it shares.
fn memory_of_objects() {
    const OBJECTS: u64 = 100_000;
    for bytes in [256, 1_024, 4_096] {
        let engine = engine(OBJECTS, bytes);
        let size = pod(0, bytes).len();
        let before = IN_USE.load(Ordering::Relaxed);
        let bench = Bench::over(engine);
        let added = IN_USE.load(Ordering::Relaxed) - before;
        print_line(&format!(
            "memory of a cached object with a value of {size} bytes, which is the engine's: {} bytes, \
             with one index",
            added as u64 / OBJECTS,
        ));
        drop(bench);
    }
}

/// Measures clients that want all changes of 10,000 objects: by lists, and by watches.
fn polling_beside_watching() {
    const OBJECTS: u64 = 10_000;
    const CLIENTS: usize = 10;
    const ROUNDS: u64 = 11;
    for changes in [1, 10, 100, 1_000] {
        let mut bench = Bench::over(engine(OBJECTS, 1_024));
        let mut watchers: Vec<_> = (0..CLIENTS)
            .map(|_| watch(&bench.pods, &bench.engine))
            .collect();
        let (mut polled, mut watched) = (Vec::new(), Vec::new());
        let (mut polled_bytes, mut watched_bytes) = (0, 0);
        for round in 0..ROUNDS {
            for change in 0..changes {
                put(
                    &bench.engine,
                    (round * changes + change) * 7_919 % OBJECTS,
                    1_024,
                );
            }
            bench.catch_up();
            let (bytes, cpu) = measured(|| {
                let each = |watcher: &mut CacheWatcher| -> usize {
                    let next = || watcher.try_next().map(|event| watcher.encode(&event).len());
                    std::iter::from_fn(next).sum()
                };
                watchers.iter_mut().map(each).sum::<usize>()
            });
            watched_bytes += bytes;
            watched.push(cpu);
            let options = ListOptions::default().resource_version("0");
            let (bytes, cpu) = measured(|| {
                let poll = |_| {
                    let list = block_on(bench.pods.list(&Scope::All, &options));
                    let list = list.expect("the cache is ready");
                    let encoder = bench
                        .pods
                        .encoder(FormId::DEFAULT)
                        .expect("the form exists");
                    let chunks = encoder
                        .list(list)
                        .map(|chunk| chunk.expect("pods are valid").len());
                    chunks.sum::<usize>()
                };
                (0..CLIENTS).map(poll).sum::<usize>()
            });
            polled_bytes += bytes;
            polled.push(cpu);
        }
        let deliveries = changes * CLIENTS as u64;
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / deliveries as f64;
        let size = |bytes: usize| bytes as u64 / (deliveries * ROUNDS);
        let (polled, watched) = (each(median(polled)), each(median(watched)));
        print_line(&format!(
            "{changes} changes of 10,000 objects between two polls, for each change and client: polling \
             {polled:.1} µs, {} bytes; watching {watched:.2} µs, {} bytes",
            size(polled_bytes),
            size(watched_bytes),
        ));
    }
}

/// What runs beside the delivery of events.
#[derive(Clone, Copy)]
enum Neighbor {
    Nobody,
    /// A thread that computes and touches nothing of the cache.
    Computing,
    /// A thread that lists all objects of the resource.
    Listing,
}

/// Measures the time from a commit to its delivery on another thread: alone, while a third thread computes, and while
/// it lists all objects of the resource, in turns.
fn delivery_beside_lists() {
    let engine = engine(100_000, 256);
    let source = Arc::new(EngineSource::new(engine.clone()));
    let (cache, feeder) = WatchCache::builder(source).build();
    let pods = cache.add(config()).expect("the resource is valid");
    let feeder = feeder.spawn();
    block_on(pods.wait_until_ready()).expect("the cache is not stopped");
    let (sender, events) = mpsc::channel();
    let mut watcher = watch(&pods, &engine);
    let reader = std::thread::spawn(move || {
        while watcher.next_blocking().is_some() {
            if sender.send(()).is_err() {
                break;
            }
        }
    });
    let neighbors = [
        ("alone", Neighbor::Nobody),
        ("beside a computing thread", Neighbor::Computing),
        ("beside lists", Neighbor::Listing),
    ];
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let mut lists = 0;
    for _ in 0..5 {
        for ((_, neighbor), times) in neighbors.iter().zip(&mut times) {
            let stop = Arc::new(AtomicBool::new(false));
            let thread = match neighbor {
                Neighbor::Nobody => None,
                Neighbor::Computing => {
                    let stop = stop.clone();
                    Some(std::thread::spawn(move || compute_until(&stop)))
                }
                Neighbor::Listing => {
                    let (pods, stop) = (pods.clone(), stop.clone());
                    Some(std::thread::spawn(move || list_until(&pods, &stop)))
                }
            };
            let phase = Instant::now();
            let mut number = 0;
            while phase.elapsed() < PHASE {
                let began = Instant::now();
                put(&engine, number % 1_000, 256);
                events.recv().expect("the event is delivered");
                times.push(began.elapsed());
                number += 1;
            }
            stop.store(true, Ordering::Relaxed);
            lists += thread.map_or(0, |thread| thread.join().expect("the thread succeeds"));
        }
    }
    for ((name, _), times) in neighbors.iter().zip(&mut times) {
        times.sort_unstable();
        let count = times.len();
        print_line(&format!(
            "{name}: {count} events delivered in p50 {:?}, p99 {:?}, at most {:?}",
            times[count / 2],
            times[count * 99 / 100],
            times[count - 1],
        ));
    }
    print_line(&format!(
        "lists of 100,000 objects of the resource meanwhile: {lists}"
    ));
    cache.stop();
    drop(feeder);
    reader.join().expect("the reader has not panicked");
}

/// Computes until it is stopped. Returns 0, the number of its lists.
fn compute_until(stop: &AtomicBool) -> u64 {
    let mut number = 1_u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..1_000 {
            number = std::hint::black_box(
                number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
    }
    0
}

/// Lists and encodes all objects until it is stopped. Returns the number of lists.
fn list_until(pods: &ResourceCache, stop: &AtomicBool) -> u64 {
    let options = ListOptions::default().resource_version("0");
    let mut lists = 0;
    while !stop.load(Ordering::Relaxed) {
        let list = block_on(pods.list(&Scope::All, &options)).expect("the cache is ready");
        let encoder = pods.encoder(FormId::DEFAULT).expect("the form exists");
        for chunk in encoder.list(list) {
            black_box(chunk.expect("pods are valid"));
            // The rest of a list that is no longer needed.
            if stop.load(Ordering::Relaxed) {
                return lists;
            }
        }
        lists += 1;
    }
    lists
}

/// Returns pods that are served as JSON, as metadata and as rows of a table.
fn config() -> ResourceConfig {
    let kind = JsonKind::new("v1", "Pod").with_fields(["spec.nodeName"]);
    let whole = Arc::new(JsonForm::new("v1", "Pod"));
    let columns = [
        TableColumn::new("Name", "string").format("name"),
        TableColumn::new("App", "string"),
        TableColumn::new("UID", "string"),
    ];
    let table = TableForm::new(whole.clone(), &columns, |pod| {
        vec![
            pod.name().into(),
            pod.label("app").unwrap_or_default().into(),
            pod.uid().into(),
        ]
    });
    ResourceConfig::namespaced(kind, "pods", "/registry/pods")
        .index(ObjectIndex::Field("spec.nodeName".into()))
        .form(METADATA, Arc::new(MetadataForm::of(whole)))
        .form(TABLE, Arc::new(table))
}

const FORMS: [(&str, FormId); 3] = [
    ("JSON", FormId::DEFAULT),
    ("metadata", METADATA),
    ("table", TABLE),
];

/// Measures lists of 100,000 objects in each form.
fn lists_in_forms() {
    const OBJECTS: usize = 100_000;
    let bench = Bench::of(engine(OBJECTS as u64, 1_024), config());
    let options = ListOptions::default().resource_version("0");
    for (name, form) in FORMS {
        let (mut times, mut bytes, mut extra) = (Vec::new(), 0, 0);
        for _ in 0..5 {
            let before = IN_USE.load(Ordering::Relaxed);
            PEAK.store(before, Ordering::Relaxed);
            let (written, cpu) = measured(|| {
                let list = block_on(bench.pods.list(&Scope::All, &options));
                let encoder = bench.pods.encoder(form).expect("the form exists");
                let chunks = encoder.list(list.expect("the cache is ready"));
                let size = |chunk: Result<bytes::Bytes, _>| chunk.expect("pods are valid").len();
                chunks.map(size).sum::<usize>()
            });
            bytes = written;
            extra = extra.max(PEAK.load(Ordering::Relaxed) - before);
            times.push(cpu);
        }
        print_line(&format!(
            "list of {OBJECTS} objects as {name}: {} bytes and {:.2} µs of CPU time for each, {extra} bytes \
             of additional memory at most",
            bytes / OBJECTS,
            median(times).as_secs_f64() * 1e6 / OBJECTS as f64,
        ));
    }
}

/// Measures the delivery of 10,000 events to 1,000 watchers in one form, and in two.
fn events_in_forms() {
    const EVENTS: u64 = 10_000;
    const WATCHERS: usize = 1_000;
    const BATCH: u64 = 100;
    let (json, both) = (vec![FormId::DEFAULT], vec![FormId::DEFAULT, METADATA]);
    for (name, forms) in [("JSON", json), ("JSON and metadata", both)] {
        let mut bench = Bench::of(engine(1_000, 1_024), config());
        let mut watchers: Vec<_> = (0..WATCHERS)
            .map(|number| {
                let form = forms[number % forms.len()];
                let encoder = bench.pods.encoder(form).expect("the form exists");
                (watch(&bench.pods, &bench.engine), encoder)
            })
            .collect();
        let (mut cpu, mut bytes, mut delivered) = (Duration::ZERO, 0, 0);
        for first in (0..EVENTS).step_by(BATCH as usize) {
            for number in first..first + BATCH {
                put(&bench.engine, number % 1_000, 1_024);
            }
            bench.catch_up();
            let ((), took) = measured(|| {
                let mut context = Context::from_waker(Waker::noop());
                for (watcher, encoder) in &mut watchers {
                    while let Poll::Ready(Some(event)) =
                        Pin::new(&mut *watcher).poll_next(&mut context)
                    {
                        bytes += encoder.event(&event).len();
                        delivered += 1;
                    }
                }
            });
            cpu += took;
        }
        assert_eq!(delivered, EVENTS as usize * WATCHERS);
        let encoded = bench.pods.metrics().events_encoded;
        print_line(&format!(
            "{WATCHERS} watchers x {EVENTS} events as {name}: {:.0} ns of CPU time and {} bytes for each \
             delivery, {encoded} encoded",
            cpu.as_secs_f64() * 1e9 / delivered as f64,
            bytes / delivered,
        ));
    }
}
