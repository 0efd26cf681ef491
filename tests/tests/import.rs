//! Snapshots of a real etcd are imported with their whole history, leases, users and roles.

use revstore::engine::{Engine, ManualClock, Revision};
use revstore_grpc::Image;
use revstore_tests::etcdctl::Etcdctl;
use revstore_tests::server::etcd::Etcd;
use revstore_tests::server::revstore::Revstore;
use revstore_tests::server::{Endpoint as _, Options};
use revstore_tests::tools::{self, Tool};

const AS_ROOT: &str = "--user=root:r";

fn run(ctl: &Etcdctl, arguments: &[&str]) -> String {
    let output = ctl.run(arguments, "").expect("etcdctl runs");
    assert_eq!(output.code, Some(0), "{arguments:?}: {output:?}");
    output.stdout
}

/// Writes enough keys for a tree of several pages, and compacts some of their versions.
fn fill(ctl: &Etcdctl) {
    // A transaction has up to 128 operations.
    let puts = |round: usize, first: usize| {
        let put = |number: usize| {
            let number = first + number;
            format!("put key/{:03} value-{round}-{number}\n", number % 300)
        };
        let puts: String = (0..100).map(put).collect();
        let output = ctl
            .run(&["txn"], &format!("\n{puts}\n\n"))
            .expect("etcdctl runs");
        assert_eq!(output.code, Some(0), "{output:?}");
    };
    for round in 0..4 {
        for first in [0, 100, 200] {
            puts(round, first);
        }
        run(ctl, &["del", "key/1", "--prefix"]);
        run(ctl, &["put", "large", &"x".repeat(20_000)]);
    }
    let granted = run(ctl, &["lease", "grant", "100000"]);
    let lease = format!("--lease={}", granted.split(' ').nth(1).expect("an id"));
    run(ctl, &["put", "leased", "value", &lease]);
    run(ctl, &["lease", "grant", "5000"]);
    // The revision of a deletion of many keys: their tombstones stay.
    run(ctl, &["compact", "10"]);
    for command in [
        &["user", "add", "root:r"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "writer"],
        &["role", "grant-permission", "writer", "readwrite", "leased"],
        &["role", "grant-permission", "writer", "read", "key/", "key0"],
        &["user", "add", "ann:a"],
        &["user", "add", "none", "--no-password"],
        &["user", "grant-role", "ann", "writer"],
        &["auth", "enable"],
    ] {
        run(ctl, command);
    }
}

#[test]
fn a_snapshot_of_a_real_etcd_is_imported_with_its_history() {
    let name = "a_snapshot_of_a_real_etcd_is_imported_with_its_history";
    if !tools::available(name, &[Tool::Etcd, Tool::Etcdctl]) {
        return;
    }
    let etcd = Etcd::start(&Options::default()).expect("a real etcd");
    let theirs = Etcdctl::new(etcd.address()).expect("etcdctl");
    fill(&theirs);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("snapshot.db");
    let snapshot = [AS_ROOT, "snapshot", "save", file.to_str().expect("UTF-8")];
    run(&theirs, &snapshot);
    let builder = Engine::builder().clock(ManualClock::new());
    let image = Image::import(&file, builder).expect("a snapshot");
    assert_eq!(image.engine.compacted_revision(), Some(Revision(10)));
    assert!(image.state.is_auth_enabled());
    assert_eq!(image.engine.stats().leases, 2);
    let last = image.engine.current_revision().0;

    // A server with the same contents.
    let flag = format!("--import={}", file.to_str().expect("UTF-8"));
    let ours = Revstore::start_with(&Options::default(), &[&flag]).expect("a server");
    let ctl = Etcdctl::new(ours.address()).expect("etcdctl");
    let same = |arguments: &[&str]| {
        let outputs = [&theirs, &ctl].map(|ctl| {
            let output = ctl
                .run(&[&[AS_ROOT], arguments].concat(), "")
                .expect("etcdctl runs");
            let printed = format!("{:?} {} {}", output.code, output.stdout, output.stderr);
            printed.replace(ctl.endpoint(), "ADDRESS")
        });
        assert_eq!(outputs[0], outputs[1], "{arguments:?}");
    };
    for revision in 8..=last + 1 {
        let revision = format!("--rev={revision}");
        same(&[
            "get",
            "",
            "--from-key",
            "--write-out=fields",
            &revision,
            "--limit=2000",
        ]);
    }
    same(&["endpoint", "hashkv"]);
    same(&["lease", "list"]);
    same(&["user", "list"]);
    same(&["user", "get", "ann", "--detail"]);
    same(&["role", "list"]);
    same(&["role", "get", "writer"]);
    same(&["put", "new", "value"]);
    same(&["get", "new", "--write-out=fields"]);
    let as_ann = ["--user=ann:a", "put", "leased", "other", "--ignore-lease"];
    assert_eq!(run(&ctl, &as_ann), "OK\n");
    let denied = ctl
        .run(&["--user=ann:a", "get", "new"], "")
        .expect("etcdctl runs");
    assert!(denied.stderr.contains("permission denied"), "{denied:?}");
}
