//! Leases and the keys attached to them; etcd's `lessor`.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hasher;
use std::time::Duration;

use bytes::Bytes;

use super::keys::{KeyList, LeaseKeys};
use crate::error::LeaseError;
use crate::fault::{Faults, on_fault};
use crate::history::Entry;
use crate::history::LeaseId;
use crate::key::KeyRange;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::{Mutex, Rank, random_hasher};
use crate::time::{DueWork, PendingWork};
use crate::txn::Writer;

/// The largest time to live that a request may have, in seconds.
pub const LEASE_TTL_MAX_SECONDS: i64 = 9_000_000_000;

/// The state of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    /// The time to live that was granted.
    pub granted_ttl: Duration,
    /// The remaining time. Zero between the expiry and the deletion of the keys.
    pub remaining: Duration,
    /// The attached keys, in key order; empty if they were not requested.
    pub keys: Vec<Bytes>,
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The id of the lease.
    pub id: LeaseId,
    /// The granted time to live: the requested one, or the minimum if that is larger.
    pub ttl: Duration,
}

/// A lease with the time that it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLeft {
    /// The lease.
    pub lease: LeaseGrant,
    /// The remaining time, by the clock of the store. Zero between the expiry and the deletion of the
    /// keys.
    pub remaining: Duration,
}

impl LeaseLeft {
    /// Returns a lease with its full time to live.
    pub fn full(lease: LeaseGrant) -> Self {
        Self {
            lease,
            remaining: lease.ttl,
        }
    }
}

/// The number of a grant. Unlike a [`LeaseId`], it is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantNumber(pub(super) u64);

/// A lease that was granted, with the number that distinguishes it from other leases with its id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) lease: LeaseGrant,
    pub(crate) number: GrantNumber,
}

/// The leases of a store and the keys attached to them.
#[derive(Debug)]
pub(crate) struct Lessor {
    ttl_min: Duration,
    /// Rank `Lessor`. Held for one look-up or change. Keys are deleted after it is released.
    leases: Mutex<Leases>,
}

#[derive(Debug, Default)]
struct Leases {
    by_id: HashMap<LeaseId, Lease>,
    by_expiry: BTreeSet<(Duration, LeaseId)>,
    /// The latest time of any operation. Callers read the clock before they take the lock, so an
    /// operation that waited for the lock may bring an earlier time than the one before it. It then
    /// takes place at this time: a lease that was seen expired is not renewed any more.
    latest: Duration,
    /// Whether leases no longer expire, because the store refuses writes.
    is_expiry_stopped: bool,
    /// The number of ids generated so far, from which the next one is derived.
    generated_ids: u64,
    /// The number of grants, including those of leases that were restored.
    grants: u64,
    counts: LeaseCounts,
    /// The changes that the follower of the store has not taken yet; `None` without a follower.
    changes: Option<Vec<LeaseChange>>,
}

/// A change of the leases of a store, as a [`Follower`](crate::Follower) gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// A lease was granted.
    Granted(LeaseGrant),
    /// A lease was revoked or has expired.
    Ended {
        /// The id of the lease.
        id: LeaseId,
        /// The revision that deletes the keys of the lease; the current one if it had no keys.
        revision: Revision,
    },
}

/// The numbers of operations on leases since the engine was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// The number of leases that were granted.
    pub granted: u64,
    /// The number of leases that were revoked or have expired.
    pub ended: u64,
    /// The number of leases that have expired.
    pub expired: u64,
    /// The number of keep-alives.
    pub renewed: u64,
}

#[derive(Debug)]
struct Lease {
    number: GrantNumber,
    ttl: Duration,
    expiry: Duration,
    keys: LeaseKeys,
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
    ) -> Result<Granted, LeaseError> {
        if ttl_seconds > LEASE_TTL_MAX_SECONDS {
            return Err(LeaseError::TtlTooLarge);
        }
        let requested = Duration::from_secs(u64::try_from(ttl_seconds).unwrap_or(0));
        // LE-1
        let ttl = requested.max(self.ttl_min);
        let mut leases = self.leases.lock();
        let now = leases.latest(now);
        let id = match id {
            Some(id) if leases.by_id.contains_key(&id) => return Err(LeaseError::AlreadyExists),
            Some(id) => id,
            None => leases.generate_id(),
        };
        leases.counts.granted += 1;
        let lease = LeaseGrant { id, ttl };
        if let Some(changes) = &mut leases.changes {
            changes.push(LeaseChange::Granted(lease));
        }
        let number = leases.add(lease, now.saturating_add(ttl));
        Ok(Granted { lease, number })
    }

    /// Adds leases of an earlier store whose ids are different, for which the new one has no others.
    pub(crate) fn restore(&self, restored: impl Iterator<Item = LeaseLeft>, now: Duration) {
        let mut leases = self.leases.lock();
        let now = leases.latest(now);
        for LeaseLeft { lease, remaining } in restored {
            leases.add(lease, now.saturating_add(remaining));
        }
    }

    /// Returns the minimum time to live.
    pub(crate) fn ttl_min(&self) -> Duration {
        self.ttl_min
    }

    /// Sets the keys of a lease that has none, in order, if it exists.
    pub(crate) fn restore_keys(&self, id: LeaseId, keys: impl Iterator<Item = Entry>) {
        if let Some(lease) = self.leases.lock().by_id.get_mut(&id) {
            lease.keys = LeaseKeys::of(keys);
        }
    }

    /// Begins to keep changes for a follower. Returns the leases of this time, or `None` if there is
    /// a follower. The caller must hold the sequencer.
    pub(crate) fn follow(&self) -> Option<Vec<LeaseGrant>> {
        let mut leases = self.leases.lock();
        if leases.changes.is_some() {
            return None;
        }
        leases.changes = Some(Vec::new());
        Some(leases.all())
    }

    /// Returns all leases, in the order of their expiry.
    pub(crate) fn all_left(&self, now: Duration) -> Vec<LeaseLeft> {
        let mut leases = self.leases.lock();
        let now = leases.latest(now);
        let Leases {
            by_id, by_expiry, ..
        } = &*leases;
        let left = by_expiry.iter().filter_map(|(expiry, id)| {
            let ttl = by_id.get(id)?.ttl;
            let lease = LeaseGrant { id: *id, ttl };
            let remaining = expiry.saturating_sub(now);
            Some(LeaseLeft { lease, remaining })
        });
        left.collect()
    }

    /// Takes the oldest changes, in order, up to the first one whose revision is above `through`.
    pub(crate) fn take_changes(&self, through: Revision) -> Vec<LeaseChange> {
        let mut leases = self.leases.lock();
        let Some(changes) = &mut leases.changes else {
            return Vec::new();
        };
        let is_later = |change: &LeaseChange| matches!(change, LeaseChange::Ended { revision, .. } if *revision > through);
        let end = changes.iter().position(is_later).unwrap_or(changes.len());
        let later = changes.split_off(end);
        std::mem::replace(changes, later)
    }

    pub(crate) fn unfollow(&self) {
        self.leases.lock().changes = None;
    }

    /// Restarts the time to live, and returns it. An expired lease stays expired (LE-9). With a
    /// number, only the lease of that grant is found.
    pub(crate) fn keep_alive(
        &self,
        faults: Faults,
        id: LeaseId,
        of: Option<GrantNumber>,
        now: Duration,
    ) -> Result<Duration, LeaseError> {
        let mut leases = self.leases.lock();
        let mut latest = leases.latest(now);
        on_fault!(faults, RenewInThePast, latest = now);
        let Leases {
            by_id,
            by_expiry,
            counts,
            ..
        } = &mut *leases;
        let lease = by_id.get_mut(&id).ok_or(LeaseError::NotFound)?;
        if lease.expiry <= latest || !lease.is_of(of) {
            return Err(LeaseError::NotFound);
        }
        by_expiry.remove(&(lease.expiry, id));
        lease.expiry = latest.saturating_add(lease.ttl);
        by_expiry.insert((lease.expiry, id));
        counts.renewed += 1;
        Ok(lease.ttl)
    }

    /// Returns the state of a lease, with all keys that it has at one moment if they are requested. Many
    /// keys are copied in steps, between which other threads can take the lock.
    pub(crate) fn status(
        &self,
        id: LeaseId,
        with_keys: bool,
        now: Duration,
    ) -> Result<LeaseStatus, LeaseError> {
        let mut keys = KeyList::default();
        loop {
            let mut leases = self.leases.lock();
            let now = leases.latest(now);
            let lease = leases.by_id.get(&id).ok_or(LeaseError::NotFound)?;
            if !with_keys || keys.step(lease.number, &lease.keys) {
                return Ok(LeaseStatus {
                    granted_ttl: lease.ttl,
                    remaining: lease.expiry.saturating_sub(now),
                    keys: keys.into_keys(),
                });
            }
        }
    }

    /// Returns the number of keys of a lease; 0 if it does not exist.
    pub(crate) fn key_count(&self, id: LeaseId) -> usize {
        let leases = self.leases.lock();
        leases.by_id.get(&id).map_or(0, |lease| lease.keys.len())
    }

    /// Returns all leases, in the order of their expiry (LE-11).
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
        self.leases.lock().counts
    }

    pub(crate) fn exists(&self, id: LeaseId) -> bool {
        self.leases.lock().by_id.contains_key(&id)
    }

    /// Removes a lease and returns its keys in order. The caller must hold the sequencer, and must
    /// delete the keys. With a number, only the lease of that grant is found.
    fn remove(
        &self,
        id: LeaseId,
        of: Option<GrantNumber>,
        current: Revision,
    ) -> Result<LeaseKeys, LeaseError> {
        let mut leases = self.leases.lock();
        let lease = leases.by_id.get(&id);
        if !lease.is_some_and(|lease| lease.is_of(of)) {
            return Err(LeaseError::NotFound);
        }
        leases.remove(id, current).ok_or(LeaseError::NotFound)
    }

    /// As [`remove`](Self::remove), for the lease that expires first, if it has expired.
    fn remove_expired(&self, now: Duration, current: Revision) -> Option<LeaseKeys> {
        let mut leases = self.leases.lock();
        let id = leases.first_expired(now)?;
        leases.counts.expired += 1;
        leases.remove(id, current)
    }

    /// Moves a key from one lease to another. The caller must hold the sequencer.
    pub(crate) fn move_key(&self, key: &Entry, from: Option<LeaseId>, to: Option<LeaseId>) {
        let mut leases = self.leases.lock();
        if let Some(lease) = from.and_then(|id| leases.by_id.get_mut(&id)) {
            lease.keys.remove(key);
        }
        if let Some(lease) = to.and_then(|id| leases.by_id.get_mut(&id)) {
            lease.keys.insert(key.clone());
        }
    }

    /// Returns the time at which the next lease expires.
    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        let leases = self.leases.lock();
        if leases.is_expiry_stopped {
            return None;
        }
        leases.by_expiry.first().map(|(expiry, _)| *expiry)
    }

    /// Lists the leases that expire first.
    pub(crate) fn pending(&self, max: usize) -> PendingWork {
        let leases = self.leases.lock();
        if leases.is_expiry_stopped {
            return PendingWork::default();
        }
        let first: Vec<_> = leases.by_expiry.iter().take(max).copied().collect();
        let more = leases.by_expiry.len() - first.len();
        drop(leases);
        let work = first.into_iter().map(|(due, id)| DueWork {
            due,
            kind: "lease",
            id: format!("{:016x}", id.get()),
        });
        PendingWork {
            work: work.collect(),
            more: more as u64,
        }
    }

    fn stop_expiry(&self) {
        self.leases.lock().is_expiry_stopped = true;
    }

    /// Lets leases expire again, in a store that takes writes again.
    pub(crate) fn resume_expiry(&self) {
        self.leases.lock().is_expiry_stopped = false;
    }

    /// Returns the lease with the earliest expiry, if it has expired.
    fn first_expired(&self, now: Duration) -> Option<LeaseId> {
        self.leases.lock().first_expired(now)
    }
}

/// Ends a lease: deletes its keys, in key order and at one revision (LE-5, LE-6). Returns the
/// revision afterwards. With a number, only the lease of that grant is found.
pub(crate) fn revoke(
    store: &Store,
    lease: LeaseId,
    of: Option<GrantNumber>,
) -> Result<Revision, LeaseError> {
    let mut writer = Writer::begin(store)?;
    // LE-7: under the sequencer, so that a put that moves a key to another lease comes either
    // before or after both steps.
    let keys = store.lessor.remove(lease, of, writer.revision())?;
    on_fault!(store.faults, RevokeOutsideSequencer, {
        drop(writer);
        writer = Writer::begin(store)?;
    });
    Ok(delete_keys(writer, keys))
}

/// Ends the lease that expires first, if it has expired (LE-5). Returns whether there was one.
pub(crate) fn expire_first(store: &Store, now: Duration) -> bool {
    // Without the sequencer, which most calls do not need.
    let Some(expired) = store.lessor.first_expired(now) else {
        return false;
    };
    on_fault!(
        store.faults,
        ExpireUnchecked,
        return revoke(store, expired, None).is_ok()
    );
    let Ok(writer) = Writer::begin(store) else {
        // A store that refuses writes deletes no keys, so its leases do not end.
        store.lessor.stop_expiry();
        return false;
    };
    // Decided again: since the first look the lease may have been renewed, or revoked and its id
    // granted again.
    if let Some(keys) = store.lessor.remove_expired(now, writer.revision()) {
        delete_keys(writer, keys);
    }
    true
}

fn delete_keys(mut writer: Writer<'_>, keys: LeaseKeys) -> Revision {
    for key in keys {
        writer.delete(&KeyRange::One(Bytes::copy_from_slice(key.key())));
    }
    writer.commit()
}

impl Lease {
    /// Returns whether the lease is the one of a grant; without a number, any lease is.
    fn is_of(&self, grant: Option<GrantNumber>) -> bool {
        grant.is_none_or(|number| self.number == number)
    }
}

impl Leases {
    /// Returns the time at which an operation takes place that read `now` from the clock.
    fn latest(&mut self, now: Duration) -> Duration {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn first_expired(&mut self, now: Duration) -> Option<LeaseId> {
        if self.is_expiry_stopped {
            return None;
        }
        let now = self.latest(now);
        let (_, id) = self
            .by_expiry
            .first()
            .filter(|(expiry, _)| *expiry <= now)?;
        Some(*id)
    }

    fn all(&self) -> Vec<LeaseGrant> {
        let by_id = self.by_id.iter();
        by_id
            .map(|(id, it)| LeaseGrant {
                id: *id,
                ttl: it.ttl,
            })
            .collect()
    }

    /// Adds a lease, whose id is free.
    fn add(&mut self, LeaseGrant { id, ttl }: LeaseGrant, expiry: Duration) -> GrantNumber {
        self.grants += 1;
        let number = GrantNumber(self.grants);
        let lease = Lease {
            number,
            ttl,
            expiry,
            keys: LeaseKeys::default(),
        };
        self.by_id.insert(id, lease);
        self.by_expiry.insert((expiry, id));
        number
    }

    /// Removes a lease and returns its keys, which the caller deletes at the revision after the
    /// current one.
    fn remove(&mut self, id: LeaseId, current: Revision) -> Option<LeaseKeys> {
        let lease = self.by_id.remove(&id)?;
        self.by_expiry.remove(&(lease.expiry, id));
        self.counts.ended += 1;
        if let Some(changes) = &mut self.changes {
            let revision = if lease.keys.is_empty() {
                current
            } else {
                current.next()
            };
            changes.push(LeaseChange::Ended { id, revision });
        }
        Some(lease.keys)
    }

    /// Returns a random positive id that is not in use (LE-3).
    fn generate_id(&mut self) -> LeaseId {
        loop {
            let mut hasher = random_hasher();
            hasher.write_u64(self.generated_ids);
            self.generated_ids += 1;
            let number = i64::try_from(hasher.finish() >> 1).unwrap_or(i64::MAX);
            match LeaseId::new(number) {
                Some(id) if !self.by_id.contains_key(&id) => return id,
                _ => {}
            }
        }
    }
}
