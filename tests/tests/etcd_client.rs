//! Tests of the Rust client `etcd-client` with revstore and, if it is installed, with a real etcd.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmType, Client, Compare, CompareOp, Error, EventType, GetOptions,
    LeaseGrantOptions, LeaseTimeToLiveOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
    TxnOpResponse, WatchOptions,
};
use revstore_tests::on_every_server;
use revstore_tests::server::{Options, Servers};

/// Runs `session` with a client of a new server.
fn with_client<F: Future<Output = ()>>(servers: &Servers, session: impl FnOnce(Client) -> F) {
    with_client_of(servers, &Options::default(), session);
}

/// Runs `session` with a client of a new server that has the given options.
fn with_client_of<F: Future<Output = ()>>(
    servers: &Servers,
    options: &Options,
    session: impl FnOnce(Client) -> F,
) {
    let server = servers.fresh(options);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let endpoint = format!("http://{}", server.address());
        session(Client::connect([endpoint], None).await.unwrap()).await;
    });
}

fn check_status(error: &Error, code: tonic::Code, message: &str) {
    let Error::GRpcStatus(status) = error else {
        panic!("expected a gRPC status, got {error:?}")
    };
    assert_eq!((status.code(), status.message()), (code, message));
}

fn written_keys_are_read_and_deleted(servers: &Servers) {
    with_client(servers, async |mut client| {
        let first = client.put("a", "1", None).await.unwrap();
        assert_eq!(first.header().unwrap().revision(), 2);
        let with_previous = PutOptions::new().with_prev_key();
        let second = client.put("a", "2", Some(with_previous)).await.unwrap();
        assert_eq!(second.prev_key().unwrap().value(), b"1");
        client.put("b", "3", None).await.unwrap();

        let got = client.get("a", None).await.unwrap();
        let kv = &got.kvs()[0];
        assert_eq!((kv.value(), kv.version()), (&b"2"[..], 2));
        assert_eq!((kv.create_revision(), kv.mod_revision()), (2, 3));

        let old = client
            .get("a", Some(GetOptions::new().with_revision(2)))
            .await
            .unwrap();
        assert_eq!(old.kvs()[0].value(), b"1");

        let sorted = GetOptions::new()
            .with_all_keys()
            .with_sort(SortTarget::Value, SortOrder::Descend)
            .with_limit(1);
        let all = client.get("", Some(sorted)).await.unwrap();
        assert_eq!(
            (all.kvs()[0].key(), all.more(), all.count()),
            (&b"b"[..], true, 2)
        );

        let deleted = client.delete("a", None).await.unwrap();
        assert_eq!(deleted.deleted(), 1);
        assert_eq!(client.get("a", None).await.unwrap().count(), 0);
    });
}

fn txn_swaps_only_the_expected_value(servers: &Servers) {
    with_client(servers, async |mut client| {
        let swap = |expected: &'static str, next: &'static str| {
            Txn::new()
                .when([Compare::value("k", CompareOp::Equal, expected)])
                .and_then([TxnOp::put("k", next, None), TxnOp::get("k", None)])
                .or_else([TxnOp::get("k", None)])
        };
        client.put("k", "1", None).await.unwrap();
        let swapped = client.txn(swap("1", "2")).await.unwrap();
        assert!(swapped.succeeded());
        let TxnOpResponse::Get(read) = &swapped.op_responses()[1] else {
            panic!("expected a range response, got {swapped:?}")
        };
        assert_eq!(read.kvs()[0].value(), b"2");
        let unchanged = client.txn(swap("1", "3")).await.unwrap();
        assert!(!unchanged.succeeded());
        let TxnOpResponse::Get(read) = &unchanged.op_responses()[0] else {
            panic!("expected a range response, got {unchanged:?}")
        };
        assert_eq!(read.kvs()[0].value(), b"2");
    });
}

fn compacted_and_future_revisions_are_out_of_range(servers: &Servers) {
    with_client(servers, async |mut client| {
        for value in ["1", "2", "3"] {
            client.put("k", value, None).await.unwrap();
        }
        client.compact(3, None).await.unwrap();
        let at = |revision| Some(GetOptions::new().with_revision(revision));
        assert_eq!(client.get("k", at(3)).await.unwrap().kvs()[0].value(), b"2");
        check_status(
            &client.get("k", at(2)).await.unwrap_err(),
            tonic::Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
        );
        check_status(
            &client.get("k", at(9)).await.unwrap_err(),
            tonic::Code::OutOfRange,
            "etcdserver: mvcc: required revision is a future revision",
        );
    });
}

fn watch_delivers_history_and_new_events(servers: &Servers) {
    with_client(servers, async |mut client| {
        client.put("k1", "old", None).await.unwrap();
        let options = WatchOptions::new()
            .with_prefix()
            .with_prev_key()
            .with_start_revision(2);
        let mut stream = client.watch("k", Some(options)).await.unwrap();
        client.put("k1", "new", None).await.unwrap();
        client.delete("k1", None).await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let response = stream.message().await.unwrap().unwrap();
            for event in response.events() {
                let previous = event.prev_kv().map(|kv| kv.value().to_vec());
                seen.push((
                    event.event_type(),
                    event.kv().unwrap().mod_revision(),
                    previous,
                ));
            }
        }
        assert_eq!(
            seen,
            [
                (EventType::Put, 2, None),
                (EventType::Put, 3, Some(b"old".to_vec())),
                (EventType::Delete, 4, Some(b"new".to_vec())),
            ]
        );
        stream.request_progress().await.unwrap();
        let progress = stream.message().await.unwrap().unwrap();
        assert!(progress.events().is_empty());
        assert_eq!(progress.header().unwrap().revision(), 4);
        stream.cancel(0).await.unwrap();
        assert!(stream.message().await.unwrap().unwrap().canceled());
    });
}

/// Tests WA-1, WA-2, WA-20 and WA-30 with 10,000 watches on one stream.
fn wa_1_many_watches_share_a_stream(servers: &Servers) {
    const WATCHES: i64 = 10_000;
    with_client(servers, async |mut client| {
        // Half of the watches share one key. Each other watch has a separate key.
        let key = |id: i64| match id % 2 {
            0 => "common".to_owned(),
            _ => format!("own {id}"),
        };
        let stream = client.watch(key(0), None).await.unwrap();
        let (mut requests, mut responses) = stream.split();
        let create = async {
            for id in 1..WATCHES {
                requests.watch(key(id), None).await.unwrap();
            }
        };
        let created = async {
            for id in 0..WATCHES {
                let response = responses.message().await.unwrap().unwrap();
                assert_eq!((response.watch_id(), response.created()), (id, true));
            }
        };
        tokio::join!(create, created);

        client.put(key(7777), "", None).await.unwrap();
        let response = responses.message().await.unwrap().unwrap();
        assert_eq!((response.watch_id(), response.events().len()), (7777, 1));
        client.put(key(0), "", None).await.unwrap();
        let mut notified = BTreeSet::new();
        while notified.len() < 5000 {
            let response = responses.message().await.unwrap().unwrap();
            assert_eq!(response.events()[0].kv().unwrap().mod_revision(), 3);
            assert!(
                notified.insert(response.watch_id()),
                "watch {} has two responses",
                response.watch_id()
            );
        }
        assert!(notified.iter().all(|id| id % 2 == 0), "{notified:?}");

        let cancel = async {
            for id in 0..WATCHES {
                requests.cancel(id).await.unwrap();
            }
        };
        let canceled = async {
            for id in 0..WATCHES {
                let response = responses.message().await.unwrap().unwrap();
                assert_eq!((response.watch_id(), response.canceled()), (id, true));
            }
        };
        tokio::join!(cancel, canceled);
    });
}

/// WA-30, WA-31, WA-32 and WA-34: past events are delivered in whole revisions, and a response has at most
/// 1,000 revisions.
fn past_events_are_delivered_in_batches(servers: &Servers) {
    const REVISIONS: i64 = 1200;
    with_client(servers, async |mut client| {
        let puts = Txn::new().and_then([TxnOp::put("a", "", None), TxnOp::put("b", "", None)]);
        for _ in 0..REVISIONS {
            client.txn(puts.clone()).await.unwrap();
        }
        let options = WatchOptions::new().with_all_keys().with_start_revision(2);
        let mut stream = client.watch("", Some(options)).await.unwrap();
        assert!(stream.message().await.unwrap().unwrap().created());
        let (mut expected, mut batches) = (2, 0);
        while expected < 2 + REVISIONS {
            let response = stream.message().await.unwrap().unwrap();
            assert_eq!(response.header().unwrap().revision(), 1 + REVISIONS);
            assert!(response.events().len() <= 2000, "{batches} batches before");
            for pair in response.events().chunks(2) {
                let kvs: Vec<_> = pair.iter().filter_map(|event| event.kv()).collect();
                let keys: Vec<_> = kvs.iter().map(|kv| (kv.key(), kv.mod_revision())).collect();
                assert_eq!(keys, [(&b"a"[..], expected), (&b"b"[..], expected)]);
                expected += 1;
            }
            batches += 1;
        }
        assert!(batches > 1);
    });
}

/// WA-50, WA-51 and WA-52: a watch without events receives progress notifications. After a notification, it
/// receives no event at or below its revision.
fn progress_notifications_are_sent_at_intervals(servers: &Servers) {
    let options = Options {
        watch_progress_interval: Some(Duration::from_millis(100)),
        ..Options::default()
    };
    with_client_of(servers, &options, async |mut client| {
        let options = WatchOptions::new().with_progress_notify();
        let mut stream = client.watch("k", Some(options)).await.unwrap();
        assert!(stream.message().await.unwrap().unwrap().created());
        client.put("other", "", None).await.unwrap();
        let mut progress = 0;
        while progress < 2 {
            let response = stream.message().await.unwrap().unwrap();
            assert_eq!((response.watch_id(), response.events().len()), (0, 0));
            progress = response.header().unwrap().revision();
        }
        client.put("k", "", None).await.unwrap();
        let mut delivered = 0;
        while delivered == 0 || progress < 3 {
            let response = stream.message().await.unwrap().unwrap();
            let revision = response.header().unwrap().revision();
            assert!(revision >= progress);
            progress = revision;
            for event in response.events() {
                assert_eq!((event.kv().unwrap().mod_revision(), delivered), (3, 0));
                delivered = 3;
            }
        }
        // All further messages are progress notifications at revision 3.
        let response = stream.message().await.unwrap().unwrap();
        assert_eq!(response.header().unwrap().revision(), 3);
        assert!(response.events().is_empty());
    });
}

fn a_lease_is_renewed_and_revoked(servers: &Servers) {
    with_client(servers, async |mut client| {
        let options = LeaseGrantOptions::new().with_id(7);
        let granted = client.lease_grant(60, Some(options)).await.unwrap();
        assert_eq!((granted.id(), granted.ttl()), (7, 60));
        client
            .put("k", "v", Some(PutOptions::new().with_lease(7)))
            .await
            .unwrap();

        let (mut keeper, mut responses) = client.lease_keep_alive(7).await.unwrap();
        keeper.keep_alive().await.unwrap();
        assert_eq!(responses.message().await.unwrap().unwrap().ttl(), 60);

        let with_keys = LeaseTimeToLiveOptions::new().with_keys();
        let left = client.lease_time_to_live(7, Some(with_keys)).await.unwrap();
        assert_eq!(
            (left.granted_ttl(), left.keys()),
            (60, &[b"k".to_vec()][..])
        );
        assert_eq!(client.leases().await.unwrap().leases()[0].id(), 7);

        client.lease_revoke(7).await.unwrap();
        assert_eq!(client.get("k", None).await.unwrap().count(), 0);
        check_status(
            &client.lease_revoke(7).await.unwrap_err(),
            tonic::Code::NotFound,
            "etcdserver: requested lease not found",
        );
    });
}

fn maintenance_reports_status_hash_and_alarms(servers: &Servers) {
    with_client(servers, async |mut client| {
        let status = client.status().await.unwrap();
        assert!(status.version().starts_with("3.5."), "{}", status.version());
        assert_eq!(status.leader(), status.header().unwrap().member_id());
        assert!(client.hash().await.is_ok());
        // HK-2: the hash of an empty store.
        assert_eq!(client.hash_kv(0).await.unwrap().hash(), 1_084_519_789);
        client.defragment().await.unwrap();

        let list = client
            .alarm(AlarmAction::Get, AlarmType::None, None)
            .await
            .unwrap();
        assert!(list.alarms().is_empty());
        client
            .alarm(AlarmAction::Activate, AlarmType::Nospace, None)
            .await
            .unwrap();
        check_status(
            &client.put("k", "v", None).await.unwrap_err(),
            tonic::Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded",
        );
        client
            .alarm(AlarmAction::Deactivate, AlarmType::Nospace, None)
            .await
            .unwrap();
        client.put("k", "v", None).await.unwrap();
    });
}

fn the_cluster_has_one_member(servers: &Servers) {
    with_client(servers, async |mut client| {
        let list = client.member_list().await.unwrap();
        let [member] = list.members() else {
            panic!("expected one member, got {list:?}")
        };
        assert_eq!(member.id(), list.header().unwrap().member_id());
        assert_eq!(member.name(), revstore_tests::server::NAME);
        check_status(
            &client.member_remove(1).await.unwrap_err(),
            tonic::Code::NotFound,
            "etcdserver: member not found",
        );
    });
}

on_every_server! {
    needs: [];
    written_keys_are_read_and_deleted,
    txn_swaps_only_the_expected_value,
    compacted_and_future_revisions_are_out_of_range,
    watch_delivers_history_and_new_events,
    wa_1_many_watches_share_a_stream,
    past_events_are_delivered_in_batches,
    progress_notifications_are_sent_at_intervals,
    a_lease_is_renewed_and_revoked,
    maintenance_reports_status_hash_and_alarms,
    the_cluster_has_one_member,
}
