//! `etcdctl watch`.

use std::time::Duration;

use revstore_tests::etcdctl::Session;
use revstore_tests::on_every_server;
use revstore_tests::poll;
use revstore_tests::process::OutputStream;
use revstore_tests::server::{Options, Servers};

on_every_server! {
    needs: [Etcdctl];
    watch_delivers_past_events,
    watch_prefix_delivers_the_events_of_all_keys_with_the_prefix,
    watch_of_a_range_delivers_the_events_in_the_range,
    watch_prev_kv_prints_the_previous_pairs,
    watch_delivers_a_transaction_in_one_response,
    watch_json_contains_the_events_of_a_response,
    watch_prints_the_fields_of_each_event,
    watch_runs_a_command_for_each_event,
    watch_delivers_every_new_event,
    watch_starts_at_a_future_revision,
    progress_notifications_carry_the_current_revision,
    watch_interactive_reads_watch_commands_only,
    watch_interactive_runs_two_watches_on_one_stream,
    progress_responses_follow_all_events,
    watch_of_an_empty_range_is_cancelled,
}

/// Starts a server with changes of `k/1` and `k/2` at revisions 2 to 6.
fn with_history(servers: &Servers) -> Session {
    let session = Session::fresh(servers);
    session.replay(
        "
        $ put k/1 a
        OK
        $ put k/1 b
        OK
        $ put k/2 c
        OK
        $ del k/1
        1
        $ put k/1 d
        OK
        ",
    );
    session
}

fn watch_delivers_past_events(servers: &Servers) {
    with_history(servers).replay(
        "
        & watch k/1 --rev=2
        PUT
        k/1
        a
        PUT
        k/1
        b
        DELETE
        k/1

        PUT
        k/1
        d
        # The key may be unchanged at the start revision.
        & watch k/1 --rev=4
        DELETE
        k/1

        PUT
        k/1
        d
        ",
    );
}

fn watch_prefix_delivers_the_events_of_all_keys_with_the_prefix(servers: &Servers) {
    with_history(servers).replay(
        "
        & watch k/ --prefix --rev=3
        PUT
        k/1
        b
        PUT
        k/2
        c
        DELETE
        k/1

        PUT
        k/1
        d
        & watch '' --prefix --rev=6
        PUT
        k/1
        d
        ",
    );
}

fn watch_of_a_range_delivers_the_events_in_the_range(servers: &Servers) {
    with_history(servers).replay(
        "
        & watch k/1 k/2 --rev=4
        DELETE
        k/1

        PUT
        k/1
        d
        & watch k/10 k/20 --rev=1
        PUT
        k/2
        c
        ",
    );
}

fn watch_prev_kv_prints_the_previous_pairs(servers: &Servers) {
    with_history(servers).replay(
        "
        # Each event has the previous key-value pair, except events that create a key.
        & watch k/1 --rev=2 --prev-kv
        PUT
        k/1
        a
        PUT
        k/1
        a
        k/1
        b
        DELETE
        k/1
        b
        k/1

        PUT
        k/1
        d
        ",
    );
}

fn watch_delivers_a_transaction_in_one_response(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ txn
        <
        < put b 1
        < put a 2
        < put c 3
        < del d
        <
        <
        SUCCESS

        OK

        OK

        OK

        0
        # One response has all events of the revision, in the order of the operations.
        & watch a --prefix --rev=2 -w json
        {"Header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":2,"raft_term":2},"Events":[{"kv":{"key":"YQ==","create_revision":2,"mod_revision":2,"version":1,"value":"Mg=="}}],"CompactRevision":0,"Canceled":false,"Created":false}
        & watch a c --rev=2 -w json
        {"Header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":2,"raft_term":2},"Events":[{"kv":{"key":"Yg==","create_revision":2,"mod_revision":2,"version":1,"value":"MQ=="}},{"kv":{"key":"YQ==","create_revision":2,"mod_revision":2,"version":1,"value":"Mg=="}}],"CompactRevision":0,"Canceled":false,"Created":false}
        "#,
    );
}

fn watch_json_contains_the_events_of_a_response(servers: &Servers) {
    with_history(servers).replay(
        r#"
        & watch k/1 --rev=4 --prev-kv -w json
        {"Header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":6,"raft_term":2},"Events":[{"type":1,"kv":{"key":"ay8x","mod_revision":5},"prev_kv":{"key":"ay8x","create_revision":2,"mod_revision":3,"version":2,"value":"Yg=="}},{"kv":{"key":"ay8x","create_revision":6,"mod_revision":6,"version":1,"value":"ZA=="}}],"CompactRevision":0,"Canceled":false,"Created":false}
        "#,
    );
}

fn watch_prints_the_fields_of_each_event(servers: &Servers) {
    with_history(servers).replay(
        r#"
        & watch k/1 --rev=5 -w fields
        "ClusterID" : 14841639068965178418
        "MemberID" : 10276657743932975437
        "Revision" : 6
        "RaftTerm" : 2
        "Type" : DELETE
        "Key" : "k/1"
        "CreateRevision" : 0
        "ModRevision" : 5
        "Version" : 0
        "Value" : ""
        "Lease" : 0
        "Type" : PUT
        "Key" : "k/1"
        "CreateRevision" : 6
        "ModRevision" : 6
        "Version" : 1
        "Value" : "d"
        "Lease" : 0
        "#,
    );
}

fn watch_runs_a_command_for_each_event(servers: &Servers) {
    with_history(servers).replay(
        r#"
        # The command receives the revision of the header, not that of the event.
        & watch k/2 --rev=2 -- sh -c 'echo $ETCD_WATCH_REVISION $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY=$ETCD_WATCH_VALUE'
        PUT
        k/2
        c
        6 "PUT" "k/2"="c"
        "#,
    );
}

/// `etcdctl` does not report the creation of its watch, so the test writes until the watch delivers an event.
/// The watch must deliver every write after that.
fn watch_delivers_every_new_event(servers: &Servers) {
    let session = Session::fresh(servers);
    let watch = session.start(&["watch", "k", "--prefix"]);
    let mut writes = 0;
    let mut put = || {
        let _ = session.stdout(&["put", "k", &writes.to_string()]);
        writes += 1;
        writes - 1
    };
    let first = poll::until(poll::LIMIT, || {
        put();
        let seen = watch.output(OutputStream::Stdout);
        seen.lines().nth(2)?.parse::<u32>().ok()
    });
    let first = first.unwrap_or_else(|| panic!("expected an event of the watch, got {watch:?}"));
    let last = put();
    let expected: Vec<String> = (first..=last).map(|n| format!("PUT\nk\n{n}\n")).collect();
    let expected = expected.concat();
    session.expect(watch.wait_for_output(OutputStream::Stdout, |seen| {
        (seen.len() >= expected.len()).then_some(())
    }));
    assert_eq!(watch.output(OutputStream::Stdout), expected);
}

fn watch_starts_at_a_future_revision(servers: &Servers) {
    let session = Session::fresh(servers);
    let watch = session.start(&["watch", "k", "--rev=4"]);
    for value in ["2", "3", "4", "5"] {
        session.replay(&format!("$ put k {value}\nOK"));
    }
    let expected = "PUT\nk\n4\nPUT\nk\n5\n";
    session.expect(watch.wait_for_output(OutputStream::Stdout, |seen| {
        (seen.len() >= expected.len()).then_some(())
    }));
    assert_eq!(watch.output(OutputStream::Stdout), expected);
}

fn progress_notifications_carry_the_current_revision(servers: &Servers) {
    let options = Options {
        watch_progress_interval: Some(Duration::from_millis(100)),
        ..Options::default()
    };
    let session = Session::with(servers, &options);
    session.replay("$ put other v\nOK");
    let watch = session.start(&["watch", "k", "--progress-notify"]);
    session.expect(watch.wait_for_output(OutputStream::Stdout, |seen| {
        (seen.lines().count() >= 2).then_some(())
    }));
    session.replay("$ put k v\nOK");
    // Progress notifications before the event have the previous revision, those after it the revision of the
    // event.
    session.expect(watch.wait_for_output(OutputStream::Stdout, |seen| {
        seen.contains("PUT\nk\nv\nprogress notify: 3\n")
            .then_some(())
    }));
    let seen = watch.output(OutputStream::Stdout);
    let (before, after) = seen
        .split_once("PUT\nk\nv\n")
        .expect("the output contains the event");
    assert!(
        before.lines().all(|line| line == "progress notify: 2"),
        "{seen}"
    );
    assert!(
        after.lines().all(|line| line == "progress notify: 3"),
        "{seen}"
    );
}

fn watch_interactive_reads_watch_commands_only(servers: &Servers) {
    with_history(servers).replay(
        "
        & watch -i
        < watch k/ --prefix --rev=5 --prev-kv
        DELETE
        k/1
        b
        k/1

        PUT
        k/1
        d
        $ watch -i
        < get k
        ! Invalid command get k (only support watch)
        ! Error: error reading watch request line: EOF
        ? 3
        ",
    );
}

/// `etcdctl` prints the events of each watch in a separate goroutine, line by line. So the lines of the two
/// watches may be mixed.
fn watch_interactive_runs_two_watches_on_one_stream(servers: &Servers) {
    let session = with_history(servers);
    let mut watch = session.start(&["watch", "-i"]);
    watch
        .send("watch k/1 --rev=6\nwatch k/2 --rev=2\n")
        .expect("etcdctl reads its input");
    let mut seen = session.expect(watch.wait_for_output(OutputStream::Stdout, |seen| {
        let lines: Vec<String> = seen.lines().map(str::to_owned).collect();
        (seen.ends_with('\n') && lines.len() >= 6).then_some(lines)
    }));
    seen.sort();
    assert_eq!(seen, ["PUT", "PUT", "c", "d", "k/1", "k/2"]);
}

/// etcd ignores a progress request while a watch of the stream is unsynced, so the test repeats the
/// request until a response arrives.
fn progress_responses_follow_all_events(servers: &Servers) {
    let session = with_history(servers);
    let mut watch = session.start(&["watch", "-i"]);
    watch
        .send("watch k/2 --rev=4\n")
        .expect("etcdctl reads its input");
    let response = poll::until(poll::LIMIT, || {
        watch.send("progress\n").ok()?;
        let seen = watch.output(OutputStream::Stdout);
        seen.contains("progress notify: 6\n").then_some(seen)
    });
    let seen = response.unwrap_or_else(|| panic!("expected a progress response, got {watch:?}"));
    let after = seen
        .strip_prefix("PUT\nk/2\nc\n")
        .unwrap_or_else(|| panic!("expected the event before the progress response, got {seen}"));
    assert!(
        after.lines().all(|line| line == "progress notify: 6"),
        "{seen}"
    );
}

/// Errors returned by the server. Argument errors of `etcdctl` are not tested.
fn watch_of_an_empty_range_is_cancelled(servers: &Servers) {
    with_history(servers).replay(
        "
        $ watch b a
        ! watch was canceled (mvcc: watcher range is empty)
        ! Error: watch is canceled by the server
        ? 5
        ",
    );
}
