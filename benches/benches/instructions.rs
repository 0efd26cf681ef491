//! Instruction counts of operations, checked against recorded counts to detect unintended
//! slowdowns.
//!
//! Times depend on the machine and its load; instruction counts depend on them very little. Each
//! case runs under valgrind twice, once with all its operations and once with none. The difference
//! is the count of its operations.
//!
//! `cargo bench -p revstore-benches --bench instructions` compares the counts with
//! `benches/instructions.txt` and fails if one differs by more than the tolerance. A lower count
//! fails too, so that improvements are recorded. `-- --update` writes the file. Without valgrind
//! the program prints that nothing was compared; with `REVSTORE_REQUIRE_VALGRIND=1` it fails then.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use revstore_benches::{filled_engine, key, pseudo_random, value};
use revstore_engine::{Compare, CompareTarget, Op, Relation};
use revstore_engine::{Engine, KeyRange, Put, Range, Txn, WatchOptions};
use revstore_grpc::Services;
use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::watch_client::WatchClient;
use tokio::runtime;

/// The number of keys in the store. It is small because a program runs about 50 times slower under
/// valgrind.
const KEYS: u64 = 5_000;

/// The allowed difference from the recorded count, in percent. Another version of the compiler or
/// of libc changes counts by a few percent.
const TOLERANCE_PERCENT: f64 = 8.0;

/// The environment variable that makes the program fail without valgrind if it is `1`, as in CI.
const REQUIRE_VALGRIND: &str = "REVSTORE_REQUIRE_VALGRIND";

/// An operation and how often it is repeated on an engine with [`KEYS`] keys.
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
    let mut next = pseudo_random(KEYS);
    for _ in 0..operations {
        engine.put(key(next()), value()).expect("a valid put");
    }
}

fn engine_get(engine: &Engine, operations: u64) {
    let mut next = pseudo_random(KEYS);
    for _ in 0..operations {
        black_box(engine.get(key(next())));
    }
}

fn page(number: u64) -> KeyRange {
    KeyRange::within(key(number), "/registry/pods/default/l")
}

fn engine_page(engine: &Engine, operations: u64) {
    let mut next = pseudo_random(KEYS - 500);
    for _ in 0..operations {
        black_box(engine.range(&Range::of(page(next())).limit(500))).expect("a valid range");
    }
}

fn engine_txn(engine: &Engine, operations: u64) {
    let mut next = pseudo_random(KEYS);
    for _ in 0..operations {
        let key = key(next());
        let mod_revision = engine.get(&key).map_or(0, |kv| kv.mod_revision().0);
        let txn = Txn::new()
            .when(vec![Compare::new(
                KeyRange::one(key.clone()),
                CompareTarget::ModRevision(mod_revision),
                Relation::Equal,
            )])
            .and_then(vec![Op::Put(Put::new(key.clone(), value()))])
            .or_else(vec![Op::Range(Range::of(KeyRange::one(key)))]);
        black_box(engine.txn(&txn)).expect("a valid transaction");
    }
}

fn engine_other_watches(engine: &Engine, operations: u64) {
    let mut stream = engine.watch_stream();
    for number in 0..1_000 {
        let other = KeyRange::one(format!("/registry/leases/{number}"));
        stream
            .watch(WatchOptions::of(other))
            .expect("a valid watch");
    }
    engine_put(engine, operations);
    black_box(stream.try_next());
}

/// Delivers events to ten watches of all keys. An operation is one event of one watch.
fn engine_event(engine: &Engine, operations: u64) {
    const WATCHES: u64 = 10;
    let mut streams: Vec<_> = (0..WATCHES).map(|_| engine.watch_stream()).collect();
    for stream in &mut streams {
        let all = WatchOptions::of(KeyRange::prefix("/registry/"));
        stream.watch(all).expect("a valid watch");
    }
    for _ in 0..operations / WATCHES {
        engine_put(engine, 1);
        for stream in &mut streams {
            black_box(stream.try_next()).expect("an event");
        }
    }
}

/// Runs requests one after the other, without a connection. The count includes the client.
fn with_services(engine: &Engine, requests: impl AsyncFnOnce(Services)) {
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
    let mut next = pseudo_random(KEYS);
    with_services(engine, async |services| {
        let mut client = KvClient::new(services);
        for _ in 0..operations {
            client.put(put_request(next())).await.expect("a valid put");
        }
    });
}

fn grpc_get(engine: &Engine, operations: u64) {
    let mut next = pseudo_random(KEYS);
    with_services(engine, async |services| {
        let mut client = KvClient::new(services);
        for _ in 0..operations {
            let request = pb::RangeRequest {
                key: key(next()).into(),
                ..pb::RangeRequest::default()
            };
            client.range(request).await.expect("a valid range");
        }
    });
}

fn grpc_page(engine: &Engine, operations: u64) {
    let mut next = pseudo_random(KEYS - 500);
    with_services(engine, async |services| {
        let mut client = KvClient::new(services);
        for _ in 0..operations {
            let request = pb::RangeRequest {
                key: key(next()).into(),
                range_end: "/registry/pods/default/l".into(),
                limit: 500,
                ..pb::RangeRequest::default()
            };
            client.range(request).await.expect("a valid range");
        }
    });
}

fn grpc_txn(engine: &Engine, operations: u64) {
    let mut next = pseudo_random(KEYS);
    with_services(engine, async |services| {
        let mut client = KvClient::new(services);
        for _ in 0..operations {
            let put = put_request(next());
            let mod_revision = engine.get(&put.key).map_or(0, |kv| kv.mod_revision().0);
            let compare = pb::Compare {
                key: put.key.clone(),
                target: pb::compare::CompareTarget::Mod.into(),
                target_union: Some(pb::compare::TargetUnion::ModRevision(mod_revision)),
                ..pb::Compare::default()
            };
            let request = pb::TxnRequest {
                compare: vec![compare],
                success: vec![pb::RequestOp {
                    request: Some(pb::request_op::Request::RequestPut(put)),
                }],
                failure: Vec::new(),
            };
            let response = client.txn(request).await.expect("a valid transaction");
            assert!(
                response.into_inner().succeeded,
                "no other writer changes the key"
            );
        }
    });
}

/// Delivers events to 20 watches of one stream. An operation is one event of one watch.
fn grpc_event(engine: &Engine, operations: u64) {
    const WATCHES: u64 = 20;
    with_services(engine, async |services| {
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
        // The client half-closes the call after its requests, which does not end the stream
        // (WA-16).
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
                let response = responses.message().await.expect("a response");
                assert_eq!(response.expect("an event").events.len(), 1);
            }
        }
    });
}

/// Runs this program under valgrind and returns the number of instructions it executed.
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
    let output = String::from_utf8_lossy(&run.stderr);
    let count = output
        .lines()
        .find_map(|line| {
            line.split_once("I   refs:")
                .or_else(|| line.split_once("I refs:"))
        })
        .and_then(|(_, count)| count.trim().replace(',', "").parse().ok());
    match count {
        Some(count) if run.status.success() => Ok(count),
        _ => Err(format!("valgrind failed to run {}:\n{output}", case.name)),
    }
}

/// Returns the instructions per operation.
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
        .find(|(case, _)| *case == name)
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
    let mut changed = Vec::new();
    for case in CASES {
        let expected = recorded(&text, case.name);
        let expected = expected.ok_or_else(|| format!("no count recorded for {}", case.name))?;
        let count = measure(case)?;
        let change = (count / expected - 1.0) * 100.0;
        eprintln!("{:<40} {count:>9} {change:>+6.1} %", case.name);
        if change.abs() > TOLERANCE_PERCENT {
            changed.push(case.name);
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "more than {TOLERANCE_PERCENT} % from benches/instructions.txt: {}.\n\
         Record an intended change with: just instructions --update",
        changed.join(", ")
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
        (case.run)(&filled_engine(KEYS), operations);
        return ExitCode::SUCCESS;
    }
    if !has_valgrind() {
        eprintln!("NOT RUN: valgrind is not installed");
        if env::var_os(REQUIRE_VALGRIND).is_some_and(|value| value == "1") {
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    let result = if arguments.contains(&"--update") {
        update()
    } else {
        check()
    };
    if let Err(error) = result {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
