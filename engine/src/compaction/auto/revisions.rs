//! The policy that keeps the last `keep` revisions; etcd's `compactor.Revision`.

use std::time::Duration;

use super::{Check, Policy};
use crate::revision::Revision;

/// Compacts at the current revision minus `keep`, once per interval (AC-6).
#[derive(Debug)]
pub(super) struct Revisions {
    pub(super) keep: u64,
    pub(super) every: Duration,
}

impl Policy for Revisions {
    fn interval(&self) -> Duration {
        self.every
    }

    fn decide(&self, check: &Check<'_>) -> Option<Revision> {
        let keep = i64::try_from(self.keep).unwrap_or(i64::MAX);
        let revision = check.current.0.saturating_sub(keep);
        (revision > 0).then_some(Revision(revision))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::run;
    use crate::AutoCompaction;

    #[test]
    fn ac_6_revision_mode_compacts_at_current_minus_keep() {
        let policy = |keep| AutoCompaction::Revisions {
            keep,
            every: Duration::from_secs(300),
        };
        assert_eq!(run(policy(100), 700), [(300, 200), (600, 500)]);
        assert_eq!(run(policy(1000), 700), []);
    }
}
