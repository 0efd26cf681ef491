//! The key-value service.

use std::sync::Arc;

use prost::Message;
use revstore_engine::{RECORD_OVERHEAD_BYTES, Revision};
use revstore_proto::etcdserverpb::request_op::Request as OpRequest;
use revstore_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use tonic::{Request, Response, Status};

use crate::auth::authorize;
use crate::encode::range_body::LargeRange;
use crate::encode::response::{
    CompactionResponse, DeleteRangeResponse, PutResponse, RangeResponse, TxnResponse,
};
use crate::generated::Kv;
use crate::node::{Node, Proposal};
use crate::request::convert;
use crate::request::validate;
use crate::service::range_stream::RangeStream;
use crate::status::EtcdError;

/// Keys that a read may touch without making others wait: some hundred microseconds' worth.
const QUICK_KEYS_MAX: i64 = 1_000;

/// Operations that a transaction may have without making others wait.
const QUICK_OPS_MAX: usize = 16;

/// `etcdserverpb.KV`.
#[derive(Debug)]
pub(crate) struct KvService {
    node: Arc<Node>,
}

impl KvService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    fn range(&self, mut request: RangeRequest) -> Result<Response<RangeResponse>, EtcdError> {
        validate::range(&request)?;
        let keys_only = request.keys_only;
        let range = convert::range(&mut request);
        let measure = |kv: &_| RangeResponse::kv_len(kv, keys_only);
        let (found, kvs_len) = self.node.engine.range_measured(&range, measure)?;
        let header = self.node.headers.at(found.revision);
        let response = RangeResponse::new(found, keys_only, Some(header));
        Ok(LargeRange::wrap(response, kvs_len))
    }

    fn range_stream(&self, mut request: RangeRequest) -> Result<RangeStream, EtcdError> {
        validate::range_stream(&request)?;
        let range = convert::range(&mut request);
        RangeStream::start(self.node.clone(), range, request.keys_only)
    }

    fn put(&self, mut request: PutRequest) -> Result<PutResponse, EtcdError> {
        validate::put(&request)?;
        self.node.propose(Proposal {
            request_bytes: request.encoded_len(),
            grows_bytes: Some(growth(&request)),
        })?;
        let done = self.node.engine.put_with(&convert::put(&mut request))?;
        let header = self.node.headers.at(done.revision);
        Ok(PutResponse::new(done, request.prev_kv, header))
    }

    fn delete_range(
        &self,
        mut request: DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, EtcdError> {
        validate::delete_range(&request)?;
        self.node.propose(Proposal {
            request_bytes: request.encoded_len(),
            grows_bytes: None,
        })?;
        let done = self.node.engine.delete(&convert::delete(&mut request));
        let header = self.node.headers.at(done.revision);
        Ok(DeleteRangeResponse::new(done, request.prev_kv, header))
    }

    fn txn(&self, mut request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        let node = &*self.node;
        validate::txn(&request, node.limits.txn_ops_max)?;
        let writes = Writes::of_txn(&request);
        if writes.any {
            node.propose(Proposal {
                request_bytes: request.encoded_len(),
                grows_bytes: writes.grows_bytes,
            })?;
        }
        let never_compacted = node.engine.compacted_revision().is_none();
        let done = node
            .engine
            .txn(&convert::txn(&mut request, never_compacted))?;
        node.counters.add_txn(&done);
        let header = node.headers.at(done.revision);
        Ok(TxnResponse::new(done, &request, header))
    }

    async fn compact(&self, request: CompactionRequest) -> Result<CompactionResponse, EtcdError> {
        self.node.propose(Proposal::default())?;
        let compaction = self.node.engine.compact(Revision(request.revision))?;
        // CO-4: readers see the mark already; giving memory back may take a while.
        let removal = tokio::task::spawn_blocking(move || compaction.run());
        if request.physical {
            // CO-6
            removal.await.map_err(|_died| EtcdError::Internal)?;
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
        self.node.guard(&request, authorize::range)?;
        if !is_quick_range(request.get_ref()) {
            let_others_run().await;
        }
        Ok(self.range(request.into_inner())?)
    }

    type RangeStreamStream = RangeStream;

    async fn range_stream(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeStream>, Status> {
        self.node.guard(&request, authorize::range_stream)?;
        Ok(Response::new(self.range_stream(request.into_inner())?))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        self.node.guard(&request, authorize::put)?;
        Ok(Response::new(self.put(request.into_inner())?))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        self.node.guard(&request, authorize::delete_range)?;
        if !request.get_ref().range_end.is_empty() {
            let_others_run().await;
        }
        Ok(Response::new(self.delete_range(request.into_inner())?))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        self.node.guard(&request, authorize::txn)?;
        if !is_quick_txn(request.get_ref()) {
            let_others_run().await;
        }
        Ok(Response::new(self.txn(request.into_inner())?))
    }

    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        self.node.guard(&request, authorize::admin)?;
        Ok(Response::new(self.compact(request.into_inner()).await?))
    }
}

/// Waits once, before work that may take long. A server runs requests of a connection one after
/// the other as long as none of them has to wait, and gives those that do a task of their own.
async fn let_others_run() {
    tokio::task::yield_now().await;
}

fn is_quick_range(request: &RangeRequest) -> bool {
    let one = request.range_end.is_empty();
    let few = (1..=QUICK_KEYS_MAX).contains(&request.limit);
    // A sort or a filter looks at all keys first.
    let plain = request.sort_order == 0
        && request.sort_target == 0
        && request.min_mod_revision == 0
        && request.max_mod_revision == 0
        && request.min_create_revision == 0
        && request.max_create_revision == 0;
    one || (plain && (few || request.count_only))
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

/// What a transaction may write, on either branch.
#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    any: bool,
    /// What the puts grow the history by, if there are any.
    grows_bytes: Option<u64>,
}

impl Writes {
    fn of_txn(request: &TxnRequest) -> Self {
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
                let grows_bytes = self.grows_bytes.unwrap_or(0);
                self.grows_bytes = Some(grows_bytes.saturating_add(growth(put)));
            }
            Some(OpRequest::RequestTxn(request)) => self.add_txn(request),
        }
    }
}

fn growth(put: &PutRequest) -> u64 {
    (put.key.len() + put.value.len()) as u64 + RECORD_OVERHEAD_BYTES
}
