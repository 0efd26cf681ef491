//! The time of the engine's operations.
//!
//! Expected time per operation with 100,000 keys in the store: at most 1 µs for an operation on one
//! key, 100 ns per key for a range, the time of a get for a count, and about 100 ns for each watch
//! that receives an event. Other watches add no time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use revstore_benches::{NaiveStore, filled_engine, key, pseudo_random, value};
use revstore_engine::{
    Compare, CompareTarget, Engine, KeyRange, ManualClock, Op, Put, Range, Relation, Txn,
    WatchOptions,
};

const KEYS: u64 = 100_000;
/// The distance of the `far_back` revision from the current revision.
const FAR_BACK: u64 = 200_000;

fn from(number: u64) -> KeyRange {
    KeyRange::within(key(number), "/registry/pods/default/l")
}

fn put(c: &mut Criterion) {
    let engine = filled_engine(KEYS);
    let mut next = pseudo_random(KEYS);
    c.bench_function("engine/put/update", |b| {
        b.iter(|| engine.put(key(next()), value()).expect("a valid put"));
    });
    let mut created = KEYS;
    c.bench_function("engine/put/create", |b| {
        b.iter(|| {
            created += 1;
            engine.put(key(created), value()).expect("a valid put")
        });
    });
    let naive = NaiveStore::filled(KEYS);
    c.bench_function("naive/put/update", |b| {
        b.iter(|| naive.put(key(next()), value()));
    });
}

fn put_threads(c: &mut Criterion) {
    let engine = filled_engine(KEYS);
    let mut group = c.benchmark_group("engine/put/threads");
    for threads in 1..=4_u64 {
        group.bench_with_input(
            BenchmarkId::from_parameter(threads),
            &threads,
            |b, threads| {
                // Measures the time in which each thread makes one put.
                b.iter_custom(|rounds| {
                    let started = Instant::now();
                    std::thread::scope(|scope| {
                        for thread in 0..*threads {
                            let engine = &engine;
                            scope.spawn(move || {
                                for round in 0..rounds {
                                    let number = (round * 7 + thread * 31) % KEYS;
                                    engine.put(key(number), value()).expect("a valid put");
                                }
                            });
                        }
                    });
                    started.elapsed()
                });
            },
        );
    }
}

fn get(c: &mut Criterion) {
    let engine = filled_engine(KEYS);
    let old = engine.current_revision();
    for number in 0..KEYS {
        engine.put(key(number), value()).expect("a valid put");
    }
    let mut next = pseudo_random(KEYS);
    c.bench_function("engine/get/head", |b| b.iter(|| engine.get(key(next()))));
    c.bench_function("engine/get/old", |b| {
        b.iter(|| engine.range(&Range::of(KeyRange::one(key(next()))).at(old)));
    });
    let deep = Engine::builder().clock(ManualClock::new()).build();
    for _ in 0..1_000_000 {
        deep.put("k", "v").expect("a valid put");
    }
    let middle = revstore_engine::Revision(500_000);
    c.bench_function("engine/get/old_of_a_million_versions", |b| {
        b.iter(|| deep.range(&Range::of(KeyRange::one("k")).at(middle)));
    });
    let naive = NaiveStore::filled(KEYS);
    c.bench_function("naive/get/head", |b| b.iter(|| naive.get(&key(next()))));
}

/// Adds revisions that alternately create and delete a key after all other keys.
fn create_and_delete(engine: &Engine, keys: u64, revisions: u64) {
    for number in 0..revisions / 2 {
        let key = key(keys + number);
        engine.put(key.clone(), value()).expect("a valid put");
        engine
            .delete(&KeyRange::one(key))
            .expect("a store that accepts writes");
    }
}

/// Measures pages with their counts, and counts without keys.
///
/// The expected time does not depend on the number of keys. At the current revision the index
/// contains the counts; 1,000 revisions before it, the 1,000 log records since are scanned as well.
/// At the `far_back` revision the engine scans either the keys of the range or the log records
/// since, whichever are fewer.
fn range(c: &mut Criterion) {
    for keys in [10_000, 100_000, 1_000_000] {
        let engine = filled_engine(keys);
        let mut next = pseudo_random(keys - 500);
        let mut group = c.benchmark_group(format!("engine/range/of_{keys}"));
        group.bench_function("limit_500", |b| {
            b.iter(|| engine.range(&Range::of(from(next())).limit(500)));
        });
        group.bench_function("count", |b| {
            b.iter(|| engine.range(&Range::of(from(next())).count_only()));
        });
        let far_back = engine.current_revision();
        create_and_delete(&engine, keys, FAR_BACK);
        let back = engine.current_revision();
        create_and_delete(&engine, keys, 1000);
        group.bench_function("limit_500_1000_revisions_back", |b| {
            b.iter(|| engine.range(&Range::of(from(next())).limit(500).at(back)));
        });
        group.bench_function("count_1000_revisions_back", |b| {
            b.iter(|| engine.range(&Range::of(from(next())).count_only().at(back)));
        });
        group.sample_size(10);
        group.bench_function("limit_500_far_back", |b| {
            b.iter(|| engine.range(&Range::of(from(next())).limit(500).at(far_back)));
        });
        group.bench_function("limit_500_of_600_far_back", |b| {
            b.iter(|| {
                let first = next() % (keys - 600);
                let few = KeyRange::within(key(first), key(first + 600));
                engine.range(&Range::of(few).limit(500).at(far_back))
            });
        });
        group.finish();
        if keys == KEYS {
            let mut group = c.benchmark_group("engine/range/limit");
            for limit in [10, 10_000] {
                group.throughput(Throughput::Elements(limit));
                group.bench_with_input(BenchmarkId::from_parameter(limit), &limit, |b, limit| {
                    let limit = usize::try_from(*limit).expect("a small number");
                    b.iter(|| engine.range(&Range::of(from(0)).limit(limit)));
                });
            }
        }
    }
    let naive = NaiveStore::filled(KEYS);
    let mut next = pseudo_random(KEYS - 500);
    c.bench_function("naive/range/limit_500", |b| {
        b.iter(|| naive.range(&key(next()), 500));
    });
}

fn txn(c: &mut Criterion) {
    let engine = filled_engine(KEYS);
    let mut next = pseudo_random(KEYS);
    c.bench_function("engine/txn/guarded_update", |b| {
        b.iter(|| {
            let key = key(next());
            let mod_revision = engine.get(&key).map_or(0, |kv| kv.mod_revision().0);
            engine.txn(
                &Txn::new()
                    .when(vec![Compare::new(
                        KeyRange::one(key.clone()),
                        CompareTarget::ModRevision(mod_revision),
                        Relation::Equal,
                    )])
                    .and_then(vec![Op::Put(Put::new(key.clone(), value()))])
                    .or_else(vec![Op::Range(Range::of(KeyRange::one(key)))]),
            )
        });
    });
    c.bench_function("engine/delete/range_of_100", |b| {
        b.iter_batched(
            || {
                (KEYS..KEYS + 100).for_each(|number| {
                    engine.put(key(number), value()).expect("a valid put");
                });
            },
            |()| {
                engine
                    .delete(&KeyRange::within(key(KEYS), key(KEYS + 100)))
                    .expect("a store that accepts writes")
            },
            BatchSize::PerIteration,
        );
    });
}

fn watch(c: &mut Criterion) {
    for (shape, keys) in [
        ("matching", KeyRange::prefix("/registry/")),
        ("other", KeyRange::one("x")),
    ] {
        let mut group = c.benchmark_group(format!("engine/watch/put_with_{shape}"));
        for watchers in [1_usize, 1_000, 10_000] {
            let engine = filled_engine(1000);
            let mut watchers: Vec<_> = (0..watchers)
                .map(|_| {
                    engine
                        .watch(WatchOptions::of(keys.clone()))
                        .expect("a valid watch")
                })
                .collect();
            let mut next = pseudo_random(1000);
            group.bench_function(BenchmarkId::from_parameter(watchers.len()), |b| {
                b.iter(|| {
                    engine.put(key(next()), value()).expect("a valid put");
                    for watcher in &mut watchers {
                        if shape == "matching" {
                            black_box(watcher.try_next());
                        }
                    }
                });
            });
        }
    }
}

fn compaction(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine/compaction");
    group.sample_size(10);
    group.throughput(Throughput::Elements(KEYS));
    group.bench_function("100k_superseded_versions", |b| {
        b.iter_batched(
            || {
                let engine = filled_engine(KEYS);
                for number in 0..KEYS {
                    engine.put(key(number), value()).expect("a valid put");
                }
                engine
            },
            |engine| {
                let current = engine.current_revision();
                engine.compact(current).expect("the current revision").run();
                engine
            },
            BatchSize::PerIteration,
        );
    });
}

fn lease(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine/lease");
    group.sample_size(10);
    group.throughput(Throughput::Elements(KEYS));
    group.bench_function("expiry_of_100k", |b| {
        b.iter_batched(
            || {
                let clock = ManualClock::new();
                let engine = Engine::builder().clock(clock.clone()).build();
                for number in 0..KEYS {
                    let lease = engine.grant(None, 5).expect("a valid lease").id;
                    let put = Put::new(key(number), value()).attached_to(lease);
                    engine.put_with(&put).expect("a valid put");
                }
                (engine, clock)
            },
            |(engine, clock)| {
                clock.advance(Duration::from_secs(5));
                engine
            },
            BatchSize::PerIteration,
        );
    });
}

fn fork(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine/fork");
    group.sample_size(20);
    group.throughput(Throughput::Elements(KEYS));
    let in_order = filled_engine(KEYS);
    group.bench_function("100k_keys", |b| b.iter_with_large_drop(|| in_order.fork()));
    // The records of neighbours in the index are apart in memory.
    let clock = ManualClock::new();
    let scattered = Engine::builder().clock(clock).build();
    for number in 0..KEYS {
        let number = number.wrapping_mul(48_271) % KEYS;
        scattered.put(key(number), value()).expect("a valid put");
    }
    group.bench_function("100k_keys_created_in_no_order", |b| {
        b.iter_with_large_drop(|| scattered.fork());
    });
    for number in 0..KEYS {
        in_order.put(key(number), value()).expect("a valid put");
    }
    group.bench_function("100k_keys_of_two_versions", |b| {
        b.iter_with_large_drop(|| in_order.fork());
    });
    group.bench_function("drop_of_100k_keys", |b| {
        b.iter_batched(|| in_order.fork(), drop, BatchSize::PerIteration);
    });
}

criterion_group!(
    benches,
    put,
    put_threads,
    get,
    range,
    txn,
    watch,
    compaction,
    lease,
    fork
);
criterion_main!(benches);
