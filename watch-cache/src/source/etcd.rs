//! The source over an etcd cluster.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Error, EventType, GetOptions, KeyValue, KvClient,
    PutOptions, ResponseHeader, Txn, TxnOp, TxnOpResponse, WatchOptions, WatchResponse,
};
use futures_core::future::BoxFuture;
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use revstore_engine::{Clock, KeyRange, Revision};
use tokio::sync::watch;

use super::{
    Batch, BatchStream, Change, ConditionalWrite, ListPage, ListRequest, Source, SourceError,
    StoredKeyValue, WatchRequest, WriteAction, WriteOutcome,
};
use crate::wake::timer_queue::TimerQueue;

/// The page size, in keys, of reads from etcd.
const PAGE_KEYS: i64 = 1000;
/// The maximum size in bytes of a message from etcd. The default of gRPC is 4 MiB. A page of large
/// objects, or a watch response with one large revision, can be larger: etcd limits neither.
const MESSAGE_BYTES_MAX: usize = usize::MAX;
/// The interval at which an idle watch requests progress. Without progress the watch does not report
/// revisions that changed no key in its range.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// A [`Source`] over an etcd cluster, through a client of the crate `etcd-client`. The caller
/// connects the client, so the type of that crate is part of this interface on purpose.
///
/// The futures of this source need the tokio runtime on which the client was connected. Spawn the
/// feeder on that runtime with [`Feeder::run`](crate::Feeder::run), not on a separate thread.
///
/// - A list is read in pages of 1000 keys at one revision.
/// - A watch requests previous versions only if they are needed. It requests progress every 500 ms
///   while no events arrive, and at once when a request waits for a revision.
/// - A replacement of the cluster, by one that was restored from a backup or started empty, is
///   detected by its cluster id, raft term and revision, which never decrease in one cluster. They
///   are compared whenever the current revision is read.
///
/// ```no_run
/// use std::sync::Arc;
/// use revstore_watch_cache::clock::SystemClock;
/// use revstore_watch_cache::source::EtcdSource;
/// use revstore_watch_cache::{ListOptions, ResourceConfig, Scope, WatchCache};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = etcd_client::Client::connect(["http://127.0.0.1:2379"], None).await?;
/// let clock = Arc::new(SystemClock::new());
/// let source = EtcdSource::new(client, clock.clone());
/// let (cache, feeder) = WatchCache::builder(Arc::new(source)).clock(clock).build();
/// let pods = cache.add(ResourceConfig::namespaced("", "pods", "/registry/pods"))?;
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
    client: Client,
    timers: Arc<TimerQueue>,
    /// Notifies the watches that a request waits for progress.
    progress_requests: watch::Sender<()>,
    /// The lock is held for one lookup or change.
    known: Arc<Mutex<KnownCluster>>,
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
            cluster_id: header.map_or(0, ResponseHeader::cluster_id),
            raft_term: header.map_or(0, ResponseHeader::raft_term),
            revision: Revision(header.map_or(0, ResponseHeader::revision)),
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
    /// Returns a source over the cluster that `client` is connected to. Periodic progress requests
    /// use `clock`.
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self {
            client,
            timers: TimerQueue::new(clock),
            progress_requests: watch::Sender::new(()),
            known: Arc::default(),
        }
    }

    fn kv(&self) -> KvClient {
        let client = self.client.kv_client();
        client.max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Reads the current revision, and counts a replacement of the cluster.
    async fn current(&self) -> Result<Revision, SourceError> {
        // Loaded before the read: a concurrent read may return first, with a later state.
        let before = self.known.lock().newest;
        // A linearizable read of an absent key: all acknowledged writes have the revision in its
        // header or an earlier one.
        let options = GetOptions::new().with_count_only();
        let mut kv = self.kv();
        let response = kv.get("\0", Some(options)).await.map_err(failed)?;
        let current = ClusterState::of(response.header());
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
            let mut options = GetOptions::new().with_limit(left.min(PAGE_KEYS));
            if let Some(end) = &end {
                options = options.with_range(end.clone());
            }
            if let Some(at) = at {
                options = options.with_revision(at.0);
            }
            let mut kv = self.kv();
            let response = kv.get(start.clone(), Some(options)).await;
            let mut response = response.map_err(|error| read_failed(&error, at))?;
            let revision = *at.get_or_insert(ClusterState::of(response.header()).revision);
            count.get_or_insert(response.count());
            let more = response.more();
            items.extend(response.take_kvs().into_iter().map(stored));
            let enough = i64::try_from(items.len()).unwrap_or(i64::MAX) >= limit;
            match items.last() {
                Some(last) if more && !enough => {
                    start = last.key.to_vec();
                    start.push(0);
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
        let (start, end) = bounds(&request.range);
        let mut options = WatchOptions::new()
            .with_start_revision(request.after.next().0)
            .with_progress_notify();
        if let Some(end) = end {
            options = options.with_range(end);
        }
        if request.previous {
            options = options.with_prev_key();
        }
        let client = self.client.watch_client();
        let mut client = client.max_decoding_message_size(MESSAGE_BYTES_MAX);
        let stream = client.watch(start, Some(options)).await.map_err(failed)?;
        let watch = EtcdWatch {
            stream,
            progress_requests: self.progress_requests.subscribe(),
            source: self.clone(),
            through: request.after,
        };
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

    async fn write_key(&self, write: ConditionalWrite) -> Result<WriteOutcome, SourceError> {
        let mut leases = self.client.lease_client();
        let lease = match &write.action {
            WriteAction::Put {
                time_to_live: Some(lifetime),
                ..
            } => {
                let seconds = super::engine::seconds(*lifetime);
                Some(leases.grant(seconds, None).await.map_err(failed)?.id())
            }
            _ => None,
        };
        let outcome = self.write_with(write, lease).await;
        if let Some(lease) = lease
            && matches!(outcome, Ok(WriteOutcome::Differs(_)))
        {
            // The lease has no keys and may have a long time to live, so it is revoked. If that
            // fails, the lease expires later. If the outcome of the write is unknown, the lease may
            // have a key and is not revoked.
            let _ = leases.revoke(lease).await;
        }
        outcome
    }

    async fn write_with(
        &self,
        write: ConditionalWrite,
        lease: Option<i64>,
    ) -> Result<WriteOutcome, SourceError> {
        let key = write.key.to_vec();
        let expected = write.expected.map_or(0, |revision| revision.0);
        let success = match write.action {
            WriteAction::Put { value, .. } => {
                let options = lease.map(|lease| PutOptions::new().with_lease(lease));
                TxnOp::put(key.clone(), value, options)
            }
            WriteAction::Delete => TxnOp::delete(key.clone(), Some(DeleteOptions::new())),
        };
        let txn = Txn::new()
            .when([Compare::mod_revision(
                key.clone(),
                CompareOp::Equal,
                expected,
            )])
            .and_then([success])
            .or_else([TxnOp::get(key, None)]);
        let mut kv = self.kv();
        let response = kv.txn(txn).await.map_err(failed)?;
        if response.succeeded() {
            let revision = ClusterState::of(response.header()).revision;
            return Ok(WriteOutcome::Done(revision));
        }
        let found = response
            .op_responses()
            .into_iter()
            .find_map(|response| match response {
                TxnOpResponse::Get(mut found) => found.take_kvs().into_iter().next().map(stored),
                _ => None,
            });
        Ok(WriteOutcome::Differs(found))
    }
}

/// An open watch of etcd.
struct EtcdWatch {
    stream: etcd_client::WatchStream,
    progress_requests: watch::Receiver<()>,
    /// Contains the clock and the sender of `progress_requests`.
    source: EtcdSource,
    through: Revision,
}

impl EtcdWatch {
    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        loop {
            let timers = &self.source.timers;
            let due = timers.now() + PROGRESS_INTERVAL;
            let response = {
                let message = pin!(self.stream.message());
                let requested = pin!(self.progress_requests.changed());
                let elapsed = pin!(timers.sleep_until(due));
                match select(message, select(requested, elapsed)).await {
                    Either::Left((response, _)) => Some(response.map_err(failed)?),
                    Either::Right(_) => None,
                }
            };
            let Some(response) = response else {
                self.stream.request_progress().await.map_err(failed)?;
                continue;
            };
            let Some(response) = response else {
                return Ok(None);
            };
            if let Some(batch) = self.batch(&response)? {
                return Ok(Some(batch));
            }
        }
    }

    fn batch(&mut self, response: &WatchResponse) -> Result<Option<Batch>, SourceError> {
        if response.compact_revision() > 0 {
            return Err(SourceError::Compacted);
        }
        if response.canceled() {
            return Err(SourceError::Unavailable(
                response.cancel_reason().to_owned(),
            ));
        }
        if response.created() {
            return Ok(None);
        }
        let changes: Vec<Change> = response.events().iter().filter_map(change).collect();
        let through = match changes.last() {
            Some(last) => last.revision,
            // A progress notification: the header has the revision.
            None => ClusterState::of(response.header()).revision,
        };
        if changes.is_empty() && through <= self.through {
            return Ok(None);
        }
        self.through = self.through.max(through);
        Ok(Some(Batch { through, changes }))
    }
}

fn change(event: &etcd_client::Event) -> Option<Change> {
    let kv = event.kv()?;
    Some(Change {
        key: kv.key().to_vec().into(),
        revision: Revision(kv.mod_revision()),
        new: (event.event_type() == EventType::Put).then(|| stored(kv.clone())),
        previous: event.prev_kv().cloned().map(stored),
    })
}

/// Returns the start and the end of a range in etcd's encoding: no end for a single key, and a zero
/// byte for all keys from the start on.
fn bounds(range: &KeyRange) -> (Vec<u8>, Option<Vec<u8>>) {
    let start = |key: &[u8]| {
        if key.is_empty() {
            vec![0]
        } else {
            key.to_vec()
        }
    };
    match range {
        KeyRange::One(key) => (key.to_vec(), None),
        KeyRange::Within { start: from, end } => (start(from), Some(end.to_vec())),
        KeyRange::From(from) => (start(from), Some(vec![0])),
    }
}

fn stored(kv: KeyValue) -> StoredKeyValue {
    let (create_revision, mod_revision) = (kv.create_revision(), kv.mod_revision());
    let (key, value) = kv.into_key_value();
    StoredKeyValue {
        key: key.into(),
        value: value.into(),
        create_revision: Revision(create_revision),
        mod_revision: Revision(mod_revision),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "used as a function of map_err"
)]
fn failed(error: Error) -> SourceError {
    SourceError::Unavailable(error.to_string())
}

/// Converts the error of a read. The errors are distinguished by their text, because etcd uses one
/// status code for both.
fn read_failed(error: &Error, at: Option<Revision>) -> SourceError {
    let text = error.to_string();
    if text.contains("required revision has been compacted") {
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
        _ => SourceError::Unavailable(text),
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
        Box::pin(self.write_key(write))
    }

    fn replacements(&self) -> u64 {
        self.known.lock().replacements
    }

    fn request_progress(&self) {
        self.progress_requests.send_replace(());
    }
}
