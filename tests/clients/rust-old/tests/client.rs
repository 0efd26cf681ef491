//! Tests of etcd-client 0.10, over tonic 0.8 and hyper 0.14, against the server binary $SERVER.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, EventType, GetOptions, LockOptions,
    PutOptions, ResignOptions, Txn, TxnOp, WatchOptions,
};
use tempfile::TempDir;
use tokio::time::timeout;

/// The time limit of a wait, after which the test fails. It is long enough for busy machines.
const LIMIT: Duration = Duration::from_secs(60);
/// In the log line of a server that accepts requests (FL-13).
const READY_LINE: &str = "ready to serve client requests";
/// The maximum number of starts. A start fails if another process takes the port first.
const PORT_ATTEMPTS: u32 = 5;

/// A process that is killed when the value is dropped.
struct Server {
    process: Child,
    port: u16,
    _data: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start() -> Self {
        let mut log = Vec::new();
        for _ in 0..PORT_ATTEMPTS {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            drop(listener);
            let data = tempfile::tempdir().unwrap();
            let mut process = Command::new("../serve")
                .arg(port.to_string())
                .arg(data.path().join("data"))
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let stderr = process.stderr.take().unwrap();
            let mut server = Self {
                process,
                port,
                _data: data,
            };
            let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
            for line in lines.by_ref() {
                let is_ready = line.contains(READY_LINE);
                log.push(line);
                if is_ready {
                    // The pipe must be read, or the server waits for it.
                    std::thread::spawn(move || lines.for_each(drop));
                    return server;
                }
            }
            let _ = server.process.wait();
            if !log
                .iter()
                .any(|line| line.contains("address already in use"))
            {
                break;
            }
        }
        panic!("the server did not start:\n{}", log.join("\n"));
    }

    async fn client(&self) -> Client {
        let endpoint = format!("127.0.0.1:{}", self.port);
        let options = ConnectOptions::new()
            .with_keep_alive(Duration::from_secs(30), Duration::from_secs(5))
            .with_timeout(LIMIT);
        Client::connect([endpoint], Some(options)).await.unwrap()
    }
}

async fn within<T>(future: impl Future<Output = Result<T, Error>>) -> T {
    let ended = timeout(LIMIT, future).await;
    ended.expect("the call ends in time").unwrap()
}

#[tokio::test]
async fn keys_transactions_and_compaction() {
    let server = Server::start();
    let mut client = server.client().await;
    within(client.put("a", "1", None)).await;
    let options = PutOptions::new().with_prev_key();
    let put = within(client.put("a", "2", Some(options))).await;
    assert_eq!(put.prev_key().unwrap().value(), b"1");
    within(client.put("b", "3", None)).await;

    let options = GetOptions::new().with_prefix().with_limit(1);
    let got = within(client.get("", Some(options))).await;
    assert_eq!(
        (got.count(), got.more(), got.kvs()[0].version()),
        (2, true, 2)
    );

    let txn = Txn::new()
        .when([Compare::value("a", CompareOp::Equal, "2")])
        .and_then([TxnOp::put("c", "4", None), TxnOp::get("a", None)])
        .or_else([TxnOp::delete("a", None)]);
    let done = within(client.txn(txn)).await;
    assert!(done.succeeded());
    assert_eq!(done.op_responses().len(), 2);

    within(client.delete("b", None)).await;
    let revision = within(client.get("b", None))
        .await
        .header()
        .unwrap()
        .revision();
    within(client.compact(revision, None)).await;
    let options = GetOptions::new().with_revision(2);
    let Err(Error::GRpcStatus(status)) = client.get("a", Some(options)).await else {
        panic!("the revision is compacted");
    };
    assert_eq!(
        status.message(),
        "etcdserver: mvcc: required revision has been compacted"
    );
}

#[tokio::test]
async fn a_watch_gets_history_progress_and_its_end() {
    let server = Server::start();
    let mut client = server.client().await;
    within(client.put("w/a", "1", None)).await;
    within(client.put("w/a", "2", None)).await;
    let options = WatchOptions::new()
        .with_prefix()
        .with_start_revision(2)
        .with_prev_key();
    let (mut watcher, mut stream) = within(client.watch("w/", Some(options))).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let response = within(stream.message()).await.unwrap();
        for event in response.events() {
            let previous = event.prev_kv().map(|kv| kv.value().to_vec());
            seen.push((event.kv().unwrap().value().to_vec(), previous));
        }
    }
    assert_eq!(
        seen,
        [(b"1".to_vec(), None), (b"2".to_vec(), Some(b"1".to_vec()))]
    );
    within(client.delete("w/a", None)).await;
    let response = within(stream.message()).await.unwrap();
    assert_eq!(response.events()[0].event_type(), EventType::Delete);
    within(watcher.request_progress()).await;
    let response = within(stream.message()).await.unwrap();
    assert!(response.events().is_empty() && !response.canceled());
    within(watcher.cancel()).await;
    let response = within(stream.message()).await.unwrap();
    assert!(response.canceled());
}

#[tokio::test]
async fn leases_locks_and_elections() {
    let server = Server::start();
    let mut client = server.client().await;
    let lease = within(client.lease_grant(60, None)).await.id();
    let options = PutOptions::new().with_lease(lease);
    within(client.put("l", "1", Some(options))).await;
    let (mut keeper, mut answers) = within(client.lease_keep_alive(lease)).await;
    for _ in 0..2 {
        within(keeper.keep_alive()).await;
        assert_eq!(within(answers.message()).await.unwrap().ttl(), 60);
    }
    assert_eq!(within(client.leases()).await.leases().len(), 1);

    let options = LockOptions::new().with_lease(lease);
    let lock = within(client.lock("lock", Some(options))).await;
    let key = lock.key().to_vec();
    within(client.unlock(key)).await;

    let won = within(client.campaign("election", "me", lease)).await;
    let leader = won.leader().unwrap().clone();
    let seen = within(client.leader("election")).await;
    assert_eq!(seen.kv().unwrap().value(), b"me");
    within(client.resign(Some(ResignOptions::new().with_leader(leader)))).await;

    within(client.lease_revoke(lease)).await;
    assert_eq!(within(client.get("l", None)).await.count(), 0);
}

#[tokio::test]
async fn maintenance_members_and_users() {
    let server = Server::start();
    let mut client = server.client().await;
    within(client.put("a", "1", None)).await;
    let status = within(client.status()).await;
    assert!(status.version().starts_with("3.5."));
    assert_eq!(status.leader(), status.header().unwrap().member_id());
    assert_ne!(within(client.hash()).await.hash(), 0);
    within(client.hash_kv(0)).await;
    within(client.defragment()).await;
    let mut snapshot = within(client.snapshot()).await;
    let mut size = 0;
    while let Some(part) = within(snapshot.message()).await {
        size += part.blob().len();
    }
    assert!(size > 4096);
    assert_eq!(within(client.member_list()).await.members().len(), 1);

    within(client.role_add("root")).await;
    within(client.user_add("root", "secret", None)).await;
    within(client.user_grant_role("root", "root")).await;
    within(client.auth_enable()).await;
    let Err(Error::GRpcStatus(status)) = client.get("a", None).await else {
        panic!("the client has no user");
    };
    assert_eq!(status.message(), "etcdserver: user name is empty");
    let options = ConnectOptions::new().with_user("root", "secret");
    let endpoint = format!("127.0.0.1:{}", server.port);
    let mut root = within(Client::connect([endpoint], Some(options))).await;
    assert_eq!(within(root.get("a", None)).await.kvs()[0].value(), b"1");
    within(root.auth_disable()).await;
}
