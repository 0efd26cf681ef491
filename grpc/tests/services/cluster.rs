//! The Cluster service of the only member that runs, and the Health service: CL and HL clauses.

use std::collections::BTreeMap;

use revstore_proto::etcdserverpb::{
    Member, MemberAddRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest,
    MemberUpdateRequest,
};
use revstore_proto::health::HealthCheckRequest;
use revstore_proto::health::health_check_response::ServingStatus;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tonic::{Code, Status};

use crate::support::{MEMBER_ID, STOPPED, TestNode, assert_error, header};

const NOT_FOUND: (Code, &str) = (Code::NotFound, "etcdserver: member not found");

async fn members(node: &TestNode) -> Vec<Member> {
    let request = MemberListRequest { linearizable: true };
    let listed = node
        .cluster()
        .member_list(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.header, header(0), "DM-27");
    listed.members
}

#[tokio::test]
async fn cl_1_member_list_returns_one_member() {
    let node = TestNode::new();
    node.fill(["k"]);
    let only = Member {
        id: MEMBER_ID,
        name: "default".into(),
        peer_ur_ls: vec!["http://localhost:2380".into()],
        client_ur_ls: vec!["http://localhost:2379".into()],
        is_learner: false,
    };
    assert_eq!(members(&node).await, [only]);
}

#[tokio::test]
async fn cl_2_cl_3_a_voting_member_is_rejected() {
    let node = TestNode::new();
    let add = async |urls: &[&str], is_learner| {
        let request = MemberAddRequest {
            peer_ur_ls: urls.iter().map(ToString::to_string).collect(),
            is_learner,
        };
        node.cluster().member_add(request).await
    };
    let invalid = (
        Code::InvalidArgument,
        "etcdserver: given member URLs are invalid",
    );
    assert_error(add(&[], false).await, invalid);
    assert_error(add(&["http://a"], true).await, invalid);
    assert_error(add(&["http://localhost:2380", "?"], false).await, invalid);
    let known = (
        Code::FailedPrecondition,
        "etcdserver: Peer URLs already exists",
    );
    let urls = ["http://a:1", "http://localhost:2380"];
    assert_error(add(&urls, false).await, known);
    let quorum = (
        Code::FailedPrecondition,
        "etcdserver: re-configuration failed due to not enough started members",
    );
    assert_error(add(&["http://a:1"], false).await, quorum);
    assert_eq!(members(&node).await.len(), 1);
}

#[tokio::test]
async fn cl_4_cl_5_the_only_member_cannot_be_removed_or_promoted() {
    let node = TestNode::new();
    let remove = async |id| {
        let request = MemberRemoveRequest { id };
        node.cluster().member_remove(request).await
    };
    let promote = async |id| {
        let request = MemberPromoteRequest { id };
        node.cluster().member_promote(request).await
    };
    assert_error(remove(5).await, NOT_FOUND);
    assert_error(promote(0).await, NOT_FOUND);
    let quorum = "etcdserver: re-configuration failed due to not enough started members";
    assert_error(remove(MEMBER_ID).await, (Code::Unknown, quorum));
    let votes = "etcdserver: can only promote a learner member";
    assert_error(promote(MEMBER_ID).await, (Code::FailedPrecondition, votes));
}

/// As in etcd 3.5.16.
#[tokio::test]
async fn cl_4_member_update_changes_the_peer_urls() {
    let node = TestNode::new();
    let update = async |id| {
        let request = MemberUpdateRequest {
            id,
            peer_ur_ls: vec!["http://elsewhere:2380".into()],
        };
        node.cluster().member_update(request).await
    };
    assert_error(update(5).await, NOT_FOUND);
    let updated = update(MEMBER_ID).await.unwrap().into_inner();
    assert_eq!(
        (updated.header, updated.members),
        (header(0), members(&node).await)
    );
    assert_eq!(
        members(&node).await[0].peer_ur_ls,
        ["http://elsewhere:2380"]
    );
}

fn learner(url: String) -> MemberAddRequest {
    MemberAddRequest {
        peer_ur_ls: vec![url],
        is_learner: true,
    }
}

/// Returns the texts of errors with their numbers, after the requests have run at the same time.
async fn outcomes<T: Send + 'static>(
    calls: impl Iterator<Item = impl Future<Output = Result<T, Status>> + Send + 'static>,
) -> BTreeMap<String, usize> {
    let calls: JoinSet<_> = calls.collect();
    let mut outcomes = BTreeMap::new();
    for result in calls.join_all().await {
        let text = result.map_or_else(|error| error.message().to_owned(), |_| "ok".to_owned());
        *outcomes.entry(text).or_default() += 1;
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cl_3_of_30_learners_at_once_one_is_added() {
    let node = TestNode::new();
    let before = node.services.raft_index();
    let add = |number| {
        let mut client = node.cluster();
        async move {
            client
                .member_add(learner(format!("http://a{number}:1")))
                .await
        }
    };
    let expected = [
        (
            "etcdserver: too many learner members in cluster".to_owned(),
            29,
        ),
        ("ok".to_owned(), 1),
    ];
    assert_eq!(outcomes((0..30).map(add)).await, BTreeMap::from(expected));
    assert_eq!(members(&node).await.len(), 2);
    // Each of them is a proposal.
    assert_eq!(node.services.raft_index(), before + 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cl_3_of_30_equal_learners_at_once_one_is_added() {
    let node = TestNode::new();
    let add = |_| {
        let mut client = node.cluster();
        async move { client.member_add(learner("http://a:1".to_owned())).await }
    };
    let outcomes = outcomes((0..30).map(add)).await;
    assert_eq!(outcomes["ok"], 1);
    // The id depends on the second in which each arrives.
    let known = [
        "etcdserver: member ID already exist",
        "etcdserver: Peer URLs already exists",
    ];
    let known: usize = known.iter().filter_map(|text| outcomes.get(*text)).sum();
    assert_eq!(known, 29, "{outcomes:?}");
    assert_eq!(members(&node).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cl_4_updates_and_the_removal_of_a_learner_at_once_leave_no_member() {
    let node = TestNode::new();
    for round in 0..100 {
        let added = node
            .cluster()
            .member_add(learner(format!("http://a{round}:1")))
            .await;
        let id = added.unwrap().into_inner().member.unwrap().id;
        let change = |number| {
            let mut client = node.cluster();
            async move {
                if number == 4 {
                    let remove = MemberRemoveRequest { id };
                    return client.member_remove(remove).await.map(drop);
                }
                let update = MemberUpdateRequest {
                    id,
                    peer_ur_ls: vec![format!("http://b{round}-{number}:1")],
                };
                let members = client.member_update(update).await?.into_inner().members;
                assert_eq!(members.len(), 2);
                Ok(())
            }
        };
        let mut outcomes = outcomes((0..8).map(change)).await;
        assert!(outcomes.remove("ok") >= Some(1));
        outcomes.remove("etcdserver: member not found");
        assert_eq!(outcomes, BTreeMap::new());
        assert_eq!(members(&node).await.len(), 1);
    }
}

fn health_of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

#[tokio::test]
async fn hl_1_the_overall_health_is_serving() {
    let node = TestNode::new();
    let health = node
        .health()
        .check(health_of(""))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
    let unknown = (Code::NotFound, "unknown service");
    assert_error(
        node.health().check(health_of("etcdserverpb.KV")).await,
        unknown,
    );
}

#[tokio::test]
async fn hl_1_a_shutdown_ends_health_watches() {
    let node = TestNode::new();
    let mut health = node
        .health()
        .watch(health_of(""))
        .await
        .unwrap()
        .into_inner();
    let first = health.next().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    node.shutdown.begin();
    assert_error(health.next().await.unwrap(), STOPPED);
}
