//! A node for tests, and functions that build requests for it and check responses from it.

use std::time::Duration;

use futures_util::FutureExt;
use revstore_engine::{Engine, ManualClock};
use revstore_grpc::{Identity, Limits, Services, ServicesBuilder, Shutdown};
use revstore_proto::etcdserverpb::cluster_client::ClusterClient;
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::lease_client::LeaseClient;
use revstore_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use revstore_proto::etcdserverpb::request_op::Request as OpRequest;
use revstore_proto::etcdserverpb::watch_client::WatchClient;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    DeleteRangeRequest, PutRequest, PutResponse, RangeRequest, RangeResponse, RequestOp,
    ResponseHeader, TxnRequest, TxnResponse, WatchCancelRequest, WatchCreateRequest,
    WatchProgressRequest, WatchRequest, WatchResponse,
};
use revstore_proto::health::health_client::HealthClient;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Response, Status, Streaming};

pub(crate) const CLUSTER_ID: u64 = 14_841_639_068_965_178_418;
pub(crate) const MEMBER_ID: u64 = 10_276_657_743_932_975_437;
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);

/// The code and message of an expected error.
pub(crate) type ExpectedError = (Code, &'static str);
pub(crate) const EMPTY_KEY: ExpectedError =
    (Code::InvalidArgument, "etcdserver: key is not provided");
pub(crate) const KEY_NOT_FOUND: ExpectedError =
    (Code::InvalidArgument, "etcdserver: key not found");
pub(crate) const LEASE_NOT_FOUND: ExpectedError =
    (Code::NotFound, "etcdserver: requested lease not found");
pub(crate) const COMPACTED: ExpectedError = (
    Code::OutOfRange,
    "etcdserver: mvcc: required revision has been compacted",
);
pub(crate) const FUTURE: ExpectedError = (
    Code::OutOfRange,
    "etcdserver: mvcc: required revision is a future revision",
);
pub(crate) const NO_SPACE: ExpectedError = (
    Code::ResourceExhausted,
    "etcdserver: mvcc: database space exceeded",
);
pub(crate) const CORRUPT: ExpectedError = (Code::DataLoss, "etcdserver: corrupt cluster");
pub(crate) const TOO_LARGE: ExpectedError =
    (Code::InvalidArgument, "etcdserver: request is too large");
pub(crate) const STOPPED: ExpectedError = (Code::Unavailable, "etcdserver: server stopped");

/// A node whose clock advances only when the test advances it.
#[derive(Clone, Debug)]
pub(crate) struct TestNode {
    pub(crate) engine: Engine,
    pub(crate) clock: ManualClock,
    pub(crate) services: Services,
    pub(crate) shutdown: Shutdown,
}

impl TestNode {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        Self::with(|builder| builder.limits(limits))
    }

    pub(crate) fn with(configure: impl FnOnce(ServicesBuilder) -> ServicesBuilder) -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder()
            .clock(clock.clone())
            .progress_interval(PROGRESS_INTERVAL)
            .build();
        let shutdown = Shutdown::new();
        let builder = Services::builder(engine.clone())
            .identity(
                Identity::new(CLUSTER_ID, MEMBER_ID)
                    .name("default")
                    .peer_urls(["http://localhost:2380"])
                    .client_urls(["http://localhost:2379"]),
            )
            .shutdown(shutdown.clone());
        Self {
            engine,
            clock,
            services: configure(builder).build(),
            shutdown,
        }
    }

    pub(crate) fn kv(&self) -> KvClient<Services> {
        KvClient::new(self.services.clone()).max_decoding_message_size(usize::MAX)
    }

    pub(crate) fn lease(&self) -> LeaseClient<Services> {
        LeaseClient::new(self.services.clone())
    }

    pub(crate) fn maintenance(&self) -> MaintenanceClient<Services> {
        MaintenanceClient::new(self.services.clone())
    }

    pub(crate) fn cluster(&self) -> ClusterClient<Services> {
        ClusterClient::new(self.services.clone())
    }

    pub(crate) fn health(&self) -> HealthClient<Services> {
        HealthClient::new(self.services.clone())
    }

    pub(crate) async fn watch(&self) -> WatchCall {
        let (requests, to_send) = unbounded_channel();
        let mut client =
            WatchClient::new(self.services.clone()).max_decoding_message_size(usize::MAX);
        let stream = client.watch(UnboundedReceiverStream::new(to_send)).await;
        WatchCall {
            requests: Some(requests),
            responses: stream.unwrap().into_inner(),
        }
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        self.kv().range(request).await.map(Response::into_inner)
    }

    pub(crate) async fn put(&self, request: PutRequest) -> Result<PutResponse, Status> {
        self.kv().put(request).await.map(Response::into_inner)
    }

    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        self.kv().txn(request).await.map(Response::into_inner)
    }

    pub(crate) fn revision(&self) -> i64 {
        self.engine.current_revision().0
    }

    /// Writes keys directly into the engine, each in a separate revision.
    pub(crate) fn fill(&self, keys: impl IntoIterator<Item = impl Into<String>>) {
        for key in keys {
            self.engine.put(key.into(), "v").unwrap();
        }
    }
}

/// An open call of the `Watch` method.
#[derive(Debug)]
pub(crate) struct WatchCall {
    requests: Option<UnboundedSender<WatchRequest>>,
    pub(crate) responses: Streaming<WatchResponse>,
}

impl WatchCall {
    pub(crate) fn send(&self, request: RequestUnion) {
        let request = WatchRequest {
            request_union: Some(request),
        };
        self.requests.as_ref().unwrap().send(request).unwrap();
    }

    /// Sends a request whose union is not set.
    pub(crate) fn send_empty(&self) {
        let empty = WatchRequest {
            request_union: None,
        };
        self.requests.as_ref().unwrap().send(empty).unwrap();
    }

    pub(crate) fn send_create(&self, request: WatchCreateRequest) {
        self.send(RequestUnion::CreateRequest(request));
    }

    pub(crate) fn send_cancel(&self, watch_id: i64) {
        self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }));
    }

    pub(crate) fn send_progress(&self) {
        self.send(RequestUnion::ProgressRequest(WatchProgressRequest {}));
    }

    pub(crate) fn half_close(&mut self) {
        self.requests = None;
    }

    /// Sends a create request and returns its response, which must be the next one.
    pub(crate) async fn create(&mut self, request: WatchCreateRequest) -> WatchResponse {
        self.send_create(request);
        let response = self.next().await;
        assert!(response.created, "{response:?}");
        response
    }

    pub(crate) async fn next(&mut self) -> WatchResponse {
        self.responses.next().await.unwrap().unwrap()
    }

    /// Asserts that no response is ready.
    pub(crate) fn assert_no_response(&mut self) {
        if let Some(response) = self.responses.next().now_or_never() {
            panic!("unexpected response: {response:?}");
        }
    }
}

/// Asserts that a call failed with the expected code and message.
pub(crate) fn assert_error<T: std::fmt::Debug>(result: Result<T, Status>, expected: ExpectedError) {
    let status = result.expect_err("the call should fail");
    assert_eq!((status.code(), status.message()), expected);
}

/// DM-10: returns the header of most responses.
#[expect(clippy::unnecessary_wraps, reason = "the type of the response field")]
pub(crate) fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        cluster_id: CLUSTER_ID,
        member_id: MEMBER_ID,
        revision,
        raft_term: 2,
    })
}

/// DM-23: returns the header of an operation inside a transaction.
#[expect(clippy::unnecessary_wraps, reason = "the type of the response field")]
pub(crate) fn op_header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        revision,
        ..ResponseHeader::default()
    })
}

pub(crate) fn get(key: &'static str) -> RangeRequest {
    RangeRequest {
        key: key.into(),
        ..RangeRequest::default()
    }
}

pub(crate) fn from_key(key: &'static str) -> RangeRequest {
    within(key, "\0")
}

pub(crate) fn within(key: &'static str, range_end: &'static str) -> RangeRequest {
    RangeRequest {
        range_end: range_end.into(),
        ..get(key)
    }
}

pub(crate) fn put(key: &'static str, value: &'static str) -> PutRequest {
    PutRequest {
        key: key.into(),
        value: value.into(),
        ..PutRequest::default()
    }
}

pub(crate) fn delete(key: &'static str, range_end: &'static str) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: key.into(),
        range_end: range_end.into(),
        prev_kv: false,
    }
}

pub(crate) fn watch_of(key: &'static str, range_end: &'static str) -> WatchCreateRequest {
    WatchCreateRequest {
        key: key.into(),
        range_end: range_end.into(),
        ..WatchCreateRequest::default()
    }
}

pub(crate) fn op(request: OpRequest) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

pub(crate) fn op_get(request: RangeRequest) -> RequestOp {
    op(OpRequest::RequestRange(request))
}

pub(crate) fn op_put(request: PutRequest) -> RequestOp {
    op(OpRequest::RequestPut(request))
}

pub(crate) fn op_delete(request: DeleteRangeRequest) -> RequestOp {
    op(OpRequest::RequestDeleteRange(request))
}

pub(crate) fn op_txn(request: TxnRequest) -> RequestOp {
    op(OpRequest::RequestTxn(request))
}

/// Returns a transaction without compares, which therefore executes `success`.
pub(crate) fn txn_of(success: Vec<RequestOp>) -> TxnRequest {
    TxnRequest {
        success,
        ..TxnRequest::default()
    }
}

/// Returns the keys of a response.
pub(crate) fn keys(response: &RangeResponse) -> Vec<&str> {
    let keys = response.kvs.iter().map(|kv| std::str::from_utf8(&kv.key));
    keys.map(Result::unwrap).collect()
}
