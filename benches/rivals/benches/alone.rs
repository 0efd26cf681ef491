//! One thread, one operation at a time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use revstore_rivals::{ALL, Entry, KEYS, Ordered, SCANNED, fill, key, shuffled};

/// Keys that are created, or deleted, in one go.
const BATCH: u64 = 10_000;

fn alone(c: &mut Criterion) {
    let maps = ALL.map(|(name, new)| {
        let map = new();
        fill(&*map);
        (name, map)
    });
    // The maps take turns within each operation, so that what else the machine does meets all.
    each(c, &maps, "get", 1, |map, key| {
        black_box(map.get(key).map(|entry| entry.read()));
    });
    each(c, &maps, "update", 1, |map, key| {
        if let Some(entry) = map.get(key) {
            entry.write();
        }
    });
    each(c, &maps, "scan", SCANNED as u64, |map, key| {
        black_box(map.scan(key, SCANNED));
    });
    change(c, &maps, "create", true);
    change(c, &maps, "delete", false);
    let mut next = shuffled(1, KEYS);
    let mut group = c.benchmark_group("count");
    for (name, map) in &maps {
        if map.count_below(b"").is_some() {
            group.bench_function(*name, |b| b.iter(|| map.count_below(&key(next() * 2))));
        }
    }
}

fn each(
    c: &mut Criterion,
    maps: &[(&str, Box<dyn Ordered>)],
    operation: &str,
    keys: u64,
    run: impl Fn(&dyn Ordered, &[u8]),
) {
    let mut group = c.benchmark_group(operation);
    group.throughput(Throughput::Elements(keys));
    for (name, map) in maps {
        let mut next = shuffled(1, KEYS - SCANNED as u64);
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| run(&**map, &key(next() * 2)));
        });
    }
}

/// Creates keys between the others and deletes them again; only one of both is timed.
fn change(c: &mut Criterion, maps: &[(&str, Box<dyn Ordered>)], operation: &str, create: bool) {
    let mut group = c.benchmark_group(operation);
    for (name, map) in maps {
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter_custom(|rounds| {
                let mut spent = Duration::ZERO;
                let mut left = rounds;
                while left > 0 {
                    let batch = left.min(BATCH);
                    left -= batch;
                    // No number twice: the step and the number of keys have no common divisor.
                    let numbers = (0..batch).map(|number| (number * 618_033 % KEYS) * 2 + 1);
                    let keys: Vec<_> = numbers.map(key).collect();
                    let started = Instant::now();
                    keys.iter().for_each(|key| map.create(Entry::new(key)));
                    let created = started.elapsed();
                    let started = Instant::now();
                    keys.iter().for_each(|key| map.delete(key));
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
    targets = alone
}
criterion_main!(benches);
