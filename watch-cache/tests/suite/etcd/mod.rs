//! Tests of sources over a network: progress requests, disconnects, and replaced clusters.

mod access;
mod cluster;
mod fake_etcd;
mod faults;
mod proxy;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use revstore::Server;
use revstore_engine::{KeyRange, Op, Put, Txn};
use revstore_watch_cache::clock::{ManualClock, SystemClock};
use revstore_watch_cache::source::{
    Batch, EtcdOptions, EtcdSource, ListRequest, Source, WatchRequest,
};
use revstore_watch_cache::{ListOptions, ResourceCache, Revision, Scope, WatchCache, WatchEvent};

use self::proxy::Proxy;
use crate::support::{PODS, at, config, describe, from, pod};

fn put(server: &Server, name: &str) -> i64 {
    let put = server
        .engine()
        .put(format!("{PODS}/ns/{name}"), pod("ns/x", "", ""));
    put.unwrap().revision.0
}

fn source_of(url: &str) -> EtcdSource {
    EtcdSource::new(&EtcdOptions::new([url]), Arc::new(SystemClock::new())).unwrap()
}

/// Returns a ready cache over the server of a proxy.
async fn cache_over(proxy: &Proxy) -> (WatchCache, ResourceCache) {
    let clock = Arc::new(SystemClock::new());
    let source = EtcdSource::new(&EtcdOptions::new([&proxy.url]), clock.clone()).unwrap();
    let (cache, feeder) = WatchCache::builder(Arc::new(source)).clock(clock).build();
    let pods = cache.add(config()).unwrap();
    tokio::spawn(feeder.run());
    pods.wait_until_ready().await.unwrap();
    (cache, pods)
}

async fn names(pods: &ResourceCache, options: &ListOptions) -> Vec<String> {
    let list = pods.list(&Scope::All, options).await.unwrap();
    let objects = list.into_objects().unwrap();
    objects.iter().map(|pod| pod.name().to_owned()).collect()
}

#[tokio::test]
async fn wc_107_an_idle_watch_requests_progress_periodically_and_when_a_request_waits() {
    let server = Server::builder().start().unwrap();
    let clock = ManualClock::new();
    let options = EtcdOptions::new([server.endpoint()]);
    let source = EtcdSource::new(&options, Arc::new(clock.clone())).unwrap();
    let request = WatchRequest {
        range: KeyRange::prefix(PODS),
        after: Revision(1),
        previous: false,
    };
    let mut batches = source.watch(request).await.unwrap();
    let mut progress = async |request: &dyn Fn()| -> Revision {
        let made = server.engine().put("elsewhere", "x").unwrap().revision;
        // No batch arrives before progress is requested.
        let next = futures_util::poll!(batches.next());
        assert!(next.is_pending());
        request();
        let Batch { through, changes } = batches.next().await.unwrap().unwrap();
        assert!(changes.is_empty());
        assert_eq!(through, made);
        made
    };
    progress(&|| clock.advance(Duration::from_millis(500))).await;
    progress(&|| source.request_progress()).await;
    let made = put(&server, "a");
    let batch = batches.next().await.unwrap().unwrap();
    assert_eq!((batch.through.0, batch.changes.len()), (made, 1));
}

#[tokio::test]
async fn a_cache_resumes_after_a_disconnect_without_a_second_load() {
    let server = Server::builder().start().unwrap();
    put(&server, "a");
    let proxy = Proxy::open(server.address()).await;
    let (_cache, pods) = cache_over(&proxy).await;
    let mut open = pods
        .watch(&Scope::All, &from(server.engine().current_revision()))
        .await
        .unwrap();
    proxy.move_to(server.address());
    let made = put(&server, "b");
    let event = open.next().await.unwrap();
    assert_eq!(describe(&event), format!("ADDED ns/b@{made}"));
    assert_eq!(pods.metrics().initializations, 1);
}

/// Replaces the server of a cache, and checks that the cache loads the second one.
async fn check_replacement(first: Server, second: Server) {
    let known = put(&first, "a");
    let proxy = Proxy::open(first.address()).await;
    let (cache, pods) = cache_over(&proxy).await;
    let mut open = pods.watch(&Scope::All, &from(known)).await.unwrap();
    put(&second, "z");
    let found = second.engine().current_revision();
    proxy.move_to(second.address());
    drop(first);

    let Some(WatchEvent::Error(error)) = open.next().await else {
        panic!("expected the watch to end with an error");
    };
    assert_eq!(
        (error.code(), error.to_string()),
        (
            410,
            format!("the store was replaced: it was at revision {known} and is at {found}")
        )
    );
    assert!(open.next().await.is_none());
    pods.wait_until_ready().await.unwrap();
    assert_eq!(names(&pods, &at("")).await, ["z"]);
    assert_eq!(names(&pods, &at("0")).await, ["z"]);
    assert_eq!(cache.revision(), found);
    let mut old = pods.watch(&Scope::All, &from(known)).await.unwrap();
    let Some(WatchEvent::Error(error)) = old.next().await else {
        panic!("expected an error for a version of the previous server");
    };
    assert_eq!(error.code(), 410);
    let metrics = pods.metrics();
    assert_eq!((metrics.replacements, metrics.initializations), (1, 2));
}

#[tokio::test]
async fn wc_316_a_server_that_started_empty_is_detected_by_its_revision() {
    let first = Server::builder().start_revision(1000).start().unwrap();
    check_replacement(first, Server::builder().start().unwrap()).await;
}

#[tokio::test]
async fn wc_316_another_cluster_at_a_higher_revision_is_detected_by_its_id() {
    let mut other = revstore::Config::default();
    other.listen_client_urls = vec![revstore::ListenUrl::localhost(0)];
    other.listen_peer_urls = Vec::new();
    other.cluster.token = "another".into();
    let second = Server::builder()
        .config(other)
        .start_revision(2000)
        .start()
        .unwrap();
    check_replacement(Server::builder().start().unwrap(), second).await;
}

#[tokio::test]
async fn pages_and_batches_above_the_default_message_size_of_grpc_are_received() {
    let server = Server::builder().start().unwrap();
    let before = server.engine().current_revision();
    let value = "x".repeat(1 << 20);
    let put = |number| Op::Put(Put::new(format!("{PODS}/ns/p{number}"), value.clone()));
    let txn = Txn::new().and_then((0..6).map(put));
    server.engine().txn(&txn).unwrap();
    let source = source_of(server.endpoint());
    let range = KeyRange::prefix(PODS);
    let request = ListRequest {
        range: range.clone(),
        at: None,
        limit: None,
    };
    let page = source.list(request).await.unwrap();
    assert_eq!(page.items.len(), 6);
    let request = WatchRequest {
        range,
        after: before,
        previous: false,
    };
    let mut batches = source.watch(request).await.unwrap();
    // All changes of one revision are in one batch.
    let batch = batches.next().await.unwrap().unwrap();
    assert_eq!(batch.changes.len(), 6);
}

#[tokio::test]
async fn wc_316_a_replacement_that_concurrent_reads_detect_is_counted_once() {
    let first = Server::builder().start_revision(1000).start().unwrap();
    let second = Server::builder().start().unwrap();
    let proxy = Proxy::open(first.address()).await;
    let source = source_of(&proxy.url);
    assert_eq!(source.current_revision().await.unwrap().0, 1000);
    proxy.move_to(second.address());
    // All reads start with the state of the first server. Reads fail if their connection ends.
    let mut succeeded = 0;
    while succeeded == 0 {
        let reads = (0..8).map(|_| source.current_revision());
        let results = futures_util::future::join_all(reads).await;
        succeeded = results.iter().filter(|result| result.is_ok()).count();
    }
    assert_eq!(source.replacements(), 1, "{succeeded} reads succeeded");
}
