//! Heavy requests beside small ones, on one thread.

use std::sync::mpsc;

use futures_util::FutureExt as _;
use revstore_engine::{Engine, LeaseId, ManualClock, Op, Put, Txn};
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::lease_client::LeaseClient;
use revstore_proto::etcdserverpb::request_op::Request as OpRequest;
use revstore_proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, LeaseLeasesRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use revstore_proto::v3lockpb::LockRequest;
use revstore_proto::v3lockpb::lock_client::LockClient;
use tokio::task::{JoinHandle, JoinSet};
use tonic::Code;

use super::*;
use crate::Services;

const KEYS: usize = 10_001;
const LEASE: i64 = 7;

fn services(limits: Limits) -> Services {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    put_keys(&engine, None);
    Services::builder(engine).limits(limits).build()
}

fn put_keys(engine: &Engine, lease: Option<LeaseId>) {
    let puts = (0..KEYS).map(|number| {
        let put = Put::new(format!("k/{number:06}"), "value");
        Op::Put(match lease {
            Some(lease) => put.attached_to(lease),
            None => put,
        })
    });
    engine.txn(&Txn::new().and_then(puts)).unwrap();
}

/// A node with a lease that has all keys.
fn services_with_lease(limits: Limits) -> (Services, Engine) {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    let lease = engine.grant(LeaseId::new(LEASE), 60).unwrap().id;
    put_keys(&engine, Some(lease));
    let services = Services::builder(engine.clone()).limits(limits).build();
    (services, engine)
}

fn lease_client(services: &Services) -> LeaseClient<Services> {
    LeaseClient::new(services.clone()).max_decoding_message_size(usize::MAX)
}

fn kv(services: &Services) -> KvClient<Services> {
    KvClient::new(services.clone()).max_decoding_message_size(usize::MAX)
}

fn all() -> RangeRequest {
    RangeRequest {
        key: "k/".into(),
        range_end: "k0".into(),
        ..RangeRequest::default()
    }
}

fn gets(count: usize) -> TxnRequest {
    let get = RequestOp {
        request: Some(OpRequest::RequestRange(all())),
    };
    TxnRequest {
        success: vec![get; count],
        ..TxnRequest::default()
    }
}

/// Occupies a worker until the sender is dropped.
async fn occupy(services: &Services) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel::<()>();
    let heavy = services.heavy().clone();
    tokio::spawn(async move {
        let work = move || released.recv().is_err();
        heavy.workers.run(work).await.unwrap()
    });
    tokio::task::yield_now().await;
    release
}

/// Starts a request and lets it run as far as it can.
async fn start<T: Send + 'static>(
    request: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let started = tokio::spawn(request);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    started
}

/// Checks that small requests are answered, each without waiting for anything.
fn check_small_requests(services: &Services) {
    let get = RangeRequest {
        key: "k/000007".into(),
        ..RangeRequest::default()
    };
    let page = RangeRequest {
        limit: 500,
        ..all()
    };
    for request in [get, page] {
        let found = kv(services).range(request).now_or_never();
        let found = found.expect("an answer at once").unwrap().into_inner();
        assert!(!found.kvs.is_empty());
    }
    let put = PutRequest {
        key: "other".into(),
        ..PutRequest::default()
    };
    let put = kv(services).put(put).now_or_never();
    put.expect("an answer at once").unwrap();
}

#[tokio::test]
async fn heavy_requests_run_on_workers_and_small_ones_in_the_task_of_their_connection() {
    let services = services(Limits::default().heavy_workers(1));
    let release = occupy(&services).await;
    let mut client = kv(&services);
    let range = start(async move { client.range(all()).await }).await;
    let mut client = kv(&services);
    let txn = start(async move { client.txn(gets(2)).await }).await;
    let compare = Compare {
        key: "k/".into(),
        range_end: "k0".into(),
        ..Compare::default()
    };
    let compares = TxnRequest {
        compare: vec![compare; 2],
        ..TxnRequest::default()
    };
    let mut client = kv(&services);
    let compares = start(async move { client.txn(compares).await }).await;
    let delete = DeleteRangeRequest {
        key: "k/".into(),
        range_end: "k0".into(),
        prev_kv: true,
    };
    let mut client = kv(&services);
    let delete = start(async move { client.delete_range(delete).await }).await;
    assert_eq!(services.heavy_stats().waiting_for_worker, 4);
    check_small_requests(&services);
    drop(release);
    let found = range.await.unwrap().unwrap().into_inner();
    assert_eq!((found.kvs.len(), found.count), (KEYS, 10_001));
    let found = txn.await.unwrap().unwrap().into_inner();
    assert_eq!(found.responses.len(), 2);
    assert!(compares.await.unwrap().is_ok());
    // It was the last one that arrived.
    let deleted = delete.await.unwrap().unwrap().into_inner();
    assert_eq!(deleted.prev_kvs.len(), KEYS);
    let stats = services.heavy_stats();
    assert_eq!((stats.workers_busy, stats.answer_bytes), (0, 0));
}

#[tokio::test]
async fn requests_for_leases_with_many_keys_run_on_workers() {
    let (services, engine) = services_with_lease(Limits::default().heavy_workers(1));
    let release = occupy(&services).await;
    let mut client = lease_client(&services);
    let list = LeaseTimeToLiveRequest {
        id: LEASE,
        keys: true,
    };
    let keys = start(async move { client.lease_time_to_live(list).await }).await;
    let mut client = lease_client(&services);
    let revoke = LeaseRevokeRequest { id: LEASE };
    let revoked = start(async move { client.lease_revoke(revoke).await }).await;
    assert_eq!(services.heavy_stats().waiting_for_worker, 2);
    check_small_requests(&services);
    let without_keys = LeaseTimeToLiveRequest {
        id: LEASE,
        keys: false,
    };
    let mut client = lease_client(&services);
    let small = client.lease_time_to_live(without_keys).now_or_never();
    assert!(small.expect("an answer at once").is_ok());
    let grant = engine.grant(LeaseId::new(LEASE + 1), 60).unwrap();
    let revoke = LeaseRevokeRequest { id: grant.id.get() };
    let small = client.lease_revoke(revoke).now_or_never();
    assert!(small.expect("an answer at once").is_ok());
    drop(release);
    let keys = keys.await.unwrap().unwrap().into_inner();
    assert_eq!((keys.id, keys.keys.len()), (LEASE, KEYS));
    assert_eq!((keys.ttl, keys.granted_ttl), (60, 60));
    let expected = (0..KEYS).map(|number| format!("k/{number:06}"));
    assert!(keys.keys.into_iter().eq(expected));
    let header = revoked.await.unwrap().unwrap().into_inner().header.unwrap();
    assert_eq!(header.revision, 4);
    let stats = services.heavy_stats();
    assert_eq!((stats.workers_busy, stats.answer_bytes), (0, 0));
}

/// Runs a large write that lasts until the sender is dropped.
async fn begin_large_write(services: &Services) -> mpsc::Sender<()> {
    let (end, ended) = mpsc::channel::<()>();
    let (begin, started) = tokio::sync::oneshot::channel();
    let heavy = services.heavy().clone();
    tokio::task::spawn_blocking(move || {
        let _closed = heavy.write_gate.close();
        begin.send(()).unwrap();
        let _ = ended.recv();
    });
    started.await.unwrap();
    end
}

fn put(key: &'static str) -> PutRequest {
    PutRequest {
        key: key.into(),
        ..PutRequest::default()
    }
}

fn delete_all() -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: "k/".into(),
        range_end: "k0".into(),
        prev_kv: false,
    }
}

#[tokio::test]
async fn beside_a_large_write_small_ones_wait_without_a_thread() {
    let (services, engine) = services_with_lease(Limits::default());
    engine.grant(LeaseId::new(8), 60).unwrap();
    let before = engine.current_revision();
    let end = begin_large_write(&services).await;
    let mut writes = Vec::new();
    let mut client = kv(&services);
    writes.push(start(async move { client.put(put("a")).await.map(drop) }).await);
    let mut client = kv(&services);
    let txn = TxnRequest {
        success: vec![RequestOp {
            request: Some(OpRequest::RequestPut(put("b"))),
        }],
        ..TxnRequest::default()
    };
    writes.push(start(async move { client.txn(txn).await.map(drop) }).await);
    let mut client = kv(&services);
    let delete = DeleteRangeRequest {
        range_end: bytes::Bytes::new(),
        ..delete_all()
    };
    writes.push(start(async move { client.delete_range(delete).await.map(drop) }).await);
    let mut client = kv(&services);
    let compact = CompactionRequest {
        revision: 2,
        physical: false,
    };
    writes.push(start(async move { client.compact(compact).await.map(drop) }).await);
    let mut client = lease_client(&services);
    let revoke = LeaseRevokeRequest { id: 8 };
    writes.push(start(async move { client.lease_revoke(revoke).await.map(drop) }).await);
    let mut client = LockClient::new(services.clone());
    let lock = LockRequest {
        name: "l".into(),
        lease: LEASE,
    };
    writes.push(start(async move { client.lock(lock).await.map(drop) }).await);
    assert!(writes.iter().all(|write| !write.is_finished()));
    // This is the only thread of the runtime, and it reads.
    let page = RangeRequest {
        limit: 500,
        ..all()
    };
    let read = kv(&services).range(page).now_or_never();
    assert!(read.expect("an answer at once").is_ok());
    assert_eq!(engine.current_revision(), before);
    drop(end);
    for write in writes {
        write.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn small_writes_run_between_the_large_ones_for_which_they_wait() {
    let services = services(Limits::default());
    let end = begin_large_write(&services).await;
    let mut client = kv(&services);
    let small = start(async move { client.put(put("a")).await }).await;
    let mut client = kv(&services);
    let large = start(async move { client.delete_range(delete_all()).await }).await;
    drop(end);
    let small = small.await.unwrap().unwrap().into_inner().header.unwrap();
    let large = large.await.unwrap().unwrap().into_inner();
    assert_eq!(large.deleted, 10_001);
    assert_eq!((small.revision, large.header.unwrap().revision), (3, 4));
}

#[tokio::test]
async fn large_deletions_and_revokes_close_the_gate() {
    let (services, _) = services_with_lease(Limits::default());
    let txn = |request| TxnRequest {
        success: vec![RequestOp {
            request: Some(request),
        }],
        ..TxnRequest::default()
    };
    for number in 0..4 {
        let heavy = services.heavy().clone();
        let open = heavy.write_gate.try_pass().expect("an open gate");
        let (mut client, mut leases) = (kv(&services), lease_client(&services));
        let large = start(async move {
            match number {
                0 => client.txn(gets(2)).await.map(drop),
                1 => client
                    .txn(txn(OpRequest::RequestRange(all())))
                    .await
                    .map(drop),
                2 => {
                    let delete = OpRequest::RequestDeleteRange(delete_all());
                    let failure = txn(delete).success;
                    let only_compares = TxnRequest {
                        failure,
                        ..TxnRequest::default()
                    };
                    client.txn(only_compares).await.map(drop)
                }
                _ => {
                    let revoke = LeaseRevokeRequest { id: LEASE };
                    leases.lease_revoke(revoke).await.map(drop)
                }
            }
        })
        .await;
        if number < 2 {
            // Reads do not wait for small writes.
            large.await.unwrap().unwrap();
            drop(open);
            continue;
        }
        // The worker waits for the small write, and others wait behind it.
        while heavy.write_gate.try_pass().is_some() {
            tokio::task::yield_now().await;
        }
        assert!(!large.is_finished());
        drop(open);
        large.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_deadline_passes_at_the_gate_never_runs() {
    let (services, engine) = services_with_lease(Limits::default());
    let end = begin_large_write(&services).await;
    let mut late = tonic::Request::new(put("a"));
    late.set_timeout(std::time::Duration::from_secs(1));
    let mut client = kv(&services);
    let late = start(async move { client.put(late).await }).await;
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    let refused = late.await.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded);
    drop(end);
    kv(&services).put(put("b")).await.unwrap();
    assert!(engine.get("a").is_none() && engine.get("b").is_some());
}

#[tokio::test]
async fn a_list_of_many_leases_runs_on_a_worker_and_is_sent_in_chunks() {
    let (services, engine) = services_with_lease(Limits::default().heavy_workers(1));
    let count = i64::try_from(5 * KEYS).unwrap();
    for id in (1..=count).filter(|id| *id != LEASE) {
        engine.grant(LeaseId::new(id), 60).unwrap();
    }
    let release = occupy(&services).await;
    let mut client = lease_client(&services);
    let list = start(async move { client.lease_leases(LeaseLeasesRequest {}).await }).await;
    assert_eq!(services.heavy_stats().waiting_for_worker, 1);
    drop(release);
    let listed = list.await.unwrap().unwrap().into_inner().leases;
    assert!(listed.into_iter().map(|lease| lease.id).eq(1..=count));
    assert_eq!(services.heavy_stats().answer_bytes, 0);
}

#[tokio::test]
async fn a_list_of_keys_needs_memory_and_a_revoke_does_not() {
    let limits = Limits::default().answer_bytes_max(answer_bytes(KEYS));
    let (services, engine) = services_with_lease(limits);
    let list = LeaseTimeToLiveRequest {
        id: LEASE,
        keys: true,
    };
    let refused = lease_client(&services).lease_time_to_live(list).await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    let all = services.heavy().memory.try_reserve(answer_bytes(KEYS));
    let revoke = LeaseRevokeRequest { id: LEASE };
    lease_client(&services).lease_revoke(revoke).await.unwrap();
    drop(all);
    assert_eq!(engine.stats().live_keys, 0);
}

#[tokio::test]
async fn unread_answers_take_no_more_than_the_bound() {
    let one = answer_bytes(KEYS);
    let services = services(Limits::default().answer_bytes_max(3 * one));
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(raw_range(&services).await);
    }
    assert_eq!(services.heavy_stats().answer_bytes, 3 * one);
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        waiting.spawn(raw_range(&services));
    }
    while services.heavy_stats().waiting_for_memory < waiting.len() {
        tokio::task::yield_now().await;
    }
    assert_eq!(services.heavy_stats().answer_bytes, 3 * one);
    check_small_requests(&services);
    drop(unread);
    while let Some(answer) = waiting.join_next().await {
        drop(answer.unwrap());
        assert!(services.heavy_stats().answer_bytes <= 3 * one);
    }
    assert_eq!(services.heavy_stats().answer_bytes, 0);
}

/// Requests all keys, and returns the response with its body unread.
fn raw_range(
    services: &Services,
) -> impl Future<Output = http::Response<tonic::body::Body>> + Send + 'static {
    use prost::Message as _;
    use tower_service::Service as _;
    let message = all().encode_to_vec();
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    let request = http::Request::post("/etcdserverpb.KV/Range")
        .header("content-type", "application/grpc")
        .body(http_body_util::Full::new(bytes::Bytes::from(framed)))
        .unwrap();
    let response = services.clone().call(request);
    async move { response.await.unwrap_or_else(|never| match never {}) }
}

#[tokio::test]
async fn an_answer_above_the_bound_is_refused_and_small_ones_are_not() {
    let services = services(Limits::default().answer_bytes_max(answer_bytes(KEYS) - 1));
    let refused = kv(&services).range(all()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("--answer-memory-bytes"));
    let count = RangeRequest {
        count_only: true,
        ..all()
    };
    assert_eq!(
        kv(&services).range(count).await.unwrap().into_inner().count,
        10_001
    );
    let none = super::tests::services(Limits::default().answer_bytes_max(0));
    let small = RangeRequest { limit: 10, ..all() };
    assert!(kv(&none).range(small).await.is_ok());
}
