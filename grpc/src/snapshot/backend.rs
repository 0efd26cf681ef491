//! The buckets of etcd's database, with the contents of the store.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use prost::Message;
use revstore_engine::{History, KeyValue, LeaseId, Revision};
use revstore_proto::authpb;
use revstore_proto::etcdserverpb::AlarmMember;
use serde_json::json;

use super::bolt::{Bucket, BucketPairs};
use super::stored_version;
use crate::node::Node;
use crate::node::buckets::{
    ALARM, AUTH, AUTH_ENABLED, AUTH_REVISION, COMPACTED, MEMBERS, META, RAFT_INDEX, RAFT_TERM,
    REMOVED, ROLES, USERS,
};
use crate::node::members::hex;
use crate::node::version;
use crate::status::EtcdError;

/// The pairs of a small bucket, by key.
pub(crate) type SmallBucket = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns all buckets with the contents of the current store. Visits all versions.
pub(super) fn buckets(node: &Node) -> Result<Vec<Bucket>, EtcdError> {
    // A lease exists before a version refers to it. So reading the leases before and after the
    // history returns the leases of all versions, except a lease that was granted and ended between
    // the reads.
    let mut lease_ids = BTreeSet::from_iter(node.engine.leases());
    let mut leases = leases(node, &lease_ids);
    let history = node.engine.full_history(None)?;
    lease_ids.extend(node.engine.leases());
    leases.extend(self::leases(node, &lease_ids));

    let compacted = history.compacted;
    let (users, roles, auth) = auth(node);
    let (members, removed) = members(node);
    let small_buckets = [
        (ALARM, alarms(node)),
        (AUTH, auth),
        (ROLES, roles),
        (USERS, users),
        ("cluster", cluster(node)),
        ("lease", leases),
        (MEMBERS, members),
        (REMOVED, removed),
        (META, meta(node, compacted)),
    ];
    let mut buckets: Vec<_> = small_buckets
        .map(|(name, pairs)| small_bucket(name, pairs))
        .into();
    buckets.push(Bucket {
        name: "key",
        pairs: Box::new(StoredVersions(compacted_versions(history))),
    });
    Ok(buckets)
}

fn small_bucket(name: &'static str, pairs: SmallBucket) -> Bucket {
    Bucket {
        name,
        pairs: Box::new(Vec::from_iter(pairs)),
    }
}

/// The pairs of the bucket `key`: versions, in the order in which they were written.
#[derive(Debug)]
struct StoredVersions(Vec<KeyValue>);

impl BucketPairs for StoredVersions {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn key_len(&self, index: usize) -> usize {
        stored_version::key_len(&self.0[index])
    }

    fn value_len(&self, index: usize) -> usize {
        stored_version::value_len(&self.0[index])
    }

    fn write_key(&self, index: usize, buffer: &mut Vec<u8>) {
        stored_version::write_key(&self.0[index], buffer);
    }

    fn write_value(&self, index: usize, buffer: &mut Vec<u8>) {
        stored_version::write_value(&self.0[index], buffer);
    }
}

/// Returns the versions that a compaction at the compacted revision keeps (CO-4, CO-5). The result
/// does not depend on the number of other versions that are removed already.
fn compacted_versions(history: History) -> Vec<KeyValue> {
    let mut versions = history.versions;
    let Some(compacted) = history.compacted else {
        return versions;
    };
    let mut seen = HashSet::new();
    // Starts with the newest version, because the newest version of each key is kept.
    versions.reverse();
    versions.retain(|version| {
        let revision = version.mod_revision();
        let is_newest = revision <= compacted && seen.insert(version.key_bytes());
        revision > compacted || (is_newest && (!version.is_tombstone() || revision == compacted))
    });
    versions.reverse();
    versions
}

fn leases(node: &Node, ids: &BTreeSet<LeaseId>) -> SmallBucket {
    let pair = |id: &LeaseId| {
        let status = node.engine.lease(*id, false).ok()?;
        let lease = StoredLease {
            id: id.get(),
            ttl: i64::try_from(status.granted_ttl.as_secs()).unwrap_or(i64::MAX),
            remaining_ttl: 0,
        };
        Some((id.get().to_be_bytes().to_vec(), lease.encode_to_vec()))
    };
    ids.iter().filter_map(pair).collect()
}

/// `leasepb.Lease`: the message that etcd stores for a lease. No service uses it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoredLease {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
    #[prost(int64, tag = "2")]
    pub(crate) ttl: i64,
    /// The time that was left at a checkpoint; 0 without one.
    #[prost(int64, tag = "3")]
    pub(crate) remaining_ttl: i64,
}

pub(crate) fn alarms(node: &Node) -> SmallBucket {
    let alarms = node.alarms.list(None).into_iter();
    let members = alarms.map(AlarmMember::from);
    members.map(|it| (it.encode_to_vec(), Vec::new())).collect()
}

/// Returns the users, the roles, and the state of auth.
pub(crate) fn auth(node: &Node) -> (SmallBucket, SmallBucket, SmallBucket) {
    node.auth.read(|store| {
        let users = store.stored_users().map(|user: authpb::User| {
            let name = user.name.to_vec();
            (name, user.encode_to_vec())
        });
        let roles = store.stored_roles().map(|role: authpb::Role| {
            let name = role.name.to_vec();
            (name, role.encode_to_vec())
        });
        let state = [
            (AUTH_ENABLED, vec![u8::from(store.is_enabled())]),
            (AUTH_REVISION, store.revision().to_be_bytes().to_vec()),
        ];
        (users.collect(), roles.collect(), named(state))
    })
}

fn cluster(node: &Node) -> SmallBucket {
    named([("clusterVersion", version::of_cluster(&node.version).into())])
}

/// Returns the members and the ids of removed ones.
pub(crate) fn members(node: &Node) -> (SmallBucket, SmallBucket) {
    let key = |id| hex(id).into_bytes();
    let members = node.members.list().into_iter();
    let removed = node.members.removed().into_iter();
    (
        members
            .map(|it| (key(it.id), it.to_json().into()))
            .collect(),
        removed.map(|id| (key(id), b"removed".to_vec())).collect(),
    )
}

fn meta(node: &Node, compacted: Option<Revision>) -> SmallBucket {
    let own_id = node.identity.member_id;
    let mut voters = json!({ "voters": [own_id], "auto_leave": false });
    // An updated learner is still one here, also if it is not shown as one any more (CL-6).
    let members = node.members.list().into_iter().map(|it| it.id);
    let learners: Vec<_> = members.filter(|id| *id != own_id).collect();
    if !learners.is_empty() {
        voters["learners"] = json!(learners);
    }
    let mut meta = named([
        ("confState", voters.to_string().into()),
        (RAFT_INDEX, node.raft_index.get().to_be_bytes().into()),
        (RAFT_TERM, node.headers.raft_term().to_be_bytes().into()),
    ]);
    if let Some(compacted) = compacted {
        let mut position = Vec::new();
        stored_version::write_position(compacted, 0, &mut position);
        meta.extend(named(COMPACTED.map(|name| (name, position.clone()))));
    }
    meta
}

/// Returns a bucket with named pairs.
fn named<const N: usize>(pairs: [(&str, Vec<u8>); N]) -> SmallBucket {
    let pairs = pairs.map(|(name, value)| (name.as_bytes().to_vec(), value));
    pairs.into()
}

#[cfg(test)]
mod tests {
    use revstore_engine::{Engine, KeyRange};

    use super::*;

    /// Checks key, mod revision and tombstone flag of all kept versions.
    fn check(compacted: i64, expected: &[(&str, i64, bool)]) {
        let engine = Engine::builder().build();
        engine.put("a", "2").unwrap();
        engine.put("b", "3").unwrap();
        engine.put("a", "4").unwrap();
        engine.delete(&KeyRange::one("b")).unwrap();
        engine.put("c", "6").unwrap();
        engine.put("a", "7").unwrap();
        let mut history = engine.full_history(None).unwrap();
        history.compacted = Some(Revision(compacted));
        let versions = StoredVersions(compacted_versions(history));
        let found = versions.0.iter().map(|version| {
            let key = std::str::from_utf8(version.key()).unwrap();
            (key, version.mod_revision().0, version.is_tombstone())
        });
        assert_eq!(found.collect::<Vec<_>>(), expected, "at {compacted}");
        for index in 0..versions.len() {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            versions.write_key(index, &mut key);
            versions.write_value(index, &mut value);
            assert_eq!(key.len(), versions.key_len(index));
            assert_eq!(value.len(), versions.value_len(index));
        }
    }

    #[test]
    fn co_4_a_compaction_keeps_the_newest_version_of_each_key() {
        let above = [("c", 6, false), ("a", 7, false)];
        check(7, &[("c", 6, false), ("a", 7, false)]);
        check(6, &[&[("a", 4, false)][..], &above].concat());
        // CO-5
        check(
            5,
            &[&[("a", 4, false), ("b", 5, true)][..], &above].concat(),
        );
        let older = [("b", 3, false), ("a", 4, false), ("b", 5, true)];
        check(4, &[&older[..], &above].concat());
        check(3, &[&[("a", 2, false)][..], &older, &above].concat());
        check(0, &[&[("a", 2, false)][..], &older, &above].concat());
    }
}
