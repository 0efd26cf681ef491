//! What only a source at the end of a network does: it asks for progress, breaks off, and may be
//! another one when it is back.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::Client;
use futures_util::StreamExt as _;
use revstore::Server;
use revstore_engine::{KeyRange, Op, Put, Txn};
use revstore_watch_cache::clock::{ManualClock, SystemClock};
use revstore_watch_cache::source::{Batch, EtcdSource, ListRequest, Source, WatchRequest};
use revstore_watch_cache::{ListOptions, ResourceCache, Revision, Scope, WatchCache, WatchEvent};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::{PODS, at, config, describe, from, pod};

/// One address before servers that come and go.
struct Gate {
    url: String,
    behind: Arc<Mutex<Option<SocketAddr>>>,
    /// Changed when the server behind is another one: connections to the one before end.
    moved: watch::Sender<()>,
}

impl Gate {
    async fn open(behind: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let behind = Arc::new(Mutex::new(behind.address()));
        let moved = watch::Sender::new(());
        let (target, ends) = (behind.clone(), moved.clone());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut end = ends.subscribe();
                let target = *target.lock().unwrap();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(target?).await.ok()?;
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = end.changed() => {}
                    }
                    Some(())
                });
            }
        });
        Self { url, behind, moved }
    }

    fn move_to(&self, server: &Server) {
        *self.behind.lock().unwrap() = server.address();
        self.moved.send_replace(());
    }
}

fn put(server: &Server, name: &str) -> i64 {
    let put = server
        .engine()
        .put(format!("{PODS}/ns/{name}"), pod("ns/x", "", ""));
    put.unwrap().revision.0
}

/// A cache over whatever is behind a gate.
async fn cache_over(gate: &Gate) -> (WatchCache, ResourceCache) {
    let client = Client::connect([&gate.url], None).await.unwrap();
    let clock = Arc::new(SystemClock::new());
    let source = EtcdSource::new(client, clock.clone());
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
async fn wc_107_an_idle_watch_asks_for_progress_by_its_clock_and_at_once_when_somebody_waits() {
    let server = Server::builder().start().unwrap();
    let client = Client::connect([server.endpoint()], None).await.unwrap();
    let clock = ManualClock::new();
    let source = EtcdSource::new(client, Arc::new(clock.clone()));
    let request = WatchRequest {
        range: KeyRange::prefix(PODS),
        after: Revision(1),
        previous: false,
    };
    let mut batches = source.watch(request).await.unwrap();
    let mut progress = async |ask: &dyn Fn()| -> Revision {
        let made = server.engine().put("elsewhere", "x").unwrap().revision;
        // Nothing comes before it is asked for.
        let silence = futures_util::poll!(batches.next());
        assert!(silence.is_pending());
        ask();
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
async fn a_cache_outlives_a_broken_connection_without_a_second_load() {
    let server = Server::builder().start().unwrap();
    put(&server, "a");
    let gate = Gate::open(&server).await;
    let (_cache, pods) = cache_over(&gate).await;
    let mut open = pods
        .watch(&Scope::All, &from(server.engine().current_revision()))
        .await
        .unwrap();
    gate.move_to(&server);
    let made = put(&server, "b");
    let event = open.next().await.unwrap();
    assert_eq!(describe(&event), format!("ADDED ns/b@{made}"));
    assert_eq!(pods.metrics().initializations, 1);
}

/// Moves a cache from one server to another, and looks what becomes of it.
async fn check_replacement(first: Server, second: Server) {
    let known = put(&first, "a");
    let gate = Gate::open(&first).await;
    let (cache, pods) = cache_over(&gate).await;
    let mut open = pods.watch(&Scope::All, &from(known)).await.unwrap();
    put(&second, "z");
    let found = second.engine().current_revision();
    gate.move_to(&second);
    drop(first);

    let Some(WatchEvent::Error(error)) = open.next().await else {
        panic!("the watch must hear of it");
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
        panic!("an old version must be refused");
    };
    assert_eq!(error.code(), 410);
    let metrics = pods.metrics();
    assert_eq!((metrics.replacements, metrics.initializations), (1, 2));
}

#[tokio::test]
async fn wc_316_a_server_that_begins_anew_is_noticed_by_its_revision() {
    let first = Server::builder().start_revision(1000).start().unwrap();
    check_replacement(first, Server::builder().start().unwrap()).await;
}

#[tokio::test]
async fn wc_316_another_cluster_is_noticed_by_its_id_though_it_is_ahead() {
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
async fn what_is_larger_than_a_client_of_grpc_takes_by_default_is_listed_and_watched() {
    let server = Server::builder().start().unwrap();
    let before = server.engine().current_revision();
    let value = "x".repeat(1 << 20);
    let put = |number| Op::Put(Put::new(format!("{PODS}/ns/p{number}"), value.clone()));
    let txn = Txn::new().and_then((0..6).map(put));
    server.engine().txn(&txn).unwrap();
    let client = Client::connect([server.endpoint()], None).await.unwrap();
    let source = EtcdSource::new(client, Arc::new(SystemClock::new()));
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
    // One revision comes as a whole.
    let batch = batches.next().await.unwrap().unwrap();
    assert_eq!(batch.changes.len(), 6);
}

#[tokio::test]
async fn wc_316_a_replacement_that_many_notice_at_once_is_one() {
    let first = Server::builder().start_revision(1000).start().unwrap();
    let second = Server::builder().start().unwrap();
    let gate = Gate::open(&first).await;
    let client = Client::connect([&gate.url], None).await.unwrap();
    let source = EtcdSource::new(client, Arc::new(SystemClock::new()));
    assert_eq!(source.current_revision().await.unwrap().0, 1000);
    gate.move_to(&second);
    // All of them know the first one; those whose connection ended meanwhile have heard nothing.
    let mut heard = 0;
    while heard == 0 {
        let questions = (0..8).map(|_| source.current_revision());
        let answers = futures_util::future::join_all(questions).await;
        heard = answers.iter().filter(|answer| answer.is_ok()).count();
    }
    assert_eq!(source.replacements(), 1, "{heard} were answered");
}
