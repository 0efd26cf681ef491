//! The null server, which stores nothing. Its cost is the cost of tonic without changes for the
//! same messages.
//!
//! A read of one key finds no pair. A page contains as many copies of one pair as the limit allows.
//! Every put is an event for every watch, and is encoded once.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::{BufMut, Bytes};
use prost::Message;
use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::kv_server::{Kv, KvServer};
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::mvccpb;
use tokio::sync::{broadcast, mpsc};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Response, Status, Streaming};

use crate::BoxError;
use crate::client::{key, value};

#[allow(
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    clippy::all,
    clippy::pedantic,
    reason = "generated code; the lints that it violates change with the generator"
)]
mod generated {
    tonic::include_proto!("etcdserverpb.Watch");
}

/// The maximum number of events that are buffered for a lagging stream.
const EVENTS_MAX: usize = 64 * 1024;

/// The maximum number of encoded responses that are buffered for a stream.
const RESPONSES_MAX: usize = 1024;

/// Serves until the process is killed.
pub(crate) async fn serve(address: SocketAddr) -> Result<(), BoxError> {
    let null = Null {
        revision: Arc::new(AtomicI64::new(1)),
        events: broadcast::channel(EVENTS_MAX).0,
    };
    tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .add_service(KvServer::new(null.clone()))
        .add_service(generated::watch_server::WatchServer::new(null))
        .serve(address)
        .await?;
    Ok(())
}

#[derive(Clone, Debug)]
struct Null {
    revision: Arc<AtomicI64>,
    /// Responses with one event each, encoded without header and watch id.
    events: broadcast::Sender<Bytes>,
}

impl Null {
    fn header(&self) -> pb::ResponseHeader {
        pb::ResponseHeader {
            cluster_id: 1,
            member_id: 1,
            revision: self.revision.load(Ordering::Relaxed),
            raft_term: 1,
        }
    }
}

fn pair(key: Bytes, value: Bytes, revision: i64) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key,
        value,
        create_revision: revision,
        mod_revision: revision,
        version: 1,
        lease: 0,
    }
}

type RpcResult<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Kv for Null {
    async fn range(&self, request: Request<pb::RangeRequest>) -> RpcResult<pb::RangeResponse> {
        let copies = usize::try_from(request.get_ref().limit).unwrap_or_default();
        Ok(Response::new(pb::RangeResponse {
            header: Some(self.header()),
            kvs: vec![pair(key("", 0), value(), 100_000); copies],
            more: false,
            count: request.get_ref().limit,
        }))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> RpcResult<pb::PutResponse> {
        let put = request.into_inner();
        let revision = self.revision.fetch_add(1, Ordering::Relaxed) + 1;
        if self.events.receiver_count() > 0 {
            let event = mvccpb::Event {
                kv: Some(pair(put.key, put.value, revision)),
                ..mvccpb::Event::default()
            };
            let response = pb::WatchResponse {
                events: vec![event],
                ..pb::WatchResponse::default()
            };
            // All watches may have ended since the check.
            let _ = self.events.send(response.encode_to_vec().into());
        }
        Ok(Response::new(pb::PutResponse {
            header: Some(self.header()),
            prev_kv: None,
        }))
    }

    async fn txn(&self, _: Request<pb::TxnRequest>) -> RpcResult<pb::TxnResponse> {
        self.revision.fetch_add(1, Ordering::Relaxed);
        let put = pb::PutResponse {
            header: Some(self.header()),
            prev_kv: None,
        };
        Ok(Response::new(pb::TxnResponse {
            header: Some(self.header()),
            succeeded: true,
            responses: vec![pb::ResponseOp {
                response: Some(pb::response_op::Response::ResponsePut(put)),
            }],
        }))
    }

    async fn delete_range(
        &self,
        _: Request<pb::DeleteRangeRequest>,
    ) -> RpcResult<pb::DeleteRangeResponse> {
        Err(Status::unimplemented("nothing is stored"))
    }

    async fn compact(
        &self,
        _: Request<pb::CompactionRequest>,
    ) -> RpcResult<pb::CompactionResponse> {
        Err(Status::unimplemented("nothing is stored"))
    }

    type RangeStreamStream = tokio_stream::Empty<Result<pb::RangeStreamResponse, Status>>;

    async fn range_stream(
        &self,
        _: Request<pb::RangeRequest>,
    ) -> RpcResult<Self::RangeStreamStream> {
        Err(Status::unimplemented("nothing is stored"))
    }
}

/// An encoded watch response in two parts. The second part is shared by all watches.
#[derive(Debug)]
pub(crate) struct SplitResponse {
    head: Vec<u8>,
    shared: Bytes,
}

#[tonic::async_trait]
impl generated::watch_server::Watch for Null {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<SplitResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> RpcResult<Self::WatchStream> {
        let (responses, receiver) = mpsc::channel(RESPONSES_MAX);
        tokio::spawn(watch(self.clone(), request.into_inner(), responses));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

async fn watch(
    null: Null,
    mut requests: Streaming<pb::WatchRequest>,
    responses: mpsc::Sender<Result<SplitResponse, Status>>,
) {
    let mut events = null.events.subscribe();
    let mut watches = 0;
    let mut requests_open = true;
    loop {
        tokio::select! {
            request = requests.message(), if requests_open => match request {
                Ok(Some(request)) => {
                    if !matches!(request.request_union, Some(RequestUnion::CreateRequest(_))) {
                        continue;
                    }
                    let created = pb::WatchResponse {
                        header: Some(null.header()),
                        watch_id: watches,
                        created: true,
                        ..pb::WatchResponse::default()
                    };
                    watches += 1;
                    let response = SplitResponse { head: created.encode_to_vec(), shared: Bytes::new() };
                    if responses.send(Ok(response)).await.is_err() {
                        return;
                    }
                }
                Ok(None) => requests_open = false,
                Err(_) => return,
            },
            event = events.recv() => {
                // A lagging stream loses events.
                let Ok(shared) = event else { continue };
                for watch_id in 0..watches {
                    let head = pb::WatchResponse {
                        header: Some(null.header()),
                        watch_id,
                        ..pb::WatchResponse::default()
                    };
                    let response = SplitResponse { head: head.encode_to_vec(), shared: shared.clone() };
                    if responses.send(Ok(response)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// A codec of watch requests and [`SplitResponse`].
#[derive(Debug, Default)]
pub(crate) struct SplitCodec(());

/// The encoder of [`SplitCodec`].
#[derive(Debug)]
pub(crate) struct SplitEncoder;

/// The decoder of [`SplitCodec`].
#[derive(Debug)]
pub(crate) struct RequestDecoder;

impl Codec for SplitCodec {
    type Encode = SplitResponse;
    type Decode = pb::WatchRequest;
    type Encoder = SplitEncoder;
    type Decoder = RequestDecoder;

    fn encoder(&mut self) -> SplitEncoder {
        SplitEncoder
    }

    fn decoder(&mut self) -> RequestDecoder {
        RequestDecoder
    }
}

impl Encoder for SplitEncoder {
    type Item = SplitResponse;
    type Error = Status;

    fn encode(&mut self, response: SplitResponse, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // Concatenated encodings of the parts of a message are an encoding of the message.
        buf.reserve(response.head.len() + response.shared.len());
        buf.put_slice(&response.head);
        buf.put_slice(&response.shared);
        Ok(())
    }
}

impl Decoder for RequestDecoder {
    type Item = pb::WatchRequest;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        let request = pb::WatchRequest::decode(buf);
        request
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
