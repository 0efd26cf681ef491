//! Processes under the names `etcd` and `kube-apiserver`, where the first one runs the server of the second one.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

#[path = "../client/mod.rs"]
mod client;
mod process;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;

use client::{send_to, value};
use process::Process;
use serde_json::json;

/// What a process says whose server another one runs.
const HOSTED: &str = "the server runs in the process of the etcd at ";

/// Starts an etcd, with more flags, and returns it with its URL.
fn etcd(flags: &[&str]) -> (Process, String) {
    etcd_on("http://127.0.0.1:0", flags)
}

fn etcd_on(url: &str, flags: &[&str]) -> (Process, String) {
    let mut process = Process::start("etcd", Path::new("/"), &[], |command| {
        command.args(["--listen-client-urls", url, "--advertise-client-urls", url]);
        command
            .args(["--listen-peer-urls=http://127.0.0.1:0", "--exit-with-stdin"])
            .args(flags);
    });
    let ready = process.ready();
    let url = ready.split(' ').nth(2).expect("a line with the URL");
    (process, url.to_owned())
}

/// Starts an API server over an etcd, on an address for HTTP.
fn api_server(etcd: &str, address: &str) -> Process {
    api_server_in(Path::new("/"), etcd, address, &[])
}

fn api_server_in(
    directory: &Path,
    etcd: &str,
    address: &str,
    variables: &[(&str, &str)],
) -> Process {
    Process::start("kube-apiserver", directory, variables, |command| {
        command.args(["--etcd-servers", etcd, "--listen-http", address]);
        command.args(["--secure-port=0", "--exit-with-stdin", "--unknown-flag"]);
    })
}

/// Waits until a server serves, and returns its URL.
fn endpoint(process: &mut Process) -> String {
    let ready = process.ready();
    let mut words = ready.split(' ');
    assert_eq!(words.next(), Some("revstore-apiserver"), "{ready}");
    words.nth(1).expect("a line with the URL").to_owned()
}

/// Starts a server on a free port, and returns it with its URL.
fn served(etcd: &str) -> (Process, String) {
    let mut process = api_server(etcd, "127.0.0.1:0");
    let endpoint = endpoint(&mut process);
    (process, endpoint)
}

fn address(url: &str) -> &str {
    url.trim_start_matches("http://")
}

const NAMESPACES: &str = "/api/v1/namespaces";

fn create_namespace(url: &str, name: &str) {
    let body = json!({"metadata": {"name": name}}).to_string();
    let answer = send_to(url, "POST", NAMESPACES, &body);
    assert_eq!(answer.0, 201, "{answer:?}");
}

fn has_namespace(url: &str, name: &str) -> bool {
    send_to(url, "GET", &format!("{NAMESPACES}/{name}"), "").0 == 200
}

/// Sends a request to the JSON form of etcd's API.
fn call(etcd: &str, method: &str, body: &serde_json::Value) -> serde_json::Value {
    let answer = send_to(etcd, "POST", &format!("/v3/{method}"), &body.to_string());
    let (status, value) = value(&answer);
    assert_eq!(status, 200, "{method}: {answer:?}");
    value
}

#[test]
fn the_objects_are_in_the_etcd_and_outlive_the_server() {
    let (_etcd, url) = etcd(&[]);
    let (mut first, endpoint_of_first) = served(&url);
    first.wait_for(&format!("{HOSTED}{}", address(&url)));
    first.wait_for("warning: --unknown-flag has no effect");
    create_namespace(&endpoint_of_first, "a");
    // The key and what follows it.
    let range = json!({"key": "L3JlZ2lzdHJ5L25hbWVzcGFjZXMvYQ==", "count_only": true});
    assert_eq!(call(&url, "kv/range", &range)["count"], "1");

    // As kube-apiserver, it ends without an error.
    assert!(first.terminate().success());
    let free = TcpListener::bind(address(&endpoint_of_first));
    drop(free.expect("the port is free"));
    let mut second = api_server(&url, address(&endpoint_of_first));
    assert_eq!(endpoint(&mut second), endpoint_of_first);
    second.wait_for(HOSTED);
    assert!(has_namespace(&endpoint_of_first, "a"));
    // What clients of the etcd change is seen.
    let (_other, endpoint_of_other) = served(&url);
    create_namespace(&endpoint_of_other, "b");
    let list = value(&send_to(&endpoint_of_first, "GET", NAMESPACES, "")).1;
    let items = list["items"].as_array().expect("a list");
    assert!(items.iter().any(|item| item["metadata"]["name"] == "b"));
}

#[test]
fn a_server_ends_with_its_process_however_that_ends() {
    let (_etcd, url) = etcd(&[]);
    let (mut process, endpoint_of_first) = served(&url);
    create_namespace(&endpoint_of_first, "a");
    for _ in 0..10 {
        process.kill();
        process = api_server(&url, address(&endpoint_of_first));
        assert_eq!(endpoint(&mut process), endpoint_of_first);
        process.wait_for(HOSTED);
        assert!(has_namespace(&endpoint_of_first, "a"));
    }
}

#[test]
fn a_server_goes_on_when_its_etcd_has_ended() {
    let (mut first, url) = etcd(&[]);
    let (mut process, before) = served(&url);
    // A client that stays connected.
    let idle = TcpStream::connect(address(&before)).expect("the server listens");
    first.kill();
    process.wait_for("warning: the etcd that has run the server has ended");
    let (_second, _) = etcd_on(&url, &[]);
    let after = endpoint(&mut process);
    create_namespace(&after, "a");
    drop(idle);
    let range = json!({"key": "L3JlZ2lzdHJ5L25hbWVzcGFjZXMvYQ==", "count_only": true});
    assert_eq!(call(&url, "kv/range", &range)["count"], "1");
    assert!(process.terminate().success());
}

/// A signal ends a process that waits for an etcd after the end of the first one.
#[test]
fn a_process_without_an_etcd_can_be_stopped() {
    let (mut first, url) = etcd(&[]);
    let (mut process, _) = served(&url);
    first.kill();
    process.wait_for("warning: the etcd that has run the server has ended");
    assert!(process.terminate().success());
}

#[test]
fn an_etcd_that_does_not_run_the_server_is_used_over_the_network() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_etcd, url) = etcd(&[]);
    let not_asked = [("REVSTORE_APISERVER_STORAGE", "etcd")];
    for (place, variables, warning) in [
        (Path::new("/"), &not_asked[..], None),
        (
            directory.path(),
            &[],
            Some("warning: the etcd does not run the server: it has another working directory"),
        ),
    ] {
        let mut process = api_server_in(place, &url, "127.0.0.1:0", variables);
        create_namespace(
            &endpoint(&mut process),
            if warning.is_some() { "a" } else { "b" },
        );
        if let Some(warning) = warning {
            process.wait_for(warning);
        }
        assert!(!process.had_said(HOSTED));
    }
    // What concerns each write of the etcd also concerns those of the server.
    let data = directory.path().join("data");
    let data_flag = format!("--data-dir={}", data.display());
    for flags in [
        &["--quota-backend-bytes=100000000"][..],
        &["--control-listen-url=http://127.0.0.1:0"],
        &[&data_flag, "--persist"],
    ] {
        let (_etcd, url) = etcd(flags);
        let (mut process, _) = served(&url);
        assert!(!process.had_said(HOSTED), "{flags:?}");
    }
}

#[test]
fn a_store_with_an_alarm_or_users_is_used_over_the_network() {
    let refused = "warning: the etcd does not run the server: it has authentication or an alarm";
    let (_etcd, url) = etcd(&[]);
    let alarm = |action| json!({"action": action, "alarm": "NOSPACE", "memberID": "1"});
    call(&url, "maintenance/alarm", &alarm("ACTIVATE"));
    let mut process = api_server(&url, "127.0.0.1:0");
    process.wait_for(refused);
    call(&url, "maintenance/alarm", &alarm("DEACTIVATE"));
    endpoint(&mut process);

    call(
        &url,
        "auth/user/add",
        &json!({"name": "root", "password": "a"}),
    );
    call(&url, "auth/role/add", &json!({"name": "root"}));
    call(
        &url,
        "auth/user/grant",
        &json!({"user": "root", "role": "root"}),
    );
    call(&url, "auth/enable", &json!({}));
    api_server(&url, "127.0.0.1:0").wait_for(refused);
}

#[test]
fn errors_of_the_start_are_those_of_the_process() {
    let (_etcd, url) = etcd(&[]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let mut process = api_server(&url, &address);
    assert_eq!(process.ended().code(), Some(1));
    let error = format!("revstore-apiserver: listen tcp {address}: bind: address already in use");
    process.wait_for(&error);
    // And after that the port can be used.
    drop(taken);
    let mut process = api_server(&url, &address);
    endpoint(&mut process);
    process.wait_for(HOSTED);
}

#[test]
fn what_else_connects_gets_nothing() {
    let (_etcd, url) = etcd(&[]);
    let name = format!("revstore-etcd/{}", address(&url));
    let name = SocketAddr::from_abstract_name(name).expect("a name");
    let idle = UnixStream::connect_addr(&name).expect("the etcd listens");
    let endless = vec![b'a'; 2 << 20];
    for bytes in [
        &b"{}\n"[..],
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"{\"version\":\"\"",
        &endless,
    ] {
        let mut stream = UnixStream::connect_addr(&name).expect("the etcd listens");
        // It may close the connection before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    }
    served(&url).0.wait_for(HOSTED);
    drop(idle);
}

#[test]
fn an_etcd_is_as_every_other_one() {
    let process = |argument: &str| {
        let mut process = Process::start("etcd", Path::new("/"), &[], |command| {
            command.arg(argument);
        });
        (process.ended().code(), process)
    };
    let (code, mut help) = process("--help");
    assert_eq!(code, Some(0));
    assert!(help.ready().contains("etcd") || help.ready().contains("revstore"));
    let (code, mut invalid) = process("--no-such-flag");
    assert_ne!(code, Some(0));
    invalid.wait_for("no-such-flag");
}
