//! Tests of the etcd source against a cluster of three real etcds: failures of members, a compaction
//! that the cache misses, and a restore from a snapshot. The events of a watcher are compared with the
//! history that etcd itself reports afterwards.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, EventType, GetOptions, KeyValue, WatchOptions};
use futures_util::StreamExt as _;
use revstore_engine::KeyRange;
use revstore_tests::etcdctl::Etcdctl;
use revstore_tests::poll;
use revstore_tests::process::{Process, free_port};
use revstore_tests::server::etcd::{DATA, Etcd};
use revstore_tests::server::{ADVERTISED_PEER_URL, Endpoint as _, NAME, Options};
use revstore_tests::tools::{Tool, available};
use revstore_watch_cache::clock::SystemClock;
use revstore_watch_cache::source::{EtcdOptions, EtcdSource, Source as _, WatchRequest};
use revstore_watch_cache::{
    CacheWatcher, ListOptions, ResourceCache, Revision, Scope, WatchCache, WatchEvent,
};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::etcd::proxy::Proxy;
use crate::support::{PODS, at, config, describe, from, pod};

/// The number of members.
const MEMBERS: usize = 3;
/// The maximum number of attempts to start a cluster. An attempt fails if another process takes a
/// port first.
const START_ATTEMPTS: usize = 5;
/// The time limit of requests of the source.
const LIMIT: Duration = Duration::from_secs(2);

/// A cluster of real etcds, which ends when it is dropped.
struct Cluster {
    members: Vec<Member>,
    _data: TempDir,
}

struct Member {
    process: Process,
    url: String,
}

impl Member {
    /// Sends a signal to the process.
    fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let sent = kill.args([name, &self.process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Cluster {
    /// Starts a cluster and waits until it has a leader. Returns `None` if there is no etcd.
    fn start(test: &str) -> Option<Self> {
        if !available(test, &[Tool::Etcd]) {
            return None;
        }
        for _ in 0..START_ATTEMPTS {
            let mut cluster = Self::spawn();
            if cluster.is_ready() {
                return Some(cluster);
            }
        }
        panic!("the cluster does not start");
    }

    fn spawn() -> Self {
        let data = TempDir::with_prefix("revstore-cluster-").unwrap();
        let url = || format!("http://127.0.0.1:{}", free_port().unwrap());
        let urls: [(String, String); MEMBERS] = std::array::from_fn(|_| (url(), url()));
        let peers: Vec<String> = urls
            .iter()
            .enumerate()
            .map(|(number, (_, peer))| format!("m{number}={peer}"))
            .collect();
        let spawn = |(number, (client, peer)): (usize, &(String, String))| {
            let name = format!("m{number}");
            let mut command = Command::new(Tool::Etcd.locate().unwrap());
            // Each variable ETCD_* would be a flag to etcd.
            command
                .env_clear()
                .arg("--data-dir")
                .arg(data.path().join(&name))
                .args(["--name", &name])
                .args(["--listen-client-urls", client])
                .args(["--advertise-client-urls", client])
                .args(["--listen-peer-urls", peer])
                .args(["--initial-advertise-peer-urls", peer])
                .args(["--initial-cluster", &peers.join(",")])
                .args(["--heartbeat-interval=50", "--election-timeout=500"])
                .arg("--unsafe-no-fsync=true")
                // A member can be removed although the cluster has just started.
                .arg("--strict-reconfig-check=false");
            let process = Process::spawn(command).unwrap();
            Member {
                process,
                url: client.clone(),
            }
        };
        let members = urls.iter().enumerate().map(spawn).collect();
        Self {
            members,
            _data: data,
        }
    }

    /// Waits until all members are healthy, which needs a leader. Returns `false` if a member ends.
    fn is_ready(&mut self) -> bool {
        self.members.iter_mut().all(|member| {
            let address = address(&member.url);
            let healthy = |body: &str| body.contains("\"health\":\"true\"");
            let ready = member.process.wait_for_http(address, "/health", healthy);
            ready.is_ok()
        })
    }

    fn urls(&self) -> Vec<String> {
        self.members
            .iter()
            .map(|member| member.url.clone())
            .collect()
    }

    /// Returns the position of the leader.
    async fn leader(&self) -> usize {
        for position in (0..MEMBERS).cycle() {
            let mut client = connect(&self.members[position].url).await;
            let status = within(client.status()).await.unwrap();
            if status.leader() == status.header().unwrap().member_id() {
                return position;
            }
        }
        unreachable!("the range repeats")
    }
}

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// Returns a stock client with a time limit for its requests.
async fn connect(url: &str) -> Client {
    let options = ConnectOptions::new().with_timeout(LIMIT);
    Client::connect([url], Some(options)).await.unwrap()
}

/// Waits for a future, for at most the limit of tests.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(poll::LIMIT, future).await.unwrap()
}

/// A client that writes and deletes pods until it is stopped.
struct Writer {
    stop: Arc<AtomicBool>,
    /// The number of acknowledged writes.
    written: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Writer {
    async fn start(urls: &[String]) -> Self {
        let mut clients = Vec::new();
        for url in urls {
            clients.push(connect(url).await);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (count, written) = watch::channel(0);
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut number = 0_usize;
            let mut current = 0;
            while !stopped.load(Ordering::Relaxed) {
                number += 1;
                let name = format!("p{}", number % 7);
                let key = format!("{PODS}/ns/{name}");
                let client = &mut clients[current];
                let result = if number.is_multiple_of(5) {
                    client.delete(key, None).await.map(drop)
                } else {
                    let value = pod(&format!("ns/{name}"), &number.to_string(), "");
                    client.put(key, value, None).await.map(drop)
                };
                match result {
                    Ok(()) => count.send_modify(|count| *count += 1),
                    // The write may have been executed; the history of etcd decides.
                    Err(_) => current = (current + 1) % clients.len(),
                }
            }
        });
        let writer = Self {
            stop,
            written,
            task,
        };
        writer.wait_for_more(20).await;
        writer
    }

    /// Waits until further writes were acknowledged.
    async fn wait_for_more(&self, more: usize) {
        let mut written = self.written.clone();
        let enough = *written.borrow() + more;
        let waited = within(written.wait_for(|written| *written >= enough));
        waited.await.unwrap();
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        within(self.task).await.unwrap();
    }
}

/// Returns the events of pods after revision 1, as a stock client of `url` reports them.
async fn history(url: &str) -> Vec<String> {
    let mut client = connect(url).await;
    let current = within(client.get("k", None)).await.unwrap();
    let current = current.header().unwrap().revision();
    let options = WatchOptions::new().with_prefix().with_start_revision(2);
    let mut stream = client
        .watch(format!("{PODS}/"), Some(options))
        .await
        .unwrap();
    // A write after which the history is complete.
    let last = within(client.put(format!("{PODS}/ns/last"), pod("ns/last", "", ""), None));
    let last = last.await.unwrap().header().unwrap().revision();
    assert!(last > current);
    let mut events = Vec::new();
    loop {
        let response = within(stream.message()).await.unwrap().unwrap();
        for event in response.events() {
            let kv = event.kv().unwrap();
            let kind = match event.event_type() {
                EventType::Delete => "DELETED",
                EventType::Put if kv.create_revision() == kv.mod_revision() => "ADDED",
                EventType::Put => "MODIFIED",
            };
            let name = kv.key_str().unwrap().strip_prefix(PODS).unwrap();
            let revision = kv.mod_revision();
            events.push(format!("{kind} {}@{revision}", &name[1..]));
            if revision == last {
                return events;
            }
        }
    }
}

struct Cached {
    pods: ResourceCache,
    watcher: CacheWatcher,
    _cache: WatchCache,
}

/// Returns a cache over these endpoints, with a watcher of all events since revision 1.
async fn cache_over(urls: &[String]) -> Cached {
    let clock = Arc::new(SystemClock::new());
    let options = EtcdOptions::new(urls).request_timeout(LIMIT);
    let source = EtcdSource::new(&options, clock.clone()).unwrap();
    let builder = WatchCache::builder(Arc::new(source)).clock(clock);
    let (cache, feeder) = builder.build();
    let pods = cache.add(config()).unwrap();
    tokio::spawn(feeder.run());
    within(pods.wait_until_ready()).await.unwrap();
    let watcher = pods.watch(&Scope::All, &from(1)).await.unwrap();
    Cached {
        pods,
        watcher,
        _cache: cache,
    }
}

impl Cached {
    /// Checks that the watcher delivers exactly the history, without a second load.
    async fn check_history(&mut self, url: &str) {
        let expected = history(url).await;
        for (position, expected) in expected.iter().enumerate() {
            let event = within(self.watcher.next()).await.unwrap();
            assert_eq!(describe(&event), *expected, "event {position}");
        }
        assert_eq!(self.pods.metrics().initializations, 1);
        self.check_objects(url).await;
    }

    /// Checks that a consistent list of the cache has the objects of etcd.
    async fn check_objects(&self, url: &str) {
        let mut client = connect(url).await;
        let options = GetOptions::new().with_prefix();
        let range = client.get(format!("{PODS}/"), Some(options)).await.unwrap();
        let expected: Vec<_> = range.kvs().iter().map(KeyValue::mod_revision).collect();
        let list = within(self.pods.list(&Scope::All, &ListOptions::default())).await;
        let objects = list.unwrap().into_objects().unwrap();
        let found: Vec<_> = objects.iter().map(|pod| pod.revision().0).collect();
        assert_eq!(found, expected);
    }

    /// Lists while the cluster may not answer; the list must end.
    async fn list(&self) -> bool {
        let options = ListOptions::default();
        within(self.pods.list(&Scope::All, &options)).await.is_ok()
    }

    /// Lists until a list succeeds. At most one list fails at each endpoint.
    async fn list_again(&self) {
        for _ in 0..=MEMBERS {
            if self.list().await {
                return;
            }
        }
        panic!("lists fail although the cluster answers");
    }
}

#[tokio::test]
async fn wc_163_no_event_is_lost_when_the_leader_ends() {
    let Some(mut cluster) = Cluster::start("wc_163: the leader ends") else {
        return;
    };
    let leader = cluster.leader().await;
    // The cache begins with the leader.
    let mut urls = cluster.urls();
    urls.rotate_left(leader);
    let mut cached = cache_over(&urls).await;
    let writer = Writer::start(&urls).await;
    drop(cluster.members.remove(leader));
    cached.list().await;
    writer.wait_for_more(20).await;
    cached.list_again().await;
    writer.stop().await;
    cached.check_history(&cluster.members[0].url).await;
}

#[tokio::test]
async fn wc_163_no_event_is_lost_when_a_member_is_removed() {
    let Some(cluster) = Cluster::start("wc_163: a member is removed") else {
        return;
    };
    let urls = cluster.urls();
    let mut cached = cache_over(&urls).await;
    let writer = Writer::start(&urls).await;
    let mut client = connect(&urls[0]).await;
    let id = within(client.status()).await.unwrap();
    let id = id.header().unwrap().member_id();
    let mut client = connect(&urls[1]).await;
    within(client.member_remove(id)).await.unwrap();
    cached.list().await;
    writer.wait_for_more(20).await;
    cached.list_again().await;
    writer.stop().await;
    cached.check_history(&urls[1]).await;
}

#[tokio::test]
async fn wc_160_no_event_is_lost_when_a_member_pauses() {
    let Some(cluster) = Cluster::start("wc_160: a member pauses") else {
        return;
    };
    let mut cached = cache_over(&cluster.urls()).await;
    let others = &cluster.urls()[1..];
    let writer = Writer::start(others).await;
    let paused = &cluster.members[0];
    paused.signal("-STOP");
    // This list ends at its time limit; then another member answers.
    cached.list().await;
    writer.wait_for_more(20).await;
    cached.list_again().await;
    paused.signal("-CONT");
    writer.wait_for_more(20).await;
    writer.stop().await;
    cached.check_history(&others[0]).await;
}

#[tokio::test]
async fn wc_161_a_member_without_a_leader_ends_its_watches() {
    let Some(cluster) = Cluster::start("wc_161: no leader") else {
        return;
    };
    // Only the missing leader ends a request.
    let options = EtcdOptions::new([&cluster.members[0].url]).request_timeout(poll::LIMIT);
    let source = EtcdSource::new(&options, Arc::new(SystemClock::new())).unwrap();
    let request = WatchRequest {
        range: KeyRange::prefix(PODS),
        after: Revision(1),
        previous: false,
    };
    let mut batches = within(source.watch(request)).await.unwrap();
    let others = &cluster.members[1..];
    for member in others {
        member.signal("-STOP");
    }
    let error = loop {
        match within(batches.next()).await.unwrap() {
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("no leader"), "{error}");
    let error = within(source.current_revision()).await.unwrap_err();
    assert!(error.to_string().contains("no leader"), "{error}");
    for member in others {
        member.signal("-CONT");
    }
}

#[tokio::test]
async fn a_compaction_that_the_cache_misses_leads_to_a_reload() {
    let Some(cluster) = Cluster::start("a compaction") else {
        return;
    };
    let url = &cluster.members[0].url;
    let proxy = Proxy::open(Some(address(url))).await;
    let mut cached = cache_over(std::slice::from_ref(&proxy.url)).await;
    proxy.freeze();
    let writer = Writer::start(std::slice::from_ref(url)).await;
    writer.stop().await;
    let mut client = connect(url).await;
    let current = client.get("k", None).await.unwrap();
    let current = current.header().unwrap().revision();
    client.compact(current, None).await.unwrap();
    proxy.thaw();
    // WC-115: the watcher ends without an error.
    assert!(within(cached.watcher.next()).await.is_none());
    within(cached.pods.wait_until_ready()).await.unwrap();
    assert_eq!(cached.pods.metrics().initializations, 2);
    cached.check_objects(url).await;
}

#[tokio::test]
async fn wc_316_a_restore_from_a_snapshot_is_detected() {
    let test = "wc_316_a_restore_from_a_snapshot_is_detected";
    if !available(test, &[Tool::Etcd, Tool::Etcdctl]) {
        return;
    }
    let first = Etcd::start(&Options::default()).unwrap();
    let url = |etcd: &Etcd| format!("http://{}", etcd.address());
    let mut client = connect(&url(&first)).await;
    let key = |name: &str| format!("{PODS}/ns/{name}");
    client
        .put(key("a"), pod("ns/a", "", ""), None)
        .await
        .unwrap();
    let data = TempDir::with_prefix("revstore-tests-etcd-").unwrap();
    let file = data.path().join("snapshot.db");
    let run = |arguments: &[&str]| {
        let output = Etcdctl::new(first.address()).unwrap();
        let output = output.run(arguments, "").unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
    };
    run(&["snapshot", "save", file.to_str().unwrap()]);
    client
        .put(key("b"), pod("ns/b", "", ""), None)
        .await
        .unwrap();
    let proxy = Proxy::open(Some(first.address())).await;
    let cached = cache_over(std::slice::from_ref(&proxy.url)).await;
    // Only the previous cluster has this revision.
    let newest = cached.pods.list(&Scope::All, &at("0")).await.unwrap();
    let mut watcher = cached
        .pods
        .watch(&Scope::All, &from(newest.revision))
        .await
        .unwrap();
    let directory = data.path().join(DATA);
    run(&[
        "snapshot",
        "restore",
        file.to_str().unwrap(),
        "--data-dir",
        directory.to_str().unwrap(),
        "--name",
        NAME,
        "--initial-cluster",
        &format!("{NAME}={ADVERTISED_PEER_URL}"),
        "--initial-advertise-peer-urls",
        ADVERTISED_PEER_URL,
    ]);
    let second = Etcd::start_on(data).unwrap();
    proxy.move_to(Some(second.address()));
    drop(first);
    let Some(WatchEvent::Error(error)) = within(watcher.next()).await else {
        panic!("expected an error");
    };
    assert_eq!(error.code(), 410);
    within(cached.pods.wait_until_ready()).await.unwrap();
    cached.check_objects(&url(&second)).await;
    assert_eq!(cached.pods.metrics().replacements, 1);
}
