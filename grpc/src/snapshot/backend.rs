//! What etcd keeps in which bucket of its file.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use prost::Message;
use revstore_engine::{History, KeyValue, LeaseId, Revision};
use revstore_proto::authpb;
use revstore_proto::etcdserverpb::AlarmMember;
use revstore_proto::mvccpb;
use serde_json::json;

use super::bolt::{Bucket, Pairs};
use crate::encode::codec::Encode;
use crate::encode::response::KeyValueMessage;
use crate::encode::response::RAFT_TERM;
use crate::node::Node;
use crate::node::version;
use crate::service::maintenance;
use crate::status::EtcdError;

/// The positions of versions are keys of one length, those of tombstones of one more.
const POSITION_BYTES: usize = 17;
const TOMBSTONE: u8 = b't';

/// A few pairs by their keys.
type Few = BTreeMap<Vec<u8>, Vec<u8>>;

/// The whole store, as it stands. Walks all of it.
pub(super) fn buckets(node: &Node) -> Result<Vec<Bucket>, EtcdError> {
    // Whatever lease a version names was there before it was written: one of the two looks finds it,
    // unless it came and went in between.
    let mut leases = BTreeSet::from_iter(node.engine.leases());
    let mut lease_pairs = lease_pairs(node, &leases);
    let history = node.engine.history(None)?;
    leases.extend(node.engine.leases());
    lease_pairs.extend(self::lease_pairs(node, &leases));

    let compacted = history.compacted;
    let (users, roles, auth) = auth(node);
    let few = [
        ("alarm", alarms(node)),
        ("auth", auth),
        ("authRoles", roles),
        ("authUsers", users),
        ("cluster", cluster(node)),
        ("lease", lease_pairs),
        ("members", members(node)),
        ("members_removed", Few::new()),
        ("meta", meta(node, compacted)),
    ];
    let mut buckets: Vec<_> = few.map(|(name, few)| bucket(name, few)).into();
    buckets.push(Bucket {
        name: "key",
        pairs: Box::new(Versions(kept(history))),
    });
    Ok(buckets)
}

fn bucket(name: &'static str, few: Few) -> Bucket {
    Bucket {
        name,
        pairs: Box::new(Vec::from_iter(few)),
    }
}

/// Versions in the order in which they were written.
#[derive(Debug)]
struct Versions(Vec<KeyValue>);

impl Pairs for Versions {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn key_len(&self, at: usize) -> usize {
        POSITION_BYTES + usize::from(self.0[at].is_tombstone())
    }

    fn value_len(&self, at: usize) -> usize {
        let version = &self.0[at];
        if version.is_tombstone() {
            tombstone(version).encoded_len()
        } else {
            KeyValueMessage::from(version).encoded_len()
        }
    }

    fn write_key(&self, at: usize, buffer: &mut Vec<u8>) {
        let version = &self.0[at];
        let position = version.position();
        write_position(position.revision, u64::from(position.sub), buffer);
        if version.is_tombstone() {
            buffer.push(TOMBSTONE);
        }
    }

    fn write_value(&self, at: usize, buffer: &mut Vec<u8>) {
        let version = &self.0[at];
        if version.is_tombstone() {
            tombstone(version).encode_raw(buffer);
        } else {
            KeyValueMessage::from(version).encode(buffer);
        }
    }
}

fn tombstone(version: &KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: version.key_bytes(),
        ..mvccpb::KeyValue::default()
    }
}

fn write_position(main: Revision, sub: u64, buffer: &mut Vec<u8>) {
    buffer.extend(main.0.to_be_bytes());
    buffer.push(b'_');
    buffer.extend(sub.to_be_bytes());
}

/// CO-4, CO-5: what a compaction at the mark has left, however far its removal has come.
fn kept(history: History) -> Vec<KeyValue> {
    let mut versions = history.versions;
    let Some(mark) = history.compacted else {
        return versions;
    };
    let mut seen = HashSet::new();
    // From the newest on, as that is the one to keep of each key.
    versions.reverse();
    versions.retain(|version| {
        let made = version.mod_revision();
        let is_newest = made <= mark && seen.insert(version.key_bytes());
        made > mark || (is_newest && (!version.is_tombstone() || made == mark))
    });
    versions.reverse();
    versions
}

fn lease_pairs(node: &Node, leases: &BTreeSet<LeaseId>) -> Few {
    let pair = |id: &LeaseId| {
        let status = node.engine.lease(*id, false).ok()?;
        let lease = Lease {
            id: id.get(),
            ttl: i64::try_from(status.granted_ttl.as_secs()).unwrap_or(i64::MAX),
        };
        Some((id.get().to_be_bytes().to_vec(), lease.encode_to_vec()))
    };
    leases.iter().filter_map(pair).collect()
}

/// What etcd keeps of a lease; no service shows it in this form.
#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int64, tag = "2")]
    ttl: i64,
}

fn alarms(node: &Node) -> Few {
    let alarms = node.alarms.list(None).into_iter();
    let members = alarms.map(|alarm| -> AlarmMember { maintenance::alarm_member(alarm) });
    members.map(|it| (it.encode_to_vec(), Vec::new())).collect()
}

/// Users, roles, and whether they count.
fn auth(node: &Node) -> (Few, Few, Few) {
    node.auth.look(|store| {
        let users = store.stored_users().map(|user: authpb::User| {
            let name = user.name.to_vec();
            (name, user.encode_to_vec())
        });
        let roles = store.stored_roles().map(|role: authpb::Role| {
            let name = role.name.to_vec();
            (name, role.encode_to_vec())
        });
        let state = [
            ("authEnabled", vec![u8::from(store.is_enabled())]),
            ("authRevision", store.revision().to_be_bytes().to_vec()),
        ];
        (users.collect(), roles.collect(), named(state))
    })
}

fn cluster(node: &Node) -> Few {
    named([("clusterVersion", version::of_cluster(&node.version).into())])
}

fn members(node: &Node) -> Few {
    let identity = &node.identity;
    let member = json!({
        "id": identity.member_id,
        "peerURLs": identity.peer_urls,
        "name": identity.name,
        "clientURLs": identity.client_urls,
    });
    let id = format!("{:x}", identity.member_id);
    Few::from([(id.into(), member.to_string().into())])
}

fn meta(node: &Node, compacted: Option<Revision>) -> Few {
    let voters = json!({ "voters": [node.identity.member_id], "auto_leave": false });
    let mut meta = named([
        ("confState", voters.to_string().into()),
        (
            "consistent_index",
            node.raft_index.get().to_be_bytes().into(),
        ),
        ("term", RAFT_TERM.to_be_bytes().into()),
    ]);
    if let Some(mark) = compacted {
        let mut position = Vec::new();
        write_position(mark, 0, &mut position);
        meta.extend(named([
            ("finishedCompactRev", position.clone()),
            ("scheduledCompactRev", position),
        ]));
    }
    meta
}

fn named<const N: usize>(pairs: [(&str, Vec<u8>); N]) -> Few {
    let pairs = pairs.map(|(name, value)| (name.as_bytes().to_vec(), value));
    pairs.into()
}

#[cfg(test)]
mod tests {
    use revstore_engine::{Engine, KeyRange};

    use super::*;

    /// Key, main revision and whether it is a tombstone, of all that is kept.
    fn check(compacted: i64, expected: &[(&str, i64, bool)]) {
        let engine = Engine::builder().build();
        engine.put("a", "2").unwrap();
        engine.put("b", "3").unwrap();
        engine.put("a", "4").unwrap();
        engine.delete(&KeyRange::one("b"));
        engine.put("c", "6").unwrap();
        engine.put("a", "7").unwrap();
        let mut history = engine.history(None).unwrap();
        history.compacted = Some(Revision(compacted));
        let versions = Versions(kept(history));
        let found = versions.0.iter().map(|version| {
            let key = std::str::from_utf8(version.key()).unwrap();
            (key, version.mod_revision().0, version.is_tombstone())
        });
        assert_eq!(found.collect::<Vec<_>>(), expected, "at {compacted}");
        for at in 0..versions.len() {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            versions.write_key(at, &mut key);
            versions.write_value(at, &mut value);
            assert_eq!(key.len(), versions.key_len(at));
            assert_eq!(value.len(), versions.value_len(at));
        }
    }

    #[test]
    fn co_4_what_a_compaction_leaves() {
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
