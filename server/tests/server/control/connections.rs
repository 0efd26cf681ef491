//! Faults of connections.

use std::time::{Duration, Instant};

use revstore::ClockMode;
use revstore_control::fault::{Action, Selector, Trigger};
use revstore_host::net::GRACE_PERIOD;
use tonic::transport::Endpoint;

use super::{Controlled, WatchClientStream, method, until};
use crate::support::put;

#[tokio::test]
async fn connections_are_listed_with_their_clients() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    put(channel.clone(), "a").await.unwrap();
    put(channel.clone(), "a").await.unwrap();
    let connections = controlled.inner.open.connections();
    assert_eq!(connections.len(), 1);
    assert_eq!(connections[0].requests, 2);
    assert!(connections[0].client.as_ref().unwrap().contains("tonic"));
    assert!(
        connections[0]
            .address
            .as_ref()
            .unwrap()
            .contains("127.0.0.1")
    );
    drop(channel);
    until(|| controlled.inner.open.connections().is_empty()).await;
}

#[tokio::test]
async fn a_reset_ends_the_connection_and_the_call_is_not_executed() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut watch = WatchClientStream::open(channel.clone()).await;
    watch.create("a", 0).await;
    controlled.add(method("Put"), Trigger::Next(1), Action::Reset);
    assert!(put(channel.clone(), "a").await.is_err());
    assert!(watch.responses.message().await.is_err());
    assert!(controlled.server.engine().get("a").is_none());
    until(|| controlled.inner.open.watch_count() == 0).await;
    // The channel connects again.
    put(channel, "a").await.unwrap();
}

#[tokio::test]
async fn connections_are_refused_while_there_is_a_rule() {
    let controlled = Controlled::start();
    let endpoint = Endpoint::new(controlled.server.endpoint().to_owned()).unwrap();
    let open = endpoint.connect().await.unwrap();
    // The connection is accepted.
    put(open.clone(), "a").await.unwrap();
    let rule = controlled.add(Selector::default(), Trigger::Always, Action::Refuse);
    let refused = endpoint.connect().await;
    let failed = match refused {
        // The system had accepted the connection before the server reset it.
        Ok(channel) => put(channel, "a").await.is_err(),
        Err(_) => true,
    };
    assert!(failed);
    put(open, "a").await.unwrap();
    controlled.inner.rules.clear(Some(rule)).unwrap();
    put(endpoint.connect().await.unwrap(), "a").await.unwrap();
}

#[tokio::test]
async fn a_client_that_gets_goaway_loses_no_put() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    controlled.add(method("Put"), Trigger::Every(50), Action::GoAway);
    let mut puts = tokio::task::JoinSet::new();
    for number in 0..400 {
        let channel = channel.clone();
        puts.spawn(async move { (number, put(channel, &format!("a{number}")).await) });
    }
    let engine = controlled.server.engine();
    while let Some(done) = puts.join_next().await {
        let (number, result) = done.unwrap();
        // A put that was answered is there. One that the client could not send any more may fail.
        if result.is_ok() {
            assert!(engine.get(format!("a{number}")).is_some());
        }
    }
    put(channel, "last").await.unwrap();
}

#[tokio::test]
async fn a_black_hole_with_many_streams_does_not_delay_the_end_of_the_server() {
    let controlled = Controlled::start();
    let channel = controlled.connect().await;
    let mut watches = Vec::new();
    for _ in 0..1_000 {
        let mut watch = WatchClientStream::open(channel.clone()).await;
        watch.create("a", 0).await;
        watches.push(watch);
    }
    assert_eq!(controlled.inner.open.watch_count(), 1_000);
    let rule = controlled.add(method("Put"), Trigger::Next(1), Action::BlackHole);
    let lost = tokio::spawn(async move { put(channel, "a").await });
    until(|| controlled.fired(rule) == 1).await;
    // Others are served.
    let other = controlled.connect().await;
    put(other.clone(), "b").await.unwrap();
    assert!(!lost.is_finished());
    drop(other);
    let open = controlled.inner.open.clone();
    let start = Instant::now();
    controlled.server.stop_async().await;
    assert!(start.elapsed() < GRACE_PERIOD + Duration::from_secs(20));
    assert!(lost.await.unwrap().is_err());
    until(|| open.watch_count() == 0 && open.connections().is_empty()).await;
}

#[test]
fn a_connection_with_tls_is_reset_during_its_handshake() {
    use std::io::Read;

    let tls = revstore::TlsOptions::new(revstore::Certificate::SelfSigned { validity_years: 1 });
    let server = revstore::Server::builder()
        .tls(tls)
        .control(ClockMode::Manual);
    let server = server.start().unwrap();
    let open = server.control().unwrap().hooks().open.clone();
    let mut client = std::net::TcpStream::connect(server.address().unwrap()).unwrap();
    let deadline = Instant::now() + crate::support::WAIT_TIMEOUT;
    let connection = loop {
        if let Some(connection) = open.all_connections().pop() {
            break connection;
        }
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    };
    connection.commands().reset();
    let error = client.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn faults_apply_to_unix_sockets() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let url = revstore::EndpointUrl::parse(&format!("unix://{}", path.display())).unwrap();
    let server = revstore::Server::builder()
        .listen([revstore::ListenUrl::try_from(url).unwrap()])
        .control(ClockMode::Manual);
    let server = server.start().unwrap();
    let inner = server.control().unwrap().hooks();
    let rule = revstore_control::fault::Rule {
        selector: method("Range"),
        trigger: Trigger::Next(1),
        action: Action::Reset,
    };
    inner.rules.add(rule).unwrap();
    let request =
        "POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"key\":\"YQ==\"}";
    for is_reset in [true, false] {
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 15];
        let read = stream.read_exact(&mut answer).await;
        assert_eq!(read.is_err(), is_reset);
        if !is_reset {
            assert_eq!(&answer, b"HTTP/1.1 200 OK");
        }
    }
    assert!(
        inner
            .open
            .connections()
            .iter()
            .all(|it| it.address.is_none())
    );
}
