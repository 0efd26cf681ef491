//! `etcdctl put`.

use revstore_tests::etcdctl::Session;
use revstore_tests::on_every_server;
use revstore_tests::server::Servers;

on_every_server! {
    needs: [Etcdctl];
    put_creates_a_revision_for_each_request,
    put_reads_the_value_from_stdin,
    put_prev_kv_prints_the_previous_pair,
    put_ignore_value_keeps_the_value,
    put_ignore_lease_keeps_the_lease,
    put_attaches_the_key_to_the_lease,
    put_accepts_values_up_to_the_request_limit,
    put_of_an_empty_key_fails,
}

fn put_creates_a_revision_for_each_request(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put k v
        OK
        # A put of the same value creates a revision.
        $ put k v -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":3,"raft_term":2}}
        $ put k 'two words' -w fields
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 4
        "RaftTerm" : 2
        $ get k
        k
        two words
        $ put -- -k --v
        OK
        $ get -- -k
        -k
        --v
        $ put ключ 値
        OK
        $ get к --prefix
        ключ
        値
        "#,
    );
}

fn put_reads_the_value_from_stdin(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put k
        < line 1
        < line 2
        OK
        $ get k -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":2,"raft_term":2},"kvs":[{"key":"aw==","create_revision":2,"mod_revision":2,"version":1,"value":"bGluZSAxCmxpbmUgMgo="}],"count":1}
        "#,
    );
}

fn put_prev_kv_prints_the_previous_pair(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put k 1 --prev-kv
        OK
        $ put k 2 --prev-kv
        OK
        k
        1
        $ put k 3 --prev-kv -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":4,"raft_term":2},"prev_kv":{"key":"aw==","create_revision":2,"mod_revision":3,"version":2,"value":"Mg=="}}
        $ del k
        1
        # A deleted key has no previous value.
        $ put k 4 --prev-kv
        OK
        "#,
    );
}

fn put_ignore_value_keeps_the_value(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put k --ignore-value
        ! Error: etcdserver: key not found
        ? 1
        $ put k v
        OK
        $ put k --ignore-value
        OK
        $ get k -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":3,"raft_term":2},"kvs":[{"key":"aw==","create_revision":2,"mod_revision":3,"version":2,"value":"dg=="}],"count":1}
        $ put k --ignore-value --prev-kv
        OK
        k
        v
        # Without `--lease`, the put keeps the value and detaches the key from its lease.
        $ lease grant 1000
        lease %lease% granted with TTL(1000s)
        $ put k --ignore-value --lease=%lease%
        OK
        $ put k --ignore-value
        OK
        $ lease timetolive %lease% --keys
        lease %lease% granted with TTL(1000s), remaining(%_%s), attached keys([])
        "#,
    );
}

fn put_ignore_lease_keeps_the_lease(servers: &Servers) {
    Session::fresh(servers).replay(
        "
        $ put k v --ignore-lease
        ! Error: etcdserver: key not found
        ? 1
        $ lease grant 1000
        lease %lease% granted with TTL(1000s)
        $ put k v --lease=%lease%
        OK
        $ put k w --ignore-lease
        OK
        # The put changes neither the value nor the lease, but it creates a revision.
        $ put k --ignore-lease --ignore-value
        OK
        $ lease timetolive %lease% --keys
        lease %lease% granted with TTL(1000s), remaining(%_%s), attached keys([k])
        $ put k x --ignore-lease --lease=%lease%
        ! Error: etcdserver: lease is provided
        ? 1
        $ get k
        k
        w
        ",
    );
}

fn put_attaches_the_key_to_the_lease(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ lease grant 1000
        lease %lease% granted with TTL(1000s)
        $ put k v --lease=%lease%
        OK
        $ get k -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":2,"raft_term":2},"kvs":[{"key":"aw==","create_revision":2,"mod_revision":2,"version":1,"value":"dg==","lease":%lease.dec%}],"count":1}
        # A put without a lease detaches the key from its lease.
        $ put k v
        OK
        $ lease revoke %lease%
        lease %lease% revoked
        $ get k
        k
        v
        $ put k v --lease=%lease%
        ! Error: etcdserver: requested lease not found
        ? 1
        $ put k v --lease=123abc
        ! Error: etcdserver: requested lease not found
        ? 1
        # Failed puts create no revision.
        $ get k -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":3,"raft_term":2},"kvs":[{"key":"aw==","create_revision":2,"mod_revision":3,"version":2,"value":"dg=="}],"count":1}
        "#,
    );
}

fn put_accepts_values_up_to_the_request_limit(servers: &Servers) {
    let session = Session::fresh(servers);
    let value = "v".repeat(1_500_000);
    let output = session.run(&["put", "large"], &value);
    assert_eq!(output.stdout, "OK\n", "{output:?}");
    let stored = session.stdout(&["get", "large", "--print-value-only"]);
    assert!(
        stored.trim_end() == value,
        "{} bytes returned",
        stored.len()
    );

    // 1.5 MiB is the default limit of a request.
    let output = session.run(&["put", "too-large"], &"v".repeat(1_600_000));
    assert_eq!(output.code, Some(1));
    assert_eq!(output.stdout, "");
    assert_eq!(output.stderr, "Error: etcdserver: request is too large\n");
}

/// Errors returned by the server. Argument errors of `etcdctl` are not tested.
fn put_of_an_empty_key_fails(servers: &Servers) {
    Session::fresh(servers).replay(
        "
        $ put '' v
        ! Error: etcdserver: key is not provided
        ? 1
        ",
    );
}
