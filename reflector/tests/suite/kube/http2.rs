//! HTTP/2, which servers choose in the handshake of TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_util::StreamExt as _;
use http::{Request, Response, Version};
use http_body_util::channel::Channel;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use pollster::block_on;
use revstore_reflector::ListWatch;
use revstore_reflector::kube::KubeListWatchBuilder;
use revstore_watch_cache::{WatchEvent, WatchOptions};
use tokio::sync::Notify;

use super::server::{event, list, pod, runtime, status};
use super::tls::{Trust, acceptor};
use super::{fetch_list, next, reflector};

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

/// A server over TLS that lists `a` and sends one event in each watch.
struct Server {
    address: SocketAddr,
    trust: Trust,
    /// `accepted`, the requests with their versions, and `closed` for connections and watches.
    log: Receiver<String>,
    /// Makes the current connection refuse further requests.
    retire: Arc<Notify>,
}

impl Server {
    fn new(protocols: &[&[u8]]) -> Self {
        let (trust, acceptor) = acceptor(protocols);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, log) = channel();
        let retire = Arc::new(Notify::new());
        let retired = retire.clone();
        runtime().spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, sender, retired) =
                    (acceptor.clone(), sender.clone(), retired.clone());
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else {
                        return;
                    };
                    let _ = sender.send("accepted".into());
                    let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
                    let log = sender.clone();
                    let service = service_fn(move |request| answer(request, log.clone()));
                    if is_http2 {
                        let builder = http2::Builder::new(TokioExecutor::new());
                        let connection = builder.serve_connection(TokioIo::new(tls), service);
                        let mut connection = std::pin::pin!(connection);
                        tokio::select! {
                            _ = connection.as_mut() => {}
                            () = retired.notified() => {
                                connection.as_mut().graceful_shutdown();
                                let _ = connection.await;
                            }
                        }
                    } else {
                        let connection = http1::Builder::new();
                        let _ = connection
                            .serve_connection(TokioIo::new(tls), service)
                            .await;
                    }
                    let _ = sender.send("closed".into());
                });
            }
        });
        Self {
            address,
            trust,
            log,
            retire,
        }
    }

    fn builder(&self) -> KubeListWatchBuilder {
        self.builder_at("/api/v1/pods")
    }

    fn builder_at(&self, path: &str) -> KubeListWatchBuilder {
        let server = format!("https://{}", self.address);
        self.trust.builder(&server, path).runtime(runtime().clone())
    }

    fn wait_for(&self, line: &str) {
        assert!(self.log.iter().any(|found| found == line), "no {line}");
    }
}

/// Reports when a watch has ended.
struct EndOfWatch(Sender<String>);

impl Drop for EndOfWatch {
    fn drop(&mut self) {
        let _ = self.0.send("watch closed".into());
    }
}

fn answer(
    request: Request<Incoming>,
    log: Sender<String>,
) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
    let version = match request.version() {
        Version::HTTP_2 => "2",
        _ => "1.1",
    };
    let query = request.uri().query().unwrap_or_default().to_owned();
    let is_watch = query.contains("watch=true");
    let kind = if is_watch { "watch" } else { "list" };
    let _ = log.send(format!("{kind} over {version}"));
    let full = |text: String| Full::from(text).boxed();
    Box::pin(async move {
        if request.uri().path() == "/missing" {
            let mut response = Response::new(full(status(404, r#""message":"none""#)));
            *response.status_mut() = http::StatusCode::NOT_FOUND;
            return Ok(response);
        }
        if !is_watch {
            let answer = list(5, "", &[&pod("a", 5)]);
            let text = String::from_utf8(answer.bytes).unwrap();
            let (_, body) = text.split_once("\r\n\r\n").unwrap();
            return Ok(Response::new(full(body.to_owned())));
        }
        let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
        tokio::spawn(async move {
            let _end = EndOfWatch(log);
            let event = event("ADDED", &pod("b", 6));
            // Until the client resets the stream.
            if sender.send(Frame::data(event.into())).await.is_ok() {
                while sender
                    .send(Frame::data(Bytes::from(vec![b'\n'; 50_000])))
                    .await
                    .is_ok()
                {
                    tokio::task::yield_now().await;
                }
            }
        });
        Ok(Response::new(body.boxed()))
    })
}

#[test]
fn all_requests_of_a_source_share_a_connection() {
    let server = Server::new(&[b"h2", b"http/1.1"]);
    let source = server.builder().build().unwrap();
    let mut watches = Vec::new();
    for _ in 0..20 {
        assert_eq!(fetch_list(&source).unwrap(), ["a"]);
        let mut watch = block_on(source.watch(WatchOptions::default())).unwrap();
        let event = block_on(watch.next()).unwrap();
        assert!(matches!(event, WatchEvent::Object { .. }), "{event:?}");
        watches.push(watch);
    }
    // A watch that is dropped ends on the server, and the connection remains.
    watches.pop();
    server.wait_for("watch closed");
    assert_eq!(fetch_list(&source).unwrap(), ["a"]);
    drop((watches, source));
    let log: Vec<String> = server
        .log
        .iter()
        .take_while(|line| line != "closed")
        .collect();
    assert!(
        !log.iter()
            .any(|line| line == "accepted" || line.ends_with("1.1")),
        "{log:?}"
    );
}

#[test]
fn the_server_chooses_the_version_unless_it_is_forbidden() {
    let over = |protocols: &[&[u8]], http1_only: bool| {
        let server = Server::new(protocols);
        let builder = server.builder();
        let builder = if http1_only {
            builder.http1_only()
        } else {
            builder
        };
        assert_eq!(fetch_list(&builder.build().unwrap()).unwrap(), ["a"]);
        server
            .log
            .iter()
            .find(|line| line.starts_with("list"))
            .unwrap()
    };
    assert_eq!(over(&[b"h2", b"http/1.1"], false), "list over 2");
    assert_eq!(over(&[b"h2", b"http/1.1"], true), "list over 1.1");
    assert_eq!(over(&[b"http/1.1"], false), "list over 1.1");
    // A server that knows nothing of the extension.
    assert_eq!(over(&[], false), "list over 1.1");
}

#[test]
fn an_error_keeps_the_connection() {
    let server = Server::new(&[b"h2"]);
    let missing = server.builder_at("/missing").build().unwrap();
    for _ in 0..3 {
        let error = fetch_list(&missing).unwrap_err();
        assert_eq!(error.code(), 404);
        let error = block_on(missing.watch(WatchOptions::default())).err();
        assert_eq!(error.unwrap().code(), 404);
    }
    drop(missing);
    let log: Vec<String> = server
        .log
        .iter()
        .take_while(|line| line != "closed")
        .collect();
    assert_eq!(
        log.iter().filter(|line| *line == "accepted").count(),
        1,
        "{log:?}"
    );
}

/// As kube-apiserver does with `--goaway-chance`, to spread its clients over several servers.
#[test]
fn a_connection_that_the_server_retires_is_replaced_and_its_watches_go_on() {
    let server = Server::new(&[b"h2"]);
    let source = server.builder().build().unwrap();
    let mut watch = block_on(source.watch(WatchOptions::default())).unwrap();
    assert!(block_on(watch.next()).is_some());
    server.wait_for("watch over 2");
    server.retire.notify_one();
    // The server's message may arrive before this request or after it.
    for _ in 0..3 {
        assert_eq!(fetch_list(&source).unwrap(), ["a"]);
    }
    server.wait_for("accepted");
    assert!(crate::support::poll_once(&mut watch.next()).is_pending());
    drop(watch);
    server.wait_for("closed");
}

#[test]
fn a_reflector_follows_a_server() {
    let server = Server::new(&[b"h2"]);
    let mut reflector = reflector(server.builder().build().unwrap());
    let events = next(&mut reflector, 4);
    assert_eq!(events, ["init", "init ns/a", "done 5", "apply b@6"]);
}
