//! Tests of the Raft term and index of a server with `--persist`.

use revstore::{PersistOptions, engine::Engine};
use revstore_grpc::Services;
use revstore_proto::etcdserverpb::{
    PutRequest, StatusRequest, StatusResponse, WatchCreateRequest, WatchRequest,
    kv_client::KvClient, maintenance_client::MaintenanceClient, watch_client::WatchClient,
    watch_request::RequestUnion,
};
use tokio_stream::StreamExt;
use tonic::transport::Channel;

use crate::{
    persist::start,
    support::{block_on, connect, put},
};

async fn status(channel: &Channel) -> StatusResponse {
    let mut client = MaintenanceClient::new(channel.clone());
    let status = client.status(StatusRequest {}).await;
    status.unwrap().into_inner()
}

/// As in etcd: each start is an election, after which the leader makes two proposals.
#[test]
fn dm_12_dm_13_raft_term_and_index_grow_with_each_start() {
    let dir = tempfile::tempdir().unwrap();
    let (process, address) = start(dir.path(), &[]);
    let first = block_on(async {
        let channel = connect(address).await;
        put(channel.clone(), "a").await.unwrap();
        let fails = PutRequest {
            key: "absent".into(),
            ignore_value: true,
            ..PutRequest::default()
        };
        KvClient::new(channel.clone()).put(fails).await.unwrap_err();
        status(&channel).await
    });
    assert_eq!((first.raft_term, first.raft_index), (2, 6));
    process.signal("TERM");
    process.wait();
    let (process, address) = start(dir.path(), &[]);
    let second = block_on(async { status(&connect(address).await).await });
    assert_eq!((second.raft_term, second.raft_index), (3, 8));
    assert_eq!(second.header.unwrap().raft_term, 3);
    process.signal("KILL");
    process.wait();
    // After a crash, the index is higher than it was, by a number that is not defined.
    let (_process, address) = start(dir.path(), &[]);
    block_on(async {
        let channel = connect(address).await;
        let third = status(&channel).await;
        assert_eq!(third.raft_term, 4);
        assert!(third.raft_index >= second.raft_index + 2, "{third:?}");
        let mut watch = WatchClient::new(channel.clone());
        let create = WatchCreateRequest {
            key: "a".into(),
            start_revision: 2,
            ..WatchCreateRequest::default()
        };
        let create = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        let open = tokio_stream::once(create).chain(tokio_stream::pending());
        let mut events = watch.watch(open).await.unwrap().into_inner();
        for _created_then_event in 0..2 {
            let response = events.message().await.unwrap().unwrap();
            assert_eq!(response.header.unwrap().raft_term, 4);
        }
    });
}

/// More than the services store in advance.
const FAILED_PUTS: u64 = 20_000;

#[test]
fn dm_13_the_raft_index_does_not_go_back_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let options = PersistOptions::default();
        let builder = Engine::builder();
        let opened = revstore_persist::open(dir.path(), builder, options).unwrap();
        let services = Services::builder(opened.engine);
        let services = services.persist(opened.persist.clone(), &opened.metadata);
        (services.build(), opened.persist)
    };
    let (services, persist) = open();
    block_on(async {
        let mut kv = KvClient::new(services.clone());
        for _ in 0..FAILED_PUTS {
            let fails = PutRequest {
                key: "absent".into(),
                ignore_value: true,
                ..PutRequest::default()
            };
            kv.put(fails).await.unwrap_err();
        }
    });
    let before = services.raft_index();
    // Without the last index of a regular end.
    persist.close().unwrap();
    drop((services, persist));
    assert!(open().0.raft_index() > before);
}
