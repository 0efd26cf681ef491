//! What counts as under way, for automatic time.

use std::time::Duration;

use revstore_control::{
    clock::Activity as _,
    fault::{Action, Trigger},
};
use revstore_proto::{
    etcdserverpb::LeaseKeepAliveRequest,
    etcdserverpb::lease_client::LeaseClient,
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
