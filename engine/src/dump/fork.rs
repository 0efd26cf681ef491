//! Forks: engines that share the records of another one.

use std::collections::HashMap;
use std::ops::ControlFlow;

use thiserror::Error;

use super::state::Dump;
use crate::engine::Engine;
use crate::history::{Entry, KeyValue, LeaseId, Log, NewSequence};
use crate::index::{Index, SortedTree};
use crate::key::KeyRange;
use crate::memory::Batch;
use crate::options::EngineBuilder;
use crate::revision::{Position, Revision};
use crate::store::Store;
use crate::sync::Arc;
use crate::sync::epoch::pin;

/// The number of records of the log that are prefetched before the first of them is shared: about as many
/// cache misses as a processor overlaps.
const PREFETCHED_RECORDS: usize = 16;

/// About what a key takes in a fork, in bytes: its entry, and its place in the index.
const ENTRY_BYTES: usize = 120;

/// A later revision at which a fork continues; the argument of
/// [`EngineBuilder::fork_at`](crate::EngineBuilder::fork_at).
///
/// etcd's counterpart are the options `--bump-revision` and `--mark-compacted` of
/// `etcdutl snapshot restore`, where the first is the difference to the revision of the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The current revision of the fork. Its next write gets the revision after it.
    pub current: Revision,
    /// Whether everything below the current revision counts as compacted.
    pub mark_compacted: bool,
}

/// The error of a fork at a revision that it cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "cannot continue at revision {requested}: the current revision is {current}, and the highest one to \
     continue at is {max}",
    max = Revision::START_MAX
)]
pub struct JumpError {
    /// The requested revision.
    pub requested: Revision,
    /// The current revision of the origin.
    pub current: Revision,
}

/// Creates a fork of a store.
pub(crate) fn fork(builder: EngineBuilder, origin: &Arc<Store>) -> Engine {
    let dump = Dump::open(origin);
    let (current, compacted) = (dump.revision(), dump.compacted());
    build(builder, &dump, current, compacted)
}

/// Creates a fork of a store whose current revision is a later one.
pub(crate) fn fork_at(
    builder: EngineBuilder,
    origin: &Arc<Store>,
    jump: Jump,
) -> Result<Engine, JumpError> {
    let dump = Dump::open(origin);
    let (current, requested) = (dump.revision(), jump.current);
    if !(current..=Revision::START_MAX.max(current)).contains(&requested) {
        return Err(JumpError { requested, current });
    }
    let compacted = if jump.mark_compacted {
        Some(requested)
    } else {
        dump.compacted()
    };
    Ok(build(builder, &dump, requested, compacted))
}

/// Builds a store from the records of another one, which it shares. The compacted revision is that of the
/// dump, or a later one.
fn build(
    builder: EngineBuilder,
    dump: &Dump,
    current: Revision,
    compacted: Option<Revision>,
) -> Engine {
    let through = dump.revision().end();
    let mut store = builder.at(current).new_store();
    store.shared_through = through;
    store.compacted.restore(compacted);
    let origin = dump.store();
    let versions = usize::try_from(origin.versions.get()).unwrap_or(usize::MAX);
    let records = versions.saturating_mul(size_of::<KeyValue>());
    let mut batch = Batch::expecting(records.saturating_add(origin.index.len() * ENTRY_BYTES));
    let first = compacted.unwrap_or(Revision::FIRST);
    let records = NewSequence::expecting(versions);
    store.log = copy_log(origin, first, through, records, &mut batch);
    let compacted = compacted.unwrap_or(Revision(0));
    let entries = copy_entries(origin, compacted, through, &mut batch);
    drop(batch);
    store.history_bytes.add(entries.bytes);
    store.versions.add(entries.versions);
    // The counts are those at the last revision that is shared.
    store.index = Index::of_sorted(store.faults, entries.tree, through);
    let now = store.clock.now();
    store.lessor.restore(dump.leases().iter().copied(), now);
    for (lease, keys) in entries.leased {
        store.lessor.restore_keys(lease, keys.into_iter());
    }
    Engine::start(Arc::new(store))
}

fn copy_log(
    origin: &Store,
    first: Revision,
    through: Position,
    mut records: NewSequence,
    batch: &mut Batch,
) -> Log {
    let mut from = Some(first.start());
    while let Some(next) = from {
        let guard = pin();
        let (slice, is_last) = origin.log.slice(next, through, &guard);
        for group in slice.chunks(PREFETCHED_RECORDS) {
            for record in group {
                std::hint::black_box(record.mod_revision());
            }
            for record in group {
                records.push(record.clone(), batch);
            }
        }
        from = slice
            .last()
            .filter(|_| !is_last)
            .map(|last| last.position().next());
    }
    Log::of(records)
}

/// The entries of a fork.
#[derive(Debug)]
struct Entries {
    tree: SortedTree,
    /// The keys of each lease, in key order.
    leased: HashMap<LeaseId, Vec<Entry>>,
    versions: u64,
    bytes: u64,
}

fn copy_entries(
    origin: &Store,
    compacted: Revision,
    through: Position,
    batch: &mut Batch,
) -> Entries {
    let mut entries = Entries {
        // Keys that are created meanwhile have no version up to this position.
        tree: SortedTree::expecting(origin.index.len()),
        leased: HashMap::new(),
        versions: 0,
        bytes: 0,
    };
    let mut versions = Vec::new();
    origin.index.scan(&KeyRange::all(), |found| {
        let entry = found.entry();
        found.copy_kept(compacted, through, &mut versions);
        let Some(newest) = versions.last() else {
            return ControlFlow::Continue(());
        };
        let (is_live, lease) = (!newest.is_tombstone(), newest.lease());
        entries.versions += versions.len() as u64;
        entries.bytes += versions.iter().map(KeyValue::size_bytes).sum::<u64>();
        let own = Entry::of_versions(entry.key(), &mut versions, batch);
        if let Some(lease) = lease {
            entries.leased.entry(lease).or_default().push(own.clone());
        }
        entries.tree.push(own, is_live, batch);
        ControlFlow::Continue(())
    });
    entries
}
