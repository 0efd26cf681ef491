//! Tests of the etcd source with links and servers that fail.

use std::future::Future;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use revstore::Server;
use revstore_engine::KeyRange;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{WatchCreateRequest, WatchResponse};
use revstore_tests::poll;
use revstore_watch_cache::clock::{ManualClock, SystemClock};
use revstore_watch_cache::source::{
    Batch, BatchStream, ConditionalWrite, EtcdOptions, EtcdSource, ListPage, ListRequest, Source,
    SourceError, WatchRequest, WriteAction, WriteOutcome,
};
use revstore_watch_cache::{
    EventType, JsonKind, ListOptions, ResourceConfig, Revision, Scope, WatchCache, WatchEvent,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::etcd::fake_etcd::{FakeEtcd, FakeWatch, events};
use crate::etcd::proxy::Proxy;
use crate::support::{PODS, at, config, from, pod};

const LIMIT: Duration = Duration::from_secs(10);

fn source<E: Into<String>>(urls: impl IntoIterator<Item = E>, clock: &ManualClock) -> EtcdSource {
    EtcdSource::new(&EtcdOptions::new(urls), Arc::new(clock.clone())).unwrap()
}

fn list() -> ListRequest {
    ListRequest {
        range: KeyRange::prefix(PODS),
        at: None,
        limit: None,
    }
}

fn watch() -> WatchRequest {
    WatchRequest {
        range: KeyRange::prefix(PODS),
        after: Revision(1),
        previous: false,
    }
}

fn create() -> ConditionalWrite {
    ConditionalWrite {
        key: format!("{PODS}/ns/a").into(),
        expected: None,
        action: WriteAction::Put {
            value: "{}".into(),
            time_to_live: None,
        },
    }
}

/// Waits for a future, for at most the limit of tests.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(poll::LIMIT, future).await.unwrap()
}

async fn next(batches: &mut BatchStream) -> Result<Batch, SourceError> {
    within(batches.next()).await.unwrap()
}

fn text<T>(result: Result<T, SourceError>) -> String {
    match result {
        Err(SourceError::Unavailable(text)) => text,
        Err(error) => panic!("unexpected error {error}"),
        Ok(_) => panic!("unexpected success"),
    }
}

/// Polls a future, then advances the clock, and waits for the future.
async fn after<T>(clock: &ManualClock, time: Duration, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    assert!(futures_util::poll!(&mut future).is_pending());
    clock.advance(time);
    within(future).await
}

/// Returns the URL of a port on which no server listens.
fn dead_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Opens a watch of a fake server.
async fn open(fake: &mut FakeEtcd, source: &EtcdSource) -> (FakeWatch, BatchStream) {
    let opened = source.watch(watch());
    let created = async {
        let watch = fake.next_watch().await;
        watch.send_created();
        watch
    };
    let (watch, batches) = within(futures_util::future::join(created, opened)).await;
    (watch, batches.unwrap())
}

#[tokio::test]
async fn wc_160_requests_over_a_link_that_forwards_nothing_fail_at_their_time_limit() {
    let server = Server::builder().start().unwrap();
    let proxy = Proxy::open(server.address()).await;
    let clock = ManualClock::new();
    let source = source([&proxy.url], &clock);
    within(source.list(list())).await.unwrap();
    proxy.freeze();
    let limit = "the request did not complete within 10s";
    assert!(text(after(&clock, LIMIT, source.list(list())).await).contains(limit));
    assert!(text(after(&clock, LIMIT, source.current_revision()).await).contains(limit));
    assert!(text(after(&clock, LIMIT, source.write(create())).await).contains(limit));
    assert!(text(after(&clock, LIMIT, source.watch(watch())).await).contains(limit));
    // The next request does not wait for the connection that is still open.
    proxy.thaw();
    within(source.list(list())).await.unwrap();
}

#[tokio::test]
async fn wc_160_a_watch_over_a_link_that_forwards_nothing_fails() {
    let server = Server::builder().start().unwrap();
    let proxy = Proxy::open(server.address()).await;
    let clock = ManualClock::new();
    let source = source([&proxy.url], &clock);
    let mut batches = within(source.watch(watch())).await.unwrap();
    proxy.freeze();
    let mut failed = std::pin::pin!(batches.next());
    assert!(futures_util::poll!(&mut failed).is_pending());
    clock.advance(Duration::from_millis(500));
    // The progress request is sent.
    assert!(futures_util::poll!(&mut failed).is_pending());
    let failed = after(&clock, LIMIT, failed).await.unwrap();
    assert!(text(failed).contains("the watch did not answer a progress request within 10s"));
}

#[tokio::test]
async fn wc_160_a_connection_that_does_not_answer_pings_ends_its_watch() {
    let server = Server::builder().start().unwrap();
    let proxy = Proxy::open(server.address()).await;
    let second = Duration::from_secs(1);
    let options = EtcdOptions::new([&proxy.url])
        .keep_alive(second, second)
        .request_timeout(Duration::from_secs(3600));
    // The time of the manual clock stands still, so no other limit ends the watch.
    let source = EtcdSource::new(&options, Arc::new(ManualClock::new())).unwrap();
    let mut batches = within(source.watch(watch())).await.unwrap();
    proxy.freeze();
    let error = text(next(&mut batches).await);
    assert!(error.contains(&proxy.url), "{error}");
}

#[tokio::test]
async fn wc_163_calls_use_another_endpoint_when_one_fails() {
    let server = Server::builder().start().unwrap();
    let clock = ManualClock::new();
    let urls = || [dead_url(), dead_url(), server.endpoint().to_owned()];
    within(source(urls(), &clock).list(list())).await.unwrap();
    // A write that could not be sent is repeated.
    let written = within(source(urls(), &clock).write(create())).await;
    assert!(matches!(written, Ok(WriteOutcome::Done(_))), "{written:?}");
    let mut batches = within(source(urls(), &clock).watch(watch())).await.unwrap();
    assert_eq!(next(&mut batches).await.unwrap().changes.len(), 1);
    let error = text(within(source([dead_url(), dead_url()], &clock).list(list())).await);
    assert!(error.contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn wc_163_a_write_that_may_have_been_executed_is_not_repeated() {
    // The first endpoint ends every connection after it has read from it.
    let first = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", first.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = first.accept().await {
            // The preface and the settings of HTTP/2, then a frame with nothing, so that the client
            // sends its request.
            let _ = stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
            let mut received = Vec::new();
            while !received.windows(4).any(|part| part == b"ns/a") {
                let _ = stream.read_buf(&mut received).await;
            }
        }
    });
    let server = Server::builder().start().unwrap();
    let clock = ManualClock::new();
    let source = source([&url, server.endpoint()], &clock);
    text(within(source.write(create())).await);
    assert_eq!(server.engine().current_revision(), Revision(1));
    // The next call uses the other endpoint.
    let written = within(source.write(create())).await;
    assert!(matches!(written, Ok(WriteOutcome::Done(_))), "{written:?}");
}

#[tokio::test]
async fn wc_161_watches_and_reads_require_a_leader() {
    let mut fake = FakeEtcd::start("3.5.13", 1).await;
    let source = source([&fake.url], &ManualClock::new());
    let (watch, _batches) = open(&mut fake, &source).await;
    assert_eq!(watch.metadata.get("hasleader").unwrap(), "true");
    within(source.list(list())).await.unwrap();
    assert_eq!(fake.metadata_of_range().get("hasleader").unwrap(), "true");
}

#[tokio::test]
async fn an_endpoint_that_answers_with_html_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let page =
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>";
            let _ = stream.write_all(page.as_bytes()).await;
        }
    });
    let clock = ManualClock::new();
    let error = text(within(source([&url], &clock).list(list())).await);
    assert!(error.starts_with(&url), "{error}");
    let error = text(within(source([&url], &clock).watch(watch())).await);
    assert!(error.starts_with(&url), "{error}");
    let server = Server::builder().start().unwrap();
    let page: ListPage = within(source([&url, server.endpoint()], &clock).list(list()))
        .await
        .unwrap();
    assert_eq!(page.count, 0);
}

#[tokio::test]
async fn wc_160_a_watch_that_the_server_does_not_create_fails_at_its_time_limit() {
    let mut fake = FakeEtcd::start("3.5.13", 1).await;
    let clock = ManualClock::new();
    let source = source([&fake.url], &clock);
    let mut opened = std::pin::pin!(source.watch(watch()));
    assert!(futures_util::poll!(&mut opened).is_pending());
    let watch = tokio::select! {
        watch = fake.next_watch() => watch,
        _ = &mut opened => panic!("the watch is not created"),
    };
    // Progress is not the expected response.
    watch.send_progress(9);
    let error = text(after(&clock, LIMIT, opened).await);
    assert!(error.contains("did not complete within 10s"), "{error}");
}

#[tokio::test]
async fn progress_before_the_creation_of_a_watch_is_ignored() {
    let mut fake = FakeEtcd::start("3.5.13", 1).await;
    let source = source([&fake.url], &ManualClock::new());
    let early = async {
        let watch = fake.next_watch().await;
        watch.send_progress(9);
        watch.send_created();
        watch.send_event(5);
        watch
    };
    let (_watch, batches) = within(futures_util::future::join(early, source.watch(watch()))).await;
    let batch = next(&mut batches.unwrap()).await.unwrap();
    assert_eq!((batch.through.0, batch.changes.len()), (5, 1));
}

#[tokio::test]
async fn the_fragments_of_a_response_are_one_batch() {
    let mut fake = FakeEtcd::start("3.5.13", 1).await;
    let source = source([&fake.url], &ManualClock::new());
    let (mut watch, mut batches) = open(&mut fake, &source).await;
    let created = watch.created().await;
    assert!(created.fragment);
    watch.send(WatchResponse {
        fragment: true,
        ..events(&[("/registry/pods/ns/a", 5), ("/registry/pods/ns/b", 6)])
    });
    watch.send(WatchResponse {
        fragment: true,
        ..events(&[("/registry/pods/ns/c", 6)])
    });
    watch.send_progress(9);
    watch.send(events(&[("/registry/pods/ns/d", 6)]));
    let batch = next(&mut batches).await.unwrap();
    assert_eq!((batch.through.0, batch.changes.len()), (6, 4));
}

#[tokio::test]
async fn a_watch_that_is_cancelled_when_it_is_created_reports_the_reason() {
    let mut fake = FakeEtcd::start("3.5.13", 1).await;
    let source = source([&fake.url], &ManualClock::new());
    let mut cancelled = async |response: WatchResponse| {
        let cancel = async {
            fake.next_watch().await.send(WatchResponse {
                created: true,
                canceled: true,
                ..response
            });
        };
        let opened = futures_util::future::join(cancel, source.watch(watch()));
        within(opened).await.1.err().unwrap()
    };
    let compacted = WatchResponse {
        compact_revision: 5,
        ..WatchResponse::default()
    };
    assert_eq!(cancelled(compacted).await, SourceError::Compacted);
    let denied = WatchResponse {
        cancel_reason: "etcdserver: permission denied".into(),
        ..WatchResponse::default()
    };
    let error = cancelled(denied).await.to_string();
    assert!(error.contains("permission denied"), "{error}");
}

#[tokio::test]
async fn invalid_events_end_the_watch() {
    let mut fake = FakeEtcd::start("3.5.13", 1).await;
    let source = source([&fake.url], &ManualClock::new());
    let (watch, mut batches) = open(&mut fake, &source).await;
    let mut unknown = events(&[("/registry/pods/ns/a", 5)]);
    unknown.events[0].r#type = 7;
    watch.send(unknown);
    assert!(text(next(&mut batches).await).contains("invalid watch event"));
    let (watch, mut batches) = open(&mut fake, &source).await;
    let mut empty = events(&[("/registry/pods/ns/a", 5)]);
    empty.events[0].kv = None;
    watch.send(empty);
    assert!(text(next(&mut batches).await).contains("invalid watch event"));
}

#[tokio::test]
async fn wc_164_an_event_that_follows_progress_beyond_it_leads_to_a_reload() {
    let mut fake = FakeEtcd::start("3.5.13", 1).await;
    let source = source([&fake.url], &ManualClock::new());
    let (watch, mut batches) = open(&mut fake, &source).await;
    watch.send_progress(9);
    assert_eq!(next(&mut batches).await.unwrap().through, Revision(9));
    watch.send_event(8);
    let error = next(&mut batches).await.unwrap_err();
    assert_eq!(error, SourceError::Compacted);
}

#[tokio::test]
async fn wc_162_progress_is_requested_only_from_versions_that_report_it_reliably() {
    for (version, is_reliable) in [("3.5.13", true), ("3.5.12", false), ("", false)] {
        let mut fake = FakeEtcd::start(version, 1).await;
        let clock = ManualClock::new();
        let source = source([&fake.url], &clock);
        let (mut watch, mut batches) = open(&mut fake, &source).await;
        assert_eq!(source.requests_progress(), is_reliable, "{version}");
        watch.requests.message().await.unwrap();
        assert!(futures_util::poll!(batches.next()).is_pending());
        source.request_progress();
        assert!(futures_util::poll!(batches.next()).is_pending());
        if is_reliable {
            let request = within(watch.requests.message()).await.unwrap().unwrap();
            let union = request.request_union;
            assert!(matches!(union, Some(RequestUnion::ProgressRequest(_))));
        }
        // The answer to a request that was not made is not used.
        watch.send_progress(9);
        watch.send_event(10);
        let through = next(&mut batches).await.unwrap().through.0;
        assert_eq!(through, if is_reliable { 9 } else { 10 }, "{version}");
        if !is_reliable {
            // A silent watch is not an error.
            let mut silent = std::pin::pin!(batches.next());
            assert!(futures_util::poll!(&mut silent).is_pending());
            clock.advance(2 * LIMIT);
            assert!(futures_util::poll!(&mut silent).is_pending());
        }
    }
}

#[tokio::test]
async fn wc_162_an_endpoint_with_an_older_version_is_noticed_after_a_failure() {
    let (mut first, mut second) = (
        FakeEtcd::start("3.5.13", 1).await,
        FakeEtcd::start("3.4.30", 1).await,
    );
    let source = source([&first.url, &second.url], &ManualClock::new());
    let (watch, mut batches) = open(&mut first, &source).await;
    assert!(source.requests_progress());
    watch.fail();
    text(next(&mut batches).await);
    let _open = open(&mut second, &source).await;
    assert!(!source.requests_progress());
}

#[tokio::test]
async fn wc_132_the_source_answers_consistent_lists_if_progress_is_not_reliable() {
    let mut fake = FakeEtcd::start("3.5.12", 7).await;
    let clock = ManualClock::new();
    let source = Arc::new(source([&fake.url], &clock));
    let (cache, feeder) = WatchCache::builder(source).clock(Arc::new(clock)).build();
    let pods = cache.add(config()).unwrap();
    tokio::spawn(feeder.run());
    let watch = within(fake.next_watch()).await;
    watch.send_created();
    within(pods.wait_until_ready()).await.unwrap();
    let latest = within(pods.list(&Scope::All, &ListOptions::default())).await;
    assert_eq!(latest.unwrap().revision, Revision(7));
    let metrics = pods.metrics();
    assert_eq!(
        (metrics.lists_from_source, metrics.consistent_reads),
        (1, 0)
    );
    within(pods.list(&Scope::All, &at("0"))).await.unwrap();
    assert_eq!(pods.metrics().lists_from_source, 1);
}

fn created_range(request: WatchCreateRequest) -> (String, String) {
    let text = |key: bytes::Bytes| String::from_utf8(key.to_vec()).unwrap();
    (text(request.key), text(request.range_end))
}

#[tokio::test]
async fn wc_165_only_the_range_of_the_resources_is_watched() {
    for version in ["3.5.13", "3.5.12"] {
        let mut fake = FakeEtcd::start(version, 7).await;
        let clock = ManualClock::new();
        let source = Arc::new(source([&fake.url], &clock));
        let (cache, feeder) = WatchCache::builder(source).clock(Arc::new(clock)).build();
        let pods = cache.add(config()).unwrap();
        tokio::spawn(feeder.run());
        let mut first = within(fake.next_watch()).await;
        let created = within(first.created()).await;
        assert_eq!(created.start_revision, 8);
        assert_eq!(
            created_range(created),
            ("/registry/pods/".into(), "/registry/pods0".into())
        );
        first.send_created();
        within(pods.wait_until_ready()).await.unwrap();
        first.send_event(8);
        within(pods.wait_until_fresh(Revision(8))).await.unwrap();
        fake.set_revision(9);
        let kind = JsonKind::new("v1", "Node");
        let nodes = ResourceConfig::cluster(kind, "nodes", "/registry/minions");
        let nodes = cache.add(nodes).unwrap();
        let mut second = within(fake.next_watch()).await;
        let created = within(second.created()).await;
        // The watch starts after the watermark.
        assert_eq!(created.start_revision, 9);
        assert_eq!(
            created_range(created),
            ("/registry/minions/".into(), "/registry/pods0".into())
        );
        second.send_created();
        if version == "3.5.13" {
            within(second.requests.message()).await.unwrap();
            second.send_progress(9);
        }
        within(nodes.wait_until_ready()).await.unwrap();
        // A resource in the range does not need a new watch, and is ready without an event.
        let kind = JsonKind::new("coordination.k8s.io/v1", "Lease");
        let leases = ResourceConfig::namespaced(kind, "leases", "/registry/ns");
        let leases = cache.add(leases).unwrap();
        if version == "3.5.13" {
            second.send_progress(10);
        }
        within(leases.wait_until_ready()).await.unwrap();
        assert_eq!(pods.metrics().initializations, 1);
    }
}

#[tokio::test]
async fn wc_165_no_event_is_lost_while_resources_are_added() {
    let server = Server::builder().start().unwrap();
    let clock = Arc::new(SystemClock::new());
    let options = EtcdOptions::new([server.endpoint()]);
    let source = EtcdSource::new(&options, clock.clone()).unwrap();
    let (cache, feeder) = WatchCache::builder(Arc::new(source)).clock(clock).build();
    let pods = cache.add(config()).unwrap();
    tokio::spawn(feeder.run());
    within(pods.wait_until_ready()).await.unwrap();
    let mut open = pods.watch(&Scope::All, &from(1)).await.unwrap();
    let engine = server.engine();
    let writer = tokio::task::spawn_blocking(move || {
        for number in 0..2000 {
            let pod = pod(&format!("ns/p{number}"), "", "");
            engine.put(format!("{PODS}/ns/p{number}"), pod).unwrap();
            engine
                .put(format!("/registry/r{}/a", number % 8), "{\"metadata\":{}}")
                .unwrap();
        }
    });
    let mut others = Vec::new();
    for number in 0..8 {
        let prefix = format!("/registry/r{number}");
        let kind = JsonKind::new("v1", "R");
        let added = cache.add(ResourceConfig::cluster(
            kind,
            &format!("r{number}"),
            &prefix,
        ));
        let added = added.unwrap();
        within(added.wait_until_ready()).await.unwrap();
        others.push(added);
    }
    within(writer).await.unwrap();
    let mut newest = 0;
    for number in 0..2000 {
        let event = within(open.next()).await.unwrap();
        let WatchEvent::Object { event, object, .. } = event else {
            panic!("expected an event of an object, got {event:?}");
        };
        assert_eq!(event, EventType::Added);
        assert_eq!(object.name(), format!("p{number}"));
        assert!(object.revision().0 > newest);
        newest = object.revision().0;
    }
    for other in others {
        let report = within(other.check_consistency()).await.unwrap();
        assert!(report.is_consistent());
        let list = within(other.list(&Scope::All, &ListOptions::default())).await;
        assert_eq!(list.unwrap().into_objects().unwrap().len(), 1);
    }
    assert_eq!(pods.metrics().initializations, 1);
}

#[test]
fn the_system_clock_measures_time_limits() {
    // Outside of a runtime: a source connects when it is used.
    let options = EtcdOptions::new(["http://127.0.0.1:1"]);
    EtcdSource::new(&options, Arc::new(SystemClock::new())).unwrap();
}
