//! What counts as under way, for automatic time.

use std::time::Duration;

use revstore_control::{
    clock::Activity as _,
    fault::{Action, Trigger},
};
use revstore_proto::{
    etcdserverpb::{
        LeaseKeepAliveRequest, RangeRequest, kv_client::KvClient, lease_client::LeaseClient,
    },
    v3lockpb::{LockRequest, lock_client::LockClient},
};

use super::{Controlled, WatchClientStream, method, until};
use crate::support::put;

#[tokio::test]
async fn calls_that_wait_for_the_store_or_the_clock_are_not_under_way() {
    let controlled = Controlled::start();
    let activity = controlled.inner.open.activity();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("a", 0).await;
    let (requests, receiver) = tokio::sync::mpsc::channel(4);
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut leases = LeaseClient::new(channel.clone());
    let mut answers = leases.lease_keep_alive(stream).await.unwrap().into_inner();
    requests
        .send(LeaseKeepAliveRequest { id: 1 })
        .await
        .unwrap();
    answers.message().await.unwrap();
    // A lock that another one holds, by a lease that ends with time alone.
    let engine = controlled.server.engine();
    let lease = engine.grant(None, 3_600).unwrap().id;
    let mut locks = LockClient::new(channel.clone());
    let lock = |lease: i64| LockRequest {
        name: "l".into(),
        lease,
    };
    locks.lock(lock(lease.get())).await.unwrap();
    let other = engine.grant(None, 7_200).unwrap().id;
    let waiter = tokio::spawn({
        let mut locks = locks.clone();
        async move { locks.lock(lock(other.get())).await }
    });
    // A call that a rule delays.
    let delay = Action::Delay {
        time: Duration::from_secs(60),
        wall: false,
    };
    let rule = controlled.add(method("Put"), Trigger::Next(1), delay);
    let delayed = tokio::spawn(put(channel.clone(), "a"));
    until(|| controlled.fired(rule) == 1).await;
    until(|| activity.busy() == 0).await;
    assert_eq!(activity.busy_for(Duration::ZERO), None);
    assert!(!waiter.is_finished() && !delayed.is_finished());
    controlled.advance(Duration::from_secs(60));
    delayed.await.unwrap().unwrap();
    assert_eq!(watch.next_keys().await, ["a"]);
    controlled.advance(Duration::from_secs(3_600));
    waiter.await.unwrap().unwrap();
    until(|| activity.busy() == 0).await;
    // One that waits for the wall is.
    let wall = Action::Delay {
        time: Duration::from_secs(3_600),
        wall: true,
    };
    let rule = controlled.add(method("Put"), Trigger::Next(1), wall);
    let delayed = tokio::spawn(put(channel, "a"));
    until(|| controlled.fired(rule) == 1).await;
    assert_eq!(activity.busy(), 1);
    delayed.abort();
    until(|| activity.busy() == 0).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_a_watch_stops_automatic_time() {
    const BYTES: usize = 1 << 20;
    let controlled = Controlled::start();
    let activity = controlled.inner.open.activity();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("a", 0).await;
    until(|| activity.busy() == 0).await;
    let engine = controlled.server.engine();
    // More than the windows of HTTP/2 and the buffers of the system take.
    for number in 0..64 {
        engine.put(format!("a{number}"), vec![b'x'; BYTES]).unwrap();
    }
    until(|| activity.busy() == 1).await;
    assert!(activity.busy_for(Duration::ZERO).is_some());
    let mut keys = 0;
    while keys < 64 {
        keys += watch.next_keys().await.len();
    }
    until(|| activity.busy() == 0).await;
}

/// The request that the gateway converts once counted beside its call, for ever.
#[tokio::test]
async fn requests_of_the_gateway_that_wait_are_not_under_way() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let controlled = Controlled::start();
    let activity = controlled.inner.open.activity();
    let address = controlled.server.address().unwrap();
    let send = async |path: &str, body: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!(
            "POST /v3/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    };
    let answer = async |mut stream: tokio::net::TcpStream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    let engine = controlled.server.engine();
    let leases = [3_600, 7_200].map(|ttl| engine.grant(None, ttl).unwrap().id);
    let lock = |lease: revstore::engine::LeaseId| format!(r#"{{"name":"bA==","lease":{lease}}}"#);
    answer(send("lock/lock", &lock(leases[0])).await).await;
    let waiter = send("lock/lock", &lock(leases[1])).await;
    let delay = Action::Delay {
        time: Duration::from_secs(60),
        wall: false,
    };
    let rule = controlled.add(method("Put"), Trigger::Next(1), delay);
    let delayed = send("kv/put", r#"{"key":"YQ=="}"#).await;
    until(|| controlled.fired(rule) == 1).await;
    until(|| activity.busy() == 0).await;
    controlled.advance(Duration::from_secs(60));
    answer(delayed).await;
    controlled.advance(Duration::from_secs(3_600));
    answer(waiter).await;
    until(|| activity.busy() == 0).await;
    // A client that has gone.
    let delay = Action::Delay {
        time: Duration::from_secs(3_600),
        wall: true,
    };
    let rule = controlled.add(method("Put"), Trigger::Next(1), delay);
    let gone = send("kv/put", r#"{"key":"YQ=="}"#).await;
    until(|| controlled.fired(rule) == 1 && activity.busy() == 1).await;
    drop(gone);
    until(|| activity.busy() == 0).await;
}

#[tokio::test]
async fn requests_on_streams_that_wait_for_the_wall_are_under_way() {
    let controlled = Controlled::start();
    let activity = controlled.inner.open.activity();
    let channel = controlled.connect().await;
    let (requests, receiver) = tokio::sync::mpsc::channel(4);
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut leases = LeaseClient::new(channel.clone());
    let mut answers = leases.lease_keep_alive(stream).await.unwrap().into_inner();
    let keep_alive = || requests.send(LeaseKeepAliveRequest { id: 1 });
    keep_alive().await.unwrap();
    answers.message().await.unwrap();
    let mut watch = WatchClientStream::open(channel).await;
    watch.create("a", 0).await;
    until(|| activity.busy() == 0).await;
    let delay = |name| {
        let wall = Action::Delay {
            time: Duration::from_secs(3_600),
            wall: true,
        };
        controlled.add(method(name), Trigger::Always, wall)
    };
    let rule = delay("LeaseKeepAlive");
    keep_alive().await.unwrap();
    until(|| controlled.fired(rule) == 1 && activity.busy() == 1).await;
    // Events on another stream come and go meanwhile.
    controlled.server.engine().put("a", "").unwrap();
    watch.next().await;
    until(|| activity.busy() == 1).await;
    controlled.inner.rules.clear(Some(rule)).unwrap();
    answers.message().await.unwrap();
    until(|| activity.busy() == 0).await;
    let rule = delay("Watch");
    let create = revstore_proto::etcdserverpb::WatchCreateRequest {
        key: "b".into(),
        ..Default::default()
    };
    watch
        .send(
            revstore_proto::etcdserverpb::watch_request::RequestUnion::CreateRequest(
                create.clone(),
            ),
        )
        .await;
    until(|| controlled.fired(rule) == 1 && activity.busy() == 1).await;
    // An event of the first watch: the stream has nothing more to send, and still counts.
    controlled.server.engine().put("a", "").unwrap();
    assert_eq!(watch.next_keys().await, ["a"]);
    until(|| {
        controlled.inner.open.watches(0)[0].state == revstore_control::open::WatchState::Synced
    })
    .await;
    assert_eq!(activity.busy(), 1);
    drop(watch);
    until(|| activity.busy() == 0).await;
}

#[tokio::test]
async fn a_black_hole_is_no_work_and_ends_with_its_rule_or_its_client() {
    use std::io::ErrorKind::WouldBlock;

    let controlled = Controlled::start();
    let open = &controlled.inner.open;
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("a", 0).await;
    let rule = controlled.add(method("Put"), Trigger::Always, Action::BlackHole);
    let lost = tokio::spawn(put(channel.clone(), "a"));
    until(|| open.activity().busy() == 0 && controlled.fired(rule) == 1).await;
    // What was open on the connection has ended for the server, and not for the client.
    until(|| open.watch_count() == 0).await;
    assert!(!lost.is_finished());
    assert_eq!(open.connections().len(), 1);
    // A client that closes it.
    let mut stream = tokio::net::TcpStream::connect(controlled.server.address().unwrap())
        .await
        .unwrap();
    let request =
        "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"key\":\"YQ==\"}";
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes())
        .await
        .unwrap();
    until(|| controlled.fired(rule) == 2).await;
    until(|| open.activity().busy() == 0).await;
    assert_eq!(open.connections().len(), 2);
    // More data is not the end.
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes())
        .await
        .unwrap();
    let other = controlled.connect().await;
    for _ in 0..10 {
        let mut client = KvClient::new(other.clone());
        client.range(RangeRequest::default()).await.unwrap_err();
    }
    drop(other);
    until(|| open.connections().len() == 2).await;
    assert_eq!(stream.try_read(&mut [0]).unwrap_err().kind(), WouldBlock);
    drop(stream);
    until(|| open.connections().len() == 1).await;
    assert!(!lost.is_finished());
    controlled.inner.rules.clear(Some(rule)).unwrap();
    assert!(lost.await.unwrap().is_err());
    until(|| open.connections().is_empty()).await;
    put(channel, "a").await.unwrap();
}
