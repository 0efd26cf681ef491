//! The services over an HTTP/2 connection: slow clients, clients that disconnect, messages that are
//! too large.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::watch_client::WatchClient;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{PutRequest, WatchRequest, WatchResponse};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::body::Body;
use tonic::{Code, Streaming};
use tower_service::Service;

use crate::support::{STOPPED, TestNode, assert_error, get, put, watch_of};

/// The client side of a connection.
#[derive(Clone, Debug)]
struct ClientConnection {
    requests: SendRequest<Body>,
}

impl ClientConnection {
    /// Connects to a node. The client accepts `window_bytes` of a response that the test does not
    /// read.
    async fn open(node: &TestNode, window_bytes: u32) -> Self {
        let (client_end, server_end) = tokio::io::duplex(16 * 1024);
        let services = TowerToHyperService::new(node.services.clone());
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(server_end), services);
        tokio::spawn(server);
        let (requests, client) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window_bytes)
            .initial_connection_window_size(1024 * 1024)
            .handshake(TokioIo::new(client_end))
            .await
            .unwrap();
        tokio::spawn(client);
        Self { requests }
    }

    fn kv(&self) -> KvClient<Self> {
        KvClient::with_origin(self.clone(), "http://node".parse().unwrap())
    }

    /// Opens a stream with one watch on all keys and reads the created response. Returns the
    /// response stream and the sender that keeps the request stream open.
    async fn watch(&self) -> (Streaming<WatchResponse>, UnboundedSender<WatchRequest>) {
        let (requests, to_send) = unbounded_channel();
        let create = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(watch_of("\0", "\0"))),
        };
        requests.send(create).unwrap();
        let to_send = UnboundedReceiverStream::new(to_send);
        let client = WatchClient::with_origin(self.clone(), "http://node".parse().unwrap());
        let mut client = client.max_decoding_message_size(usize::MAX);
        let mut responses = client.watch(to_send).await.unwrap().into_inner();
        assert!(responses.next().await.unwrap().unwrap().created);
        (responses, requests)
    }
}

impl Service<http::Request<Body>> for ClientConnection {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.requests.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.requests.send_request(request))
    }
}

/// A server needs these bounds to run the services on any thread and connection.
#[test]
fn services_are_clone_send_and_sync() {
    fn check<S>(_: &S)
    where
        S: Service<http::Request<Incoming>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
    }
    check(&TestNode::new().services);
}

#[tokio::test]
async fn unary_calls_and_watches_share_a_connection() {
    let node = TestNode::new();
    let connection = ClientConnection::open(&node, 65_535).await;
    let (mut watch, _open) = connection.watch().await;
    connection.kv().put(put("k", "v")).await.unwrap();
    let response = watch.next().await.unwrap().unwrap();
    assert_eq!(response.events[0].kv.as_ref().unwrap().value, "v");
    let found = connection.kv().range(get("k")).await.unwrap().into_inner();
    assert_eq!(found.count, 1);
}

#[tokio::test]
async fn wa_43_a_slow_watch_client_does_not_delay_other_watches() {
    const WRITES: i64 = 400;
    let node = TestNode::new();
    let connection = ClientConnection::open(&node, 20_000).await;
    let (mut slow, _open) = connection.watch().await;
    let (mut quick, _second_open) = connection.watch().await;
    for expected in 2..WRITES + 2 {
        node.engine.put("k", vec![b'v'; 100_000]).unwrap();
        let response = quick.next().await.unwrap().unwrap();
        assert_eq!(
            response.events[0].kv.as_ref().unwrap().mod_revision,
            expected
        );
    }
    assert_eq!(
        node.engine.stats().unsynced_watches,
        1,
        "only the slow watch is unsynced"
    );
    let mut expected = 2;
    while expected < WRITES + 2 {
        for event in slow.next().await.unwrap().unwrap().events {
            assert_eq!(event.kv.unwrap().mod_revision, expected);
            expected += 1;
        }
    }
}

#[tokio::test]
async fn a_client_that_closes_its_stream_unregisters_its_watches() {
    let node = TestNode::new();
    let connection = ClientConnection::open(&node, 65_535).await;
    let (watch, open) = connection.watch().await;
    assert_eq!(node.engine.stats().watches, 1);
    drop((watch, open));
    while node.engine.stats().watches > 0 {
        tokio::task::yield_now().await;
    }
    connection.kv().range(get("k")).await.unwrap();
}

#[tokio::test]
async fn fl_15_a_shutdown_ends_open_watches_immediately() {
    let node = TestNode::new();
    let connection = ClientConnection::open(&node, 65_535).await;
    let (mut watch, _open) = connection.watch().await;
    node.shutdown.begin();
    assert_error(watch.next().await.unwrap(), STOPPED);
}

#[tokio::test]
async fn li_2_a_too_large_message_fails_its_call_and_keeps_the_connection() {
    let node = TestNode::new();
    let connection = ClientConnection::open(&node, 65_535).await;
    let large = PutRequest {
        value: vec![b'v'; 3_000_000].into(),
        ..put("k", "")
    };
    let text = "grpc: received message larger than max (3000008 vs. 2097152)";
    let result = connection.kv().put(large).await;
    assert_error(result, (Code::ResourceExhausted, text));
    connection.kv().put(put("k", "v")).await.unwrap();
    assert_eq!(node.revision(), 2);
}
