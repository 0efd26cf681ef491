//! Costs of an informer over a source in memory: events and relists.
//!
//! `cargo bench -p revstore-reflector --bench reflector`.

mod setup;

use criterion::{BatchSize, Criterion, Throughput};
use revstore_watch_cache::{JsonKind, Object};

use setup::{Setup, by_key, json, object};

const OBJECTS: usize = 100_000;
const EVENTS: usize = 10_000;

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reflector/events");
    group.throughput(Throughput::Elements(EVENTS as u64));
    for subscriptions in [0, 1, 10] {
        let mut setup = Setup::new((0..EVENTS).map(|n| object(n, 1)).collect(), subscriptions);
        let source = setup.source.clone();
        let changes: Vec<Object> = (0..EVENTS).map(|n| object(n, 2)).collect();
        group.bench_function(format!("{subscriptions}-subscriptions"), |bencher| {
            bencher.iter_batched(
                || source.push(&changes),
                |()| setup.deliver(),
                BatchSize::PerIteration,
            );
        });
        assert_eq!(setup.len(), EVENTS);
    }
    group.finish();
}

/// Objects from JSON, as a source over HTTP creates them.
fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reflector/decode");
    let (text, kind) = (json(1, 1), JsonKind::new("v1", "Pod"));
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("object", |bencher| {
        bencher.iter(|| Object::from_json(text.clone(), &kind));
    });
    group.finish();
}

fn relist(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reflector/relist");
    group.sample_size(10);
    group.throughput(Throughput::Elements(OBJECTS as u64));
    let keyed = by_key(OBJECTS);
    // A list that is not ordered by key has to be sorted.
    for (name, numbers) in [("by-key", keyed), ("unordered", (0..OBJECTS).collect())] {
        let objects = numbers.iter().map(|number| object(*number, 1)).collect();
        let mut setup = Setup::new(objects, 1);
        group.bench_function(format!("100000-objects/{name}"), |bencher| {
            bencher.iter(|| {
                setup.expire();
                setup.deliver()
            });
        });
        assert_eq!(setup.len(), OBJECTS);
    }
    group.finish();
}

criterion::criterion_group!(benches, relist, events, decode);
criterion::criterion_main!(benches);
