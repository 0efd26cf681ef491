//! The state of a node besides its keys and leases, outside of the node.

use std::sync::Arc;

use revstore_persist::Metadata;

use super::Node;
use super::admission::Alarm;
use super::durability::{Restored, metadata, raft_bucket};

/// Users, roles, whether auth is enabled and its revision, members, alarms, and the Raft term and index of a
/// node: what a copy of a node needs besides the engine. Simple tokens, counters and open streams are not part
/// of it.
///
/// Clones share the state and cost one reference count. The default is the state of a new node.
///
/// ```
/// use revstore_engine::Engine;
/// use revstore_grpc::{Alarm, AlarmKind, Services};
///
/// let services = Services::builder(Engine::builder().build()).build();
/// services.alarms().raise(Alarm { kind: AlarmKind::NoSpace, member_id: 0 });
/// // First the engine, so that no key refers to a later state.
/// let engine = services.engine().fork();
/// let state = services.state();
/// let copy = Services::builder(engine).state(state).build();
/// assert!(copy.alarms().is_raised(AlarmKind::NoSpace));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// The same pairs as in the metadata of a journal, which are those of etcd's buckets.
    metadata: Arc<Metadata>,
}

impl NodeState {
    /// Copies the state of a node. Takes the locks of users, alarms and members one after the other.
    pub(crate) fn of(node: &Node) -> Self {
        let mut metadata = metadata(node);
        metadata.extend(raft_bucket(node.raft_index.get(), node.headers.raft_term()));
        Self::of_metadata(metadata)
    }

    /// Returns the state that these pairs contain. Others are ignored.
    pub(crate) fn of_metadata(mut metadata: Metadata) -> Self {
        metadata.retain(|_, pairs| !pairs.is_empty());
        Self {
            metadata: Arc::new(metadata),
        }
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Decodes the state.
    pub(crate) fn restored(&self) -> Restored {
        Restored::of(&self.metadata)
    }

    /// Returns whether auth is enabled.
    pub fn is_auth_enabled(&self) -> bool {
        self.restored().auth.is_enabled()
    }

    /// Returns the alarms.
    pub fn alarms(&self) -> Vec<Alarm> {
        self.restored().alarms
    }

    /// Returns the memory that the state takes, in bytes, without the overhead of its allocations.
    pub fn size_bytes(&self) -> u64 {
        let pairs = self.metadata.values().flatten();
        pairs
            .map(|(key, value)| (key.len() + value.len()) as u64)
            .sum()
    }
}
