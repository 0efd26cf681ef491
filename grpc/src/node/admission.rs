//! Admission: the limits, the space quota and the alarms that a request must pass before the engine
//! executes it.
//!
//! etcd proposes such requests to Raft. The checks correspond to `EtcdServer.processInternalRaftRequest` for
//! the size, `quotaKVServer` for the quota, and `applierV3Capped` and `applierV3Corrupt` for the alarms.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use revstore_proto::etcdserverpb::{AlarmMember, AlarmType};
use tracing::warn;

use crate::node::Node;
use crate::status::EtcdError;

/// The difference between etcd's limit for requests and its limit for messages (LI-2).
const MESSAGE_ALLOWANCE_BYTES: usize = 512 * 1024;

/// The size of a Raft proposal without the request that it contains (LI-1).
const PROPOSAL_OVERHEAD_BYTES: usize = 18;

/// The default memory of answers under way, in bytes. With the default quota it suffices for an answer
/// with every key of the store.
const ANSWER_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Limits on the size of requests and of the history, and on what heavy requests take.
///
/// ```
/// use revstore_grpc::Limits;
/// let limits = Limits::default().request_bytes_max(16 * 1024 * 1024).quota_bytes(None);
/// assert_eq!(limits.txn_ops_max, 128);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum size of a write, in bytes. Messages and the fragments of a watch response may be 512 KiB
    /// larger.
    pub request_bytes_max: usize,
    /// The maximum length of a list in a transaction.
    pub txn_ops_max: usize,
    /// The size of the history, in bytes, above which writes fail; `None` for no quota.
    pub quota_bytes: Option<u64>,
    /// The number of threads for heavy requests, such as ranges of more than 10,000 keys and hashes; at
    /// least 1. Further ones wait in the order of arrival. As many threads encode the parts of snapshots and
    /// large JSON answers.
    pub heavy_workers: usize,
    /// The memory of answers under way, in bytes, apart from the values, which the store holds anyway.
    /// Requests with large answers wait for it in the order of arrival. One that needs more alone fails.
    /// An answer whose client does not read it for 10 s ends if another request waits for its memory.
    pub answer_bytes_max: u64,
}

impl Default for Limits {
    /// Returns etcd's limits: 1.5 MiB, 128 operations, 2 GiB. There are as many heavy workers as
    /// processors less one, and 256 MiB for answers.
    fn default() -> Self {
        // LI-1, TXN-1, MT-11
        Self {
            request_bytes_max: 1_572_864,
            txn_ops_max: 128,
            quota_bytes: Some(2 * 1024 * 1024 * 1024),
            heavy_workers: default_heavy_workers(),
            answer_bytes_max: ANSWER_BYTES_MAX,
        }
    }
}

/// Returns the number of processors less one, at least 1. One processor then remains for small requests.
fn default_heavy_workers() -> usize {
    let processors = std::thread::available_parallelism();
    processors.map_or(1, |processors| (processors.get() - 1).max(1))
}

impl Limits {
    /// Sets the maximum size of a write.
    #[must_use]
    pub fn request_bytes_max(self, request_bytes_max: usize) -> Self {
        Self {
            request_bytes_max,
            ..self
        }
    }

    /// Sets the maximum length of a list in a transaction.
    #[must_use]
    pub fn txn_ops_max(self, txn_ops_max: usize) -> Self {
        Self {
            txn_ops_max,
            ..self
        }
    }

    /// Sets the size of the history above which writes fail.
    #[must_use]
    pub fn quota_bytes(self, quota_bytes: Option<u64>) -> Self {
        Self {
            quota_bytes,
            ..self
        }
    }

    /// Sets the number of threads for heavy requests.
    #[must_use]
    pub fn heavy_workers(self, heavy_workers: usize) -> Self {
        Self {
            heavy_workers,
            ..self
        }
    }

    /// Sets the memory of answers under way.
    #[must_use]
    pub fn answer_bytes_max(self, answer_bytes_max: u64) -> Self {
        Self {
            answer_bytes_max,
            ..self
        }
    }

    /// Returns the maximum size of a message, in bytes: 512 KiB more than that of a write.
    // LI-2
    pub fn message_bytes_max(&self) -> usize {
        self.request_bytes_max
            .saturating_add(MESSAGE_ALLOWANCE_BYTES)
    }

    /// Returns whether a request of this size may be proposed (LI-1).
    fn allow(&self, request_bytes: usize) -> bool {
        request_bytes.saturating_add(PROPOSAL_OVERHEAD_BYTES) <= self.request_bytes_max
    }
}

/// A request that the members of a cluster would agree on by Raft.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Proposal {
    /// The size of the encoded request.
    pub(crate) request_bytes: usize,
    /// The number of bytes that the request adds to the history; `None` if it cannot add to it. The quota
    /// applies only if this is set.
    pub(crate) growth_bytes: Option<u64>,
}

impl Node {
    /// Admits a proposal. Counts each proposal that would be added to the Raft log, also if it fails later
    /// (DM-13).
    pub(crate) fn admit(&self, proposal: Proposal) -> Result<(), EtcdError> {
        self.check_size(proposal.request_bytes)?;
        if let Some(growth_bytes) = proposal.growth_bytes {
            self.check_quota(growth_bytes);
        }
        self.raft_index.advance();
        self.alarms.check_refusal()?;
        if proposal.growth_bytes.is_some() && self.alarms.is_raised(AlarmKind::NoSpace) {
            return Err(EtcdError::NoSpace);
        }
        Ok(())
    }

    /// Admits a change of users and roles. The quota and the alarms do not apply to it. Returns the Raft
    /// index before it.
    pub(crate) fn admit_auth(&self, request_bytes: usize) -> Result<u64, EtcdError> {
        self.check_size(request_bytes)?;
        Ok(self.raft_index.advance())
    }

    fn check_size(&self, request_bytes: usize) -> Result<(), EtcdError> {
        if self.limits.allow(request_bytes) {
            Ok(())
        } else {
            Err(EtcdError::RequestTooLarge)
        }
    }

    /// MT-11: the first write above the quota raises the alarm, and then fails because of it.
    fn check_quota(&self, growth_bytes: u64) {
        let Some(quota_bytes) = self.limits.quota_bytes else {
            return;
        };
        let history_bytes = self.engine.history_bytes();
        if history_bytes.saturating_add(growth_bytes) > quota_bytes {
            self.alarms.raise(Alarm {
                kind: AlarmKind::NoSpace,
                member_id: self.identity.member_id,
            });
        }
    }
}

/// The number of proposals: writes, leases, alarms and compactions, including failed ones (DM-13). The
/// response of Status reports it as the Raft index.
#[derive(Debug)]
pub(crate) struct RaftIndex(AtomicU64);

impl RaftIndex {
    /// Creates the index of a new node.
    pub(crate) fn new() -> Self {
        Self::at(4)
    }

    pub(crate) fn at(index: u64) -> Self {
        Self(AtomicU64::new(index))
    }

    /// Counts one proposal and returns the index before it.
    pub(crate) fn advance(&self) -> u64 {
        // Relaxed: the counter does not order other memory accesses.
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}

/// The alarm CORRUPT is raised.
const CORRUPT: u8 = 1;
/// The disk of the journal is full.
const JOURNAL_FULL: u8 = 2;
/// The journal fails for another reason.
const JOURNAL_FAILED: u8 = 4;

#[cold]
fn refusal_error(refusal: u8) -> EtcdError {
    if refusal & CORRUPT != 0 {
        EtcdError::Corrupt
    } else if refusal & JOURNAL_FULL != 0 {
        EtcdError::JournalFull
    } else {
        EtcdError::JournalFailed
    }
}

/// The reason for which the journal cannot store writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalFailure {
    /// Its disk is full.
    Full,
    /// Any other.
    Failed,
}

impl From<JournalFailure> for EtcdError {
    fn from(failure: JournalFailure) -> Self {
        match failure {
            JournalFailure::Full => Self::JournalFull,
            JournalFailure::Failed => Self::JournalFailed,
        }
    }
}

/// A kind of alarm. Writes fail while an alarm is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmKind {
    /// The space quota is exceeded.
    // MT-9
    NoSpace,
    /// Stored data is damaged.
    // MT-10
    Corrupt,
}

impl fmt::Display for AlarmKind {
    /// Writes the name as in the responses to clients and health probes.
    // HT-6
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSpace => "NOSPACE",
            Self::Corrupt => "CORRUPT",
        })
    }
}

/// An alarm of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alarm {
    /// The reason for the alarm.
    pub kind: AlarmKind,
    /// The id of the member. It is taken literally: 0 does not mean "all members".
    // MT-8
    pub member_id: u64,
}

impl Alarm {
    /// Returns the kind and the member as in etcd's log.
    fn log_fields(&self) -> (String, String) {
        (self.kind.to_string(), format!("{:x}", self.member_id))
    }
}

impl Alarm {
    /// Decodes an alarm; `None` for a kind that this server does not have.
    pub(crate) fn of(member: &AlarmMember) -> Option<Self> {
        let kind = match AlarmType::try_from(member.alarm).ok()? {
            AlarmType::Nospace => AlarmKind::NoSpace,
            AlarmType::Corrupt => AlarmKind::Corrupt,
            AlarmType::None => return None,
        };
        Some(Self {
            kind,
            member_id: member.member_id,
        })
    }
}

impl fmt::Display for Alarm {
    /// Writes the alarm as in the response of Status, with a space at the end.
    // MT-3
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memberID:{} alarm:{} ", self.member_id, self.kind)
    }
}

impl From<Alarm> for AlarmMember {
    fn from(alarm: Alarm) -> Self {
        let kind = match alarm.kind {
            AlarmKind::NoSpace => AlarmType::Nospace,
            AlarmKind::Corrupt => AlarmType::Corrupt,
        };
        Self {
            member_id: alarm.member_id,
            alarm: kind.into(),
        }
    }
}

/// The raised alarms of all members. Writes fail while any of them is raised.
#[derive(Debug, Default)]
pub struct Alarms {
    no_space: AtomicBool,
    /// The reasons to refuse all writes, as bits: one load for each write, whatever their number.
    refusal: AtomicU8,
    /// A leaf lock, held for one change or copy. Writes read the flags instead.
    raised: Mutex<BTreeSet<Alarm>>,
}

impl Alarms {
    /// Returns whether any member has an alarm of this kind. Costs one atomic load.
    pub fn is_raised(&self, kind: AlarmKind) -> bool {
        // Acquire: pairs with the Release in `update`, so that after a raised flag the alarm is in the set.
        match kind {
            AlarmKind::NoSpace => self.no_space.load(Ordering::Acquire),
            AlarmKind::Corrupt => self.refusal.load(Ordering::Acquire) & CORRUPT != 0,
        }
    }

    /// Returns an error if a reason to refuse all writes exists.
    #[inline]
    fn check_refusal(&self) -> Result<(), EtcdError> {
        // Acquire: as in `is_raised`.
        let refusal = self.refusal.load(Ordering::Acquire);
        if refusal == 0 {
            return Ok(());
        }
        Err(refusal_error(refusal))
    }

    /// Returns an error if the journal fails. Unlike [`Node::admit`], this ignores alarms.
    pub(crate) fn check_journal(&self) -> Result<(), EtcdError> {
        match self.refusal.load(Ordering::Acquire) & !CORRUPT {
            0 => Ok(()),
            refusal => Err(refusal_error(refusal)),
        }
    }

    /// Sets or clears the failure of the journal.
    pub(crate) fn set_journal_failure(&self, failure: Option<JournalFailure>) {
        // Under the lock, so that the two changes are one for other changes.
        let _raised = self.raised.lock();
        let bit = match failure {
            None => 0,
            Some(JournalFailure::Full) => JOURNAL_FULL,
            Some(JournalFailure::Failed) => JOURNAL_FAILED,
        };
        let alarms = self.refusal.load(Ordering::Acquire) & CORRUPT;
        self.refusal.store(alarms | bit, Ordering::Release);
    }

    /// Returns all alarms, or those of one kind, ordered by kind and member.
    // MT-7
    pub fn list(&self, kind: Option<AlarmKind>) -> Vec<Alarm> {
        let raised = self.raised.lock();
        let is_listed = |alarm: &&Alarm| kind.is_none_or(|kind| kind == alarm.kind);
        raised.iter().filter(is_listed).copied().collect()
    }

    /// Raises an alarm, and logs it if no member had an alarm of this kind.
    pub fn raise(&self, alarm: Alarm) {
        let (has_changed, was_raised) = self.update(alarm.kind, |raised| raised.insert(alarm));
        if has_changed && !was_raised {
            let (alarm, from) = alarm.log_fields();
            warn!(alarm, from, "alarm raised");
        }
    }

    /// Clears an alarm and returns whether it was raised. Logs it if no other member has an alarm of this kind.
    pub fn clear(&self, alarm: Alarm) -> bool {
        let (has_changed, _) = self.update(alarm.kind, |raised| raised.remove(&alarm));
        if has_changed && !self.is_raised(alarm.kind) {
            let (alarm, from) = alarm.log_fields();
            warn!(alarm, from, "alarm disarmed");
        }
        has_changed
    }

    /// Changes the alarms. Returns whether they have changed, and whether there was an alarm of this kind before.
    fn update(
        &self,
        kind: AlarmKind,
        change: impl FnOnce(&mut BTreeSet<Alarm>) -> bool,
    ) -> (bool, bool) {
        let mut raised = self.raised.lock();
        let was_raised = self.is_raised(kind);
        let has_changed = change(&mut raised);
        let any = raised.iter().any(|alarm| alarm.kind == kind);
        // Release: pairs with the Acquire in `is_raised`. The flag is stored under the lock, so that it
        // matches the last change.
        match kind {
            AlarmKind::NoSpace => self.no_space.store(any, Ordering::Release),
            AlarmKind::Corrupt => {
                let others = self.refusal.load(Ordering::Acquire) & !CORRUPT;
                let bit = if any { CORRUPT } else { 0 };
                self.refusal.store(others | bit, Ordering::Release);
            }
        }
        (has_changed, was_raised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn li_1_a_proposal_is_18_bytes_larger_than_its_request() {
        let limits = Limits::default();
        assert!(limits.allow(1_572_846) && !limits.allow(1_572_847));
        assert!(!limits.allow(usize::MAX));
        assert_eq!(limits.message_bytes_max(), 2_097_152);
    }

    #[test]
    fn mt_8_an_alarm_is_cleared_for_the_member_that_raised_it() {
        let alarms = Alarms::default();
        let of = |member_id| Alarm {
            kind: AlarmKind::Corrupt,
            member_id,
        };
        alarms.raise(of(5));
        assert!(!alarms.clear(of(0)));
        assert!(alarms.is_raised(AlarmKind::Corrupt) && !alarms.is_raised(AlarmKind::NoSpace));
        assert!(alarms.clear(of(5)) && !alarms.is_raised(AlarmKind::Corrupt));
    }

    #[test]
    fn mt_3_status_shows_an_alarm_with_member_and_kind() {
        let alarm = Alarm {
            kind: AlarmKind::Corrupt,
            member_id: 5,
        };
        assert_eq!(alarm.to_string(), "memberID:5 alarm:CORRUPT ");
    }
}
