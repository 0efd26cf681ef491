//! The source over an etcd cluster.

mod client;
mod options;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use parking_lot::Mutex;
use revstore_engine::{Clock, KeyRange, Revision};
use revstore_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use revstore_proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, Compare, DeleteRangeRequest, LeaseGrantRequest,
    LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, RangeRequest,
    RangeResponse, RequestOp, ResponseHeader, TxnRequest, TxnResponse, WatchCreateRequest,
    request_op, response_op,
};
use revstore_proto::mvccpb::KeyValue;

use self::client::{COMPACT, CallError, EtcdClient, LEASE_GRANT, LEASE_REVOKE, RANGE, Repeat, TXN};
pub use self::options::{EtcdOptions, EtcdOptionsError, EtcdTls};
use self::watch::{EtcdWatch, ProgressSupport};
use super::shared_lease::{self, SharedLease};
use super::{
    BatchStream, ConditionalWrite, ListPage, ListRequest, Source, SourceError, StoredKeyValue,
    TOO_LARGE, VersionOutcome, VersionWrite, WatchRequest, WriteAction, WriteOutcome,
};
use crate::wake::timer_queue::TimerQueue;

/// The text of etcd's error for a compacted revision.
const COMPACTED: &str = "required revision has been compacted";
/// The text of etcd's error for a lease that does not exist.
const LEASE_NOT_FOUND: &str = "requested lease not found";
/// The page size, in keys, of reads from etcd.
const PAGE_KEYS: i64 = 1000;

/// A [`Source`] over an etcd cluster.
///
/// The futures of this source need a tokio runtime with its timers and its network driver. Spawn the
/// feeder on that runtime with [`Feeder::run`](crate::Feeder::run), not on a separate thread.
///
/// - A list is read in pages of 1000 keys at one revision.
/// - A watch requests previous versions only if they are needed. It requests progress every 500 ms
///   while no events arrive, and at once when a request waits for a revision. Servers before 3.4.31,
///   and those of 3.5 before 3.5.13, may report progress before an event that it includes; progress
///   is not requested from them, and
///   [`requests_progress`](Source::requests_progress) returns `false`.
/// - A cache watches the smallest range that contains the keys of all its resources. With one resource
///   that is its prefix. With several, it also contains the keys between the first and the last
///   prefix, which are received and ignored: one watch delivers changes in the order of their
///   revisions, and several watches would not. If a resource is added outside of the range, the cache
///   opens a new watch where the previous one ended. Resources with distant prefixes and many keys
///   between them are better kept in separate caches.
/// - Every request has a time limit ([`EtcdOptions::request_timeout`]). A watch fails if its
///   connection does not answer a ping ([`EtcdOptions::keep_alive`]), or its server a progress request.
/// - An endpoint that is cut off from the leader of the cluster rejects requests and ends watches, as
///   with `WithRequireLeader` of etcd's client.
/// - If an endpoint fails, the following calls use the next one. Reads, and writes that were not sent,
///   are repeated there at once. Another write fails, because it may have been executed.
/// - A watch has a connection of its own; all other calls share one.
/// - A replacement of the cluster, by one that was restored from a backup or started empty, is
///   detected by its cluster id, raft term and revision, which never decrease in one cluster. They
///   are compared whenever the current revision is read.
///
/// ```no_run
/// use std::sync::Arc;
/// use revstore_watch_cache::clock::SystemClock;
/// use revstore_watch_cache::source::{EtcdOptions, EtcdSource};
/// use revstore_watch_cache::{JsonKind, ListOptions, ResourceConfig, Scope, WatchCache};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = Arc::new(SystemClock::new());
/// let options = EtcdOptions::new(["http://127.0.0.1:2379"]);
/// let source = EtcdSource::new(&options, clock.clone())?;
/// let (cache, feeder) = WatchCache::builder(Arc::new(source)).clock(clock).build();
/// let kind = JsonKind::new("v1", "Pod");
/// let pods = cache.add(ResourceConfig::namespaced(kind, "pods", "/registry/pods"))?;
/// tokio::spawn(feeder.run());
///
/// pods.wait_until_ready().await?;
/// let list = pods.list(&Scope::All, &ListOptions::default()).await?;
/// println!("{} pods at revision {}", list.items.count(), list.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EtcdSource {
    client: Arc<EtcdClient>,
    /// Notifies the watches that a request waits for progress.
    progress_requests: tokio::sync::watch::Sender<()>,
    progress: Arc<ProgressSupport>,
    revision_key: Bytes,
    /// The lock is held for one lookup or change.
    known: Arc<Mutex<KnownCluster>>,
    /// Held for one lookup, or while a lease is granted, so that writes of one time need one.
    lease: Arc<tokio::sync::Mutex<SharedLease<i64>>>,
    /// The origin of the times of leases, which follow the clock of the cluster and not one that a
    /// test moves.
    started: Instant,
}

/// The state of the cluster in the header of a response.
#[derive(Clone, Copy, Debug)]
struct ClusterState {
    cluster_id: u64,
    raft_term: u64,
    revision: Revision,
}

impl ClusterState {
    fn of(header: Option<&ResponseHeader>) -> Self {
        Self {
            cluster_id: header.map_or(0, |header| header.cluster_id),
            raft_term: header.map_or(0, |header| header.raft_term),
            revision: Revision(header.map_or(0, |header| header.revision)),
        }
    }

    /// Returns whether `later`, from a linearizable read that started later, can be a state of the
    /// same cluster.
    fn may_precede(&self, later: &Self) -> bool {
        self.cluster_id == later.cluster_id
            && self.raft_term <= later.raft_term
            && self.revision <= later.revision
    }
}

/// The newest known state of the cluster.
#[derive(Debug, Default)]
struct KnownCluster {
    newest: Option<ClusterState>,
    replacements: u64,
}

impl fmt::Debug for EtcdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSource").finish_non_exhaustive()
    }
}

impl EtcdSource {
    /// Returns a source over the cluster of `options`. It connects when it is used. Time limits and
    /// periodic progress requests use `clock`.
    ///
    /// # Errors
    /// If an option is invalid.
    pub fn new(options: &EtcdOptions, clock: Arc<dyn Clock>) -> Result<Self, EtcdOptionsError> {
        let client = EtcdClient::new(options, TimerQueue::new(clock))?;
        Ok(Self {
            client: Arc::new(client),
            progress_requests: tokio::sync::watch::Sender::new(()),
            progress: Arc::default(),
            revision_key: options.revision_key.clone(),
            known: Arc::default(),
            lease: Arc::default(),
            started: Instant::now(),
        })
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CallError> {
        self.client.call(RANGE, request, Repeat::Always).await
    }

    /// Reads the current revision, and counts a replacement of the cluster.
    async fn current(&self) -> Result<Revision, SourceError> {
        // Loaded before the read: a concurrent read may return first, with a later state.
        let before = self.known.lock().newest;
        // A linearizable read: all acknowledged writes have the revision in its
        // header or an earlier one.
        let request = RangeRequest {
            key: self.revision_key.clone(),
            count_only: true,
            ..RangeRequest::default()
        };
        let response = self.range(request).await.map_err(failed)?;
        let current = ClusterState::of(response.header.as_ref());
        let mut known = self.known.lock();
        let is_later = known
            .newest
            .is_none_or(|newest| newest.may_precede(&current));
        if is_later {
            // If the cluster was replaced since `before`, a concurrent read has counted the
            // replacement.
            known.newest = Some(current);
        } else if before.is_some_and(|before| !before.may_precede(&current)) {
            known.newest = Some(current);
            known.replacements += 1;
        }
        Ok(current.revision)
    }

    async fn read(&self, request: ListRequest) -> Result<ListPage, SourceError> {
        let limit = request
            .limit
            .map_or(i64::MAX, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let (mut start, end) = bounds(&request.range);
        let mut at = request.at;
        let (mut items, mut count) = (Vec::new(), None);
        loop {
            let left = limit - i64::try_from(items.len()).unwrap_or(limit);
            let request = RangeRequest {
                key: start,
                range_end: end.clone().unwrap_or_default(),
                limit: left.min(PAGE_KEYS),
                revision: at.map_or(0, |at| at.0),
                ..RangeRequest::default()
            };
            let response = self.range(request).await;
            let response = response.map_err(|error| read_failed(&error, at))?;
            let header = response.header.as_ref();
            let revision = *at.get_or_insert_with(|| ClusterState::of(header).revision);
            count.get_or_insert(response.count);
            let more = response.more;
            items.extend(response.kvs.iter().map(stored));
            let enough = i64::try_from(items.len()).unwrap_or(i64::MAX) >= limit;
            match items.last() {
                Some(last) if more && !enough => {
                    start = crate::api::keys::after(&last.key);
                }
                _ => {
                    return Ok(ListPage {
                        revision,
                        items,
                        more,
                        count: usize::try_from(count.unwrap_or_default()).unwrap_or_default(),
                    });
                }
            }
        }
    }

    async fn open_watch(&self, request: WatchRequest) -> Result<BatchStream, SourceError> {
        let (key, range_end) = bounds(&request.range);
        let create = WatchCreateRequest {
            key,
            range_end: range_end.unwrap_or_default(),
            start_revision: request.after.next().0,
            progress_notify: true,
            prev_kv: request.previous,
            // A response of many revisions with previous versions can exceed the largest message.
            fragment: true,
            ..WatchCreateRequest::default()
        };
        let progress_requests = self.progress_requests.subscribe();
        let watch = EtcdWatch::open(
            self.client.clone(),
            create,
            request.after,
            progress_requests,
        );
        let watch = watch.await.map_err(|error| read_failed(&error, None))?;
        self.progress.set(watch.requests_progress());
        Ok(Box::pin(futures_util::stream::unfold(
            Some(watch),
            |watch| async move {
                let mut watch = watch?;
                match watch.next().await {
                    Ok(Some(batch)) => Some((Ok(batch), Some(watch))),
                    Ok(None) => None,
                    Err(error) => Some((Err(error), None)),
                }
            },
        )))
    }

    async fn write_keys(
        &self,
        write: ConditionalWrite,
        others: Vec<ConditionalWrite>,
    ) -> Result<WriteOutcome, SourceError> {
        let response = match &write.action {
            WriteAction::Put {
                time_to_live: Some(lifetime),
                ..
            } => {
                let seconds = super::engine::seconds(*lifetime);
                self.write_leased(&write, &others, seconds).await
            }
            _ => self.write_txn(&write, &others, None).await,
        };
        let response = response.map_err(failed)?;
        if response.succeeded {
            let revision = ClusterState::of(response.header.as_ref()).revision;
            return Ok(WriteOutcome::Done(revision));
        }
        let mut responses = response.responses.into_iter();
        let found = responses.find_map(|response| match response.response {
            Some(response_op::Response::ResponseRange(found)) => found.kvs.first().map(stored),
            _ => None,
        });
        Ok(WriteOutcome::Differs(found))
    }

    /// Writes a key with a time to live.
    async fn write_leased(
        &self,
        write: &ConditionalWrite,
        others: &[ConditionalWrite],
        seconds: i64,
    ) -> Result<TxnResponse, CallError> {
        if !shared_lease::is_shared(seconds) {
            let id = self.grant(seconds).await?;
            let response = self.write_txn(write, others, Some(id)).await;
            if response.as_ref().is_ok_and(|response| !response.succeeded) {
                // The lease has no keys. If the revocation fails, the lease expires later. If the
                // outcome of the write is unknown, the lease may have a key and is not revoked.
                let revoke = LeaseRevokeRequest { id };
                let revoked: Result<LeaseRevokeResponse, _> =
                    self.client.call(LEASE_REVOKE, revoke, Repeat::Always).await;
                drop(revoked);
            }
            return response;
        }
        let mut is_second = false;
        loop {
            let id = self.shared_lease(seconds).await?;
            match self.write_txn(write, others, Some(id)).await {
                // Another client has revoked the lease, or the cluster was replaced.
                Err(error) if !is_second && error.status.message().contains(LEASE_NOT_FOUND) => {
                    self.lease.lock().await.forget(id);
                    is_second = true;
                }
                response => return response,
            }
        }
    }

    /// Returns a lease that other writes have used, or a new one.
    async fn shared_lease(&self, seconds: i64) -> Result<i64, CallError> {
        let mut shared = self.lease.lock().await;
        let now = self.started.elapsed();
        if let Some(id) = shared.reuse(now, seconds) {
            return Ok(id);
        }
        let id = self.grant(shared_lease::lifetime(seconds)).await?;
        // The time before the grant, so that the lease does not end earlier than expected.
        shared.keep(id, now, seconds);
        Ok(id)
    }

    async fn grant(&self, ttl: i64) -> Result<i64, CallError> {
        let grant = LeaseGrantRequest {
            ttl,
            ..LeaseGrantRequest::default()
        };
        let granted = self
            .client
            .call(LEASE_GRANT, grant, Repeat::IfNotSent)
            .await;
        granted.map(|granted: LeaseGrantResponse| granted.id)
    }

    async fn write_txn(
        &self,
        write: &ConditionalWrite,
        others: &[ConditionalWrite],
        lease: Option<i64>,
    ) -> Result<TxnResponse, CallError> {
        let found = request_op::Request::RequestRange(RangeRequest {
            key: write.key.clone(),
            ..RangeRequest::default()
        });
        let others = || others.iter().map(|other| (other, None));
        let writes = || std::iter::once((write, lease)).chain(others());
        let operation = |request| RequestOp {
            request: Some(request),
        };
        let txn = TxnRequest {
            compare: writes().map(|(write, _)| is_as_expected(write)).collect(),
            success: writes()
                .map(|(write, lease)| operation(request(write.clone(), lease)))
                .collect(),
            failure: vec![operation(found)],
        };
        self.client.call(TXN, txn, Repeat::IfNotSent).await
    }
}

fn is_as_expected(write: &ConditionalWrite) -> Compare {
    let expected = write.expected.map_or(0, |revision| revision.0);
    Compare {
        key: write.key.clone(),
        target: CompareTarget::Mod.into(),
        result: CompareResult::Equal.into(),
        target_union: Some(TargetUnion::ModRevision(expected)),
        ..Compare::default()
    }
}

fn request(write: ConditionalWrite, lease: Option<i64>) -> request_op::Request {
    let key = write.key;
    match write.action {
        WriteAction::Put { value, .. } => request_op::Request::RequestPut(PutRequest {
            key,
            value,
            lease: lease.unwrap_or_default(),
            ..PutRequest::default()
        }),
        WriteAction::Delete => request_op::Request::RequestDeleteRange(DeleteRangeRequest {
            key,
            ..DeleteRangeRequest::default()
        }),
    }
}

impl EtcdSource {
    async fn write_key_version(&self, write: VersionWrite) -> Result<VersionOutcome, SourceError> {
        let has_version = Compare {
            key: write.key.clone(),
            target: CompareTarget::Version.into(),
            result: CompareResult::Equal.into(),
            target_union: Some(TargetUnion::Version(write.expected)),
            ..Compare::default()
        };
        let put = request_op::Request::RequestPut(PutRequest {
            key: write.key.clone(),
            value: write.value,
            ..PutRequest::default()
        });
        let found = request_op::Request::RequestRange(RangeRequest {
            key: write.key,
            ..RangeRequest::default()
        });
        let operation = |request| RequestOp {
            request: Some(request),
        };
        let txn = TxnRequest {
            compare: vec![has_version],
            success: vec![operation(put)],
            failure: vec![operation(found)],
        };
        let response = self.client.call(TXN, txn, Repeat::IfNotSent).await;
        let response: TxnResponse = response.map_err(failed)?;
        let current = ClusterState::of(response.header.as_ref()).revision;
        if response.succeeded {
            return Ok(VersionOutcome::Done(current));
        }
        let version = response.responses.iter().find_map(|response| {
            let response_op::Response::ResponseRange(found) = response.response.as_ref()? else {
                return None;
            };
            found.kvs.first().map(|found| found.version)
        });
        let version = version.unwrap_or_default();
        Ok(VersionOutcome::Differs { version, current })
    }

    async fn compact_before(&self, revision: Revision) -> Result<(), SourceError> {
        let request = CompactionRequest {
            revision: revision.0,
            ..CompactionRequest::default()
        };
        let compacted = self.client.call(COMPACT, request, Repeat::Always).await;
        let compacted: Result<CompactionResponse, CallError> = compacted;
        compacted
            .map(drop)
            .map_err(|error| read_failed(&error, None))
    }
}

/// Returns the start and the end of a range in etcd's encoding: no end for a single key, and a zero
/// byte for all keys from the start on.
fn bounds(range: &KeyRange) -> (Bytes, Option<Bytes>) {
    const FIRST_KEY: Bytes = Bytes::from_static(b"\0");
    let start = |key: &Bytes| {
        if key.is_empty() {
            FIRST_KEY
        } else {
            key.clone()
        }
    };
    match range {
        KeyRange::One(key) => (key.clone(), None),
        KeyRange::Within { start: from, end } => (start(from), Some(end.clone())),
        KeyRange::From(from) => (start(from), Some(FIRST_KEY)),
    }
}

fn stored(kv: &KeyValue) -> StoredKeyValue {
    StoredKeyValue {
        key: copied(&kv.key),
        value: copied(&kv.value),
        create_revision: Revision(kv.create_revision),
        mod_revision: Revision(kv.mod_revision),
    }
}

/// Returns a copy of a part of a message. A slice would keep the whole message, up to a page of
/// objects, in memory.
fn copied(part: &Bytes) -> Bytes {
    Bytes::copy_from_slice(part)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "used as a function of map_err"
)]
fn failed(error: CallError) -> SourceError {
    // The second one is a message that the server does not read to its end.
    const TEXTS: [&str; 2] = [TOO_LARGE, "message larger than max"];
    let text = error.status.message();
    if TEXTS.iter().any(|known| text.contains(known)) {
        return SourceError::TooLarge;
    }
    SourceError::Unavailable(error.to_string())
}

/// Converts the error of a read. The errors are distinguished by their text, because etcd uses one
/// status code for both.
fn read_failed(error: &CallError, at: Option<Revision>) -> SourceError {
    let text = error.status.message();
    if text.contains(COMPACTED) {
        return SourceError::Compacted;
    }
    match at {
        Some(requested) if text.contains("required revision is a future revision") => {
            SourceError::Future {
                requested,
                // etcd does not report its revision; it is at least one below the requested one.
                current: requested.previous(),
            }
        }
        _ => SourceError::Unavailable(error.to_string()),
    }
}

impl Source for EtcdSource {
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, SourceError>> {
        Box::pin(self.current())
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        Box::pin(async move {
            match self.read(request).await {
                // WC-232: the error reports the current revision.
                Err(SourceError::Future { requested, .. }) => Err(SourceError::Future {
                    requested,
                    current: self.current().await?,
                }),
                other => other,
            }
        })
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
        Box::pin(self.open_watch(request))
    }

    fn write(&self, write: ConditionalWrite) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        Box::pin(self.write_keys(write, Vec::new()))
    }

    fn write_with(
        &self,
        write: ConditionalWrite,
        others: Vec<ConditionalWrite>,
    ) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        Box::pin(self.write_keys(write, others))
    }

    fn write_version(
        &self,
        write: VersionWrite,
    ) -> BoxFuture<'_, Result<VersionOutcome, SourceError>> {
        Box::pin(self.write_key_version(write))
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(self.compact_before(revision))
    }

    fn replacements(&self) -> u64 {
        self.known.lock().replacements
    }

    fn watch_range(&self, needed: Option<KeyRange>) -> KeyRange {
        needed.unwrap_or_else(|| KeyRange::One(self.revision_key.clone()))
    }

    fn requests_progress(&self) -> bool {
        self.progress.get()
    }

    fn request_progress(&self) {
        self.progress_requests.send_replace(());
    }
}
