//! Tests of the library `revstore-tests` with the programs that it runs.

use std::net::TcpStream;

use revstore_tests::etcdctl::{Etcdctl, Session};
use revstore_tests::http;
use revstore_tests::process::OutputStream;
use revstore_tests::server::etcd::Etcd;
use revstore_tests::server::{ETCD, Endpoint as _, Options, Servers};
use revstore_tests::tools::{self, Tool};
use revstore_tests::transcript;

#[test]
fn two_servers_run_side_by_side() {
    if !tools::available("two_servers_run_side_by_side", &[Tool::Etcd]) {
        return;
    }
    let one = Etcd::start(&Options::default()).unwrap();
    let two = Etcd::start(&Options::default()).unwrap();
    assert_ne!(one.address(), two.address());
    for server in [&one, &two] {
        assert!(server.address().ip().is_loopback());
        let health = http::get(server.address(), "/health").unwrap();
        assert_eq!(health.status, 200);
        assert_eq!(health.body, r#"{"health":"true","reason":""}"#);
        assert!(server.logs().contains("ready to serve client requests"));
    }
}

#[test]
fn a_dropped_server_is_stopped() {
    if !tools::available("a_dropped_server_is_stopped", &[Tool::Etcd]) {
        return;
    }
    let server = Etcd::start(&Options::default()).unwrap();
    let address = server.address();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn json_gateway_responds_if_it_is_enabled() {
    if !tools::available("json_gateway_responds_if_it_is_enabled", &[Tool::Etcd]) {
        return;
    }
    let options = Options {
        json_gateway: true,
        ..Options::default()
    };
    let server = Etcd::start(&options).unwrap();
    // The gateway accepts only POST and responds with 501 to GET.
    let response = http::get(server.address(), "/v3/kv/range").unwrap();
    assert_eq!(response.status, 501, "{response:?}");
}

#[test]
fn etcdctl_reads_stdin_and_reports_output_and_code() {
    if !tools::available("etcdctl_reads_stdin", ETCDCTL_AND_ETCD) {
        return;
    }
    let server = Etcd::start(&Options::default()).unwrap();
    let ctl = Etcdctl::new(server.address()).unwrap();
    let put = ctl.run(&["put", "k"], "from stdin").unwrap();
    assert_eq!((put.code, put.stdout.as_str()), (Some(0), "OK\n"));
    let get = ctl.run(&["get", "k", "--print-value-only"], "").unwrap();
    assert_eq!(get.stdout, "from stdin\n");
    let future = ctl.run(&["get", "k", "--rev=9"], "").unwrap();
    assert_eq!(future.code, Some(1));
    assert_eq!(
        future.stderr,
        "Error: etcdserver: mvcc: required revision is a future revision\n"
    );
}

#[test]
fn output_of_a_killed_command_is_available() {
    if !tools::available("output_of_a_killed_command_is_available", ETCDCTL_AND_ETCD) {
        return;
    }
    let session = Session::fresh(&ETCD);
    let _ = session.stdout(&["put", "k", "v"]);
    let mut watch = session.start(&["watch", "k", "--rev=2"]);
    watch
        .wait_for_output(OutputStream::Stdout, |text| {
            text.contains("v\n").then_some(())
        })
        .unwrap();
    watch.kill();
    assert_eq!(watch.output(OutputStream::Stdout), "PUT\nk\nv\n");
}

#[test]
fn a_transcript_mismatch_shows_expected_and_actual_output() {
    fn case(servers: &Servers) {
        let server = servers.fresh(&Options::default());
        let ctl = Etcdctl::new(server.address()).unwrap();
        let mismatch = transcript::replay(&ctl, "$ put k v\nOK\n$ get k\nk\nw").unwrap_err();
        assert_eq!(
            mismatch.to_string(),
            "the session differs at\n$ get k\n\
             --- expected:\nk\nw\n--- actual:\nk\nv\n"
        );
        // An unexpected error, and a missing error.
        assert!(transcript::replay(&ctl, "$ get ''").is_err());
        assert!(transcript::replay(&ctl, "$ get k\nk\nv\n? 1").is_err());
        // A long-running command with other output, and with too little.
        assert!(transcript::replay(&ctl, "& watch k --rev=2\nPUT\nw").is_err());
        assert!(transcript::replay(&ctl, "& get k\nk\nv\nmore").is_err());
    }
    ETCD.run("a_transcript_mismatch", &[Tool::Etcdctl], case);
}

const ETCDCTL_AND_ETCD: &[Tool] = &[Tool::Etcd, Tool::Etcdctl];
