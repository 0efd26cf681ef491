//! Tests that `etcdctl` restores a snapshot of revstore into a real etcd (MT-6).

use std::path::Path;

use revstore::engine::{Engine, KeyRange, Revision};
use revstore_tests::etcdctl::Etcdctl;
use revstore_tests::server::etcd::{DATA, Etcd};
use revstore_tests::server::revstore::Revstore;
use revstore_tests::server::{ADVERTISED_PEER_URL, Endpoint as _, NAME, Options};
use revstore_tests::tools::{self, Tool};

#[test]
fn mt_6_a_snapshot_can_be_restored_into_etcd() {
    if !tools::available(
        "mt_6_a_snapshot_can_be_restored_into_etcd",
        &[Tool::Etcd, Tool::Etcdctl],
    ) {
        return;
    }
    let ours = Revstore::start(&Options::default()).unwrap();
    let ctl = Etcdctl::new(ours.address()).unwrap();
    let revision = fill(&ours.server().engine());
    let lease = grant(&ctl);
    set_auth_up(&ctl, &lease);
    let data = tempfile::tempdir().unwrap();
    let learner = ["member", "add", "l1", "--learner", "--peer-urls=http://a:1"];
    run(&ctl, &learner);
    let file = data.path().join("snapshot.db");
    run(&ctl, &["snapshot", "save", path(&file)]);

    // The status has four fields: hash, revision, number of keys in all buckets, size.
    let status = run(&ctl, &["snapshot", "status", path(&file)]);
    let status: Vec<_> = status.trim().split(", ").collect();
    assert_eq!(status[1], (revision + 1).to_string(), "{status:?}");

    // The members are in the file. A restore creates a cluster with members of its own.
    let contents = std::fs::read(&file).expect("the file");
    for pair in [
        r#""peerURLs":["http://a:1"],"isLearner":true}"#,
        r#""learners":["#,
    ] {
        assert!(
            contents.windows(pair.len()).any(|it| it == pair.as_bytes()),
            "{pair}"
        );
    }
    restore(&ctl, &file, &data.path().join(DATA));
    let etcd = Etcd::start_on(data).unwrap();
    let theirs = Etcdctl::new(etcd.address()).unwrap();
    let same = |arguments: &[&str]| {
        let outputs = [&ctl, &theirs].map(|ctl| {
            let output = ctl.run(&[&AS_ROOT, arguments].concat(), "").unwrap();
            let printed = format!("{:?} {} {}", output.code, output.stdout, output.stderr);
            printed.replace(ctl.endpoint(), "ADDRESS")
        });
        assert_eq!(outputs[0], outputs[1], "{arguments:?}");
    };
    // `set_auth_up` creates the newest revision, `revision + 1`.
    for revision in [
        COMPACTED - 1,
        COMPACTED,
        COMPACTED + 1,
        4_000,
        revision,
        revision + 1,
        revision + 2,
    ] {
        let rev = format!("--rev={revision}");
        same(&[
            "get",
            "",
            "--from-key",
            "--write-out=json",
            &rev,
            "--limit=100",
        ]);
        same(&["get", "", "--from-key", &rev]);
    }
    same(&["endpoint", "hashkv"]);
    same(&["lease", "list"]);
    same(&["get", "leased", "--write-out=fields"]);
    same(&["user", "list"]);
    same(&["user", "get", "ann", "--detail"]);
    same(&["role", "list"]);
    let members = run(&theirs, &["member", "list"]);
    assert!(!members.contains("unstarted"), "{members}");
    same(&["put", "new", "value"]);
    // The snapshot includes the passwords.
    let as_ann = ["--user=ann:a", "put", "leased", "other", "--ignore-lease"];
    assert_eq!(theirs.run(&as_ann, "").unwrap().stdout, "OK\n");
    let denied = theirs.run(&["--user=ann:a", "get", "new"], "").unwrap();
    assert!(denied.stderr.contains("permission denied"), "{denied:?}");
}

/// The compacted revision.
const COMPACTED: i64 = 3_000;

const AS_ROOT: [&str; 1] = ["--user=root:r"];

/// Writes enough keys for a B+tree of several pages, with versions below and above the compacted revision.
/// Returns the newest revision.
fn fill(engine: &Engine) -> i64 {
    for n in 0..2_900 {
        engine
            .put(format!("key/{:03}", n % 700), format!("{n}"))
            .expect("a valid put");
    }
    for n in 0..200 {
        engine
            .delete(&KeyRange::one(format!("key/{n:03}")))
            .expect("a store that accepts writes");
    }
    engine
        .put("large", vec![b'x'; 300_000])
        .expect("a valid put");
    for n in 0..2_000 {
        engine
            .put(format!("key/{:03}", n % 900), format!("again {n}"))
            .expect("a valid put");
    }
    engine
        .compact(Revision(COMPACTED))
        .expect("a past revision")
        .run();
    engine.current_revision().0
}

/// Grants a lease and returns its id in the hexadecimal form of `etcdctl`.
fn grant(ctl: &Etcdctl) -> String {
    let granted = run(ctl, &["lease", "grant", "100000"]);
    granted.split(' ').nth(1).expect("an id").to_owned()
}

fn set_auth_up(ctl: &Etcdctl, lease: &str) {
    let lease = format!("--lease={lease}");
    for command in [
        &["put", "leased", "value", &lease][..],
        &["user", "add", "root:r"],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "writer"],
        &["role", "grant-permission", "writer", "readwrite", "leased"],
        &["user", "add", "ann:a"],
        &["user", "grant-role", "ann", "writer"],
        &["auth", "enable"],
    ] {
        let output = ctl.run(command, "").expect("etcdctl runs");
        assert_eq!(output.code, Some(0), "{command:?}: {output:?}");
    }
}

fn restore(ctl: &Etcdctl, file: &Path, data: &Path) {
    let cluster = format!("{NAME}={ADVERTISED_PEER_URL}");
    let restore = [
        "snapshot",
        "restore",
        path(file),
        "--name",
        NAME,
        "--initial-cluster",
        &cluster,
        "--initial-advertise-peer-urls",
        ADVERTISED_PEER_URL,
        "--data-dir",
        path(data),
    ];
    run(ctl, &restore);
}

fn run(ctl: &Etcdctl, arguments: &[&str]) -> String {
    // Some commands send no request, and the lease is granted before authentication is enabled.
    let is_offline = matches!(arguments, ["snapshot", "status" | "restore", ..]);
    let user = if is_offline || arguments[0] == "lease" {
        &[][..]
    } else {
        &AS_ROOT
    };
    let output = ctl
        .run(&[user, arguments].concat(), "")
        .expect("etcdctl runs");
    assert_eq!(output.code, Some(0), "{arguments:?}: {output:?}");
    output.stdout
}

fn path(path: &Path) -> &str {
    path.to_str()
        .expect("temporary directories have UTF-8 names")
}
