//! The source over an engine in the same process.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_util::future::ready;
use parking_lot::Mutex;
use revstore_engine::{
    CompactError, Compare, CompareTarget, Engine, KeyRange, KeyValue, LeaseError, LeaseId, Op,
    OpResult, Put, PutError, Range, ReadError, Relation, Revision, Txn, TxnError, TxnResult,
    WatchBatch, WatchOptions, Watcher, WriteError,
};

use super::shared_lease::{self, SharedLease};
use super::{
    Batch, BatchStream, Change, ConditionalWrite, ListPage, ListRequest, Source, SourceError,
    StoredKeyValue, VersionOutcome, VersionWrite, WatchRequest, WriteAction, WriteOutcome,
};

/// A [`Source`] over an [`Engine`] in the same process.
///
/// All futures of this source are ready at once, except that a watch waits for its next event. Keys
/// and values are shared with the engine, not copied.
#[derive(Clone, Debug)]
pub struct EngineSource {
    engine: Engine,
    /// Held for one look-up, or for the grant of a lease.
    lease: Arc<Mutex<SharedLease<LeaseId>>>,
}

impl EngineSource {
    /// Returns the source over `engine`.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            lease: Arc::default(),
        }
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    fn list_now(&self, request: ListRequest) -> Result<ListPage, SourceError> {
        let mut range = Range::of(request.range);
        range.at = request.at;
        range.limit = request.limit;
        let found = self.engine.range(&range).map_err(read_error)?;
        Ok(ListPage {
            revision: request.at.unwrap_or(found.revision),
            items: found.kvs.iter().map(stored).collect(),
            more: found.more,
            count: found.count,
        })
    }

    fn watch_now(&self, request: &WatchRequest) -> Result<BatchStream, SourceError> {
        let mut options = WatchOptions::of(request.range.clone()).from(request.after.next());
        options.prev_kv = request.previous;
        // Read before the watch begins: once the watch has caught up, it has delivered all changes up to here.
        let current = self.engine.current_revision();
        let watcher = self.engine.watch(options).map_err(unavailable)?;
        Ok(Box::pin(Batches {
            watcher,
            unreported: (current > request.after).then_some(current),
        }))
    }

    fn write_now(
        &self,
        write: &ConditionalWrite,
        others: &[ConditionalWrite],
    ) -> Result<WriteOutcome, SourceError> {
        let result = match &write.action {
            WriteAction::Put {
                time_to_live: Some(lifetime),
                ..
            } => self.write_leased(write, others, seconds(*lifetime))?,
            _ => self.write_keys(write, others, None).map_err(txn_failed)?,
        };
        if result.succeeded {
            return Ok(WriteOutcome::Done(result.revision));
        }
        let found = result.results.into_iter().find_map(|result| match result {
            OpResult::Range(found) => found.kvs.first().map(stored),
            _ => None,
        });
        Ok(WriteOutcome::Differs(found))
    }

    /// Writes a key with a time to live.
    fn write_leased(
        &self,
        write: &ConditionalWrite,
        others: &[ConditionalWrite],
        seconds: i64,
    ) -> Result<TxnResult, SourceError> {
        if !shared_lease::is_shared(seconds) {
            let lease = self.engine.grant(None, seconds).map_err(lease_failed)?.id;
            let result = self.write_keys(write, others, Some(lease));
            if !result.as_ref().is_ok_and(|result| result.succeeded) {
                // The lease has no keys. It may have expired already, so an error is ignored.
                let _ = self.engine.revoke(lease);
            }
            return result.map_err(txn_failed);
        }
        let mut is_second = false;
        loop {
            let lease = self.shared_lease(seconds).map_err(lease_failed)?;
            match self.write_keys(write, others, Some(lease)) {
                // Another client has revoked the lease.
                Err(TxnError::Put {
                    error: PutError::LeaseNotFound { .. },
                    ..
                }) if !is_second => {
                    self.lease.lock().forget(lease);
                    is_second = true;
                }
                result => return result.map_err(txn_failed),
            }
        }
    }

    /// Returns a lease that other writes have used, or a new one.
    fn shared_lease(&self, seconds: i64) -> Result<LeaseId, LeaseError> {
        let mut shared = self.lease.lock();
        let now = self.engine.now();
        if let Some(id) = shared.reuse(now, seconds) {
            return Ok(id);
        }
        let id = self.engine.grant(None, shared_lease::lifetime(seconds))?.id;
        shared.keep(id, now, seconds);
        Ok(id)
    }

    fn write_keys(
        &self,
        write: &ConditionalWrite,
        others: &[ConditionalWrite],
        lease: Option<LeaseId>,
    ) -> Result<TxnResult, TxnError> {
        let others = || others.iter().map(|other| (other, None));
        let writes = || std::iter::once((write, lease)).chain(others());
        self.engine.txn(
            &Txn::new()
                .when(writes().map(|(write, _)| is_as_expected(write)))
                .and_then(writes().map(|(write, lease)| operation(write, lease)))
                .or_else([Op::Range(Range::of(KeyRange::one(write.key.clone())))]),
        )
    }
}

fn is_as_expected(write: &ConditionalWrite) -> Compare {
    let expected = write.expected.map_or(0, |revision| revision.0);
    Compare::new(
        KeyRange::one(write.key.clone()),
        CompareTarget::ModRevision(expected),
        Relation::Equal,
    )
}

fn operation(write: &ConditionalWrite, lease: Option<LeaseId>) -> Op {
    match &write.action {
        WriteAction::Put { value, .. } => {
            let put = Put::new(write.key.clone(), value.clone());
            Op::Put(match lease {
                Some(lease) => put.attached_to(lease),
                None => put,
            })
        }
        WriteAction::Delete => Op::Delete(KeyRange::one(write.key.clone())),
    }
}

impl EngineSource {
    fn write_version_now(&self, write: &VersionWrite) -> Result<VersionOutcome, SourceError> {
        let key = KeyRange::one(write.key.clone());
        let expected = CompareTarget::Version(write.expected);
        let result = self
            .engine
            .txn(
                &Txn::new()
                    .when([Compare::new(key.clone(), expected, Relation::Equal)])
                    .and_then([Op::Put(Put::new(write.key.clone(), write.value.clone()))])
                    .or_else([Op::Range(Range::of(key))]),
            )
            .map_err(txn_failed)?;
        if result.succeeded {
            return Ok(VersionOutcome::Done(result.revision));
        }
        let version = result.results.iter().find_map(|result| match result {
            OpResult::Range(found) => found.kvs.first().map(KeyValue::version),
            _ => None,
        });
        Ok(VersionOutcome::Differs {
            version: version.unwrap_or_default(),
            current: result.revision,
        })
    }

    fn compact_now(&self, revision: Revision) -> Result<(), SourceError> {
        match self.engine.compact(revision) {
            Ok(compaction) => {
                compaction.run();
                Ok(())
            }
            Err(CompactError::Compacted { .. }) => Err(SourceError::Compacted),
            Err(error) => Err(unavailable(error)),
        }
    }
}

/// Returns a time to live in whole seconds, rounded up.
pub(super) fn seconds(lifetime: Duration) -> i64 {
    let rounded = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
    i64::try_from(rounded).unwrap_or(i64::MAX)
}

fn unavailable(error: impl std::fmt::Display) -> SourceError {
    SourceError::Unavailable(error.to_string())
}

fn txn_failed(error: TxnError) -> SourceError {
    match error {
        TxnError::Refused(WriteError::Ended) => SourceError::Ended,
        error => unavailable(error),
    }
}

fn lease_failed(error: LeaseError) -> SourceError {
    match error {
        LeaseError::Refused(WriteError::Ended) => SourceError::Ended,
        error => unavailable(error),
    }
}

fn read_error(error: ReadError) -> SourceError {
    match error {
        ReadError::Compacted { .. } => SourceError::Compacted,
        ReadError::Future { requested, current } => SourceError::Future { requested, current },
    }
}

fn stored(kv: &KeyValue) -> StoredKeyValue {
    StoredKeyValue {
        key: kv.key_bytes(),
        value: kv.value_bytes(),
        create_revision: kv.create_revision(),
        mod_revision: kv.mod_revision(),
    }
}

impl Source for EngineSource {
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, SourceError>> {
        Box::pin(ready(Ok(self.engine.current_revision())))
    }

    fn oldest_revision(&self) -> Option<Revision> {
        let compacted = self.engine.compacted_revision();
        Some(compacted.map_or(Revision::FIRST, |revision| revision.max(Revision::FIRST)))
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        Box::pin(ready(self.list_now(request)))
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
        Box::pin(ready(self.watch_now(&request)))
    }

    fn write(&self, write: ConditionalWrite) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        Box::pin(ready(self.write_now(&write, &[])))
    }

    fn write_with(
        &self,
        write: ConditionalWrite,
        others: Vec<ConditionalWrite>,
    ) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        Box::pin(ready(self.write_now(&write, &others)))
    }

    fn write_version(
        &self,
        write: VersionWrite,
    ) -> BoxFuture<'_, Result<VersionOutcome, SourceError>> {
        Box::pin(ready(self.write_version_now(&write)))
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(ready(self.compact_now(revision)))
    }
}

/// The stream of batches of an engine watcher.
struct Batches {
    watcher: Watcher,
    /// The revision of the engine when the watch began, until a batch reports it or a later one. It may have no changes,
    /// because the revision of the store was raised: then no event reports it.
    unreported: Option<Revision>,
}

impl Batches {
    /// Returns a batch without changes that reports the revision of the start, if the watch has delivered all changes
    /// up to there and none of them has reported it.
    fn report_start(&mut self) -> Option<Batch> {
        if !self.watcher.is_caught_up() {
            return None;
        }
        self.unreported.take().map(|through| Batch {
            through,
            changes: Vec::new(),
        })
    }
}

impl Stream for Batches {
    type Item = Result<Batch, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match Pin::new(&mut self.watcher).poll_next(context) {
            Poll::Ready(Some(Ok(batch))) => {
                let batch = batch_of(&batch);
                self.unreported = self.unreported.filter(|start| *start > batch.through);
                Poll::Ready(Some(Ok(batch)))
            }
            Poll::Ready(Some(Err(_))) => Poll::Ready(Some(Err(SourceError::Compacted))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => match self.report_start() {
                Some(batch) => Poll::Ready(Some(Ok(batch))),
                None => Poll::Pending,
            },
        }
    }
}

fn batch_of(batch: &WatchBatch) -> Batch {
    // WA-32: the revision of a batch with events is the current revision of the engine, which may be
    // above the revisions of its events.
    let through = batch
        .events
        .last()
        .map_or(batch.revision, |event| event.kv.mod_revision());
    let changes = batch.events.iter().map(|event| Change {
        key: event.kv.key_bytes(),
        revision: event.kv.mod_revision(),
        new: (!event.kv.is_tombstone()).then(|| stored(&event.kv)),
        previous: event.prev_kv.as_ref().map(stored),
    });
    Batch {
        through,
        changes: changes.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use revstore_engine::Engine;

    use super::{ConditionalWrite, EngineSource, SourceError, WriteAction, WriteOutcome};

    fn put(key: &'static str) -> ConditionalWrite {
        ConditionalWrite {
            key: key.into(),
            expected: None,
            action: WriteAction::Put {
                value: key.into(),
                time_to_live: None,
            },
        }
    }

    #[test]
    fn a_store_that_ends_refuses_writes() {
        let source = EngineSource::new(Engine::builder().build());
        source.engine().end_writes();
        let mut leased = put("b");
        leased.action = WriteAction::Put {
            value: "b".into(),
            time_to_live: Some(Duration::from_secs(60)),
        };
        for write in [put("a"), leased] {
            let refused = source.write_now(&write, &[]).unwrap_err();
            assert_eq!(refused, SourceError::Ended);
        }
    }

    #[test]
    fn several_keys_are_written_at_once_or_not_at_all() {
        let source = EngineSource::new(Engine::builder().build());
        let written = source.write_now(&put("a"), &[put("b"), put("c")]).unwrap();
        let revision = source.engine().current_revision();
        assert!(matches!(written, WriteOutcome::Done(at) if at == revision));
        let refused = source.write_now(&put("d"), &[put("c")]).unwrap();
        assert!(matches!(refused, WriteOutcome::Differs(None)));
        assert_eq!(source.engine().current_revision(), revision);
    }
}
