//! Forks: engines that share the records of another one.

use thiserror::Error;

use super::copy::copy;
use super::part::Extent;
use super::state::Dump;
use crate::engine::Engine;
use crate::history::Log;
use crate::index::Index;
use crate::options::EngineBuilder;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::Arc;

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
    let copied = copy(dump.store(), Extent { compacted, through });
    store.log = Log::of(copied.records);
    store.history_bytes.add(copied.bytes);
    store.versions.add(copied.versions);
    // The counts are those at the last revision that is shared.
    store.index = Index::of_sorted(store.faults, copied.entries, through);
    let now = store.clock.now();
    store.lessor.restore(dump.leases().iter().copied(), now);
    for (lease, keys) in copied.leased {
        store.lessor.restore_keys(lease, keys.into_iter());
    }
    Engine::start(Arc::new(store))
}
