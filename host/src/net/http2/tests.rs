//! Clients that make the most of one connection, byte by byte. All bytes are there before the server reads, so that
//! nothing depends on time.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    sync::Arc,
    task::Poll,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::service::service_fn;
use tokio::{
    io::{AsyncReadExt, AsyncWrite as _, AsyncWriteExt, DuplexStream},
    sync::oneshot,
};

use super::*;
use crate::net::{
    connection::{self, ConnectionError, MakeService, Security, Serving},
    http2::frame::{
        ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameHeader, GOAWAY, HEADERS, PING,
        PREFACE, RST_STREAM, WINDOW_UPDATE,
    },
    transport::Transport,
};

// Further types of frames.
const SETTINGS: u8 = 4;

/// `:method: POST`, `:scheme: http`, `:path: /`, from the static table.
const REQUEST: &[u8] = &[0x83, 0x86, 0x84];

const ENHANCE_YOUR_CALM: u32 = 11;

/// The capacity of the client's socket, in both directions.
const SOCKET_BYTES: usize = 32 << 20;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        length: payload.len().try_into().unwrap(),
        kind,
        flags,
        stream,
    };
    [&header.to_bytes(), payload].concat()
}

/// The client's stream ids.
fn streams() -> impl Iterator<Item = u32> {
    (1..).step_by(2)
}

fn server<M: MakeService>(
    make_service: M,
    socket_bytes: usize,
) -> (
    DuplexStream,
    impl Future<Output = Result<(), ConnectionError>>,
) {
    server_until(make_service, socket_bytes, pending())
}

fn server_until<M: MakeService>(
    make_service: M,
    socket_bytes: usize,
    shutdown: impl Future<Output = ()>,
) -> (
    DuplexStream,
    impl Future<Output = Result<(), ConnectionError>>,
) {
    let (client, server) = tokio::io::duplex(socket_bytes);
    let serving = Serving {
        options: HttpOptions::new(),
        security: Security::Plain,
        make_service,
    };
    let transport = Transport::Boxed(Box::new(server));
    let end = connection::serve(transport, Arc::new(serving), None, shutdown);
    (client, end)
}

/// A service that responds without reading the request.
async fn respond(_: Request<RequestBody>) -> Result<Response<Empty<Bytes>>, Infallible> {
    Ok(Response::new(Empty::new()))
}

fn opening() -> Vec<u8> {
    // The acknowledgement of the server's settings, which have the size of the windows.
    let acknowledgement = frame(SETTINGS, ACK, 0, &[]);
    [PREFACE, &frame(SETTINGS, 0, 0, &[]), &acknowledgement].concat()
}

/// Serves a client that sends `bytes` after the preface and then reads. Returns the frames of the server, as their types
/// and payloads, until it closes the connection or has responded to `responses` requests.
async fn frames(bytes: &[u8], responses: usize) -> Vec<(u8, Vec<u8>)> {
    let (mut client, served) = server(|_| service_fn(respond), SOCKET_BYTES);
    let bytes = [&opening(), bytes].concat();
    client.write_all(&bytes).await.unwrap();
    if responses == 0 {
        client.shutdown().await.unwrap();
    }
    let reading = async {
        let mut frames = Vec::new();
        let mut seen = 0;
        while seen < responses || responses == 0 {
            let mut head = [0; FrameHeader::BYTES];
            if client.read_exact(&mut head).await.is_err() {
                break;
            }
            let head = FrameHeader::parse(head);
            let mut payload = vec![0; head.length as usize];
            client.read_exact(&mut payload).await.unwrap();
            seen += usize::from(head.kind == HEADERS);
            frames.push((head.kind, payload));
        }
        frames
    };
    let mut reading = std::pin::pin!(reading);
    tokio::select! {
        frames = &mut reading => frames,
        _ = served => reading.await,
    }
}

/// Checks that the server ends the connection of a client with this reason.
async fn check_stopped(bytes: &[u8], reason: u32, text: &str) {
    let frames = frames(bytes, 0).await;
    let (_, payload) = (frames.iter())
        .find(|(kind, _)| *kind == GOAWAY)
        .expect("a GOAWAY frame");
    assert_eq!(payload[4..8], reason.to_be_bytes());
    assert_eq!(payload[8..], *text.as_bytes());
}

#[tokio::test]
async fn a_client_that_resets_streams_at_once_is_stopped() {
    let pairs = |count| -> Vec<u8> {
        (streams().take(count))
            .flat_map(|stream| {
                let request = frame(HEADERS, END_STREAM | END_HEADERS, stream, REQUEST);
                [request, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
            })
            .collect()
    };
    check_stopped(&pairs(10_000), ENHANCE_YOUR_CALM, "too_many_resets").await;
    let last = frame(HEADERS, END_STREAM | END_HEADERS, 9_999, REQUEST);
    let served = frames(&[pairs(PENDING_RESET_STREAMS_MAX), last].concat(), 1).await;
    assert!(served.iter().all(|(kind, _)| *kind != GOAWAY));
}

/// A client that sends a message before it cancels a stream never reaches the limit: so many streams do not fit into a
/// round.
#[tokio::test]
async fn a_client_that_cancels_many_calls_is_served() {
    const CALLS: usize = 20_000;
    let calls: Vec<u8> = (streams().take(CALLS))
        .flat_map(|stream| {
            let request = frame(HEADERS, END_HEADERS, stream, REQUEST);
            let message = frame(DATA, 0, stream, &[0; 24]);
            [
                request,
                message,
                frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
            ]
            .concat()
        })
        .collect();
    let last = frame(HEADERS, END_STREAM | END_HEADERS, 2 * 20_000 + 1, REQUEST);
    let served = frames(&[calls, last].concat(), 1).await;
    assert!(served.iter().all(|(kind, _)| *kind != GOAWAY));
}

/// The client makes the server reset streams, which then do not count as open.
#[tokio::test]
async fn a_client_that_provokes_resets_is_stopped() {
    let bytes: Vec<u8> = (streams().take(ERROR_RESET_STREAMS_MAX + 1_000))
        .flat_map(|stream| {
            let request = frame(HEADERS, END_HEADERS, stream, REQUEST);
            // The window of the stream overflows.
            let update = frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff]);
            [request, update].concat()
        })
        .collect();
    check_stopped(&bytes, ENHANCE_YOUR_CALM, "too_many_internal_resets").await;
}

#[tokio::test]
async fn headers_without_end_are_stopped() {
    let first = frame(HEADERS, END_STREAM, 1, REQUEST);
    // A header `a: bbb…`, again and again.
    let field = [&[0x00, 1, b'a', 100][..], &[b'b'; 100]]
        .concat()
        .repeat(150);
    let more = frame(CONTINUATION, 0, 1, &field).repeat(1_000);
    let frames = frames(&[first, more].concat(), 0).await;
    let (kind, payload) = frames.last().expect("a frame");
    assert_eq!(
        (*kind, &payload[4..8]),
        (GOAWAY, &ENHANCE_YOUR_CALM.to_be_bytes()[..])
    );
}

#[tokio::test]
async fn empty_frames_without_end_are_stopped() {
    let request = frame(HEADERS, END_HEADERS, 1, REQUEST);
    let empty = frame(DATA, 0, 1, &[]).repeat(10_000);
    check_stopped(
        &[request, empty].concat(),
        ENHANCE_YOUR_CALM,
        "too_many_data_frames",
    )
    .await;
}

/// The server acknowledges each SETTINGS frame, and stops to read when nobody reads the acknowledgements.
#[tokio::test]
async fn settings_without_end_wait_for_their_acknowledgements() {
    let (mut client, served) = server(|_| service_fn(respond), 64 * 1024);
    let settings = frame(SETTINGS, 0, 0, &[]).repeat(1_000_000);
    let mut written = 0;
    let mut served = std::pin::pin!(served);
    client.write_all(&opening()).await.unwrap();
    poll_fn(|context| {
        // Each poll of the server reads at most one round.
        for _ in 0..1_000 {
            while let Poll::Ready(count) =
                Pin::new(&mut client).poll_write(context, &settings[written..])
            {
                written += count.unwrap();
            }
            assert!(served.as_mut().poll(context).is_pending());
        }
        Poll::Ready(())
    })
    .await;
    assert!(written < 1_000_000, "the server has read {written} bytes");
}

/// Small frames of a body that nobody reads are kept as their bytes.
#[tokio::test]
async fn small_frames_wait_for_their_reader() {
    let (start, started) = oneshot::channel::<()>();
    let (done, read) = oneshot::channel();
    let channels = std::sync::Mutex::new(Some((started, done)));
    let service = move |_| {
        let channels = channels.lock().unwrap().take();
        let channels = Arc::new(std::sync::Mutex::new(channels));
        service_fn(move |request: Request<RequestBody>| {
            let channels = channels.lock().unwrap().take();
            async move {
                let mut body = request.into_body();
                if let Some((started, done)) = channels {
                    // The reader takes one frame and then stops for a while.
                    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
                    started.await.unwrap();
                    let rest = body.collect().await.unwrap().to_bytes();
                    done.send([first, rest].concat()).unwrap();
                }
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("read")))
            }
        })
    };
    let (mut client, served) = server(service, SOCKET_BYTES);
    let sent: Vec<u8> = (0..STREAM_WINDOW_BYTES / 4)
        .map(|it| it.to_le_bytes()[0])
        .collect();
    let mut bytes = opening();
    bytes.extend(frame(HEADERS, END_HEADERS, 1, REQUEST));
    for byte in &sent {
        bytes.extend(frame(DATA, 0, 1, &[*byte]));
    }
    bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 3, REQUEST));
    client.write_all(&bytes).await.unwrap();
    let session = async {
        // The response to the second request.
        let mut kind = 0;
        while kind != HEADERS {
            let mut head = [0; 9];
            client.read_exact(&mut head).await.unwrap();
            kind = head[3];
            let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
            client.read_exact(&mut payload).await.unwrap();
        }
        client
            .write_all(&frame(DATA, END_STREAM, 1, &[]))
            .await
            .unwrap();
        start.send(()).unwrap();
        assert!(read.await.unwrap() == sent);
    };
    tokio::select! {
        () = session => {}
        served = served => panic!("the connection has ended: {served:?}"),
    }
}

/// The authority is a URL, and later requests refer to it.
#[tokio::test]
async fn li_12_requests_with_a_url_as_their_authority_are_answered() {
    let url = b"http://127.0.0.1:2379";
    let first = [REQUEST, &[0x41, 21], url].concat();
    let later = [REQUEST, &[0x80 | 0x3e]].concat();
    let bytes = [
        frame(HEADERS, END_STREAM | END_HEADERS, 1, &first),
        frame(HEADERS, END_STREAM | END_HEADERS, 3, &later),
        frame(HEADERS, END_STREAM | END_HEADERS, 5, &later),
    ];
    let frames = frames(&bytes.concat(), 3).await;
    assert!(
        frames
            .iter()
            .all(|(kind, _)| ![RST_STREAM, GOAWAY].contains(kind))
    );
}

/// Reads the next frame of the server: its header and its payload.
async fn next_frame(client: &mut DuplexStream) -> (FrameHeader, Vec<u8>) {
    let mut header = [0; FrameHeader::BYTES];
    client.read_exact(&mut header).await.unwrap();
    let header = FrameHeader::parse(header);
    let mut payload = vec![0; header.length as usize];
    client.read_exact(&mut payload).await.unwrap();
    (header, payload)
}

/// A client writes a request behind the acknowledgement of a shutdown, before it knows of the last GOAWAY. The library once
/// ended the connection with `PROTOCOL_ERROR` at the window update, and the request that was under way was lost.
#[tokio::test]
async fn a_request_behind_the_acknowledgement_of_a_shutdown_ends_no_other() {
    // In pieces of all sizes: the frames that matter have 57 bytes.
    for size in (1..=57).chain([SOCKET_BYTES]) {
        let (answer, answered) = oneshot::channel::<()>();
        let (signal, stopping) = oneshot::channel::<()>();
        let first = Arc::new(parking_lot::Mutex::new(Some((signal, answered))));
        let respond = move |_| {
            let first = first.lock().take();
            async move {
                // The shutdown begins while the first request is under way.
                if let Some((signal, answered)) = first {
                    signal.send(()).unwrap();
                    answered.await.unwrap();
                }
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        };
        let make_service = move |_| service_fn(respond.clone());
        let (mut client, served) = server_until(make_service, SOCKET_BYTES, async {
            stopping.await.unwrap();
        });
        let talking = async move {
            let request = |stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, REQUEST);
            let bytes = [opening(), request(1)].concat();
            client.write_all(&bytes).await.unwrap();
            let ping = loop {
                match next_frame(&mut client).await {
                    (header, payload) if header.kind == PING => break payload,
                    (header, _) => assert_ne!(header.kind, HEADERS),
                }
            };
            assert_eq!(ping, late_frames::SHUTDOWN_PING);
            let update = |stream| frame(WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes());
            let bytes = [
                frame(PING, ACK, 0, &ping),
                request(3),
                update(3),
                update(0),
                update(1),
            ]
            .concat();
            for piece in bytes.chunks(size) {
                client.write_all(piece).await.unwrap();
                // The server reads it.
                tokio::task::yield_now().await;
            }
            let mut answer = Some(answer);
            loop {
                let (header, payload) = next_frame(&mut client).await;
                match header.kind {
                    GOAWAY => {
                        assert_eq!(payload[4..8], [0; 4], "in pieces of {size}");
                        // The last one.
                        if payload[..4] == 1_u32.to_be_bytes()
                            && let Some(answer) = answer.take()
                        {
                            answer.send(()).unwrap();
                        }
                    }
                    HEADERS => break assert_eq!(header.stream, 1),
                    _ => {}
                }
            }
        };
        let (served, ()) = tokio::join!(served, talking);
        served.unwrap();
    }
}
