//! Elections: EL-4 to EL-10.

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

use crate::support::{Node, STOPPED, check_refused, header};

const NOT_LEADER: (Code, &str) = (Code::Unknown, "election: not leader");
const UNKNOWN_LEASE: (Code, &str) = (Code::Unknown, "etcdserver: requested lease not found");
const NO_LEADER_FIELD: (Code, &str) = (Code::Unknown, "\"leader\" field must be provided");
const EMPTY_KEY: (Code, &str) = (Code::Unknown, "etcdserver: key is not provided");

fn client(node: &Node) -> ElectionClient<Services> {
    ElectionClient::new(node.services.clone())
}

async fn campaign(
    node: Node,
    name: &'static str,
    lease: i64,
    value: &'static str,
) -> Result<CampaignResponse, Status> {
    let request = CampaignRequest {
        name: name.into(),
        lease,
        value: value.into(),
    };
    let won = client(&node).campaign(request).await;
    won.map(Response::into_inner)
}

async fn elect(node: &Node, lease: i64, value: &'static str) -> LeaderKey {
    let won = campaign(node.clone(), "e", lease, value).await.unwrap();
    won.leader.unwrap()
}

type Waiting = Pin<Box<dyn Future<Output = Result<CampaignResponse, Status>> + Send>>;

fn wait_for_victory(node: &Node, lease: i64, value: &'static str) -> Waiting {
    let mut waiting: Waiting = Box::pin(campaign(node.clone(), "e", lease, value));
    assert!((&mut waiting).now_or_never().is_none(), "it should wait");
    waiting
}

async fn proclaim(
    node: &Node,
    leader: impl Into<Option<LeaderKey>>,
    value: &'static str,
) -> Result<i64, Status> {
    let request = ProclaimRequest {
        leader: leader.into(),
        value: value.into(),
    };
    let done = client(node).proclaim(request).await?.into_inner();
    Ok(done.header.unwrap().revision)
}

async fn resign(node: &Node, leader: impl Into<Option<LeaderKey>>) -> Result<i64, Status> {
    let request = ResignRequest {
        leader: leader.into(),
    };
    let done = client(node).resign(request).await?.into_inner();
    Ok(done.header.unwrap().revision)
}

async fn leader(node: &Node) -> Result<LeaderResponse, Status> {
    let request = LeaderRequest { name: "e".into() };
    client(node).leader(request).await.map(Response::into_inner)
}

async fn observe(node: &Node) -> Streaming<LeaderResponse> {
    let request = LeaderRequest { name: "e".into() };
    client(node).observe(request).await.unwrap().into_inner()
}

/// What the next message shows, and the revision of its header.
async fn observed(stream: &mut Streaming<LeaderResponse>) -> (String, i64) {
    let told = stream.next().await.unwrap().unwrap();
    let value = told.kv.unwrap().value.to_vec();
    (
        String::from_utf8(value).unwrap(),
        told.header.unwrap().revision,
    )
}

fn check_silent(stream: &mut Streaming<LeaderResponse>) {
    if let Some(said) = stream.next().now_or_never() {
        panic!("nothing should have changed, but {said:?}");
    }
}

fn grant(node: &Node, ids: impl IntoIterator<Item = i64>) {
    for id in ids {
        node.engine.grant(LeaseId::new(id), 60).unwrap();
    }
}

#[tokio::test]
async fn el_6_a_victory_is_a_key_with_a_value() {
    let node = Node::new();
    grant(&node, [26]);
    let won = campaign(node.clone(), "e", 26, "v").await.unwrap();
    let expected = LeaderKey {
        name: "e".into(),
        key: "e/1a".into(),
        rev: 2,
        lease: 26,
    };
    assert_eq!((won.leader.unwrap(), won.header), (expected, header(2)));
    let kv = node.engine.get("e/1a").unwrap();
    assert_eq!((kv.value(), kv.lease()), (&b"v"[..], LeaseId::new(26)));
}

/// As etcd 3.5.16 does it: the header is from before the value changes.
#[tokio::test]
async fn el_6_who_leads_already_changes_the_value() {
    let node = Node::new();
    grant(&node, [26]);
    let first = elect(&node, 26, "v1").await;
    for (value, header_revision, after) in [("v2", 2, 3), ("v2", 3, 3)] {
        let again = campaign(node.clone(), "e", 26, value).await.unwrap();
        assert_eq!(again.header, header(header_revision));
        assert_eq!(again.leader.unwrap(), first);
        assert_eq!(node.revision(), after);
    }
    let kv = leader(&node).await.unwrap().kv.unwrap();
    assert_eq!((&*kv.value, kv.create_revision), (&b"v2"[..], 2));
}

/// As etcd 3.5.16 does it.
#[tokio::test]
async fn el_6_two_calls_may_wait_with_one_lease() {
    let node = Node::new();
    grant(&node, [1, 2]);
    let first = elect(&node, 1, "a").await;
    let one = wait_for_victory(&node, 2, "b");
    let other = wait_for_victory(&node, 2, "c");
    resign(&node, first).await.unwrap();
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    assert_eq!(one.leader, other.leader);
    assert_eq!(node.engine.get("e/2").unwrap().value(), b"c");
}

#[tokio::test]
async fn el_6_the_next_in_line_follows() {
    let node = Node::new();
    grant(&node, [1, 2]);
    let first = elect(&node, 1, "a").await;
    let waiting = wait_for_victory(&node, 2, "b");
    node.fill(["elsewhere"]);
    assert_eq!(resign(&node, first).await.unwrap(), 5);
    let won = waiting.await.unwrap();
    assert_eq!((won.leader.unwrap().rev, won.header), (3, header(3)));
}

#[tokio::test]
async fn el_4_a_campaign_needs_a_lease_and_may_be_given_up() {
    let node = Node::new();
    let unknown = campaign(node.clone(), "e", 99, "v").await;
    check_refused(unknown, UNKNOWN_LEASE);
    grant(&node, [1, 2]);
    elect(&node, 1, "a").await;
    drop(wait_for_victory(&node, 2, "b"));
    assert!(node.engine.get("e/2").is_none());
    assert!(node.engine.get("e/1").is_some());
}

#[tokio::test]
async fn el_5_who_loses_the_place_is_told_at_once() {
    let node = Node::new();
    grant(&node, [1, 2]);
    elect(&node, 1, "a").await;
    let waiting = wait_for_victory(&node, 2, "b");
    node.engine.revoke(LeaseId::new(2).unwrap()).unwrap();
    check_refused(waiting.await, NOT_LEADER);
}

#[tokio::test]
async fn el_7_who_leads_may_proclaim() {
    let node = Node::new();
    grant(&node, [1, 2]);
    let first = elect(&node, 1, "v1").await;
    assert_eq!(proclaim(&node, first.clone(), "v2").await.unwrap(), 3);
    assert_eq!(leader(&node).await.unwrap().header, header(3));
    check_refused(proclaim(&node, None, "v").await, NO_LEADER_FIELD);
    check_refused(proclaim(&node, LeaderKey::default(), "v").await, EMPTY_KEY);
    let with = |change: fn(&mut LeaderKey)| {
        let mut leader = first.clone();
        change(&mut leader);
        leader
    };
    let other_rev = with(|leader| leader.rev = 1);
    check_refused(proclaim(&node, other_rev, "v").await, NOT_LEADER);
    let unknown_lease = with(|leader| leader.lease = 99);
    check_refused(proclaim(&node, unknown_lease, "v").await, UNKNOWN_LEASE);
    // As etcd 3.5.16 does it: the lease is taken as given, the name is not looked at.
    let other_lease = with(|leader| leader.lease = 2);
    assert_eq!(proclaim(&node, other_lease, "v3").await.unwrap(), 4);
    let other_name = with(|leader| leader.name = "x".into());
    assert_eq!(proclaim(&node, other_name, "v4").await.unwrap(), 5);
    resign(&node, first.clone()).await.unwrap();
    check_refused(proclaim(&node, first, "v").await, NOT_LEADER);
}

#[tokio::test]
async fn el_8_leaders_come_and_go() {
    let node = Node::new();
    grant(&node, [1]);
    let nobody = (Code::Unknown, "election: no leader");
    check_refused(leader(&node).await, nobody);
    let first = elect(&node, 1, "v").await;
    let told = leader(&node).await.unwrap();
    assert_eq!(told.kv.unwrap().key, first.key);
    let mut other = first.clone();
    other.rev = 1;
    assert_eq!(resign(&node, other).await.unwrap(), 2, "not the owner");
    assert_eq!(resign(&node, first.clone()).await.unwrap(), 3);
    assert_eq!(resign(&node, first).await.unwrap(), 3);
    check_refused(leader(&node).await, nobody);
    check_refused(resign(&node, None).await, NO_LEADER_FIELD);
    check_refused(resign(&node, LeaderKey::default()).await, EMPTY_KEY);
}

/// The revisions are those of etcd 3.5.16.
#[tokio::test]
async fn el_9_observers_see_every_change_of_the_leader() {
    let node = Node::new();
    grant(&node, [1, 2, 3]);
    let mut observer = observe(&node).await;
    check_silent(&mut observer);
    let first = elect(&node, 1, "a1").await;
    let waiting = wait_for_victory(&node, 2, "b1");
    proclaim(&node, first.clone(), "a2").await.unwrap();
    resign(&node, first).await.unwrap();
    waiting.await.unwrap();
    for expected in [("a1", 2), ("a2", 4), ("b1", 5)] {
        let (value, revision) = observed(&mut observer).await;
        assert_eq!((&*value, revision), expected);
    }
    node.engine.revoke(LeaseId::new(2).unwrap()).unwrap();
    check_silent(&mut observer);
    elect(&node, 3, "c1").await;
    assert_eq!(observed(&mut observer).await, ("c1".to_owned(), 7));
    let mut late = observe(&node).await;
    assert_eq!(observed(&mut late).await, ("c1".to_owned(), 7));
    node.fill(["f/1", "e0"]);
    check_silent(&mut late);
}

#[tokio::test]
async fn el_9_a_compaction_does_not_blind_observers() {
    let node = Node::new();
    grant(&node, [1]);
    let mut observer = observe(&node).await;
    let first = elect(&node, 1, "a").await;
    proclaim(&node, first.clone(), "b").await.unwrap();
    proclaim(&node, first, "c").await.unwrap();
    let current = node.engine.current_revision();
    node.engine.compact(current).unwrap().run();
    let mut last = observed(&mut observer).await;
    while let Some(told) = observer.next().now_or_never() {
        let kv = told.unwrap().unwrap().kv.unwrap();
        last.0 = String::from_utf8(kv.value.to_vec()).unwrap();
    }
    assert_eq!(last.0, "c");
}

#[tokio::test]
async fn el_9_one_transaction_may_change_everything() {
    use revstore_engine::{Op, Put, Txn};
    let node = Node::new();
    let mut observer = observe(&node).await;
    let at_once = |ops| Txn {
        success: ops,
        ..Txn::default()
    };
    let put = |key: &'static str| Op::Put(Put::new(key, key));
    node.engine
        .txn(&at_once(vec![put("e/1"), put("x")]))
        .unwrap();
    let handover = vec![Op::Delete(KeyRange::one("e/1")), put("e/2"), put("e/1")];
    node.engine.txn(&at_once(handover)).unwrap();
    assert_eq!(observed(&mut observer).await, ("e/1".to_owned(), 2));
    // Both are as old now; the first in key order leads, and it is another one than before.
    assert_eq!(observed(&mut observer).await, ("e/1".to_owned(), 3));
}

#[tokio::test]
async fn el_10_an_empty_name_is_a_name() {
    let node = Node::new();
    grant(&node, [26]);
    let won = campaign(node, "", 26, "v").await.unwrap();
    assert_eq!(&*won.leader.unwrap().key, b"/1a");
}

#[tokio::test]
async fn fl_15_a_shutdown_ends_campaigns_and_observers() {
    let node = Node::new();
    grant(&node, [1, 2]);
    elect(&node, 1, "a").await;
    let mut observer = observe(&node).await;
    observed(&mut observer).await;
    let waiting = wait_for_victory(&node, 2, "b");
    node.shutdown.begin();
    check_refused(waiting.await, STOPPED);
    check_refused(observer.next().await.unwrap(), STOPPED);
    assert!(observer.next().await.is_none());
}

/// As etcd 3.5.16 has it.
#[tokio::test]
async fn li_1_values_are_part_of_proposals() {
    let too_large = (Code::Unknown, "etcdserver: request is too large");
    let node = Node::new();
    node.engine.grant(LeaseId::new(1), 60).unwrap();
    let leader = elect(&node, 1, "v").await;
    let long = Bytes::from(vec![b'v'; 1_600_000]);
    let campaign = CampaignRequest {
        name: "e".into(),
        lease: 1,
        value: long.clone(),
    };
    check_refused(client(&node).campaign(campaign).await, too_large);
    let proclaim = ProclaimRequest {
        leader: Some(leader),
        value: long,
    };
    check_refused(client(&node).proclaim(proclaim).await, too_large);
    assert_eq!(node.engine.get("e/1").unwrap().value(), b"v");
}
