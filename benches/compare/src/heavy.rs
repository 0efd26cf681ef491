//! Heavy loads beside a bystander: how long small requests take while a server works on large ones.
//!
//! Each load runs for a few seconds on each server, one server after the other. Meanwhile one client
//! puts a key and another one requests `/livez`, each in a closed loop. The table shows what they
//! waited, how much of the load was completed, and the largest resident memory. Clients and server
//! share the machine, so the row without a load is the one to compare with.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use revstore_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::lease_client::LeaseClient;
use revstore_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use revstore_proto::etcdserverpb::request_op::Request;
use revstore_proto::etcdserverpb::{
    Compare, DeleteRangeRequest, HashKvRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest,
    RangeRequest, RequestOp, SnapshotRequest, TxnRequest,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time;
use tonic::body::Body;
use tonic::client::GrpcService as _;
use tonic::transport::{Channel, Endpoint};

use crate::BoxError;
use crate::bystander::{self, MEMORY_INTERVAL, PAUSE};
use crate::client::{LoadResult, scattered};
use crate::scenario::is_selected;
use crate::server::{ServerKind, TestedServer};
use crate::summary::resident_bytes;

/// The number of keys and the length of their values: 100 MB together.
const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 1_000;
const KEYS_PER_TXN: u64 = 100;

/// The length of the values that loads with deletions write: little, so that the deletions are most of them.
const BULK_VALUE_BYTES: usize = 10;

/// The time to live of leases, longer than a load.
const LEASE_SECONDS: i64 = 3_600;

/// The HTTP/2 windows, those of a client with little memory.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// The number of clients on a connection, if there are so many.
const CLIENTS_PER_CONNECTION: usize = 100;

/// A load: the number of clients, each of which sends one request after the other.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    clients: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    None,
    /// All keys over gRPC.
    Range,
    /// All keys over JSON.
    Json,
    /// A transaction that reads all keys 64 times. A filter leaves out every key.
    Ranges,
    /// A transaction with 128 compares over all keys.
    Compares,
    HashKv,
    Snapshot,
    /// All keys over gRPC, without reading the answer.
    Unread,
    /// Puts as many keys and deletes them with one request.
    Delete,
    /// Puts as many keys with a lease and revokes the lease.
    Revoke,
}

const LOADS: &[Load] = &[
    load("none", 1, Kind::None),
    load("4 full ranges", 4, Kind::Range),
    load("4 full ranges in JSON", 4, Kind::Json),
    load("4 transactions of 64 full ranges", 4, Kind::Ranges),
    load("4 transactions of 128 compares", 4, Kind::Compares),
    load("200 HashKV", 200, Kind::HashKv),
    load("4 snapshots", 4, Kind::Snapshot),
    load("1000 unread full ranges", 1_000, Kind::Unread),
    load("4 deletes of all keys", 4, Kind::Delete),
    load("4 revokes of leases with all keys", 4, Kind::Revoke),
];

const fn load(name: &'static str, clients: usize, kind: Kind) -> Load {
    Load {
        name,
        clients,
        kind,
    }
}

/// Runs all loads whose names contain one of the texts, on each server, and returns the table.
pub(crate) async fn table(
    kinds: Vec<ServerKind>,
    seconds: u64,
    only: &[String],
) -> Result<String, BoxError> {
    let mut table = String::from(
        "| load | server | put p50 | p99 | p99.9 | max | livez p50 | p99 | p99.9 | max | requests/s | max RSS |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for load in LOADS.iter().filter(|load| is_selected(load.name, only)) {
        for kind in &kinds {
            // A new server for each load: the memory of an earlier one is not part of the result.
            let server = TestedServer::start(kind).await?;
            fill(&server).await?;
            eprintln!("{} on {}", load.name, kind.name());
            let row = measure(*load, &server, Duration::from_secs(seconds)).await?;
            writeln!(table, "| {} | {} |{row}", load.name, kind.name())?;
        }
    }
    Ok(table)
}

async fn fill(server: &TestedServer) -> Result<(), BoxError> {
    let channel = connect(server.endpoint()).await?;
    put_keys(channel, "/heavy/", VALUE_BYTES, 0).await
}

/// Puts all keys with a prefix.
async fn put_keys(
    channel: Channel,
    prefix: &str,
    value_bytes: usize,
    lease: i64,
) -> Result<(), BoxError> {
    let mut kv = KvClient::new(channel);
    for first in (0..KEYS).step_by(usize::try_from(KEYS_PER_TXN)?) {
        let puts = (first..first + KEYS_PER_TXN).map(|number| RequestOp {
            request: Some(Request::RequestPut(PutRequest {
                key: format!("{prefix}{number:08}").into(),
                value: vec![b'v'; value_bytes].into(),
                lease,
                ..PutRequest::default()
            })),
        });
        let txn = TxnRequest {
            success: puts.collect(),
            ..TxnRequest::default()
        };
        kv.txn(txn).await?;
    }
    Ok(())
}

async fn connect(endpoint: &str) -> Result<Channel, BoxError> {
    let endpoint = Endpoint::from_shared(endpoint.to_owned())?.tcp_nodelay(true);
    let endpoint = endpoint
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    Ok(endpoint.connect().await?)
}

async fn measure(
    load: Load,
    server: &TestedServer,
    duration: Duration,
) -> Result<String, BoxError> {
    let stop = Arc::new(AtomicBool::new(false));
    let completed = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    let mut channel = connect(server.endpoint()).await?;
    for number in 0..load.clients {
        // At most 100 clients share a connection.
        if load.clients < CLIENTS_PER_CONNECTION || number % CLIENTS_PER_CONNECTION == 0 {
            channel = connect(server.endpoint()).await?;
        }
        let client = HeavyClient {
            channel: channel.clone(),
            address: address(server).to_owned(),
            kind: load.kind,
            prefix: format!("/bulk/{number}/"),
        };
        let (stop, completed) = (stop.clone(), completed.clone());
        clients.spawn(async move {
            while !stop.load(Relaxed) {
                match client.run().await {
                    Ok(()) => completed.fetch_add(1, Relaxed),
                    Err(error) => {
                        eprintln!("{error}");
                        return;
                    }
                };
            }
        });
    }
    // On threads of their own, so that they do not wait for the other clients.
    let put = bystander::start(put_loop(server.endpoint().to_owned(), stop.clone()));
    let livez = bystander::start(livez_loop(address(server).to_owned(), stop.clone()));
    let started = Instant::now();
    let mut memory = 0;
    while started.elapsed() < duration {
        time::sleep(MEMORY_INTERVAL).await;
        memory = memory.max(resident_bytes(server.pid())?);
    }
    let done = completed.load(Relaxed);
    let elapsed = started.elapsed().as_secs_f64();
    stop.store(true, Relaxed);
    let (put, livez) = (put.await???, livez.await???);
    clients.shutdown().await;
    let mut row = String::new();
    for result in [put, livez] {
        write!(row, "{}", bystander::cells(&result))?;
    }
    #[expect(clippy::cast_precision_loss, reason = "the figures are rounded")]
    let rate = done as f64 / elapsed;
    write!(row, " {rate:.1} | {} MB |", memory / 1_000_000)?;
    Ok(row)
}

fn address(server: &TestedServer) -> &str {
    server.endpoint().trim_start_matches("http://")
}

async fn put_loop(endpoint: String, stop: Arc<AtomicBool>) -> Result<LoadResult, BoxError> {
    let mut kv = KvClient::new(connect(&endpoint).await?);
    let mut result = LoadResult::default();
    let mut number = 0;
    while !stop.load(Relaxed) {
        let put = PutRequest {
            key: format!("/small/{:08}", scattered(number, 1_000)).into(),
            value: Bytes::from_static(b"value"),
            ..PutRequest::default()
        };
        number += 1;
        let sent = Instant::now();
        // A server that is too busy may refuse the put, after a time that counts.
        if let Err(error) = kv.put(put).await {
            eprintln!("{error}");
        }
        result.latencies.push(sent.elapsed());
        time::sleep(PAUSE).await;
    }
    result.latencies.sort_unstable();
    Ok(result)
}

async fn livez_loop(address: String, stop: Arc<AtomicBool>) -> Result<LoadResult, BoxError> {
    let mut stream = TcpStream::connect(&address).await?;
    stream.set_nodelay(true)?;
    let request = format!("GET /livez HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut result = LoadResult::default();
    let mut received = [0; 4_096];
    while !stop.load(Relaxed) {
        let sent = Instant::now();
        stream.write_all(request.as_bytes()).await?;
        let mut length = 0;
        while !received[..length].ends_with(b"ok\n") {
            let count = stream.read(&mut received[length..]).await?;
            if count == 0 {
                return Err("the server has closed the connection of /livez".into());
            }
            length += count;
        }
        result.latencies.push(sent.elapsed());
        time::sleep(PAUSE).await;
    }
    result.latencies.sort_unstable();
    Ok(result)
}

/// A client of a load.
struct HeavyClient {
    channel: Channel,
    address: String,
    kind: Kind,
    /// The prefix of the keys that the client writes.
    prefix: String,
}

impl HeavyClient {
    /// Sends one request and reads its answer.
    async fn run(&self) -> Result<(), BoxError> {
        match self.kind {
            Kind::None => time::sleep(Duration::from_secs(1)).await,
            Kind::Range => {
                let mut body = self.range().await?.into_body();
                let mut total = 0;
                while let Some(frame) = body.frame().await {
                    total += frame?.data_ref().map_or(0, Bytes::len);
                }
                check_length(total)?;
            }
            Kind::Json => self.json().await?,
            Kind::Ranges => {
                let get = RequestOp {
                    request: Some(Request::RequestRange(RangeRequest {
                        min_mod_revision: i64::MAX,
                        ..all()
                    })),
                };
                let txn = TxnRequest {
                    success: vec![get; 64],
                    ..TxnRequest::default()
                };
                KvClient::new(self.channel.clone()).txn(txn).await?;
            }
            Kind::Compares => {
                let RangeRequest { key, range_end, .. } = all();
                let compare = Compare {
                    result: CompareResult::NotEqual.into(),
                    target: CompareTarget::Value.into(),
                    key,
                    range_end,
                    target_union: Some(TargetUnion::Value("other".into())),
                };
                let txn = TxnRequest {
                    compare: vec![compare; 128],
                    ..TxnRequest::default()
                };
                KvClient::new(self.channel.clone()).txn(txn).await?;
            }
            Kind::HashKv => {
                let request = HashKvRequest { revision: 0 };
                let mut client = MaintenanceClient::new(self.channel.clone());
                client.hash_kv(request).await?;
            }
            Kind::Snapshot => {
                let mut client = MaintenanceClient::new(self.channel.clone());
                let mut stream = client.snapshot(SnapshotRequest {}).await?.into_inner();
                while stream.message().await?.is_some() {}
            }
            Kind::Unread => {
                let _unread = self.range().await?;
                // Until the end of the measurement.
                std::future::pending::<()>().await;
            }
            Kind::Delete => {
                put_keys(self.channel.clone(), &self.prefix, BULK_VALUE_BYTES, 0).await?;
                let request = DeleteRangeRequest {
                    key: self.prefix.clone().into(),
                    // The character after the digits.
                    range_end: format!("{}:", self.prefix).into(),
                    prev_kv: false,
                };
                let mut client = KvClient::new(self.channel.clone());
                let deleted = client.delete_range(request).await?.into_inner().deleted;
                if deleted.cast_unsigned() != KEYS {
                    return Err(format!("{deleted} keys were deleted").into());
                }
            }
            Kind::Revoke => {
                let mut client = LeaseClient::new(self.channel.clone());
                let request = LeaseGrantRequest {
                    ttl: LEASE_SECONDS,
                    id: 0,
                };
                let id = client.lease_grant(request).await?.into_inner().id;
                put_keys(self.channel.clone(), &self.prefix, BULK_VALUE_BYTES, id).await?;
                client.lease_revoke(LeaseRevokeRequest { id }).await?;
            }
        }
        Ok(())
    }

    /// Requests all keys over gRPC. The answer is not decoded, so that clients take little of the
    /// processors.
    async fn range(&self) -> Result<Response<Body>, BoxError> {
        let message = all().encode_to_vec();
        let mut framed = vec![0];
        framed.extend(u32::try_from(message.len())?.to_be_bytes());
        framed.extend(message);
        let request = http::Request::post("/etcdserverpb.KV/Range")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Body::new(Full::new(Bytes::from(framed))))?;
        let mut channel = self.channel.clone();
        poll_fn(|context| channel.poll_ready(context)).await?;
        Ok(channel.call(request).await?)
    }

    /// Requests all keys in JSON, and discards the answer.
    async fn json(&self) -> Result<(), BoxError> {
        let mut stream = TcpStream::connect(&self.address).await?;
        // `/heavy/` to `/heavy0`.
        let body = r#"{"key":"L2hlYXZ5Lw==","range_end":"L2hlYXZ5MA=="}"#;
        let request = format!(
            "POST /v3/kv/range HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len(),
        );
        stream.write_all(request.as_bytes()).await?;
        let mut stream = BufReader::with_capacity(1 << 20, stream);
        let mut total = 0;
        let mut received = vec![0; 1 << 20];
        loop {
            let count = stream.read(&mut received).await?;
            if count == 0 {
                break;
            }
            total += count;
        }
        check_length(total)
    }
}

/// Checks that an answer contains all values.
fn check_length(bytes: usize) -> Result<(), BoxError> {
    if (bytes as u64) < KEYS * VALUE_BYTES as u64 {
        return Err(format!("an answer of {bytes} bytes").into());
    }
    Ok(())
}

fn all() -> RangeRequest {
    RangeRequest {
        key: "/heavy/".into(),
        range_end: "/heavy0".into(),
        ..RangeRequest::default()
    }
}
