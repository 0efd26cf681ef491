//! Requests over HTTP/1.1 that a client sends before it has got the response to an earlier one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    convert::Infallible,
    future::{Future, pending, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use revstore_host::net::{self, BoxError, HttpOptions, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWrite as _, AsyncWriteExt, DuplexStream};

/// A request that waits until its connection ends.
const WAIT: &[u8] = b"POST /wait HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\n\r\n";

const SOCKET_BYTES: usize = 1 << 20;

/// Starts a connection. The last value has as many references as there are requests under way, and one more.
fn connect() -> (
    DuplexStream,
    impl Future<Output = Result<(), BoxError>>,
    Arc<()>,
) {
    let (client, server) = tokio::io::duplex(SOCKET_BYTES);
    let requests = Arc::new(());
    let running = requests.clone();
    let respond = move |request: Request<RequestBody>| {
        let running = running.clone();
        async move {
            let path = request.uri().path().to_owned();
            request.into_body().collect().await.unwrap();
            if path == "/wait" {
                pending::<()>().await;
            }
            drop(running);
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(path)))
        }
    };
    let connection = net::serve_connection(server, HttpOptions::new(), move |_| {
        service_fn(respond.clone())
    });
    (client, connection, requests)
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n").into_bytes()
}

/// Returns the bodies of responses, each of which is a path.
fn bodies(responses: &[u8]) -> Vec<String> {
    let responses = String::from_utf8(responses.to_vec()).unwrap();
    let parts = responses.split("HTTP/1.1 200 OK").skip(1);
    parts
        .map(|part| part.split_once("\r\n\r\n").unwrap().1.to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn responses_have_the_order_of_the_requests() {
    let (mut client, served, _) = connect();
    let mut requests: Vec<_> = (0..200).map(|number| format!("/{number}")).collect();
    let bytes: Vec<u8> = requests.iter().flat_map(|path| get(path)).collect();
    let last = b"GET /last HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
    client
        .write_all(&[&bytes, &last[..]].concat())
        .await
        .unwrap();
    requests.push("/last".to_owned());
    served.await.unwrap();
    let mut responses = Vec::new();
    client.read_to_end(&mut responses).await.unwrap();
    assert_eq!(bodies(&responses), requests);
}

/// hyper does not read while a request waits and bytes of the next one have arrived.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_ends_with_its_client() {
    for after in [&b""[..], b"GET", &get("/next"), &get("/next").repeat(1_000)] {
        let (mut client, served, requests) = connect();
        client.write_all(&[WAIT, after].concat()).await.unwrap();
        let mut served = pin!(served);
        poll_fn(|context| {
            assert!(served.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        assert!(Arc::strong_count(&requests) > 2);
        drop(client);
        let ended = tokio::time::timeout(Duration::from_secs(60), served).await;
        assert!(ended.is_ok(), "{} bytes after the request", after.len());
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_waiting_request_is_bounded() {
    let (mut client, served, _) = connect();
    client.write_all(WAIT).await.unwrap();
    let mut served = pin!(served);
    let more = get("/next").repeat(10_000);
    let mut written = 0;
    poll_fn(|context| {
        for _ in 0..1_000 {
            while let Poll::Ready(count) = Pin::new(&mut client).poll_write(context, &more) {
                written += count.unwrap();
            }
            assert!(served.as_mut().poll(context).is_pending());
        }
        Poll::Ready(())
    })
    .await;
    assert!(
        written < SOCKET_BYTES + (1 << 20),
        "the server has read {written} bytes"
    );
}
