//! `etcdctl endpoint`.

use revstore_tests::etcdctl::Session;
use revstore_tests::server::Servers;
use revstore_tests::{on_every_server, on_server};

use crate::maintenance::table;

on_every_server! {
    needs: [Etcdctl];
    endpoint_health_reports_a_healthy_server,
    endpoint_health_prints_a_table,
    endpoint_status_reports_revision_and_raft_index,
    endpoint_status_prints_a_table,
    endpoint_status_counts_raft_entries,
    hashkv_covers_all_versions,
    hashkv_of_an_empty_store_is_fixed,
    hashkv_accepts_old_revisions_and_rejects_future_ones,
    hashkv_after_compaction_depends_on_the_requested_revision,
    endpoint_hashkv_prints_a_table,
}

// Only for etcd, because revstore differs; see the comment of the test.
on_server! {
    only_etcd, revstore_tests::server::ETCD, [Etcdctl];
    hk_5_etcd_returns_the_hash_from_before_the_compaction
}

fn endpoint_health_reports_a_healthy_server(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ endpoint health
        %address% is healthy: successfully committed proposal: took = %_%
        $ endpoint health -w json
        [{"endpoint":"%address%","health":true,"took":"%_%"}]
        $ endpoint health -w fields
        "Endpoint" : "%address%"
        "Health" : true
        "Took" : %_%
        "Error" : 

        "#,
    );
}

fn endpoint_health_prints_a_table(servers: &Servers) {
    let session = Session::fresh(servers);
    let rows = table(&session.stdout(&["endpoint", "health", "-w", "table"]));
    assert_eq!(rows[0], ["ENDPOINT", "HEALTH", "TOOK", "ERROR"]);
    let [endpoint, health, _, error] = rows[1].as_slice() else {
        panic!("expected a second row with 4 cells, got {rows:?}");
    };
    assert_eq!(endpoint, &session.address().to_string());
    assert_eq!((health.as_str(), error.as_str()), ("true", ""));
}

/// A new etcd has four entries in its raft log. Sizes and version may differ.
fn endpoint_status_reports_revision_and_raft_index(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ endpoint status
        %address%, 8e9e05c52164694d, %version%, %_% %_%, true, false, 2, 4, 4, 
        $ put k v
        OK
        $ endpoint status -w json
        [{"Endpoint":"%address%","Status":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":2,"raft_term":2},"version":"%version%","dbSize":%_%,"leader":10276657743932975437,"raftIndex":5,"raftTerm":2,"raftAppliedIndex":5,"dbSizeInUse":%_%}}]
        $ endpoint status -w fields
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 2
        "RaftTerm" : 2
        "Version" : "%version%"
        "DBSize" : %_%
        "Leader" : 10276657743932975437
        "IsLearner" : false
        "RaftIndex" : 5
        "RaftTerm" : 2
        "RaftAppliedIndex" : 5
        "Errors" : []
        "Endpoint" : "%address%"

        "#,
    );
}

fn endpoint_status_prints_a_table(servers: &Servers) {
    let session = Session::fresh(servers);
    let rows = table(&session.stdout(&["endpoint", "status", "-w", "table"]));
    assert_eq!(
        rows[0],
        [
            "ENDPOINT",
            "ID",
            "VERSION",
            "DB SIZE",
            "IS LEADER",
            "IS LEARNER",
            "RAFT TERM",
            "RAFT INDEX",
            "RAFT APPLIED INDEX",
            "ERRORS"
        ]
    );
    assert_eq!(rows[1][0], session.address().to_string());
    assert_eq!(rows[1][1], "8e9e05c52164694d");
    assert_eq!(rows[1][4..], ["true", "false", "2", "4", "4", ""]);
}

fn endpoint_status_counts_raft_entries(servers: &Servers) {
    Session::fresh(servers).replay(
        r"
        # These add no entry: a read, and a request that fails before it is proposed.
        $ get k
        $ put '' v
        ! Error: etcdserver: key is not provided
        ? 1
        $ endpoint status
        %address%, 8e9e05c52164694d, %version%, %_% %_%, true, false, 2, 4, 4, 
        # These add one entry each: a put, a delete without a match, a failed put, a compaction, a grant, a
        # revocation and a list of alarms.
        $ put k v
        OK
        $ del absent
        0
        $ put absent --ignore-value
        ! Error: etcdserver: key not found
        ? 1
        $ compact 2
        compacted revision 2
        $ lease grant 100
        lease %lease% granted with TTL(100s)
        $ lease revoke %lease%
        lease %lease% revoked
        $ alarm list
        $ endpoint status
        %address%, 8e9e05c52164694d, %version%, %_% %_%, true, false, 2, 11, 11, 
        ",
    );
}

fn hashkv_covers_all_versions(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put a 1
        OK
        $ put b 2
        OK
        $ put a 3
        OK
        $ del b
        1
        $ endpoint hashkv
        %address%, 1125682900
        $ endpoint hashkv -w json
        [{"Endpoint":"%address%","HashKV":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":5,"raft_term":2},"hash":1125682900,"compact_revision":-1}}]
        $ endpoint hashkv -w fields
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 5
        "RaftTerm" : 2
        "Endpoint" : "%address%"
        "Hash" : 1125682900

        "#,
    );
}

fn hashkv_of_an_empty_store_is_fixed(servers: &Servers) {
    Session::fresh(servers).replay(
        "
        $ endpoint hashkv
        %address%, 1084519789
        ",
    );
}

fn hashkv_accepts_old_revisions_and_rejects_future_ones(servers: &Servers) {
    Session::fresh(servers).replay(
        r"
        $ put a 1
        OK
        $ endpoint hashkv
        %address%, 2587454935
        $ put a 2
        OK
        $ endpoint hashkv --rev=2
        %address%, 2587454935
        $ endpoint hashkv --rev=4
        ! Failed to get the hash of endpoint %address% (etcdserver: mvcc: required revision is a future revision)
        ! Error: etcdserver: mvcc: required revision is a future revision
        ? 1
        ",
    );
}

/// Of the versions at or below the compacted revision, the hash includes only those that are the newest of
/// their key at the *requested* revision. So it excludes some versions that are readable at the compacted
/// revision.
fn hashkv_after_compaction_depends_on_the_requested_revision(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put a 1
        OK
        $ put b 2
        OK
        $ put a 3
        OK
        $ del b
        1
        $ put a 4
        OK
        $ put b 5
        OK
        $ compact --physical 4
        compacted revision 4
        $ endpoint hashkv --rev=3
        ! Failed to get the hash of endpoint %address% (etcdserver: mvcc: required revision has been compacted)
        ! Error: etcdserver: mvcc: required revision has been compacted
        ? 1
        $ endpoint hashkv --rev=5 -w json
        [{"Endpoint":"%address%","HashKV":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2},"hash":1468967122,"compact_revision":4}}]
        $ endpoint hashkv --rev=6 -w json
        [{"Endpoint":"%address%","HashKV":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2},"hash":1582613554,"compact_revision":4}}]
        $ endpoint hashkv --rev=7 -w json
        [{"Endpoint":"%address%","HashKV":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2},"hash":2369206518,"compact_revision":4}}]
        $ endpoint hashkv -w json
        [{"Endpoint":"%address%","HashKV":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2},"hash":2369206518,"compact_revision":4}}]
        # A tombstone at the compacted revision is not included.
        $ compact --physical 5
        compacted revision 5
        $ endpoint hashkv --rev=6 -w json
        [{"Endpoint":"%address%","HashKV":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2},"hash":3621888284,"compact_revision":5}}]
        "#,
    );
}

/// HK-5: at exactly the compacted revision, etcd returns the hash that it computed at that compaction, before
/// it removed versions, with the previous compacted revision. It returns this hash also after later
/// compactions. revstore computes no hash at a compaction, so that the cost of a compaction is proportional
/// to the removed versions. It returns the hash of the remaining versions.
fn hk_5_etcd_returns_the_hash_from_before_the_compaction(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ put a 1
        OK
        $ put b 2
        OK
        $ put a 3
        OK
        $ del b
        1
        $ put a 4
        OK
        $ put b 5
        OK
        $ compact --physical 4
        compacted revision 4
        $ endpoint hashkv --rev=4 -w json
        [{"Endpoint":"%address%","HashKV":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2},"hash":2069675932,"compact_revision":-1}}]
        $ compact --physical 5
        compacted revision 5
        $ endpoint hashkv --rev=5 -w json
        [{"Endpoint":"%address%","HashKV":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2},"hash":1468967122,"compact_revision":4}}]
        $ endpoint hashkv --rev=4 -w json
        [{"Endpoint":"%address%","HashKV":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2},"hash":2069675932,"compact_revision":-1}}]
        "#,
    );
}

fn endpoint_hashkv_prints_a_table(servers: &Servers) {
    let session = Session::fresh(servers);
    let rows = table(&session.stdout(&["endpoint", "hashkv", "-w", "table"]));
    let address = session.address().to_string();
    assert_eq!(
        rows,
        [["ENDPOINT", "HASH"], [address.as_str(), "1084519789"]]
    );
}
