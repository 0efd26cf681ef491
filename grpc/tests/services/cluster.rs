//! The cluster of one, and its health: CL and HL clauses.

use revstore_proto::etcdserverpb::{
    Member, MemberAddRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest,
    MemberUpdateRequest,
};
use revstore_proto::health::HealthCheckRequest;
use revstore_proto::health::health_check_response::ServingStatus;
use tokio_stream::StreamExt;
use tonic::Code;

use crate::support::{MEMBER_ID, Node, STOPPED, check_refused, header};

const NOT_FOUND: (Code, &str) = (Code::NotFound, "etcdserver: member not found");

async fn members(node: &Node) -> Vec<Member> {
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
async fn cl_1_the_list_has_one_member() {
    let node = Node::new();
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
async fn cl_2_cl_3_nobody_joins() {
    let node = Node::new();
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
    check_refused(add(&[], false).await, invalid);
    check_refused(add(&["http://a"], true).await, invalid);
    check_refused(add(&["http://localhost:2380", "?"], false).await, invalid);
    let known = (
        Code::FailedPrecondition,
        "etcdserver: Peer URLs already exists",
    );
    let urls = ["http://a:1", "http://localhost:2380"];
    check_refused(add(&urls, false).await, known);
    let learners = (
        Code::FailedPrecondition,
        "etcdserver: too many learner members in cluster",
    );
    check_refused(add(&["http://a:1"], true).await, learners);
    let quorum = (
        Code::FailedPrecondition,
        "etcdserver: re-configuration failed due to not enough started members",
    );
    check_refused(add(&["http://a:1"], false).await, quorum);
    assert_eq!(members(&node).await.len(), 1);
}

#[tokio::test]
async fn cl_4_cl_5_the_only_member_stays_and_votes() {
    let node = Node::new();
    let remove = async |id| {
        let request = MemberRemoveRequest { id };
        node.cluster().member_remove(request).await
    };
    let promote = async |id| {
        let request = MemberPromoteRequest { id };
        node.cluster().member_promote(request).await
    };
    check_refused(remove(5).await, NOT_FOUND);
    check_refused(promote(0).await, NOT_FOUND);
    let quorum = "etcdserver: re-configuration failed due to not enough started members";
    check_refused(remove(MEMBER_ID).await, (Code::Unknown, quorum));
    let votes = "etcdserver: can only promote a learner member";
    check_refused(promote(MEMBER_ID).await, (Code::FailedPrecondition, votes));
}

/// As etcd 3.5.16 does.
#[tokio::test]
async fn cl_4_the_only_member_may_move() {
    let node = Node::new();
    let update = async |id| {
        let request = MemberUpdateRequest {
            id,
            peer_ur_ls: vec!["http://elsewhere:2380".into()],
        };
        node.cluster().member_update(request).await
    };
    check_refused(update(5).await, NOT_FOUND);
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
async fn hl_1_the_server_as_a_whole_serves() {
    let node = Node::new();
    let health = node
        .health()
        .check(health_of(""))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
    let unknown = (Code::NotFound, "unknown service");
    check_refused(
        node.health().check(health_of("etcdserverpb.KV")).await,
        unknown,
    );
}

#[tokio::test]
async fn hl_1_who_watches_the_health_hears_of_the_end() {
    let node = Node::new();
    let mut health = node
        .health()
        .watch(health_of(""))
        .await
        .unwrap()
        .into_inner();
    let first = health.next().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    node.shutdown.begin();
    check_refused(health.next().await.unwrap(), STOPPED);
}
