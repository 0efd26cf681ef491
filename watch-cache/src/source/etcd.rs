//! Any etcd v3 endpoint as a source.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Error, EventType, GetOptions, KeyValue, PutOptions,
    Txn, TxnOp, TxnOpResponse, WatchOptions, WatchResponse,
};
use futures_core::future::BoxFuture;
use revstore_engine::{KeyRange, MainRevision};
use tokio::sync::Notify;

use super::{
    Action, Batch, BatchStream, Change, ListPage, ListRequest, Source, SourceError, Stored,
    WatchRequest, Write, WriteOutcome,
};

/// Keys in one answer of etcd, so that it stays well below the limit of a message.
const PAGE: i64 = 1000;
/// How often an idle watch asks how far it is: between two of these, a revision that changed
/// nothing in the range of the watch is not known to the cache.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// An etcd cluster, through the client of the crate `etcd-client`.
///
/// Its futures need a tokio runtime, which the client brings its connection from. A list is read in
/// pages at one revision; a watch asks for the versions before only where they are needed, and for
/// progress whenever somebody waits for it.
#[derive(Clone)]
pub struct EtcdSource {
    client: Client,
    wanted: Arc<Notify>,
}

impl fmt::Debug for EtcdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSource").finish_non_exhaustive()
    }
}

impl EtcdSource {
    /// The cluster that `client` is connected to.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            wanted: Arc::new(Notify::new()),
        }
    }

    async fn current(&self) -> Result<MainRevision, SourceError> {
        // A linearizable read of one absent key: what was acknowledged is at or below its header.
        let options = GetOptions::new().with_count_only();
        let mut kv = self.client.kv_client();
        let answer = kv.get("\0", Some(options)).await.map_err(failed)?;
        Ok(MainRevision(
            answer
                .header()
                .map_or(0, etcd_client::ResponseHeader::revision),
        ))
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
            let mut kv = self.client.kv_client();
            let answer = kv.get(start.clone(), Some(options)).await;
            let mut answer = answer.map_err(|error| read_failed(&error, at))?;
            let header = answer
                .header()
                .map_or(0, etcd_client::ResponseHeader::revision);
            let revision = *at.get_or_insert(MainRevision(header));
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
        let mut client = self.client.watch_client();
        let stream = client.watch(start, Some(options)).await.map_err(failed)?;
        let following = Following {
            stream,
            wanted: self.wanted.clone(),
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
        let key = write.key.to_vec();
        let expected = write.expected.map_or(0, |revision| revision.0);
        let success = match write.action {
            Action::Put {
                value,
                time_to_live,
            } => {
                let mut options = PutOptions::new();
                if let Some(lifetime) = time_to_live {
                    let seconds = super::in_process::seconds(lifetime);
                    let mut leases = self.client.lease_client();
                    let lease = leases.grant(seconds, None).await.map_err(failed)?;
                    options = options.with_lease(lease.id());
                }
                TxnOp::put(key.clone(), value, Some(options))
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
        let mut kv = self.client.kv_client();
        let answer = kv.txn(txn).await.map_err(failed)?;
        if answer.succeeded() {
            let revision = answer
                .header()
                .map_or(0, etcd_client::ResponseHeader::revision);
            return Ok(WriteOutcome::Done(MainRevision(revision)));
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
    wanted: Arc<Notify>,
    through: MainRevision,
}

impl Following {
    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        loop {
            let answer = tokio::select! {
                answer = self.stream.message() => answer.map_err(failed)?,
                () = self.wanted.notified() => {
                    self.stream.request_progress().await.map_err(failed)?;
                    continue;
                }
                () = tokio::time::sleep(PROGRESS_INTERVAL) => {
                    self.stream.request_progress().await.map_err(failed)?;
                    continue;
                }
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
            None => MainRevision(
                answer
                    .header()
                    .map_or(0, etcd_client::ResponseHeader::revision),
            ),
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
        revision: MainRevision(kv.mod_revision()),
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
        create_revision: MainRevision(create_revision),
        mod_revision: MainRevision(mod_revision),
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
fn read_failed(error: &Error, at: Option<MainRevision>) -> SourceError {
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
    fn current_revision(&self) -> BoxFuture<'_, Result<MainRevision, SourceError>> {
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

    fn request_progress(&self) {
        self.wanted.notify_waiters();
    }
}
