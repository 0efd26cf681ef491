//! Tests of the lifecycle of the process: start, readiness, signals, end.

use std::{
    net::TcpListener,
    os::unix::{net::UnixStream, process::ExitStatusExt},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use crate::support::{
    ANY_PORT, ServerProcess, WAIT_TIMEOUT, block_on, connect, display, get, put, watch,
};
use revstore_proto::etcdserverpb::{
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, lease_client::LeaseClient,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming, transport::Channel};

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

#[test]
fn fl_9_a_port_in_use_is_fatal() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let process = ServerProcess::start([
        format!("--listen-client-urls=http://{address}"),
        "--advertise-client-urls=http://127.0.0.1:0".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
    ]);
    let (status, log) = process.wait();
    assert_eq!(status.code(), Some(1));
    let last = log.last().unwrap();
    let expected = format!("listen tcp {address}: bind: address already in use");
    assert!(last.contains(&expected), "{last}");
    assert!(!log.iter().any(|line| line.contains("ready to serve")));
}

#[test]
fn au_14_unusable_keys_of_tokens_are_fatal() {
    let directory = tempfile::tempdir().unwrap();
    let large = directory.path().join("large");
    std::fs::write(&large, vec![b'x'; (1 << 20) + 1]).unwrap();
    let large = large.display();
    for (options, expected) in [
        (
            "sign-method=HS256,priv-key=/none".to_owned(),
            "auth: cannot read the priv-key /none: No such file",
        ),
        (
            "sign-method=RS256,pub-key=/,priv-key=/none".to_owned(),
            "auth: cannot read the pub-key /: Is a directory",
        ),
        ("sign-method=HS256".to_owned(), "auth: missing key data"),
        (
            format!("sign-method=HS256,priv-key={large}"),
            "the file is larger than 1 MiB",
        ),
        (
            "sign-method=ES256,pub-key=/dev/zero".to_owned(),
            "the file is larger than 1 MiB",
        ),
        (
            "sign-method=ES256,pub-key=/dev/null".to_owned(),
            "auth: missing key data",
        ),
        (
            "sign-method=RS256,priv-key=/proc/version".to_owned(),
            "auth: invalid priv-key for RS256: the file contains no private key in PEM format",
        ),
    ] {
        let jwt = format!("--auth-token=jwt,{options}");
        let process = ServerProcess::start(ANY_PORT.into_iter().chain([&*jwt]));
        let (status, log) = process.wait();
        assert_eq!(status.code(), Some(1), "{options}");
        assert!(log.last().unwrap().contains(expected), "{log:?}");
    }
}

#[test]
fn fl_10_the_chosen_port_is_logged_and_member_list_has_the_advertised_url() {
    let mut process = ServerProcess::start(ANY_PORT);
    let address = process.address_of("client");
    assert_ne!(address.port(), 0);
    block_on(async {
        use revstore_proto::etcdserverpb::{MemberListRequest, cluster_client::ClusterClient};
        let mut client = ClusterClient::new(connect(address).await);
        let list = client.member_list(MemberListRequest::default()).await;
        let member = list.unwrap().into_inner().members.remove(0);
        assert_eq!(member.client_ur_ls, ["http://127.0.0.1:0"]);
    });
}

#[test]
fn fl_11_all_client_urls_are_served() {
    // Two loopback addresses, because a duplicate URL is ignored.
    let mut process = ServerProcess::start([
        "--listen-client-urls=http://127.0.0.1:0,http://127.0.0.2:0",
        "--advertise-client-urls=http://127.0.0.1:0",
        "--listen-peer-urls=http://127.0.0.1:0",
    ]);
    process.wait_for_line("ready to serve client requests");
    let lines = process.log.iter();
    let lines: Vec<_> = lines
        .filter(|line| line.contains("serving client traffic"))
        .collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in lines {
        let address = line.split('"').rev().nth(1).unwrap().parse().unwrap();
        assert_eq!(get(address, "/health").status, 200);
    }
}

#[test]
fn fl_13_the_ready_line_is_json_on_standard_error() {
    let mut process = ServerProcess::start(ANY_PORT);
    let line = process.wait_for_line("ready to serve client requests");
    assert!(line.starts_with("{\"level\":\"info\",\"ts\":\""), "{line}");
    assert!(line.ends_with('}'), "{line}");
    // The line is logged after the sockets accept connections.
    let address = process.address_of("client");
    assert_eq!(get(address, "/health").status, 200);
}

#[test]
fn fl_12_log_level_and_log_outputs_apply_to_the_ready_line() {
    let directory = tempfile::tempdir().unwrap();
    // The log may be empty, so the test waits for a Unix socket.
    let log_of = |flag: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_revstore"));
        command.current_dir(directory.path()).args([
            "--listen-client-urls=unix://localhost:1",
            "--advertise-client-urls=unix://localhost:1",
            "--listen-peer-urls=http://127.0.0.1:0",
            flag,
        ]);
        let process = ServerProcess::spawn(&mut command);
        wait_until_connected(&directory.path().join("localhost:1"));
        process.signal("TERM");
        process.wait().1
    };
    assert_eq!(log_of("--log-level=warn"), Vec::<String>::new());
    assert_eq!(log_of("--log-outputs=log"), Vec::<String>::new());
    let written = std::fs::read_to_string(directory.path().join("log")).unwrap();
    assert!(
        written.contains("ready to serve client requests"),
        "{written}"
    );
}

/// Waits until a Unix socket accepts connections.
fn wait_until_connected(path: &Path) {
    let start = Instant::now();
    while UnixStream::connect(path).is_err() {
        assert!(
            start.elapsed() < WAIT_TIMEOUT,
            "{} does not accept connections",
            path.display()
        );
        thread::yield_now();
    }
}

#[test]
fn fl_3_warnings_of_the_configuration_are_logged() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_revstore"));
    command.args(ANY_PORT);
    let mut process = ServerProcess::spawn(&mut command);
    process.wait_for_line("ready to serve client requests");
    assert!(!process.log.iter().any(|line| line.contains("\"warn\"")));

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    let text = "listen-client-urls: http://127.0.0.1:0\nadvertise-client-urls: http://x:1\n\
                listen-peer-urls: http://127.0.0.1:0\nnonsense: true\n";
    std::fs::write(&file, text).unwrap();
    let mut process = ServerProcess::start([format!("--config-file={}", display(&file))]);
    let line = process.wait_for_line("nonsense");
    assert!(line.starts_with("{\"level\":\"warn\""), "{line}");
}

fn check_ends_by_signal(name: &str, number: i32) {
    // The parent process may ignore a signal, as `nohup` does, and child processes inherit that.
    let mut command = Command::new("/usr/bin/env");
    command
        .args(["--default-signal", env!("CARGO_BIN_EXE_revstore")])
        .args(ANY_PORT);
    let mut process = ServerProcess::spawn(&mut command);
    process.wait_for_line("ready to serve client requests");
    process.signal(name);
    let (status, log) = process.wait();
    assert_eq!(status.signal(), Some(number), "{name}: {log:#?}");
}

#[test]
fn fl_14_the_process_ends_by_the_signal_that_it_received() {
    check_ends_by_signal("TERM", SIGTERM);
    check_ends_by_signal("INT", SIGINT);
    check_ends_by_signal("HUP", SIGHUP);
}

#[test]
fn fl_14_a_shell_reports_exit_code_143_after_sigterm() {
    // `sh` prints the result of `wait` for its child process.
    let script = r#""$0" "$@" & echo $!; wait $!; echo $?"#;
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", script, env!("CARGO_BIN_EXE_revstore")])
        .args(ANY_PORT)
        .stdout(Stdio::piped());
    let mut process = ServerProcess::spawn(&mut shell);
    process.wait_for_line("ready to serve client requests");
    let mut output = process.take_stdout();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let killed = Command::new("kill")
        .args(["-s", "TERM", line.trim()])
        .status();
    assert!(killed.unwrap().success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
    assert_eq!(rest.trim(), "143");
}

#[test]
fn fl_15_open_streams_end_immediately_and_do_not_delay_the_shutdown() {
    let mut process = ServerProcess::start(ANY_PORT);
    let address = process.address_of("client");
    process.wait_for_line("ready to serve client requests");
    block_on(async {
        let channel = connect(address).await;
        let mut watch = watch(channel.clone(), "a").await;
        put(channel.clone(), "a").await.unwrap();
        let event = watch.responses.message().await.unwrap().unwrap();
        assert_eq!(event.events.len(), 1);

        let (_requests, mut kept_alive) = keep_alive(channel).await;

        process.signal("TERM");
        let ended = kept_alive.message().await.unwrap_err();
        assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
        let ended = watch.responses.message().await.unwrap_err();
        assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
        // The client continues to read while the process ends, like a real client.
        let ended = tokio::task::spawn_blocking(|| process.wait()).await;
        let (status, log) = ended.unwrap();
        assert_eq!(status.signal(), Some(SIGTERM));
        // The shutdown did not wait for the end of the grace period.
        let forced = log.iter().any(|line| line.contains("dropping connections"));
        assert!(!forced, "{log:#?}");
    });
}

/// Opens a keep-alive stream and waits for its first response. Returns the sender that keeps the
/// stream open, and the responses.
async fn keep_alive(
    channel: Channel,
) -> (
    mpsc::Sender<LeaseKeepAliveRequest>,
    Streaming<LeaseKeepAliveResponse>,
) {
    let (sender, receiver) = mpsc::channel(1);
    sender.send(LeaseKeepAliveRequest { id: 1 }).await.unwrap();
    let mut responses = LeaseClient::new(channel)
        .lease_keep_alive(ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();
    // LE-8: the TTL of an unknown lease is 0, and the stream stays open.
    assert_eq!(responses.message().await.unwrap().unwrap().ttl, 0);
    (sender, responses)
}

/// Executes the steps of envtest: search the help for a flag, start, poll the health, stop.
#[test]
fn the_steps_of_envtest_succeed() {
    let help = Command::new(env!("CARGO_BIN_EXE_revstore"))
        .arg("--help")
        .output()
        .unwrap();
    assert!(help.status.success());
    let text = [help.stdout, help.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    let is_listed = text
        .lines()
        .any(|line| line.trim_start().starts_with("--unsafe-no-fsync"));
    assert!(is_listed, "{text}");

    let directory = tempfile::tempdir().unwrap();
    let mut process = ServerProcess::start([
        "--advertise-client-urls=http://127.0.0.1:0".to_owned(),
        format!("--data-dir={}", display(directory.path())),
        "--listen-client-urls=http://127.0.0.1:0".to_owned(),
        "--listen-peer-urls=http://localhost:0".to_owned(),
        "--unsafe-no-fsync=true".to_owned(),
    ]);
    let address = process.address_of("client");
    let health = get(address, "/health");
    assert_eq!(
        (health.status, health.body.as_str()),
        (200, r#"{"health":"true","reason":""}"#)
    );
    process.signal("TERM");
    let (status, _) = process.wait();
    assert_eq!(status.signal(), Some(SIGTERM));
}
