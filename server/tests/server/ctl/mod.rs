//! Control over the network and by the command line: the port, and `revstore ctl`.

mod files;
mod replay;
mod table;
mod verbs;

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use revstore::control::{Condition, store::RestoreOptions};
use revstore::engine::{LeaseId, Put, Revision};
use revstore::{ClockMode, ControlConfig, EndpointUrl, ListenUrl, Server, StartError};
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    PutRequest, RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse, kv_client::KvClient,
    watch_client::WatchClient,
};
use serde_json::{Value, json};
use tonic::{
    Streaming,
    transport::{Channel, Endpoint},
};

/// A server with a manual clock and a port of control.
fn server() -> Server {
    let server = Server::builder().control(options());
    server.start().expect("ports of the loopback interface")
}

fn options() -> ControlConfig {
    let mut options = ControlConfig::from(ClockMode::Manual);
    options.listen_url = Some(ListenUrl::localhost(0));
    options
}

fn ctl_of(server: &Server) -> &str {
    server.control_endpoint().expect("a port of control")
}

/// Runs `revstore ctl` with a line of arguments.
fn run(url: &str, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_revstore"));
    command.arg("ctl").args(line.split_whitespace());
    command.env("REVSTORE_CONTROL", url);
    command.output().expect("the binary starts")
}

/// Runs `revstore ctl -w json` and returns its objects.
fn ctl(url: &str, line: &str) -> Vec<Value> {
    let output = run(url, &format!("-w json {line}"));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{line}: {error}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    lines.collect()
}

/// Runs `revstore ctl`, which must fail with one line.
fn refused(url: &str, line: &str, code: i32) -> String {
    let output = run(url, line);
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{line}: {error}");
    assert_eq!(output.stdout, b"");
    if code == 1 {
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    error
}

async fn channel(endpoint: &str) -> Channel {
    let endpoint = Endpoint::new(endpoint.to_owned()).expect("a URL");
    endpoint.connect().await.expect("a connection")
}

#[test]
fn the_clock_is_controlled_from_the_command_line() {
    let server = server();
    let url = ctl_of(&server);
    let engine = server.engine();
    let lease = engine.grant(LeaseId::new(0x1f), 60).expect("a lease").id;
    let put = Put::new("key", "value").attached_to(lease);
    engine.put_with(&put).expect("a put");
    let pending = json!({"kind": "lease", "id": "000000000000001f", "due": "1m0s"});
    assert_eq!(ctl(url, "clock pending"), [pending]);
    let leases = &ctl(url, "leases")[0];
    assert_eq!(
        (&leases["id"], &leases["keys"]),
        (&"000000000000001f".into(), &1.into())
    );
    assert_eq!(ctl(url, "clock advance 59s")[0]["now"], "59s");
    assert!(engine.get("key").is_some());
    let advanced = json!({"revision": 3, "time": "1m0s", "mode": "manual", "now": "1m0s"});
    assert_eq!(ctl(url, "clock advance --to-next"), [advanced]);
    assert!(engine.get("key").is_none());
    for mode in ["system", "manual"] {
        assert_eq!(ctl(url, &format!("clock {mode}"))[0]["mode"], mode);
    }
    let error = refused(url, "clock advance --to-next", 1);
    assert_eq!(
        error,
        "revstore ctl: there is no next due time: nothing is pending\n"
    );
    let table = run(url, "clock pending");
    assert_eq!(String::from_utf8_lossy(&table.stdout), "KIND  ID  DUE\n");
}

#[test]
fn the_store_is_controlled_from_the_command_line() {
    let server = server();
    let url = ctl_of(&server);
    server.engine().put("key", "1").expect("a put");
    assert_eq!(ctl(url, "store checkpoint a")[0]["checkpoint"], 2);
    server.engine().put("key", "2").expect("a put");
    assert_eq!(ctl(url, "store compact")[0]["compacted"], 3);
    assert_eq!(ctl(url, "store restore a")[0]["revision"], 2);
    let value = |server: &Server| server.engine().get("key").map(|kv| kv.value().to_vec());
    assert_eq!(value(&server), Some(b"1".to_vec()));
    let restored = ctl(url, "store restore a --bump-revision 10 --mark-compacted");
    assert_eq!(restored[0]["revision"], 12);
    assert_eq!(server.engine().compacted_revision(), Some(Revision(12)));
    assert_eq!(ctl(url, "store jump 100")[0]["revision"], 99);
    assert_eq!(
        server.engine().put("key", "3").expect("a put").revision,
        Revision(100)
    );
    assert_eq!(ctl(url, "store reset --keep-revision")[0]["revision"], 100);
    assert_eq!(value(&server), None);
    assert_eq!(ctl(url, "store reset")[0]["revision"], 1);
    ctl(url, "store drop a");
    let error = refused(url, "store restore a", 1);
    assert_eq!(error, "revstore ctl: checkpoint \"a\" does not exist\n");
    assert_eq!(
        ctl(url, "alarm raise nospace")[0]["raised"],
        json!(["nospace"])
    );
    assert_eq!(ctl(url, "alarm clear nospace")[0]["raised"], json!([]));
    let lease = server
        .engine()
        .grant(LeaseId::new(5), 60)
        .expect("a lease")
        .id;
    ctl(url, "expire 5");
    assert!(server.engine().lease(lease, false).is_err());
    refused(url, "expire 5", 1);
}

/// What clients see when the leader of an etcd changes: another term, and leases with their whole time.
#[tokio::test]
async fn a_new_term_keeps_streams_and_extends_leases() {
    let server = server();
    let control = server.control().expect("control");
    let engine = server.engine();
    let lease = engine.grant(LeaseId::new(5), 60).expect("a lease").id;
    engine
        .put_with(&Put::new("session", "").attached_to(lease))
        .expect("a put");
    control.advance(Duration::from_secs(50)).expect("time");
    let channel = channel(server.endpoint()).await;
    let mut events = watch_key(channel.clone()).await;
    let mut kv = KvClient::new(channel);
    let put = || PutRequest {
        key: "key".into(),
        ..PutRequest::default()
    };
    let before = kv.put(put()).await.expect("a put").into_inner();
    assert_eq!(before.header.expect("a header").raft_term, 2);
    let event = events.message().await.expect("a response").expect("one");
    assert_eq!(event.header.expect("a header").raft_term, 2);
    let url = ctl_of(&server).to_owned();
    let term = tokio::task::spawn_blocking(move || ctl(&url, "term new").remove(0));
    let expected = json!({"revision": 3, "time": "50s", "term": 3});
    assert_eq!(term.await.expect("the command line"), expected);
    let after = kv.put(put()).await.expect("a put").into_inner();
    assert_eq!(after.header.expect("a header").raft_term, 3);
    let event = events.message().await.expect("a response").expect("one");
    assert_eq!(event.header.expect("a header").raft_term, 3);
    control.advance(Duration::from_secs(59)).expect("time");
    assert!(engine.get("session").is_some(), "the lease began again");
    control.advance(Duration::from_secs(1)).expect("time");
    assert!(engine.get("session").is_none());
    // A checkpoint has the term.
    control.checkpoint("a").expect("a checkpoint");
    assert_eq!(control.new_term(), Ok(4));
    control
        .restore("a", RestoreOptions::default())
        .expect("a restore");
    assert_eq!(control.new_term(), Ok(4));
}

#[tokio::test]
async fn a_fork_is_an_independent_server() {
    let server = server();
    let url = ctl_of(&server).to_owned();
    let mut client = KvClient::new(channel(server.endpoint()).await);
    let put = |value: &'static str| PutRequest {
        key: "key".into(),
        value: value.into(),
        ..PutRequest::default()
    };
    client.put(put("first")).await.expect("a put");
    server
        .control()
        .expect("control")
        .advance(Duration::from_secs(7))
        .expect("time");
    let fork = tokio::task::spawn_blocking({
        let url = url.clone();
        move || ctl(&url, "store fork").remove(0)
    });
    let fork = fork.await.expect("a fork");
    assert_eq!(fork["id"], "fork-1");
    let endpoint = fork["endpoint"].as_str().expect("a URL").to_owned();
    let control = fork["control"].as_str().expect("a URL").to_owned();
    let mut forked = KvClient::new(channel(&endpoint).await);
    let get = RangeRequest {
        key: "key".into(),
        ..RangeRequest::default()
    };
    forked.put(put("fork")).await.expect("a put");
    let ours = client
        .range(get.clone())
        .await
        .expect("a range")
        .into_inner();
    assert_eq!(
        (&*ours.kvs[0].value, ours.header.expect("a header").revision),
        (&b"first"[..], 2)
    );
    let theirs = forked
        .range(get.clone())
        .await
        .expect("a range")
        .into_inner();
    assert_eq!(
        (
            &*theirs.kvs[0].value,
            theirs.header.expect("a header").revision
        ),
        (&b"fork"[..], 3)
    );
    let (clocks, dropped) = tokio::task::spawn_blocking(move || {
        let fork = ctl(&control, "clock advance 3s").remove(0);
        assert_eq!(ctl(&url, "store forks").len(), 1);
        ctl(&url, "store drop fork-1");
        (fork, refused(&control, "clock pending", 1))
    })
    .await
    .expect("the command line");
    assert_eq!(
        (&clocks["now"], &clocks["mode"]),
        (&"10s".into(), &"manual".into())
    );
    assert!(
        dropped.starts_with("revstore ctl: cannot connect to 127.0.0.1:"),
        "{dropped}"
    );
    assert_eq!(
        server.control().expect("control").point().time,
        Duration::from_secs(7)
    );
    forked.range(get).await.expect_err("the fork has ended");
}

#[tokio::test]
async fn faults_are_controlled_from_the_command_line() {
    let server = server();
    let url = ctl_of(&server).to_owned();
    let run = async |line: &'static str| {
        let url = url.clone();
        tokio::task::spawn_blocking(move || ctl(&url, line))
            .await
            .expect("the command line")
    };
    let mut client = KvClient::new(channel(server.endpoint()).await);
    let put = || PutRequest {
        key: "a/key".into(),
        ..PutRequest::default()
    };
    let added = run("fault add --method Put --prefix a/ --next 1 --preset no-leader").await;
    assert_eq!(added[0]["id"], 1);
    let added = run("fault add --method Put --next 2 --error-after DATA_LOSS:lost").await;
    assert_eq!(added[0]["id"], 2);
    let refused = client.put(put()).await.expect_err("the first rule");
    assert_eq!(refused.message(), "etcdserver: no leader");
    assert_eq!(server.engine().current_revision(), Revision(1));
    let lost = client.put(put()).await.expect_err("the second rule");
    assert_eq!(
        (lost.code(), lost.message()),
        (tonic::Code::DataLoss, "lost")
    );
    assert_eq!(
        server.engine().current_revision(),
        Revision(2),
        "the write is committed"
    );
    let expected = json!({"id": 1, "fired": 1, "rule": "--method Put --prefix a/ --next 1 --preset no-leader"});
    assert_eq!(run("fault list").await[0], expected);
    assert_eq!(run("fault clear 1").await[0]["cleared"], 1);
    assert_eq!(run("fault clear").await[0]["cleared"], 1);
    client.put(put()).await.expect("no rule");
    let records = run("journal --method Put").await;
    let outcomes: Vec<_> = records
        .iter()
        .map(|it| (&it["code"], &it["rule"], &it["revision"]))
        .collect();
    let of = |code: &str, rule: u64| (Value::from(code), Value::from(rule));
    let expected = [of("UNAVAILABLE", 1), of("DATA_LOSS", 2), of("OK", 0)];
    for ((code, rule, _), expected) in outcomes.iter().zip(expected) {
        assert_eq!(((*code).clone(), (*rule).clone()), expected, "{records:?}");
    }
    assert_eq!(outcomes.len(), 3);
    assert_eq!(run("connections").await.len(), 1);
}

/// Opens a watch of `key`.
async fn watch_key(channel: Channel) -> Streaming<WatchResponse> {
    let create = WatchCreateRequest {
        key: "key".into(),
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    let requests =
        tokio_stream::StreamExt::chain(tokio_stream::once(request), tokio_stream::pending());
    let response = WatchClient::new(channel).watch(requests).await;
    let mut events = response.expect("a watch").into_inner();
    assert!(
        events
            .message()
            .await
            .expect("a response")
            .expect("one")
            .created
    );
    events
}

#[tokio::test]
async fn watches_are_controlled_from_the_command_line() {
    let server = server();
    let url = ctl_of(&server).to_owned();
    let run = async |line: &'static str| {
        let url = url.clone();
        tokio::task::spawn_blocking(move || ctl(&url, line))
            .await
            .expect("the command line")
    };
    let control = server.control().expect("control").clone();
    let opened = tokio::spawn(async move { control.wait(Condition::Watches(1), None).await });
    let mut events = watch_key(channel(server.endpoint()).await).await;
    opened.await.expect("a task").expect("a watch");
    run("wait --watchers 1 --timeout 5s").await;
    let listed = run("watches").await.remove(0);
    assert_eq!(
        (&listed["key"], &listed["state"]),
        (&"a2V5".into(), &"synced".into())
    );
    assert_eq!(run("watch hold").await[0]["watches"], 1);
    server.engine().put("key", "").expect("a put");
    assert_eq!(run("watches").await[0]["state"], "held");
    run("watch release").await;
    let response = events.message().await.expect("a response").expect("one");
    assert_eq!(response.events.len(), 1);
    run("watch bookmark").await;
    let response = events.message().await.expect("a response").expect("one");
    assert_eq!(
        (
            response.events.len(),
            response.header.expect("a header").revision
        ),
        (0, 2)
    );
    run("watch cancel-compacted").await;
    let response = events.message().await.expect("a response").expect("one");
    assert!(response.canceled && response.compact_revision > 0);
    let error = tokio::task::spawn_blocking({
        let url = url.clone();
        move || refused(&url, "watch hold 1", 1)
    });
    assert_eq!(
        error.await.expect("the command line"),
        "revstore ctl: there is no open watch 1\n"
    );
}

/// A client that follows the journal and never reads costs nothing but its connection.
#[tokio::test]
async fn a_follower_that_never_reads_leaves_the_server_working() {
    use revstore::control::proto::{JournalReadRequest, control_client::ControlClient};

    let server = server();
    let mut control = ControlClient::new(channel(ctl_of(&server)).await);
    let follow = JournalReadRequest {
        follow: true,
        ..JournalReadRequest::default()
    };
    let mut records = control
        .journal_read(follow)
        .await
        .expect("a stream")
        .into_inner();
    let mut client = KvClient::new(channel(server.endpoint()).await);
    for _ in 0..2_000 {
        let put = PutRequest {
            key: "key".into(),
            ..PutRequest::default()
        };
        client.put(put).await.expect("a put");
    }
    let first = records.message().await.expect("a record").expect("one");
    assert_eq!((&*first.method, first.number), ("etcdserverpb.KV/Put", 1));
}

/// A watch of the old history never gets events of the new one.
#[tokio::test]
async fn a_restore_ends_watches_and_serves_the_old_keys() {
    let server = server();
    let control = server.control().expect("control").clone();
    let channel = channel(server.endpoint()).await;
    let mut kv = KvClient::new(channel.clone());
    let put = || PutRequest {
        key: "key".into(),
        ..PutRequest::default()
    };
    kv.put(put()).await.expect("a put");
    control.checkpoint("a").expect("a checkpoint");
    let mut events = watch_key(channel).await;
    control
        .restore("a", RestoreOptions::default())
        .expect("a restore");
    control.engine().put("key", "new").expect("a put");
    let mut received = Vec::new();
    while let Ok(Some(response)) = events.message().await {
        received.extend(response.events);
    }
    assert_eq!(received, []);
    assert!(control.engine().get("key").is_some());
}

#[tokio::test]
async fn waits_of_programs_end_with_the_store() {
    let server = server();
    let control = server.control().expect("control").clone();
    let engine = server.engine();
    let wait = tokio::spawn(async move { control.wait(Condition::Key("key".into()), None).await });
    engine.put("key", "").expect("a put");
    let point = wait.await.expect("a task").expect("the key");
    assert_eq!(point.revision, Revision(2));
    drop(server);
}

#[test]
fn usage_errors_have_the_status_2_and_help_0() {
    let server = server();
    let url = ctl_of(&server);
    for line in [
        "",
        "nothing",
        "clock",
        "clock advance",
        "clock advance foo",
        "expire zzz",
        "wait",
        "--url https://127.0.0.1:1 leases",
        "--token-file /nothing leases",
    ] {
        refused(url, line, 2);
    }
    let error = refused("", "leases", 2);
    assert!(error.contains("REVSTORE_CONTROL"), "{error}");
    let help = run(url, "--help");
    assert_eq!(help.status.code(), Some(0));
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    for verb in ["clock", "store", "leases", "expire", "alarm", "wait"] {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb}: {help}");
    }
}

/// Under etcd's name, the binary has the command line of etcd.
#[test]
fn a_binary_called_etcd_has_no_subcommands() {
    let dir = tempfile::tempdir().expect("a directory");
    let etcd = dir.path().join("etcd");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_revstore"), &etcd).expect("a link");
    let output = Command::new(&etcd)
        .args(["ctl", "--help"])
        .output()
        .expect("the binary starts");
    assert_ne!(output.status.code(), Some(0));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("'ctl' is not a valid flag"), "{error}");
}

#[test]
fn a_port_beyond_the_loopback_interface_needs_a_token() {
    let start = |options: ControlConfig| Server::builder().control(options).start();
    let all = EndpointUrl::parse("http://0.0.0.0:0").unwrap();
    let all = ListenUrl::try_from(all).unwrap();
    let mut options = options();
    options.listen_url = Some(all);
    assert!(matches!(
        start(options.clone()),
        Err(StartError::Control(_))
    ));
    options.allow_remote = true;
    assert!(matches!(
        start(options.clone()),
        Err(StartError::Control(_))
    ));
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    options.token_file = Some(file.path().to_owned());
    assert!(
        matches!(start(options.clone()), Err(StartError::ControlToken(_))),
        "no token"
    );
    file.write_all(b"secret\n").expect("a token");
    let server = start(options).expect("a server");
    let url = ctl_of(&server).replace("0.0.0.0", "127.0.0.1");
    let error = refused(&url, "clock pending", 1);
    assert_eq!(
        error,
        "revstore ctl: a token is required: send the header Authorization: Bearer TOKEN\n"
    );
    let path = file.path().display().to_string();
    ctl(&url, &format!("--token-file {path} clock pending"));
    let clock = revstore::engine::ManualClock::new();
    let of_clock = Server::builder()
        .clock(clock)
        .control(ClockMode::Manual)
        .start();
    assert!(matches!(of_clock, Err(StartError::ControlOfStore)));
}

/// Output that nobody reads is no error.
#[test]
fn a_closed_pipe_ends_the_command_line_quietly() {
    let server = server();
    for id in 1..=1_000 {
        server
            .engine()
            .grant(LeaseId::new(id), 60)
            .expect("a lease");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_revstore"));
    command.args(["ctl", "leases", "--url", ctl_of(&server)]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("an exit status");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
