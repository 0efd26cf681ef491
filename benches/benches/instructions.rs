//! How many instructions operations take: the gate against getting slower by accident.
//!
//! Time depends on the machine and its neighbours, instructions hardly do. Each case runs under
//! valgrind twice, once with all its operations and once with none, and the difference is what they
//! cost. `cargo bench -p revstore-benches --bench instructions` compares with
//! `benches/instructions.txt` and fails above the tolerance, or far below it, so that a gain is
//! written down and kept; `-- --update` writes the file. Without valgrind nothing is compared, the
//! output says so, and with `REVSTORE_REQUIRE_VALGRIND=1` the program fails.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use revstore_benches::{filled, key, shuffled, value};
use revstore_engine::{Compare, CompareTarget, Op, Relation};
use revstore_engine::{Engine, KeyRange, Put, Range, Txn, WatchOptions};
use revstore_grpc::Services;
use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::watch_client::WatchClient;
use tokio::runtime;

/// Keys in the store: few, since valgrind fills it some fifty times slower than the processor.
const KEYS: u64 = 5_000;

/// How far a count may be from the one written down, in percent. Another version of the compiler or
/// of libc moves counts by a few.
const TOLERANCE_PERCENT: f64 = 8.0;

/// Set to `1`, as in CI, it makes the gate fail where valgrind is missing.
const REQUIRE_VALGRIND: &str = "REVSTORE_REQUIRE_VALGRIND";

/// A case: what is done how often, on an engine with [`KEYS`] keys.
struct Case {
    name: &'static str,
    operations: u64,
    run: fn(&Engine, u64),
}

const CASES: &[Case] = &[
    Case {
        name: "engine/put",
        operations: 2_000,
        run: engine_put,
    },
    Case {
        name: "engine/get",
        operations: 2_000,
        run: engine_get,
    },
    Case {
        name: "engine/page_500",
        operations: 40,
        run: engine_page,
    },
    Case {
        name: "engine/txn",
        operations: 2_000,
        run: engine_txn,
    },
    Case {
        name: "engine/put_with_1000_other_watches",
        operations: 2_000,
        run: engine_other_watches,
    },
    Case {
        name: "engine/event",
        operations: 2_000,
        run: engine_event,
    },
    Case {
        name: "grpc/put",
        operations: 1_000,
        run: grpc_put,
    },
    Case {
        name: "grpc/get",
        operations: 1_000,
        run: grpc_get,
    },
    Case {
        name: "grpc/page_500",
        operations: 20,
        run: grpc_page,
    },
    Case {
        name: "grpc/txn",
        operations: 1_000,
        run: grpc_txn,
    },
    Case {
        name: "grpc/event_of_20_watches",
        operations: 2_000,
        run: grpc_event,
    },
];

fn engine_put(engine: &Engine, operations: u64) {
    let mut next = shuffled(KEYS);
    for _ in 0..operations {
        engine.put(key(next()), value()).expect("a legal put");
    }
}

fn engine_get(engine: &Engine, operations: u64) {
    let mut next = shuffled(KEYS);
    for _ in 0..operations {
        black_box(engine.get(key(next())));
    }
}

fn page(number: u64) -> KeyRange {
    KeyRange::within(key(number), "/registry/pods/default/l")
}

fn engine_page(engine: &Engine, operations: u64) {
    let mut next = shuffled(KEYS - 500);
    for _ in 0..operations {
        black_box(engine.range(&Range::of(page(next())).limit(500))).expect("a legal range");
    }
}

fn engine_txn(engine: &Engine, operations: u64) {
    let mut next = shuffled(KEYS);
    for _ in 0..operations {
        let key = key(next());
        let known = engine.get(&key).map_or(0, |kv| kv.mod_revision().0);
        let txn = Txn {
            compares: vec![Compare {
                keys: KeyRange::one(key.clone()),
                target: CompareTarget::ModRevision(known),
                relation: Relation::Equal,
            }],
            success: vec![Op::Put(Put::new(key.clone(), value()))],
            failure: vec![Op::Range(Range::of(KeyRange::one(key)))],
        };
        black_box(engine.txn(&txn)).expect("a legal transaction");
    }
}

fn engine_other_watches(engine: &Engine, operations: u64) {
    let mut stream = engine.watch_stream();
    for number in 0..1_000 {
        let other = KeyRange::one(format!("/registry/leases/{number}"));
        stream
            .watch(WatchOptions::of(other))
            .expect("a legal watch");
    }
    engine_put(engine, operations);
    black_box(stream.try_next());
}

/// One event for one of ten watches that it concerns: ten puts make a hundred.
fn engine_event(engine: &Engine, operations: u64) {
    const WATCHES: u64 = 10;
    let mut streams: Vec<_> = (0..WATCHES).map(|_| engine.watch_stream()).collect();
    for stream in &mut streams {
        let all = WatchOptions::of(KeyRange::prefix("/registry/"));
        stream.watch(all).expect("a legal watch");
    }
    for _ in 0..operations / WATCHES {
        engine_put(engine, 1);
        for stream in &mut streams {
            black_box(stream.try_next()).expect("an event");
        }
    }
}

/// Runs requests one after the other. Their client is in the count, but no connection.
fn served(engine: &Engine, requests: impl AsyncFnOnce(Services)) {
    let runtime = runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let services = Services::builder(engine.clone()).build();
    runtime.block_on(requests(services));
}

fn put_request(number: u64) -> pb::PutRequest {
    pb::PutRequest {
        key: key(number).into(),
        value: value().into(),
        ..pb::PutRequest::default()
    }
}

fn grpc_put(engine: &Engine, operations: u64) {
    let mut next = shuffled(KEYS);
    served(engine, async |services| {
        let mut client = KvClient::new(services);
        for _ in 0..operations {
            client.put(put_request(next())).await.expect("a legal put");
        }
    });
}

fn grpc_get(engine: &Engine, operations: u64) {
    let mut next = shuffled(KEYS);
    served(engine, async |services| {
        let mut client = KvClient::new(services);
        for _ in 0..operations {
            let request = pb::RangeRequest {
                key: key(next()).into(),
                ..pb::RangeRequest::default()
            };
            client.range(request).await.expect("a legal range");
        }
    });
}

fn grpc_page(engine: &Engine, operations: u64) {
    let mut next = shuffled(KEYS - 500);
    served(engine, async |services| {
        let mut client = KvClient::new(services);
        for _ in 0..operations {
            let request = pb::RangeRequest {
                key: key(next()).into(),
                range_end: "/registry/pods/default/l".into(),
                limit: 500,
                ..pb::RangeRequest::default()
            };
            client.range(request).await.expect("a legal range");
        }
    });
}

fn grpc_txn(engine: &Engine, operations: u64) {
    let mut next = shuffled(KEYS);
    served(engine, async |services| {
        let mut client = KvClient::new(services);
        for _ in 0..operations {
            let put = put_request(next());
            let known = engine.get(&put.key).map_or(0, |kv| kv.mod_revision().0);
            let compare = pb::Compare {
                key: put.key.clone(),
                target: pb::compare::CompareTarget::Mod.into(),
                target_union: Some(pb::compare::TargetUnion::ModRevision(known)),
                ..pb::Compare::default()
            };
            let request = pb::TxnRequest {
                compare: vec![compare],
                success: vec![pb::RequestOp {
                    request: Some(pb::request_op::Request::RequestPut(put)),
                }],
                failure: Vec::new(),
            };
            let done = client.txn(request).await.expect("a legal transaction");
            assert!(done.into_inner().succeeded, "nobody else writes");
        }
    });
}

/// One event for one of twenty watches of a stream.
fn grpc_event(engine: &Engine, operations: u64) {
    const WATCHES: u64 = 20;
    served(engine, async |services| {
        let create = pb::WatchCreateRequest {
            key: "/registry/".into(),
            range_end: "/registry0".into(),
            ..pb::WatchCreateRequest::default()
        };
        let union = pb::watch_request::RequestUnion::CreateRequest(create);
        let request = pb::WatchRequest {
            request_union: Some(union),
        };
        let requests = vec![request; usize::try_from(WATCHES).expect("a small number")];
        // The client's half ends after its requests, which does not end the stream (WA-16).
        let requests = tokio_stream::iter(requests);
        let mut client = WatchClient::new(services);
        let mut responses = client.watch(requests).await.expect("a stream").into_inner();
        for _ in 0..WATCHES {
            let created = responses.message().await.expect("a response");
            assert!(created.is_some_and(|response| response.created));
        }
        for _ in 0..operations / WATCHES {
            engine_put(engine, 1);
            for _ in 0..WATCHES {
                let told = responses.message().await.expect("a response");
                assert_eq!(told.expect("an event").events.len(), 1);
            }
        }
    });
}

/// Instructions that this program takes for some operations of a case.
fn instructions(case: &Case, operations: u64) -> Result<f64, String> {
    let this = env::current_exe().map_err(|error| error.to_string())?;
    let run = Command::new("valgrind")
        .args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(this)
        .args(["--run", case.name, &operations.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let told = String::from_utf8_lossy(&run.stderr);
    let count = told
        .lines()
        .find_map(|line| {
            line.split_once("I   refs:")
                .or_else(|| line.split_once("I refs:"))
        })
        .and_then(|(_, count)| count.trim().replace(',', "").parse().ok());
    match count {
        Some(count) if run.status.success() => Ok(count),
        _ => Err(format!("valgrind cannot run {}:\n{told}", case.name)),
    }
}

fn measure(case: &Case) -> Result<f64, String> {
    let difference = instructions(case, case.operations)? - instructions(case, 0)?;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let operations = case.operations as f64;
    Ok((difference / operations).round())
}

fn recorded_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.txt")
}

fn recorded(text: &str, name: &str) -> Option<f64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(of, _)| *of == name)
        .and_then(|(_, count)| count.trim().parse().ok())
}

fn update() -> Result<(), String> {
    let mut text = String::new();
    for case in CASES {
        let count = measure(case)?;
        eprintln!("{} {count}", case.name);
        writeln!(text, "{} {count}", case.name).map_err(|error| error.to_string())?;
    }
    fs::write(recorded_path(), text).map_err(|error| error.to_string())
}

fn check() -> Result<(), String> {
    let text = fs::read_to_string(recorded_path()).map_err(|error| error.to_string())?;
    let mut strayed = Vec::new();
    for case in CASES {
        let expected = recorded(&text, case.name);
        let expected = expected.ok_or_else(|| format!("nothing recorded for {}", case.name))?;
        let count = measure(case)?;
        let change = (count / expected - 1.0) * 100.0;
        eprintln!("{:<40} {count:>9} {change:>+6.1} %", case.name);
        if change.abs() > TOLERANCE_PERCENT {
            strayed.push(case.name);
        }
    }
    if strayed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "more than {TOLERANCE_PERCENT} % from benches/instructions.txt: {}.\n\
         If that is as it should be, record it: just instructions --update",
        strayed.join(", ")
    ))
}

fn has_valgrind() -> bool {
    let version = Command::new("valgrind").arg("--version").output();
    version.is_ok_and(|run| run.status.success())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--run", name, operations] = arguments[..] {
        let case = CASES.iter().find(|case| case.name == name);
        let (Some(case), Ok(operations)) = (case, operations.parse()) else {
            return ExitCode::FAILURE;
        };
        (case.run)(&filled(KEYS), operations);
        return ExitCode::SUCCESS;
    }
    if !has_valgrind() {
        eprintln!("NOT RUN: valgrind is not installed");
        if env::var_os(REQUIRE_VALGRIND).is_some_and(|value| value == "1") {
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    let done = if arguments.contains(&"--update") {
        update()
    } else {
        check()
    };
    if let Err(failure) = done {
        eprintln!("{failure}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
