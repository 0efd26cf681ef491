//! The KV service: Range, Put, `DeleteRange`, Txn, Compact and `RangeStream`.

use std::sync::Arc;

use prost::Message;
use revstore_engine::{RECORD_OVERHEAD_BYTES, Revision};
use revstore_proto::etcdserverpb::request_op::Request as OpRequest;
use revstore_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use tonic::{Request, Response, Status};

use crate::encode::range_body::LargeRange;
use crate::encode::response::{
    CompactionResponse, DeleteRangeResponse, PutResponse, RangeResponse, TxnResponse,
};
use crate::generated::Kv;
use crate::methods;
use crate::node::Node;
use crate::node::admission::Proposal;
use crate::request::kv::{convert_delete_range, convert_put, convert_range};
use crate::request::txn::convert_txn;
use crate::service::range_stream::RangeStream;
use crate::status::EtcdError;

/// The maximum number of keys that a range may visit without a yield before it. Visiting them takes
/// about 100 µs.
const QUICK_KEYS_MAX: i64 = 1_000;

/// The maximum number of operations of a transaction without a yield before it.
const QUICK_OPS_MAX: usize = 16;

/// `etcdserverpb.KV`; etcd's `kvServer` and `quotaKVServer`.
#[derive(Debug)]
pub(crate) struct KvService {
    node: Arc<Node>,
}

impl KvService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    fn range(&self, mut request: RangeRequest) -> Result<Response<RangeResponse>, EtcdError> {
        let keys_only = request.keys_only;
        let range = convert_range(&mut request);
        let measure = |kv: &_| RangeResponse::kv_len(kv, keys_only);
        let (result, kvs_len) = self.node.engine.range_measured(&range, measure)?;
        let header = self.node.headers.at(result.revision);
        let response = RangeResponse::new(result, keys_only, Some(header));
        Ok(LargeRange::wrap(response, kvs_len))
    }

    fn put(&self, mut request: PutRequest) -> Result<PutResponse, EtcdError> {
        self.node.admit(Proposal {
            request_bytes: request.encoded_len(),
            growth_bytes: Some(growth_bytes(&request)),
        })?;
        let result = self.node.engine.put_with(&convert_put(&mut request))?;
        let header = self.node.headers.at(result.revision);
        Ok(PutResponse::new(result, request.prev_kv, header))
    }

    fn delete_range(
        &self,
        mut request: DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, EtcdError> {
        self.node.admit(Proposal {
            request_bytes: request.encoded_len(),
            growth_bytes: None,
        })?;
        let result = self
            .node
            .engine
            .delete(&convert_delete_range(&mut request))?;
        let header = self.node.headers.at(result.revision);
        Ok(DeleteRangeResponse::new(result, request.prev_kv, header))
    }

    fn txn(&self, mut request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        let node = &*self.node;
        let writes = TxnWrites::of(&request);
        if writes.any {
            node.admit(Proposal {
                request_bytes: request.encoded_len(),
                growth_bytes: writes.growth_bytes,
            })?;
        }
        let never_compacted = node.engine.compacted_revision().is_none();
        let txn = convert_txn(&mut request, never_compacted);
        let result = node.engine.txn(&txn)?;
        node.counters.add_txn(&result);
        let header = node.headers.at(result.revision);
        Ok(TxnResponse::new(result, &request, header))
    }

    async fn compact(&self, request: CompactionRequest) -> Result<CompactionResponse, EtcdError> {
        self.node.admit(Proposal::default())?;
        let compaction = self.node.engine.compact(Revision(request.revision))?;
        // CO-4: the compacted revision is in effect. Freeing memory may take longer.
        let removal = tokio::task::spawn_blocking(move || compaction.run());
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
        let request = self.node.accept::<methods::kv::Range>(request)?;
        if !is_quick_range(&request) {
            yield_now().await;
        }
        Ok(self.range(request)?)
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let request = self.node.accept::<methods::kv::Put>(request)?;
        Ok(Response::new(self.put(request)?))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let request = self.node.accept::<methods::kv::DeleteRange>(request)?;
        if !request.range_end.is_empty() {
            yield_now().await;
        }
        Ok(Response::new(self.delete_range(request)?))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let request = self.node.accept::<methods::kv::Txn>(request)?;
        if !is_quick_txn(&request) {
            yield_now().await;
        }
        Ok(Response::new(self.txn(request)?))
    }

    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        let request = self.node.accept::<methods::kv::Compact>(request)?;
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

/// Yields once before work that may take long. A server executes the requests of a connection one
/// after the other in one task. It spawns a separate task for a request that yields.
async fn yield_now() {
    tokio::task::yield_now().await;
}

fn is_quick_range(request: &RangeRequest) -> bool {
    let is_one_key = request.range_end.is_empty();
    let has_low_limit = (1..=QUICK_KEYS_MAX).contains(&request.limit);
    // Sorting and filtering visit all keys before the limit applies.
    let is_plain = request.sort_order == 0
        && request.sort_target == 0
        && request.min_mod_revision == 0
        && request.max_mod_revision == 0
        && request.min_create_revision == 0
        && request.max_create_revision == 0;
    is_one_key || (is_plain && (has_low_limit || request.count_only))
}

fn is_quick_txn(request: &TxnRequest) -> bool {
    let ops = || request.success.iter().chain(&request.failure);
    let compares = &request.compare;
    compares.len() + ops().count() <= QUICK_OPS_MAX
        && compares.iter().all(|compare| compare.range_end.is_empty())
        && ops().all(|op| match &op.request {
            Some(OpRequest::RequestRange(request)) => is_quick_range(request),
            Some(OpRequest::RequestPut(_)) | None => true,
            Some(OpRequest::RequestDeleteRange(request)) => request.range_end.is_empty(),
            Some(OpRequest::RequestTxn(_)) => false,
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
