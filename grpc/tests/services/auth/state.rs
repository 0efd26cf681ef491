//! The state of a node that another node continues with.

use revstore_grpc::{Alarm, AlarmKind, AuthOptions, Identity, NodeState, Services};
use revstore_proto::etcdserverpb::{MemberAddRequest, MemberListRequest, StatusRequest};

use super::{
    AUTH_FAILED, DENIED, INVALID_TOKEN, NO_TOKEN, add_user, authenticate, disable, node,
    node_with_auth, read,
};
use crate::support::{CLUSTER_ID, MEMBER_ID, TestNode, assert_error};

/// Returns a node with a fork of the engine, and with the state.
fn copy(node: &TestNode, state: &NodeState) -> TestNode {
    let identity = Identity::new(CLUSTER_ID, MEMBER_ID)
        .name("default")
        .peer_urls(["http://localhost:2380"])
        .client_urls(["http://localhost:2379"]);
    let engine = node.engine.fork();
    let services = Services::builder(engine.clone())
        .identity(identity)
        .auth(AuthOptions::default().bcrypt_cost(4))
        .state(state.clone());
    TestNode {
        engine,
        services: services.build(),
        ..node.clone()
    }
}

#[tokio::test]
async fn a_copy_has_users_alarms_members_and_the_raft_state() {
    let (node, root, user) = node_with_auth().await;
    let add = MemberAddRequest {
        peer_ur_ls: vec!["http://127.0.0.1:2381".into()],
        is_learner: true,
    };
    disable(&node, &root).await.unwrap();
    node.cluster().member_add(add).await.unwrap();
    super::enable(&node, NO_TOKEN).await.unwrap();
    node.services.alarms().raise(Alarm {
        kind: AlarmKind::Corrupt,
        member_id: 7,
    });
    let state = node.services.state();
    assert!(state.is_auth_enabled() && state.size_bytes() > 0);
    assert_eq!(state.alarms(), node.services.alarms().list(None));
    let copy = copy(&node, &state);
    // Nothing is lost, and nothing added.
    assert_eq!(copy.services.state(), state);
    assert_eq!(copy.services.raft_index(), node.services.raft_index());
    assert_eq!(copy.services.members(), node.services.members());
    assert!(copy.services.alarms().is_raised(AlarmKind::Corrupt));
    copy.services.alarms().clear(Alarm {
        kind: AlarmKind::Corrupt,
        member_id: 7,
    });
    // Passwords and permissions; tokens are those of one node.
    assert_error(read(&copy, &user, "read").await, INVALID_TOKEN);
    assert_error(
        authenticate(&copy, "u", "wrong").await.map(drop),
        AUTH_FAILED,
    );
    let token = authenticate(&copy, "u", "u").await.unwrap();
    read(&copy, &token, "read1").await.unwrap();
    assert_error(read(&copy, &token, "write1").await, DENIED);
    let root_of_copy = authenticate(&copy, "root", "root").await.unwrap();
    add_user(&copy, &root_of_copy, "new", "p").await.unwrap();
    // What changes in one does not show in the other, nor in the state.
    assert_eq!(node.services.state(), state);
    assert_ne!(copy.services.state(), state);
}

#[tokio::test]
async fn the_default_state_is_that_of_a_new_node() {
    let node = node();
    let copy = copy(&node, &NodeState::default());
    let status = async |node: &TestNode| {
        let status = node.maintenance().status(StatusRequest {}).await;
        let status = status.unwrap().into_inner();
        (status.raft_index, status.raft_term, status.errors)
    };
    assert_eq!(status(&copy).await, status(&node).await);
    assert!(!NodeState::default().is_auth_enabled());
    let mut cluster = copy.cluster();
    let listed = cluster.member_list(MemberListRequest::default()).await;
    assert_eq!(listed.unwrap().into_inner().members.len(), 1);
}
