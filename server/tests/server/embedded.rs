//! Tests of a server embedded in a program.

use std::{
    fs,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use crate::support::{WAIT_TIMEOUT, block_on, connect, get, put, watch};
use revstore::{
    ClockMode, Config, ListenUrl, Server, StartError,
    control::replay::{Replay, Selection},
    engine::{AutoCompaction, Engine, ManualClock, Put, Revision},
};
use revstore_proto::etcdserverpb::{
    AuthEnableRequest, AuthUserAddRequest, AuthUserGrantRoleRequest, AuthenticateRequest,
    MemberListRequest, PutRequest, RequestOp, TxnRequest, auth_client::AuthClient,
    cluster_client::ClusterClient, kv_client::KvClient, request_op::Request,
};
use tonic::{Code, transport::Endpoint};

#[test]
fn a_test_that_panics_leaves_its_store_and_journal() {
    let directory = tempfile::tempdir().unwrap();
    let run = |fails: bool| {
        let path = directory.path().join("saved");
        thread::Builder::new()
            .name("my::test".to_owned())
            .spawn(move || {
                let server = Server::builder()
                    .control(ClockMode::Manual)
                    .start()
                    .unwrap();
                let _saved = server.save_on_panic(path);
                block_on(async {
                    let client = connect(server.address().unwrap()).await;
                    put(client, "key").await.unwrap();
                });
                assert!(!fails, "as expected");
            })
            .unwrap()
            .join()
    };
    run(false).unwrap();
    assert!(!directory.path().join("saved").exists());
    for name in ["my__test-1", "my__test-2"] {
        run(true).unwrap_err();
        let read = |file| fs::read_to_string(directory.path().join("saved").join(name).join(file));
        let (dump, journal) = (read("dump.txt").unwrap(), read("journal.jsonl").unwrap());
        assert!(
            dump.contains(r#"{"put":{"key":"key","value":"value""#),
            "{dump}"
        );
        assert!(
            journal.contains(r#""method":"etcdserverpb.KV/Put""#),
            "{journal}"
        );
        let replay = Replay::read(journal.as_bytes(), &Selection::default()).unwrap();
        assert_eq!(replay.len(), 1);
    }
}

#[test]
fn a_server_starts_with_three_lines_of_code() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::builder().start()?;
    let endpoint = server.endpoint();
    let engine = server.engine();

    block_on(async {
        let channel = Endpoint::new(endpoint.to_owned())?.connect().await?;
        let put = PutRequest {
            key: "a".into(),
            value: "1".into(),
            ..PutRequest::default()
        };
        KvClient::new(channel).put(put).await?;
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    assert_eq!(engine.get("a").unwrap().value(), b"1");
    Ok(())
}

#[tokio::test]
async fn a_server_can_be_dropped_in_a_single_threaded_runtime() {
    let server = Server::builder().start().unwrap();
    let address = server.address().unwrap();
    let channel = connect(address).await;
    put(channel.clone(), "a").await.unwrap();
    let mut watch = watch(channel, "a").await;
    drop(server);
    // The port is closed when `drop` returns, although a client is still connected. A process that another test starts
    // has a copy of the socket for a moment.
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "the port is open");
        tokio::task::yield_now().await;
    }
    let ended = watch.responses.message().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_can_be_dropped_in_a_multi_threaded_runtime() {
    let server = Server::builder().start().unwrap();
    put(connect(server.address().unwrap()).await, "a")
        .await
        .unwrap();
    drop(server);
}

#[tokio::test]
async fn fl_15_stop_ends_streams_and_waits_for_connections() {
    let server = Server::builder().start().unwrap();
    let address = server.address().unwrap();
    let channel = connect(address).await;
    let mut watch = watch(channel, "a").await;
    let (ended, ()) = tokio::join!(watch.responses.message(), server.stop_async());
    assert_eq!(ended.unwrap_err().code(), Code::Unavailable);
    TcpStream::connect(address).unwrap_err();
}

#[test]
fn fl_16_stop_from_a_thread_closes_the_port() {
    let server = Server::builder().start().unwrap();
    let address = server.address().unwrap();
    assert_eq!(get(address, "/health").status, 200);
    server.stop();
    TcpStream::connect(address).unwrap_err();
}

#[test]
fn a_server_is_send_and_sync() {
    fn check<T: Send + Sync>(_: &T) {}
    check(&Server::builder().start().unwrap());
}

#[test]
fn several_servers_are_independent() {
    let servers = [0; 3].map(|_| Server::builder().start().unwrap());
    servers[0].engine().put("a", "1").unwrap();
    assert!(servers[1].engine().get("a").is_none());
    assert_ne!(servers[1].endpoint(), servers[2].endpoint());
}

#[tokio::test]
async fn clients_receive_events_of_engine_writes_and_of_lease_expiry() {
    let clock = ManualClock::new();
    let server = Server::builder()
        .clock(clock.clone())
        .min_lease_ttl(Duration::from_secs(1))
        .start()
        .unwrap();
    let mut watch = watch(connect(server.address().unwrap()).await, "a").await;
    let engine = server.engine();
    let lease = engine.grant(None, 1).unwrap().id;
    let put = Put::new("a", "1").attached_to(lease);
    engine.put_with(&put).unwrap();
    let event = watch.responses.message().await.unwrap().unwrap();
    assert_eq!(event.events[0].kv.as_ref().unwrap().value, "1");
    clock.advance(Duration::from_secs(1));
    let event = watch.responses.message().await.unwrap().unwrap();
    assert_eq!(event.events[0].kv.as_ref().unwrap().value, "");
}

#[tokio::test]
async fn fl_20_tokens_expire_according_to_the_options_and_the_clock() {
    let clock = ManualClock::new();
    let mut config = Config::default();
    config.listen_client_urls = vec![ListenUrl::localhost(0)];
    config.listen_peer_urls = Vec::new();
    config.auth.token_ttl = Duration::from_secs(5);
    config.auth.bcrypt_cost = 4;
    let server = Server::builder()
        .config(config)
        .clock(clock.clone())
        .start()
        .unwrap();
    let channel = connect(server.address().unwrap()).await;
    let mut auth = AuthClient::new(channel.clone());
    let (name, password) = ("root".to_owned(), "p".to_owned());
    let add = AuthUserAddRequest {
        name: name.clone(),
        password: password.clone(),
        ..AuthUserAddRequest::default()
    };
    auth.user_add(add).await.unwrap();
    let grant = AuthUserGrantRoleRequest {
        user: name.clone(),
        role: name.clone(),
    };
    auth.user_grant_role(grant).await.unwrap();
    auth.auth_enable(AuthEnableRequest {}).await.unwrap();
    let login = auth.authenticate(AuthenticateRequest { name, password });
    let token = login.await.unwrap().into_inner().token;
    let list = || {
        let mut request = tonic::Request::new(MemberListRequest::default());
        let metadata = request.metadata_mut();
        metadata.insert("authorization", token.parse().unwrap());
        request
    };
    let mut cluster = ClusterClient::new(channel);
    for _ in 0..2 {
        clock.advance(Duration::from_secs(4));
        cluster.member_list(list()).await.unwrap();
    }
    clock.advance(Duration::from_secs(5));
    let expired = cluster.member_list(list()).await.unwrap_err();
    assert_eq!(expired.code(), Code::Unauthenticated);
}

#[test]
fn options_of_the_builder_apply_to_the_engine() {
    let clock = ManualClock::new();
    let server = Server::builder()
        .clock(clock.clone())
        .start_revision(100)
        .auto_compaction(AutoCompaction::Revisions {
            keep: 1,
            every: Duration::from_secs(60),
        })
        .start()
        .unwrap();
    let engine = server.engine();
    assert_eq!(engine.put("a", "1").unwrap().revision, Revision(101));
    engine.put("a", "2").unwrap();
    clock.advance(Duration::from_secs(60));
    assert_eq!(engine.compacted_revision(), Some(Revision(101)));
    // LE-1: the minimum is that of etcd's default options.
    let granted = engine.grant(None, 1).unwrap();
    assert_eq!(granted.ttl, Duration::from_secs(2));
}

#[test]
fn a_start_revision_without_room_for_writes_is_an_error() {
    let error = Server::builder()
        .start_revision(i64::MAX)
        .start()
        .unwrap_err();
    assert!(matches!(error, StartError::StartRevision(_)), "{error:?}");
    let expected = "the start revision 9223372036854775807 is above 4611686018427387903";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn options_of_the_builder_apply_to_the_services() {
    let server = Server::builder()
        .max_txn_ops(1)
        .max_request_bytes(100)
        .start()
        .unwrap();
    let mut client = KvClient::new(connect(server.address().unwrap()).await);
    let put = |key: &'static str, length| PutRequest {
        key: key.into(),
        value: vec![0; length].into(),
        ..PutRequest::default()
    };
    let operation = |key| RequestOp {
        request: Some(Request::RequestPut(put(key, 1))),
    };
    let txn = TxnRequest {
        success: vec![operation("a"), operation("b")],
        ..TxnRequest::default()
    };
    let status = client.txn(txn).await.unwrap_err();
    assert_eq!(
        status.message(),
        "etcdserver: too many operations in txn request"
    );
    let status = client.put(put("a", 100)).await.unwrap_err();
    assert_eq!(status.message(), "etcdserver: request is too large");
}

#[tokio::test]
async fn cl_1_member_list_returns_the_chosen_port() {
    let server = Server::builder().start().unwrap();
    let mut client = ClusterClient::new(connect(server.address().unwrap()).await);
    let list = client.member_list(MemberListRequest::default()).await;
    let member = list.unwrap().into_inner().members.remove(0);
    assert_eq!(member.client_ur_ls, [server.endpoint()]);
}

#[test]
fn fl_9_a_port_in_use_is_an_error() {
    let first = Server::builder().start().unwrap();
    let mut config = Config::default();
    config.listen_client_urls = vec![ListenUrl::localhost(first.address().unwrap().port())];
    config.listen_peer_urls = Vec::new();
    let error = Server::builder().config(config).start().unwrap_err();
    assert!(matches!(error, StartError::Bind(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.ends_with("bind: address already in use"), "{text}");
}

#[tokio::test]
async fn a_store_of_the_program_is_served_and_outlives_its_servers() {
    let clock = ManualClock::new();
    let engine = Engine::builder().clock(clock.clone()).build();
    engine.put("a", "1").unwrap();
    let serve = || Server::builder().store(engine.clone()).start().unwrap();
    let (first, second) = (serve(), serve());
    for (server, key) in [(&first, "b"), (&second, "c")] {
        let mut client = KvClient::new(connect(server.address().unwrap()).await);
        let put = PutRequest {
            key: key.into(),
            ..PutRequest::default()
        };
        client.put(put).await.unwrap();
    }
    first.stop_async().await;
    drop(second);
    assert_eq!(engine.current_revision(), Revision(4));
    for key in ["a", "b", "c"] {
        assert!(engine.get(key).is_some(), "{key}");
    }
    // Its clock is still that with which it was built.
    let lease = engine.grant(None, 10).unwrap().id;
    clock.advance(Duration::from_secs(10));
    assert!(engine.revoke(lease).is_err());
}

#[test]
fn a_store_of_the_program_is_not_journaled() {
    let mut config = Config::default();
    config.listen_client_urls = vec![ListenUrl::localhost(0)];
    config.listen_peer_urls = Vec::new();
    config.persist = Some(revstore::PersistOptions::default());
    let server = Server::builder()
        .config(config)
        .store(Engine::builder().build());
    let error = server.start().unwrap_err();
    assert!(matches!(error, StartError::PersistOfStore), "{error:?}");
}
