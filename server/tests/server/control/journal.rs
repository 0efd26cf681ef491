//! The journal.

use revstore_control::{
    fault::{Action, Trigger},
    journal::{Event, Filter, Journal},
    open::WatchCommand,
};
use revstore_engine::KeyRange;
use revstore_proto::etcdserverpb::{WatchCancelRequest, watch_request::RequestUnion};
use tonic::Code;

use super::{Controlled, GatewayWatch, WatchClientStream, failure, method, until};
use crate::support::put;

#[tokio::test]
async fn requests_and_streams_are_recorded() {
    let controlled = Controlled::start();
    let journal = &controlled.inner.journal;
    let mut follower = journal.follow(Filter {
        methods: vec!["Put".to_owned()],
        ..Filter::default()
    });
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("a", 0).await;
    let revision = put(channel.clone(), "a1").await.unwrap();
    assert_eq!(watch.next_keys().await, ["a1"]);
    let lost = failure(Code::Unavailable, "lost");
    let rule = controlled.add(method("Put"), Trigger::Next(1), Action::ErrorAfter(lost));
    put(channel, "a2").await.unwrap_err();
    assert_eq!(watch.next_keys().await, ["a2"]);
    drop(watch);
    until(|| {
        let page = journal.read(&Filter::default(), 0);
        let mut records = page.records.iter();
        records.any(|it| it.event == Event::Ended && it.watch.is_none())
    })
    .await;
    let first = follower.next().await.record;
    assert_eq!(first.keys, [KeyRange::one("a1")]);
    assert_eq!(first.revision, Some(revision));
    assert_eq!(first.outcome.as_ref().unwrap().code, Code::Ok);
    let second = follower.next().await.record;
    assert_eq!(second.keys, [KeyRange::one("a2")]);
    assert_eq!(second.outcome.as_ref().unwrap().text, "lost");
    assert_eq!(second.rule, Some(rule));
    let of_watch = Filter {
        methods: vec!["Watch".to_owned()],
        ..Filter::default()
    };
    let page = journal.read(&of_watch, 0);
    let events: Vec<_> = page.records.iter().map(|it| it.event).collect();
    let expected = [
        Event::Opened,
        Event::Request,
        Event::Progress,
        Event::Progress,
        // That of the watch, and that of the stream.
        Event::Ended,
        Event::Ended,
    ];
    assert_eq!(events, expected);
    assert_eq!(page.records[1].keys, [KeyRange::prefix("a")]);
    assert_eq!(page.records[2].revision, Some(revision));
}

/// Returns the watches that have ended, with their reasons and rules.
fn ends(journal: &Journal) -> Vec<(u64, &'static str, Option<u64>)> {
    let page = journal.read(&Filter::default(), 0);
    let records = page.records.iter();
    let ended = records.filter(|it| it.event == Event::Ended && it.watch.is_some());
    ended
        .map(|it| {
            let reason = it.reason.map_or("", |reason| reason.name());
            (it.watch.unwrap(), reason, it.rule.map(|it| it.0))
        })
        .collect()
}

#[tokio::test]
async fn each_watch_has_a_record_of_its_end_with_the_reason() {
    let controlled = Controlled::start();
    let (journal, open) = (&controlled.inner.journal, &controlled.inner.open);
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("a", 0).await;
    let canceled = watch.create("a", 0).await;
    watch.create("b", 0).await;
    open.command(Some(1), WatchCommand::CancelCompacted)
        .unwrap();
    assert!(watch.next().await.canceled);
    let cancel = WatchCancelRequest { watch_id: canceled };
    watch.send(RequestUnion::CancelRequest(cancel)).await;
    assert!(watch.next().await.canceled);
    let rule = controlled.add(method("Watch"), Trigger::Next(1), Action::CancelCompacted);
    put(channel.clone(), "b").await.unwrap();
    assert!(watch.next().await.canceled);
    let start = put(channel.clone(), "c").await.unwrap();
    put(channel.clone(), "c").await.unwrap();
    let control = controlled.server.control().unwrap();
    watch.create("c", 0).await;
    open.command(Some(4), WatchCommand::Cut).unwrap();
    watch.responses.message().await.unwrap_err();
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("c", start).await;
    assert_eq!(watch.next_keys().await, ["c", "c"]);
    drop(watch);
    until(|| open.watch_count() == 0).await;
    let mut watch = WatchClientStream::open(channel).await;
    watch.create("c", 0).await;
    control.reset(false).unwrap();
    watch.responses.message().await.unwrap_err();
    until(|| open.watch_count() == 0).await;
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel).await;
    watch.create("c", 0).await;
    let journal_of_server = journal.clone();
    drop(controlled.server);
    watch.responses.message().await.unwrap_err();
    until(|| ends(&journal_of_server).len() == 7).await;
    let expected = [
        (1, "compacted", None),
        (2, "canceled", None),
        (3, "compacted", Some(rule.0)),
        (4, "cut", None),
        (5, "client gone", None),
        (6, "store replaced", None),
        (7, "server stopped", None),
    ];
    assert_eq!(ends(&journal_of_server), expected);
}

#[tokio::test]
async fn a_watch_of_the_gateway_ends_with_its_store() {
    let controlled = Controlled::start();
    let _watch = GatewayWatch::open(&controlled).await;
    controlled.server.control().unwrap().reset(false).unwrap();
    until(|| !ends(&controlled.inner.journal).is_empty()).await;
    assert_eq!(
        ends(&controlled.inner.journal),
        [(1, "store replaced", None)]
    );
}
