//! What requests in flight were granted.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The namespace and the name of a quota.
type Key = (String, String);

/// The number of requests in flight for which each quota was raised, and whose objects may not be stored yet. The
/// requests at a time are limited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grants(Arc<Mutex<BTreeMap<Key, usize>>>);

impl Grants {
    /// Notes a request before a quota is raised for it, until the grant is dropped.
    pub(crate) fn begin(&self, namespace: &str, name: &str) -> Grant {
        let key = (namespace.to_owned(), name.to_owned());
        *self.0.lock().entry(key.clone()).or_default() += 1;
        Grant {
            all: self.clone(),
            key,
        }
    }

    /// Returns whether the quota was raised for a request that has not ended.
    pub(crate) fn are_pending(&self, namespace: &str, name: &str) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        self.0.lock().contains_key(&key)
    }
}

/// What one request was granted of one quota.
#[derive(Debug)]
pub(crate) struct Grant {
    all: Grants,
    key: Key,
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(number) = all.get_mut(&self.key) {
            *number -= 1;
            if *number == 0 {
                all.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_pending_until_its_last_grant_is_dropped() {
        let grants = Grants::default();
        let first = grants.begin("n", "q");
        let second = grants.begin("n", "q");
        drop(first);
        assert!(grants.are_pending("n", "q") && !grants.are_pending("n", "other"));
        drop(second);
        assert!(!grants.are_pending("n", "q"));
    }
}
