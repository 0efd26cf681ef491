//! Watches over a WebSocket.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use revstore_apiserver::{ApiServer, Config};
use revstore_engine::ManualClock;
use serde_json::{Value, json};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const NAMESPACES: &str = "/api/v1/namespaces?watch=true&fieldSelector=metadata.name%3Ddefault";

/// A client of the protocol.
struct WebSocket {
    stream: TcpStream,
    head: String,
}

impl WebSocket {
    fn open(server: &ApiServer, path: &str, headers: &[&str]) -> Result<Self, std::io::Error> {
        let address = server.endpoint().trim_start_matches("http://");
        let mut stream = TcpStream::connect(address)?;
        let mut head = format!("GET {path} HTTP/1.1\r\nHost: test\r\n");
        let usual = [
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
            "Origin: http://test",
        ];
        let name = |line: &str| line.split(':').next().map(str::to_owned);
        let is_other = |line: &&&str| headers.iter().all(|other| name(other) != name(line));
        for line in usual.iter().filter(is_other).chain(headers) {
            if !line.ends_with(": -") {
                head.push_str(line);
                head.push_str("\r\n");
            }
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        Ok(Self {
            stream,
            head: String::from_utf8_lossy(&head).to_ascii_lowercase(),
        })
    }

    fn status(&self) -> &str {
        &self.head[9..12]
    }

    /// Sends a frame with a mask of zeros.
    fn send(&mut self, first: u8, payload: &[u8]) -> Result<(), std::io::Error> {
        let mut frame = vec![first];
        if let Ok(length @ ..126) = u8::try_from(payload.len()) {
            frame.push(128 | length);
        } else {
            frame.push(255);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
        frame.extend([0; 4]);
        frame.extend(payload);
        self.stream.write_all(&frame)
    }

    /// Returns the first byte and the payload of the next frame.
    fn receive(&mut self) -> Result<(u8, Vec<u8>), std::io::Error> {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head)?;
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length)?;
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.stream.read_exact(&mut length)?;
                u64::from_be_bytes(length)
            }
            length => length.into(),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap_or_default()];
        self.stream.read_exact(&mut payload)?;
        Ok((head[0], payload))
    }

    fn event(&mut self) -> Result<Value, Box<dyn std::error::Error>> {
        let (first, payload) = self.receive()?;
        assert_eq!(first, TEXT, "{payload:?}");
        Ok(serde_json::from_slice(&payload)?)
    }

    /// Receives the close frame and the end.
    fn expect_close(mut self, code: u16) -> TestResult {
        assert_eq!(self.receive()?, (CLOSE, code.to_be_bytes().to_vec()));
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        assert_eq!(rest, b"");
        Ok(())
    }
}

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

fn create(server: &ApiServer, object: &Value) -> Result<String, std::io::Error> {
    let address = server.endpoint().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address)?;
    let body = object.to_string();
    let path = "/api/v1/namespaces/default/configmaps";
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    Ok(answer)
}

#[test]
fn each_event_is_a_message() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/configmaps?watch=true";
    let mut watch = WebSocket::open(&server, path, &[])?;
    assert_eq!(watch.status(), "101");
    assert!(
        watch
            .head
            .contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n")
    );
    // One that fills many writes, between small ones.
    for (name, size) in [("a", 1), ("b", 900_000), ("c", 1)] {
        let object = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(size)}});
        create(&server, &object)?;
    }
    for (name, size) in [("a", 1), ("b", 900_000), ("c", 1)] {
        let event = watch.event()?;
        assert_eq!(event["type"], "ADDED");
        assert_eq!(event["object"]["metadata"]["name"], name);
        assert_eq!(
            event["object"]["data"]["k"].as_str().map(str::len),
            Some(size)
        );
    }
    watch.send(CLOSE, &[3, 232])?;
    watch.expect_close(1000)
}

#[test]
fn an_event_in_protobuf_is_a_binary_message_without_a_length() -> TestResult {
    let server = ApiServer::builder().start()?;
    let accept = "Accept: application/vnd.kubernetes.protobuf";
    let mut watch = WebSocket::open(&server, NAMESPACES, &[accept])?;
    let (first, payload) = watch.receive()?;
    assert_eq!(first, BINARY);
    assert!(payload.starts_with(b"\n\x05ADDED"), "{payload:?}");
    Ok(())
}

#[test]
fn handshakes_are_checked() -> TestResult {
    let server = ApiServer::builder().start()?;
    for (headers, status, found) in [
        (&["Origin: -"][..], "403", ""),
        (&["Origin: null"], "403", ""),
        (
            &["Sec-WebSocket-Version: 8"],
            "400",
            "sec-websocket-version: 13",
        ),
        (&["Sec-WebSocket-Key: -"], "400", ""),
        (&["Sec-WebSocket-Protocol: a, b"], "400", ""),
        (
            &["Sec-WebSocket-Protocol: base64.binary.k8s.io"],
            "101",
            "sec-websocket-protocol: base64.binary.k8s.io",
        ),
        (
            &["Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA, b"],
            "401",
            "",
        ),
        // Not a WebSocket.
        (&["Upgrade: other"], "200", ""),
        (&["Connection: keep-alive"], "200", ""),
    ] {
        let socket = WebSocket::open(&server, NAMESPACES, headers)?;
        assert_eq!(socket.status(), status, "{headers:?}");
        assert!(socket.head.contains(found), "{}", socket.head);
    }
    Ok(())
}

#[test]
fn pings_are_answered_and_other_messages_ignored() -> TestResult {
    let server = ApiServer::builder().start()?;
    let mut watch = WebSocket::open(&server, NAMESPACES, &[])?;
    watch.event()?;
    watch.send(0x01, b"not the end of")?;
    watch.send(PING, b"one")?;
    assert_eq!(watch.receive()?, (PONG, b"one".to_vec()));
    watch.send(0x80, &vec![b'x'; 1 << 20])?;
    watch.send(PONG, b"")?;
    watch.send(PING, &[7; 200])?;
    assert_eq!(watch.receive()?, (PONG, vec![7; 125]));
    watch.send(CLOSE, b"")?;
    watch.expect_close(1000)
}

#[test]
fn a_client_that_breaks_the_protocol_is_closed() -> TestResult {
    let server = ApiServer::builder().start()?;
    for (bytes, code) in [
        (&[0x81, 1, b'x'][..], 1002),
        (
            &[
                0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0,
            ],
            1000,
        ),
    ] {
        let mut watch = WebSocket::open(&server, NAMESPACES, &[])?;
        watch.event()?;
        watch.stream.write_all(bytes)?;
        watch.expect_close(code)?;
    }
    Ok(())
}

#[test]
fn a_watch_ends_with_its_time_and_with_its_client() -> TestResult {
    let clock = ManualClock::new();
    let mut config = Config::default();
    config.https = None;
    config.http = Some("127.0.0.1:0".parse()?);
    config.min_request_timeout = Duration::from_secs(10);
    let server = ApiServer::builder()
        .config(config)
        .clock(clock.clone())
        .start()?;
    let mut gone = WebSocket::open(&server, NAMESPACES, &[])?;
    let mut watch = WebSocket::open(&server, NAMESPACES, &[])?;
    gone.event()?;
    watch.event()?;
    gone.stream.shutdown(Shutdown::Write)?;
    let mut rest = Vec::new();
    gone.stream.read_to_end(&mut rest)?;
    assert_eq!(rest, b"");
    clock.advance(Duration::from_secs(20));
    watch.expect_close(1000)
}

#[test]
fn a_client_that_never_reads_and_sends_pings_costs_only_itself() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/configmaps?watch=true";
    let mut deaf = WebSocket::open(&server, path, &[])?;
    let mut other = WebSocket::open(&server, path, &[])?;
    for number in 0..12 {
        let object = json!({
            "metadata": {"name": format!("large-{number}")},
            "data": {"k": "x".repeat(900_000)},
        });
        create(&server, &object)?;
        other.event()?;
    }
    // The server answers the last one of those that it has not answered, so it goes on reading.
    for _ in 0..20_000 {
        deaf.send(PING, &[7; 100])?;
    }
    create(&server, &json!({"metadata": {"name": "small"}}))?;
    other.event()?;
    server.stop();
    other.expect_close(1000)
}

#[test]
fn a_server_that_stops_closes_its_websockets() -> TestResult {
    let server = ApiServer::builder().start()?;
    let mut watch = WebSocket::open(&server, NAMESPACES, &[])?;
    watch.event()?;
    server.stop();
    watch.expect_close(1000)
}
