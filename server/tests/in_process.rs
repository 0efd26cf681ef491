//! A server without ports, in the runtime of its clients.

use std::time::Duration;

use bytes::Bytes;
use revstore::{
    Certificate, ClockMode, ControlConfig, InProcess, ListenUrl, Server, StartError, TlsOptions,
};
use revstore_control::{
    fault::{Action, Preset, Rule, RuleId, Selector, Trigger},
    journal::Filter,
    open::WatchCommand,
    store::RestoreOptions,
};
use revstore_proto::etcdserverpb::{
    LeaseGrantRequest, PutRequest, RangeRequest, WatchCreateRequest, WatchRequest,
    kv_client::KvClient, lease_client::LeaseClient, watch_client::WatchClient,
    watch_request::RequestUnion,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_stream::StreamExt;
use tonic::{Code, transport::Channel};

/// How long a test waits for what is certain to happen.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

fn put(key: &str, value: impl Into<Bytes>) -> PutRequest {
    PutRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: value.into(),
        ..PutRequest::default()
    }
}

fn range(key: &str) -> RangeRequest {
    RangeRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        ..RangeRequest::default()
    }
}

/// A watch of all keys, which never sends another request.
async fn watch_all(
    channel: Channel,
) -> tonic::Streaming<revstore_proto::etcdserverpb::WatchResponse> {
    let create = WatchCreateRequest {
        key: Bytes::from_static(&[0]),
        range_end: Bytes::from_static(&[0]),
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    let requests = tokio_stream::once(request).chain(tokio_stream::pending());
    let response = WatchClient::new(channel).watch(requests).await;
    let mut responses = response.expect("a stream").into_inner();
    let created = responses.message().await.expect("a response");
    assert!(created.expect("a response").created);
    responses
}

#[tokio::test(start_paused = true)]
async fn leases_expire_by_the_time_of_the_runtime_and_watches_see_it() {
    let server = Server::in_process().unwrap();
    let channel = server.channel();
    let mut watch = watch_all(channel.clone()).await;
    let grant = LeaseGrantRequest { ttl: 3_600, id: 7 };
    LeaseClient::new(channel.clone())
        .lease_grant(grant)
        .await
        .unwrap();
    let attached = PutRequest {
        lease: 7,
        ..put("session", "mine")
    };
    KvClient::new(channel.clone()).put(attached).await.unwrap();
    assert_eq!(watch.message().await.unwrap().unwrap().events.len(), 1);
    let start = tokio::time::Instant::now();
    // The time goes on while the client waits.
    let response = watch.message().await.unwrap().unwrap();
    assert_eq!(response.events[0].r#type, 1, "the key is deleted");
    assert_eq!(start.elapsed().as_secs(), 3_600);
    let found = KvClient::new(channel).range(range("session")).await;
    assert_eq!(found.unwrap().into_inner().count, 0);
}

#[tokio::test]
async fn the_http_endpoints_answer_on_a_connection() {
    let server = Server::in_process().unwrap();
    for (path, expected) in [
        ("/version", "etcdserver"),
        ("/health", r#""health":"true""#),
    ] {
        let mut stream = server.connect();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
        assert!(response.contains(expected), "{response}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_largest_value_passes_through_a_small_buffer_beside_a_client_that_never_reads() {
    let server = Server::in_process().unwrap();
    // Its events fill the buffers of the connection, and wait.
    let idle = watch_all(server.channel()).await;
    let mut client = KvClient::new(server.channel());
    let value = Bytes::from(vec![7; 1_500_000]);
    for _ in 0..5 {
        client.put(put("large", value.clone())).await.unwrap();
    }
    let found = client.range(range("large")).await.unwrap().into_inner();
    assert_eq!(found.kvs[0].value, value);
    drop(idle);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_server_ends_streams_and_refuses_connections() {
    let server = Server::in_process().unwrap();
    let channel = server.channel();
    let mut watch = watch_all(channel.clone()).await;
    let clone = server.clone();
    drop(server);
    KvClient::new(channel.clone())
        .put(put("a", "1"))
        .await
        .expect("a clone keeps the server alive");
    drop(clone);
    assert_eq!(watch.message().await.unwrap().unwrap().events.len(), 1);
    let end = watch.message().await.unwrap_err();
    assert_eq!(end.code(), Code::Unavailable, "{end}");
    let refused = KvClient::new(channel).put(put("a", "2")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_connections_but_not_for_ever() {
    let server = Server::in_process().unwrap();
    let _watch = watch_all(server.channel()).await;
    // A client that says nothing.
    let _silent = server.connect();
    let start = tokio::time::Instant::now();
    server.stop().await;
    assert!(start.elapsed() <= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn connections_that_have_ended_are_freed() {
    let server = Server::in_process().unwrap();
    for _ in 0..2_000 {
        drop(server.connect());
        tokio::task::yield_now().await;
    }
    let metrics = tokio::runtime::Handle::current().metrics();
    let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
    while metrics.num_alive_tasks() >= 10 {
        assert!(
            std::time::Instant::now() < deadline,
            "{} tasks",
            metrics.num_alive_tasks()
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_share_a_server_in_a_runtime_of_several_threads() {
    let server = Server::in_process().unwrap();
    let clients = (0..50).map(|client| {
        let mut kv = KvClient::new(server.channel());
        tokio::spawn(async move {
            for number in 0..20 {
                kv.put(put(&format!("{client}/{number}"), ""))
                    .await
                    .unwrap();
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    assert_eq!(server.engine().current_revision().0, 1_001);
}

#[tokio::test]
async fn options_that_cannot_be_honoured_are_refused() {
    let tls = TlsOptions::new(Certificate::SelfSigned { validity_years: 1 });
    let refused = Server::builder().tls(tls).start_in_process();
    assert!(
        matches!(refused, Err(StartError::InProcess { option: "tls" })),
        "{refused:?}"
    );
    let mut control = ControlConfig::from(ClockMode::Manual);
    control.listen_url = Some(ListenUrl::localhost(0));
    let refused = Server::builder().control(control).start_in_process();
    let option = "control.listen_url";
    assert!(
        matches!(&refused, Err(StartError::InProcess { option: refused }) if *refused == option),
        "{refused:?}"
    );
}

fn controlled(mode: ClockMode) -> InProcess {
    let server = Server::builder().control(mode).start_in_process();
    server.expect("a server")
}

fn add(server: &InProcess, method: &str, trigger: Trigger, action: Action) -> RuleId {
    let selector = Selector {
        methods: vec![method.to_owned()],
        ..Selector::default()
    };
    let rule = Rule {
        selector,
        trigger,
        action,
    };
    let control = server.control().expect("control is on");
    control.add_fault(rule).expect("a valid rule")
}

#[tokio::test(start_paused = true)]
async fn faults_and_holds_work_by_the_time_of_the_runtime() {
    let server = controlled(ClockMode::System);
    let control = server.control().unwrap();
    let mut kv = KvClient::new(server.channel());
    add(
        &server,
        "Put",
        Trigger::Next(1),
        Action::Preset(Preset::NoLeader),
    );
    let refused = kv.put(put("a", "1")).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: no leader");
    // A delay by either time takes none outside of the runtime.
    for wall in [false, true] {
        let time = Duration::from_secs(3_600);
        add(
            &server,
            "Put",
            Trigger::Next(1),
            Action::Delay { time, wall },
        );
        let start = tokio::time::Instant::now();
        kv.put(put("a", "1")).await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 3_600);
    }
    assert_eq!(control.point().time.as_secs(), 7_200);
    let mut watch = watch_all(server.channel()).await;
    control.watch(None, WatchCommand::Hold).unwrap();
    kv.put(put("a", "2")).await.unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(60), watch.message()).await;
    assert!(waited.is_err(), "the watch is held");
    control.watch(None, WatchCommand::Release).unwrap();
    assert_eq!(watch.message().await.unwrap().unwrap().events.len(), 1);
    assert_eq!(control.connections().len(), 2);
    let records = control.journal(&Filter::default(), 0).records;
    assert!(records.iter().any(|it| it.method == "etcdserverpb.KV/Put"));
}

#[tokio::test(start_paused = true)]
async fn manual_and_automatic_time_stand_beside_that_of_the_runtime() {
    let hour = Duration::from_secs(3_600);
    let server = controlled(ClockMode::Manual);
    let control = server.control().unwrap();
    server.engine().grant(None, 60).unwrap();
    tokio::time::sleep(hour).await;
    assert_eq!(server.engine().leases().len(), 1);
    let point = control.advance(Duration::from_secs(60)).unwrap();
    assert_eq!(point.time.as_secs(), 60);
    assert!(server.engine().leases().is_empty());
    // Due times are jumped to as soon as nothing happens.
    server.engine().grant(None, 3_600).unwrap();
    control.set_clock(ClockMode::Auto);
    let start = tokio::time::Instant::now();
    while !server.engine().leases().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(control.point().time.as_secs(), 3_660);
    let before = control.set_clock(ClockMode::System).time;
    tokio::time::sleep(hour).await;
    assert_eq!(control.point().time, before + hour);
}

#[tokio::test(start_paused = true)]
async fn the_store_is_replaced_and_streams_and_connections_end() {
    let server = controlled(ClockMode::System);
    let control = server.control().unwrap();
    let channel = server.channel();
    let mut kv = KvClient::new(channel.clone());
    kv.put(put("a", "1")).await.unwrap();
    control.checkpoint("one").unwrap();
    kv.put(put("a", "2")).await.unwrap();
    let mut watch = watch_all(channel.clone()).await;
    let connections = control.connections();
    control.restore("one", RestoreOptions::default()).unwrap();
    let end = watch.message().await.unwrap_err();
    assert_eq!(end.code(), Code::Unavailable, "{end}");
    let found = kv.range(range("a")).await.unwrap().into_inner();
    assert_eq!(found.kvs[0].value, "1");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let now = control.connections();
    assert!(
        now.iter()
            .all(|it| !connections.iter().any(|old| old.id == it.id))
    );
    let refused = control.fork().unwrap_err();
    assert!(
        refused.to_string().contains("no forks with ports"),
        "{refused}"
    );
    drop(kv);
    drop(channel);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn forks_are_independent_and_end_with_their_server() {
    let server = controlled(ClockMode::Manual);
    let control = server.control().unwrap();
    let mut kv = KvClient::new(server.channel());
    let lease = server.engine().grant(None, 60).unwrap().id;
    let leased = PutRequest {
        lease: lease.get(),
        ..put("leased", "1")
    };
    kv.put(leased).await.unwrap();
    control.advance(Duration::from_secs(30)).unwrap();
    add(&server, "Range", Trigger::Always, Action::Reset);

    let fork = server.fork().unwrap();
    let second = fork.fork().unwrap();
    let mut forked = KvClient::new(fork.channel());
    forked.put(put("own", "1")).await.unwrap();
    // The rules of the first server are not those of its forks.
    assert_eq!(
        forked
            .range(range("leased"))
            .await
            .unwrap()
            .into_inner()
            .count,
        1
    );
    assert!(server.engine().get("own").is_none());
    assert!(second.engine().get("own").is_none());
    assert!(fork.control().unwrap().faults().is_empty());

    let mut watch = watch_all(fork.channel()).await;
    let point = fork
        .control()
        .unwrap()
        .advance(Duration::from_secs(30))
        .unwrap();
    assert_eq!(point.time.as_secs(), 60, "the lease has the remaining time");
    let events = watch.message().await.unwrap().unwrap().events;
    assert_eq!(events[0].kv.as_ref().unwrap().key, "leased");
    assert_eq!(control.point().time.as_secs(), 30);
    assert!(server.engine().get("leased").is_some());

    // A fork of a fork ends with that one, and both with the first server.
    drop(kv);
    server.stop().await;
    let end = watch.message().await.unwrap_err();
    assert_eq!(end.code(), Code::Unavailable, "{end}");
    forked.put(put("own", "2")).await.unwrap_err();
    let mut of_second = KvClient::new(second.channel());
    of_second.put(put("own", "2")).await.unwrap_err();
}

#[tokio::test]
async fn a_server_without_control_is_not_forked() {
    let server = Server::in_process().unwrap();
    let refused = server.fork().unwrap_err();
    assert!(refused.to_string().contains("without control"), "{refused}");
}

#[test]
fn a_fork_needs_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let server = runtime.block_on(async { controlled(ClockMode::Manual) });
    let refused = server.fork().unwrap_err();
    assert!(refused.to_string().contains("runtime"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn connections_in_memory_have_faults() {
    let server = controlled(ClockMode::System);
    let control = server.control().unwrap();
    add(&server, "Put", Trigger::Next(1), Action::Reset);
    let mut kv = KvClient::new(server.channel());
    kv.put(put("a", "1")).await.unwrap_err();
    kv.put(put("a", "1")).await.unwrap();
    let rule = add(&server, "Put", Trigger::Always, Action::BlackHole);
    let lost = tokio::spawn(async move { kv.put(put("a", "2")).await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!lost.is_finished());
    assert_eq!(control.hooks().open.activity().busy(), 0);
    // A client that goes away is noticed.
    let mut stream = server.connect();
    let request =
        "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"key\":\"YQ==\"}";
    stream.write_all(request.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(control.connections().len(), 2);
    drop(stream);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(control.connections().len(), 1);
    control.clear_faults(Some(rule)).unwrap();
    lost.await.unwrap().unwrap_err();
}

/// What a program sees of a server with faults, with the times: the same in each run.
async fn faulty_run(seed: u64) -> Vec<String> {
    let server = controlled(ClockMode::System);
    let trigger = |probability| Trigger::Probability { probability, seed };
    let time = Duration::from_millis(700);
    add(
        &server,
        "Put",
        trigger(0.3),
        Action::Delay { time, wall: false },
    );
    add(&server, "Put", trigger(0.1), Action::Reset);
    add(
        &server,
        "Put",
        trigger(0.2),
        Action::Preset(Preset::Timeout),
    );
    let start = tokio::time::Instant::now();
    let mut outcomes = Vec::new();
    let mut kv = KvClient::new(server.channel());
    for number in 0..40 {
        let outcome = kv.put(put("a", number.to_string())).await;
        let outcome = outcome.map_or_else(|it| format!("{:?}", it.code()), |_| "ok".to_owned());
        outcomes.push(format!("{:?} {outcome}", start.elapsed()));
    }
    outcomes
}

#[tokio::test(start_paused = true)]
async fn faults_are_the_same_in_each_run_of_a_seed() {
    let run = faulty_run(1).await;
    assert_eq!(run, faulty_run(1).await);
    assert_ne!(run, faulty_run(2).await);
    for part in ["ok", "Unavailable"] {
        assert!(run.iter().any(|it| it.ends_with(part)), "{run:?}");
    }
}

#[test]
fn a_thread_without_a_runtime_gets_an_error() {
    let refused = Server::in_process();
    assert!(matches!(refused, Err(StartError::NoRuntime)), "{refused:?}");
}
