//! Leases: keys that live as long as somebody keeps them alive.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use bytes::Bytes;

use crate::error::LeaseError;
use crate::fault::on_fault;
use crate::history::Entry;
use crate::history::LeaseId;
use crate::key::KeyRange;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::{Mutex, Rank};
use crate::txn::Writer;

/// The largest time to live that may be asked for, in seconds (LE-2).
pub const LEASE_TTL_MAX_SECONDS: i64 = 9_000_000_000;

/// What is known of a living lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    /// The time to live that was granted.
    pub granted_ttl: Duration,
    /// What is left of it: zero between expiry and the deletion of the keys.
    pub remaining: Duration,
    /// The attached keys, in key order; empty unless asked for.
    pub keys: Vec<Bytes>,
}

/// A lease as it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The lease.
    pub id: LeaseId,
    /// The time to live that was granted: what was asked for, raised to the minimum (LE-1).
    pub ttl: Duration,
}

/// All living leases.
#[derive(Debug)]
pub(crate) struct Lessor {
    ttl_min: Duration,
    /// Rank `Lessor`. Held for one look-up or change; keys are deleted with it released.
    leases: Mutex<Leases>,
}

#[derive(Debug, Default)]
struct Leases {
    by_id: HashMap<LeaseId, Lease>,
    by_expiry: BTreeSet<(Duration, LeaseId)>,
    /// Numbers handed out so far: seeds the next.
    picked: u64,
    done: LeaseCounts,
}

/// How often something was done to leases, since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// Leases granted.
    pub granted: u64,
    /// Leases that ended, by request or because their time was over.
    pub ended: u64,
    /// Times that a lease was kept alive.
    pub renewed: u64,
}

#[derive(Debug)]
struct Lease {
    ttl: Duration,
    expiry: Duration,
    keys: BTreeSet<Entry>,
}

impl Lessor {
    pub(crate) fn new(ttl_min: Duration) -> Self {
        Self {
            ttl_min,
            leases: Mutex::new(Rank::Lessor, Leases::default()),
        }
    }

    pub(crate) fn grant(
        &self,
        id: Option<LeaseId>,
        ttl_seconds: i64,
        now: Duration,
    ) -> Result<LeaseGrant, LeaseError> {
        if ttl_seconds > LEASE_TTL_MAX_SECONDS {
            return Err(LeaseError::TtlTooLarge);
        }
        let asked = Duration::from_secs(u64::try_from(ttl_seconds).unwrap_or(0));
        let ttl = asked.max(self.ttl_min);
        let mut leases = self.leases.lock();
        let id = match id {
            Some(id) if leases.by_id.contains_key(&id) => return Err(LeaseError::AlreadyExists),
            Some(id) => id,
            None => leases.pick_id(),
        };
        let expiry = now.saturating_add(ttl);
        leases.by_id.insert(
            id,
            Lease {
                ttl,
                expiry,
                keys: BTreeSet::new(),
            },
        );
        leases.by_expiry.insert((expiry, id));
        leases.done.granted += 1;
        Ok(LeaseGrant { id, ttl })
    }

    /// Starts the time to live anew; returns it. An expired lease cannot be saved (LE-9).
    pub(crate) fn keep_alive(&self, id: LeaseId, now: Duration) -> Result<Duration, LeaseError> {
        let mut leases = self.leases.lock();
        let Leases {
            by_id,
            by_expiry,
            done,
            ..
        } = &mut *leases;
        let lease = by_id.get_mut(&id).ok_or(LeaseError::NotFound)?;
        if lease.expiry <= now {
            return Err(LeaseError::NotFound);
        }
        by_expiry.remove(&(lease.expiry, id));
        lease.expiry = now.saturating_add(lease.ttl);
        by_expiry.insert((lease.expiry, id));
        done.renewed += 1;
        Ok(lease.ttl)
    }

    pub(crate) fn status(
        &self,
        id: LeaseId,
        with_keys: bool,
        now: Duration,
    ) -> Result<LeaseStatus, LeaseError> {
        let leases = self.leases.lock();
        let lease = leases.by_id.get(&id).ok_or(LeaseError::NotFound)?;
        let keys = if with_keys {
            lease
                .keys
                .iter()
                .map(|key| Bytes::copy_from_slice(key.key()))
                .collect()
        } else {
            Vec::new()
        };
        let remaining = lease.expiry.saturating_sub(now);
        Ok(LeaseStatus {
            granted_ttl: lease.ttl,
            remaining,
            keys,
        })
    }

    /// All leases, the one that expires first in front (LE-11).
    pub(crate) fn ids(&self) -> Vec<LeaseId> {
        self.leases
            .lock()
            .by_expiry
            .iter()
            .map(|(_, id)| *id)
            .collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.leases.lock().by_id.len()
    }

    pub(crate) fn counts(&self) -> LeaseCounts {
        self.leases.lock().done
    }

    pub(crate) fn exists(&self, id: LeaseId) -> bool {
        self.leases.lock().by_id.contains_key(&id)
    }

    /// Forgets a lease and returns its keys in order. Only the holder of the sequencer may, and must
    /// then delete them.
    pub(crate) fn remove(&self, id: LeaseId) -> Result<BTreeSet<Entry>, LeaseError> {
        let mut leases = self.leases.lock();
        let lease = leases.by_id.remove(&id).ok_or(LeaseError::NotFound)?;
        leases.by_expiry.remove(&(lease.expiry, id));
        leases.done.ended += 1;
        Ok(lease.keys)
    }

    /// Moves a key from one lease to another. Only the holder of the sequencer may.
    pub(crate) fn move_key(&self, key: &Entry, from: Option<LeaseId>, to: Option<LeaseId>) {
        let mut leases = self.leases.lock();
        if let Some(lease) = from.and_then(|id| leases.by_id.get_mut(&id)) {
            lease.keys.remove(key);
        }
        if let Some(lease) = to.and_then(|id| leases.by_id.get_mut(&id)) {
            lease.keys.insert(key.clone());
        }
    }

    /// When the next lease expires.
    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        self.leases
            .lock()
            .by_expiry
            .first()
            .map(|(expiry, _)| *expiry)
    }

    /// A lease whose time is over, the longest expired first.
    pub(crate) fn expired(&self, now: Duration) -> Option<LeaseId> {
        let leases = self.leases.lock();
        leases
            .by_expiry
            .first()
            .filter(|(expiry, _)| *expiry <= now)
            .map(|(_, id)| *id)
    }
}

/// Ends a lease: deletes its keys, in key order and at one revision (LE-5, LE-6). Returns the revision
/// afterwards.
pub(crate) fn revoke(store: &Store, lease: LeaseId) -> Result<Revision, LeaseError> {
    let mut writer = Writer::begin(store);
    // LE-7: under the sequencer, so that a put that moves a key to another lease comes either before
    // or after both steps.
    let keys = store.lessor.remove(lease)?;
    on_fault!(store.faults, RevokeEarly, {
        drop(writer);
        writer = Writer::begin(store);
    });
    for key in keys {
        writer.delete(&KeyRange::One(Bytes::copy_from_slice(key.key())));
    }
    Ok(writer.commit())
}

impl Leases {
    /// A positive number that no lease has (LE-3).
    fn pick_id(&mut self) -> LeaseId {
        loop {
            let mut hasher = RandomState::new().build_hasher();
            hasher.write_u64(self.picked);
            self.picked += 1;
            let number = i64::try_from(hasher.finish() >> 1).unwrap_or(i64::MAX);
            match LeaseId::new(number) {
                Some(id) if !self.by_id.contains_key(&id) => return id,
                _ => {}
            }
        }
    }
}
