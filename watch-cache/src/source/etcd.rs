//! Any etcd v3 endpoint as a source.

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
    Action, Batch, BatchStream, Change, ListPage, ListRequest, Source, SourceError, Stored,
    WatchRequest, Write, WriteOutcome,
};
use crate::wake::timer_queue::Timers;

/// Keys in one answer of etcd. How many bytes that is depends on the objects: etcd bounds neither a
/// page nor a revision, so no limit of ours may stand in their way.
const PAGE: i64 = 1000;
/// What the client may be sent in one message; gRPC's default of 4 MiB is less than a page of large
/// objects has, or a watch's answer that holds one revision.
const MESSAGE_BYTES_MAX: usize = usize::MAX;
/// How often an idle watch asks how far it is: between two of these, a revision that changed
/// nothing in the range of the watch is not known to the cache.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// An etcd cluster, through the client of the crate `etcd-client`: whoever outgrows one machine keeps
/// the cache and puts a cluster under it.
///
/// Its futures need the tokio runtime that the client was connected on, so the feeder is spawned
/// there ([`Feeder::run`](crate::Feeder::run)), not on a thread of its own.
///
/// - A list is read in pages of 1000 keys at one revision.
/// - A watch asks for the versions before only where they are needed; for progress every 500 ms while
///   nothing happens, and at once when somebody waits for a revision.
/// - A cluster that was restored from a backup, or began anew, is found out by its id, its raft term
///   and its revision, all of which never go back while it lives. It is looked at whenever the current
///   revision is read.
///
/// ```no_run
/// use std::sync::Arc;
/// use revstore_watch_cache::{EtcdSource, ListOptions, ResourceConfig, Scope, SystemClock, WatchCache};
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
    timers: Arc<Timers>,
    /// Changed whenever somebody waits for progress; each watch has seen it or not.
    wanted: watch::Sender<()>,
    /// Held to look at what was seen last, or to change it.
    seen: Arc<Mutex<Seen>>,
}

/// What an answer said of the cluster.
#[derive(Clone, Copy, Debug)]
struct Position {
    cluster: u64,
    term: u64,
    revision: Revision,
}

impl Position {
    fn of(header: Option<&ResponseHeader>) -> Self {
        Self {
            cluster: header.map_or(0, ResponseHeader::cluster_id),
            term: header.map_or(0, ResponseHeader::raft_term),
            revision: Revision(header.map_or(0, ResponseHeader::revision)),
        }
    }

    /// Whether a cluster that was here can be at `later`, in the answer to a linearizable read that
    /// was begun later.
    fn leads_to(&self, later: &Self) -> bool {
        self.cluster == later.cluster && self.term <= later.term && self.revision <= later.revision
    }
}

/// What is known of the cluster.
#[derive(Debug, Default)]
struct Seen {
    newest: Option<Position>,
    replacements: u64,
}

impl fmt::Debug for EtcdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSource").finish_non_exhaustive()
    }
}

impl EtcdSource {
    /// The cluster that `client` is connected to, with the time of `clock`.
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self {
            client,
            timers: Timers::new(clock),
            wanted: watch::Sender::new(()),
            seen: Arc::default(),
        }
    }

    fn kv(&self) -> KvClient {
        let client = self.client.kv_client();
        client.max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    async fn current(&self) -> Result<Revision, SourceError> {
        // Before the read: another one may be answered meanwhile, and is then ahead of it.
        let before = self.seen.lock().newest;
        // A linearizable read of one absent key: what was acknowledged is at or below its header.
        let options = GetOptions::new().with_count_only();
        let mut kv = self.kv();
        let answer = kv.get("\0", Some(options)).await.map_err(failed)?;
        let now = Position::of(answer.header());
        let mut seen = self.seen.lock();
        let is_next = seen.newest.is_none_or(|newest| newest.leads_to(&now));
        if is_next {
            // If another one than before, somebody else was told of that first.
            seen.newest = Some(now);
        } else if before.is_some_and(|before| !before.leads_to(&now)) {
            seen.newest = Some(now);
            seen.replacements += 1;
        }
        Ok(now.revision)
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
            let mut options = GetOptions::new().with_limit(left.min(PAGE));
            if let Some(end) = &end {
                options = options.with_range(end.clone());
            }
            if let Some(at) = at {
                options = options.with_revision(at.0);
            }
            let mut kv = self.kv();
            let answer = kv.get(start.clone(), Some(options)).await;
            let mut answer = answer.map_err(|error| read_failed(&error, at))?;
            let revision = *at.get_or_insert(Position::of(answer.header()).revision);
            count.get_or_insert(answer.count());
            let more = answer.more();
            items.extend(answer.take_kvs().into_iter().map(stored));
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

    async fn follow(&self, request: WatchRequest) -> Result<BatchStream, SourceError> {
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
        let following = Following {
            stream,
            wanted: self.wanted.subscribe(),
            source: self.clone(),
            through: request.after,
        };
        Ok(Box::pin(futures_util::stream::unfold(
            Some(following),
            |following| async move {
                let mut following = following?;
                match following.next().await {
                    Ok(Some(batch)) => Some((Ok(batch), Some(following))),
                    Ok(None) => None,
                    Err(error) => Some((Err(error), None)),
                }
            },
        )))
    }

    async fn change(&self, write: Write) -> Result<WriteOutcome, SourceError> {
        let mut leases = self.client.lease_client();
        let lease = match &write.action {
            Action::Put {
                time_to_live: Some(lifetime),
                ..
            } => {
                let seconds = super::engine::seconds(*lifetime);
                Some(leases.grant(seconds, None).await.map_err(failed)?.id())
            }
            _ => None,
        };
        let outcome = self.change_with(write, lease).await;
        if let Some(lease) = lease
            && matches!(outcome, Ok(WriteOutcome::Differs(_)))
        {
            // Nothing hangs on it, and it may live for long. If this fails, it ends by itself; and
            // where the outcome is unknown, so may be what hangs on it.
            let _ = leases.revoke(lease).await;
        }
        outcome
    }

    async fn change_with(
        &self,
        write: Write,
        lease: Option<i64>,
    ) -> Result<WriteOutcome, SourceError> {
        let key = write.key.to_vec();
        let expected = write.expected.map_or(0, |revision| revision.0);
        let success = match write.action {
            Action::Put { value, .. } => {
                let options = lease.map(|lease| PutOptions::new().with_lease(lease));
                TxnOp::put(key.clone(), value, options)
            }
            Action::Delete => TxnOp::delete(key.clone(), Some(DeleteOptions::new())),
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
        let answer = kv.txn(txn).await.map_err(failed)?;
        if answer.succeeded() {
            let revision = Position::of(answer.header()).revision;
            return Ok(WriteOutcome::Done(revision));
        }
        let found = answer
            .op_responses()
            .into_iter()
            .find_map(|response| match response {
                TxnOpResponse::Get(mut found) => found.take_kvs().into_iter().next().map(stored),
                _ => None,
            });
        Ok(WriteOutcome::Differs(found))
    }
}

/// A watch at work.
struct Following {
    stream: etcd_client::WatchStream,
    wanted: watch::Receiver<()>,
    /// Its clock, and the other end of `wanted`.
    source: EtcdSource,
    through: Revision,
}

impl Following {
    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        loop {
            let timers = &self.source.timers;
            let idle = timers.now() + PROGRESS_INTERVAL;
            let answer = {
                let message = pin!(self.stream.message());
                let wanted = pin!(self.wanted.changed());
                let idle = pin!(timers.until(idle));
                match select(message, select(wanted, idle)).await {
                    Either::Left((answer, _)) => Some(answer.map_err(failed)?),
                    Either::Right(_) => None,
                }
            };
            let Some(answer) = answer else {
                self.stream.request_progress().await.map_err(failed)?;
                continue;
            };
            let Some(answer) = answer else {
                return Ok(None);
            };
            if let Some(batch) = self.batch(&answer)? {
                return Ok(Some(batch));
            }
        }
    }

    fn batch(&mut self, answer: &WatchResponse) -> Result<Option<Batch>, SourceError> {
        if answer.compact_revision() > 0 {
            return Err(SourceError::Compacted);
        }
        if answer.canceled() {
            return Err(SourceError::Unavailable(answer.cancel_reason().to_owned()));
        }
        if answer.created() {
            return Ok(None);
        }
        let changes: Vec<Change> = answer.events().iter().filter_map(change).collect();
        let through = match changes.last() {
            Some(last) => last.revision,
            // Progress: the header says how far.
            None => Position::of(answer.header()).revision,
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

/// Start and end as etcd has them: no end for one key, a zero byte for all keys from the start on.
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

fn stored(kv: KeyValue) -> Stored {
    let (create_revision, mod_revision) = (kv.create_revision(), kv.mod_revision());
    let (key, value) = kv.into_key_value();
    Stored {
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

/// What etcd says by text alone: the code is the same for both.
fn read_failed(error: &Error, at: Option<Revision>) -> SourceError {
    let text = error.to_string();
    if text.contains("required revision has been compacted") {
        return SourceError::Compacted;
    }
    match at {
        Some(requested) if text.contains("required revision is a future revision") => {
            SourceError::Future {
                requested,
                // etcd does not say; the reader is ahead of it by one at least.
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
                // So that clients learn how far the cluster is (WC-232).
                Err(SourceError::Future { requested, .. }) => Err(SourceError::Future {
                    requested,
                    current: self.current().await?,
                }),
                other => other,
            }
        })
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
        Box::pin(self.follow(request))
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        Box::pin(self.change(write))
    }

    fn replacements(&self) -> u64 {
        self.seen.lock().replacements
    }

    fn request_progress(&self) {
        self.wanted.send_replace(());
    }
}
