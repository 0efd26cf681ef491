//! The time of operations on one thread.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use revstore_rivals::{ALL, Entry, KEYS, OrderedMap, SCAN_KEYS, fill, key, pseudo_random};

/// The number of keys that are created and then deleted in one batch.
const BATCH: u64 = 10_000;

fn sequential(c: &mut Criterion) {
    let maps = ALL.map(|(name, new)| {
        let map = new();
        fill(&*map);
        (name, map)
    });
    // Each operation is measured on all maps in sequence, so that other load on the machine affects
    // all of them.
    bench_each(c, &maps, "get", 1, |map, key| {
        black_box(map.read(key));
    });
    bench_each(c, &maps, "update", 1, |map, key| {
        if let Some(entry) = map.get(key) {
            entry.write();
        }
    });
    bench_each(c, &maps, "scan", SCAN_KEYS as u64, |map, key| {
        black_box(map.scan(key, SCAN_KEYS));
    });
    bench_change(c, &maps, "create", true);
    bench_change(c, &maps, "delete", false);
    let mut next = pseudo_random(1, KEYS);
    let mut group = c.benchmark_group("count");
    for (name, map) in &maps {
        if map.count_below(b"").is_some() {
            group.bench_function(*name, |b| b.iter(|| map.count_below(&key(next() * 2))));
        }
    }
}

fn bench_each(
    c: &mut Criterion,
    maps: &[(&str, Box<dyn OrderedMap>)],
    operation: &str,
    keys: u64,
    run: impl Fn(&dyn OrderedMap, &[u8]),
) {
    let mut group = c.benchmark_group(operation);
    group.throughput(Throughput::Elements(keys));
    for (name, map) in maps {
        let mut next = pseudo_random(1, KEYS - SCAN_KEYS as u64);
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| run(&**map, &key(next() * 2)));
        });
    }
}

/// Creates keys between the others and deletes them again. Measures the time of the creates if
/// `create`, otherwise of the deletes.
fn bench_change(
    c: &mut Criterion,
    maps: &[(&str, Box<dyn OrderedMap>)],
    operation: &str,
    create: bool,
) {
    let mut group = c.benchmark_group(operation);
    for (name, map) in maps {
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter_custom(|rounds| {
                let mut spent = Duration::ZERO;
                let mut left = rounds;
                while left > 0 {
                    let batch = left.min(BATCH);
                    left -= batch;
                    // All numbers are different, because the step and the number of keys are
                    // coprime.
                    let numbers = (0..batch).map(|number| (number * 618_033 % KEYS) * 2 + 1);
                    let keys: Vec<_> = numbers.map(key).collect();
                    let started = Instant::now();
                    for key in &keys {
                        map.create(&Entry::new(key));
                    }
                    let created = started.elapsed();
                    let started = Instant::now();
                    for key in &keys {
                        map.delete(key);
                    }
                    spent += if create { created } else { started.elapsed() };
                }
                spent
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = sequential
}
criterion_main!(benches);
