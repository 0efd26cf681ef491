//! Tests of `--host-whitelist` that a real etcd does not share. The others are in `tests/tests/restrictions.rs`.

use std::{
    future::poll_fn,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use http::Request;
use tonic::{body::Body, transport::Endpoint};
use tower_service::Service as _;

use crate::support::{ANY_PORT, ServerProcess, block_on, put};

/// Without TLS, etcd serves only gRPC over HTTP/2 (HT-4). Our endpoints must not be a way around the list.
#[test]
fn ht_16_the_authority_of_http_2_counts_before_the_host_header() {
    let mut process = ServerProcess::start(ANY_PORT.iter().chain([&"--host-whitelist=good"]));
    let address = process.address_of("client");
    let connect = async |authority: &str| {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let origin = format!("http://{authority}").parse().unwrap();
        endpoint.origin(origin).connect().await.unwrap()
    };
    block_on(async {
        for (authority, host, status) in [
            ("good", "evil", 200),
            ("good:1", "evil", 200),
            ("evil", "good", 421),
        ] {
            let mut channel = connect(authority).await;
            let request = Request::get("/health").header("host", host);
            let request = request.body(Body::empty()).unwrap();
            poll_fn(|context| channel.poll_ready(context))
                .await
                .unwrap();
            let response = channel.call(request).await.unwrap();
            assert_eq!(response.status(), status, "{authority} {host}");
        }
        // gRPC calls are not restricted.
        assert_eq!(put(connect("evil").await, "a").await.unwrap(), 2);
    });
}

#[test]
fn ht_16_a_long_host_is_shortened() {
    let mut process = ServerProcess::start(ANY_PORT.iter().chain([&"--host-whitelist=good"]));
    let mut stream = TcpStream::connect(process.address_of("client")).unwrap();
    let host = "x".repeat(10_000);
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 421 "), "{response}");
    let line = process.wait_for_line("rejected an HTTP request");
    for text in [response, line] {
        assert!(text.contains("xxx") && text.len() < 800, "{text}");
    }
}
