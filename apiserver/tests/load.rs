//! Limits of requests in flight, the end of connections, and clients that do not do their part.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{self, SendRequest};
use http::{Request, StatusCode};
use revstore_apiserver::{ApiServer, ApiServerBuilder, Config, Invocation, parse};
use revstore_engine::ManualClock;
use serde_json::{Value, json};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns the configuration of these flags, with plain HTTP only.
fn config(flags: &[&str]) -> Config {
    let always = ["--secure-port=0", "--listen-http=127.0.0.1:0"];
    let arguments = always.iter().chain(flags).map(Into::into);
    match parse(arguments, []) {
        Ok(Invocation::Serve { config, .. }) => *config,
        other => panic!("expected a configuration, got {other:?}"),
    }
}

fn server(flags: &[&str]) -> ApiServerBuilder {
    ApiServer::builder().config(config(flags))
}

fn connect(server: &ApiServer) -> BufReader<TcpStream> {
    let address = server.endpoint().trim_start_matches("http://");
    let stream = TcpStream::connect(address).expect("the server listens");
    BufReader::new(stream)
}

/// Sends the head of a request.
fn send_head(stream: &mut BufReader<TcpStream>, first: &str, fields: &str) {
    let head = format!("{first} HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
    let written = stream.get_mut().write_all(head.as_bytes());
    written.expect("the server reads");
}

/// Reads the head of an answer.
fn read_head(stream: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while stream.read_line(&mut head).expect("the server answers") > 2 {}
    head
}

/// Sends one request on a connection of its own, and returns the whole answer.
fn send(server: &ApiServer, first: &str, fields: &str, body: &str) -> String {
    let mut stream = connect(server);
    let length = body.len();
    let fields = format!("{fields}Connection: close\r\nContent-Length: {length}\r\n");
    send_head(&mut stream, first, &fields);
    let _ = stream.get_mut().write_all(body.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn config_map(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string()
}

/// Begins a request whose body does not arrive. When this returns, the server waits for the body.
fn begin_create(server: &ApiServer, fields: &str) -> BufReader<TcpStream> {
    let mut stream = connect(server);
    let first = format!("POST {CONFIG_MAPS}");
    let fields = format!(
        "{fields}Content-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n"
    );
    send_head(&mut stream, &first, &fields);
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 100 "));
    stream
}

#[test]
fn a_request_beyond_the_limit_is_refused_with_the_text_of_upstream() -> TestResult {
    let directory = tempfile::tempdir()?;
    let tokens = directory.path().join("tokens");
    fs::write(&tokens, "secret,jane,1\n")?;
    let tokens = format!("--token-auth-file={}", tokens.display());
    let flags = [
        "--max-mutating-requests-inflight=1",
        "--request-timeout=1s",
        &tokens,
    ];
    let server = server(&flags).start()?;
    let user = "Authorization: Bearer secret\r\n";
    let mut slow = begin_create(&server, user);
    let create = format!("POST {CONFIG_MAPS}");
    let refused = send(&server, &create, user, &config_map("a"));
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert!(
        refused.to_lowercase().contains("retry-after: 1\r\n"),
        "{refused}"
    );
    let text = "\r\n\r\nToo many requests, please try again later.\n";
    assert!(refused.ends_with(text), "{refused}");
    let metrics = send(&server, "GET /metrics", "", "");
    let counted = "apiserver_request_total{code=\"429\",component=\"apiserver\",dry_run=\"\",group=\"\",\
        resource=\"configmaps\",scope=\"resource\",subresource=\"\",system_client=\"\",verb=\"POST\",version=\"v1\"} 1";
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    // Neither reads, nor health checks, nor administrators wait.
    for (first, fields, body) in [
        (&*format!("GET {CONFIG_MAPS}"), user, ""),
        ("GET /livez", user, ""),
        (&create, "", &config_map("b")),
    ] {
        let answer = send(&server, first, fields, body);
        assert!(answer.starts_with("HTTP/1.1 20"), "{first}: {answer}");
    }
    // The first request has a time limit.
    let ended = read_head(&mut slow);
    assert!(ended.starts_with("HTTP/1.1 504 "), "{ended}");
    let answer = send(&server, &create, user, &config_map("a"));
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    Ok(())
}

#[test]
fn a_watch_without_a_timeout_ends_after_a_random_time() -> TestResult {
    let clock = ManualClock::new();
    let server = server(&["--min-request-timeout=10"])
        .clock(clock.clone())
        .random(|| 0.5)
        .start()?;
    let mut watch = connect(&server);
    send_head(&mut watch, &format!("GET {CONFIG_MAPS}?watch=1"), "");
    read_head(&mut watch);
    clock.advance(Duration::from_millis(14_999));
    let created = send(
        &server,
        &format!("POST {CONFIG_MAPS}"),
        "",
        &config_map("a"),
    );
    assert!(created.starts_with("HTTP/1.1 201 "), "{created}");
    let mut line = String::new();
    while !line.contains("\"name\":\"a\"") {
        line.clear();
        assert!(watch.read_line(&mut line)? > 0, "the watch has ended early");
    }
    clock.advance(Duration::from_millis(1));
    while line != "0\r\n" {
        line.clear();
        assert!(
            watch.read_line(&mut line)? > 0,
            "the watch has no proper end"
        );
    }
    Ok(())
}

#[test]
fn a_server_that_is_about_to_stop_serves_and_is_not_ready() -> TestResult {
    let server = server(&[]).start()?;
    assert!(send(&server, "GET /readyz", "", "").starts_with("HTTP/1.1 200 "));
    server.begin_stop();
    let answer = send(&server, "GET /readyz", "", "");
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(
        answer.contains("[-]shutdown failed: reason withheld\n"),
        "{answer}"
    );
    assert!(send(&server, "GET /livez", "", "").starts_with("HTTP/1.1 200 "));
    let created = send(
        &server,
        &format!("POST {CONFIG_MAPS}"),
        "",
        &config_map("a"),
    );
    assert!(created.starts_with("HTTP/1.1 201 "), "{created}");
    Ok(())
}

#[test]
fn a_stop_over_http_1_completes_requests_and_ends_watches() -> TestResult {
    let server = server(&[]).start()?;
    let mut watch = connect(&server);
    let path = format!("GET {CONFIG_MAPS}?watch=1&allowWatchBookmarks=true");
    send_head(&mut watch, &path, "");
    assert!(read_head(&mut watch).starts_with("HTTP/1.1 200 "));
    let mut create = begin_create(&server, "");
    let address = server.endpoint().trim_start_matches("http://").to_owned();
    let stopping = std::thread::spawn(move || server.stop());
    // The port is closed before the watches end.
    while TcpStream::connect(&*address).is_ok() {
        std::thread::yield_now();
    }
    let body = format!("{:<1000}", config_map("late"));
    create.get_mut().write_all(body.as_bytes())?;
    let head = read_head(&mut create);
    assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
    assert!(head.to_lowercase().contains("connection: close"), "{head}");
    let mut events = String::new();
    watch.read_to_string(&mut events)?;
    assert!(events.contains("\"name\":\"late\""), "{events}");
    assert!(events.contains("\"type\":\"BOOKMARK\""), "{events}");
    assert!(events.ends_with("\r\n0\r\n\r\n"), "{events}");
    stopping.join().expect("the server stops");
    Ok(())
}

/// An HTTP/2 connection.
struct Http2 {
    requests: SendRequest<Bytes>,
    ended: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

impl Http2 {
    async fn connect(server: &ApiServer) -> Self {
        let address = server.endpoint().trim_start_matches("http://");
        let stream = tokio::net::TcpStream::connect(address).await;
        let shaken = client::handshake(stream.expect("the server listens")).await;
        let (requests, connection) = shaken.expect("the server speaks HTTP/2");
        let ended = tokio::spawn(connection);
        Self { requests, ended }
    }

    async fn get(&self, path: &str) -> Result<http::Response<h2::RecvStream>, h2::Error> {
        let mut requests = self.requests.clone().ready().await?;
        let uri = format!("http://test{path}");
        let request = Request::get(uri).body(()).expect("the path is valid");
        requests.send_request(request, true)?.0.await
    }
}

/// Reads a body to its end.
async fn read(mut body: h2::RecvStream) -> Result<String, h2::Error> {
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        bytes.extend_from_slice(&data);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn a_stop_over_http_2_ends_watches_and_the_connection() -> TestResult {
    let server = server(&[]).start()?;
    let connection = Http2::connect(&server).await;
    let path = format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true");
    let watch = connection.get(&path).await?;
    assert_eq!(watch.status(), StatusCode::OK);
    let stopping = tokio::spawn(server.stop_async());
    let events = read(watch.into_body()).await?;
    let last: Value = serde_json::from_str(events.lines().last().unwrap_or_default())?;
    assert_eq!(last["type"], "BOOKMARK");
    drop(connection.requests);
    connection.ended.await??;
    stopping.await?;
    Ok(())
}

#[tokio::test]
async fn goaway_chance_ends_connections_after_their_requests() -> TestResult {
    for (random, is_closed) in [(0.019, true), (0.02, false)] {
        let server = server(&["--goaway-chance=0.02"])
            .random(move || random)
            .start()?;
        let connection = Http2::connect(&server).await;
        let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=1");
        let watch = connection.get("/version").await?;
        assert!(!watch.headers().contains_key("connection"));
        assert!(read(watch.into_body()).await?.contains("v1.36"));
        if is_closed {
            // The server ends the connection, which has no further requests.
            connection.ended.await??;
        } else {
            assert_eq!(connection.get(&path).await?.status(), StatusCode::OK);
        }
        // HTTP/1.1 is not concerned.
        let mut stream = connect(&server);
        for _ in 0..2 {
            send_head(&mut stream, "GET /livez", "");
            let head = read_head(&mut stream);
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            stream.read_exact(&mut [0; 2])?;
        }
    }
    Ok(())
}

#[test]
fn flags_out_of_range_are_refused() {
    for (flag, expected) in [
        (
            "--goaway-chance=0.021",
            "can not be less than 0 or greater than 0.02",
        ),
        (
            "--goaway-chance=-0.1",
            "can not be less than 0 or greater than 0.02",
        ),
        (
            "--goaway-chance=NaN",
            "can not be less than 0 or greater than 0.02",
        ),
        ("--max-requests-inflight=-1", "must be from 0 to"),
    ] {
        let error = parse([flag.into()], []).expect_err(flag).to_string();
        assert!(error.contains(expected), "{flag}: {error}");
    }
}

/// Creates config maps with a text of 1 KiB each in the store itself.
fn fill(server: &ApiServer, count: usize) -> TestResult {
    let engine = server.engine().ok_or("not embedded")?;
    let text = "x".repeat(1_000);
    for number in 0..count {
        let name = format!("n{number:06}");
        let metadata = json!({"name": name, "namespace": "default", "uid": name});
        let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"t": text}});
        let key = format!("/registry/configmaps/default/{name}");
        engine.put(key, value.to_string())?;
    }
    Ok(())
}

/// Returns the bytes of a body in chunks.
fn joined_chunks(answer: &[u8]) -> Vec<u8> {
    let begin = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let mut rest = &answer[begin.map_or(0, |at| at + 4)..];
    let mut joined = Vec::new();
    while let Some(at) = rest.windows(2).position(|bytes| bytes == b"\r\n") {
        let text = std::str::from_utf8(&rest[..at]).unwrap_or_default();
        let length = usize::from_str_radix(text, 16).unwrap_or_default();
        if length == 0 {
            break;
        }
        joined.extend_from_slice(&rest[at + 2..at + 2 + length]);
        rest = &rest[at + 4 + length..];
    }
    joined
}

#[test]
fn large_lists_are_the_same_in_all_encodings() -> TestResult {
    let server = server(&[]).start()?;
    fill(&server, 2_000)?;
    let get = |fields: &str, path: &str| {
        let mut stream = connect(&server);
        let fields = format!("{fields}Connection: close\r\n");
        send_head(&mut stream, &format!("GET {path}"), &fields);
        let mut answer = Vec::new();
        stream
            .read_to_end(&mut answer)
            .map(|_| joined_chunks(&answer))
    };
    let list: Value = serde_json::from_slice(&get("", CONFIG_MAPS)?)?;
    // One more is made by the server itself.
    assert!(
        list["items"]
            .as_array()
            .is_some_and(|items| items.len() >= 2_000)
    );
    let pretty = get("", &format!("{CONFIG_MAPS}?pretty=true"))?;
    assert!(pretty.starts_with(b"{\n  \"kind\": \"ConfigMapList\",\n"));
    assert_eq!(serde_json::from_slice::<Value>(&pretty)?, list);
    let yaml = get("Accept: application/yaml\r\n", CONFIG_MAPS)?;
    assert_eq!(
        String::from_utf8(yaml)?,
        revstore_apiserver::decode::to_yaml(&list)
    );
    let protobuf = get(
        "Accept: application/vnd.kubernetes.protobuf\r\n",
        CONFIG_MAPS,
    )?;
    assert!(protobuf == revstore_kinds::to_protobuf(&list)?);
    let gzip = get("Accept-Encoding: gzip\r\n", CONFIG_MAPS)?;
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&*gzip).read_to_end(&mut unpacked)?;
    assert_eq!(serde_json::from_slice::<Value>(&unpacked)?, list);
    Ok(())
}

#[test]
fn clients_that_never_read_hold_nothing_else() -> TestResult {
    let server = server(&[]).start()?;
    fill(&server, 5_000)?;
    let mut stopped = Vec::new();
    for path in [
        CONFIG_MAPS.to_owned(),
        format!("{CONFIG_MAPS}?pretty=true"),
        format!("{CONFIG_MAPS}?watch=1"),
    ] {
        for fields in [
            "",
            "Accept: application/yaml\r\n",
            "Accept-Encoding: gzip\r\n",
        ] {
            for _ in 0..20 {
                let mut stream = connect(&server);
                send_head(&mut stream, &format!("GET {path}"), fields);
                stopped.push(stream);
            }
        }
    }
    let answer = send(&server, "GET /livez", "", "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let page = send(&server, &format!("GET {CONFIG_MAPS}?limit=2"), "", "");
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    let all = send(&server, &format!("GET {CONFIG_MAPS}"), "", "");
    assert!(all.contains("n004999"));
    drop(stopped);
    Ok(())
}

#[test]
fn half_heads_and_half_bodies_hold_nothing_else() -> TestResult {
    let server = server(&[]).start()?;
    let mut stopped = Vec::new();
    for number in 0..300 {
        let mut stream = connect(&server);
        if number % 2 == 0 {
            stream
                .get_mut()
                .write_all(b"GET /livez HTTP/1.1\r\nHost: te")?;
        } else {
            stream = begin_create(&server, "");
        }
        stopped.push(stream);
    }
    let created = send(
        &server,
        &format!("POST {CONFIG_MAPS}"),
        "",
        &config_map("a"),
    );
    assert!(created.starts_with("HTTP/1.1 201 "), "{created}");
    Ok(())
}

#[tokio::test]
async fn ten_thousand_streams_on_one_connection_are_answered() -> TestResult {
    let server = server(&[]).start()?;
    let connection = Http2::connect(&server).await;
    let mut watches = Vec::new();
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=1");
    for _ in 0..10_000 {
        let mut requests = connection.requests.clone().ready().await?;
        let request = Request::get(format!("http://test{path}")).body(())?;
        watches.push(requests.send_request(request, true)?.0);
    }
    for watch in watches {
        assert_eq!(watch.await?.status(), StatusCode::OK);
    }
    assert_eq!(connection.get("/livez").await?.status(), StatusCode::OK);
    Ok(())
}
