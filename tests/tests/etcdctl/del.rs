//! `etcdctl del`.

use revstore_tests::on_every_server;
use revstore_tests::server::Servers;

use crate::get::with_keys;

on_every_server! {
    needs: [Etcdctl];
    del_returns_the_number_of_deleted_keys,
    del_prefix_deletes_in_one_revision,
    del_of_an_empty_range_deletes_nothing,
    del_from_key_deletes_to_the_end,
    del_prev_kv_prints_the_deleted_pairs,
    history_stays_readable_after_deletion,
    del_of_an_empty_key_fails,
}

fn del_returns_the_number_of_deleted_keys(servers: &Servers) {
    with_keys(servers).replay(
        r#"
        $ del b
        1
        $ get b
        # A delete without a match creates no revision.
        $ del b
        0
        $ del absent -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":6,"raft_term":2}}
        # A key that is created again starts with version 1.
        $ put b again
        OK
        $ get b -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2},"kvs":[{"key":"Yg==","create_revision":7,"mod_revision":7,"version":1,"value":"YWdhaW4="}],"count":1}
        "#,
    );
}

fn del_prefix_deletes_in_one_revision(servers: &Servers) {
    with_keys(servers).replay(
        r#"
        # All keys are deleted in one revision.
        $ del a/ --prefix -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":6,"raft_term":2},"deleted":3}
        $ get '' --prefix
        b
        z
        $ del a/ --prefix
        0
        "#,
    );
}

fn del_of_an_empty_range_deletes_nothing(servers: &Servers) {
    with_keys(servers).replay(
        "
        # The note about v3.6 comes from etcdctl.
        $ del a/1 a/3
        2
        ! In etcd v3.6, the operation will be suspended for a few seconds to provide the user time to verify range.
        $ get '' --prefix --print-value-only
        w
        z
        # A range is empty if its end is not greater than its start.
        $ del b b
        0
        ! In etcd v3.6, the operation will be suspended for a few seconds to provide the user time to verify range.
        $ del b a
        0
        ! In etcd v3.6, the operation will be suspended for a few seconds to provide the user time to verify range.
        ",
    );
}

fn del_from_key_deletes_to_the_end(servers: &Servers) {
    with_keys(servers).replay(
        "
        $ del a/3 --from-key
        2
        $ get '' --prefix --print-value-only
        x
        y
        ",
    );
}

fn del_prev_kv_prints_the_deleted_pairs(servers: &Servers) {
    with_keys(servers).replay(
        r#"
        $ del a/1 --prev-kv
        1
        a/1
        x
        $ del a/1 --prev-kv
        0
        $ put a/2 new
        OK
        $ del a/ --prefix --prev-kv -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":8,"raft_term":2},"deleted":2,"prev_kvs":[{"key":"YS8y","create_revision":3,"mod_revision":7,"version":2,"value":"bmV3"},{"key":"YS8z","create_revision":4,"mod_revision":4,"version":1,"value":"dw=="}]}
        $ del b --prev-kv -w fields
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 9
        "RaftTerm" : 2
        "Deleted" : 1
        "PrevKey" : "b"
        "PrevCreateRevision" : 5
        "PrevModRevision" : 5
        "PrevVersion" : 1
        "PrevValue" : "z"
        "PrevLease" : 0
        "#,
    );
}

fn history_stays_readable_after_deletion(servers: &Servers) {
    with_keys(servers).replay(
        "
        $ del '' --from-key
        4
        $ get '' --prefix
        # The history of deleted keys stays readable.
        $ get '' --prefix --rev=5 --print-value-only
        x
        y
        w
        z
        ",
    );
}

/// Errors returned by the server. Argument errors of `etcdctl` are not tested.
fn del_of_an_empty_key_fails(servers: &Servers) {
    with_keys(servers).replay(
        "
        $ del ''
        ! Error: etcdserver: key is not provided
        ? 1
        ",
    );
}
