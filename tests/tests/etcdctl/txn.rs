//! `etcdctl txn`. Its input has three parts, each followed by an empty line: the compares, the operations if
//! all compares are true, and the operations otherwise.
//!
//! Compares of leases are not tested: etcdctl 3.5 panics for every input `lease("key") = "..."`.

use revstore_tests::etcdctl::Session;
use revstore_tests::on_every_server;
use revstore_tests::server::Servers;

on_every_server! {
    needs: [Etcdctl];
    txn_compares_values,
    txn_compares_versions,
    txn_compares_create_revisions,
    txn_compares_mod_revisions,
    absent_keys_have_version_and_revisions_zero,
    all_compares_must_be_true,
    operations_read_earlier_writes,
    txn_writes_in_one_revision,
    txn_without_a_change_creates_no_revision,
    txn_interactive_prompts_for_each_part,
    txn_prints_the_fields_of_all_responses,
    a_failed_txn_changes_nothing,
}

fn txn_compares_values(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put k b
        OK
        $ txn
        < value("k") = "b"
        <
        < put k c
        < get k
        <
        < get other
        <
        SUCCESS

        OK

        k
        c
        $ txn
        < value("k") = "b"
        <
        < put k d
        <
        < get k
        < del k
        <
        FAILURE

        k
        c

        1
        $ put k b
        OK
        $ txn
        < value("k") > "a"
        < value("k") < "ba"
        < value("k") != "c"
        <
        <
        <
        SUCCESS
        $ txn
        < val("k") > "b"
        <
        <
        <
        FAILURE
        "#,
    );
}

fn txn_compares_versions(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put k 1
        OK
        $ put k 2
        OK
        $ txn
        < version("k") = "2"
        < ver("k") > "1"
        < version("k") < "3"
        < version("k") != "1"
        <
        < put k 3
        <
        <
        SUCCESS

        OK
        $ txn
        < version("k") = "2"
        <
        <
        < get k
        <
        FAILURE

        k
        3
        "#,
    );
}

fn txn_compares_create_revisions(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put other x
        OK
        $ put k 1
        OK
        $ put k 2
        OK
        $ txn
        < create("k") = "3"
        < c("k") > "2"
        < create("k") < "4"
        <
        < get k
        <
        <
        SUCCESS

        k
        2
        $ txn
        < create("k") = "4"
        <
        < get k
        <
        < get other
        <
        FAILURE

        other
        x
        "#,
    );
}

fn txn_compares_mod_revisions(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put k 1
        OK
        $ put k 2
        OK
        $ txn
        < mod("k") = "3"
        < m("k") > "2"
        < mod("k") < "4"
        <
        < put k 3
        <
        <
        SUCCESS

        OK
        # The second of two equal compare-and-swap transactions fails.
        $ txn
        < mod("k") = "3"
        <
        < put k 4
        <
        < get k
        <
        FAILURE

        k
        3
        "#,
    );
}

fn absent_keys_have_version_and_revisions_zero(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        # An absent key has version 0 and revisions 0.
        $ txn
        < version("absent") = "0"
        < create("absent") = "0"
        < mod("absent") < "1"
        <
        < put created v
        <
        <
        SUCCESS

        OK
        # A compare of the value of an absent key is false, even `!=`.
        $ txn
        < value("absent") != "x"
        <
        <
        <
        FAILURE
        "#,
    );
}

fn all_compares_must_be_true(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put k v
        OK
        $ txn
        < value("k") = "v"
        < version("k") = "2"
        <
        < put k success
        <
        < put k failure
        <
        FAILURE

        OK
        $ get k
        k
        failure
        # An empty list of compares is true.
        $ txn
        <
        < get k
        <
        <
        SUCCESS

        k
        failure
        "#,
    );
}

fn operations_read_earlier_writes(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put k old
        OK
        $ txn
        <
        < get k
        < put k new --prev-kv
        < get k
        < put other "two words"
        < get o --prefix
        < del absent --prefix
        <
        <
        SUCCESS

        k
        old

        OK
        k
        old

        k
        new

        OK

        other
        two words

        0
        "#,
    );
}

fn txn_writes_in_one_revision(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ txn -w json
        <
        < put a 1
        < put b 2
        < get a
        <
        <
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":2,"raft_term":2},"succeeded":true,"responses":[{"Response":{"response_put":{"header":{"revision":2}}}},{"Response":{"response_put":{"header":{"revision":2}}}},{"Response":{"response_range":{"header":{"revision":2},"kvs":[{"key":"YQ==","create_revision":2,"mod_revision":2,"version":1,"value":"MQ=="}],"count":1}}}]}
        # The header of an inner response has the old revision until an operation changes a key.
        $ txn -w json
        < create("a") = "0"
        <
        <
        < get a --count-only
        < del a b
        < del b --prev-kv
        < get a
        <
        ! In etcd v3.6, the operation will be suspended for a few seconds to provide the user time to verify range.
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":3,"raft_term":2},"responses":[{"Response":{"response_range":{"header":{"revision":2},"count":1}}},{"Response":{"response_delete_range":{"header":{"revision":3},"deleted":1}}},{"Response":{"response_delete_range":{"header":{"revision":3},"deleted":1,"prev_kvs":[{"key":"Yg==","create_revision":2,"mod_revision":2,"version":1,"value":"Mg=="}]}}},{"Response":{"response_range":{"header":{"revision":3}}}}]}
        "#,
    );
}

fn txn_without_a_change_creates_no_revision(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ txn -w json
        <
        <
        <
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":1,"raft_term":2},"succeeded":true}
        $ txn -w json
        < version("k") > "0"
        <
        < put k v
        <
        < get k
        < del k
        <
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":1,"raft_term":2},"responses":[{"Response":{"response_range":{"header":{"revision":1}}}},{"Response":{"response_delete_range":{"header":{"revision":1}}}}]}
        "#,
    );
}

fn txn_interactive_prompts_for_each_part(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ txn --interactive
        < version("k") = "0"
        <
        < put k v
        < get k
        <
        < get k
        <
        compares:
        success requests (get, put, del):
        failure requests (get, put, del):
        SUCCESS

        OK

        k
        v
        "#,
    );
}

fn txn_prints_the_fields_of_all_responses(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put k 1
        OK
        $ txn -w fields
        <
        < put k 2 --prev-kv
        < get k
        < del absent
        <
        <
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 3
        "RaftTerm" : 2
        "Succeeded" : true
        "ClusterID" : 0
        "MemberID" : 0
        "Revision" : 3
        "RaftTerm" : 0
        "PrevKey" : "k"
        "PrevCreateRevision" : 2
        "PrevModRevision" : 2
        "PrevVersion" : 1
        "PrevValue" : "1"
        "PrevLease" : 0
        "ClusterID" : 0
        "MemberID" : 0
        "Revision" : 3
        "RaftTerm" : 0
        "Key" : "k"
        "CreateRevision" : 2
        "ModRevision" : 3
        "Version" : 2
        "Value" : "2"
        "Lease" : 0
        "More" : false
        "Count" : 1
        "ClusterID" : 0
        "MemberID" : 0
        "Revision" : 3
        "RaftTerm" : 0
        "Deleted" : 0
        "#,
    );
}

/// Errors returned by the server. Argument errors of `etcdctl` are not tested.
fn a_failed_txn_changes_nothing(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put k v
        OK
        $ txn
        <
        < put k 1
        < put k 2
        <
        <
        ! Error: etcdserver: duplicate key given in txn request
        ? 1
        $ txn
        <
        < get k --rev=3
        <
        <
        ! Error: etcdserver: mvcc: required revision is a future revision
        ? 1
        $ txn
        <
        < put other 1
        < put absent --ignore-value
        <
        <
        ! Error: etcdserver: key not found
        ? 1
        $ txn
        <
        < put k 1 --lease=123abc
        <
        <
        ! Error: etcdserver: requested lease not found
        ? 1
        # The operations of the branch that is not taken are not checked against the store.
        $ txn
        < version("k") = "2"
        <
        < put k 1 --lease=123abc
        <
        < get k
        <
        FAILURE

        k
        v
        # Failed transactions change nothing.
        $ get '' --prefix
        k
        v
        "#,
    );
}
