//! Alarms: states of the node that forbid writing until somebody clears them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// What an alarm is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmKind {
    /// The space quota is used up (MT-9).
    NoSpace,
    /// Stored data was found damaged (MT-10).
    Corrupt,
}

impl fmt::Display for AlarmKind {
    /// The name that clients and probes know (HT-6).
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
    /// What it is about.
    pub kind: AlarmKind,
    /// The member, taken literally: 0 is a member too (MT-8).
    pub member_id: u64,
}

impl fmt::Display for Alarm {
    /// MT-3: as Status tells it, with a blank at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memberID:{} alarm:{} ", self.member_id, self.kind)
    }
}

/// All alarms that are raised. Any member's counts: the node stops writing for it.
#[derive(Debug, Default)]
pub struct Alarms {
    no_space: AtomicBool,
    corrupt: AtomicBool,
    /// A leaf lock, held for one change or copy. Writes look at the flags instead.
    raised: Mutex<BTreeSet<Alarm>>,
}

impl Alarms {
    /// Whether any member has an alarm of this kind.
    pub fn is_raised(&self, kind: AlarmKind) -> bool {
        // Acquire: pairs with the Release in `update`: who learned of a raised alarm finds it.
        self.flag(kind).load(Ordering::Acquire)
    }

    /// All alarms, or those of one kind (MT-7).
    pub fn list(&self, kind: Option<AlarmKind>) -> Vec<Alarm> {
        let raised = self.raised.lock();
        let wanted = |alarm: &&Alarm| kind.is_none_or(|kind| kind == alarm.kind);
        raised.iter().filter(wanted).copied().collect()
    }

    /// Raises an alarm.
    pub fn raise(&self, alarm: Alarm) {
        self.update(alarm.kind, |raised| raised.insert(alarm));
    }

    /// Clears an alarm; says whether it was raised.
    pub fn clear(&self, alarm: Alarm) -> bool {
        self.update(alarm.kind, |raised| raised.remove(&alarm))
    }

    fn update(&self, kind: AlarmKind, change: impl FnOnce(&mut BTreeSet<Alarm>) -> bool) -> bool {
        let mut raised = self.raised.lock();
        let changed = change(&mut raised);
        let any = raised.iter().any(|alarm| alarm.kind == kind);
        // Release: pairs with the Acquire in `is_raised`. Under the lock, so that the flag says what
        // the last change left.
        self.flag(kind).store(any, Ordering::Release);
        changed
    }

    fn flag(&self, kind: AlarmKind) -> &AtomicBool {
        match kind {
            AlarmKind::NoSpace => &self.no_space,
            AlarmKind::Corrupt => &self.corrupt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Alarm, AlarmKind, Alarms};

    #[test]
    fn mt_8_an_alarm_is_cleared_for_the_member_it_was_raised_for() {
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
    fn mt_3_status_tells_of_an_alarm_in_these_words() {
        let alarm = Alarm {
            kind: AlarmKind::Corrupt,
            member_id: 5,
        };
        assert_eq!(alarm.to_string(), "memberID:5 alarm:CORRUPT ");
    }
}
