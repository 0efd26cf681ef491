//! What happens to a client that pings too often, frame by frame.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use revstore_tests::on_every_server;
use revstore_tests::poll;
use revstore_tests::server::{Options, Servers};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

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

/// LI-5 and LI-6: without an open stream any ping but the first is one too many, and three of those
/// are not forgiven.
fn without_a_stream(servers: &Servers) {
    let server = servers.fresh(&Options::default());
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(poll::LIMIT)).unwrap();
    stream.write_all(PREFACE).unwrap();
    stream.write_all(&SETTINGS).unwrap();
    for _ in 0..3 {
        stream.write_all(&PING).unwrap();
        let (kind, payload) = next(&mut stream, &[KIND_PING, KIND_GOAWAY]);
        assert_eq!((kind, &payload[..]), (KIND_PING, &PING[9..]), "an answer");
    }
    stream.write_all(&PING).unwrap();
    let (_, payload) = next(&mut stream, &[KIND_GOAWAY]);
    // The last stream, ENHANCE_YOUR_CALM, and why.
    assert_eq!(payload[4..8], [0, 0, 0, 11]);
    assert_eq!(payload[8..], *b"too_many_pings");
}

on_every_server! { needs: []; without_a_stream }
