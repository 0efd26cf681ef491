//! Deadlines of calls: LI-9. The time of tokio advances only when a test advances it.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use prost::Message;
use revstore_engine::{KeyRange, LeaseId, Range};
use revstore_proto::etcdserverpb::watch_client::WatchClient;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{CompactionRequest, PutRequest, SnapshotRequest, WatchRequest};
use revstore_proto::health::HealthCheckRequest;
use revstore_proto::v3electionpb::election_client::ElectionClient;
use revstore_proto::v3electionpb::{CampaignRequest, LeaderRequest};
use revstore_proto::v3lockpb::LockRequest;
use revstore_proto::v3lockpb::lock_client::LockClient;
use tokio::time::advance;
use tokio_stream::{self as stream, StreamExt};
use tonic::{Code, Request, Status};
use tower_service::Service;

use crate::support::{ExpectedError, TestNode, assert_error, from_key, put, watch_of};

const EXCEEDED: ExpectedError = (Code::DeadlineExceeded, "context deadline exceeded");
const SECOND: Duration = Duration::from_secs(1);

fn within<T>(timeout: &'static str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let timeout = timeout.parse().unwrap();
    request.metadata_mut().insert("grpc-timeout", timeout);
    request
}

fn keys(node: &TestNode) -> Vec<String> {
    let found = node.engine.range(&Range::of(KeyRange::all())).unwrap();
    let keys = found.kvs.iter().map(|kv| kv.key().to_vec());
    keys.map(|key| String::from_utf8(key).unwrap()).collect()
}

/// As in etcd 3.5.16, the lease that was granted for the call stays.
#[tokio::test(start_paused = true)]
async fn li_9_el_4_a_waiter_for_a_lock_leaves_the_queue_at_its_deadline() {
    let node = TestNode::new();
    let lock = |lease| LockRequest {
        name: "l".into(),
        lease,
    };
    let client = || LockClient::new(node.services.clone());
    node.engine.grant(LeaseId::new(1), 60).unwrap();
    client().lock(within("1S", lock(1))).await.unwrap();
    let mut client = client();
    let mut waiting = pin!(client.lock(within("1S", lock(0))));
    assert!(waiting.as_mut().now_or_never().is_none());
    advance(Duration::from_millis(999)).await;
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(keys(&node).len(), 2);
    advance(Duration::from_millis(2)).await;
    assert_error(waiting.await, EXCEEDED);
    assert_eq!(
        (keys(&node), node.engine.leases().len()),
        (vec!["l/1".to_owned()], 2)
    );
}

#[tokio::test(start_paused = true)]
async fn li_9_el_4_a_candidate_leaves_the_election_at_its_deadline() {
    let node = TestNode::new();
    let campaign = || CampaignRequest {
        name: "e".into(),
        ..CampaignRequest::default()
    };
    let mut client = ElectionClient::new(node.services.clone());
    let elected = client.campaign(within("100m", campaign())).await.unwrap();
    let leader = elected.into_inner().leader.unwrap().key;
    let mut waiting = pin!(client.campaign(within("1S", campaign())));
    assert!(waiting.as_mut().now_or_never().is_none());
    advance(SECOND).await;
    assert_error(waiting.await, EXCEEDED);
    assert_eq!(keys(&node), [String::from_utf8(leader.to_vec()).unwrap()]);
}

#[tokio::test(start_paused = true)]
async fn li_9_a_stream_ends_at_its_deadline() {
    let node = TestNode::new();
    let create = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(watch_of("k", ""))),
    };
    let mut watch_client = WatchClient::new(node.services.clone());
    let requests = stream::once(create).chain(stream::pending());
    let watch = watch_client.watch(within("1S", requests)).await.unwrap();
    let mut watch = watch.into_inner();
    assert!(watch.next().await.unwrap().unwrap().created);
    assert!(watch.next().now_or_never().is_none());

    let observed = LeaderRequest { name: "e".into() };
    let mut election = ElectionClient::new(node.services.clone());
    let observe = election.observe(within("1S", observed)).await.unwrap();
    let mut observe = observe.into_inner();
    assert!(observe.next().now_or_never().is_none());

    let mut health = node.health();
    let health = health.watch(within("1S", HealthCheckRequest::default()));
    let mut health = health.await.unwrap().into_inner();
    health.next().await.unwrap().unwrap();

    // A stream that never waits.
    let empty = SnapshotRequest::default();
    let snapshot = node.maintenance().snapshot(within("1S", empty)).await;
    let mut snapshot = snapshot.unwrap().into_inner();

    node.engine.put("k", "v").unwrap();
    advance(SECOND).await;
    assert_error(watch.next().await.unwrap(), EXCEEDED);
    assert!(watch.next().await.is_none());
    assert_error(observe.next().await.unwrap(), EXCEEDED);
    assert_eq!(node.engine.stats().watches, 0, "the watches have ended");
    let ended = (Code::Cancelled, "Stream has ended.");
    assert_error(health.next().await.unwrap(), ended);
    assert_error(snapshot.next().await.unwrap(), EXCEEDED);
}

#[tokio::test(start_paused = true)]
async fn li_9_a_request_whose_deadline_has_passed_is_not_executed() {
    let node = TestNode::new();
    for timeout in ["0n", "0S", "-1S"] {
        let result = node.kv().put(within(timeout, put("k", "v"))).await;
        assert_error(result, EXCEEDED);
        let result = node.kv().range(within(timeout, from_key("a"))).await;
        assert_error(result, EXCEEDED);
    }
    assert_eq!(node.revision(), 1);
    node.kv().put(within("1m", put("k", "v"))).await.unwrap();
    node.kv()
        .range(within("99999999H", from_key("a")))
        .await
        .unwrap();
    assert_eq!(node.revision(), 2);
}

/// A write that was executed must not be reported as one that was not.
#[tokio::test(start_paused = true)]
async fn li_9_co_6_a_compaction_that_is_in_effect_is_awaited() {
    let node = TestNode::new();
    node.fill(["a", "b", "c"]);
    let compaction = CompactionRequest {
        revision: 3,
        physical: true,
    };
    let mut client = node.kv();
    let mut compacted = pin!(client.compact(within("1S", compaction)));
    let early = compacted.as_mut().now_or_never();
    advance(2 * SECOND).await;
    match early {
        Some(result) => result.map(drop).unwrap(),
        None => compacted.await.map(drop).unwrap(),
    }
}

/// As etcd 3.5.16: before any other check, and with the HTTP status 400.
#[tokio::test]
async fn li_9_a_malformed_timeout_is_an_internal_error() {
    let node = TestNode::new();
    for path in [
        "/etcdserverpb.KV/Put",
        "/etcdserverpb.KV/Nope",
        "/no.Service/Put",
    ] {
        let message = PutRequest::default().encode_to_vec();
        let request = http::Request::post(format!("http://node{path}"))
            .header("content-type", "application/grpc")
            .header("grpc-timeout", "1x")
            .body(Full::new(Bytes::from(message)))
            .unwrap();
        let response = node.services.clone().call(request).await.unwrap();
        assert_eq!(response.status(), 400);
        let status = Status::from_header_map(response.headers()).unwrap();
        let text = "malformed grpc-timeout: transport: timeout unit is not recognized: \"1x\"";
        assert_error::<()>(Err(status), (Code::Internal, text));
        assert!(
            response
                .into_body()
                .collect()
                .await
                .unwrap()
                .to_bytes()
                .is_empty()
        );
    }
}
