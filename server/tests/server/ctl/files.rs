//! Stores in files of the caller: `store dump`, `store load` and `store import`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use revstore::control::store::DumpForm;
use revstore::engine::{KeyRange, LeaseId, Op, Put, Revision, Txn};
use revstore::{Config, PersistOptions, Server};
use revstore_proto::etcdserverpb::{
    AuthUserAddRequest, AuthUserListRequest, SnapshotRequest, auth_client::AuthClient,
    maintenance_client::MaintenanceClient,
};
use serde_json::json;

use super::{channel, ctl, ctl_of, options, refused, run, server, watch_key};

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

/// Saves a snapshot as `etcdctl snapshot save` does.
pub(super) fn snapshot(server: &Server) -> Vec<u8> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut client = MaintenanceClient::new(channel(server.endpoint()).await);
        let chunks = client.snapshot(SnapshotRequest {}).await;
        let mut chunks = chunks.expect("a stream").into_inner();
        let mut file = Vec::new();
        while let Some(chunk) = chunks.message().await.expect("a chunk") {
            file.extend_from_slice(&chunk.blob);
        }
        file
    })
}

#[tokio::test]
async fn a_dump_is_loaded_into_another_server() {
    let (from, to) = (server(), server());
    let engine = from.engine();
    let lease = engine.grant(LeaseId::new(7), 60).expect("a lease").id;
    engine
        .put_with(&Put::new("session", "\0\u{ff}").attached_to(lease))
        .expect("a put");
    engine.put("key", "1").expect("a put");
    engine.put("key", "2").expect("a put");
    engine
        .delete(&KeyRange::one("session"))
        .expect("a deletion");
    engine
        .put_with(&Put::new("kept", "").attached_to(lease))
        .expect("a put");
    let mut users = AuthClient::new(channel(from.endpoint()).await);
    let ann = AuthUserAddRequest {
        name: "ann".to_owned(),
        password: "secret".to_owned(),
        ..AuthUserAddRequest::default()
    };
    users.user_add(ann).await.expect("a user");
    let control = from.control().expect("control");
    control.advance(Duration::from_secs(20)).expect("time");
    let dir = tempfile::tempdir().expect("a directory");
    for (flag, name) in [("", "text"), ("--binary", "binary")] {
        let file = path(dir.path(), name);
        let (from_url, to_url) = (ctl_of(&from).to_owned(), ctl_of(&to).to_owned());
        let mut events = watch_key(channel(to.endpoint()).await).await;
        let dumped = file.clone();
        tokio::task::spawn_blocking(move || {
            let written = ctl(&from_url, &format!("store dump {dumped} {flag}")).remove(0);
            let bytes = fs::metadata(&dumped).expect("the dump").len();
            let expected = json!({"file": dumped, "bytes": bytes, "revision": 6, "time": "20s"});
            assert_eq!(written, expected);
            let loaded = ctl(&to_url, &format!("store load {dumped}")).remove(0);
            assert_eq!(loaded["revision"], 6);
        })
        .await
        .expect("the command line");
        let received = events.message().await;
        assert!(
            received.is_err(),
            "streams of the old store end: {received:?}"
        );
        let loaded = to.engine();
        assert_eq!(loaded.get("key"), engine.get("key"));
        assert_eq!(
            loaded.get_at("session", Revision(2)).expect("history"),
            engine.get_at("session", Revision(2)).expect("history")
        );
        let (leases, _) = to.control().expect("control").leases(10);
        assert_eq!(leases[0].status.remaining, Duration::from_secs(40));
        let mut users = AuthClient::new(channel(to.endpoint()).await);
        let listed = users.user_list(AuthUserListRequest {}).await;
        assert_eq!(listed.expect("users").into_inner().users, ["ann"]);
    }
    // What was loaded lives on by the clock of its server.
    let time = Duration::from_secs(40);
    to.control().expect("control").advance(time).expect("time");
    assert!(to.engine().get("kept").is_none());
    let names: Vec<_> = fs::read_dir(dir.path()).expect("files").collect();
    assert_eq!(names.len(), 2, "no partial file stays: {names:?}");
}

#[test]
fn dumps_go_through_standard_output_and_input() {
    let (from, to) = (server(), server());
    from.engine().put("key", "value").expect("a put");
    let dump = run(ctl_of(&from), "-w json store dump -");
    assert_eq!((dump.status.code(), &*dump.stderr), (Some(0), &b""[..]));
    let text = String::from_utf8(dump.stdout.clone()).expect("UTF-8");
    assert!(
        text.starts_with("{\"dump\":{\"version\":1,\"revision\":2"),
        "{text}"
    );
    assert!(text.ends_with("}}\n"), "{text}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_revstore"));
    command.args(["ctl", "store", "load", "-", "--url", ctl_of(&to)]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut input = child.stdin.take().expect("an input");
    input.write_all(&dump.stdout).expect("a reader");
    drop(input);
    let output = child.wait_with_output().expect("an exit status");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"revision  2\ntime      0s\n");
    assert!(to.engine().get("key").is_some());
}

#[test]
fn snapshots_of_etcd_are_imported() {
    let (from, to) = (server(), server());
    from.engine().put("key", "value").expect("a put");
    let dir = tempfile::tempdir().expect("a directory");
    let file = path(dir.path(), "snapshot.db");
    fs::write(&file, snapshot(&from)).expect("a file");
    let imported = ctl(ctl_of(&to), &format!("store import {file}"));
    assert_eq!(imported, [json!({"revision": 2, "time": "0s"})]);
    assert_eq!(to.engine().get("key"), from.engine().get("key"));
    let error = refused(ctl_of(&to), &format!("store load {file}"), 1);
    assert!(error.contains("the dump: line 1: "), "{error}");
}

/// Files that are cut off or changed at any place are refused, and the store and its watches stay.
#[test]
fn damaged_files_change_nothing() {
    let server = server();
    let control = server.control().expect("control");
    let engine = server.engine();
    let lease = engine.grant(LeaseId::new(7), 60).expect("a lease").id;
    for key in ["a", "b", "a"] {
        engine
            .put_with(&Put::new(key, "value").attached_to(lease))
            .expect("a put");
    }
    let write = |form| {
        let mut dump = Vec::new();
        control.dump(form, &mut dump).expect("a dump");
        dump
    };
    let import = snapshot(&server);
    let check = |is_import: bool, file: &[u8], what: &str| {
        let loaded = if is_import {
            control.import(file)
        } else {
            control.load(file)
        };
        let error = loaded.expect_err(what);
        assert!(
            matches!(error, revstore::control::ControlError::Damaged(_)),
            "{what}: {error}"
        );
    };
    let mut random = fastrand::Rng::with_seed(18);
    for (is_import, file) in [
        (false, write(DumpForm::Text)),
        (false, write(DumpForm::Binary)),
        (true, import),
    ] {
        check(is_import, b"", "nothing");
        for _ in 0..if is_import { 40 } else { 400 } {
            let end = random.usize(..file.len() - 1);
            check(is_import, &file[..end], &format!("cut at {end}"));
            let mut flipped = file.clone();
            let (at, bit) = (random.usize(..file.len()), random.u32(..8));
            flipped[at] ^= 1 << bit;
            check(is_import, &flipped, &format!("bit {bit} of {at}"));
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = path(dir.path(), "half");
    fs::write(&file, &write(DumpForm::Text)[..100]).expect("a file");
    for verb in ["load", "import"] {
        refused(ctl_of(&server), &format!("store {verb} {file}"), 1);
    }
    refused(ctl_of(&server), "store load /nothing/at/all", 1);
    refused(
        ctl_of(&server),
        &format!("store load {}", dir.path().display()),
        1,
    );
    assert_eq!(server.engine().current_revision(), Revision(4));
    server.engine().put("later", "").expect("a put");
    assert_eq!(
        engine.current_revision(),
        Revision(5),
        "the engine is the same"
    );
}

/// A refused or failed dump leaves the earlier file as it was.
#[test]
fn a_dump_replaces_a_file_only_as_a_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = path(dir.path(), "dump");
    fs::write(&file, "earlier").expect("a file");
    let url = {
        let server = server();
        ctl_of(&server).to_owned()
    };
    refused(&url, &format!("store dump {file}"), 1);
    assert_eq!(fs::read(&file).expect("the file"), b"earlier");
    let server = server();
    refused(
        ctl_of(&server),
        &format!("store dump {}/no/dir", dir.path().display()),
        1,
    );
    ctl(ctl_of(&server), &format!("store dump {file}"));
    assert!(
        fs::read(&file)
            .expect("the file")
            .starts_with(b"{\"dump\":")
    );
    assert_eq!(fs::read_dir(dir.path()).expect("files").count(), 1);
    // Outputs that are no regular files.
    assert_eq!(
        run(ctl_of(&server), "store dump /dev/null").status.code(),
        Some(0)
    );
    refused(ctl_of(&server), "store dump /dev/full", 1);
}

/// Each dump is of one revision while writers run: both keys of each transaction have the same value.
#[test]
fn dumps_beside_writers_are_of_one_revision() {
    let server = server();
    let control = server.control().expect("control");
    let engine = server.engine();
    let is_done = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let is_done = is_done.clone();
        move || {
            // Not without end, because each dump has the history.
            for number in 0..5_000 {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let value = number.to_string();
                let put = |key: &'static str| Op::Put(Put::new(key, value.clone()));
                let txn = Txn::new().and_then([put("left"), put("right")]);
                engine.txn(&txn).expect("a transaction");
            }
        }
    });
    let other = super::server();
    for _ in 0..20 {
        let mut dump = Vec::new();
        let point = control.dump(DumpForm::Text, &mut dump).expect("a dump");
        let loaded = other
            .control()
            .expect("control")
            .load(&dump)
            .expect("a load");
        assert_eq!(loaded.revision, point.revision);
        let engine = other.engine();
        let value = |key: &'static str| engine.get(key).map(|kv| kv.value().to_vec());
        assert_eq!(value("left"), value("right"));
    }
    is_done.store(true, Ordering::Relaxed);
    writer.join().expect("the writer");
}

#[test]
fn a_server_with_a_journal_is_dumped_but_not_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = Config::default();
    config.persist = Some(PersistOptions::default());
    config.listen_peer_urls = Vec::new();
    config.data_dir = Some(dir.path().join("data"));
    config.control = Some(options());
    let journaled = Server::builder()
        .config(config)
        .listen([revstore::ListenUrl::localhost(0)]);
    let journaled = journaled.start().expect("a server");
    journaled.engine().put("key", "value").expect("a put");
    let file = path(dir.path(), "dump");
    ctl(ctl_of(&journaled), &format!("store dump {file} --binary"));
    let error = refused(ctl_of(&journaled), &format!("store load {file}"), 1);
    assert_eq!(
        error,
        "revstore ctl: the store of a server with --persist cannot be replaced: fork it instead\n"
    );
    let other = server();
    ctl(ctl_of(&other), &format!("store load {file}"));
    assert!(other.engine().get("key").is_some());
}
