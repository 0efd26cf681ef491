//! The server that stores nothing: what tonic, as it comes, takes for the same messages.
//!
//! Reads of one key find nothing. A page holds as many copies of one pair as the limit allows. Every
//! put becomes an event for every watch, encoded once.

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

use crate::Failure;
use crate::client::{key, value};

#[allow(
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    clippy::all,
    clippy::pedantic,
    reason = "generated code; which lints it trips changes with the generator"
)]
mod generated {
    tonic::include_proto!("etcdserverpb.Watch");
}

/// Events that a stream may be behind.
const EVENTS_MAX: usize = 64 * 1024;

/// Responses that wait for a connection.
const RESPONSES_MAX: usize = 1024;

/// Serves until it is killed.
pub(crate) async fn serve(address: SocketAddr) -> Result<(), Failure> {
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
    /// Responses with one event, encoded but for header and watch id.
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

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Kv for Null {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Answer<pb::RangeResponse> {
        let copies = usize::try_from(request.get_ref().limit).unwrap_or_default();
        Ok(Response::new(pb::RangeResponse {
            header: Some(self.header()),
            kvs: vec![pair(key("", 0), value(), 100_000); copies],
            more: false,
            count: request.get_ref().limit,
        }))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Answer<pb::PutResponse> {
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
            // They may all have left meanwhile.
            let _ = self.events.send(response.encode_to_vec().into());
        }
        Ok(Response::new(pb::PutResponse {
            header: Some(self.header()),
            prev_kv: None,
        }))
    }

    async fn txn(&self, _: Request<pb::TxnRequest>) -> Answer<pb::TxnResponse> {
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
    ) -> Answer<pb::DeleteRangeResponse> {
        Err(Status::unimplemented("nothing is stored"))
    }

    async fn compact(&self, _: Request<pb::CompactionRequest>) -> Answer<pb::CompactionResponse> {
        Err(Status::unimplemented("nothing is stored"))
    }

    type RangeStreamStream = tokio_stream::Empty<Result<pb::RangeStreamResponse, Status>>;

    async fn range_stream(&self, _: Request<pb::RangeRequest>) -> Answer<Self::RangeStreamStream> {
        Err(Status::unimplemented("nothing is stored"))
    }
}

/// A watch response in two parts, of which all who are told share the second.
#[derive(Debug)]
pub(crate) struct Told {
    head: Vec<u8>,
    shared: Bytes,
}

#[tonic::async_trait]
impl generated::watch_server::Watch for Null {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Told, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Answer<Self::WatchStream> {
        let (responses, told) = mpsc::channel(RESPONSES_MAX);
        tokio::spawn(watch(self.clone(), request.into_inner(), responses));
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }
}

async fn watch(
    null: Null,
    mut requests: Streaming<pb::WatchRequest>,
    responses: mpsc::Sender<Result<Told, Status>>,
) {
    let mut events = null.events.subscribe();
    let mut watches = 0;
    let mut asked = true;
    loop {
        tokio::select! {
            request = requests.message(), if asked => match request {
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
                    let told = Told { head: created.encode_to_vec(), shared: Bytes::new() };
                    if responses.send(Ok(told)).await.is_err() {
                        return;
                    }
                }
                Ok(None) => asked = false,
                Err(_) => return,
            },
            event = events.recv() => {
                // What was missed is missed.
                let Ok(shared) = event else { continue };
                for watch_id in 0..watches {
                    let head = pb::WatchResponse {
                        header: Some(null.header()),
                        watch_id,
                        ..pb::WatchResponse::default()
                    };
                    let told = Told { head: head.encode_to_vec(), shared: shared.clone() };
                    if responses.send(Ok(told)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// Reads requests and writes [`Told`].
#[derive(Debug, Default)]
pub(crate) struct TellCodec(());

/// Writes [`Told`].
#[derive(Debug)]
pub(crate) struct TellEncoder;

/// Reads requests.
#[derive(Debug)]
pub(crate) struct RequestDecoder;

impl Codec for TellCodec {
    type Encode = Told;
    type Decode = pb::WatchRequest;
    type Encoder = TellEncoder;
    type Decoder = RequestDecoder;

    fn encoder(&mut self) -> TellEncoder {
        TellEncoder
    }

    fn decoder(&mut self) -> RequestDecoder {
        RequestDecoder
    }
}

impl Encoder for TellEncoder {
    type Item = Told;
    type Error = Status;

    fn encode(&mut self, told: Told, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // Fields of a message that follow each other are one message.
        buf.reserve(told.head.len() + told.shared.len());
        buf.put_slice(&told.head);
        buf.put_slice(&told.shared);
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
