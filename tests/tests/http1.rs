//! HTTP/1.1 connections whose requests are answered before they were read.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use revstore_tests::on_every_server;
use revstore_tests::poll;
use revstore_tests::server::{Options, REVSTORE, Servers};

fn connect(servers: &Servers) -> (Box<dyn revstore_tests::server::Endpoint>, TcpStream) {
    let server = servers.fresh(&Options::default());
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(poll::LIMIT)).unwrap();
    (server, stream)
}

/// Returns a request to a path that does not exist.
fn request(body_bytes: usize) -> Vec<u8> {
    let head = format!("POST /none HTTP/1.1\r\nHost: node\r\nContent-Length: {body_bytes}\r\n\r\n");
    [head.into_bytes(), vec![b'x'; body_bytes]].concat()
}

/// Reads until the text has arrived `times` times.
fn read_until(stream: &mut TcpStream, text: &str, times: usize) {
    let mut read = String::new();
    while read.matches(text).count() < times {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "the connection was closed after {read:?}");
        read += str::from_utf8(&bytes[..count]).unwrap();
    }
}

/// The connection stays open.
fn a_small_body_that_is_not_needed_is_read(servers: &Servers) {
    let (_server, mut stream) = connect(servers);
    for _ in 0..3 {
        stream.write_all(&request(200_000)).unwrap();
        read_until(&mut stream, "HTTP/1.1 404", 1);
    }
}

/// The client gets the response although the server does not need the body.
fn an_answer_before_a_large_body_arrives(servers: &Servers) {
    let (_server, mut stream) = connect(servers);
    let mut writer = stream.try_clone().unwrap();
    // The server may stop the client in the middle.
    let writing = thread::spawn(move || writer.write_all(&request(4 << 20)));
    read_until(&mut stream, "HTTP/1.1 404", 1);
    drop(stream);
    let _ = writing.join().unwrap();
}

/// The same, for a client that reads only after it has sent everything. A real etcd keeps the answer for half a second,
/// but reads no more meanwhile, so there it depends on the time.
#[test]
fn an_answer_before_a_large_body_is_kept() {
    let (_server, mut stream) = connect(&REVSTORE);
    // More than the server reads before it answers, and less than the system buffers.
    stream.write_all(&request(300_000)).unwrap();
    read_until(&mut stream, "HTTP/1.1 404", 1);
}

/// The answer to a malformed request arrives, too.
#[test]
fn an_answer_to_a_malformed_request_arrives() {
    let (_server, mut stream) = connect(&REVSTORE);
    let mut bytes = b"POST /none HTTP/1.1\r\nHost: node\r\nContent-Length: x\r\n\r\n".to_vec();
    bytes.resize(300_000, b'x');
    stream.write_all(&bytes).unwrap();
    read_until(&mut stream, "HTTP/1.1 400", 1);
}

on_every_server! {
    needs: [];
    a_small_body_that_is_not_needed_is_read,
    an_answer_before_a_large_body_arrives,
}
