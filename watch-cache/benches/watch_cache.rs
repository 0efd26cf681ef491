//! T-65: the cost of watchers, lists and loads.
//!
//! `cargo bench -p revstore-watch-cache` first prints numbers that criterion cannot measure: bytes
//! per idle watcher and per list, the time from a commit to the delivery, and the number of watchers
//! that an event wakes. Then it prints criterion's tables; with `-- none` it does not print them.
//! `README.md` has the results.

#[allow(dead_code, reason = "each benchmark uses a part")]
mod setup;

use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use futures_core::Stream as _;
use pollster::block_on;
use revstore_engine::{Engine, ManualClock};
use revstore_watch_cache::api::Storage;
use revstore_watch_cache::cache::Readiness;
use revstore_watch_cache::{
    CacheWatcher, EngineSource, JsonKind, ListOptions, ResourceConfig, Scope, Selector, WatchCache,
    WatchOptions,
};

use setup::{Bench, CountingWaker, IN_USE, PEAK, drain, pod, print_line};

/// Prints the numbers that criterion cannot measure: bytes, percentiles and wake-ups.
fn figures(_: &mut Criterion) {
    memory_of_watchers();
    for (matching, others) in [(0, 0), (10, 90), (10, 990), (10, 9_990), (10_000, 0)] {
        delivery_of_events(matching, others);
    }
    delivery_beside_loads();
    pages_under_churn();
    loads_and_lists();
}

fn memory_of_watchers() {
    let bench = Bench::new(0);
    let waker = Waker::from(Arc::new(CountingWaker::default()));
    let before = IN_USE.load(Ordering::Relaxed);
    let idle = bench.watchers(0, 10_000, &waker);
    let each = (IN_USE.load(Ordering::Relaxed) - before) / idle.len();
    print_line(&format!(
        "bytes per idle watcher (10,000, one interest each): {each}"
    ));
}

/// Measures the time from a commit until all matching watchers have encoded its event.
fn delivery_of_events(matching: usize, others: usize) {
    let mut bench = Bench::new(0);
    let waker = Waker::from(Arc::new(CountingWaker::default()));
    let mut watchers = bench.watchers(matching, others, &waker);
    let writes = if matching > 1_000 { 200 } else { 20_000 };
    let mut deliver = || {
        let began = Instant::now();
        bench.write();
        bench.feed();
        for watcher in &mut watchers[..matching] {
            assert!(black_box(drain(watcher, &waker)) > 0);
        }
        began.elapsed()
    };
    for _ in 0..writes / 10 {
        deliver();
    }
    let began = Instant::now();
    let mut times: Vec<Duration> = (0..writes).map(|_| deliver()).collect();
    let total = began.elapsed();
    times.sort_unstable();
    let metrics = bench.pods.metrics();
    let each = |count: u64| count.div_ceil(metrics.events_received);
    print_line(&format!(
        "{matching} of {} watchers match: {:.0} writes/s, delivered in p50 {:?}, p99 {:?}; per \
         event {} watchers woken, {} filtered it out, {} encoded",
        matching + others,
        f64::from(writes) / total.as_secs_f64(),
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        each(metrics.watchers_woken),
        each(metrics.events_filtered_out),
        each(metrics.events_encoded),
    ));
}

/// The number of objects of the resource that is loaded while events of another one are delivered.
const LOADED_OBJECTS: u64 = 200_000;

/// Measures the time from a commit until a watcher of one resource has its event: alone, and while
/// another resource is loaded, in turns. The feeder has its thread, or shares one with the task of the
/// watcher, as on an executor with one thread.
fn delivery_beside_loads() {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    for name in 0..LOADED_OBJECTS {
        let key = format!("/registry/secrets/ns{:02}/secret-{name:06}", name % 100);
        engine
            .put(key, pod(name, "node"))
            .expect("the put succeeds");
    }
    for shares_thread in [false, true] {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        let mut loads: Vec<_> = (0..5)
            .map(|_| one_load(&engine, shares_thread, &mut alone, &mut beside))
            .collect();
        loads.sort_unstable();
        let feeder = if shares_thread {
            "the watcher's thread"
        } else {
            "its own thread"
        };
        for (name, times) in [("alone", &mut alone), ("beside loads", &mut beside)] {
            times.sort_unstable();
            let count = times.len();
            print_line(&format!(
                "feeder on {feeder}, {name}: {count} events delivered in p50 {:?}, p99 {:?}, at most {:?}",
                times[count / 2],
                times[count * 99 / 100],
                times[count - 1],
            ));
        }
        print_line(&format!(
            "a load of 200,000 objects meanwhile: {:?}",
            loads[loads.len() / 2]
        ));
    }
}

/// Delivers events before and during one load. Returns the time that the load took.
fn one_load(
    engine: &Engine,
    shares_thread: bool,
    alone: &mut Vec<Duration>,
    beside: &mut Vec<Duration>,
) -> Duration {
    let config = |name: &str| {
        let kind = JsonKind::new("v1", "Thing");
        ResourceConfig::namespaced(kind, name, &format!("/registry/{name}"))
    };
    let source = Arc::new(EngineSource::new(engine.clone()));
    let (cache, feeder) = WatchCache::builder(source).build();
    let pods = cache.add(config("pods")).expect("the resource is valid");
    let (send_watch, watches) = std::sync::mpsc::channel::<CacheWatcher>();
    let (send_event, events) = std::sync::mpsc::channel();
    let deliver_all = move |watch: &mut CacheWatcher, context: &mut Context<'_>| loop {
        match Pin::new(&mut *watch).poll_next(context) {
            Poll::Ready(Some(_)) => send_event.send(()).expect("the events are received"),
            Poll::Ready(None) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    };
    let (mut threads, mut feeder_thread) = (Vec::new(), None);
    if shares_thread {
        let (mut feeder, mut watch) = (Box::pin(feeder.run()), None);
        let both = std::future::poll_fn(move |context| {
            let stopped = feeder.as_mut().poll(context);
            // After the feeder: an event that it has delivered to a watch was written after the watch was sent.
            watch = watch.take().or_else(|| watches.try_recv().ok());
            if let Some(watch) = &mut watch {
                let _ = deliver_all(watch, context);
            }
            stopped
        });
        threads.push(std::thread::spawn(|| block_on(both)));
    } else {
        feeder_thread = Some(feeder.spawn());
        threads.push(std::thread::spawn(move || {
            let mut watch = watches.recv().expect("the watch is sent");
            block_on(std::future::poll_fn(|context| {
                deliver_all(&mut watch, context)
            }));
        }));
    }
    block_on(pods.wait_until_ready()).expect("the cache is not stopped");
    let options = WatchOptions::default().resource_version(engine.current_revision().to_string());
    let watch = block_on(pods.watch(&Scope::All, &options)).expect("the cache is ready");
    send_watch.send(watch).expect("the thread runs");
    let put = || {
        let put = engine.put("/registry/pods/ns/pod", pod(1, "node"));
        put.expect("the put succeeds");
    };
    let deliver = |times: &mut Vec<Duration>| {
        let began = Instant::now();
        put();
        events.recv().expect("the event is delivered");
        times.push(began.elapsed());
    };
    for _ in 0..2_000 {
        deliver(alone);
    }
    let secrets = cache.add(config("secrets")).expect("the resource is valid");
    let began = Instant::now();
    while secrets.readiness() != Readiness::Ready {
        deliver(beside);
    }
    let took = began.elapsed();
    cache.stop();
    drop(feeder_thread);
    for thread in threads {
        thread.join().expect("the thread has not panicked");
    }
    took
}

/// Measures the memory of checkpoints, and pages at a revision that is 25,600 changes old.
fn pages_under_churn() {
    let mut grown = [0, 0];
    for (case, spread) in [(0, false), (1, true)] {
        let mut bench = Bench::new(100_000);
        let options = ListOptions::default().limit(500);
        let page = block_on(bench.pods.list(&Scope::All, &options)).expect("the cache is ready");
        let before = IN_USE.load(Ordering::Relaxed);
        for number in 0..25_600 {
            // Each name is in another leaf of the tree, or they are the same few names.
            let name = if spread {
                number * 7919 % 100_000
            } else {
                number % 64
            };
            let key = format!("/registry/pods/ns{:02}/pod-{name:06}", name % 100);
            let put = bench
                .engine
                .put(key, pod(name, &format!("node-{}", name % 1000)));
            put.expect("the put succeeds");
            bench.feed();
        }
        bench.catch_up();
        grown[case] = IN_USE.load(Ordering::Relaxed) - before;
        if !spread {
            continue;
        }
        let checkpoints = bench.pods.metrics().checkpoints;
        let each = grown[1].saturating_sub(grown[0]) / usize::try_from(checkpoints).unwrap_or(1);
        print_line(&format!(
            "{checkpoints} checkpoints of 100,000 objects, 256 changes of different objects each: \
             {each} bytes per checkpoint"
        ));
        let first = page.continue_token;
        for from_cache in [true, false] {
            let (mut token, mut pages, mut objects) = (first.clone(), 0, 0);
            let began = Instant::now();
            while let Some(start) = token {
                let options = ListOptions::default().limit(500).continue_token(start);
                let page = if from_cache {
                    block_on(bench.pods.list(&Scope::All, &options))
                } else {
                    block_on(Storage::list(bench.pods.raw(), &Scope::All, &options))
                };
                let page = page.expect("the revision is not compacted");
                token = page.continue_token;
                objects += page.items.count();
                pages += 1;
            }
            let from = if from_cache {
                "the cache"
            } else {
                "its source"
            };
            print_line(&format!(
                "{objects} objects in {pages} pages, 25,600 changes ago, from {from}: {:?} per page",
                began.elapsed() / pages,
            ));
        }
        let from_source = bench.pods.metrics().lists_from_source;
        print_line(&format!(
            "pages that the cache has read from its source: {from_source}"
        ));
    }
}

fn loads_and_lists() {
    let engine = Bench::new(100_000).engine;
    let began = Instant::now();
    let mut bench = Bench::over(engine);
    print_line(&format!("load 100,000 objects: {:?}", began.elapsed()));
    let loaded = bench.engine.current_revision().to_string();
    for _ in 0..1_000 {
        bench.write();
    }
    bench.catch_up();
    let exact = |version: &str| list(version).resource_version_match("Exact");
    let current = bench.engine.current_revision().to_string();
    for (name, options) in [
        ("0", list("0")),
        ("unset", ListOptions::default()),
        ("exact, newest", exact(&current)),
        ("exact, 1,000 changes ago", exact(&loaded)),
    ] {
        let before = IN_USE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let began = Instant::now();
        let listed = block_on(bench.pods.list(&Scope::All, &options)).expect("the cache is ready");
        let (mut count, mut bytes) = (0, 0);
        for pod in listed.items {
            count += 1;
            bytes += bench
                .pods
                .encode_object(&pod.expect("the pod can be decoded"))
                .len();
        }
        let (took, extra) = (began.elapsed(), PEAK.load(Ordering::Relaxed) - before);
        print_line(&format!(
            "list of {count} objects at {name}: {bytes} bytes written in {took:?}, {extra} bytes \
             of additional memory"
        ));
    }
}

fn list(version: &str) -> ListOptions {
    ListOptions::default().resource_version(version)
}

fn writes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("watch-cache/write");
    for (name, matching, others) in [
        ("0", 0, 0),
        ("10-of-1k", 10, 990),
        ("10-of-10k", 10, 9_990),
        ("10k-of-10k", 10_000, 0),
    ] {
        let mut bench = Bench::new(0);
        let waker = Waker::from(Arc::new(CountingWaker::default()));
        let mut watchers = bench.watchers(matching, others, &waker);
        group.bench_function(BenchmarkId::new("deliver", name), |bencher| {
            bencher.iter(|| {
                bench.write();
                bench.feed();
                watchers[..matching]
                    .iter_mut()
                    .map(|watcher| drain(watcher, &waker))
                    .sum::<usize>()
            });
        });
    }
    group.finish();
}

fn lists(criterion: &mut Criterion) {
    let bench = Bench::new(100_000);
    let mut group = criterion.benchmark_group("watch-cache/list-100k");
    group.sample_size(10);
    let current = bench.engine.current_revision().to_string();
    let node = Selector::parse("", "spec.nodeName=node-7").expect("the selector is valid");
    let namespace = Scope::Namespace("ns07".into());
    let exact = list(&current).resource_version_match("Exact");
    for (name, scope, options) in [
        ("all/unset", &Scope::All, ListOptions::default()),
        ("all/0", &Scope::All, list("0")),
        ("all/exact", &Scope::All, exact.clone()),
        (
            "all/page-500",
            &Scope::All,
            ListOptions::default().limit(500),
        ),
        ("namespace/0", &namespace, list("0")),
        ("namespace/exact", &namespace, exact),
        ("node-index/0", &Scope::All, list("0").selector(node)),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let listed =
                    block_on(bench.pods.list(scope, &options)).expect("the cache is ready");
                listed
                    .items
                    .map(|pod| pod.expect("the pod can be decoded").value().len())
                    .sum::<usize>()
            });
        });
    }
    group.finish();
}

fn loads(criterion: &mut Criterion) {
    let engine = Bench::new(100_000).engine;
    let mut group = criterion.benchmark_group("watch-cache/load");
    group.sample_size(10);
    group.bench_function("100k", |bencher| {
        bencher.iter_batched(|| engine.clone(), Bench::over, BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, figures, writes, lists, loads);
criterion_main!(benches);
