//! `etcdctl member`, `alarm`, `defrag` and `move-leader`.

use revstore_tests::etcdctl::Session;
use revstore_tests::on_every_server;
use revstore_tests::poll;
use revstore_tests::server::{Options, Servers};

on_every_server! {
    needs: [Etcdctl];
    member_list_prints_one_member,
    member_list_prints_a_table,
    a_learner_can_be_added_updated_and_removed,
    alarm_list_is_empty_on_a_new_server,
    exceeded_quota_raises_the_nospace_alarm,
    defrag_succeeds_and_keeps_the_keys,
    move_leader_accepts_only_the_leader,
}

/// Parses a table of `etcdctl -w table` into rows of cells. The first row is the header. The text is not
/// compared, because the width of a column depends on the port of the server.
pub(crate) fn table(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'))
        .map(|row| row.split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

fn member_list_prints_one_member(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ member list
        8e9e05c52164694d, started, default, http://localhost:2380, http://localhost:2379, false
        # This header has no revision.
        $ member list -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"raft_term":2},"members":[{"ID":10276657743932975437,"name":"default","peerURLs":["http://localhost:2380"],"clientURLs":["http://localhost:2379"]}]}
        $ member list -w fields
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 0
        "RaftTerm" : 2
        "ID" : 10276657743932975437
        "Name" : "default"
        "PeerURL" : "http://localhost:2380"
        "ClientURL" : "http://localhost:2379"
        "IsLearner" : false

        "#,
    );
}

fn member_list_prints_a_table(servers: &Servers) {
    let session = Session::fresh(servers);
    assert_eq!(
        table(&session.stdout(&["member", "list", "-w", "table"])),
        [
            [
                "ID",
                "STATUS",
                "NAME",
                "PEER ADDRS",
                "CLIENT ADDRS",
                "IS LEARNER"
            ],
            [
                "8e9e05c52164694d",
                "started",
                "default",
                "http://localhost:2380",
                "http://localhost:2379",
                "false"
            ]
        ]
    );
}

/// Members are listed in the order of their ids, and that of the learner depends on the time:
/// it may have fewer than 16 digits, which etcdctl pads with spaces in sentences, not in lists.
fn a_learner_can_be_added_updated_and_removed(servers: &Servers) {
    let session = Session::fresh(servers);
    let list = || {
        let list = session.stdout(&["member", "list"]);
        let lines = list.lines().map(str::to_owned);
        let (own, others): (Vec<_>, Vec<_>) =
            lines.partition(|line| line.contains("started, default"));
        assert_eq!(own.len(), 1, "{list}");
        others
    };
    let add = [
        "member",
        "add",
        "l1",
        "--learner",
        "--peer-urls=http://127.0.0.1:9991",
    ];
    let added = session.stdout(&add);
    let padded = added
        .strip_prefix("Member ")
        .and_then(|rest| rest.split_once(" added to cluster cdf818194e3a8c32\n"))
        .map(|(id, _)| id)
        .expect("the id of the learner");
    assert_eq!(padded.len(), 16, "{added}");
    let id = padded.trim_start();
    assert!(added.contains("ETCD_NAME=\"l1\"\n"), "{added}");
    assert!(added.contains("l1=http://127.0.0.1:9991"), "{added}");
    assert_eq!(
        list(),
        [format!("{id}, unstarted, , http://127.0.0.1:9991, , true")]
    );
    session.replay(&format!(
        r"
        # Writes need no vote of a learner.
        $ put k v
        OK
        $ endpoint status
        %address%, 8e9e05c52164694d, %version%, %_% %_%, true, false, 2, 6, 6, 
        $ member add l2 --learner --peer-urls=http://127.0.0.1:9992
        ! Error: etcdserver: too many learner members in cluster
        ? 1
        $ member promote {id}
        ! Error: etcdserver: can only promote a learner member which is in sync with leader
        ? 1
        $ move-leader {id}
        ! Error: etcdserver: bad leader transferee
        ? 1
        $ member update {id} --peer-urls=http://127.0.0.1:9993
        Member {padded} updated in cluster cdf818194e3a8c32
        ",
    ));
    assert_eq!(
        list(),
        [format!("{id}, unstarted, , http://127.0.0.1:9993, , false")]
    );
    session.replay(&format!(
        r"
        $ member remove {id}
        Member {padded} removed from cluster cdf818194e3a8c32
        $ member remove {id}
        ! Error: etcdserver: member not found
        ? 1
        $ member list
        8e9e05c52164694d, started, default, http://localhost:2380, http://localhost:2379, false
        $ endpoint health
        %address% is healthy: successfully committed proposal: took = %_%
        ",
    ));
}

fn alarm_list_is_empty_on_a_new_server(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ alarm list
        $ alarm disarm
        $ alarm list -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":1,"raft_term":2}}
        "#,
    );
}

/// Writes until the quota is exceeded. etcd checks its size periodically, so the number of successful writes
/// is not compared.
fn exceeded_quota_raises_the_nospace_alarm(servers: &Servers) {
    let options = Options {
        quota_bytes: Some(1_000_000),
        ..Options::default()
    };
    let session = Session::with(servers, &options);
    let value = "v".repeat(100_000);
    let failed = poll::until(poll::LIMIT, || {
        let output = session.run(&["put", "k"], &value);
        (output.code != Some(0)).then_some(output)
    });
    let output = failed.expect("a put exceeds the quota of 1 MB");
    assert_eq!(output.code, Some(1));
    assert_eq!(
        output.stderr,
        "Error: etcdserver: mvcc: database space exceeded\n"
    );
    session.replay(
        r"
        $ alarm list
        memberID:10276657743932975437 alarm:NOSPACE 
        $ lease grant 10
        ! Error: failed to grant lease (etcdserver: mvcc: database space exceeded)
        ? 1
        $ endpoint health
        ! %address% is unhealthy: failed to commit proposal: Active Alarm(s): NOSPACE 
        ! Error: unhealthy cluster
        ? 1
        # Reads and deletes are still permitted.
        $ get k --keys-only
        k

        $ del k
        1
        $ alarm disarm
        memberID:10276657743932975437 alarm:NOSPACE 
        $ alarm list
        ",
    );
}

fn defrag_succeeds_and_keeps_the_keys(servers: &Servers) {
    Session::fresh(servers).replay(
        "
        $ put k v
        OK
        $ defrag
        Finished defragmenting etcd member[%address%]
        $ get k
        k
        v
        ",
    );
}

fn move_leader_accepts_only_the_leader(servers: &Servers) {
    Session::fresh(servers).replay(
        "
        $ move-leader 8e9e05c52164694d
        Leadership transferred from 8e9e05c52164694d to 8e9e05c52164694d
        $ move-leader 1
        ! Error: etcdserver: bad leader transferee
        ? 1
        ",
    );
}
