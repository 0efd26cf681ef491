//! Interests: the properties by which the watchers of an event are found (WC-121, WC-146).
//! Corresponds to the `indexedWatchers` and trigger functions of Kubernetes' Cacher.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::cache::objects::index::ResolvedIndex;
use crate::encode::object::StoredObject;
use crate::selector::ObjectFilter;
use crate::wake::Waiter;

/// A property of objects by which watchers are found. Every watcher is registered under the narrowest
/// one that covers its filter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Interest<'a> {
    All,
    Namespace(&'a str),
    Name(&'a str),
    Object(&'a str, &'a str),
    /// The number of an index, and a value of it.
    Index(usize, &'a str),
}

/// The number of variants of [`Interest`]. Variants without watchers are not looked up.
const VARIANTS: usize = 5;

impl Interest<'_> {
    fn variant(&self) -> usize {
        match self {
            Self::All => 0,
            Self::Namespace(_) => 1,
            Self::Name(_) => 2,
            Self::Object(..) => 3,
            Self::Index(..) => 4,
        }
    }
}

/// The watchers of a resource, by interest.
///
/// Interests are stored as hashes. If two interests have the same hash, the watchers of both are
/// woken for the events of each, and their filters drop the events that do not match.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    hasher: RandomState,
    /// The watchers by the hash of their interest; each vector is sorted by id.
    by_hash: HashMap<u64, Vec<Arc<Waiter>>>,
    /// The number of watchers per variant of [`Interest`].
    counts: [usize; VARIANTS],
}

/// The key under which [`Interests`] contains a watcher. It is needed to remove the watcher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterestKey {
    hash: u64,
    variant: usize,
}

impl Interests {
    /// Registers a watcher.
    pub(crate) fn add(&mut self, interest: &Interest<'_>, waiter: Arc<Waiter>) -> InterestKey {
        let key = InterestKey {
            hash: self.hasher.hash_one(interest),
            variant: interest.variant(),
        };
        let watchers = self
            .by_hash
            .entry(key.hash)
            .or_insert_with(|| Vec::with_capacity(1));
        let position = watchers.partition_point(|known| known.id < waiter.id);
        watchers.insert(position, waiter);
        self.counts[key.variant] += 1;
        key
    }

    /// Unregisters the watcher with this id.
    pub(crate) fn remove(&mut self, key: InterestKey, id: u64) {
        let Some(watchers) = self.by_hash.get_mut(&key.hash) else {
            return;
        };
        if let Ok(position) = watchers.binary_search_by_key(&id, |waiter| waiter.id) {
            watchers.remove(position);
            self.counts[key.variant] -= 1;
        }
        if watchers.is_empty() {
            self.by_hash.remove(&key.hash);
        }
    }

    /// Returns whether no watcher is registered.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// Returns all registered watchers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.by_hash.values().flatten()
    }

    /// Marks event number `event` as pending for every watcher that it may match, and appends the
    /// watchers that must be woken to `to_wake`. `versions` are the object before and after the
    /// event. Costs a fixed number of hash lookups, and time linear in the number of these watchers,
    /// which it returns.
    pub(crate) fn mark_pending(
        &self,
        event: u64,
        versions: [Option<&StoredObject>; 2],
        indexes: &[ResolvedIndex],
        to_wake: &mut Vec<Arc<Waiter>>,
    ) -> u64 {
        let mut marking = Marking {
            event,
            to_wake,
            examined: 0,
        };
        // Name and namespace come from the key, which is the same in both versions.
        let Some(object) = versions[1].or(versions[0]) else {
            return marking.examined;
        };
        if versions
            .iter()
            .flatten()
            .any(|object| object.decode_error().is_some())
        {
            // The indexed values of an undecodable object are unknown, so all watchers must examine
            // the event (T-34).
            marking.mark(self.all());
            return marking.examined;
        }
        let (namespace, name) = (object.namespace(), object.name());
        for interest in [
            Interest::All,
            Interest::Namespace(namespace),
            Interest::Name(name),
            Interest::Object(namespace, name),
        ] {
            marking.mark(self.of(&interest));
        }
        for (number, index) in indexes.iter().enumerate() {
            // Both versions count: a watcher also needs the event with which an object leaves its
            // selector (WC-350).
            let [old, new] = versions.map(|version| version.map(|object| value_of(index, object)));
            for value in [old, new.filter(|_| new != old)].into_iter().flatten() {
                marking.mark(self.of(&Interest::Index(number, value)));
            }
        }
        marking.examined
    }

    /// Returns the watchers that are registered under an interest.
    fn of(&self, interest: &Interest<'_>) -> &[Arc<Waiter>] {
        if self.counts[interest.variant()] == 0 {
            return &[];
        }
        let watchers = self.by_hash.get(&self.hasher.hash_one(interest));
        watchers.map_or(&[], Vec::as_slice)
    }
}

/// The watchers for which an event is marked as pending.
struct Marking<'a> {
    event: u64,
    to_wake: &'a mut Vec<Arc<Waiter>>,
    /// The number of watchers that were looked at.
    examined: u64,
}

impl Marking<'_> {
    fn mark<'w>(&mut self, watchers: impl IntoIterator<Item = &'w Arc<Waiter>>) {
        for waiter in watchers {
            self.examined += 1;
            if waiter.mark_pending(self.event) {
                self.to_wake.push(waiter.clone());
            }
        }
    }
}

/// Returns the indexed value of an object. An absent value counts as the empty string, as in field
/// selectors.
fn value_of<'a>(index: &ResolvedIndex, object: &'a StoredObject) -> &'a str {
    index.value(object).unwrap_or_default()
}

/// Returns the narrowest interest that covers a filter.
pub(crate) fn interest_of<'a>(
    filter: &'a ObjectFilter,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    indexes: &[ResolvedIndex],
) -> Interest<'a> {
    match (namespace, name) {
        (Some(namespace), Some(name)) => return Interest::Object(namespace, name),
        (None, Some(name)) => return Interest::Name(name),
        _ => {}
    }
    let by_index = indexes.iter().enumerate().find_map(|(number, index)| {
        index
            .required_value(filter)
            .map(|value| Interest::Index(number, value))
    });
    by_index.unwrap_or(namespace.map_or(Interest::All, Interest::Namespace))
}
