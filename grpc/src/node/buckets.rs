//! The names of etcd's buckets with the state of a node, and of the pairs in them that have a fixed name. Snapshots, dumps and
//! the metadata of a journal have the same ones.

/// Alarms, as keys.
pub(crate) const ALARM: &str = "alarm";
/// The state of auth.
pub(crate) const AUTH: &str = "auth";
pub(crate) const AUTH_ENABLED: &str = "authEnabled";
pub(crate) const AUTH_REVISION: &str = "authRevision";
pub(crate) const ROLES: &str = "authRoles";
pub(crate) const USERS: &str = "authUsers";
pub(crate) const MEMBERS: &str = "members";
/// The ids of removed members.
pub(crate) const REMOVED: &str = "members_removed";
/// The Raft state, and in a snapshot the compacted revision.
pub(crate) const META: &str = "meta";
pub(crate) const RAFT_INDEX: &str = "consistent_index";
pub(crate) const RAFT_TERM: &str = "term";
/// The compacted revisions whose removal is finished, and was begun.
pub(crate) const COMPACTED: [&str; 2] = ["finishedCompactRev", "scheduledCompactRev"];
