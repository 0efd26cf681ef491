//! HTTP/2 pings: clients that send too many pings, and clients that do not acknowledge pings.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use revstore_tests::on_every_server;
use revstore_tests::poll;
use revstore_tests::server::{Endpoint, Options, Servers};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// The flag of a PING frame that acknowledges another one.
const ACK: u8 = 1;

/// The flag of a HEADERS frame without a continuation.
const END_HEADERS: u8 = 4;

const KIND_DATA: u8 = 0;
const KIND_HEADERS: u8 = 1;
const KIND_PING: u8 = 6;
const KIND_GOAWAY: u8 = 7;

/// Reads the next frame whose type is in `kinds`; returns its type and payload.
fn next(stream: &mut TcpStream, kinds: &[u8]) -> (u8, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let [_, high, low, kind, ..] = head;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        stream.read_exact(&mut payload).unwrap();
        if kinds.contains(&kind) {
            return (kind, payload);
        }
    }
}

/// Opens a connection and sends the HTTP/2 preface and an empty SETTINGS frame.
fn open(server: &dyn Endpoint) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("the server listens");
    stream
        .set_read_timeout(Some(poll::LIMIT))
        .expect("the limit is above zero");
    let preface = [PREFACE, &SETTINGS].concat();
    stream.write_all(&preface).expect("the bytes are written");
    stream
}

/// Checks that the next PING or GOAWAY frame acknowledges [`PING`].
fn check_acknowledged(stream: &mut TcpStream) {
    let (kind, payload) = next(stream, &[KIND_PING, KIND_GOAWAY]);
    assert_eq!((kind, &payload[..]), (KIND_PING, &PING[9..]));
}

/// Checks that the connection is closed with GOAWAY `ENHANCE_YOUR_CALM`.
fn check_goaway(stream: &mut TcpStream) {
    let (_, payload) = next(stream, &[KIND_GOAWAY]);
    // After the id of the last stream: the error code ENHANCE_YOUR_CALM, then the debug data.
    assert_eq!(payload[4..8], [0, 0, 0, 11]);
    assert_eq!(payload[8..], *b"too_many_pings");
}

/// Returns a frame of stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short payload");
    let head = [0, 0, length, kind, flags, 0, 0, 0, 1];
    [&head, payload].concat()
}

/// Encodes a string of a header block literally, without Huffman coding.
fn text(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("a short text");
    [&[length], text.as_bytes()].concat()
}

/// Opens a watch on stream 1 and waits for the first response.
fn watch(stream: &mut TcpStream) {
    // `:method: POST`, `:scheme: http`, and the names `:path` and `:authority` have static indexes.
    let headers = [
        &[0x83, 0x86, 0x04][..],
        &text("/etcdserverpb.Watch/Watch"),
        &[0x01],
        &text("node"),
        &[0x00],
        &text("content-type"),
        &text("application/grpc"),
        &[0x00],
        &text("te"),
        &text("trailers"),
    ];
    let headers = frame(KIND_HEADERS, END_HEADERS, &headers.concat());
    // A gRPC message, after its length: a request to create a watch of the key `a`.
    let create = frame(KIND_DATA, 0, b"\0\0\0\0\x05\x0a\x03\x0a\x01a");
    let request = [headers, create].concat();
    stream.write_all(&request).expect("the bytes are written");
    let (_, created) = next(stream, &[KIND_DATA]);
    assert!(created.len() > 5, "expected a message, got {created:?}");
}

/// LI-5: with an open stream, pings have a minimum interval.
fn too_many_pings_during_a_stream_close_the_connection(servers: &Servers) {
    let server = servers.fresh(&Options::default());
    let mut stream = open(&*server);
    watch(&mut stream);
    // The first ping does not count as too early, because the server sent data before it.
    for _ in 0..3 {
        stream.write_all(&PING).unwrap();
        check_acknowledged(&mut stream);
    }
    stream.write_all(&PING).unwrap();
    check_goaway(&mut stream);
    // The server then closes the connection.
    stream.read_to_end(&mut Vec::new()).unwrap();
}

/// LI-5 and LI-6: without an open stream, each ping except the first is too early, and the third early ping
/// closes the connection.
fn too_many_pings_without_a_stream_close_the_connection(servers: &Servers) {
    let server = servers.fresh(&Options::default());
    let mut stream = open(&*server);
    for _ in 0..3 {
        stream.write_all(&PING).unwrap();
        check_acknowledged(&mut stream);
    }
    stream.write_all(&PING).unwrap();
    check_goaway(&mut stream);
}

/// LI-7: the server pings an idle client, and closes the connection if the client does not acknowledge the
/// ping.
fn an_unacknowledged_ping_closes_the_connection(servers: &Servers) {
    let server = servers.fresh(&Options {
        keepalive: Some((Duration::from_secs(1), Duration::from_secs(1))),
        ..Options::default()
    });
    let mut stream = open(&*server);
    for _ in 0..2 {
        let (_, payload) = next(&mut stream, &[KIND_PING]);
        let mut acknowledgement = PING;
        acknowledgement[4] = ACK;
        acknowledgement[9..].copy_from_slice(&payload);
        stream.write_all(&acknowledgement).unwrap();
    }
    next(&mut stream, &[KIND_PING]);
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

on_every_server! {
    needs: [];
    too_many_pings_without_a_stream_close_the_connection,
    too_many_pings_during_a_stream_close_the_connection,
    an_unacknowledged_ping_closes_the_connection,
}
