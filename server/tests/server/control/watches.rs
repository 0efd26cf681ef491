//! Holds, cuts, cancellations and bookmarks of watches.

use std::time::Duration;

use revstore_control::{
    fault::{Action, KeySelector, Selector, Trigger},
    open::{WatchCommand, WatchState},
};
use revstore_proto::etcdserverpb::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, watch_request::RequestUnion,
};
use tonic::Code;

use super::{Controlled, GatewayWatch, WatchClientStream, failure, method, until};
use crate::support::put;

fn state(controlled: &Controlled, index: usize) -> (WatchState, i64) {
    let current = controlled.server.engine().current_revision().0;
    let watches = controlled.inner.open.watches(current);
    (watches[index].state, watches[index].lag)
}

#[tokio::test]
async fn a_held_watch_gets_its_events_when_it_is_released() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    let (held, other) = (watch.create("a", 0).await, watch.create("b", 0).await);
    assert_ne!(held, other);
    let open = &controlled.inner.open;
    let id = open.watches(0)[0].id;
    assert_eq!(open.command(Some(id), WatchCommand::Hold), Ok(1));
    assert!(open.command(Some(99), WatchCommand::Hold).is_err());
    for key in ["a1", "b1", "a2", "b2"] {
        put(channel.clone(), key).await.unwrap();
    }
    assert_eq!(watch.next_keys().await, ["b1"]);
    assert_eq!(watch.next_keys().await, ["b2"]);
    // Progress of the stream would be a lie before the events of the held watch.
    let progress = RequestUnion::ProgressRequest(WatchProgressRequest {});
    watch.send(progress).await;
    put(channel.clone(), "b3").await.unwrap();
    assert_eq!(watch.next_keys().await, ["b3"]);
    assert_eq!(state(&controlled, 0), (WatchState::Held, 5));
    until(|| state(&controlled, 1) == (WatchState::Synced, 0)).await;
    open.command(Some(id), WatchCommand::Release).unwrap();
    assert_eq!(watch.next_keys().await, ["a1", "a2"]);
    let progress = watch.next().await;
    assert_eq!((progress.watch_id, progress.events.len()), (-1, 0));
    assert!(progress.header.unwrap().revision >= 5);
    until(|| state(&controlled, 0) == (WatchState::Synced, 0)).await;
}

#[tokio::test]
async fn a_rule_holds_watches_until_it_is_removed() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("a", 0).await;
    let selector = Selector {
        keys: Some(KeySelector::Prefix("a".into())),
        ..Selector::default()
    };
    let rule = controlled.add(selector, Trigger::Always, Action::Hold);
    put(channel.clone(), "a1").await.unwrap();
    put(channel.clone(), "a2").await.unwrap();
    until(|| controlled.fired(rule) == 1).await;
    assert_eq!(state(&controlled, 0).0, WatchState::Held);
    controlled.inner.rules.clear(None).unwrap();
    assert_eq!(watch.next_keys().await, ["a1", "a2"]);
    put(channel, "a3").await.unwrap();
    assert_eq!(watch.next_keys().await, ["a3"]);
}

#[tokio::test]
async fn a_command_releases_what_a_rule_holds() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("a", 0).await;
    let open = &controlled.inner.open;
    let release = || open.command(None, WatchCommand::Release).unwrap();
    controlled.add(Selector::default(), Trigger::Next(1), Action::Hold);
    put(channel.clone(), "a1").await.unwrap();
    until(|| state(&controlled, 0).0 == WatchState::Held).await;
    put(channel.clone(), "a2").await.unwrap();
    release();
    assert_eq!(watch.next_keys().await, ["a1", "a2"]);
    until(|| state(&controlled, 0) == (WatchState::Synced, 0)).await;
    put(channel.clone(), "a3").await.unwrap();
    assert_eq!(watch.next_keys().await, ["a3"]);
    // A rule that fires for later events holds these.
    controlled.add(Selector::default(), Trigger::Always, Action::Hold);
    for (first, second) in [("a4", "a5"), ("a6", "a7")] {
        put(channel.clone(), first).await.unwrap();
        until(|| state(&controlled, 0).0 == WatchState::Held).await;
        put(channel.clone(), second).await.unwrap();
        release();
        assert_eq!(watch.next_keys().await, [first, second]);
    }
}

#[tokio::test]
async fn a_watch_is_canceled_as_compacted_and_its_id_can_be_used_again() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    let (first, second) = (watch.create("a", 0).await, watch.create("a", 0).await);
    let open = &controlled.inner.open;
    let id = open.watches(0)[0].id;
    let revision = put(channel.clone(), "a1").await.unwrap();
    assert_eq!(watch.next_keys().await, ["a1"]);
    assert_eq!(watch.next_keys().await, ["a1"]);
    open.command(Some(id), WatchCommand::CancelCompacted)
        .unwrap();
    let canceled = watch.next().await;
    assert!(
        canceled.canceled && canceled.watch_id == first,
        "{canceled:?}"
    );
    assert_eq!(canceled.compact_revision, revision);
    let header = canceled.header.unwrap();
    assert_eq!(header.revision, 0);
    assert_ne!(header.cluster_id, 0);
    put(channel.clone(), "a2").await.unwrap();
    let response = watch.next().await;
    assert_eq!((response.watch_id, response.events.len()), (second, 1));
    assert_eq!(open.watch_count(), 1);
    // A cancellation by the client is answered for the other one only.
    for id in [first, second] {
        let cancel = WatchCancelRequest { watch_id: id };
        watch.send(RequestUnion::CancelRequest(cancel)).await;
    }
    let canceled = watch.next().await;
    assert!(canceled.canceled && canceled.watch_id == second);
    assert_eq!(canceled.compact_revision, 0);
    let create = revstore_proto::etcdserverpb::WatchCreateRequest {
        key: "a3".into(),
        watch_id: first,
        ..Default::default()
    };
    watch.send(RequestUnion::CreateRequest(create)).await;
    assert!(watch.next().await.created);
    put(channel, "a3").await.unwrap();
    assert_eq!(watch.next_keys().await, ["a3"]);
}

#[tokio::test]
async fn a_cut_ends_the_stream_and_a_failed_answer_too() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("a", 0).await;
    let open = &controlled.inner.open;
    assert_eq!(open.command(None, WatchCommand::Cut), Ok(1));
    let error = watch.responses.message().await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::Unavailable, "etcdserver: server stopped")
    );
    until(|| open.watch_count() == 0).await;
    // By a rule, at the next event.
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("a", 0).await;
    controlled.add(method("Watch"), Trigger::Every(2), Action::Cut);
    put(channel.clone(), "a1").await.unwrap();
    assert_eq!(watch.next_keys().await, ["a1"]);
    put(channel.clone(), "a2").await.unwrap();
    assert!(watch.responses.message().await.is_err());
    // The creation is executed, and its answer lost.
    controlled.inner.rules.clear(None).unwrap();
    let lost = Action::ErrorAfter(failure(Code::Unavailable, "lost"));
    controlled.add(method("etcdserverpb.Watch/Watch"), Trigger::Next(1), lost);
    let mut watch = WatchClientStream::open(channel).await;
    let create = revstore_proto::etcdserverpb::WatchCreateRequest {
        key: "a".into(),
        ..Default::default()
    };
    watch.send(RequestUnion::CreateRequest(create)).await;
    assert_eq!(
        watch.responses.message().await.unwrap_err().message(),
        "lost"
    );
}

#[tokio::test]
async fn a_bookmark_tells_one_watch_that_it_got_everything() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    let id = watch.create("a", 0).await;
    let revision = put(channel.clone(), "b").await.unwrap();
    let open = &controlled.inner.open;
    open.command(None, WatchCommand::Bookmark).unwrap();
    let bookmark = watch.next().await;
    assert_eq!((bookmark.watch_id, bookmark.events.len()), (id, 0));
    assert_eq!(bookmark.header.unwrap().revision, revision);
    // Held, it waits behind the events before it.
    open.command(None, WatchCommand::Hold).unwrap();
    put(channel, "a1").await.unwrap();
    open.command(None, WatchCommand::Bookmark).unwrap();
    open.command(None, WatchCommand::Release).unwrap();
    assert_eq!(watch.next_keys().await, ["a1"]);
    let bookmark = watch.next().await;
    assert_eq!(bookmark.header.unwrap().revision, revision + 1);
}

#[tokio::test]
async fn a_held_watch_loses_nothing_and_does_not_stop_the_others_of_its_stream() {
    const EVENTS: usize = 40;
    const BYTES: usize = 512 * 1024;
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    let held = watch.create("a", 0).await;
    watch.create("b", 0).await;
    let open = &controlled.inner.open;
    let id = open.watches(0)[0].id;
    open.command(Some(id), WatchCommand::Hold).unwrap();
    let engine = controlled.server.engine();
    for number in 0..EVENTS {
        engine
            .put(format!("a{number:03}"), vec![b'x'; BYTES])
            .unwrap();
    }
    put(channel.clone(), "b").await.unwrap();
    assert_eq!(watch.next_keys().await, ["b"]);
    assert_eq!(state(&controlled, 0), (WatchState::Held, 41));
    open.command(Some(id), WatchCommand::Release).unwrap();
    let mut keys = Vec::new();
    while keys.len() < EVENTS {
        let response = watch.next().await;
        assert_eq!(response.watch_id, held);
        let events = response.events.into_iter();
        keys.extend(events.map(|it| String::from_utf8(it.kv.unwrap().key.to_vec()).unwrap()));
    }
    let expected: Vec<_> = (0..EVENTS).map(|number| format!("a{number:03}")).collect();
    assert_eq!(keys, expected);
}

#[tokio::test]
async fn a_command_to_a_watch_does_not_wait_for_a_delayed_creation() {
    let controlled = Controlled::start();
    let mut watch = WatchClientStream::open(controlled.connect().await).await;
    let id = watch.create("a", 0).await;
    let delay = Action::Delay {
        time: Duration::from_secs(60),
        wall: false,
    };
    let rule = controlled.add(method("Watch"), Trigger::Next(1), delay);
    watch
        .send(RequestUnion::CreateRequest(WatchCreateRequest {
            key: "b".into(),
            ..WatchCreateRequest::default()
        }))
        .await;
    until(|| controlled.fired(rule) == 1).await;
    let open = &controlled.inner.open;
    open.command(None, WatchCommand::Bookmark).unwrap();
    let progress = watch.next().await;
    assert_eq!((progress.watch_id, progress.events.len()), (id, 0));
    open.command(None, WatchCommand::CancelCompacted).unwrap();
    let canceled = watch.next().await;
    assert!(
        canceled.canceled && canceled.compact_revision > 0,
        "{canceled:?}"
    );
    controlled.inner.rules.clear(Some(rule)).unwrap();
    assert!(watch.next().await.created);
}

#[tokio::test]
async fn a_held_watch_whose_events_are_compacted_ends_when_it_is_released() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    let (held, idle) = (watch.create("a", 0).await, watch.create("b", 0).await);
    let open = &controlled.inner.open;
    let id = open.watches(0)[0].id;
    open.command(Some(id), WatchCommand::Hold).unwrap();
    for key in ["a1", "a2", "a3", "b0"] {
        put(channel.clone(), key).await.unwrap();
    }
    // By then the events of the other watch have been left out.
    assert_eq!(watch.next_keys().await, ["b0"]);
    let engine = controlled.server.engine();
    let current = engine.current_revision();
    engine.compact(current).unwrap().run();
    open.command(None, WatchCommand::Release).unwrap();
    let end = watch.next().await;
    assert!(end.canceled && end.watch_id == held, "{end:?}");
    assert_eq!(end.compact_revision, current.0);
    until(|| open.watch_count() == 1).await;
    // The other one has missed nothing.
    put(channel, "b1").await.unwrap();
    let response = watch.next().await;
    assert_eq!((response.watch_id, response.events.len()), (idle, 1));
}

#[tokio::test]
async fn an_advance_passes_each_progress_notification_at_its_time() {
    let count = async |steps: &[u64]| {
        let controlled = Controlled::start();
        let channel = controlled.connect().await;
        let mut watch = WatchClientStream::open(channel.clone()).await;
        let create = revstore_proto::etcdserverpb::WatchCreateRequest {
            key: "a".into(),
            progress_notify: true,
            ..Default::default()
        };
        watch.send(RequestUnion::CreateRequest(create)).await;
        assert!(watch.next().await.created);
        for minutes in steps {
            controlled.advance(std::time::Duration::from_secs(60 * minutes));
        }
        put(channel, "a").await.unwrap();
        let mut notifications = 0;
        while watch.next().await.events.is_empty() {
            notifications += 1;
        }
        notifications
    };
    // One in each 10 minutes.
    let one_by_one = count(&[10, 10, 10, 5]).await;
    assert!(one_by_one >= 2, "{one_by_one}");
    assert_eq!(count(&[35]).await, one_by_one);
}

/// The messages that commands send to the services were read only while the client could still send requests.
#[tokio::test]
async fn commands_reach_watches_whose_client_has_ended_its_requests() {
    let controlled = Controlled::start();
    let open = &controlled.inner.open;
    let mut gateway = GatewayWatch::open(&controlled).await;
    let mut watch = WatchClientStream::open(controlled.connect().await).await;
    let id = watch.create("a", 0).await;
    let WatchClientStream {
        mut responses,
        requests,
    } = watch;
    drop(requests);
    let engine = controlled.server.engine();
    assert_eq!(open.command(None, WatchCommand::Bookmark), Ok(2));
    let progress = responses.message().await.unwrap().unwrap();
    assert_eq!((progress.watch_id, progress.events.len()), (id, 0));
    assert_eq!(gateway.next().await["header"]["revision"], "1");
    assert_eq!(engine.stats().watches, 2);
    open.command(None, WatchCommand::CancelCompacted).unwrap();
    assert!(responses.message().await.unwrap().unwrap().canceled);
    assert_eq!(gateway.next().await["canceled"], true);
    until(|| engine.stats().watches == 0).await;
}
