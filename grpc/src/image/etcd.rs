//! Reads a snapshot of a real etcd: its database file, with a hash behind it.
//!
//! The bucket `key` has the versions in the order of their positions. If the store was compacted, it is read twice: first
//! for the last version of each key at the compacted revision, because a compaction may not have removed the others yet.
//! All other pages are read once, so what the import keeps is bounded by the file.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

use prost::Message;
use revstore_engine::{
    EngineBuilder, LeaseGrant, LeaseId, LeaseLeft, Position, Restore, Revision, Version,
};
use revstore_persist::Metadata;
use revstore_proto::mvccpb;
use sha2::{Digest, Sha256};

use super::Image;
use super::error::{Damage, Found};
use super::pairs::check_pair;
use crate::node::buckets::{ALARM, AUTH, COMPACTED, META, ROLES, USERS};
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

/// The buckets that the state of a node consists of. The first one says which version has written the file.
const STATE_BUCKETS: [&str; 5] = [META, ALARM, AUTH, ROLES, USERS];
/// The bucket of the leases.
const LEASE: &str = "lease";
/// The bucket of the versions.
const KEY: &str = "key";

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
    let (mut state, mut compacted) = (Metadata::new(), None);
    for name in STATE_BUCKETS {
        let pairs = state.entry(name.to_owned()).or_default();
        database.visit_bucket(name, &mut |pair| {
            let Pair { key, value, offset } = pair;
            let checked = check_pair(name, key, value).and_then(|()| match name {
                META => check_meta(key, value, &mut compacted),
                _ => Ok(()),
            });
            checked.map_err(|damage| Found::Offset(offset, damage))?;
            pairs.insert(key.to_vec(), value.to_vec());
            Ok(())
        })?;
    }
    let mut restore = builder
        .restore(compacted)
        .map_err(|error| Found::Whole(error.into()))?;
    database.visit_bucket(LEASE, &mut |pair| {
        let left = lease_of(pair)?;
        let granted = restore.grant_left(left);
        granted.map_err(|error| invalid(pair, LEASE, &error))
    })?;
    let visible = match compacted {
        Some(compacted) => database.visible_at(compacted)?,
        None => Visible::default(),
    };
    database.versions(&mut restore, compacted, &visible)?;
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

fn invalid(pair: Pair<'_>, bucket: &str, reason: &dyn fmt::Display) -> Found {
    Found::Offset(pair.offset, Damage::pair(bucket, pair.key, reason))
}

/// Checks the pairs of the bucket `meta` that an import needs, and finds the compacted revision: also if the removal was
/// not finished.
fn check_meta(key: &[u8], value: &[u8], compacted: &mut Option<Revision>) -> Result<(), Damage> {
    if COMPACTED.map(str::as_bytes).contains(&key) {
        let (position, _) = position_of(value)
            .filter(|(_, is_tombstone)| !is_tombstone)
            .ok_or_else(|| Damage::pair(META, key, "it is no position"))?;
        *compacted = (*compacted).max(Some(position.revision));
    }
    // A database of a later version than the known ones is refused. Before 3.6 the file does not say which it is.
    if key == b"storageVersion" {
        let text = String::from_utf8_lossy(value).into_owned();
        let mut numbers = text.split('.').map(str::parse::<u32>);
        return match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if major == 3 && (major, minor) <= VERSION_MAX => {
                Ok(())
            }
            _ => Err(Damage::Version(format!("{text:?} of etcd"))),
        };
    }
    Ok(())
}

fn lease_of(pair: Pair<'_>) -> Result<LeaseLeft, Found> {
    let invalid = |reason: &dyn fmt::Display| invalid(pair, LEASE, reason);
    let stored = StoredLease::decode(pair.value).map_err(|error| invalid(&error))?;
    let id = LeaseId::new(stored.id).filter(|_| pair.key == stored.id.to_be_bytes());
    let id = id.ok_or_else(|| invalid(&"an id is 0, or not that of its key"))?;
    let seconds = |time| u64::try_from(time).map(Duration::from_secs);
    let (Ok(ttl), Ok(remaining)) = (seconds(stored.ttl), seconds(stored.remaining_ttl)) else {
        return Err(invalid(&format!("lease {id} has a negative time to live")));
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

/// A version without a key: the store was raised to its revision.
#[derive(Clone, Copy, Debug)]
struct Skip {
    to: Revision,
    offset: u64,
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
    /// Decodes a version, or one without a key that only raises the revision.
    fn of(pair: Pair<'_>) -> Result<Result<Self, Skip>, Found> {
        let invalid = |reason: String| invalid(pair, KEY, &reason);
        let (position, is_tombstone) =
            position_of(pair.key).ok_or_else(|| invalid("a key is no position".to_owned()))?;
        if pair.value.is_empty() && !is_tombstone {
            return Ok(Err(Skip {
                to: position.revision,
                offset: pair.offset,
            }));
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

    /// Calls `visit` with the pairs of a bucket; never if it does not exist. Each bucket is visited once.
    fn visit_bucket(
        &mut self,
        name: &str,
        visit: &mut dyn FnMut(Pair<'_>) -> Result<(), Found>,
    ) -> Result<(), Found> {
        match self.buckets.get(name.as_bytes()) {
            Some(place) => self.file.visit(place, visit),
            None => Ok(()),
        }
    }

    fn visit_versions(
        &mut self,
        visit: &mut dyn FnMut(Result<Stored, Skip>) -> Result<(), Found>,
    ) -> Result<(), Found> {
        let place = self.buckets.get(KEY.as_bytes());
        let place = place.ok_or(Found::Whole(Damage::NoBucket(KEY)))?;
        self.file.visit(place, &mut |pair| visit(Stored::of(pair)?))
    }

    /// Reads the versions for the first time.
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
        // All other buckets were read before, and have none of these pages.
        self.file.rewind();
        Ok(visible)
    }

    /// Adds all versions to an engine.
    fn versions(
        &mut self,
        restore: &mut Restore,
        compacted: Option<Revision>,
        visible: &Visible,
    ) -> Result<(), Found> {
        let compacted = compacted.unwrap_or(Revision(0));
        self.visit_versions(&mut |stored| {
            let stored = match stored {
                Ok(stored) => stored,
                // What `etcdutl snapshot restore --bump-revision` has written.
                Err(Skip { to, offset }) if to > restore.current_revision() => {
                    let skipped = restore.skip_to(to);
                    return skipped.map_err(|error| Found::Offset(offset, error.into()));
                }
                Err(_) => return Ok(()),
            };
            let is_last = || visible.get(&stored.kv.key[..]) == Some(&stored.position);
            let version = stored.version();
            let added = match stored.position.revision {
                revision if revision > compacted => restore.change(&version),
                // WA-41, CO-5: what is left of the compacted revision itself.
                revision if revision == compacted && is_last() => restore.change(&version),
                revision if revision < compacted && is_last() && !stored.is_tombstone => {
                    restore.base_in_any_order(&version)
                }
                _ => Ok(()),
            };
            added.map_err(|error| Found::Offset(stored.offset, error.into()))
        })
    }
}
