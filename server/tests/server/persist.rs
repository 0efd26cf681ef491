//! Tests of `--persist`: restarts, a killed process, a disk that fails.

use std::{
    collections::BTreeSet,
    io::ErrorKind,
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use revstore::{Config, ListenUrl, PersistOptions, Server, engine::Revision};
use revstore_proto::etcdserverpb::{
    AlarmRequest, AlarmType, AuthEnableRequest, AuthRoleAddRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest, AuthUserListRequest, AuthenticateRequest, CompactionRequest,
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseTimeToLiveRequest, MemberAddRequest,
    MemberListRequest, MemberRemoveRequest, MemberUpdateRequest, PutRequest, RangeRequest,
    RequestOp, TxnRequest, alarm_request::AlarmAction, auth_client::AuthClient,
    cluster_client::ClusterClient, kv_client::KvClient, lease_client::LeaseClient,
    maintenance_client::MaintenanceClient, request_op::Request,
};
use tonic::{Code, Status, transport::Channel};

use crate::support::{ANY_PORT, ServerProcess, block_on, connect, display, get, put, watch};

pub(crate) fn arguments(dir: &Path, more: &[&str]) -> Vec<String> {
    let own = [
        format!("--data-dir={}", display(dir)),
        "--persist".to_owned(),
    ];
    let fixed = ANY_PORT.iter().chain(more).map(ToString::to_string);
    fixed.chain(own).collect()
}

pub(crate) fn start(dir: &Path, more: &[&str]) -> (ServerProcess, SocketAddr) {
    let mut process = ServerProcess::start(arguments(dir, more));
    let address = process.address_of("client");
    process.wait_for_line("ready to serve client requests");
    (process, address)
}

pub(crate) async fn range(
    channel: &Channel,
    key: &str,
    revision: i64,
) -> Result<Vec<(String, i64)>, Status> {
    let range = RangeRequest {
        key: key.to_owned().into(),
        range_end: "\0".into(),
        revision,
        ..RangeRequest::default()
    };
    let response = KvClient::new(channel.clone()).range(range).await?;
    let kvs = response.into_inner().kvs.into_iter();
    let pair = |kv: revstore_proto::mvccpb::KeyValue| {
        (
            String::from_utf8_lossy(&kv.key).into_owned(),
            kv.mod_revision,
        )
    };
    Ok(kvs.map(pair).collect())
}

#[test]
fn fl_17_a_restart_brings_back_revisions_history_leases_users_members_and_ids() {
    let dir = tempfile::tempdir().unwrap();
    for mode in ["always", "interval", "never"] {
        let dir = dir.path().join(mode);
        let fsync = format!("--persist-fsync={mode}");
        let (process, address) = start(&dir, &[&fsync]);
        let ids = block_on(write_everything(address));
        process.signal("TERM");
        let (_, log) = process.wait();
        assert!(
            log.iter().any(|line| line.contains("closed etcd server")),
            "{log:?}"
        );
        // Other flags do not change the ids.
        let (_process, address) = start(
            &dir,
            &[&fsync, "--initial-cluster-token=other", "--name=renamed"],
        );
        block_on(check_everything(address, ids));
    }
}

async fn write_everything(address: SocketAddr) -> (u64, u64) {
    let channel = connect(address).await;
    let grant = LeaseGrantRequest { ttl: 500, id: 7 };
    LeaseClient::new(channel.clone())
        .lease_grant(grant)
        .await
        .unwrap();
    for key in ["a", "b", "c"] {
        put(channel.clone(), key).await.unwrap();
    }
    let attached = PutRequest {
        key: "leased".into(),
        lease: 7,
        ..PutRequest::default()
    };
    let mut kv = KvClient::new(channel.clone());
    kv.put(attached).await.unwrap();
    let compact = CompactionRequest {
        revision: 3,
        physical: true,
    };
    kv.compact(compact).await.unwrap();
    let alarm = AlarmRequest {
        action: AlarmAction::Activate.into(),
        member_id: 5,
        alarm: AlarmType::Nospace.into(),
    };
    MaintenanceClient::new(channel.clone())
        .alarm(alarm)
        .await
        .unwrap();
    let mut cluster = ClusterClient::new(channel.clone());
    let list = cluster.member_list(MemberListRequest::default());
    let header = list.await.unwrap().into_inner().header.unwrap();
    for url in ["http://removed:1", "http://a:1"] {
        let learner = MemberAddRequest {
            peer_ur_ls: vec![url.to_owned()],
            is_learner: true,
        };
        let added = cluster.member_add(learner).await.unwrap().into_inner();
        if url == "http://removed:1" {
            let id = added.member.unwrap().id;
            let remove = MemberRemoveRequest { id };
            cluster.member_remove(remove).await.unwrap();
        }
    }
    let update = MemberUpdateRequest {
        id: header.member_id,
        peer_ur_ls: vec!["http://changed:1".to_owned()],
    };
    cluster.member_update(update).await.unwrap();
    let mut auth = AuthClient::new(channel);
    let user = AuthUserAddRequest {
        name: "root".to_owned(),
        password: "secret".to_owned(),
        ..AuthUserAddRequest::default()
    };
    auth.user_add(user).await.unwrap();
    let role = AuthUserGrantRoleRequest {
        user: "root".to_owned(),
        role: "root".to_owned(),
    };
    auth.role_add(AuthRoleAddRequest {
        name: "root".to_owned(),
    })
    .await
    .unwrap();
    auth.user_grant_role(role).await.unwrap();
    auth.auth_enable(AuthEnableRequest::default())
        .await
        .unwrap();
    (header.cluster_id, header.member_id)
}

async fn check_everything(address: SocketAddr, ids: (u64, u64)) {
    let channel = connect(address).await;
    let anonymous = range(&channel, "\0", 0).await.unwrap_err();
    assert_eq!(anonymous.message(), "etcdserver: user name is empty");
    let mut auth = AuthClient::new(channel.clone());
    let login = AuthenticateRequest {
        name: "root".to_owned(),
        password: "secret".to_owned(),
    };
    let response = auth.authenticate(login).await.unwrap().into_inner();
    let header = response.header.unwrap();
    assert_eq!((header.cluster_id, header.member_id), ids);
    assert_eq!(header.revision, 5);
    let authorized = |mut request: tonic::Request<()>| {
        request
            .metadata_mut()
            .insert("token", response.token.parse().unwrap());
        Ok::<_, Status>(request)
    };
    let mut auth = AuthClient::with_interceptor(channel.clone(), authorized);
    let users = auth.user_list(AuthUserListRequest::default());
    assert_eq!(users.await.unwrap().into_inner().users, ["root"]);
    let mut cluster = ClusterClient::with_interceptor(channel.clone(), authorized);
    let list = cluster.member_list(MemberListRequest::default());
    let members = list.await.unwrap().into_inner().members;
    let (own, learner): (Vec<_>, Vec<_>) = members.into_iter().partition(|it| it.id == ids.1);
    // The peer URLs of a member are those of its cluster. It publishes its name and the others again.
    assert_eq!(own[0].peer_ur_ls, ["http://changed:1"]);
    assert_eq!(own[0].name, "renamed");
    assert_eq!(learner.len(), 1);
    assert_eq!(learner[0].peer_ur_ls, ["http://a:1"]);
    assert!(learner[0].is_learner && learner[0].name.is_empty());
    let mut kv = KvClient::with_interceptor(channel.clone(), authorized);
    let all = |revision| RangeRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        revision,
        ..RangeRequest::default()
    };
    assert_eq!(kv.range(all(4)).await.unwrap().into_inner().count, 3);
    assert_eq!(kv.range(all(0)).await.unwrap().into_inner().count, 4);
    let compacted = kv.range(all(2)).await.unwrap_err();
    assert_eq!(
        compacted.message(),
        "etcdserver: mvcc: required revision has been compacted"
    );
    let put = PutRequest {
        key: "more".into(),
        ..PutRequest::default()
    };
    let full = kv.put(put).await.unwrap_err();
    assert_eq!(full.message(), "etcdserver: mvcc: database space exceeded");
    let status = LeaseTimeToLiveRequest { id: 7, keys: true };
    let mut leases = LeaseClient::with_interceptor(channel, authorized);
    let status = leases
        .lease_time_to_live(status)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (status.granted_ttl, status.keys),
        (500, vec!["leased".into()])
    );
}

/// The number of acknowledged transactions after which the process is killed.
const ACKNOWLEDGED: usize = 200;

/// Every transaction that was acknowledged is there after `kill -9`, whole, and no half of another one.
#[test]
fn fl_17_a_killed_server_has_all_acknowledged_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (process, address) = start(dir.path(), &[]);
    let acknowledged = AtomicUsize::new(0);
    let keys: BTreeSet<String> = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let acknowledged = &acknowledged;
                scope.spawn(move || block_on(write_until_killed(address, writer, acknowledged)))
            })
            .collect();
        while acknowledged.load(Ordering::Relaxed) < ACKNOWLEDGED {
            thread::yield_now();
        }
        process.signal("KILL");
        writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect()
    });
    process.wait();
    assert!(keys.len() >= ACKNOWLEDGED);
    let (_process, address) = start(dir.path(), &[]);
    let found = block_on(async { range(&connect(address).await, "\0", 0).await.unwrap() });
    let found: BTreeSet<_> = found.into_iter().collect();
    for key in &keys {
        assert!(
            found.iter().any(|(it, _)| *it == format!("{key}/x")),
            "{key} is lost"
        );
    }
    let halves = |half: &str| -> BTreeSet<(String, i64)> {
        let keys = found.iter();
        let keys = keys.filter_map(|(key, at)| Some((key.strip_suffix(half)?.to_owned(), *at)));
        keys.collect()
    };
    assert_eq!(halves("/x"), halves("/y"), "a half transaction");
}

async fn write_until_killed(
    address: SocketAddr,
    writer: usize,
    acknowledged: &AtomicUsize,
) -> Vec<String> {
    let mut kv = KvClient::new(connect(address).await);
    let mut keys = Vec::new();
    for number in 0.. {
        let key = format!("{writer}/{number}");
        let put = |half: &str| RequestOp {
            request: Some(Request::RequestPut(PutRequest {
                key: format!("{key}/{half}").into(),
                ..PutRequest::default()
            })),
        };
        let txn = TxnRequest {
            success: vec![put("x"), put("y")],
            ..TxnRequest::default()
        };
        if kv.txn(txn).await.is_err() {
            break;
        }
        acknowledged.fetch_add(1, Ordering::Relaxed);
        keys.push(key);
    }
    keys
}

/// Starts an embedded server with a journal.
fn embedded(dir: &Path) -> Server {
    let mut config = Config::default();
    config.listen_client_urls = vec![ListenUrl::localhost(0)];
    config.listen_peer_urls = Vec::new();
    config.data_dir = Some(dir.to_owned());
    config.persist = Some(PersistOptions::default());
    Server::builder().config(config).start().unwrap()
}

/// A client that has seen a revision may continue after it with the server of a restart.
#[test]
fn fl_17_a_watch_shows_only_what_is_synced() {
    const WRITERS: usize = 4;
    const WRITES: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let server = embedded(dir.path());
    let journal = server.journal().unwrap();
    block_on(async {
        let channel = connect(server.address().unwrap()).await;
        let mut watch = watch(channel.clone(), "a").await;
        let mut leases = LeaseClient::new(channel.clone());
        let grant = LeaseGrantRequest { ttl: 500, id: 7 };
        leases.lease_grant(grant).await.unwrap();
        let keep = LeaseKeepAliveRequest { id: 7 };
        let keep_alive = tokio_stream::iter(std::iter::repeat_n(keep, WRITES));
        let mut kept = leases
            .lease_keep_alive(keep_alive)
            .await
            .unwrap()
            .into_inner();
        let synced = journal.clone();
        let lease = tokio::spawn(async move {
            while let Some(kept) = kept.message().await.unwrap() {
                let revision = kept.header.unwrap().revision;
                assert!(synced.is_synced(Revision(revision)), "revision {revision}");
            }
        });
        let writers = (0..WRITERS).map(|_| {
            let channel = channel.clone();
            tokio::spawn(async move {
                for _ in 0..WRITES {
                    put(channel.clone(), "a").await.unwrap();
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        let last = 1 + i64::try_from(WRITERS * WRITES).unwrap();
        let mut seen = 0;
        while seen < last {
            let response = watch.responses.message().await.unwrap().unwrap();
            seen = response.header.unwrap().revision;
            assert!(journal.is_synced(Revision(seen)), "revision {seen}");
        }
        for writer in writers {
            writer.await.unwrap();
        }
        lease.await.unwrap();
    });
}

#[test]
fn fl_17_writes_fail_and_reads_go_on_while_the_disk_fails() {
    let dir = tempfile::tempdir().unwrap();
    let server = embedded(dir.path());
    let address = server.address().unwrap();
    let journal = server.journal().unwrap();
    let readyz = |expected: &str| {
        let page = get(address, "/readyz?verbose").body;
        assert!(page.contains(expected), "{page}");
    };
    block_on(async {
        let channel = connect(address).await;
        assert_eq!(put(channel.clone(), "a").await.unwrap(), 2);
        readyz("[+]persist ok");
        for (kind, code) in [
            (ErrorKind::StorageFull, Code::ResourceExhausted),
            (ErrorKind::Other, Code::Unavailable),
        ] {
            journal.fail_for_test(Some(kind));
            // The first is executed, and cannot be stored; the others are refused.
            for _ in 0..3 {
                let error = put(channel.clone(), "b").await.unwrap_err();
                assert_eq!(error.code(), code, "{error}");
                assert!(error.message().contains("cannot persist"));
            }
            let refused = refused_writes(&channel).await;
            assert_eq!(refused, [code; 5]);
            assert!(range(&channel, "\0", 0).await.is_ok());
            let read = TxnRequest {
                success: vec![RequestOp {
                    request: Some(Request::RequestRange(RangeRequest::default())),
                }],
                ..TxnRequest::default()
            };
            let read = KvClient::new(channel.clone()).txn(read).await;
            assert_ne!(read.map_or_else(|error| error.code(), |_| Code::Ok), code);
            readyz("[-]persist failed: cannot persist:");
            assert_eq!(get(address, "/readyz").status, 503);
            assert_eq!(get(address, "/readyz/persist").status, 503);
            assert!(
                get(address, "/metrics")
                    .body
                    .contains("\nrevstore_persist_healthy 0")
            );
            journal.fail_for_test(None);
            while !journal.is_healthy() {
                // The attempt that is due ends this; it takes a second.
                let _ = journal.sync().await;
                tokio::task::yield_now().await;
            }
            put(channel.clone(), "c").await.unwrap();
            assert_eq!(get(address, "/readyz").status, 200);
        }
        assert!(
            get(address, "/metrics")
                .body
                .contains("\nrevstore_persist_healthy 1")
        );
    });
    let current = server.engine().current_revision();
    server.stop();
    let server = embedded(dir.path());
    assert_eq!(server.engine().current_revision(), current);
    drop(server);
    // Also after a drop, which waits for nothing else.
    drop(embedded(dir.path()));
}

/// Returns the codes of writes that are not puts.
async fn refused_writes(channel: &Channel) -> [Code; 5] {
    let code = |result: Result<(), Status>| result.map_or_else(|error| error.code(), |()| Code::Ok);
    let grant = LeaseGrantRequest { ttl: 500, id: 0 };
    let grant = LeaseClient::new(channel.clone()).lease_grant(grant).await;
    let alarm = AlarmRequest {
        action: AlarmAction::Activate.into(),
        alarm: AlarmType::Nospace.into(),
        ..AlarmRequest::default()
    };
    let alarm = MaintenanceClient::new(channel.clone()).alarm(alarm).await;
    let role = AuthRoleAddRequest {
        name: "r".to_owned(),
    };
    let role = AuthClient::new(channel.clone()).role_add(role).await;
    let learner = MemberAddRequest {
        peer_ur_ls: vec!["http://a:1".to_owned()],
        is_learner: true,
    };
    let mut cluster = ClusterClient::new(channel.clone());
    let learner = cluster.member_add(learner).await;
    let list = cluster.member_list(MemberListRequest::default()).await;
    assert_eq!(list.unwrap().into_inner().members.len(), 1);
    let compact = CompactionRequest {
        revision: 2,
        ..CompactionRequest::default()
    };
    let compact = KvClient::new(channel.clone()).compact(compact).await;
    [
        code(grant.map(drop)),
        code(alarm.map(drop)),
        code(role.map(drop)),
        code(learner.map(drop)),
        code(compact.map(drop)),
    ]
}

#[test]
fn fl_17_a_directory_in_use_and_that_of_etcd_are_fatal() {
    let dir = tempfile::tempdir().unwrap();
    let (_process, _) = start(dir.path(), &[]);
    let (status, log) = ServerProcess::start(arguments(dir.path(), &[])).wait();
    assert_eq!(status.code(), Some(1));
    assert!(
        log.last()
            .unwrap()
            .contains("another process uses this directory"),
        "{log:?}"
    );
    let etcd = tempfile::tempdir().unwrap();
    std::fs::create_dir(etcd.path().join("member")).unwrap();
    let (status, log) = ServerProcess::start(arguments(etcd.path(), &[])).wait();
    assert_eq!(status.code(), Some(1));
    assert!(
        log.last().unwrap().contains("data of a real etcd"),
        "{log:?}"
    );
}
