//! `etcdctl check perf`: writes at a fixed rate for 1 minute.

use std::thread;
use std::time::Duration;

use revstore_tests::etcdctl::Session;
use revstore_tests::poll;
use revstore_tests::process::OutputStream;
use revstore_tests::server::{ETCD, REVSTORE, Servers};
use revstore_tests::tools::Tool;

/// On both servers at once, so that one thread of the tests waits, and for one minute.
#[test]
fn check_perf_completes_on_every_server() {
    thread::scope(|scope| {
        for servers in [&ETCD, &REVSTORE] {
            scope.spawn(|| {
                servers.run(
                    "check_perf_completes_on_every_server",
                    &[Tool::Etcdctl],
                    check_perf_completes_the_small_load,
                );
            });
        }
    });
}

/// The duration of the smallest load.
const DURATION: Duration = Duration::from_secs(60);

/// All writes must succeed. The output must contain the throughput, the slowest request and the deviation.
/// Their values depend on the machine and are not checked.
fn check_perf_completes_the_small_load(servers: &Servers) {
    let session = Session::fresh(servers);
    let mut check = session.start(&["check", "perf", "--load=s"]);
    session.expect(check.wait_for_exit(DURATION + poll::LIMIT).map(drop));
    let printed = check.output(OutputStream::Stdout);
    // The report follows a progress bar, which does not always end with a newline.
    for label in ["Throughput ", "Slowest request took ", "Stddev "] {
        assert!(printed.contains(label), "{label:?} is missing in {printed}");
    }
    assert!(!printed.contains("too many errors"), "{printed}");
    // The command deletes its keys.
    session.replay("$ get '' --prefix");
}
