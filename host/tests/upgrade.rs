//! Connections that change from HTTP/1.1 to another protocol.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::service::service_fn;
use revstore_host::net::{
    self, BoxError, Drain, HttpOptions, ListenUrl, Listener, RequestBody, UpgradeOffer, Upgraded,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::watch;

const UPGRADE: &[u8] =
    b"GET /echo HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

/// Returns all bytes to the client.
async fn echo(mut stream: Upgraded, _: Drain) {
    let mut bytes = vec![0; 100_000];
    loop {
        let count = stream.read(&mut bytes).await.unwrap();
        if count == 0 {
            return;
        }
        stream.write_all(&bytes[..count]).await.unwrap();
        stream.flush().await.unwrap();
    }
}

/// Sends one byte and then waits for the shutdown.
async fn wait(mut stream: Upgraded, drain: Drain) {
    stream.write_all(b"w").await.unwrap();
    stream.flush().await.unwrap();
    drain.await;
    stream.write_all(b"end").await.unwrap();
    stream.flush().await.unwrap();
}

async fn respond(mut request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let mut response = Response::new(Full::from(path.clone()));
    let Some(offer) = request.extensions_mut().remove::<UpgradeOffer>() else {
        return Ok(response);
    };
    match &*path {
        "/wait" => offer.accept(wait),
        _ => offer.accept(echo),
    }
    if path != "/refused" {
        response = Response::new(Full::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("echo"));
    }
    Ok(response)
}

fn connect(bytes: usize) -> (DuplexStream, impl Future<Output = Result<(), BoxError>>) {
    let (client, server) = tokio::io::duplex(bytes);
    let connection = net::serve_connection(server, HttpOptions::new(), |_| service_fn(respond));
    (client, connection)
}

/// Reads the head of a response, and returns its status.
async fn status(client: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()[9..12].to_owned()
}

#[tokio::test]
async fn bytes_flow_in_both_directions_from_the_first_one_behind_the_request() {
    // More than is read in a round, and more than is buffered, through a small pipe.
    let payload: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let (mut client, connection) = connect(16 * 1024);
    let connection = tokio::spawn(async move { connection.await.map_err(|it| it.to_string()) });
    let mut first = UPGRADE.to_vec();
    first.extend(&payload[..1_000]);
    client.write_all(&first).await.unwrap();
    assert_eq!(status(&mut client).await, "101");
    let (mut reader, mut writer) = tokio::io::split(client);
    let rest = payload[1_000..].to_vec();
    let sent = tokio::spawn(async move {
        writer.write_all(&rest).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await.unwrap();
    sent.await.unwrap();
    assert!(received == payload);
    drop(reader);
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_whose_upgrade_is_refused_stays_one_of_http() {
    let (mut client, connection) = connect(1 << 16);
    let connection = tokio::spawn(async move { connection.await.map_err(|it| it.to_string()) });
    let refused = String::from_utf8(UPGRADE.to_vec()).unwrap();
    let refused = refused.replace("/echo", "/refused");
    client.write_all(refused.as_bytes()).await.unwrap();
    assert_eq!(status(&mut client).await, "200");
    client.read_exact(&mut [0; 8]).await.unwrap();
    client
        .write_all(b"GET /next HTTP/1.1\r\nHost: node\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(status(&mut client).await, "200");
    drop(client);
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn requests_without_an_upgrade_have_no_offer() {
    for head in [
        "GET /echo HTTP/1.0\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n",
    ] {
        let (mut client, connection) = connect(1 << 16);
        let connection = tokio::spawn(async move { connection.await.map_err(|it| it.to_string()) });
        client.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(status(&mut client).await, "200", "{head}");
        drop(client);
        // An error only if the client has gone too early.
        let _ = connection.await.unwrap();
    }
}

#[tokio::test]
async fn a_shutdown_waits_for_an_upgraded_connection_that_ends_itself() {
    let listener = Listener::bind(&ListenUrl::localhost(0)).unwrap();
    let address = listener.address().to_string();
    let (stop, stopped) = watch::channel(false);
    let shutdown = move || {
        let mut stopped = stopped.clone();
        async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        }
    };
    let served = tokio::spawn(listener.serve(
        HttpOptions::new(),
        None,
        |_| service_fn(respond),
        shutdown,
        || {},
    ));
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = String::from_utf8(UPGRADE.to_vec()).unwrap();
    client
        .write_all(request.replace("/echo", "/wait").as_bytes())
        .await
        .unwrap();
    assert_eq!(status(&mut client).await, "101");
    assert_eq!(client.read_u8().await.unwrap(), b'w');
    stop.send(true).unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "end");
    drop(client);
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_panic_of_the_new_protocol_ends_its_connection_only() {
    let shared = Arc::new(());
    let held = shared.clone();
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let panics = move |mut request: Request<RequestBody>| {
        let held = held.clone();
        async move {
            let offer = request.extensions_mut().remove::<UpgradeOffer>().unwrap();
            offer.accept(move |_, _| async move {
                assert_eq!(Arc::strong_count(&held), 0, "on purpose");
            });
            let mut response = Response::new(Full::<Bytes>::default());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            Ok::<_, Infallible>(response)
        }
    };
    let connection = tokio::spawn(async move {
        let make_service = move |_| service_fn(panics.clone());
        let serving = net::serve_connection(server, HttpOptions::new(), make_service);
        serving.await.map_err(|error| error.to_string())
    });
    client.write_all(UPGRADE).await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert!(connection.await.unwrap_err().is_panic());
    assert_eq!(Arc::strong_count(&shared), 1);
}
