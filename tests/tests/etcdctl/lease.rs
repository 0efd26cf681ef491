//! `etcdctl lease`.

use revstore_tests::etcdctl::Session;
use revstore_tests::on_every_server;
use revstore_tests::poll;
use revstore_tests::server::Servers;

on_every_server! {
    needs: [Etcdctl];
    lease_grant_returns_the_ttl,
    lease_list_is_sorted_by_expiry,
    lease_timetolive_lists_keys_on_request,
    lease_keep_alive_renews_the_ttl,
    lease_revoke_deletes_the_keys_in_one_revision,
    lease_expiry_deletes_the_keys,
    lease_grant_and_revoke_reject_invalid_leases,
}

fn lease_grant_returns_the_ttl(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ lease grant 100
        lease %first% granted with TTL(100s)
        $ lease grant 200 -w fields
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 1
        "RaftTerm" : 2
        "ID" : %_%
        "TTL" : 200
        # etcdctl merges the header into the object.
        $ lease grant 300 -w json
        {"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":1,"raft_term":2,"ID":%_%,"TTL":300,"Error":""}
        $ lease grant 9000000000
        lease %_% granted with TTL(9000000000s)
        $ lease timetolive %first%
        lease %first% granted with TTL(100s), remaining(%_%s)
        "#,
    );
}

fn lease_list_is_sorted_by_expiry(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ lease list
        found 0 leases
        $ lease grant 300
        lease %long% granted with TTL(300s)
        $ lease grant 100
        lease %short% granted with TTL(100s)
        $ lease grant 200
        lease %medium% granted with TTL(200s)
        # The leases are sorted by expiry.
        $ lease list
        found 3 leases
        %short%
        %medium%
        %long%
        $ lease list -w json
        {"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":1,"raft_term":2,"leases":[{"id":%short.dec%},{"id":%medium.dec%},{"id":%long.dec%}]}
        "#,
    );
}

fn lease_timetolive_lists_keys_on_request(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ lease grant 1000
        lease %lease% granted with TTL(1000s)
        $ lease timetolive %lease%
        lease %lease% granted with TTL(1000s), remaining(%_%s)
        $ lease timetolive %lease% --keys
        lease %lease% granted with TTL(1000s), remaining(%_%s), attached keys([])
        $ put k v --lease=%lease%
        OK
        $ lease timetolive %lease% --keys
        lease %lease% granted with TTL(1000s), remaining(%_%s), attached keys([k])
        $ lease timetolive %lease% --keys -w json
        {"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":2,"raft_term":2,"id":%lease.dec%,"ttl":%_%,"granted-ttl":1000,"keys":["aw=="]}
        # Without `--keys` the response has no keys.
        $ lease timetolive %lease% -w json
        {"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":2,"raft_term":2,"id":%lease.dec%,"ttl":%_%,"granted-ttl":1000,"keys":null}
        # An unknown lease is not an error of this command.
        $ lease timetolive 123abc
        lease 0000000000123abc already expired
        $ lease timetolive 123abc -w json
        {"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":2,"raft_term":2,"id":1194684,"ttl":-1,"granted-ttl":0,"keys":null}
        "#,
    );
}

fn lease_keep_alive_renews_the_ttl(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ lease grant 1000
        lease %lease% granted with TTL(1000s)
        $ lease keep-alive --once %lease%
        lease %lease% keepalived with TTL(1000)
        $ lease keep-alive --once %lease% -w json
        {"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":1,"raft_term":2,"ID":%lease.dec%,"TTL":1000}
        # Without `--once`, the command runs until it is killed and prints a line at each renewal.
        & lease keep-alive %lease%
        lease %lease% keepalived with TTL(1000)
        $ lease keep-alive --once 123abc
        ! Error: etcdserver: requested lease not found
        ? 2
        $ lease keep-alive 123abc
        lease 0000000000123abc expired or revoked.
        "#,
    );
}

fn lease_revoke_deletes_the_keys_in_one_revision(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ lease grant 1000
        lease %lease% granted with TTL(1000s)
        $ put b 1 --lease=%lease%
        OK
        $ put a 2 --lease=%lease%
        OK
        $ put other 3
        OK
        $ lease revoke %lease%
        lease %lease% revoked
        # The keys of the lease are deleted in one revision, in ascending order.
        $ get '' --prefix -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":5,"raft_term":2},"kvs":[{"key":"b3RoZXI=","create_revision":4,"mod_revision":4,"version":1,"value":"Mw=="}],"count":1}
        & watch '' --prefix --rev=5
        DELETE
        a

        DELETE
        b

        $ lease timetolive %lease%
        lease %lease% already expired
        $ lease revoke %lease%
        ! Error: failed to revoke lease (etcdserver: requested lease not found)
        ? 1
        # The revocation of a lease without keys creates no revision.
        $ lease grant 1000
        lease %empty% granted with TTL(1000s)
        $ lease revoke %empty% -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":5,"raft_term":2}}
        "#,
    );
}

/// Uses the minimum TTL. On a busy machine, the lease may expire before the key is attached. Then the test
/// grants another lease. The failed put creates no revision.
fn lease_expiry_deletes_the_keys(servers: &Servers) {
    let session = Session::fresh(servers);
    let attached = poll::until(poll::LIMIT, || {
        let granted = session.stdout(&["lease", "grant", "1"]);
        let id = granted
            .strip_prefix("lease ")?
            .strip_suffix(" granted with TTL(1s)\n")?;
        let put = session.run(&["put", "k", "v", "--lease", id], "");
        (put.code == Some(0)).then_some(())
    });
    assert!(attached.is_some(), "every put with a lease failed");
    session.replay(
        "
        & watch k --rev=2
        PUT
        k
        v
        DELETE
        k

        $ get k
        $ lease list
        found 0 leases
        ",
    );
}

/// Errors returned by the server. Argument errors of `etcdctl` are not tested.
fn lease_grant_and_revoke_reject_invalid_leases(servers: &Servers) {
    Session::fresh(servers).replay(
        "
        $ lease grant 9000000001
        ! Error: failed to grant lease (etcdserver: too large lease TTL)
        ? 1
        $ lease revoke 123abc
        ! Error: failed to revoke lease (etcdserver: requested lease not found)
        ? 1
        ",
    );
}
