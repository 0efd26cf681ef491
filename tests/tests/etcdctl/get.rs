//! `etcdctl get`.

use revstore_tests::etcdctl::Session;
use revstore_tests::on_every_server;
use revstore_tests::server::Servers;

on_every_server! {
    needs: [Etcdctl];
    get_prints_the_key_and_the_value,
    get_prefix_returns_all_keys_with_the_prefix,
    get_of_a_range_excludes_its_end,
    get_from_key_returns_all_keys_from_the_start,
    get_limit_bounds_the_keys_but_not_the_count,
    get_sorts_before_it_limits,
    get_keys_only_returns_no_values,
    get_count_only_counts_all_matches,
    get_print_value_only_prints_no_keys,
    get_rev_reads_old_revisions_and_rejects_future_ones,
    get_accepts_both_consistency_levels,
    get_json_contains_the_revisions_of_the_key,
    get_prints_fields_and_hexadecimal_bytes,
    get_of_an_empty_key_fails,
}

/// Starts a server with `a/1` = `x`, `a/2` = `y`, `a/3` = `w`, `b` = `z` at revisions 2 to 5.
pub(crate) fn with_keys(servers: &Servers) -> Session {
    let session = Session::fresh(servers);
    session.replay(
        "
        $ put a/1 x
        OK
        $ put a/2 y
        OK
        $ put a/3 w
        OK
        $ put b z
        OK
        ",
    );
    session
}

fn get_prints_the_key_and_the_value(servers: &Servers) {
    with_keys(servers).replay(
        "
        $ get b
        b
        z
        $ get absent
        $ get a/
        ",
    );
}

fn get_prefix_returns_all_keys_with_the_prefix(servers: &Servers) {
    with_keys(servers).replay(
        "
        $ get a/ --prefix
        a/1
        x
        a/2
        y
        a/3
        w
        # The empty prefix matches all keys.
        $ get '' --prefix
        a/1
        x
        a/2
        y
        a/3
        w
        b
        z
        $ get c --prefix
        ",
    );
}

fn get_of_a_range_excludes_its_end(servers: &Servers) {
    with_keys(servers).replay(
        "
        # The end is exclusive.
        $ get a/1 a/3
        a/1
        x
        a/2
        y
        $ get a/2 zzz
        a/2
        y
        a/3
        w
        b
        z
        # A range is empty if its end is not greater than its start.
        $ get b b
        $ get b a
        ",
    );
}

fn get_from_key_returns_all_keys_from_the_start(servers: &Servers) {
    with_keys(servers).replay(
        "
        $ get a/3 --from-key
        a/3
        w
        b
        z
        # The start key may be absent. The empty start matches all keys.
        $ get a/4 --from-key
        b
        z
        $ get '' --from-key --keys-only
        a/1

        a/2

        a/3

        b

        $ get c --from-key
        ",
    );
}

fn get_limit_bounds_the_keys_but_not_the_count(servers: &Servers) {
    with_keys(servers).replay(
        r#"
        $ get a/ --prefix --limit=2
        a/1
        x
        a/2
        y
        # `count` is the number of all matches. `more` is true if the limit excluded some of them.
        $ get a/ --prefix --limit=2 --keys-only -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":5,"raft_term":2},"kvs":[{"key":"YS8x","create_revision":2,"mod_revision":2,"version":1},{"key":"YS8y","create_revision":3,"mod_revision":3,"version":1}],"more":true,"count":3}
        $ get a/ --prefix --limit=3 --keys-only -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":5,"raft_term":2},"kvs":[{"key":"YS8x","create_revision":2,"mod_revision":2,"version":1},{"key":"YS8y","create_revision":3,"mod_revision":3,"version":1},{"key":"YS8z","create_revision":4,"mod_revision":4,"version":1}],"count":3}
        $ get a/ --prefix --limit=0 --print-value-only
        x
        y
        w
        "#,
    );
}

fn get_sorts_before_it_limits(servers: &Servers) {
    let session = with_keys(servers);
    session.replay(
        "
        $ put a/1 x
        OK
        $ put a/3 w
        OK
        $ put a/3 w
        OK
        $ get a/ --prefix --keys-only --order=DESCEND
        a/3

        a/2

        a/1

        $ get a/ --prefix --print-value-only --sort-by=VALUE
        w
        x
        y
        # The keys are sorted by their values, although the values are not returned.
        $ get a/ --prefix --keys-only --sort-by=VALUE --order=DESCEND
        a/2

        a/1

        a/3

        # The keys were created in the order of their names and last changed in the order a/2, a/1, a/3.
        $ get a/ --prefix --print-value-only --sort-by=CREATE --order=DESCEND
        w
        y
        x
        $ get a/ --prefix --print-value-only --sort-by=MODIFY
        y
        x
        w
        $ get a/ --prefix --print-value-only --sort-by=VERSION --order=DESCEND
        w
        x
        y
        $ get a/ --prefix --print-value-only --sort-by=KEY --order=ASCEND
        x
        y
        w
        # The limit applies after sorting.
        $ get a/ --prefix --print-value-only --sort-by=MODIFY --order=DESCEND --limit=1
        w
        ",
    );
}

fn get_keys_only_returns_no_values(servers: &Servers) {
    with_keys(servers).replay(
        "
        $ get b --keys-only
        b

        $ get a/ --prefix --keys-only
        a/1

        a/2

        a/3

        ",
    );
}

fn get_count_only_counts_all_matches(servers: &Servers) {
    with_keys(servers).replay(
        r#"
        $ get a/ --prefix --count-only -w fields
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 5
        "RaftTerm" : 2
        "More" : false
        "Count" : 3
        # A limit does not reduce the count.
        $ get '' --prefix --count-only --limit=1 -w fields
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 5
        "RaftTerm" : 2
        "More" : false
        "Count" : 4
        $ get absent --count-only -w fields
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 5
        "RaftTerm" : 2
        "More" : false
        "Count" : 0
        "#,
    );
}

fn get_print_value_only_prints_no_keys(servers: &Servers) {
    with_keys(servers).replay(
        "
        $ get b --print-value-only
        z
        $ get a/ --prefix --print-value-only
        x
        y
        w
        ",
    );
}

fn get_rev_reads_old_revisions_and_rejects_future_ones(servers: &Servers) {
    with_keys(servers).replay(
        r#"
        $ put a/1 new
        OK
        $ del b
        1
        # The key at an old revision; the header has the current revision.
        $ get a/1 --rev=5
        a/1
        x
        $ get a/1 --rev=6
        a/1
        new
        $ get '' --prefix --rev=3 --keys-only
        a/1

        a/2

        $ get b --rev=5
        b
        z
        $ get b --rev=7
        $ get a/1 --rev=1 -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2}}
        # 0 and negative revisions mean the current revision.
        $ get a/1 --rev=0 --print-value-only
        new
        $ get a/1 --rev=-1 --print-value-only
        new
        $ get a/1 --rev=8
        ! Error: etcdserver: mvcc: required revision is a future revision
        ? 1
        $ get absent --count-only -w fields --rev=100
        ! Error: etcdserver: mvcc: required revision is a future revision
        ? 1
        "#,
    );
}

fn get_accepts_both_consistency_levels(servers: &Servers) {
    with_keys(servers).replay(
        r#"
        $ get b --consistency=s
        b
        z
        $ get b --consistency=l
        b
        z
        $ get b --consistency=x
        ! Error: unknown consistency flag "x"
        ? 4
        "#,
    );
}

fn get_json_contains_the_revisions_of_the_key(servers: &Servers) {
    with_keys(servers).replay(
        r#"
        $ put b again
        OK
        $ put empty ''
        OK
        $ get b -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2},"kvs":[{"key":"Yg==","create_revision":5,"mod_revision":6,"version":2,"value":"YWdhaW4="}],"count":1}
        $ get empty -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2},"kvs":[{"key":"ZW1wdHk=","create_revision":7,"mod_revision":7,"version":1}],"count":1}
        $ get absent -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":7,"raft_term":2}}
        "#,
    );
}

fn get_prints_fields_and_hexadecimal_bytes(servers: &Servers) {
    with_keys(servers).replay(
        r#"
        $ get b -w fields
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 5
        "RaftTerm" : 2
        "Key" : "b"
        "CreateRevision" : 5
        "ModRevision" : 5
        "Version" : 1
        "Value" : "z"
        "Lease" : 0
        "More" : false
        "Count" : 1
        $ get b --hex
        \x62
        \x7a
        "#,
    );
}

/// Errors returned by the server. Argument errors of `etcdctl` are not tested.
fn get_of_an_empty_key_fails(servers: &Servers) {
    with_keys(servers).replay(
        "
        $ get ''
        ! Error: etcdserver: key is not provided
        ? 1
        $ get '' b
        ! Error: etcdserver: key is not provided
        ? 1
        ",
    );
}
