//! The status of components, which are asked when a client wants to know it. The expected answers are those of
//! kube-apiserver 1.36.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use revstore_apiserver::{ApiServer, Components, Config, EtcdServers};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::client::exchange::exchange;
use crate::client::{TestResult, send, value};

const STATUSES: &str = "/api/v1/componentstatuses";
/// A time limit in which servers of this machine answer.
const LONG: Duration = Duration::from_secs(20);
/// One in which they begin to answer.
const MIDDLE: Duration = Duration::from_secs(3);
const SHORT: Duration = Duration::from_millis(300);

/// What a component does with a connection.
enum Act {
    /// It answers each request with these bytes, and closes the connection.
    Answer(String),
    /// It waits after these bytes.
    Stall(&'static str),
    /// It answers, without TLS.
    Plain(&'static str),
}

fn answer(head: &str, body: &str) -> Act {
    let length = body.len();
    Act::Answer(format!(
        "HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

/// Starts a component, whose certificate nobody has signed and is for another name.
fn component(act: Act) -> Result<SocketAddr, Box<dyn std::error::Error>> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(["other.example".to_owned()])?.self_signed(&key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )?;
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The client may have gone.
            let _ = serve(stream, &config, &act);
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream, config: &Arc<ServerConfig>, act: &Act) -> TestResult {
    let mut head = [0; 4096];
    if let Act::Plain(bytes) = act {
        let _ = stream.read(&mut head)?;
        return Ok(stream.write_all(bytes.as_bytes())?);
    }
    let mut stream = StreamOwned::new(ServerConnection::new(config.clone())?, stream);
    let length = stream.read(&mut head)?;
    let request = String::from_utf8_lossy(&head[..length]).to_ascii_lowercase();
    assert!(request.contains("\r\nuser-agent: kube-probe/1.36\r\n"));
    match act {
        Act::Answer(bytes) => stream.write_all(bytes.as_bytes())?,
        Act::Stall(bytes) => {
            stream.write_all(bytes.as_bytes())?;
            stream.flush()?;
            // Until the client goes.
            let _ = stream.read(&mut head)?;
        }
        Act::Plain(_) => {}
    }
    stream.conn.send_close_notify();
    Ok(stream.flush()?)
}

/// Returns an address at which nothing listens. The socket stays bound, so that nobody else gets the port.
fn nobody() -> std::io::Result<SocketAddr> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    let address = socket.local_addr()?.as_socket();
    std::mem::forget(socket);
    address.ok_or_else(|| std::io::ErrorKind::AddrNotAvailable.into())
}

fn server(
    scheduler: SocketAddr,
    timeout: Duration,
) -> Result<ApiServer, Box<dyn std::error::Error>> {
    let mut components = Components::default();
    components.scheduler = scheduler;
    components.controller_manager = nobody()?;
    components.timeout = timeout;
    Ok(ApiServer::builder().components(components).start()?)
}

/// Returns the condition of a component.
fn condition(server: &ApiServer, name: &str) -> Value {
    let (status, body) = value(&send(server, "GET", &format!("{STATUSES}/{name}"), ""));
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["metadata"], json!({"name": name}));
    let mut condition = body["conditions"][0].clone();
    condition["type"].take();
    condition
}

#[test]
fn a_component_is_as_healthy_as_it_says() -> TestResult {
    let healthy = |message: &str| json!({"type": null, "status": "True", "message": message});
    let unhealthy = |message: &str| json!({"type": null, "status": "False", "message": message});
    let unclear = |message: &str| json!({"type": null, "status": "Unknown", "message": message});
    let long = "x".repeat(10 << 10);
    let cases = [
        (answer("200 OK", "ok"), LONG, healthy("ok")),
        (
            answer("299 Fine", "all \"fine\"\n"),
            LONG,
            healthy("all \"fine\"\n"),
        ),
        (answer("200 OK", &long.repeat(2)), LONG, healthy(&long)),
        (
            answer("200 OK", ""),
            LONG,
            json!({"type": null, "status": "True"}),
        ),
        (
            answer("500 Bad", "[-]secret"),
            LONG,
            unhealthy("HTTP probe failed with statuscode: 500"),
        ),
        (
            answer("300 Choices", "choice"),
            LONG,
            unclear("Probe terminated redirects, Response body: choice"),
        ),
        (
            answer("302 Found", "nowhere"),
            LONG,
            unclear("Probe terminated redirects, Response body: nowhere"),
        ),
        (
            answer("302 Found\r\nLocation: /healthz", ""),
            LONG,
            unhealthy("Get \"/healthz\": stopped after 10 redirects"),
        ),
        (
            Act::Answer(String::new()),
            LONG,
            unhealthy("Get \"https://ADDRESS/healthz\": EOF"),
        ),
        (
            Act::Answer("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_owned()),
            LONG,
            json!({"type": null, "status": "Unknown", "error": "unexpected EOF"}),
        ),
        (
            Act::Stall(""),
            SHORT,
            unhealthy(
                "Get \"https://ADDRESS/healthz\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            ),
        ),
        (
            Act::Stall("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
            MIDDLE,
            json!({"type": null, "status": "Unknown", "error": "net/http: request canceled \
                (Client.Timeout or context cancellation while reading body)"}),
        ),
        (
            Act::Plain("HTTP/1.0 400 Bad Request\r\n\r\nno"),
            LONG,
            unhealthy(
                "Get \"https://ADDRESS/healthz\": tls: first record does not look like a TLS handshake",
            ),
        ),
    ];
    for (act, timeout, expected) in cases {
        let address = component(act)?;
        let server = server(address, timeout)?;
        let expected = expected
            .to_string()
            .replace("ADDRESS", &address.to_string());
        let expected: Value = serde_json::from_str(&expected)?;
        assert_eq!(condition(&server, "scheduler"), expected);
    }
    Ok(())
}

#[test]
fn redirects_lead_to_other_components() -> TestResult {
    let second = component(answer("200 OK", "second"))?;
    let head = format!("307 There\r\nLocation: https://{second}/z");
    let server = server(component(answer(&head, ""))?, LONG)?;
    assert_eq!(condition(&server, "scheduler")["message"], "second");
    Ok(())
}

#[test]
fn lists_select_components_and_have_no_versions() -> TestResult {
    let address = nobody()?;
    let server = server(address, LONG)?;
    let names = |query: &str| -> Vec<Value> {
        let (status, mut list) = value(&send(&server, "GET", &format!("{STATUSES}{query}"), ""));
        assert_eq!(status, 200, "{list}");
        assert_eq!(list["metadata"], json!({}));
        let items = list["items"].as_array_mut().map(std::mem::take);
        let items = items.unwrap_or_default().into_iter();
        items
            .map(|mut item| item["metadata"]["name"].take())
            .collect()
    };
    let all = ["controller-manager", "scheduler", "etcd-0"];
    assert_eq!(names(""), all);
    for query in [
        "?limit=1&continue=abc",
        "?resourceVersion=abc",
        "?labelSelector=a!%3Db",
        "?fieldSelector=metadata.namespace%3D",
    ] {
        assert_eq!(names(query), all, "{query}");
    }
    assert_eq!(names("?fieldSelector=metadata.name%3Detcd-0"), ["etcd-0"]);
    assert_eq!(names("?fieldSelector=metadata.name!%3Detcd-0"), all[..2]);
    assert!(names("?labelSelector=a%3Db").is_empty());
    assert_eq!(
        condition(&server, "etcd-0"),
        json!({"type": null, "status": "True", "message": "ok"})
    );
    let refused = format!(
        "Get \"https://{address}/healthz\": dial tcp {address}: connect: connection refused"
    );
    assert_eq!(condition(&server, "scheduler")["message"], refused);
    let accept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
    let (_, table) = value(&exchange(server.endpoint(), "GET", STATUSES, accept, ""));
    assert_eq!(table["metadata"], json!({}));
    assert_eq!(
        table["rows"][1]["cells"],
        json!(["scheduler", "Unhealthy", refused, ""])
    );
    assert_eq!(
        table["rows"][2],
        json!({"cells": ["etcd-0", "Healthy", "ok", ""], "object": {"kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "etcd-0"}}})
    );
    Ok(())
}

#[test]
fn other_verbs_and_names_are_refused() -> TestResult {
    let server = server(nobody()?, LONG)?;
    let unknown = "the server could not find the requested resource";
    let no_method = "the server does not allow this method on the requested resource";
    for (method, path, expected, message) in [
        (
            "GET",
            "/etcd-1",
            404,
            "componentstatus \"etcd-1\" not found",
        ),
        ("GET", "/etcd-0/status", 404, unknown),
        (
            "GET",
            "?watch=1",
            405,
            "watch is not supported on resources of kind \"componentstatuses\"",
        ),
        (
            "GET",
            "?watch=1&fieldSelector=a%3Db",
            400,
            "\"a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("POST", "", 405, no_method),
        ("PUT", "/etcd-0", 405, no_method),
        ("DELETE", "/etcd-0", 405, no_method),
        ("DELETE", "", 405, no_method),
    ] {
        let (status, body) = value(&send(&server, method, &format!("{STATUSES}{path}"), "{}"));
        assert_eq!(
            (status, &body["message"]),
            (expected, &json!(message)),
            "{method} {path}"
        );
    }
    let (status, _) = send(&server, "GET", "/api/v1/watch/componentstatuses", "");
    assert_eq!(status, 404);
    let (_, list) = value(&send(&server, "GET", "/api/v1", ""));
    let mut resources = list["resources"].as_array().into_iter().flatten();
    let found = resources.find(|one| one["kind"] == "ComponentStatus");
    let expected = json!({"name": "componentstatuses", "singularName": "componentstatus", "namespaced": false,
        "kind": "ComponentStatus", "verbs": ["get", "list"], "shortNames": ["cs"]});
    assert_eq!(found, Some(&expected));
    Ok(())
}

#[test]
fn an_etcd_that_is_gone_is_not_healthy_after_the_time_limit() -> TestResult {
    let etcd = revstore::Server::builder().start()?;
    let mut config = Config::default();
    config.https = None;
    config.http = Some("127.0.0.1:0".parse()?);
    config.etcd = Some(EtcdServers::new([etcd.endpoint()]));
    config.components.timeout = MIDDLE;
    let server = ApiServer::builder().config(config).start()?;
    assert_eq!(condition(&server, "etcd-0")["status"], "True");
    etcd.stop();
    let expected = json!({"type": null, "status": "False", "error": "context deadline exceeded"});
    assert_eq!(condition(&server, "etcd-0"), expected);
    Ok(())
}
