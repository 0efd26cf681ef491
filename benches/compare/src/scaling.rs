//! What the engine's operations cost as the store grows: among more keys, with more watches, over a
//! longer history.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use revstore_engine::{Engine, KeyRange, ManualClock, Range, Revision, WatchOptions};

use crate::client::{end, key, scattered, value};
use crate::{Failure, plot};

/// Measurements of one point, of which the quickest counts: nothing makes work quicker than it is, and
/// neighbours on the machine make it slower.
const SAMPLES: usize = 7;

/// How long each lasts.
const SAMPLE_TIME: Duration = Duration::from_millis(40);

/// Keys under watch, or with a long history.
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

/// Measures everything and draws `keys.svg`, `watches.svg` and `history.svg` into a directory.
pub(crate) fn plot(out: &Path) -> Result<(), Failure> {
    fs::create_dir_all(out)?;
    let draw = |name: &str, title: &str, x_label: &str, curves: &[Curve]| {
        for curve in curves {
            for (x, y) in &curve.points {
                eprintln!("{name}: {}, {x} {x_label}: {y:.0} ns", curve.name);
            }
        }
        plot::curves(title, x_label, curves, &out.join(name))
    };
    draw("keys.svg", "Cost among ever more keys", "keys", &by_keys()?)?;
    draw(
        "watches.svg",
        "Cost of a put with ever more watches",
        "watches",
        &by_watches()?,
    )?;
    draw(
        "history.svg",
        "Cost over ever more revisions of 1,000 keys",
        "revisions",
        &by_history()?,
    )
}

fn engine() -> Engine {
    Engine::builder().clock(ManualClock::new()).build()
}

/// Nanoseconds that an operation takes; `operation` is told how many came before it.
fn cost(mut operation: impl FnMut(u64)) -> f64 {
    let mut number = 0;
    let mut best = f64::MAX;
    for _ in 0..SAMPLES {
        let started = Instant::now();
        let mut operations = 0.0;
        // The clock is looked at now and then: it costs as much as a quick operation.
        while started.elapsed() < SAMPLE_TIME {
            for _ in 0..8 {
                operation(number);
                number += 1;
                operations += 1.0;
            }
        }
        best = f64::min(best, started.elapsed().as_secs_f64() * 1e9 / operations);
    }
    best
}

#[expect(clippy::cast_precision_loss, reason = "a million at most")]
fn x(count: u64) -> f64 {
    count as f64
}

fn by_keys() -> Result<Vec<Curve>, Failure> {
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
            // Of a key that has a version already: the store does not grow by keys.
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
        // What the puts left is not to weigh on the next point.
        engine.compact(engine.current_revision())?.run();
    }
    Ok(curves.into())
}

fn by_watches() -> Result<Vec<Curve>, Failure> {
    let mut all = Curve::new("all of the key, each read at once");
    let mut others = Curve::new("all of other keys");
    let mut ranges = Curve::new("all of other ranges");
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
            Ok::<_, Failure>((engine, streams))
        };
        let (engine, mut streams) = with(&|_| KeyRange::prefix("/registry/"))?;
        let cost_of_all = cost(|number| {
            put(&engine, number);
            for stream in &mut streams {
                black_box(stream.try_next());
            }
        });
        all.points.push((x(watches), cost_of_all));
        let (engine, _streams) = with(&|number| KeyRange::one(key("-other", number)))?;
        let cost_of_others = cost(|number| put(&engine, number));
        others.points.push((x(watches), cost_of_others));
        let (engine, _streams) =
            with(&|number| KeyRange::within(key("-other", number), key("-other", number + 10)))?;
        let cost_of_ranges = cost(|number| put(&engine, number));
        ranges.points.push((x(watches), cost_of_ranges));
    }
    Ok(vec![all, others, ranges])
}

fn by_history() -> Result<Vec<Curve>, Failure> {
    let names = [
        "get, newest",
        "get, in the middle",
        "page of 500, newest",
        "page of 500, in the middle",
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
        // The last revisions of the shortest histories are not there yet.
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
