//! Forks: engines that share the records of another one.

use std::collections::HashMap;
use std::ops::ControlFlow;

use thiserror::Error;

use super::state::Dump;
use crate::engine::Engine;
use crate::history::{Entry, KeyValue, LeaseId, Log};
use crate::index::Index;
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
    store.log = copy_log(dump.store(), compacted.unwrap_or(Revision::FIRST), through);
    let entries = copy_entries(dump.store(), compacted.unwrap_or(Revision(0)), through);
    store.history_bytes.add(entries.bytes);
    store.versions.add(entries.versions);
    // The counts are those at the last revision that is shared.
    store.index = Index::of_sorted(store.faults, entries.sorted, through);
    let now = store.clock.now();
    store.lessor.restore(dump.leases().iter().copied(), now);
    for (lease, keys) in entries.leased {
        store.lessor.restore_keys(lease, keys.into_iter());
    }
    Engine::start(Arc::new(store))
}

fn copy_log(origin: &Store, first: Revision, through: Position) -> Log {
    let mut from = Some(first.start());
    let mut records: Vec<KeyValue> = Vec::new();
    while let Some(next) = from {
        let guard = pin();
        let (slice, is_last) = origin.log.slice(next, through, &guard);
        for group in slice.chunks(PREFETCHED_RECORDS) {
            for record in group {
                std::hint::black_box(record.mod_revision());
            }
            records.extend_from_slice(group);
        }
        from = slice
            .last()
            .filter(|_| !is_last)
            .map(|last| last.position().next());
    }
    Log::of(records)
}

/// The entries of a fork.
#[derive(Debug, Default)]
struct Entries {
    /// The entries in key order, each with whether its key is live.
    sorted: Vec<(Entry, bool)>,
    /// The keys of each lease, in key order.
    leased: HashMap<LeaseId, Vec<Entry>>,
    versions: u64,
    bytes: u64,
}

fn copy_entries(origin: &Store, compacted: Revision, through: Position) -> Entries {
    let mut entries = Entries {
        sorted: Vec::with_capacity(origin.index.len()),
        ..Entries::default()
    };
    let mut versions = Vec::new();
    let mut batch = Batch::new();
    origin.index.scan(&KeyRange::all(), |found| {
        let entry = found.entry();
        found.copy_kept(compacted, through, &mut versions);
        let Some(newest) = versions.last() else {
            return ControlFlow::Continue(());
        };
        let (is_live, lease) = (!newest.is_tombstone(), newest.lease());
        entries.versions += versions.len() as u64;
        entries.bytes += versions.iter().map(KeyValue::size_bytes).sum::<u64>();
        let own = Entry::of_versions(entry.key(), &mut versions, &mut batch);
        if let Some(lease) = lease {
            entries.leased.entry(lease).or_default().push(own.clone());
        }
        entries.sorted.push((own, is_live));
        ControlFlow::Continue(())
    });
    entries
}
