//! Faults of requests.

use std::{future::Future, time::Duration};

use revstore_control::{
    fault::{Action, KeySelector, Preset, Selector, Trigger},
    journal::Filter,
};
use revstore_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, PutRequest, RequestOp, TxnRequest,
    kv_client::KvClient, lease_client::LeaseClient, request_op::Request,
};
use tonic::Code;

use super::{Controlled, WatchClientStream, failure, method, until};
use crate::support::{http_over, put};

#[tokio::test]
async fn an_error_before_leaves_the_store_as_it_is_and_one_after_does_not() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("a", 0).await;
    let lost = failure(Code::Unavailable, "lost: ünïcode");
    controlled.add(method("Put"), Trigger::Next(1), Action::Error(lost.clone()));
    let error = put(channel.clone(), "a1").await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::Unavailable, &*lost.text)
    );
    assert!(controlled.server.engine().get("a1").is_none());
    controlled.add(method("Put"), Trigger::Next(1), Action::ErrorAfter(lost));
    let error = put(channel.clone(), "a2").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(controlled.server.engine().get("a2").is_some());
    // The watch on the same connection lives on.
    assert_eq!(watch.next_keys().await, ["a2"]);
    put(channel, "a3").await.unwrap();
    assert_eq!(watch.next_keys().await, ["a3"]);
}

#[tokio::test]
async fn the_answer_of_a_transaction_that_fails_is_replaced_too() {
    let controlled = Controlled::start();
    let mut client = KvClient::new(controlled.connect().await);
    let lost = failure(Code::Unknown, "lost");
    let rule = controlled.add(method("Txn"), Trigger::Always, Action::ErrorAfter(lost));
    let key = |key: &'static str| RequestOp {
        request: Some(Request::RequestPut(PutRequest {
            key: key.into(),
            ..PutRequest::default()
        })),
    };
    let invalid = TxnRequest {
        success: vec![key("a"), key("a")],
        ..TxnRequest::default()
    };
    let error = client.txn(invalid).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unknown, "lost"));
    assert_eq!(controlled.fired(rule), 1);
    assert!(controlled.server.engine().get("a").is_none());
}

#[tokio::test]
async fn presets_have_the_codes_and_texts_of_etcd() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let expected = [
        (Code::Unavailable, "etcdserver: no leader"),
        (Code::Unavailable, "etcdserver: leader changed"),
        (Code::Unavailable, "etcdserver: request timed out"),
        (Code::ResourceExhausted, "etcdserver: too many requests"),
        (
            Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded",
        ),
        (Code::DataLoss, "etcdserver: corrupt cluster"),
        (
            Code::InvalidArgument,
            "etcdserver: revision of auth store is old",
        ),
    ];
    for (preset, (code, text)) in Preset::ALL.iter().zip(expected) {
        controlled.add(method("Put"), Trigger::Next(1), Action::Preset(*preset));
        let error = put(channel.clone(), "a").await.unwrap_err();
        assert_eq!((error.code(), error.message()), (code, text), "{preset}");
    }
    put(channel, "a").await.unwrap();
}

#[tokio::test]
async fn a_rule_selects_by_key_client_and_operation_of_a_transaction() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let boom = || Action::Error(failure(Code::Internal, "boom"));
    let keys = |keys| Selector {
        keys: Some(keys),
        ..Selector::default()
    };
    controlled.add(
        keys(KeySelector::Prefix("p/".into())),
        Trigger::Always,
        boom(),
    );
    controlled.add(
        keys(KeySelector::Range("x".into(), "y".into())),
        Trigger::Always,
        boom(),
    );
    let named = Selector {
        client: Some("ann".to_owned()),
        ..Selector::default()
    };
    controlled.add(named, Trigger::Always, boom());
    for (key, fails) in [("p/1", true), ("p", false), ("x1", true), ("y", false)] {
        assert_eq!(put(channel.clone(), key).await.is_err(), fails, "{key}");
    }
    let txn = |key: &'static str| TxnRequest {
        failure: vec![RequestOp {
            request: Some(Request::RequestPut(PutRequest {
                key: key.into(),
                ..PutRequest::default()
            })),
        }],
        ..TxnRequest::default()
    };
    let mut client = KvClient::new(channel.clone());
    assert!(client.txn(txn("p/2")).await.is_err());
    assert!(client.txn(txn("q")).await.is_ok());
    let mut request = tonic::Request::new(txn("q"));
    (request.metadata_mut()).insert("revstore-client", "ann".parse().unwrap());
    assert!(client.txn(request).await.is_err());
    // Requests without keys are not selected by keys.
    let mut leases = LeaseClient::new(channel);
    let grant = LeaseGrantRequest { ttl: 10, id: 0 };
    leases.lease_grant(grant).await.unwrap();
}

#[tokio::test]
async fn a_delay_ends_with_the_clock_with_its_rule_and_with_the_server() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let delay = Action::Delay {
        time: Duration::from_secs(2),
        wall: false,
    };
    let rule = controlled.add(method("Put"), Trigger::Always, delay);
    let engine = controlled.server.engine();
    let start = |key: &'static str| {
        let channel = channel.clone();
        tokio::spawn(async move { put(channel, key).await })
    };
    let delayed = start("a");
    until(|| controlled.fired(rule) == 1).await;
    assert!(engine.get("a").is_none() && !delayed.is_finished());
    until(|| {
        controlled.advance(Duration::from_secs(1));
        delayed.is_finished()
    })
    .await;
    delayed.await.unwrap().unwrap();
    // The next one waits until the rule is removed.
    let delayed = start("b");
    until(|| controlled.fired(rule) == 2).await;
    assert!(engine.get("b").is_none());
    controlled.inner.rules.clear(Some(rule)).unwrap();
    delayed.await.unwrap().unwrap();
    // This one waits until the server stops.
    let wall = Action::Delay {
        time: Duration::from_secs(3_600),
        wall: true,
    };
    let rule = controlled.add(method("Put"), Trigger::Always, wall);
    let delayed = start("c");
    until(|| controlled.fired(rule) == 1).await;
    controlled.server.stop_async().await;
    assert_eq!(
        delayed.await.unwrap().unwrap_err().code(),
        Code::Unavailable
    );
}

#[tokio::test]
async fn a_delayed_call_whose_client_has_gone_is_not_executed() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let delay = Action::Delay {
        time: Duration::from_secs(2),
        wall: false,
    };
    let rule = controlled.add(method("Put"), Trigger::Next(1), delay);
    let gone = tokio::spawn({
        let channel = channel.clone();
        async move { put(channel, "a").await }
    });
    until(|| controlled.fired(rule) == 1).await;
    gone.abort();
    until(|| controlled.inner.journal.last() == 1).await;
    controlled.advance(Duration::from_secs(10));
    put(channel, "b").await.unwrap();
    assert!(controlled.server.engine().get("a").is_none());
}

#[tokio::test]
async fn a_lost_keep_alive_is_neither_executed_nor_answered() {
    let controlled = Controlled::start();
    let mut client = LeaseClient::new(controlled.connect().await);
    let engine = controlled.server.engine();
    let lease = engine.grant(None, 10).unwrap().id;
    let (requests, receiver) = tokio::sync::mpsc::channel(4);
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut answers = client.lease_keep_alive(stream).await.unwrap().into_inner();
    let request = LeaseKeepAliveRequest { id: lease.get() };
    requests.send(request).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().ttl, 10);
    let lost = controlled.add(
        method("LeaseKeepAlive"),
        Trigger::Next(1),
        Action::LoseKeepAlive,
    );
    controlled.advance(Duration::from_secs(6));
    requests.send(request).await.unwrap();
    until(|| controlled.fired(lost) == 1).await;
    controlled.advance(Duration::from_secs(6));
    assert!(engine.lease(lease, false).is_err());
    // The next one is answered.
    requests.send(request).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().ttl, 0);
    let after = Action::ErrorAfter(failure(Code::Unavailable, "lost"));
    controlled.add(method("LeaseKeepAlive"), Trigger::Next(1), after);
    requests.send(request).await.unwrap();
    let error = answers.message().await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unavailable, "lost"));
}

#[tokio::test]
async fn faults_apply_to_creations_of_watches() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let secret = Selector {
        keys: Some(KeySelector::Prefix("s/".into())),
        ..Selector::default()
    };
    let boom = Action::Error(failure(Code::Internal, "boom"));
    let rule = controlled.add(secret, Trigger::Always, boom);
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("t", 0).await;
    watch
        .send(
            revstore_proto::etcdserverpb::watch_request::RequestUnion::CreateRequest(
                revstore_proto::etcdserverpb::WatchCreateRequest {
                    key: "s/1".into(),
                    ..Default::default()
                },
            ),
        )
        .await;
    assert_eq!(
        watch.responses.message().await.unwrap_err().message(),
        "boom"
    );
    assert_eq!(controlled.fired(rule), 1);
    until(|| controlled.inner.open.watch_count() == 0).await;
}

#[test]
fn faults_apply_to_the_gateway() {
    let controlled = Controlled::start();
    let address = controlled.server.address().unwrap();
    controlled.add(
        method("Range"),
        Trigger::Always,
        Action::Preset(Preset::TooManyRequests),
    );
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let body = r#"{"key":"YQ=="}"#;
    let request = format!(
        "POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains("etcdserver: too many requests"), "{answer}");
    let record = &controlled.inner.journal.read(&Filter::default(), 0).records[0];
    assert_eq!(record.method, "etcdserverpb.KV/Range");
    assert!(record.connection.is_some());
    let health = std::net::TcpStream::connect(address).unwrap();
    assert!(
        http_over(health, "GET", "/version")
            .body
            .contains("etcdserver")
    );
}

#[tokio::test]
async fn ten_thousand_rules_of_other_methods_are_not_asked_and_come_and_go_under_load() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let boom = || Action::Error(failure(Code::Internal, "boom"));
    for _ in 0..5_000 {
        controlled.add(method("Range"), Trigger::Always, boom());
        controlled.add(method("Compact"), Trigger::Always, boom());
    }
    let rule = revstore_control::fault::Rule {
        selector: method("Put"),
        trigger: Trigger::Always,
        action: boom(),
    };
    assert!(controlled.inner.rules.add(rule.clone()).is_err());
    let rules = controlled.inner.rules.clone();
    let storm = tokio::task::spawn_blocking(move || {
        rules.clear(None).unwrap();
        for _ in 0..2_000 {
            let id = rules.add(rule.clone()).unwrap();
            rules.clear(Some(id)).unwrap();
        }
    });
    let mut puts: Vec<_> = Vec::new();
    while !storm.is_finished() {
        puts.push(bounded(put(channel.clone(), "a")).await);
    }
    storm.await.unwrap();
    for error in puts.into_iter().filter_map(Result::err) {
        assert_eq!(error.message(), "boom");
    }
    put(channel, "a").await.unwrap();
}

async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(crate::support::WAIT_TIMEOUT, future)
        .await
        .expect("an answer in time")
}

#[tokio::test]
async fn a_rule_selects_the_user_of_a_token() {
    use revstore_proto::etcdserverpb::{
        AuthEnableRequest, AuthUserAddRequest, AuthUserGrantRoleRequest, AuthenticateRequest,
        auth_client::AuthClient,
    };

    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut auth = AuthClient::new(channel.clone());
    for name in ["root", "other"] {
        let user = AuthUserAddRequest {
            name: name.to_owned(),
            password: "p".to_owned(),
            ..AuthUserAddRequest::default()
        };
        auth.user_add(user).await.unwrap();
        let grant = AuthUserGrantRoleRequest {
            user: name.to_owned(),
            role: "root".to_owned(),
        };
        auth.user_grant_role(grant).await.unwrap();
    }
    auth.auth_enable(AuthEnableRequest {}).await.unwrap();
    let selector = Selector {
        user: Some("other".to_owned()),
        ..Selector::default()
    };
    let rule = controlled.add(
        selector,
        Trigger::Always,
        Action::Preset(Preset::AuthRevision),
    );
    for (name, fails) in [("root", false), ("other", true)] {
        let request = AuthenticateRequest {
            name: name.to_owned(),
            password: "p".to_owned(),
        };
        let token = auth.authenticate(request).await.unwrap().into_inner().token;
        let mut put = tonic::Request::new(PutRequest {
            key: "a".into(),
            ..PutRequest::default()
        });
        put.metadata_mut().insert("token", token.parse().unwrap());
        let result = KvClient::new(channel.clone()).put(put).await;
        assert_eq!(result.is_err(), fails, "{name}");
    }
    assert_eq!(controlled.fired(rule), 1);
}
