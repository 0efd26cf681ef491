//! Tests of `--host-whitelist`, `--cors` and `--enable-grpc-gateway` (HT-15 to HT-18) with revstore and, if it
//! is installed, with a real etcd.

use std::net::{SocketAddr, TcpStream};

use revstore_tests::http::{self, Head};
use revstore_tests::poll;
use revstore_tests::server::{Endpoint, Options, Servers};

revstore_tests::on_every_server! {
    needs: [];
    ht_15_a_request_has_one_valid_host,
    ht_16_http_requests_must_be_for_a_host_of_the_list,
    ht_16_lists_of_hosts,
    ht_17_only_listed_origins_may_read_responses,
    ht_17_responses_of_the_gateway_have_the_headers,
    ht_17_lists_of_origins,
    ht_18_without_the_gateway_its_paths_do_not_exist,
}

fn start(servers: &Servers, flags: &'static [&'static str]) -> Box<dyn Endpoint> {
    servers.fresh(&Options {
        flags,
        ..Options::default()
    })
}

fn exchange(address: SocketAddr, request: &str) -> Head {
    let stream = TcpStream::connect_timeout(&address, poll::LIMIT).expect("a connection");
    let timeout = stream.set_read_timeout(Some(poll::LIMIT));
    timeout.expect("the timeout is not zero");
    let head = http::exchange(stream, request.as_bytes());
    head.unwrap_or_else(|error| panic!("{request:?}: {error}"))
}

/// Sends a request and checks the status code of the response.
fn check(address: SocketAddr, request: &str, status: u16) {
    let head = exchange(address, request);
    assert_eq!(head.status, status, "{request:?}: {head:?}");
}

/// Sends a request and checks the status code of the response and the origin that it allows.
fn check_origin(address: SocketAddr, request: &str, status: u16, expected: Option<&str>) {
    let head = exchange(address, request);
    let origin = head.header("access-control-allow-origin");
    assert_eq!((head.status, origin), (status, expected), "{request:?}");
    let others = [
        ("methods", "POST, GET, OPTIONS, PUT, DELETE"),
        ("headers", "accept, content-type, authorization"),
    ];
    for (name, value) in others {
        let header = head.header(&format!("access-control-allow-{name}"));
        assert_eq!(header, expected.map(|_| value), "{request:?}");
    }
}

fn get(host: &str) -> String {
    format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// These requests are refused whatever the lists contain: which of two hosts counts would be ambiguous.
fn ht_15_a_request_has_one_valid_host(servers: &Servers) {
    let server = start(servers, &[]);
    let address = server.address();
    for (request, status) in [
        ("GET /health HTTP/1.1\r\n\r\n", 400),
        ("GET http://a/health HTTP/1.1\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nHost:\r\n\r\n", 200),
        ("GET /health HTTP/1.0\r\n\r\n", 200),
        ("GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET /health HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET /health HTTP/1.0\r\nHost: a@b\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nHost: \u{e4}\r\n\r\n", 400),
        (
            "GET /health HTTP/1.1\r\nHost:  a:1!$&'()*+,;=~_%[] \r\n\r\n",
            200,
        ),
    ] {
        check(address, request, status);
    }
}

fn ht_16_http_requests_must_be_for_a_host_of_the_list(servers: &Servers) {
    let server = start(servers, &["--host-whitelist=good,::1,Upper,127.0.0.1"]);
    let address = server.address();
    for (host, status) in [
        ("good", 200),
        ("good:2379", 200),
        ("good:", 200),
        ("good:x", 200),
        ("good:1:2", 421),
        ("good.", 421),
        ("good,Upper", 421),
        ("GOOD", 421),
        ("Upper", 200),
        ("upper", 421),
        ("%67ood", 421),
        ("evil", 421),
        ("127.0.0.1:1", 200),
        ("127.0.0.2", 421),
        ("[::1]:2379", 200),
        ("[::1]", 421),
        ("::1", 200),
        ("", 421),
    ] {
        check(address, &get(host), status);
    }
    for (request, status) in [
        ("GET /health HTTP/1.0\r\n\r\n", 421),
        ("GET /health HTTP/1.0\r\nHost: good\r\n\r\n", 200),
        ("GET /metrics HTTP/1.1\r\nHost: evil\r\n\r\n", 421),
        ("GET /nothing HTTP/1.1\r\nHost: evil\r\n\r\n", 421),
        // The target of a request takes precedence over its header.
        (
            "GET http://good:1/health HTTP/1.1\r\nHost: evil\r\n\r\n",
            200,
        ),
        ("GET http://evil/health HTTP/1.1\r\nHost: good\r\n\r\n", 421),
        (
            "GET http://good@evil/health HTTP/1.1\r\nHost: good\r\n\r\n",
            421,
        ),
        (
            "GET http://evil@good/health HTTP/1.1\r\nHost: good\r\n\r\n",
            200,
        ),
        ("GET http://GOOD/health HTTP/1.1\r\nHost: good\r\n\r\n", 421),
        (
            "GET http://good/health HTTP/1.1\r\nHost: good\r\nHost: good\r\n\r\n",
            400,
        ),
        ("OPTIONS * HTTP/1.1\r\nHost: evil\r\n\r\n", 200),
        ("CONNECT evil:80 HTTP/1.1\r\nHost: good\r\n\r\n", 421),
        (
            "POST /v3/maintenance/snapshot HTTP/1.1\r\nHost: evil\r\nContent-Length: 2\r\n\r\n{}",
            421,
        ),
    ] {
        check(address, request, status);
    }
    // A host that is not allowed gets no headers for scripts either.
    let preflight = "OPTIONS /health HTTP/1.1\r\nHost: evil\r\nOrigin: http://a:1\r\n\r\n";
    check_origin(address, preflight, 421, None);
    check_origin(address, &preflight.replace("evil", "good"), 200, Some("*"));
}

fn ht_16_lists_of_hosts(servers: &Servers) {
    // The last of several lists counts, blanks are part of a name, and `*` among other names means all. The
    // functions that start servers send requests for 127.0.0.1.
    let flags: &[&str] = &[
        "--host-whitelist=one",
        "--host-whitelist=two, three,127.0.0.1",
    ];
    let server = start(servers, flags);
    for (host, status) in [("one", 421), ("two", 200), ("three", 421)] {
        check(server.address(), &get(host), status);
    }
    let server = start(servers, &["--host-whitelist=one,*"]);
    check(server.address(), &get("evil"), 200);
}

fn ht_17_only_listed_origins_may_read_responses(servers: &Servers) {
    let server = start(servers, &["--cors=http://a:1,https://B:2"]);
    let address = server.address();
    let request = |line: &str, origin: &str| {
        format!("{line} HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\nContent-Length: 0\r\n\r\n")
    };
    for (origin, expected) in [
        ("http://a:1", Some("http://a:1")),
        ("https://B:2", Some("https://B:2")),
        ("https://b:2", None),
        ("HTTP://a:1", None),
        ("http://a", None),
        ("http://a:1/", None),
        ("http://a:1 http://evil:1", None),
        ("http://evil:1", None),
        ("null", None),
        ("*", None),
        ("", None),
    ] {
        check_origin(address, &request("GET /version", origin), 200, expected);
        check_origin(
            address,
            &request("OPTIONS /v3/kv/put", origin),
            200,
            expected,
        );
        check_origin(address, &request("GET /metrics", origin), 200, expected);
        check_origin(address, &request("GET /nothing", origin), 404, expected);
        check_origin(address, &request("POST /health", origin), 405, expected);
    }
    let two =
        "GET /version HTTP/1.1\r\nHost: x\r\nOrigin: http://evil:1\r\nOrigin: http://a:1\r\n\r\n";
    check_origin(address, two, 200, None);
    check_origin(
        address,
        "GET /version HTTP/1.1\r\nHost: x\r\n\r\n",
        200,
        None,
    );
    check_origin(
        address,
        "OPTIONS /version HTTP/1.1\r\nHost: x\r\n\r\n",
        200,
        None,
    );
}

fn ht_17_responses_of_the_gateway_have_the_headers(servers: &Servers) {
    let server = servers.fresh(&Options {
        json_gateway: true,
        flags: &["--cors=http://a:1"],
        ..Options::default()
    });
    for (path, body, status) in [
        ("kv/put", r#"{"key":"YQ=="}"#, 200),
        ("kv/put", "{}", 400),
        ("kv/put", "{", 400),
        ("kv/nothing", "{}", 404),
        // Streams: the headers come with the first message.
        ("watch", r#"{"create_request":{"key":"YQ=="}}"#, 200),
        ("maintenance/snapshot", "{}", 200),
    ] {
        for (origin, expected) in [("http://a:1", Some("http://a:1")), ("http://evil:1", None)] {
            let request = format!(
                "POST /v3/{path} HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\nContent-Length: {}\r\n\r\n\
                 {body}",
                body.len()
            );
            check_origin(server.address(), &request, status, expected);
        }
    }
}

fn ht_17_lists_of_origins(servers: &Servers) {
    let allowed = |flags, origin: &str| {
        let server = start(servers, flags);
        let request = format!("GET /version HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\n\r\n");
        let head = exchange(server.address(), &request);
        head.header("access-control-allow-origin")
            .map(str::to_owned)
    };
    let both: &[&str] = &["--cors=http://a:1,http://b:2", "--cors=http://a:1"];
    assert_eq!(allowed(both, "http://b:2").as_deref(), Some("http://b:2"));
    let last: &[&str] = &["--cors=http://a:1", "--cors= HTTP://b:2 "];
    assert_eq!(allowed(last, "http://a:1"), None);
    assert_eq!(allowed(last, "http://b:2").as_deref(), Some("http://b:2"));
    assert_eq!(
        allowed(&["--cors=http://a:1", "--cors=*"], "http://c:3").as_deref(),
        Some("*")
    );
    assert_eq!(
        allowed(&["--cors=*", "--cors=http://a:1"], "http://c:3"),
        None
    );
}

fn ht_18_without_the_gateway_its_paths_do_not_exist(servers: &Servers) {
    let server = start(servers, &["--enable-grpc-gateway=false"]);
    let address = server.address();
    for path in [
        "/v3",
        "/v3/",
        "/v3/kv/range",
        "/v3/nothing",
        "/v3beta/kv/range",
        "/v3beta/",
    ] {
        for method in ["POST", "GET"] {
            let request =
                format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}");
            check(address, &request, 404);
        }
    }
    check(address, &get("x"), 200);
}
