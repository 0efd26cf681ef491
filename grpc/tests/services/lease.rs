//! The Lease service: section F.

use std::time::Duration;

use futures_util::FutureExt;
use revstore_engine::{LEASE_TTL_MAX_SECONDS, LeaseId};
use revstore_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    PutRequest,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Response, Status, Streaming};

use crate::support::{LEASE_NOT_FOUND, STOPPED, TestNode, assert_error, get, header, put};

async fn grant(node: &TestNode, id: i64, ttl: i64) -> Result<LeaseGrantResponse, Status> {
    let request = LeaseGrantRequest { id, ttl };
    node.lease()
        .lease_grant(request)
        .await
        .map(Response::into_inner)
}

async fn revoke(node: &TestNode, id: i64) -> Result<i64, Status> {
    let request = LeaseRevokeRequest { id };
    let response = node.lease().lease_revoke(request).await?.into_inner();
    Ok(response.header.unwrap().revision)
}

async fn time_to_live(node: &TestNode, id: i64, keys: bool) -> LeaseTimeToLiveResponse {
    let request = LeaseTimeToLiveRequest { id, keys };
    let response = node.lease().lease_time_to_live(request).await;
    response.unwrap().into_inner()
}

async fn attach(node: &TestNode, key: &'static str, lease: i64) {
    let request = PutRequest {
        lease,
        ..put(key, "v")
    };
    node.put(request).await.unwrap();
}

#[tokio::test]
async fn le_1_le_2_ttl_is_raised_to_the_minimum_and_rejected_above_the_maximum() {
    let node = TestNode::new();
    for (requested, granted) in [
        (10, 10),
        (2, 2),
        (1, 2),
        (0, 2),
        (-5, 2),
        (i64::MIN, 2),
        (LEASE_TTL_MAX_SECONDS, LEASE_TTL_MAX_SECONDS),
    ] {
        let response = grant(&node, 0, requested).await.unwrap();
        assert_eq!(
            (response.ttl, response.header, &*response.error),
            (granted, header(1), "")
        );
    }
    let too_large = (Code::OutOfRange, "etcdserver: too large lease TTL");
    for requested in [LEASE_TTL_MAX_SECONDS + 1, i64::MAX] {
        assert_error(grant(&node, 0, requested).await, too_large);
    }
}

#[tokio::test]
async fn le_3_lease_ids_are_generated_or_taken_from_the_request() {
    let node = TestNode::new();
    assert!(grant(&node, 0, 10).await.unwrap().id > 0);
    for id in [7, -7, i64::MIN, i64::MAX] {
        assert_eq!(grant(&node, id, 10).await.unwrap().id, id);
    }
    let exists = (Code::FailedPrecondition, "etcdserver: lease already exists");
    assert_error(grant(&node, 7, 10).await, exists);
}

#[tokio::test]
async fn le_5_revoke_deletes_the_attached_keys_at_one_revision() {
    let node = TestNode::new();
    grant(&node, 7, 10).await.unwrap();
    grant(&node, 8, 10).await.unwrap();
    attach(&node, "a", 7).await;
    attach(&node, "b", 7).await;
    assert_eq!(revoke(&node, 7).await.unwrap(), 4);
    assert_eq!(revoke(&node, 8).await.unwrap(), 4);
    assert_eq!(node.range(get("a")).await.unwrap().count, 0);
    for unknown in [7, 0, -1] {
        assert_error(revoke(&node, unknown).await, LEASE_NOT_FOUND);
    }
}

#[tokio::test]
async fn le_6_le_7_expiry_deletes_the_keys_that_are_still_attached() {
    let node = TestNode::new();
    grant(&node, 7, 10).await.unwrap();
    grant(&node, 8, 100).await.unwrap();
    for key in ["stays", "moves", "goes"] {
        attach(&node, key, 7).await;
    }
    attach(&node, "moves", 8).await;
    node.put(put("stays", "v")).await.unwrap();
    node.clock.advance(Duration::from_secs(10));
    for (key, count) in [("stays", 1), ("moves", 1), ("goes", 0)] {
        assert_eq!(node.range(get(key)).await.unwrap().count, count, "{key}");
    }
}

#[tokio::test]
async fn le_10_the_remaining_ttl_is_reported_in_whole_seconds() {
    let node = TestNode::new();
    grant(&node, 7, 10).await.unwrap();
    attach(&node, "b", 7).await;
    attach(&node, "a", 7).await;
    node.clock.advance(Duration::from_millis(1));
    let response = time_to_live(&node, 7, true).await;
    assert_eq!(
        (response.id, response.ttl, response.granted_ttl),
        (7, 9, 10)
    );
    assert_eq!(response.keys, ["a", "b"]);
    assert!(time_to_live(&node, 7, false).await.keys.is_empty());
    node.clock.advance(Duration::from_millis(9500));
    assert_eq!(time_to_live(&node, 7, false).await.ttl, 0);
    for unknown in [0, 8, -8] {
        let response = LeaseTimeToLiveResponse {
            header: header(3),
            id: unknown,
            ttl: -1,
            ..LeaseTimeToLiveResponse::default()
        };
        assert_eq!(time_to_live(&node, unknown, true).await, response);
    }
}

#[tokio::test]
async fn le_11_leases_are_listed_by_remaining_ttl() {
    let node = TestNode::new();
    for (id, ttl) in [(1, 30), (2, 10), (3, 20)] {
        grant(&node, id, ttl).await.unwrap();
    }
    let listed = node.lease().lease_leases(LeaseLeasesRequest {}).await;
    let listed = listed.unwrap().into_inner();
    let ids: Vec<_> = listed.leases.iter().map(|lease| lease.id).collect();
    assert_eq!((ids, listed.header), (vec![2, 3, 1], header(1)));
}

/// An open call of the `LeaseKeepAlive` method.
struct KeepAliveCall {
    requests: Option<UnboundedSender<LeaseKeepAliveRequest>>,
    responses: Streaming<LeaseKeepAliveResponse>,
}

impl KeepAliveCall {
    async fn open(node: &TestNode) -> Self {
        let (requests, to_send) = unbounded_channel();
        let requests_stream = UnboundedReceiverStream::new(to_send);
        let stream = node.lease().lease_keep_alive(requests_stream).await;
        Self {
            requests: Some(requests),
            responses: stream.unwrap().into_inner(),
        }
    }

    fn send(&self, id: i64) {
        let request = LeaseKeepAliveRequest { id };
        self.requests.as_ref().unwrap().send(request).unwrap();
    }
}

#[tokio::test]
async fn le_8_responses_to_keep_alives_of_known_and_unknown_leases_are_in_order() {
    let node = TestNode::new();
    grant(&node, 7, 10).await.unwrap();
    grant(&node, -8, 20).await.unwrap();
    let mut keep_alive = KeepAliveCall::open(&node).await;
    node.fill(["k"]);
    let expected = [(7, 10), (99, 0), (0, 0), (-8, 20), (7, 10)];
    for (id, _) in expected {
        keep_alive.send(id);
    }
    for (id, ttl) in expected {
        let response = keep_alive.responses.next().await.unwrap().unwrap();
        assert_eq!(
            (response.id, response.ttl, response.header),
            (id, ttl, header(2))
        );
    }
    assert!(keep_alive.responses.next().now_or_never().is_none());
    keep_alive.requests = None;
    assert!(
        keep_alive.responses.next().await.is_none(),
        "a half-close ends the stream"
    );
}

#[tokio::test]
async fn le_8_le_9_keep_alive_renews_a_lease_that_has_not_expired() {
    let node = TestNode::new();
    grant(&node, 7, 10).await.unwrap();
    let mut keep_alive = KeepAliveCall::open(&node).await;
    for (ttl, seconds_after) in [(10, 9), (10, 10), (0, 0)] {
        keep_alive.send(7);
        let response = keep_alive.responses.next().await.unwrap().unwrap();
        assert_eq!(response.ttl, ttl);
        node.clock.advance(Duration::from_secs(seconds_after));
    }
    assert!(node.engine.lease(LeaseId::new(7).unwrap(), false).is_err());
}

#[tokio::test]
async fn fl_15_a_shutdown_ends_keep_alive_streams_immediately() {
    let node = TestNode::new();
    let mut keep_alive = KeepAliveCall::open(&node).await;
    assert!(keep_alive.responses.next().now_or_never().is_none());
    let waiting = tokio::spawn(async move { keep_alive.responses.next().await });
    tokio::task::yield_now().await;
    node.shutdown.begin();
    assert_error(waiting.await.unwrap().unwrap(), STOPPED);
}
