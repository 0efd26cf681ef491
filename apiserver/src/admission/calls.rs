//! What a plugin that asks others has called for a request, and calls again.

use std::collections::BTreeSet;

use revstore_watch_cache::registry::JsonObject;

/// The calls of a plugin for one request, kept in its [`Memory`](super::attributes::Memory).
#[derive(Debug)]
pub(crate) struct Calls<K> {
    /// The object after the last call.
    last: Option<JsonObject>,
    /// What was called, and is called again after a later change.
    called: BTreeSet<K>,
    again: BTreeSet<K>,
}

impl<K> Default for Calls<K> {
    fn default() -> Self {
        Self {
            last: None,
            called: BTreeSet::new(),
            again: BTreeSet::new(),
        }
    }
}

impl<K: Ord> Calls<K> {
    /// Begins the second round. If others have changed the object since the last call, all is called again.
    pub(crate) fn begin_again(&mut self, object: Option<&JsonObject>) {
        if self.last.as_ref() != object {
            self.repeat();
        }
    }

    /// Lets everything that was called until now be called again.
    pub(crate) fn repeat(&mut self) {
        self.again.append(&mut self.called);
    }

    /// Notes a call that a later change repeats.
    pub(crate) fn add(&mut self, key: K) {
        self.called.insert(key);
    }

    /// Returns whether something is called in the second round.
    pub(crate) fn is_due(&self, key: &K) -> bool {
        self.again.contains(key)
    }

    /// Ends a round with the object as it is then.
    pub(crate) fn end(&mut self, object: Option<&JsonObject>) {
        self.last = object.cloned();
    }
}
