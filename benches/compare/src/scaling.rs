//! The time of the engine's operations by the number of keys, watches and revisions.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use revstore_engine::{Engine, KeyRange, ManualClock, Range, Revision, WatchOptions};

use crate::client::{end, key, scattered, value};
use crate::{BoxError, plot};

/// The number of samples of one point. The fastest sample is used, because other load on the
/// machine only adds time.
const SAMPLES: usize = 7;

/// The duration of one sample.
const SAMPLE_TIME: Duration = Duration::from_millis(40);

/// The number of keys in the measurements of watches and of revisions.
const FEW_KEYS: u64 = 1_000;

/// A named line of a plot.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Curve {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            points: Vec::new(),
        }
    }
}

/// Measures all curves and draws `keys.svg`, `watches.svg` and `history.svg` into a directory.
pub(crate) fn plot(out: &Path) -> Result<(), BoxError> {
    fs::create_dir_all(out)?;
    let draw = |name: &str, title: &str, x_label: &str, curves: &[Curve]| {
        for curve in curves {
            for (x, y) in &curve.points {
                eprintln!("{name}: {}, {x} {x_label}: {y:.0} ns", curve.name);
            }
        }
        plot::curves(title, x_label, curves, &out.join(name))
    };
    draw("keys.svg", "Cost by number of keys", "keys", &by_keys()?)?;
    draw(
        "watches.svg",
        "Cost of a put by number of watches",
        "watches",
        &by_watches()?,
    )?;
    draw(
        "history.svg",
        "Cost by number of revisions of 1,000 keys",
        "revisions",
        &by_history()?,
    )
}

fn engine() -> Engine {
    Engine::builder().clock(ManualClock::new()).build()
}

/// Returns the time of an operation in nanoseconds. `operation` gets the number of operations
/// before it.
fn cost(mut operation: impl FnMut(u64)) -> f64 {
    let mut number = 0;
    let mut fastest = f64::MAX;
    for _ in 0..SAMPLES {
        let started = Instant::now();
        let mut operations = 0.0;
        // Reads the clock once per eight operations, because it takes as long as a fast operation.
        while started.elapsed() < SAMPLE_TIME {
            for _ in 0..8 {
                operation(number);
                number += 1;
                operations += 1.0;
            }
        }
        fastest = f64::min(fastest, started.elapsed().as_secs_f64() * 1e9 / operations);
    }
    fastest
}

#[expect(clippy::cast_precision_loss, reason = "a million at most")]
fn x(count: u64) -> f64 {
    count as f64
}

fn by_keys() -> Result<Vec<Curve>, BoxError> {
    let mut curves = ["get", "put", "page of 500", "count"].map(Curve::new);
    let engine = engine();
    let mut filled = 0;
    for keys in [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000] {
        for number in filled..keys {
            engine.put(key("", number), value())?;
        }
        filled = keys;
        let from = |number| KeyRange::within(key("", scattered(number, keys - 500)), end(""));
        let costs = [
            cost(|number| drop(black_box(engine.get(key("", scattered(number, keys)))))),
            // Updates an existing key, so that the number of keys stays the same.
            cost(|number| {
                let put = engine.put(key("", scattered(number, keys)), value());
                drop(black_box(put));
            }),
            cost(|number| drop(black_box(engine.range(&Range::of(from(number)).limit(500))))),
            cost(|number| {
                drop(black_box(
                    engine.range(&Range::of(from(number)).count_only()),
                ));
            }),
        ];
        for (curve, cost) in curves.iter_mut().zip(costs) {
            curve.points.push((x(keys), cost));
        }
        // Removes the versions that the puts added, so that they do not affect the next point.
        engine.compact(engine.current_revision())?.run();
    }
    Ok(curves.into())
}

fn by_watches() -> Result<Vec<Curve>, BoxError> {
    let mut matching = Curve::new("all on the written key, each event read at once");
    let mut others = Curve::new("all on other keys");
    let mut ranges = Curve::new("all on other ranges");
    for watches in [1, 10, 100, 1_000, 10_000] {
        let put = |engine: &Engine, number| {
            let put = engine.put(key("", scattered(number, FEW_KEYS)), value());
            drop(black_box(put));
        };
        let with = |range: &dyn Fn(u64) -> KeyRange| {
            let engine = engine();
            let mut streams = Vec::new();
            for number in 0..watches {
                let mut stream = engine.watch_stream();
                stream.watch(WatchOptions::of(range(number)))?;
                streams.push(stream);
            }
            Ok::<_, BoxError>((engine, streams))
        };
        let (engine, mut streams) = with(&|_| KeyRange::prefix("/registry/"))?;
        let cost_of_matching = cost(|number| {
            put(&engine, number);
            for stream in &mut streams {
                black_box(stream.try_next());
            }
        });
        matching.points.push((x(watches), cost_of_matching));
        let (engine, _streams) = with(&|number| KeyRange::one(key("-other", number)))?;
        let cost_of_others = cost(|number| put(&engine, number));
        others.points.push((x(watches), cost_of_others));
        let (engine, _streams) =
            with(&|number| KeyRange::within(key("-other", number), key("-other", number + 10)))?;
        let cost_of_ranges = cost(|number| put(&engine, number));
        ranges.points.push((x(watches), cost_of_ranges));
    }
    Ok(vec![matching, others, ranges])
}

fn by_history() -> Result<Vec<Curve>, BoxError> {
    let names = [
        "get, current revision",
        "get, middle revision",
        "page of 500, current revision",
        "page of 500, middle revision",
    ];
    let mut curves = names.map(Curve::new);
    let engine = engine();
    for number in 0..FEW_KEYS {
        engine.put(key("", number), value())?;
    }
    let first = engine.current_revision().0;
    let mut written = 1;
    for revisions in [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000] {
        for number in written..revisions {
            engine.put(key("", scattered(number, FEW_KEYS)), value())?;
        }
        written = revisions;
        let middle = Revision(first + revisions.cast_signed() / 2);
        let one = |number| Range::of(KeyRange::one(key("", scattered(number, FEW_KEYS))));
        let page = |number| {
            let first = key("", scattered(number, FEW_KEYS - 500));
            Range::of(KeyRange::within(first, end(""))).limit(500)
        };
        // With one or ten revisions, the middle may be above the current revision.
        let middle = middle.min(engine.current_revision());
        let costs = [
            cost(|number| drop(black_box(engine.range(&one(number))))),
            cost(|number| drop(black_box(engine.range(&one(number).at(middle))))),
            cost(|number| drop(black_box(engine.range(&page(number))))),
            cost(|number| drop(black_box(engine.range(&page(number).at(middle))))),
        ];
        for (curve, cost) in curves.iter_mut().zip(costs) {
            curve.points.push((x(revisions), cost));
        }
    }
    Ok(curves.into())
}
