//! Durability: the responses of a node with a journal, and what the journal stores besides keys.
//!
//! [`Services`](crate::Services) of a node without a journal do not call anything of this file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prost::Message;
use revstore_persist::{Change, Fsync, Metadata, Persist, PersistError, Synced};
use revstore_proto::authpb;
use revstore_proto::etcdserverpb::AlarmMember;

use crate::auth::AuthStore;
use crate::methods::RpcMethod;
use crate::node::Node;
use crate::node::admission::{Alarm, JournalFailure};
use crate::node::buckets::{
    ALARM, AUTH, AUTH_ENABLED, AUTH_REVISION, MEMBERS, META, RAFT_INDEX, RAFT_TERM, REMOVED, ROLES,
    USERS,
};
use crate::node::members::{StoredMembers, id_of_key};
use crate::snapshot;
use crate::status::EtcdError;

/// The number of proposals for which the journal has the Raft index in advance. The index of a node after a crash is up
/// to so much higher, and never lower than one that a client has received.
const RAFT_INDEXES_RESERVED: u64 = 16 * 1024;

/// The proposals that a new leader makes when it starts: an empty one, and its attributes.
const PROPOSALS_AT_START: u64 = 2;

/// The journal of a node.
#[derive(Debug)]
pub(crate) struct Durability {
    persist: Persist,
    /// The Raft index that the journal has. A write changes it under the lock of `stored`; a relaxed read decides whether
    /// there is something to do.
    reserved_index: AtomicU64,
    /// What the journal has of the metadata, so that most writes compare only this. A leaf lock, except
    /// for those of users and alarms; held for one comparison or change.
    stored: Mutex<Option<Stored>>,
}

/// Numbers that change with the metadata.
#[derive(Debug, PartialEq, Eq)]
struct Stored {
    auth_enabled: bool,
    auth_revision: u64,
    alarms: Vec<Alarm>,
    members_changes: u64,
}

/// A call that may write, at its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallStart {
    outages: u64,
    is_failed: bool,
}

impl Durability {
    pub(crate) fn new(persist: Persist) -> Self {
        Self {
            persist,
            reserved_index: AtomicU64::new(0),
            stored: Mutex::default(),
        }
    }

    /// Lets the node refuse writes while they cannot be stored.
    pub(crate) fn observe(&self, node: &Arc<Node>) {
        let observed = Arc::downgrade(node);
        let update = move |failure| {
            if let Some(node) = observed.upgrade() {
                node.alarms.set_journal_failure(failure);
            }
        };
        self.persist.observe(move |change| match change {
            Change::Failed(error) => update(Some(JournalFailure::from(error))),
            Change::Recovered => update(None),
            Change::SnapshotFailed(_) => {}
        });
    }

    /// Begins a call. One that may write waits while the journal is too far behind.
    pub(crate) async fn begin(
        &self,
        node: &Node,
        method: &RpcMethod,
    ) -> Result<CallStart, EtcdError> {
        let start = CallStart {
            outages: self.persist.outages(),
            is_failed: !self.persist.is_healthy(),
        };
        // Other writes are refused when they are admitted.
        if start.is_failed && method.changes_metadata() {
            node.alarms.check_journal()?;
        }
        if method.may_write() && !start.is_failed && !self.persist.has_room() {
            let synced = self.persist.sync().await;
            synced.map_err(|error| JournalFailure::from(&error))?;
        }
        Ok(start)
    }

    /// Ends a call: returns when everything that its response depends on is stored as the policy says.
    pub(crate) async fn end(
        &self,
        node: &Node,
        method: &RpcMethod,
        start: CallStart,
    ) -> Result<(), EtcdError> {
        let may_write = method.may_write();
        self.reserve_raft_index(node);
        // While the journal fails no write is admitted, so this was none; reads go on.
        if start.is_failed && start.outages == self.persist.outages() {
            return Ok(());
        }
        let has_metadata = may_write && self.store_metadata(node);
        if self.persist.fsync() != Fsync::Always {
            return Ok(());
        }
        let only_keys = !has_metadata && !method.uses_metadata();
        if only_keys && self.persist.is_synced(node.engine.current_revision()) {
            return Ok(());
        }
        match self.persist.sync().await {
            Err(error) if may_write => Err(JournalFailure::from(&error).into()),
            _ => Ok(()),
        }
    }

    /// Returns what a message waits for that shows the current revision; `None` if it need not wait.
    pub(crate) fn wait_for_shown(&self, node: &Node) -> Option<Synced> {
        let persist = &self.persist;
        let waits = persist.fsync() == Fsync::Always
            // While the journal fails no write is admitted; what is shown was refused or is stored.
            && persist.is_healthy()
            && !persist.is_synced(node.engine.current_revision());
        waits.then(|| persist.sync())
    }

    /// Stores a Raft index above the current one, if less than half of those in advance are left.
    pub(crate) fn reserve_raft_index(&self, node: &Node) {
        let is_enough = || {
            let needed = node.raft_index.get();
            let needed = needed.saturating_add(RAFT_INDEXES_RESERVED / 2);
            needed <= self.reserved_index.load(Ordering::Relaxed)
        };
        if is_enough() {
            return;
        }
        let _stored = self.stored.lock();
        if !is_enough() {
            self.replace_raft_index(node, reserved(node));
        }
    }

    /// Stores the current Raft index, at the end of a node.
    pub(crate) fn store_raft_index(&self, node: &Node) {
        let _stored = self.stored.lock();
        self.replace_raft_index(node, node.raft_index.get());
    }

    /// Stores a Raft term that has begun, and reserves indexes.
    pub(crate) fn store_raft_term(&self, node: &Node) {
        let _stored = self.stored.lock();
        self.replace_raft_index(node, reserved(node));
    }

    fn replace_raft_index(&self, node: &Node, index: u64) {
        self.reserved_index.store(index, Ordering::Relaxed);
        let bucket = raft_bucket(index, node.headers.raft_term());
        self.persist.replace_metadata(bucket);
    }

    /// Stores users, roles, alarms and members if they have changed; returns whether they have.
    fn store_metadata(&self, node: &Node) -> bool {
        let mut stored = self.stored.lock();
        let current = node.auth.read(|store| Stored {
            auth_enabled: store.is_enabled(),
            auth_revision: store.revision(),
            alarms: node.alarms.list(None),
            members_changes: node.members.changes(),
        });
        if stored.as_ref() == Some(&current) {
            return false;
        }
        // Under the lock, so that later contents are not replaced by earlier ones.
        self.persist.replace_metadata(metadata(node));
        *stored = Some(current);
        true
    }
}

/// Returns the Raft index up to which the journal has it in advance.
fn reserved(node: &Node) -> u64 {
    node.raft_index.get().saturating_add(RAFT_INDEXES_RESERVED)
}

/// Returns the bucket with the Raft state of a node.
pub(crate) fn raft_bucket(index: u64, term: u64) -> Metadata {
    let bucket = BTreeMap::from([
        (RAFT_INDEX.into(), index.to_be_bytes().to_vec()),
        (RAFT_TERM.into(), term.to_be_bytes().to_vec()),
    ]);
    Metadata::from([(META.to_owned(), bucket)])
}

/// Returns the metadata of a node without the Raft state.
pub(crate) fn metadata(node: &Node) -> Metadata {
    let (users, roles, auth) = snapshot::auth_buckets(node);
    let (members, removed) = snapshot::member_buckets(node);
    let named = [
        (ALARM, snapshot::alarm_bucket(node)),
        (AUTH, auth),
        (MEMBERS, members),
        (REMOVED, removed),
        (ROLES, roles),
        (USERS, users),
    ];
    named.map(|(name, pairs)| (name.to_owned(), pairs)).into()
}

/// The highest Raft term and index of a state that is loaded, so that a node can increase them.
pub(crate) const RAFT_NUMBER_MAX: u64 = i64::MAX.unsigned_abs();

/// The Raft term and index of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RaftState {
    pub(crate) term: u64,
    pub(crate) index: u64,
}

impl RaftState {
    /// Returns the state after the next start (DM-12): there is an election, and the new leader makes proposals.
    pub(crate) fn after_restart(self) -> Self {
        Self {
            term: self.term.saturating_add(1),
            index: self.index.saturating_add(PROPOSALS_AT_START),
        }
    }
}

/// The users, roles, alarms, members and the Raft state of an earlier node.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    pub(crate) raft: Option<RaftState>,
    pub(crate) members: StoredMembers,
    pub(crate) auth: AuthStore,
    pub(crate) alarms: Vec<Alarm>,
}

impl Restored {
    /// Decodes the metadata of a journal. What another program has stored there is ignored.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let empty = BTreeMap::new();
        let bucket = |name| metadata.get(name).unwrap_or(&empty);
        let users = bucket(USERS).values();
        let roles = bucket(ROLES).values();
        let auth = bucket(AUTH);
        let enabled = auth
            .get(AUTH_ENABLED.as_bytes())
            .is_some_and(|it| it[..] == [1]);
        let revision = auth.get(AUTH_REVISION.as_bytes());
        let revision = revision.and_then(|it| it[..].try_into().ok());
        let alarms = bucket(ALARM).keys();
        let alarms = alarms.filter_map(|member| AlarmMember::decode(&member[..]).ok());
        let members = bucket(MEMBERS).values();
        let removed = bucket(REMOVED).keys();
        let members = StoredMembers {
            members: members
                .filter_map(|it| serde_json::from_slice(it).ok())
                .collect(),
            removed: removed.filter_map(|key| id_of_key(key)).collect(),
        };
        let meta = bucket(META);
        let number = |name: &str| {
            Some(u64::from_be_bytes(
                meta.get(name.as_bytes())?[..].try_into().ok()?,
            ))
        };
        let raft = || {
            let (term, index) = (number(RAFT_TERM)?, number(RAFT_INDEX)?);
            Some(RaftState { term, index })
        };
        Self {
            raft: raft(),
            members,
            auth: AuthStore::restored(
                users.filter_map(|user| authpb::User::decode(&user[..]).ok()),
                roles.filter_map(|role| authpb::Role::decode(&role[..]).ok()),
                enabled,
                revision.map_or(1, u64::from_be_bytes),
            ),
            alarms: alarms.filter_map(|member| Alarm::of(&member)).collect(),
        }
    }
}

impl From<&PersistError> for JournalFailure {
    fn from(error: &PersistError) -> Self {
        match error {
            PersistError::NoSpace(_) => Self::Full,
            PersistError::Io(_) | PersistError::Closed => Self::Failed,
        }
    }
}
