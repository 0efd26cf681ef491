//! The Cluster service of the only member that runs, and the Health service: CL and HL clauses.

use revstore_proto::etcdserverpb::{
    Member, MemberAddRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest,
    MemberUpdateRequest,
};
use revstore_proto::health::HealthCheckRequest;
use revstore_proto::health::health_check_response::ServingStatus;
use tokio_stream::StreamExt;
use tonic::Code;

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
