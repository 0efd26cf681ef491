//! The Election service: EL-4 to EL-10.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::FutureExt;
use revstore_engine::{KeyRange, LeaseId};
use revstore_grpc::Services;
use revstore_proto::v3electionpb::election_client::ElectionClient;
use revstore_proto::v3electionpb::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest,
    ResignRequest,
};
use tokio_stream::StreamExt;
use tonic::{Code, Response, Status, Streaming};

use crate::support::{STOPPED, TestNode, assert_error, header};

const NOT_LEADER: (Code, &str) = (Code::Unknown, "election: not leader");
const UNKNOWN_LEASE: (Code, &str) = (Code::Unknown, "etcdserver: requested lease not found");
const NO_LEADER_FIELD: (Code, &str) = (Code::Unknown, "\"leader\" field must be provided");
const EMPTY_KEY: (Code, &str) = (Code::Unknown, "etcdserver: key is not provided");

fn client(node: &TestNode) -> ElectionClient<Services> {
    ElectionClient::new(node.services.clone())
}

async fn campaign(
    node: TestNode,
    name: &'static str,
    lease: i64,
    value: &'static str,
) -> Result<CampaignResponse, Status> {
    let request = CampaignRequest {
        name: name.into(),
        lease,
        value: value.into(),
    };
    let response = client(&node).campaign(request).await;
    response.map(Response::into_inner)
}

async fn become_leader(node: &TestNode, lease: i64, value: &'static str) -> LeaderKey {
    let response = campaign(node.clone(), "e", lease, value).await.unwrap();
    response.leader.unwrap()
}

type WaitingCampaign = Pin<Box<dyn Future<Output = Result<CampaignResponse, Status>> + Send>>;

fn wait_for_leadership(node: &TestNode, lease: i64, value: &'static str) -> WaitingCampaign {
    let mut waiting: WaitingCampaign = Box::pin(campaign(node.clone(), "e", lease, value));
    assert!(
        (&mut waiting).now_or_never().is_none(),
        "the call should wait"
    );
    waiting
}

async fn proclaim(
    node: &TestNode,
    leader: impl Into<Option<LeaderKey>>,
    value: &'static str,
) -> Result<i64, Status> {
    let request = ProclaimRequest {
        leader: leader.into(),
        value: value.into(),
    };
    let response = client(node).proclaim(request).await?.into_inner();
    Ok(response.header.unwrap().revision)
}

async fn resign(node: &TestNode, leader: impl Into<Option<LeaderKey>>) -> Result<i64, Status> {
    let request = ResignRequest {
        leader: leader.into(),
    };
    let response = client(node).resign(request).await?.into_inner();
    Ok(response.header.unwrap().revision)
}

async fn leader(node: &TestNode) -> Result<LeaderResponse, Status> {
    let request = LeaderRequest { name: "e".into() };
    client(node).leader(request).await.map(Response::into_inner)
}

async fn observe(node: &TestNode) -> Streaming<LeaderResponse> {
    let request = LeaderRequest { name: "e".into() };
    client(node).observe(request).await.unwrap().into_inner()
}

/// Returns the value in the next message and the revision of its header.
async fn observed(stream: &mut Streaming<LeaderResponse>) -> (String, i64) {
    let response = stream.next().await.unwrap().unwrap();
    let value = response.kv.unwrap().value.to_vec();
    (
        String::from_utf8(value).unwrap(),
        response.header.unwrap().revision,
    )
}

fn assert_no_response(stream: &mut Streaming<LeaderResponse>) {
    if let Some(response) = stream.next().now_or_never() {
        panic!("unexpected response: {response:?}");
    }
}

fn grant(node: &TestNode, ids: impl IntoIterator<Item = i64>) {
    for id in ids {
        node.engine.grant(LeaseId::new(id), 60).unwrap();
    }
}

#[tokio::test]
async fn el_6_campaign_creates_a_key_with_the_value() {
    let node = TestNode::new();
    grant(&node, [26]);
    let response = campaign(node.clone(), "e", 26, "v").await.unwrap();
    let expected = LeaderKey {
        name: "e".into(),
        key: "e/1a".into(),
        rev: 2,
        lease: 26,
    };
    assert_eq!(
        (response.leader.unwrap(), response.header),
        (expected, header(2))
    );
    let kv = node.engine.get("e/1a").unwrap();
    assert_eq!((kv.value(), kv.lease()), (&b"v"[..], LeaseId::new(26)));
}

/// As in etcd 3.5.16: the header has the revision before the value changes.
#[tokio::test]
async fn el_6_campaign_of_the_leader_changes_its_value() {
    let node = TestNode::new();
    grant(&node, [26]);
    let first = become_leader(&node, 26, "v1").await;
    for (value, header_revision, after) in [("v2", 2, 3), ("v2", 3, 3)] {
        let again = campaign(node.clone(), "e", 26, value).await.unwrap();
        assert_eq!(again.header, header(header_revision));
        assert_eq!(again.leader.unwrap(), first);
        assert_eq!(node.revision(), after);
    }
    let kv = leader(&node).await.unwrap().kv.unwrap();
    assert_eq!((&*kv.value, kv.create_revision), (&b"v2"[..], 2));
}

/// As in etcd 3.5.16.
#[tokio::test]
async fn el_6_two_campaigns_with_one_lease_may_wait() {
    let node = TestNode::new();
    grant(&node, [1, 2]);
    let first = become_leader(&node, 1, "a").await;
    let first_waiter = wait_for_leadership(&node, 2, "b");
    let second_waiter = wait_for_leadership(&node, 2, "c");
    resign(&node, first).await.unwrap();
    let (first, second) = (first_waiter.await.unwrap(), second_waiter.await.unwrap());
    assert_eq!(first.leader, second.leader);
    assert_eq!(node.engine.get("e/2").unwrap().value(), b"c");
}

#[tokio::test]
async fn el_6_the_next_waiter_becomes_the_leader() {
    let node = TestNode::new();
    grant(&node, [1, 2]);
    let first = become_leader(&node, 1, "a").await;
    let waiting = wait_for_leadership(&node, 2, "b");
    node.fill(["elsewhere"]);
    assert_eq!(resign(&node, first).await.unwrap(), 5);
    let response = waiting.await.unwrap();
    assert_eq!(
        (response.leader.unwrap().rev, response.header),
        (3, header(3))
    );
}

#[tokio::test]
async fn el_4_a_campaign_needs_an_existing_lease_and_can_be_cancelled() {
    let node = TestNode::new();
    let unknown = campaign(node.clone(), "e", 99, "v").await;
    assert_error(unknown, UNKNOWN_LEASE);
    grant(&node, [1, 2]);
    become_leader(&node, 1, "a").await;
    drop(wait_for_leadership(&node, 2, "b"));
    assert!(node.engine.get("e/2").is_none());
    assert!(node.engine.get("e/1").is_some());
}

#[tokio::test]
async fn el_5_a_waiter_whose_lease_is_revoked_fails_at_once() {
    let node = TestNode::new();
    grant(&node, [1, 2]);
    become_leader(&node, 1, "a").await;
    let waiting = wait_for_leadership(&node, 2, "b");
    node.engine.revoke(LeaseId::new(2).unwrap()).unwrap();
    assert_error(waiting.await, NOT_LEADER);
}

#[tokio::test]
async fn el_7_only_the_leader_may_proclaim() {
    let node = TestNode::new();
    grant(&node, [1, 2]);
    let first = become_leader(&node, 1, "v1").await;
    assert_eq!(proclaim(&node, first.clone(), "v2").await.unwrap(), 3);
    assert_eq!(leader(&node).await.unwrap().header, header(3));
    assert_error(proclaim(&node, None, "v").await, NO_LEADER_FIELD);
    assert_error(proclaim(&node, LeaderKey::default(), "v").await, EMPTY_KEY);
    let with = |change: fn(&mut LeaderKey)| {
        let mut leader = first.clone();
        change(&mut leader);
        leader
    };
    let other_rev = with(|leader| leader.rev = 1);
    assert_error(proclaim(&node, other_rev, "v").await, NOT_LEADER);
    let unknown_lease = with(|leader| leader.lease = 99);
    assert_error(proclaim(&node, unknown_lease, "v").await, UNKNOWN_LEASE);
    // As in etcd 3.5.16: the lease of the request is used, and the name is not checked.
    let other_lease = with(|leader| leader.lease = 2);
    assert_eq!(proclaim(&node, other_lease, "v3").await.unwrap(), 4);
    let other_name = with(|leader| leader.name = "x".into());
    assert_eq!(proclaim(&node, other_name, "v4").await.unwrap(), 5);
    resign(&node, first.clone()).await.unwrap();
    assert_error(proclaim(&node, first, "v").await, NOT_LEADER);
}

#[tokio::test]
async fn el_8_leader_returns_the_leader_until_it_resigns() {
    let node = TestNode::new();
    grant(&node, [1]);
    let no_leader = (Code::Unknown, "election: no leader");
    assert_error(leader(&node).await, no_leader);
    let first = become_leader(&node, 1, "v").await;
    let response = leader(&node).await.unwrap();
    assert_eq!(response.kv.unwrap().key, first.key);
    let mut other = first.clone();
    other.rev = 1;
    assert_eq!(
        resign(&node, other).await.unwrap(),
        2,
        "the revision of another owner"
    );
    assert_eq!(resign(&node, first.clone()).await.unwrap(), 3);
    assert_eq!(resign(&node, first).await.unwrap(), 3);
    assert_error(leader(&node).await, no_leader);
    assert_error(resign(&node, None).await, NO_LEADER_FIELD);
    assert_error(resign(&node, LeaderKey::default()).await, EMPTY_KEY);
}

/// The revisions are those that etcd 3.5.16 reports.
#[tokio::test]
async fn el_9_observe_reports_every_change_of_the_leader() {
    let node = TestNode::new();
    grant(&node, [1, 2, 3]);
    let mut observer = observe(&node).await;
    assert_no_response(&mut observer);
    let first = become_leader(&node, 1, "a1").await;
    let waiting = wait_for_leadership(&node, 2, "b1");
    proclaim(&node, first.clone(), "a2").await.unwrap();
    resign(&node, first).await.unwrap();
    waiting.await.unwrap();
    for expected in [("a1", 2), ("a2", 4), ("b1", 5)] {
        let (value, revision) = observed(&mut observer).await;
        assert_eq!((&*value, revision), expected);
    }
    node.engine.revoke(LeaseId::new(2).unwrap()).unwrap();
    assert_no_response(&mut observer);
    become_leader(&node, 3, "c1").await;
    assert_eq!(observed(&mut observer).await, ("c1".to_owned(), 7));
    let mut second = observe(&node).await;
    assert_eq!(observed(&mut second).await, ("c1".to_owned(), 7));
    node.fill(["f/1", "e0"]);
    assert_no_response(&mut second);
}

#[tokio::test]
async fn el_9_observe_continues_after_a_compaction() {
    let node = TestNode::new();
    grant(&node, [1]);
    let mut observer = observe(&node).await;
    let first = become_leader(&node, 1, "a").await;
    proclaim(&node, first.clone(), "b").await.unwrap();
    proclaim(&node, first, "c").await.unwrap();
    let current = node.engine.current_revision();
    node.engine.compact(current).unwrap().run();
    let mut last = observed(&mut observer).await;
    while let Some(response) = observer.next().now_or_never() {
        let kv = response.unwrap().unwrap().kv.unwrap();
        last.0 = String::from_utf8(kv.value.to_vec()).unwrap();
    }
    assert_eq!(last.0, "c");
}

#[tokio::test]
async fn el_9_observe_reports_a_new_leader_key_of_the_same_name() {
    use revstore_engine::{Op, Put, Txn};
    let node = TestNode::new();
    let mut observer = observe(&node).await;
    let txn = |ops| Txn::new().and_then(ops);
    let put = |key: &'static str| Op::Put(Put::new(key, key));
    node.engine.txn(&txn(vec![put("e/1"), put("x")])).unwrap();
    let handover = vec![Op::Delete(KeyRange::one("e/1")), put("e/2"), put("e/1")];
    node.engine.txn(&txn(handover)).unwrap();
    assert_eq!(observed(&mut observer).await, ("e/1".to_owned(), 2));
    // Both keys have the same create revision. The first in key order leads, and it is a new key.
    assert_eq!(observed(&mut observer).await, ("e/1".to_owned(), 3));
}

#[tokio::test]
async fn el_10_an_empty_name_is_valid() {
    let node = TestNode::new();
    grant(&node, [26]);
    let response = campaign(node, "", 26, "v").await.unwrap();
    assert_eq!(&*response.leader.unwrap().key, b"/1a");
}

#[tokio::test]
async fn fl_15_a_shutdown_ends_campaigns_and_observe_streams() {
    let node = TestNode::new();
    grant(&node, [1, 2]);
    become_leader(&node, 1, "a").await;
    let mut observer = observe(&node).await;
    observed(&mut observer).await;
    let waiting = wait_for_leadership(&node, 2, "b");
    node.shutdown.begin();
    assert_error(waiting.await, STOPPED);
    assert_error(observer.next().await.unwrap(), STOPPED);
    assert!(observer.next().await.is_none());
}

/// As in etcd 3.5.16.
#[tokio::test]
async fn li_1_values_count_towards_the_size_limit() {
    let too_large = (Code::Unknown, "etcdserver: request is too large");
    let node = TestNode::new();
    node.engine.grant(LeaseId::new(1), 60).unwrap();
    let leader = become_leader(&node, 1, "v").await;
    let long = Bytes::from(vec![b'v'; 1_600_000]);
    let campaign = CampaignRequest {
        name: "e".into(),
        lease: 1,
        value: long.clone(),
    };
    assert_error(client(&node).campaign(campaign).await, too_large);
    let proclaim = ProclaimRequest {
        leader: Some(leader),
        value: long,
    };
    assert_error(client(&node).proclaim(proclaim).await, too_large);
    assert_eq!(node.engine.get("e/1").unwrap().value(), b"v");
}
