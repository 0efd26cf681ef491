//! The KV service: Range, Put, `DeleteRange`, Txn, Compact and `RangeStream`.

use std::sync::Arc;

use prost::Message;
use revstore_engine::{RECORD_OVERHEAD_BYTES, Range, Revision};
use revstore_proto::etcdserverpb::request_op::Request as OpRequest;
use revstore_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use tonic::{Request, Response, Status};

use crate::deadline::WriteStart;
use crate::encode::codec::Encode;
use crate::encode::large_answer::{InParts, LargeAnswer};
use crate::encode::response::{
    CompactionResponse, DeleteRangeResponse, PutResponse, RangeResponse, TxnResponse,
};
use crate::generated::Kv;
use crate::heavy::{Cost, Reservation, answer_bytes};
use crate::methods;
use crate::node::Node;
use crate::node::admission::Proposal;
use crate::node::compaction_log;
use crate::node::slow::{ApplyOp, RequestStats, Times};
use crate::request::kv::{convert_delete_range, convert_put, convert_range};
use crate::request::txn::convert_txn;
use crate::service::kv_log as log;
use crate::service::range_stream::RangeStream;
use crate::status::EtcdError;

/// `etcdserverpb.KV`; etcd's `kvServer` and `quotaKVServer`.
#[derive(Debug)]
pub(crate) struct KvService {
    node: Arc<Node>,
}

impl KvService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    fn put(&self, mut request: PutRequest) -> Result<Response<PutResponse>, EtcdError> {
        let times = self.node.slow.times();
        let node = &*self.node;
        node.admit(Proposal {
            request_bytes: request.encoded_len(),
            growth_bytes: Some(growth_bytes(&request)),
        })?;
        let put = convert_put(&mut request);
        let result = node.engine.put_with(&put);
        node.slow.observe(ApplyOp::Put, times, result.is_ok());
        let notes = node.slow.notes(times, result.is_err());
        let response = result.map_err(EtcdError::from).map(|result| {
            let header = node.headers.at(result.revision);
            PutResponse::new(result, request.prev_kv, header)
        });
        let stats = notes.and_then(|notes| log::put(node, notes, request, &put, &response));
        Ok(log::with_stats(Response::new(response?), stats))
    }

    /// Runs a put after the large write that is running.
    async fn put_later(
        &self,
        request: Request<PutRequest>,
    ) -> Result<Response<PutResponse>, Status> {
        let start = request.extensions().get::<WriteStart>().cloned();
        let _open = self.node.heavy.write_gate.pass().await;
        let request = self.node.accept::<methods::kv::Put>(request)?;
        WriteStart::check(start.as_ref())?;
        Ok(self.put(request)?)
    }

    /// Runs a write, on a worker if it is heavy, and returns the response.
    async fn write<M: InParts + Send + 'static>(
        &self,
        cost: Cost,
        start: Option<WriteStart>,
        write: impl FnOnce(&Node) -> Result<Written<M>, EtcdError> + Send + 'static,
    ) -> Result<Response<M>, EtcdError> {
        let write = move |node: &Node| -> Result<_, EtcdError> {
            WriteStart::check(start.as_ref())?;
            write(node)
        };
        // Long requests have boxes, so that the futures of all others are small.
        let open = if cost.is_quick() {
            self.node.heavy.write_gate.try_pass()
        } else {
            None
        };
        let written = if let Some(open) = open {
            let written = write(&self.node);
            drop(open);
            written?
        } else {
            let write = move |node: &Node, reservation| {
                write(node).map(|written| Written {
                    reservation,
                    ..written
                })
            };
            Box::pin(self.node.write_slowly(cost, write)).await?
        };
        if !LargeAnswer::is_large(written.encoded_len, written.keys) {
            let response = Response::new(written.message);
            return Ok(log::with_stats(response, written.stats));
        }
        Box::pin(self.respond_in_parts(written)).await
    }

    /// Returns the response to a write whose answer is large. Unlike a read, a write cannot run again when
    /// there is memory for its answer. So the answer waits for it.
    async fn respond_in_parts<M: InParts>(
        &self,
        written: Written<M>,
    ) -> Result<Response<M>, EtcdError> {
        let heavy = &self.node.heavy;
        let bytes = answer_bytes(written.keys);
        let reservation = match written.reservation {
            Some(mut reservation) => {
                reservation.resize(bytes);
                reservation
            }
            None => heavy.memory.reserve_up_to(bytes).await?,
        };
        let response =
            LargeAnswer::respond(written.message, written.encoded_len, reservation, heavy)?;
        Ok(log::with_stats(response, written.stats))
    }

    /// Reads a range that is not quick, or that needs more memory for its answer than there is.
    async fn range_slowly(
        &self,
        read: RangeRead,
        cost: Cost,
        times: Times,
    ) -> Result<Response<RangeResponse>, EtcdError> {
        if !cost.is_quick() {
            tokio::task::yield_now().await;
            if !cost.is_heavy()
                && let Some(response) = read.run(&self.node, times, None)?
            {
                return Ok(response);
            }
        }
        let heavy = &self.node.heavy;
        let reservation = heavy.memory.reserve(cost.answer_bytes()).await?;
        let node = self.node.clone();
        let reading = move || read.run(&node, times.start(), Some(reservation));
        let response = heavy.workers.run(reading).await??;
        response.ok_or(EtcdError::Internal)
    }

    async fn compact(&self, request: CompactionRequest) -> Result<CompactionResponse, EtcdError> {
        self.node.admit(Proposal::default())?;
        let times = self.node.slow.times();
        let compaction = {
            let _open = self.node.heavy.write_gate.pass().await;
            self.node.engine.compact(Revision(request.revision))
        };
        self.node
            .slow
            .observe(ApplyOp::Compaction, times, compaction.is_ok());
        let compaction = compaction?;
        let revision = request.revision;
        compaction_log::begin(revision);
        let (engine, start) = (self.node.engine.clone(), self.node.engine.now());
        // CO-4: the compacted revision is in effect. Freeing memory may take longer.
        let removal = tokio::task::spawn_blocking(move || {
            compaction.run();
            let took = engine.now().saturating_sub(start);
            compaction_log::end(&engine, revision, took);
        });
        if request.physical {
            // CO-6
            removal.await.map_err(|_panicked| EtcdError::Internal)?;
        }
        let current = self.node.engine.current_revision();
        Ok(CompactionResponse {
            header: self.node.headers.at(current),
        })
    }
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        let mut request = self.node.accept::<methods::kv::Range>(request)?;
        let times = self.node.slow.times();
        let cost = Cost::of_range(&self.node.engine, &request);
        let read = RangeRead {
            range: convert_range(&mut request),
            request,
        };
        if cost.is_quick()
            && let Some(response) = read.run(&self.node, times, None)?
        {
            return Ok(response);
        }
        Ok(Box::pin(self.range_slowly(read, cost, times)).await?)
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let Some(_open) = self.node.heavy.write_gate.try_pass() else {
            return Box::pin(self.put_later(request)).await;
        };
        let request = self.node.accept::<methods::kv::Put>(request)?;
        Ok(self.put(request)?)
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let start = request.extensions().get::<WriteStart>().cloned();
        let request = self.node.accept::<methods::kv::DeleteRange>(request)?;
        let times = self.node.slow.times();
        let cost = Cost::of_delete_range(&self.node.engine, &request);
        let write = move |node: &Node| delete_range(node, times.after(cost), request);
        Ok(self.write(cost, start, write).await?)
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let start = request.extensions().get::<WriteStart>().cloned();
        let request = self.node.accept::<methods::kv::Txn>(request)?;
        let times = self.node.slow.times();
        let cost = Cost::of_txn(&self.node.engine, &request);
        let write = move |node: &Node| txn(node, times.after(cost), request);
        Ok(self.write(cost, start, write).await?)
    }

    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        let start = request.extensions().get::<WriteStart>().cloned();
        let request = self.node.accept::<methods::kv::Compact>(request)?;
        WriteStart::check(start.as_ref())?;
        Ok(Response::new(self.compact(request).await?))
    }

    type RangeStreamStream = RangeStream;

    async fn range_stream(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeStream>, Status> {
        let mut request = self.node.accept::<methods::kv::RangeStream>(request)?;
        let range = convert_range(&mut request);
        let stream = RangeStream::start(self.node.clone(), range, request.keys_only)?;
        Ok(Response::new(stream))
    }
}

/// A range request that can run more than once.
struct RangeRead {
    range: Range,
    /// The request without its keys.
    request: RangeRequest,
}

impl RangeRead {
    /// Reads the range. Returns `None` if the answer is large and there is no memory for it. With
    /// reserved memory there always is.
    fn run(
        &self,
        node: &Node,
        times: Times,
        reservation: Option<Reservation>,
    ) -> Result<Option<Response<RangeResponse>>, EtcdError> {
        let keys_only = self.request.keys_only;
        let measure = |kv: &_| RangeResponse::kv_len(kv, keys_only);
        let result = node.engine.range_measured(&self.range, measure);
        let notes = node.slow.notes(times, false);
        let (result, kvs_len) = match result {
            Ok(found) => found,
            Err(error) => {
                let error = EtcdError::from(error);
                if let Some(notes) = notes {
                    log::failed_range(node, notes, &self.request, &self.range, error);
                }
                return Err(error);
            }
        };
        let header = node.headers.at(result.revision);
        let response = RangeResponse::new(result, keys_only, Some(header));
        let (encoded_len, keys) = (response.envelope_len() + kvs_len, response.kvs.len());
        let stats = notes.and_then(|notes| {
            let size = (response.count, keys, encoded_len);
            log::range(node, notes, &self.request, &self.range, size)
        });
        if !LargeAnswer::is_large(encoded_len, keys) {
            return Ok(Some(log::with_stats(Response::new(response), stats)));
        }
        let heavy = &node.heavy;
        let bytes = answer_bytes(keys);
        let reservation = match reservation {
            Some(mut reservation) => {
                reservation.resize(bytes);
                reservation
            }
            None => match heavy.memory.try_reserve(bytes) {
                Some(reservation) => reservation,
                None => return Ok(None),
            },
        };
        let response = LargeAnswer::respond(response, encoded_len, reservation, heavy)?;
        Ok(Some(log::with_stats(response, stats)))
    }
}

/// The result of a write.
struct Written<M> {
    message: M,
    encoded_len: usize,
    /// The number of key-values in the message.
    keys: usize,
    /// The memory of the answer, if it was reserved before the write.
    reservation: Option<Reservation>,
    /// What the log says about the request, if it took long.
    stats: Option<Box<RequestStats>>,
}

impl<M: Encode> Written<M> {
    fn new(message: M, keys: usize) -> Self {
        Self {
            encoded_len: message.encoded_len(),
            message,
            keys,
            reservation: None,
            stats: None,
        }
    }
}

impl Times {
    /// The execution of a request of this cost begins.
    fn after(self, cost: Cost) -> Self {
        if cost.is_quick() { self } else { self.start() }
    }
}

fn delete_range(
    node: &Node,
    times: Times,
    mut request: DeleteRangeRequest,
) -> Result<Written<DeleteRangeResponse>, EtcdError> {
    node.admit(Proposal {
        request_bytes: request.encoded_len(),
        growth_bytes: None,
    })?;
    let keys = convert_delete_range(&mut request);
    let result = node.engine.delete(&keys);
    node.slow
        .observe(ApplyOp::DeleteRange, times, result.is_ok());
    let notes = node.slow.notes(times, result.is_err());
    let response = result.map_err(EtcdError::from).map(|result| {
        let header = node.headers.at(result.revision);
        DeleteRangeResponse::new(result, request.prev_kv, header)
    });
    let stats = notes.and_then(|notes| log::delete_range(node, notes, request, &keys, &response));
    let response = response?;
    let keys = response.prev_kvs.len();
    Ok(Written {
        stats,
        ..Written::new(response, keys)
    })
}

fn txn(
    node: &Node,
    times: Times,
    mut request: TxnRequest,
) -> Result<Written<TxnResponse>, EtcdError> {
    let writes = TxnWrites::of(&request);
    if writes.any {
        node.admit(Proposal {
            request_bytes: request.encoded_len(),
            growth_bytes: writes.growth_bytes,
        })?;
    }
    let never_compacted = node.engine.compacted_revision().is_none();
    let txn = convert_txn(&mut request, never_compacted);
    let result = node.engine.txn(&txn);
    if writes.any {
        node.slow.observe(ApplyOp::Txn, times, result.is_ok());
    }
    let notes = node.slow.notes(times, result.is_err() && writes.any);
    let response = result.map_err(EtcdError::from).map(|result| {
        node.counters.add_txn(&result);
        let header = node.headers.at(result.revision);
        TxnResponse::new(result, &request, header)
    });
    let stats = notes.and_then(|notes| {
        let prefix = if writes.any { "" } else { log::READ_ONLY_TXN };
        log::txn(node, notes, prefix, request, &txn, &response)
    });
    let response = response?;
    let keys = response.keys();
    Ok(Written {
        stats,
        ..Written::new(response, keys)
    })
}

/// The writes that both branches of a transaction contain.
#[derive(Clone, Copy, Debug, Default)]
struct TxnWrites {
    any: bool,
    /// The number of bytes that the puts add to the history; `None` without puts.
    growth_bytes: Option<u64>,
}

impl TxnWrites {
    fn of(request: &TxnRequest) -> Self {
        let mut writes = Self::default();
        writes.add_txn(request);
        writes
    }

    fn add_txn(&mut self, request: &TxnRequest) {
        let ops = request.success.iter().chain(&request.failure);
        ops.for_each(|op| self.add(op));
    }

    fn add(&mut self, op: &RequestOp) {
        match &op.request {
            Some(OpRequest::RequestRange(_)) | None => {}
            Some(OpRequest::RequestDeleteRange(_)) => self.any = true,
            Some(OpRequest::RequestPut(put)) => {
                self.any = true;
                let sum = self.growth_bytes.unwrap_or(0);
                self.growth_bytes = Some(sum.saturating_add(growth_bytes(put)));
            }
            Some(OpRequest::RequestTxn(request)) => self.add_txn(request),
        }
    }
}

/// Returns the number of bytes that a put adds to the history.
fn growth_bytes(put: &PutRequest) -> u64 {
    (put.key.len() + put.value.len()) as u64 + RECORD_OVERHEAD_BYTES
}
