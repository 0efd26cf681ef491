//! `etcdctl compaction`, and reads after it.

use revstore_tests::etcdctl::Session;
use revstore_tests::on_every_server;
use revstore_tests::server::Servers;

on_every_server! {
    needs: [Etcdctl];
    the_compacted_revision_stays_readable,
    compaction_removes_deleted_keys,
    watches_below_the_compacted_revision_are_cancelled,
    physical_compaction_keeps_current_values,
    compaction_fails_at_future_and_compacted_revisions,
}

/// Starts a server with three values of `k` at revisions 2 to 4, and `gone` put at 5 and deleted at 6.
fn with_history(servers: &Servers) -> Session {
    let session = Session::fresh(servers);
    session.replay(
        "
        $ put k 1
        OK
        $ put k 2
        OK
        $ put k 3
        OK
        $ put gone x
        OK
        $ del gone
        1
        ",
    );
    session
}

fn the_compacted_revision_stays_readable(servers: &Servers) {
    with_history(servers).replay(
        r#"
        $ compaction 3
        compacted revision 3
        $ get k --rev=2
        ! Error: etcdserver: mvcc: required revision has been compacted
        ? 1
        $ get absent --rev=1 --count-only -w fields
        ! Error: etcdserver: mvcc: required revision has been compacted
        ? 1
        $ get k --rev=3
        k
        2
        $ get k --rev=4
        k
        3
        # A compaction creates no revision.
        $ get k -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":6,"raft_term":2},"kvs":[{"key":"aw==","create_revision":2,"mod_revision":4,"version":3,"value":"Mw=="}],"count":1}
        "#,
    );
}

fn compaction_removes_deleted_keys(servers: &Servers) {
    with_history(servers).replay(
        "
        $ compact 6
        compacted revision 6
        $ get '' --prefix
        k
        3
        $ get gone --rev=5
        ! Error: etcdserver: mvcc: required revision has been compacted
        ? 1
        $ put gone back --prev-kv
        OK
        $ get gone --rev=6
        $ get gone
        gone
        back
        ",
    );
}

fn watches_below_the_compacted_revision_are_cancelled(servers: &Servers) {
    with_history(servers).replay(
        r#"
        $ compact 4
        compacted revision 4
        $ watch k --rev=3
        ! watch was canceled (etcdserver: mvcc: required revision has been compacted)
        ! Error: watch is canceled by the server
        ? 5
        $ watch k --rev=3 -w json
        {"Header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"raft_term":2},"Events":[],"CompactRevision":4,"Canceled":true,"Created":false}
        ! watch was canceled (etcdserver: mvcc: required revision has been compacted)
        ! Error: watch is canceled by the server
        ? 5
        # A watch from the compacted revision delivers the versions that the compaction kept.
        & watch '' --prefix --rev=4
        PUT
        k
        3
        PUT
        gone
        x
        DELETE
        gone

        "#,
    );
}

fn physical_compaction_keeps_current_values(servers: &Servers) {
    with_history(servers).replay(
        r"
        $ compact 6 --physical
        compacted revision 6
        $ get k
        k
        3
        ",
    );
}

fn compaction_fails_at_future_and_compacted_revisions(servers: &Servers) {
    with_history(servers).replay(
        "
        $ compact 7
        ! Error: etcdserver: mvcc: required revision is a future revision
        ? 1
        $ compact 6
        compacted revision 6
        $ compact 6
        ! Error: etcdserver: mvcc: required revision has been compacted
        ? 1
        $ compact 5
        ! Error: etcdserver: mvcc: required revision has been compacted
        ? 1
        $ compact -- -1
        ! Error: etcdserver: mvcc: required revision has been compacted
        ? 1
        ",
    );
}
