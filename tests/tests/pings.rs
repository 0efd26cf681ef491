//! What happens to a client that pings too often, and to one that does not answer pings, frame by
//! frame.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use revstore_tests::on_every_server;
use revstore_tests::poll;
use revstore_tests::server::{Endpoint, Options, Servers};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// The flag of a ping that answers one.
const ACK: u8 = 1;

/// The flag of headers that are all there are.
const END_HEADERS: u8 = 4;

const KIND_DATA: u8 = 0;
const KIND_HEADERS: u8 = 1;
const KIND_PING: u8 = 6;
const KIND_GOAWAY: u8 = 7;

/// The next frame of one of some kinds, and what it says.
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

/// A connection on which the client has said as much as it must.
fn open(server: &dyn Endpoint) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("a server that listens");
    stream
        .set_read_timeout(Some(poll::LIMIT))
        .expect("a limit above zero");
    let hello = [PREFACE, &SETTINGS].concat();
    stream.write_all(&hello).expect("room for a few bytes");
    stream
}

fn next_is_answer(stream: &mut TcpStream) {
    let (kind, payload) = next(stream, &[KIND_PING, KIND_GOAWAY]);
    assert_eq!((kind, &payload[..]), (KIND_PING, &PING[9..]), "an answer");
}

fn sent_away(stream: &mut TcpStream) {
    let (_, payload) = next(stream, &[KIND_GOAWAY]);
    // The last stream, ENHANCE_YOUR_CALM, and why.
    assert_eq!(payload[4..8], [0, 0, 0, 11]);
    assert_eq!(payload[8..], *b"too_many_pings");
}

/// A frame of stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short payload");
    let head = [0, 0, length, kind, flags, 0, 0, 0, 1];
    [&head, payload].concat()
}

/// A text in a block of headers, as it is.
fn text(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("a short text");
    [&[length], text.as_bytes()].concat()
}

/// Opens a watch on stream 1 and waits until it is there.
fn watch(stream: &mut TcpStream) {
    // POST and http have numbers, as the names of the path and of the authority do.
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
    // To create a watch of the key `a`, behind how long that is to say.
    let create = frame(KIND_DATA, 0, b"\0\0\0\0\x05\x0a\x03\x0a\x01a");
    let request = [headers, create].concat();
    stream.write_all(&request).expect("room for a few bytes");
    let (_, created) = next(stream, &[KIND_DATA]);
    assert!(created.len() > 5, "an answer");
}

/// LI-5: with a stream open, there has to be some time between pings.
fn beside_a_stream(servers: &Servers) {
    let server = servers.fresh(&Options::default());
    let mut stream = open(&*server);
    watch(&mut stream);
    // That the first came so soon is forgiven for the answer before it.
    for _ in 0..3 {
        stream.write_all(&PING).unwrap();
        next_is_answer(&mut stream);
    }
    stream.write_all(&PING).unwrap();
    sent_away(&mut stream);
    // And then the line is closed.
    stream.read_to_end(&mut Vec::new()).unwrap();
}

/// LI-5 and LI-6: without an open stream any ping but the first is one too many, and three of those
/// are not forgiven.
fn without_a_stream(servers: &Servers) {
    let server = servers.fresh(&Options::default());
    let mut stream = open(&*server);
    for _ in 0..3 {
        stream.write_all(&PING).unwrap();
        next_is_answer(&mut stream);
    }
    stream.write_all(&PING).unwrap();
    sent_away(&mut stream);
}

/// LI-7: a client that is silent is asked whether it is still there, and left if it does not say so.
fn of_the_server(servers: &Servers) {
    let server = servers.fresh(&Options {
        keepalive: Some((Duration::from_secs(1), Duration::from_secs(1))),
        ..Options::default()
    });
    let mut stream = open(&*server);
    for _ in 0..2 {
        let (_, payload) = next(&mut stream, &[KIND_PING]);
        let mut answer = PING;
        answer[4] = ACK;
        answer[9..].copy_from_slice(&payload);
        stream.write_all(&answer).unwrap();
    }
    next(&mut stream, &[KIND_PING]);
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

on_every_server! { needs: []; without_a_stream, beside_a_stream, of_the_server }
