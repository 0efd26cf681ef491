//! Journals with their requests: `journal --requests` and `journal replay`.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use revstore::Server;
use revstore::control::fault::{Action, Failure, Rule, Selector, Trigger};
use revstore::control::journal::Filter;
use revstore::control::replay::{Replay, Selection};
use revstore::control::store::RestoreOptions;
use revstore::engine::Revision;
use revstore_control::journal::{KEPT_BYTES_MAX, KeptBody, LeftOut, Record};
use revstore_control::service::write_journal;
use revstore_proto::etcdserverpb::{
    AuthEnableRequest, AuthUserAddRequest, AuthUserChangePasswordRequest, AuthUserGrantRoleRequest,
    AuthenticateRequest, LeaseGrantRequest, PutRequest, auth_client::AuthClient,
    kv_client::KvClient, lease_client::LeaseClient,
};
use serde_json::{Value, json};
use tonic::Code;

use super::{channel, ctl_of, run, server, watch_key};
use crate::certificates::CertificateAuthority;
use crate::support::{ANY_PORT, WAIT_TIMEOUT, block_on};

/// A journal in a file.
struct Journal {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Journal {
    fn of(server: &Server) -> Self {
        Self::with(&text_of(server))
    }

    fn with(text: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("journal.jsonl");
        fs::write(&path, text).expect("a file");
        Self { path, _dir: dir }
    }

    /// Replays it. `options` follow the target.
    fn replay(&self, target: &str, options: &str) -> Output {
        let path = self.path.display();
        run(
            "",
            &format!("-w json journal replay {path} --to {target} {options}"),
        )
    }

    /// Replays it, and returns what is written about it. The exit status is 1 if an answer differs.
    fn replayed(&self, target: &str, options: &str) -> Vec<Value> {
        let output = self.replay(target, options);
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        let found: Vec<Value> = lines.collect();
        let summary = found
            .last()
            .unwrap_or_else(|| panic!("no summary: {error}"));
        let differences = summary["differences"].as_u64().expect("a number");
        let sent = &summary["sent"];
        let expected = if differences == 0 {
            (Some(0), String::new())
        } else {
            let line =
                format!("revstore ctl: {differences} of {sent} answers differ from the journal\n");
            (Some(1), line)
        };
        assert_eq!((output.status.code(), error), expected);
        found
    }

    /// Replays it, which is refused before anything is sent, and returns why.
    fn refused(&self, target: &Server, options: &str) -> String {
        let output = self.replay(target.endpoint(), options);
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert_eq!(
            (output.stdout, error.lines().count()),
            (vec![], 1),
            "{error}"
        );
        let control = target.control().expect("control");
        assert_eq!(control.journal(&Filter::default(), 0).next, 0, "{error}");
        let path = self.path.display().to_string();
        let error = error
            .strip_prefix("revstore ctl: ")
            .expect("a prefix")
            .trim();
        error.replace(&format!("{path}: "), "")
    }
}

fn text_of(server: &Server) -> String {
    let mut text = Vec::new();
    write_journal(server.control().expect("control"), &mut text).expect("a journal");
    String::from_utf8(text).expect("UTF-8")
}

fn put_of(key: &str, value: &str) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..PutRequest::default()
    }
}

fn summary(sent: u64, differences: u64, skipped: u64, not_executed: u64) -> Value {
    json!({"sent": sent, "differences": differences, "skipped": skipped, "not_executed": not_executed})
}

/// A server to which these values were put as `key`.
fn with_puts(values: &[&str]) -> Server {
    let server = server();
    block_on(async {
        let mut client = KvClient::new(channel(server.endpoint()).await);
        for value in values {
            client.put(put_of("key", value)).await.expect("a put");
        }
    });
    server
}

fn value_of(server: &Server) -> Option<String> {
    let kv = server.engine().get("key")?;
    Some(String::from_utf8(kv.value().to_vec()).expect("UTF-8"))
}

#[tokio::test(flavor = "multi_thread")]
async fn records_have_the_requests_that_clients_have_sent() {
    let server = server();
    let channel = channel(server.endpoint()).await;
    let mut kv = KvClient::new(channel.clone());
    kv.put(put_of("key", "value")).await.expect("a put");
    let mut lease = LeaseClient::new(channel.clone());
    let granted = lease.lease_grant(LeaseGrantRequest { ttl: 60, id: 0 });
    let granted = granted.await.expect("a lease").into_inner().id;
    drop(watch_key(channel).await);
    let control = server.control().expect("control").clone();
    let rule = Rule {
        selector: Selector::default(),
        trigger: Trigger::Next(1),
        action: Action::ErrorAfter(Failure::new(Code::DataLoss, "lost")),
    };
    control.add_fault(rule).expect("a rule");
    kv.put(put_of("key", "lost")).await.expect_err("lost");
    let url = ctl_of(&server);
    let requests = tokio::task::block_in_place(|| super::ctl(url, "journal --requests"));
    let found: Vec<_> = { requests.iter() }
        .filter(|it| it["event"] == "request")
        .map(|it| {
            let request = &it["request"];
            let body = request["body"].as_str().expect("a text");
            let body = STANDARD.decode(body).expect("base64");
            (it["code"].as_str().expect("a code"), body, request)
        })
        .collect();
    let codes: Vec<_> = found.iter().map(|it| it.0).collect();
    assert_eq!(codes, ["OK", "OK", "OK", "DATA_LOSS"]);
    assert_eq!(found[0].1, put_of("key", "value").encode_to_vec());
    let granted = LeaseGrantRequest {
        ttl: 60,
        id: granted,
    };
    let kept = LeaseGrantRequest::decode(&*found[1].1).expect("a request");
    assert_eq!(kept, granted, "the id that the server has chosen");
    assert_eq!(found[2].2["stream"], true);
    // What the server has answered, not what the client got.
    let lost = found[3].2;
    assert_eq!(lost["code"], "OK");
    assert_eq!((&lost["revision"], &lost["at"]), (&3.into(), &3.into()));
    assert_eq!(
        (&lost["executed"], &lost["written"]),
        (&true.into(), &true.into())
    );
    // Without being asked for, and for people.
    let without = tokio::task::block_in_place(|| super::ctl(url, "journal"));
    assert!(
        without.iter().all(|it| it.get("request").is_none()),
        "{without:?}"
    );
    let table = tokio::task::block_in_place(|| run(url, "journal --requests --method Put"));
    let table = String::from_utf8(table.stdout).expect("UTF-8");
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].ends_with("  REQUEST"), "{table}");
    assert!(lines[1].ends_with(r"\n\x03key\x12\x05value"), "{table}");
}

#[tokio::test]
async fn large_requests_are_left_out_and_the_journal_stays_small() {
    let server = server();
    let mut client = KvClient::new(channel(server.endpoint()).await);
    let large = "x".repeat(1024 * 1024);
    client.put(put_of("key", &large)).await.expect("a put");
    client.put(put_of("key", "small")).await.expect("a put");
    // The message has a few bytes more than its value.
    let limit = "x".repeat(KEPT_BYTES_MAX - 100);
    for _ in 0..300 {
        client.put(put_of("key", &limit)).await.expect("a put");
    }
    let page = server
        .control()
        .expect("control")
        .journal(&Filter::default(), 0);
    assert!(page.dropped > 0, "the first records made room");
    let kept = page
        .records
        .iter()
        .map(|it| match &it.request.as_ref().expect("one").body {
            KeptBody::Kept(body) => body.len(),
            KeptBody::LeftOut(reason) => panic!("{reason:?}"),
        });
    assert!(kept.sum::<usize>() <= 16 << 20);
}

/// What it has done is missing.
#[test]
fn a_request_that_is_left_out_is_reported() {
    let large = "x".repeat(1024 * 1024);
    let server = with_puts(&["1", &large, "2"]);
    let page = server
        .control()
        .expect("control")
        .journal(&Filter::default(), 0);
    // Records are in the order in which the calls have ended for the server.
    let number_at = |revision: i64| {
        let mut records = page.records.iter();
        let record = records.find(|it| it.revision == Some(revision));
        record.expect("a record of the put").number
    };
    let is_left_out = |it: &Arc<Record>| {
        let kept = it.request.as_ref().expect("a request");
        kept.body == KeptBody::LeftOut(LeftOut::Size)
    };
    let left_out: Vec<_> = page.records.iter().filter(|it| is_left_out(it)).collect();
    let numbers: Vec<_> = left_out.iter().map(|it| it.number).collect();
    assert_eq!(numbers, [number_at(3)], "{:?}", page.records);
    let target = self::server();
    let found =
        tokio::task::block_in_place(|| Journal::of(&server).replayed(target.endpoint(), ""));
    let skipped =
        json!({"number": number_at(3), "method": "etcdserverpb.KV/Put", "skipped": "size"});
    assert_eq!(found[0], skipped);
    let difference = json!({
        "number": number_at(4),
        "method": "etcdserverpb.KV/Put",
        "recorded": {"code": "OK", "error": "", "revision": 4},
        "replayed": {"code": "OK", "error": "", "revision": 3},
    });
    assert_eq!(found[1..], [difference, summary(2, 1, 1, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_and_tokens_are_never_in_the_journal() {
    const PASSWORD: &str = "correct-horse";
    let server = server();
    let channel = channel(server.endpoint()).await;
    let mut auth = AuthClient::new(channel.clone());
    let add = AuthUserAddRequest {
        name: "root".to_owned(),
        password: PASSWORD.to_owned(),
        ..AuthUserAddRequest::default()
    };
    auth.user_add(add).await.expect("a user");
    let change = AuthUserChangePasswordRequest {
        name: "root".to_owned(),
        password: PASSWORD.to_owned(),
        ..AuthUserChangePasswordRequest::default()
    };
    auth.user_change_password(change).await.expect("a password");
    let grant = AuthUserGrantRoleRequest {
        user: "root".to_owned(),
        role: "root".to_owned(),
    };
    auth.user_grant_role(grant).await.expect("a role");
    auth.auth_enable(AuthEnableRequest {}).await.expect("auth");
    let login = AuthenticateRequest {
        name: "root".to_owned(),
        password: PASSWORD.to_owned(),
    };
    let token = auth
        .authenticate(login)
        .await
        .expect("a token")
        .into_inner()
        .token;
    let mut request = tonic::Request::new(put_of("key", "1"));
    let value = token.parse().expect("a header");
    request.metadata_mut().insert("token", value);
    let mut kv = KvClient::new(channel);
    kv.put(request).await.expect("a put");
    let journal = text_of(&server);
    // In base64, a text begins at one of three places of a group.
    let parts = |text: &str| {
        let of = |skipped: usize| {
            let rest = &text[skipped..];
            STANDARD.encode(&rest[..rest.len() / 3 * 3])
        };
        (0..3).map(of).collect::<Vec<_>>()
    };
    for secret in [PASSWORD, &token] {
        assert!(!journal.contains(secret));
        for part in parts(secret) {
            assert!(!journal.contains(&part), "{secret}");
        }
    }
    assert_eq!(journal.matches(r#""left_out":"secret""#).count(), 3);
    // A server with the same users, and a token for it, gives the same answers.
    let last = server
        .control()
        .expect("control")
        .journal(&Filter::default(), 0)
        .next;
    let journal = Journal::of(&server);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    fs::write(&file, &token).expect("a file");
    let after = format!("--after {}", last - 1);
    let (without, with) = tokio::task::block_in_place(|| {
        let without = journal.replayed(server.endpoint(), &after);
        let options = format!("{after} --token-file {}", file.display());
        (without, journal.replayed(server.endpoint(), &options))
    });
    assert_eq!(
        without[0]["replayed"]["error"],
        "etcdserver: user name is empty"
    );
    assert_eq!(with[0]["replayed"]["revision"], 3, "{with:?}");
}

#[test]
fn a_journal_is_replayed_on_a_server_with_the_same_store() {
    let server = with_puts(&["1", "2", "3"]);
    let journal = Journal::of(&server);
    let target = self::server();
    assert_eq!(
        journal.replayed(target.endpoint(), ""),
        [summary(3, 0, 0, 0)]
    );
    assert_eq!(value_of(&target).as_deref(), Some("3"));
    // On a store that has something already, all revisions are others.
    let found = journal.replayed(target.endpoint(), "");
    assert_eq!(found.len(), 4);
    let difference = json!({
        "number": 1,
        "method": "etcdserverpb.KV/Put",
        "recorded": {"code": "OK", "error": "", "revision": 2},
        "replayed": {"code": "OK", "error": "", "revision": 5},
    });
    assert_eq!((&found[0], &found[3]), (&difference, &summary(3, 3, 0, 0)));
    let table = run(
        "",
        &format!(
            "journal replay {} --to {}",
            journal.path.display(),
            target.endpoint()
        ),
    );
    assert_eq!(table.status.code(), Some(1));
    let table = String::from_utf8(table.stdout).expect("UTF-8");
    let expected = "1  etcdserverpb.KV/Put  recorded OK at revision 2, replayed OK at revision 8\n";
    assert!(table.starts_with(expected), "{table}");
    let last = "3 sent, 3 different, 0 skipped, 0 not executed before\n";
    assert!(table.ends_with(last), "{table}");
    // From a checkpoint on, with the journal from standard input.
    let control = server.control().expect("control");
    control.checkpoint("a").expect("a checkpoint");
    let begun = control.journal(&Filter::default(), 0).next;
    block_on(async {
        let mut client = KvClient::new(channel(server.endpoint()).await);
        client.put(put_of("key", "4")).await.expect("a put");
    });
    let text = text_of(&server);
    control
        .restore("a", RestoreOptions::default())
        .expect("a restore");
    let mut replay = Command::new(env!("CARGO_BIN_EXE_revstore"));
    let line = format!(
        "ctl -w json journal replay - --to {} --after {begun}",
        server.endpoint()
    );
    replay
        .args(line.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = replay.spawn().expect("the binary starts");
    let mut input = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, text.as_bytes()).expect("a reader");
    drop(input);
    let output = child.wait_with_output().expect("an end");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, format!("{}\n", summary(1, 0, 0, 0)));
    assert_eq!(server.engine().current_revision(), Revision(5));
}

#[test]
fn a_replay_stops_after_the_request_that_is_named() {
    let server = with_puts(&["1", "2", "3"]);
    let journal = Journal::of(&server);
    let target = self::server();
    let found = journal.replayed(target.endpoint(), "--stop-at 2");
    assert_eq!(found, [summary(2, 0, 0, 0)]);
    assert_eq!(value_of(&target).as_deref(), Some("2"));
    let found = journal.replayed(target.endpoint(), "--after 2 --timing");
    assert_eq!(found, [summary(1, 0, 0, 0)]);
    assert_eq!(value_of(&target).as_deref(), Some("3"));
    let error = journal.refused(&self::server(), "--stop-at 9");
    assert_eq!(
        error,
        "cannot stop at record 9: the journal has no request with this number"
    );
}

/// Nothing is sent of a journal that cannot be replayed as it is.
#[test]
fn damaged_journals_are_refused_with_the_line() {
    let text = text_of(&with_puts(&["1", "2", "3"]));
    let lines: Vec<_> = text.lines().collect();
    let target = server();
    let refused = |text: &str| Journal::with(text).refused(&target, "");
    let cut = &text[..text.len() - 40];
    assert!(
        refused(cut).starts_with("line 3: invalid JSON: "),
        "{}",
        refused(cut)
    );
    let damaged = |from: &str, to: &str| {
        let second = lines[1].replacen(from, to, 1);
        assert_ne!(second, lines[1]);
        refused(&[lines[0], &second, lines[2]].join("\n"))
    };
    for (from, to) in [
        (r#"{"revision""#, r#"{"nonsense":1,"revision""#),
        (r#""left_out""#, r#""nonsense""#),
        (r#""body":""#, r#""body":"???"#),
        (r#""number":2"#, r#""number":"x""#),
        (r#""number":2"#, r#""number":99999999999999999999"#),
        (r#""event":"request""#, r#""event":5"#),
    ] {
        let error = damaged(from, to);
        assert!(error.starts_with("line 2: invalid JSON: "), "{error}");
        assert!(!error.contains("line 1"), "{error}");
    }
    assert_eq!(
        damaged(r#""number":2"#, r#""number":1"#),
        "line 2: record 1 follows record 1"
    );
    assert_eq!(
        damaged(r#""number":2"#, r#""number":0"#),
        "line 2: record 0 follows record 1"
    );
    assert_eq!(
        damaged(r#""method":"etcdserverpb.KV/Put""#, r#""method":"a b""#),
        "line 2: invalid method \"a b\""
    );
    assert_eq!(
        damaged(r#""time":"0s""#, r#""time":"soon""#),
        "line 2: invalid time \"soon\""
    );
    assert_eq!(
        damaged(r#""verb":"","path":"""#, r#""verb":"GET","path":"a\n""#),
        r#"line 2: invalid path "a\n""#
    );
    let error = r#"{"error": "the journal has ended early", "code": 14}"#;
    assert!(refused(&format!("{}\n{error}\n", lines[0])).starts_with("line 2: "));
    let long = "x".repeat(1024 * 1024 + 1);
    assert_eq!(
        refused(&format!("{}\n{long}", lines[0])),
        "line 2: more than 1048576 bytes"
    );
    assert!(refused("\u{0}\u{1}").starts_with("line 1: invalid JSON: "));
    let url = ctl_of(&target);
    let without = run(url, "-w json journal");
    assert!(without.stdout.is_empty());
    let without: Vec<_> = lines
        .iter()
        .map(|line| {
            let mut record: Value = serde_json::from_str(line).expect("JSON");
            record.as_object_mut().expect("an object").remove("request");
            record.to_string()
        })
        .collect();
    assert_eq!(
        refused(&without.join("\n")),
        "line 1: the record has no request: read the journal with --requests"
    );
    let missing = Journal::with("").path.with_file_name("nothing");
    let output = run(
        "",
        &format!(
            "journal replay {} --to http://127.0.0.1:1",
            missing.display()
        ),
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_journal_without_its_beginning_needs_a_flag() {
    let text = text_of(&with_puts(&["1", "2", "3", "4"]));
    let lines: Vec<_> = text.lines().collect();
    let target = server();
    let later = Journal::with(&lines[1..].join("\n"));
    assert_eq!(
        later.refused(&target, ""),
        "the records 1 to 1 are missing: --partial replays the others"
    );
    let gap = Journal::with(&[lines[0], lines[3]].join("\n"));
    assert_eq!(
        gap.refused(&target, ""),
        "the records 2 to 3 are missing: --partial replays the others"
    );
    assert_eq!(
        gap.refused(&target, "--after 1"),
        "the records 2 to 3 are missing: --partial replays the others"
    );
    let found = later.replayed(target.endpoint(), "--partial");
    assert_eq!((found.len(), &found[3]), (4, &summary(3, 3, 0, 0)));
    // What is before the first one is not missed.
    let target = server();
    let found = later.replayed(target.endpoint(), "--after 1 --stop-at 3");
    assert_eq!(found[2], summary(2, 2, 0, 0));
}

#[test]
fn a_journal_of_two_stores_is_not_replayed_as_one() {
    let server = with_puts(&["1", "2"]);
    let control = server.control().expect("control");
    control.reset(false).expect("a reset");
    block_on(async {
        let mut client = KvClient::new(channel(server.endpoint()).await);
        client.put(put_of("key", "3")).await.expect("a put");
    });
    let target = self::server();
    let journal = Journal::of(&server);
    assert_eq!(
        journal.refused(&target, ""),
        "the store was replaced after record 2: --after 2 replays the later requests"
    );
    let found = journal.replayed(target.endpoint(), "--after 2");
    assert_eq!(found, [summary(1, 0, 0, 0)]);
    let page = control.journal(&Filter::default(), 0);
    let selection = Selection {
        after: 2,
        ..Selection::default()
    };
    assert_eq!(
        Replay::of_page(&page, &selection).expect("a replay").len(),
        1
    );
}

/// A target that accepts connections and never answers.
#[test]
fn a_target_that_hangs_ends_the_replay() {
    let journal = Journal::of(&with_puts(&["1"]));
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let accepted = thread::spawn(move || silent.accept().expect("a connection"));
    let output = journal.replay(&address.to_string(), "--answer-time 50ms");
    drop(accepted.join());
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(error, "revstore ctl: record 1: no answer within 50ms\n");
    assert!(output.stdout.is_empty());
    // One that closes them.
    let closing = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = closing.local_addr().expect("an address");
    let accepted = thread::spawn(move || drop(closing.accept()));
    let output = journal.replay(&address.to_string(), "");
    accepted.join().expect("a thread");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        error.starts_with("revstore ctl: record 1: no answer: "),
        "{error}"
    );
    for url in [
        "ftp://a:1",
        "127.0.0.1",
        "https://127.0.0.1:1 --ca-file /nothing",
    ] {
        assert_eq!(journal.replay(url, "").status.code(), Some(2), "{url}");
    }
}

/// A replay that is killed leaves a target with the requests until then, and nothing open.
#[test]
fn a_replay_can_be_killed() {
    let journal = Journal::of(&with_puts(&["1", "2", "3"]));
    let target = self::server();
    let control = target.control().expect("control");
    let rule = Rule {
        selector: Selector {
            methods: vec!["Put".to_owned()],
            ..Selector::default()
        },
        trigger: Trigger::Every(2),
        action: Action::BlackHole,
    };
    control.add_fault(rule).expect("a rule");
    let mut replay = Command::new(env!("CARGO_BIN_EXE_revstore"));
    replay.args(["ctl", "journal", "replay"]).arg(&journal.path);
    let mut child = replay
        .args(["--to", target.endpoint()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
    while control.faults()[0].fired == 0 {
        assert!(std::time::Instant::now() < deadline);
        thread::yield_now();
    }
    child.kill().expect("a process");
    child.wait().expect("an end");
    let mut written = String::new();
    let mut out = child.stdout.take().expect("a pipe");
    out.read_to_string(&mut written).expect("UTF-8");
    assert_eq!(written, "");
    assert_eq!(target.engine().current_revision(), Revision(2));
    control.clear_faults(None).expect("no rules");
    let found = journal.replayed(target.endpoint(), "--after 1");
    assert_eq!(found, [summary(2, 0, 0, 0)]);
}

#[test]
fn a_target_with_tls_is_verified() {
    let authority = CertificateAuthority::new();
    let certificate = authority.issue("server", "127.0.0.1");
    let flags = [
        "--listen-client-urls=https://127.0.0.1:0",
        "--advertise-client-urls=https://127.0.0.1:0",
        ANY_PORT[2],
    ];
    let flags = flags.map(str::to_owned).into_iter().chain([
        format!("--cert-file={}", certificate.cert_file.display()),
        format!("--key-file={}", certificate.key_file.display()),
    ]);
    let invocation = revstore::parse(flags.map(Into::into), []).expect("flags");
    let revstore::Invocation::Serve { config, .. } = invocation else {
        panic!("expected a server");
    };
    let target = Server::builder().config(*config).start().expect("a server");
    let url = format!("https://{}", target.address().expect("an address"));
    let journal = Journal::of(&with_puts(&["1", "2"]));
    let ca = format!("--ca-file {}", authority.file().display());
    assert_eq!(journal.replayed(&url, &ca), [summary(2, 0, 0, 0)]);
    let other = CertificateAuthority::new();
    let other = format!("--ca-file {}", other.file().display());
    let output = journal.replay(&url, &other);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    let expected = "revstore ctl: cannot connect: invalid peer certificate: ";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn thousands_of_records_are_replayed() {
    let text = text_of(&with_puts(&["1"]));
    let line: Value = serde_json::from_str(text.trim()).expect("JSON");
    let records = (1..=2_000).map(|number| {
        let mut record = line.clone();
        record["number"] = number.into();
        record["request"]["at"] = (number + 1).into();
        record["request"]["revision"] = (number + 1).into();
        format!("{record}\n")
    });
    let journal = Journal::with(&records.collect::<String>());
    let target = server();
    let found = journal.replayed(target.endpoint(), "");
    assert_eq!(found, [summary(2_000, 0, 0, 0)]);
    assert_eq!(target.engine().current_revision(), Revision(2_001));
}
