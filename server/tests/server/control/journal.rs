//! The journal.

use revstore_control::{
    fault::{Action, Trigger},
    journal::{Event, Filter},
};
use revstore_engine::KeyRange;
use tonic::Code;

use super::{Controlled, WatchClientStream, failure, method, until};
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
        page.records.iter().any(|it| it.event == Event::Ended)
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
        Event::Ended,
    ];
    assert_eq!(events, expected);
    assert_eq!(page.records[1].keys, [KeyRange::prefix("a")]);
    assert_eq!(page.records[2].revision, Some(revision));
}
