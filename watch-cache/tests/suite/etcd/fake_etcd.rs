//! A server of etcd's API whose watch responses a test writes by hand.

use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use futures_core::Stream;
use revstore_proto::etcdserverpb::kv_server::{Kv, KvServer};
use revstore_proto::etcdserverpb::maintenance_server::{Maintenance, MaintenanceServer};
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::watch_server::{Watch, WatchServer};
use revstore_proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, CompactionRequest, CompactionResponse, DefragmentRequest,
    DefragmentResponse, DeleteRangeRequest, DeleteRangeResponse, DowngradeRequest,
    DowngradeResponse, HashKvRequest, HashKvResponse, HashRequest, HashResponse, MoveLeaderRequest,
    MoveLeaderResponse, PutRequest, PutResponse, RangeRequest, RangeResponse, RangeStreamResponse,
    ResponseHeader, SnapshotRequest, SnapshotResponse, StatusRequest, StatusResponse, TxnRequest,
    TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use revstore_proto::mvccpb::{Event, KeyValue};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A running server, which ends with the runtime.
pub(crate) struct FakeEtcd {
    pub(crate) url: String,
    watches: mpsc::UnboundedReceiver<FakeWatch>,
    ranges: Arc<Mutex<MetadataMap>>,
    revision: Arc<AtomicI64>,
}

/// A watch that a client has opened.
pub(crate) struct FakeWatch {
    pub(crate) metadata: MetadataMap,
    pub(crate) requests: Streaming<WatchRequest>,
    responses: mpsc::UnboundedSender<Result<WatchResponse, Status>>,
}

#[derive(Clone)]
struct Services {
    version: String,
    revision: Arc<AtomicI64>,
    opened: mpsc::UnboundedSender<FakeWatch>,
    /// The metadata of the last range.
    ranges: Arc<Mutex<MetadataMap>>,
}

impl FakeEtcd {
    /// Starts a server that reports this version, and this revision in the headers of ranges, which
    /// are empty.
    pub(crate) async fn start(version: &str, revision: i64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (opened, watches) = mpsc::unbounded_channel();
        let services = Services {
            version: version.into(),
            revision: Arc::new(AtomicI64::new(revision)),
            opened,
            ranges: Arc::default(),
        };
        let ranges = services.ranges.clone();
        let revision = services.revision.clone();
        let incoming = futures_util::stream::unfold(listener, async |listener| {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let server = tonic::transport::Server::builder()
            .add_service(KvServer::new(services.clone()))
            .add_service(MaintenanceServer::new(services.clone()))
            .add_service(WatchServer::new(services));
        tokio::spawn(server.serve_with_incoming(incoming));
        Self {
            url,
            watches,
            ranges,
            revision,
        }
    }

    /// Sets the revision in the headers of ranges.
    pub(crate) fn set_revision(&self, revision: i64) {
        self.revision.store(revision, Ordering::Relaxed);
    }

    /// Returns the next watch that a client opens.
    pub(crate) async fn next_watch(&mut self) -> FakeWatch {
        self.watches.recv().await.unwrap()
    }

    /// Returns the metadata of the last range.
    pub(crate) fn metadata_of_range(&self) -> MetadataMap {
        self.ranges.lock().unwrap().clone()
    }
}

impl FakeWatch {
    pub(crate) fn send(&self, response: WatchResponse) {
        // The client may have left.
        let _ = self.responses.send(Ok(response));
    }

    /// Receives the request that creates the watch.
    pub(crate) async fn created(&mut self) -> WatchCreateRequest {
        let request = self.requests.message().await.unwrap().unwrap();
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => create,
            other => panic!("expected a watch, got {other:?}"),
        }
    }

    /// Ends the stream with an error.
    pub(crate) fn fail(&self) {
        let _ = self.responses.send(Err(Status::unavailable("no leader")));
    }

    pub(crate) fn send_created(&self) {
        self.send(WatchResponse {
            created: true,
            ..header(1)
        });
    }

    pub(crate) fn send_event(&self, revision: i64) {
        self.send(events(&[("/registry/pods/ns/a", revision)]));
    }

    /// Sends the answer to a progress request.
    pub(crate) fn send_progress(&self, revision: i64) {
        self.send(WatchResponse {
            watch_id: -1,
            ..header(revision)
        });
    }
}

/// Returns a response that has only a header.
fn header(revision: i64) -> WatchResponse {
    let header = ResponseHeader {
        revision,
        ..ResponseHeader::default()
    };
    WatchResponse {
        header: Some(header),
        ..WatchResponse::default()
    }
}

/// Returns a response with puts.
pub(crate) fn events(puts: &[(&str, i64)]) -> WatchResponse {
    let event = |(key, revision): &(&str, i64)| Event {
        kv: Some(KeyValue {
            key: key.as_bytes().to_vec().into(),
            value: "{\"metadata\":{}}".into(),
            create_revision: *revision,
            mod_revision: *revision,
            version: 1,
            lease: 0,
        }),
        ..Event::default()
    };
    let last = puts.last().map_or(0, |(_, revision)| *revision);
    WatchResponse {
        events: puts.iter().map(event).collect(),
        ..header(last)
    }
}

/// Implements methods that no test calls.
macro_rules! unimplemented_methods {
    ($($name:ident: $request:ty => $response:ty;)*) => {
        $(fn $name<'life, 'future>(
            &'life self,
            _: Request<$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<$response>, Status>> + Send + 'future>>
        where
            'life: 'future,
            Self: 'future,
        {
            Box::pin(async { Err(Status::unimplemented("not part of the fake")) })
        })*
    };
}

#[tonic::async_trait]
impl Kv for Services {
    type RangeStreamStream = Responses<RangeStreamResponse>;

    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        *self.ranges.lock().unwrap() = request.metadata().clone();
        Ok(Response::new(RangeResponse {
            header: header(self.revision.load(Ordering::Relaxed)).header,
            ..RangeResponse::default()
        }))
    }

    unimplemented_methods! {
        range_stream: RangeRequest => Self::RangeStreamStream;
        put: PutRequest => PutResponse;
        delete_range: DeleteRangeRequest => DeleteRangeResponse;
        txn: TxnRequest => TxnResponse;
        compact: CompactionRequest => CompactionResponse;
    }
}

#[tonic::async_trait]
impl Maintenance for Services {
    type SnapshotStream = Responses<SnapshotResponse>;

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        Ok(Response::new(StatusResponse {
            version: self.version.clone(),
            ..StatusResponse::default()
        }))
    }

    unimplemented_methods! {
        alarm: AlarmRequest => AlarmResponse;
        defragment: DefragmentRequest => DefragmentResponse;
        hash: HashRequest => HashResponse;
        hash_kv: HashKvRequest => HashKvResponse;
        snapshot: SnapshotRequest => Self::SnapshotStream;
        move_leader: MoveLeaderRequest => MoveLeaderResponse;
        downgrade: DowngradeRequest => DowngradeResponse;
    }
}

#[tonic::async_trait]
impl Watch for Services {
    type WatchStream = Responses<WatchResponse>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (responses, mut queue) = mpsc::unbounded_channel();
        let metadata = request.metadata().clone();
        let watch = FakeWatch {
            metadata,
            requests: request.into_inner(),
            responses,
        };
        let sent = self.opened.send(watch);
        sent.map_err(|_| Status::unavailable("the test has ended"))?;
        let queue = futures_util::stream::poll_fn(move |context| queue.poll_recv(context));
        Ok(Response::new(Box::pin(queue)))
    }
}
