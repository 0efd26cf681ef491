//! The operations whose instructions are counted.

use std::fmt::Debug;
use std::hint::black_box;

use prost::Message;
use revstore::{ClockMode, InProcess, Server};
use revstore_benches::{fill, key, pseudo_random, value};
use revstore_engine::{Compare, CompareTarget, Op, Relation};
use revstore_engine::{Engine, KeyRange, Put, Range, Txn, WatchOptions};
use revstore_grpc::Services;
use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::watch_client::WatchClient;
use tokio::runtime;
use tokio_stream::{Stream, StreamExt};

use crate::client::Client;

/// The number of keys in the store. It is small because a program runs about 50 times slower under
/// valgrind.
pub(crate) const KEYS: u64 = 5_000;

const PUT: &str = "http://in-process/etcdserverpb.KV/Put";
const RANGE: &str = "http://in-process/etcdserverpb.KV/Range";

/// An operation and how often it is repeated on an engine with [`KEYS`] keys.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) operations: u64,
    pub(crate) run: fn(&Engine, u64),
}

pub(crate) const CASES: &[Case] = &[
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
    Case {
        name: "server/put",
        operations: 1_000,
        run: server_put,
    },
    Case {
        name: "server/get",
        operations: 1_000,
        run: server_get,
    },
    Case {
        name: "server/event_of_20_watches",
        operations: 2_000,
        run: server_event,
    },
    Case {
        name: "server_with_control/put",
        operations: 1_000,
        run: controlled_put,
    },
    Case {
        name: "server_with_control/get",
        operations: 1_000,
        run: controlled_get,
    },
    Case {
        name: "server_with_control/event_of_20_watches",
        operations: 2_000,
        run: controlled_event,
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

/// Runs requests one after the other over a connection, in the thread of the server. The count includes the client and
/// HTTP/2, but no sockets.
fn with_server(start: impl FnOnce() -> InProcess, requests: impl AsyncFnOnce(InProcess)) {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async { requests(start()).await });
}

/// Starts a server without control over a store.
fn plain(engine: &Engine) -> InProcess {
    let server = Server::builder().store(engine.clone()).start_in_process();
    server.expect("a server")
}

/// Starts a server with control and without rules. Its store is its own, with [`KEYS`] keys, too.
fn controlled() -> InProcess {
    let server = Server::builder()
        .control(ClockMode::Manual)
        .start_in_process();
    let server = server.expect("a server");
    fill(&server.engine(), KEYS);
    server
}

fn put_request(number: u64) -> pb::PutRequest {
    pb::PutRequest {
        key: key(number).into(),
        value: value().into(),
        ..pb::PutRequest::default()
    }
}

fn range_request(number: u64) -> pb::RangeRequest {
    pb::RangeRequest {
        key: key(number).into(),
        ..pb::RangeRequest::default()
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
            let range = client.range(range_request(next())).await;
            range.expect("a valid range");
        }
    });
}

/// Makes the calls of a method over a connection, one after the other.
fn calls_over<M: Message>(
    start: impl FnOnce() -> InProcess,
    operations: u64,
    method: &'static str,
    request: fn(u64) -> M,
) {
    let mut next = pseudo_random(KEYS);
    with_server(start, async |server| {
        let mut client = Client::connect(&server).await;
        for _ in 0..operations {
            client.call(method, &request(next())).await;
        }
    });
}

fn server_put(engine: &Engine, operations: u64) {
    calls_over(|| plain(engine), operations, PUT, put_request);
}

fn server_get(engine: &Engine, operations: u64) {
    calls_over(|| plain(engine), operations, RANGE, range_request);
}

fn controlled_put(_: &Engine, operations: u64) {
    calls_over(controlled, operations, PUT, put_request);
}

fn controlled_get(_: &Engine, operations: u64) {
    calls_over(controlled, operations, RANGE, range_request);
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

/// The number of watches of a stream of events. An operation is one event of one watch.
const WATCHES: u64 = 20;

/// Returns the requests of a stream. The client half-closes the call after them, which does not end the stream (WA-16).
fn watch_requests() -> impl Stream<Item = pb::WatchRequest> + Send + 'static {
    let create = pb::WatchCreateRequest {
        key: "/registry/".into(),
        range_end: "/registry0".into(),
        ..pb::WatchCreateRequest::default()
    };
    let union = pb::watch_request::RequestUnion::CreateRequest(create);
    let request = pb::WatchRequest {
        request_union: Some(union),
    };
    tokio_stream::iter(vec![
        request;
        usize::try_from(WATCHES).expect("a small number")
    ])
}

/// Reads the events of a stream that was opened with [`watch_requests`].
async fn read_events<E: Debug>(
    engine: &Engine,
    operations: u64,
    mut responses: impl Stream<Item = Result<pb::WatchResponse, E>> + Unpin,
) {
    for _ in 0..WATCHES {
        let created = responses.next().await.expect("a response");
        assert!(created.expect("no error").created);
    }
    for _ in 0..operations / WATCHES {
        engine_put(engine, 1);
        for _ in 0..WATCHES {
            let response = responses.next().await.expect("a response");
            assert_eq!(response.expect("an event").events.len(), 1);
        }
    }
}

fn grpc_event(engine: &Engine, operations: u64) {
    with_services(engine, async |services| {
        let mut client = WatchClient::new(services);
        let responses = client.watch(watch_requests()).await.expect("a stream");
        read_events(engine, operations, responses.into_inner()).await;
    });
}

fn events_over(start: impl FnOnce() -> InProcess, operations: u64) {
    with_server(start, async |server| {
        let mut client = WatchClient::new(server.channel());
        let responses = client.watch(watch_requests()).await.expect("a stream");
        read_events(&server.engine(), operations, responses.into_inner()).await;
    });
}

fn server_event(engine: &Engine, operations: u64) {
    events_over(|| plain(engine), operations);
}

fn controlled_event(_: &Engine, operations: u64) {
    events_over(controlled, operations);
}
