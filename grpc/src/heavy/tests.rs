//! Heavy requests beside small ones, on one thread.

use std::sync::mpsc;

use futures_util::FutureExt as _;
use revstore_engine::{Engine, ManualClock, Op, Put, Txn};
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::request_op::Request as OpRequest;
use revstore_proto::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use tokio::task::{JoinHandle, JoinSet};
use tonic::Code;

use super::*;
use crate::Services;

const KEYS: usize = 10_001;

fn services(limits: Limits) -> Services {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    let puts = (0..KEYS).map(|number| Op::Put(Put::new(format!("k/{number:06}"), "value")));
    engine.txn(&Txn::new().and_then(puts)).unwrap();
    Services::builder(engine).limits(limits).build()
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
