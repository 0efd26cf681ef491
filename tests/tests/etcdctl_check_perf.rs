//! `etcdctl check perf`: a minute of writes at a fixed rate, in a test target of its own because it
//! takes that minute whatever the server does.

use std::time::Duration;

use revstore_tests::etcdctl::Session;
use revstore_tests::on_every_server;
use revstore_tests::poll;
use revstore_tests::process::OutputStream;
use revstore_tests::server::Servers;

on_every_server! {
    needs: [Etcdctl];
    small_load,
}

/// How long the smallest load writes.
const DURATION: Duration = Duration::from_secs(60);

/// All writes have to succeed. Their rate, the slowest and the deviation measure the machine as much
/// as the server, so they have to be reported, and may be anything.
fn small_load(servers: &Servers) {
    let session = Session::fresh(servers);
    let mut check = session.start(&["check", "perf", "--load=s"]);
    session.expect(check.wait_for_exit(DURATION + poll::LIMIT).map(drop));
    let printed = check.output(OutputStream::Stdout);
    // A progress bar, drawn over itself and not always ended by a new line, then the report.
    for what in ["Throughput ", "Slowest request took ", "Stddev "] {
        assert!(printed.contains(what), "{what:?} is missing in {printed}");
    }
    assert!(!printed.contains("too many errors"), "{printed}");
    // It cleans up behind itself.
    session.replay("$ get '' --prefix");
}
