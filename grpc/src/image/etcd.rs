//! Reads a snapshot of a real etcd: its database file, with a hash behind it.
//!
//! The bucket `key` has the versions in the order of their positions. It is read twice: first for the last
//! version of each key at the compacted revision, because a compaction may not have removed the others yet.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

use prost::Message;
use revstore_engine::{
    EngineBuilder, LeaseGrant, LeaseId, LeaseLeft, Position, Restore, Revision, Version,
};
use revstore_persist::Metadata;
use revstore_proto::etcdserverpb::AlarmMember;
use revstore_proto::{authpb, mvccpb};
use sha2::{Digest, Sha256};

use super::Image;
use super::error::{Damage, Found};
use crate::node::buckets::{
    ALARM, AUTH, AUTH_ENABLED, AUTH_REVISION, COMPACTED, META, RAFT_INDEX, RAFT_TERM, ROLES, USERS,
};
use crate::node::state::NodeState;
use crate::snapshot::bolt_reader::{BoltReader, BucketPlace, Pair};
use crate::snapshot::{POSITION_BYTES, StoredLease, TOMBSTONE_SUFFIX};

/// The length of the hash behind the database.
const HASH_BYTES: usize = 32;
/// The unit of the length of a database file, by which etcd recognizes that a hash is behind it.
const UNIT_BYTES: u64 = 512;
/// The number of bytes that are hashed at a time.
const READ_BYTES: usize = 256 * 1024;
/// The newest version whose database files have the known contents: 3.6.
const VERSION_MAX: (u32, u32) = (3, 6);

/// The buckets that the state of a node consists of.
const STATE_BUCKETS: [&str; 5] = [ALARM, AUTH, ROLES, USERS, META];

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Reads a file of `len` bytes.
pub(super) fn read(
    mut file: impl Read + Seek,
    len: u64,
    builder: EngineBuilder,
) -> Result<Image, Found> {
    if len % UNIT_BYTES != HASH_BYTES as u64 {
        return Err(Found::Whole(Damage::NoHash));
    }
    let len = len - HASH_BYTES as u64;
    check_hash(&mut file, len)?;
    let mut database = Database::open(file, len)?;
    let meta = database.small_bucket(META)?;
    check_version(&meta)?;
    let compacted = compacted(&meta)?;
    let mut state = Metadata::new();
    for name in STATE_BUCKETS {
        state.insert(name.to_owned(), database.small_bucket(name)?);
    }
    check_state(&state)?;
    let visible = match compacted {
        Some(compacted) => database.visible_at(compacted)?,
        None => Visible::default(),
    };
    let restore = builder
        .restore(compacted)
        .map_err(|error| Found::Whole(error.into()))?;
    let mut restore = database.versions(restore, compacted, &visible)?;
    for (id, lease) in database.small_bucket("lease")? {
        let left = lease_of(&id, &lease)?;
        restore
            .grant_left(left)
            .map_err(|error| invalid("lease", &error))?;
    }
    let engine = restore.finish();
    Ok(Image {
        engine: engine.map_err(|error| Found::Whole(error.into()))?,
        state: NodeState::of_metadata(state),
    })
}

fn check_hash(file: &mut (impl Read + Seek), len: u64) -> Result<(), Found> {
    file.seek(SeekFrom::Start(0))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut left = len;
    while left > 0 {
        let part = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        file.read_exact(&mut buffer[..part])?;
        hash.update(&buffer[..part]);
        left -= part as u64;
    }
    let mut stored = [0; HASH_BYTES];
    file.read_exact(&mut stored)?;
    if hash.finalize()[..] != stored {
        return Err(Found::Whole(Damage::Hash));
    }
    Ok(())
}

fn invalid(bucket: &'static str, reason: &dyn fmt::Display) -> Found {
    let reason = reason.to_string();
    Found::Whole(Damage::Pair { bucket, reason })
}

fn invalid_at(offset: u64, bucket: &'static str, reason: &dyn fmt::Display) -> Found {
    let reason = reason.to_string();
    Found::Offset(offset, Damage::Pair { bucket, reason })
}

/// Refuses a database of a later version than the known ones. Before 3.6 the file does not say which it is.
fn check_version(meta: &Pairs) -> Result<(), Found> {
    let Some(version) = meta.get(&b"storageVersion"[..]) else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(version).into_owned();
    let mut numbers = text.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if major == 3 && (major, minor) <= VERSION_MAX => Ok(()),
        _ => Err(Found::Whole(Damage::Version(format!("{text:?} of etcd")))),
    }
}

/// Returns the compacted revision: also if the removal was not finished.
fn compacted(meta: &Pairs) -> Result<Option<Revision>, Found> {
    let mut compacted = None;
    for name in COMPACTED {
        if let Some(position) = meta.get(name.as_bytes()) {
            let (position, _) = position_of(position)
                .filter(|(_, is_tombstone)| !is_tombstone)
                .ok_or_else(|| invalid(META, &format!("{name} is no position")))?;
            compacted = compacted.max(Some(position.revision));
        }
    }
    Ok(compacted)
}

/// Checks what the state of a node ignores if it is not valid.
fn check_state(state: &Metadata) -> Result<(), Found> {
    let empty = Pairs::new();
    let bucket = |name| state.get(name).unwrap_or(&empty);
    for (name, user) in bucket(USERS) {
        let user = authpb::User::decode(&user[..]).map_err(|error| invalid(USERS, &error))?;
        check_name(USERS, name, &user.name)?;
    }
    for (name, role) in bucket(ROLES) {
        let role = authpb::Role::decode(&role[..]).map_err(|error| invalid(ROLES, &error))?;
        check_name(ROLES, name, &role.name)?;
    }
    for alarm in bucket(ALARM).keys() {
        AlarmMember::decode(&alarm[..]).map_err(|error| invalid(ALARM, &error))?;
    }
    for (bucket, pairs, name) in [
        (AUTH, bucket(AUTH), AUTH_REVISION),
        (META, bucket(META), RAFT_INDEX),
        (META, bucket(META), RAFT_TERM),
    ] {
        if let Some(number) = pairs.get(name.as_bytes())
            && number.len() != 8
        {
            return Err(invalid(
                bucket,
                &format!("{name} has {} bytes", number.len()),
            ));
        }
    }
    match bucket(AUTH).get(AUTH_ENABLED.as_bytes()).map(Vec::as_slice) {
        None | Some([0 | 1]) => Ok(()),
        Some(_) => Err(invalid(AUTH, &"authEnabled is neither 0 nor 1")),
    }
}

fn check_name(bucket: &'static str, key: &[u8], name: &[u8]) -> Result<(), Found> {
    match std::str::from_utf8(name) {
        Ok(text) if key == name && !text.is_empty() => Ok(()),
        _ => Err(invalid(
            bucket,
            &"a name is empty, no UTF-8, or not that of its key",
        )),
    }
}

fn lease_of(id: &[u8], lease: &[u8]) -> Result<LeaseLeft, Found> {
    let stored = StoredLease::decode(lease).map_err(|error| invalid("lease", &error))?;
    let id = LeaseId::new(stored.id).filter(|_| id == stored.id.to_be_bytes());
    let id = id.ok_or_else(|| invalid("lease", &"an id is 0, or not that of its key"))?;
    let seconds = |time| u64::try_from(time).map(Duration::from_secs);
    let (Ok(ttl), Ok(remaining)) = (seconds(stored.ttl), seconds(stored.remaining_ttl)) else {
        return Err(invalid(
            "lease",
            &format!("lease {id} has a negative time to live"),
        ));
    };
    let lease = LeaseGrant { id, ttl };
    // Without a checkpoint, which few clusters have, a lease begins again.
    if remaining.is_zero() {
        return Ok(LeaseLeft::full(lease));
    }
    Ok(LeaseLeft { lease, remaining })
}

/// Decodes the key of a version: its position, and whether it is a tombstone.
fn position_of(key: &[u8]) -> Option<(Position, bool)> {
    let (position, suffix) = key.split_at_checked(POSITION_BYTES)?;
    let is_tombstone = match suffix {
        [] => false,
        [TOMBSTONE_SUFFIX] => true,
        _ => return None,
    };
    let (revision, rest) = position.split_first_chunk()?;
    let sub = rest.strip_prefix(b"_")?;
    let revision = i64::from_be_bytes(*revision);
    let sub = u64::from_be_bytes(sub.try_into().ok()?);
    let position = Position {
        revision: Revision(revision),
        sub: u32::try_from(sub).ok()?,
    };
    (revision >= 0).then_some((position, is_tombstone))
}

/// A version as etcd stores it.
#[derive(Debug)]
struct Stored {
    position: Position,
    is_tombstone: bool,
    kv: mvccpb::KeyValue,
    offset: u64,
}

impl Stored {
    /// Decodes a version; `None` for the one without a key that only raises the revision.
    fn of(pair: Pair<'_>) -> Result<Result<Self, Position>, Found> {
        let invalid = |reason: String| invalid_at(pair.offset, "key", &reason);
        let (position, is_tombstone) =
            position_of(pair.key).ok_or_else(|| invalid("a key is no position".to_owned()))?;
        if pair.value.is_empty() && !is_tombstone {
            return Ok(Err(position));
        }
        let kv = mvccpb::KeyValue::decode(pair.value)
            .map_err(|error| invalid(format!("version {position}: {error}")))?;
        if !is_tombstone && kv.mod_revision != position.revision.0 {
            let revision = kv.mod_revision;
            return Err(invalid(format!(
                "version {position} has revision {revision}"
            )));
        }
        Ok(Ok(Self {
            position,
            is_tombstone,
            kv,
            offset: pair.offset,
        }))
    }

    fn version(&self) -> Version<'_> {
        let Self {
            position,
            is_tombstone,
            ref kv,
            ..
        } = *self;
        let live = |number| if is_tombstone { 0 } else { number };
        Version {
            key: &kv.key,
            value: (!is_tombstone).then_some(&kv.value[..]),
            position,
            create_revision: Revision(live(kv.create_revision)),
            version: live(kv.version),
            lease: LeaseId::new(live(kv.lease)),
        }
    }
}

/// The position of the last version of each key at the compacted revision, which may be a tombstone.
type Visible = HashMap<Vec<u8>, Position>;

struct Database<R> {
    file: BoltReader<R>,
    buckets: BTreeMap<Vec<u8>, BucketPlace>,
}

impl<R: Read + Seek> Database<R> {
    fn open(file: R, len: u64) -> Result<Self, Found> {
        let mut file = BoltReader::open(file, len)?;
        let buckets = file.buckets()?.into_iter().collect();
        Ok(Self { file, buckets })
    }

    /// Returns the pairs of a bucket; none if it does not exist.
    fn small_bucket(&mut self, name: &str) -> Result<Pairs, Found> {
        let mut pairs = Pairs::new();
        let Some(place) = self.buckets.get(name.as_bytes()) else {
            return Ok(pairs);
        };
        self.file.rewind();
        self.file.visit(place, &mut |pair: Pair<'_>| {
            pairs.insert(pair.key.to_vec(), pair.value.to_vec());
            Ok::<_, Found>(())
        })?;
        Ok(pairs)
    }

    fn visit_versions(
        &mut self,
        visit: &mut dyn FnMut(Result<Stored, Position>) -> Result<(), Found>,
    ) -> Result<(), Found> {
        let name = "key";
        let place = self.buckets.get(name.as_bytes());
        let place = place.ok_or(Found::Whole(Damage::NoBucket(name)))?;
        self.file.rewind();
        self.file.visit(place, &mut |pair| visit(Stored::of(pair)?))
    }

    fn visible_at(&mut self, compacted: Revision) -> Result<Visible, Found> {
        let mut visible = Visible::default();
        self.visit_versions(&mut |stored| {
            if let Ok(stored) = stored
                && stored.position.revision <= compacted
            {
                visible.insert(stored.kv.key.to_vec(), stored.position);
            }
            Ok(())
        })?;
        Ok(visible)
    }

    /// Adds all versions to an engine.
    fn versions(
        &mut self,
        mut restore: Restore,
        compacted: Option<Revision>,
        visible: &Visible,
    ) -> Result<Restore, Found> {
        let compacted = compacted.unwrap_or(Revision(0));
        let mut changes: Vec<Stored> = Vec::new();
        self.visit_versions(&mut |stored| {
            let position = match &stored {
                Ok(stored) => stored.position,
                Err(position) => *position,
            };
            if changes
                .last()
                .is_some_and(|last| last.position.revision != position.revision)
            {
                add_revision(&mut restore, &mut changes)?;
            }
            let is_last =
                |stored: &Stored| visible.get(&stored.kv.key[..]) == Some(&stored.position);
            match stored {
                Ok(stored) if position.revision > compacted => changes.push(stored),
                // WA-41, CO-5: what is left of the compacted revision itself.
                Ok(stored) if position.revision == compacted => {
                    changes.extend(is_last(&stored).then_some(stored));
                }
                Ok(stored) => {
                    if is_last(&stored) && !stored.is_tombstone {
                        let added = restore.base_in_any_order(&stored.version());
                        added.map_err(|error| Found::Offset(stored.offset, error.into()))?;
                    }
                }
                // What `etcdutl snapshot restore --bump-revision` has written.
                Err(_) if position.revision > restore.current_revision() => {
                    let skipped = restore.skip_to(position.revision);
                    skipped.map_err(|error| Found::Whole(error.into()))?;
                }
                Err(_) => {}
            }
            Ok(())
        })?;
        add_revision(&mut restore, &mut changes)?;
        Ok(restore)
    }
}

/// Adds the changes of a revision, if there are any.
fn add_revision(restore: &mut Restore, changes: &mut Vec<Stored>) -> Result<(), Found> {
    if let Some(first) = changes.first() {
        let versions: Vec<_> = changes.iter().map(Stored::version).collect();
        let added = restore.revision(&versions);
        added.map_err(|error| Found::Offset(first.offset, error.into()))?;
    }
    changes.clear();
    Ok(())
}
