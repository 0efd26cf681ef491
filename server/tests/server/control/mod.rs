//! Tests of what stands between clients and the store of a server with control.

mod activity;
mod connections;
mod faults;
mod journal;
mod stage;
mod watch_guarantees;
mod watches;

use std::time::Duration;

use revstore::{ClockMode, Server};
use revstore_control::{
    Hooks,
    fault::{Action, Failure, Rule, RuleId, Selector, Trigger},
};
use revstore_proto::etcdserverpb::{
    WatchCreateRequest, WatchRequest, WatchResponse, watch_client::WatchClient,
    watch_request::RequestUnion,
};
use tonic::{Code, Streaming, transport::Channel};

use crate::support::connect;

/// A server with control, whose time only tests move.
struct Controlled {
    server: Server,
    inner: Hooks,
}

impl Controlled {
    fn start() -> Self {
        let server = Server::builder().control(ClockMode::Manual);
        let server = server.start().unwrap();
        let inner = server.control().unwrap().hooks().clone();
        Self { server, inner }
    }

    fn advance(&self, by: Duration) {
        self.server.control().unwrap().advance(by).unwrap();
    }

    async fn connect(&self) -> Channel {
        connect(self.server.address().unwrap()).await
    }

    fn add(&self, selector: Selector, trigger: Trigger, action: Action) -> RuleId {
        let rule = Rule {
            selector,
            trigger,
            action,
        };
        self.inner.rules.add(rule).unwrap()
    }

    fn fired(&self, id: RuleId) -> u64 {
        let rules = self.inner.rules.list();
        rules.iter().find(|it| it.id == id).unwrap().fired
    }
}

fn method(name: &str) -> Selector {
    Selector {
        methods: vec![name.to_owned()],
        ..Selector::default()
    }
}

fn failure(code: Code, text: &str) -> Failure {
    Failure::new(code, text)
}

/// A watch stream with its requests.
struct WatchClientStream {
    responses: Streaming<WatchResponse>,
    requests: tokio::sync::mpsc::Sender<WatchRequest>,
}

impl WatchClientStream {
    async fn open(channel: Channel) -> Self {
        let (requests, receiver) = tokio::sync::mpsc::channel(64);
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let mut client = WatchClient::new(channel);
        let responses = client.watch(stream).await.unwrap().into_inner();
        Self {
            responses,
            requests,
        }
    }

    async fn send(&self, request: RequestUnion) {
        let request = WatchRequest {
            request_union: Some(request),
        };
        self.requests.send(request).await.unwrap();
    }

    /// Creates a watch of the keys with a prefix, and returns its id.
    async fn create(&mut self, prefix: &str, start: i64) -> i64 {
        let range = revstore::engine::KeyRange::prefix(prefix.to_owned());
        let revstore::engine::KeyRange::Within { start: key, end } = range else {
            panic!("a prefix has an end");
        };
        self.send(RequestUnion::CreateRequest(WatchCreateRequest {
            key,
            range_end: end,
            start_revision: start,
            ..WatchCreateRequest::default()
        }))
        .await;
        let created = self.next().await;
        assert!(created.created && !created.canceled, "{created:?}");
        created.watch_id
    }

    async fn next(&mut self) -> WatchResponse {
        self.responses.message().await.unwrap().unwrap()
    }

    /// Returns the keys of the next events.
    async fn next_keys(&mut self) -> Vec<String> {
        let response = self.next().await;
        let keys = response.events.iter().map(|it| it.kv.as_ref().unwrap());
        keys.map(|kv| String::from_utf8(kv.key.to_vec()).unwrap())
            .collect()
    }
}

/// A watch over the gateway, whose client has ended its request.
struct GatewayWatch(tokio::io::Lines<tokio::io::BufReader<tokio::net::TcpStream>>);

impl GatewayWatch {
    /// Creates a watch of the key `a`.
    async fn open(controlled: &Controlled) -> Self {
        use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
        let address = controlled.server.address().unwrap();
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let body = r#"{"create_request":{"key":"YQ=="}}"#;
        let length = body.len();
        let request =
            format!("POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut watch = Self(tokio::io::BufReader::new(stream).lines());
        assert_eq!(watch.next().await["created"], true);
        watch
    }

    /// Returns the next response.
    async fn next(&mut self) -> serde_json::Value {
        loop {
            let line = self.0.next_line().await.unwrap().expect("a response");
            if line.starts_with('{') {
                let object: serde_json::Value = serde_json::from_str(&line).unwrap();
                return object["result"].clone();
            }
        }
    }
}

/// Waits until a condition holds, and lets other tasks run meanwhile.
async fn until(condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + crate::support::WAIT_TIMEOUT;
    while !condition() {
        assert!(
            std::time::Instant::now() < deadline,
            "the wait took too long"
        );
        tokio::task::yield_now().await;
    }
}
