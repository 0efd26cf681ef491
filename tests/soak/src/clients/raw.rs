//! Clients that do not behave: floods of frames, half requests, readers that never read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use prost::Message as _;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{RangeRequest, WatchCreateRequest, WatchRequest};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::BoxError;
use crate::clients::session::Session;
use crate::server::authority::Pair;

/// The client connection preface of HTTP/2 and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// The duration of a flood, at most.
const FLOOD_MAX: Duration = Duration::from_secs(3);

/// The number of bytes of a flood, at most.
const FLOOD_BYTES: usize = 16 << 20;

/// How long a client that never reads stays, at most.
const UNREAD_MAX: Duration = Duration::from_secs(12);

/// The number of streams of a client that never reads.
const UNREAD_STREAMS: usize = 40;

/// Types of HTTP/2 frames.
mod frame {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const PRIORITY: u8 = 2;
    pub(super) const RESET: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
}

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The kinds of clients that do not behave.
pub(crate) const KINDS: [&str; 9] = [
    "resets",
    "pings",
    "settings",
    "empty DATA",
    "endless headers",
    "random frames",
    "random HTTP/1.1",
    "half a handshake",
    "unread streams",
];

/// Runs such a client. That the server ends the connection is no error.
pub(crate) async fn run(
    session: &Session,
    pair: &Pair,
    kind: &str,
    mut rng: Rng,
) -> Result<(), BoxError> {
    match kind {
        "unread streams" => return unread(session, pair, &mut rng).await,
        "half a handshake" => {
            let mut socket = TcpStream::connect(session.address).await?;
            // The start of a ClientHello.
            let sent = socket.write_all(&[0x16, 3, 1, 2, 0, 1]).await;
            sleep(UNREAD_MAX.mul_f32(rng.f32())).await;
            return Ok(sent?);
        }
        _ => {}
    }
    let protocol: &[u8] = if kind == "random HTTP/1.1" {
        b"http/1.1"
    } else {
        b"h2"
    };
    let connection = connect(session, pair, protocol).await?;
    let (mut reader, mut writer) = tokio::io::split(connection);
    let reading = tokio::spawn(async move {
        let mut buffer = vec![0; 16 << 10];
        while matches!(reader.read(&mut buffer).await, Ok(1..)) {}
    });
    let flood = async {
        if kind != "random HTTP/1.1" {
            writer.write_all(PREFACE).await?;
        }
        let mut sent = 0;
        for round in 0_u32.. {
            let bytes = chunk(kind, round, &mut rng);
            writer.write_all(&bytes).await?;
            sent += bytes.len();
            if sent > FLOOD_BYTES {
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok::<(), std::io::Error>(())
    };
    // An error is the end of the connection by the server.
    let _ended = timeout(FLOOD_MAX, flood).await;
    reading.abort();
    Ok(())
}

async fn connect(
    session: &Session,
    pair: &Pair,
    protocol: &[u8],
) -> Result<TlsStream<TcpStream>, BoxError> {
    let config = session.authority.config(pair, protocol)?;
    let socket = TcpStream::connect(session.address).await?;
    let name = ServerName::try_from("127.0.0.1")?;
    Ok(TlsConnector::from(config).connect(name, socket).await?)
}

/// Returns the certificate of the server in a new connection; an error if the handshake or the first exchange of bytes
/// fails.
pub(crate) async fn handshake(
    session: &Session,
    pair: &Pair,
) -> Result<CertificateDer<'static>, BoxError> {
    let mut connection = connect(session, pair, b"h2").await?;
    connection.write_all(PREFACE).await?;
    // With TLS 1.3 the server rejects a certificate after the client has finished its handshake.
    let mut header = [0; 9];
    connection.read_exact(&mut header).await?;
    let (_, tls) = connection.get_ref();
    let certificates = tls.peer_certificates().ok_or("no certificate")?;
    Ok(certificates[0].clone().into_owned())
}

fn push(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len())
        .unwrap_or_default()
        .to_be_bytes();
    bytes.extend_from_slice(&length[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}

/// The header block of a POST to a method, without indexing.
fn header_block() -> Vec<u8> {
    // :method POST, :scheme https, from the static table.
    let mut block = vec![0x83, 0x87];
    let path = b"/etcdserverpb.KV/Range";
    block.extend_from_slice(&[0x04, u8::try_from(path.len()).unwrap_or_default()]);
    block.extend_from_slice(path);
    let authority = b"127.0.0.1";
    block.extend_from_slice(&[0x01, u8::try_from(authority.len()).unwrap_or_default()]);
    block.extend_from_slice(authority);
    block
}

/// Returns the next bytes of a flood.
fn chunk(kind: &str, round: u32, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..100 {
        let stream = 2 * (round * 100 + index) + 1;
        match kind {
            "resets" => {
                let block = header_block();
                push(&mut bytes, frame::HEADERS, END_HEADERS, stream, &block);
                push(&mut bytes, frame::RESET, 0, stream, &[0, 0, 0, 8]);
            }
            "pings" => push(&mut bytes, frame::PING, 0, 0, &[7; 8]),
            "settings" => push(&mut bytes, frame::SETTINGS, 0, 0, &[]),
            "empty DATA" => {
                if round == 0 && index == 0 {
                    let block = header_block();
                    push(&mut bytes, frame::HEADERS, END_HEADERS, 1, &block);
                }
                push(&mut bytes, frame::DATA, 0, 1, &[]);
            }
            "endless headers" => {
                let (kind, flags) = if round == 0 && index == 0 {
                    (frame::HEADERS, 0)
                } else {
                    (frame::CONTINUATION, 0)
                };
                let block = [header_block(), vec![0; 200]].concat();
                push(&mut bytes, kind, flags, 1, &block);
            }
            "random HTTP/1.1" => random_request(&mut bytes, rng),
            _ => random_frame(&mut bytes, stream, rng),
        }
    }
    bytes
}

fn random_frame(bytes: &mut Vec<u8>, stream: u32, rng: &mut Rng) {
    let kind = match rng.u32(..10) {
        0..4 => frame::HEADERS,
        4 => frame::DATA,
        5 => frame::PRIORITY,
        6 => frame::WINDOW_UPDATE,
        7 => frame::RESET,
        8 => frame::CONTINUATION,
        _ => rng.u8(..),
    };
    let flags = match rng.u32(..3) {
        0 => END_HEADERS,
        1 => END_HEADERS | END_STREAM,
        _ => rng.u8(..),
    };
    let mut payload = header_block();
    if rng.bool() {
        payload.truncate(rng.usize(..payload.len()));
    }
    for _ in 0..rng.usize(..3) {
        payload.push(rng.u8(..));
    }
    let stream = if rng.u32(..8) == 0 {
        rng.u32(..)
    } else {
        stream
    };
    push(bytes, kind, flags, stream, &payload);
}

fn random_request(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let method = rng.choice(["GET", "POST", "PUT", "\u{0}", "PRI"]);
    let path = rng.choice([
        "/health",
        "/metrics",
        "/v3/kv/range",
        "/v3/watch",
        "//",
        "*",
    ]);
    let length = rng.choice(["", "Content-Length: 20\r\n", "Content-Length: -1\r\n"]);
    let encoding = rng.choice([
        "",
        "Transfer-Encoding: chunked\r\n",
        "Expect: 100-continue\r\n",
    ]);
    let body = rng.choice([
        "",
        "{\"key\":\"YQ==\"}",
        "5\r\nabcde\r\n0\r\n\r\n",
        "ffffffffffffffff\r\n",
    ]);
    let request = format!(
        "{} {} HTTP/1.1\r\nHost: a\r\n{}{}\r\n{}",
        method.unwrap_or_default(),
        path.unwrap_or_default(),
        length.unwrap_or_default(),
        encoding.unwrap_or_default(),
        body.unwrap_or_default(),
    );
    bytes.extend_from_slice(request.as_bytes());
}

/// Opens watches and ranges of everything, and reads nothing for a while.
async fn unread(session: &Session, pair: &Pair, rng: &mut Rng) -> Result<(), BoxError> {
    let connection = connect(session, pair, b"h2").await?;
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(64 << 10)
        .handshake::<_, Bytes>(connection)
        .await?;
    let driving = tokio::spawn(connection);
    let mut open = Vec::new();
    let range = RangeRequest {
        key: b"s".to_vec().into(),
        range_end: b"t".to_vec().into(),
        ..RangeRequest::default()
    };
    let watch = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(WatchCreateRequest {
            key: b"s".to_vec().into(),
            range_end: b"t".to_vec().into(),
            start_revision: session.judge().revision().max(1),
            ..WatchCreateRequest::default()
        })),
    };
    for _ in 0..UNREAD_STREAMS {
        let (path, message) = if rng.bool() {
            ("/etcdserverpb.KV/Range", range.encode_to_vec())
        } else {
            ("/etcdserverpb.Watch/Watch", watch.encode_to_vec())
        };
        let request = http::Request::post(format!("https://{}{path}", session.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let Ok(mut client) = client.clone().ready().await else {
            break;
        };
        let Ok((response, mut body)) = client.send_request(request, false) else {
            break;
        };
        let mut bytes = vec![0];
        bytes.extend_from_slice(&u32::try_from(message.len())?.to_be_bytes());
        bytes.extend_from_slice(&message);
        // The server may have ended the connection.
        let _sent = body.send_data(bytes.into(), false);
        open.push((response, body));
    }
    sleep(UNREAD_MAX.mul_f32(rng.f32())).await;
    drop(open);
    driving.abort();
    Ok(())
}

/// Runs clients that do not behave until the session stops; returns how many there were of each kind.
pub(crate) async fn run_many(
    session: Arc<Session>,
    pair: Pair,
    mut rng: Rng,
) -> Result<u64, BoxError> {
    let mut count = 0;
    while !session.is_stopping() {
        let kind = rng.choice(KINDS).unwrap_or_default();
        // Failures are what such clients expect; the others show whether the server suffers.
        let _ended = run(&session, &pair, kind, rng.fork()).await;
        count += 1;
        sleep(Duration::from_millis(rng.u64(..1_000))).await;
    }
    Ok(count)
}
