//! A recorded session, sent to a second server and to a real etcd, has the same answers and leaves the same store.

use std::net::SocketAddr;
use std::time::Duration;

use revstore::control::fault::{Action, Failure, Rule, Selector, Trigger};
use revstore::control::journal::Filter;
use revstore::control::replay::{Endpoint, Finding, Options, Replay, Selection, Summary};
use revstore::{ClockMode, Server};
use revstore_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use revstore_proto::etcdserverpb::lease_client::LeaseClient;
use revstore_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use revstore_proto::etcdserverpb::request_op::Request as Op;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, HashKvRequest, LeaseGrantRequest,
    LeaseKeepAliveRequest, LeaseLeasesRequest, LeaseRevokeRequest, PutRequest, RangeRequest,
    RequestOp, TxnRequest, WatchCreateRequest, WatchRequest, kv_client::KvClient,
    watch_client::WatchClient,
};
use revstore_tests::server::etcd::Etcd;
use revstore_tests::server::{Endpoint as _, Options as ServerOptions};
use revstore_tests::tools::{self, Tool};
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic::transport::Channel;

fn server() -> Server {
    let server = Server::builder().control(ClockMode::Manual);
    server.start().expect("a server")
}

async fn connect(address: SocketAddr) -> Channel {
    let channel = Channel::from_shared(format!("http://{address}")).expect("a URL");
    channel.connect().await.expect("a connection")
}

/// A client that does not know what it does.
struct Client {
    random: fastrand::Rng,
    kv: KvClient<Channel>,
    lease: LeaseClient<Channel>,
    watch: WatchClient<Channel>,
    leases: Vec<i64>,
    revision: i64,
    /// The requests for which the server has executed something else than it has answered, or has not executed anything.
    failed: usize,
}

impl Client {
    fn new(channel: Channel, seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            kv: KvClient::new(channel.clone()),
            lease: LeaseClient::new(channel.clone()),
            watch: WatchClient::new(channel),
            leases: vec![12_345],
            revision: 1,
            failed: 0,
        }
    }

    fn key(&mut self) -> bytes::Bytes {
        format!("key/{}", self.random.u32(..12)).into()
    }

    fn put_request(&mut self) -> PutRequest {
        let lease = match self.random.u8(..4) {
            0 => self.random.choice(&self.leases).copied().unwrap_or(0),
            _ => 0,
        };
        PutRequest {
            key: self.key(),
            value: vec![b'v'; self.random.usize(..300)].into(),
            lease,
            prev_kv: self.random.bool(),
            ..PutRequest::default()
        }
    }

    /// A transaction that often does not change anything.
    fn txn_request(&mut self) -> TxnRequest {
        let op = |request| RequestOp {
            request: Some(request),
        };
        let key = self.key();
        let put = Op::RequestPut(self.put_request());
        let read = Op::RequestRange(RangeRequest {
            key: key.clone(),
            ..RangeRequest::default()
        });
        let delete = Op::RequestDeleteRange(DeleteRangeRequest {
            key: "key/1".into(),
            ..DeleteRangeRequest::default()
        });
        TxnRequest {
            compare: vec![Compare {
                result: CompareResult::Equal.into(),
                target: CompareTarget::Version.into(),
                key,
                target_union: Some(TargetUnion::Version(self.random.i64(..3))),
                ..Compare::default()
            }],
            success: vec![op(put)],
            failure: vec![op(if self.random.bool() { read } else { delete })],
        }
    }

    /// Sends requests whose answers do not depend on the order of other clients'.
    async fn step(&mut self) -> Result<(), tonic::Status> {
        let header = match self.random.u8(..10) {
            0..4 => {
                let put = self.put_request();
                self.kv.put(put).await?.into_inner().header
            }
            4..7 => {
                let txn = self.txn_request();
                self.kv.txn(txn).await?.into_inner().header
            }
            7 => {
                let request = DeleteRangeRequest {
                    key: self.key(),
                    prev_kv: true,
                    ..DeleteRangeRequest::default()
                };
                self.kv.delete_range(request).await?.into_inner().header
            }
            _ => {
                let request = RangeRequest {
                    key: "key/".into(),
                    range_end: "key0".into(),
                    ..RangeRequest::default()
                };
                self.kv.range(request).await?.into_inner().header
            }
        };
        self.revision = header.expect("a header").revision;
        Ok(())
    }

    /// Sends one of all kinds of requests.
    async fn any_step(&mut self) -> Result<(), tonic::Status> {
        let lease = self.random.choice(&self.leases).copied().unwrap_or(0);
        match self.random.u8(..16) {
            0 => {
                let request = LeaseGrantRequest { ttl: 6_000, id: 0 };
                let granted = self.lease.lease_grant(request).await?.into_inner();
                self.leases.push(granted.id);
            }
            1 => {
                let request = LeaseRevokeRequest { id: lease };
                self.lease.lease_revoke(request).await?;
            }
            2 => {
                let requests = tokio_stream::once(LeaseKeepAliveRequest { id: lease });
                let requests = requests.chain(tokio_stream::pending());
                let answers = self.lease.lease_keep_alive(requests).await?;
                answers.into_inner().message().await?;
            }
            3 => {
                self.lease.lease_leases(LeaseLeasesRequest {}).await?;
            }
            4 => {
                let request = CompactionRequest {
                    revision: self.revision - self.random.i64(..8),
                    physical: true,
                };
                self.kv.compact(request).await?;
            }
            5 => {
                let request = RangeRequest {
                    key: self.key(),
                    revision: self.revision + 4 - self.random.i64(..12),
                    ..RangeRequest::default()
                };
                self.kv.range(request).await?;
            }
            6 => {
                self.kv.put(PutRequest::default()).await?;
            }
            7 => self.watch_keys().await?,
            _ => self.step().await?,
        }
        Ok(())
    }

    async fn watch_keys(&mut self) -> Result<(), tonic::Status> {
        let create = WatchCreateRequest {
            key: self.key(),
            start_revision: self.random.i64(..self.revision + 3),
            ..WatchCreateRequest::default()
        };
        let create = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        let mut responses = self.watch.watch(requests).await?.into_inner();
        responses.message().await?;
        Ok(())
    }
}

fn replay_of(server: &Server) -> Replay {
    let control = server.control().expect("control");
    let page = control.journal(&Filter::default(), 0);
    Replay::of_page(&page, &Selection::default()).expect("a whole journal")
}

async fn send(replay: &Replay, address: SocketAddr) -> (Summary, Vec<Finding>) {
    let endpoint = Endpoint::new(&address.to_string(), None, None).expect("a URL");
    let (mut findings, options) = (Vec::new(), Options::default());
    let sent = replay.send(&endpoint, &options, |found| {
        findings.push(found.clone());
    });
    (sent.await.expect("answers"), findings)
}

async fn hash(address: SocketAddr) -> (i64, u32, i64) {
    let mut client = MaintenanceClient::new(connect(address).await);
    let hash = client.hash_kv(HashKvRequest { revision: 0 }).await;
    let hash = hash.expect("a hash").into_inner();
    let revision = hash.header.expect("a header").revision;
    (revision, hash.hash, hash.compact_revision)
}

/// Replays a journal on a second server and, if there is one, on a real etcd, and compares the stores.
async fn check(server: &Server, test: &str) -> Summary {
    let address = server.address().expect("an address");
    let replay = replay_of(server);
    let expected = hash(address).await;
    let second = self::server();
    let (summary, findings) = send(&replay, second.address().expect("an address")).await;
    assert_eq!(findings, []);
    // A replay can itself be replayed.
    let third = self::server();
    let replay_of_second = replay_of(&second);
    let (again, findings) = send(&replay_of_second, third.address().expect("an address")).await;
    for server in [second, third] {
        let address = server.address().expect("an address");
        assert_eq!(hash(address).await, expected);
    }
    assert_eq!((again.sent, findings), (summary.sent, vec![]));
    if tools::available(test, &[Tool::Etcd]) {
        let etcd = Etcd::start(&ServerOptions::default()).expect("a real etcd");
        let (_, findings) = send(&replay, etcd.address()).await;
        assert_eq!(findings, []);
        assert_eq!(hash(etcd.address()).await, expected);
    }
    summary
}

fn seed() -> u64 {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    seed
}

#[tokio::test]
async fn a_random_session_has_the_same_answers_and_the_same_store() {
    let server = server();
    let control = server.control().expect("control");
    let rule = |method: &str, every, action| Rule {
        selector: Selector {
            methods: vec![method.to_owned()],
            ..Selector::default()
        },
        trigger: Trigger::Every(every),
        action,
    };
    let failure = |text| Failure::new(Code::Unavailable, text);
    // Answers that are lost, and requests that are not executed.
    for rule in [
        rule("Put", 9, Action::ErrorAfter(failure("lost"))),
        rule("Put", 11, Action::Error(failure("refused"))),
        rule("LeaseGrant", 3, Action::ErrorAfter(failure("lost"))),
        rule("Txn", 7, Action::ErrorAfter(failure("lost"))),
        rule("Txn", 8, Action::Error(failure("refused"))),
    ] {
        control.add_fault(rule).expect("a rule");
    }
    let channel = connect(server.address().expect("an address")).await;
    let mut client = Client::new(channel, seed());
    for _ in 0..600 {
        if client.any_step().await.is_err() {
            client.failed += 1;
        }
    }
    let test = "a_random_session_has_the_same_answers_and_the_same_store";
    let summary = check(&server, test).await;
    assert_eq!(summary.sent + summary.not_executed, 600);
    assert!(
        summary.not_executed > 5 && client.failed > 20,
        "{summary:?}"
    );
    assert_eq!((summary.skipped, summary.differences), (0, 0));
}

/// The records of concurrent requests are in the order of their answers, which is not that of the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_are_replayed_in_the_order_of_the_store() {
    let server = server();
    let seed = seed();
    let mut tasks = Vec::new();
    for number in 0..8 {
        let channel = connect(server.address().expect("an address")).await;
        let mut client = Client::new(channel, seed.wrapping_add(number));
        client.leases.clear();
        tasks.push(tokio::spawn(async move {
            for _ in 0..150 {
                client.step().await.expect("an answer");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a client");
    }
    let test = "concurrent_writers_are_replayed_in_the_order_of_the_store";
    let summary = check(&server, test).await;
    assert_eq!(summary.sent, 1_200);
}

/// What a lease has deleted at its end is not in the journal, and shows as a difference.
#[tokio::test]
async fn what_no_request_has_changed_is_a_difference() {
    let server = server();
    let channel = connect(server.address().expect("an address")).await;
    let mut lease = LeaseClient::new(channel.clone());
    let granted = lease.lease_grant(LeaseGrantRequest { ttl: 60, id: 0 });
    let granted = granted.await.expect("a lease").into_inner();
    let mut kv = KvClient::new(channel);
    let put = |lease| PutRequest {
        key: "key".into(),
        lease,
        ..PutRequest::default()
    };
    kv.put(put(granted.id)).await.expect("a put");
    let control = server.control().expect("control");
    control.advance(Duration::from_secs(60)).expect("time");
    kv.put(put(0)).await.expect("a put");
    let second = self::server();
    let (summary, findings) =
        send(&replay_of(&server), second.address().expect("an address")).await;
    assert_eq!((summary.sent, summary.differences), (3, 1));
    let Finding::Difference {
        recorded, replayed, ..
    } = &findings[0]
    else {
        panic!("expected a difference");
    };
    assert_eq!((recorded.revision, replayed.revision), (4, 3));
}
