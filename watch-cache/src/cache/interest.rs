//! Interests: which watchers an event may match (WC-121, WC-146). Corresponds to the
//! `indexedWatchers` and trigger functions of Kubernetes' Cacher.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::cache::objects::index::ResolvedIndex;
use crate::encode::object::StoredObject;
use crate::selector::ObjectFilter;
use crate::wake::subscriber::Subscriber;

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

/// The number of kinds of [`Interest`]. Kinds without watchers are not looked up.
const KINDS: usize = 5;

impl Interest<'_> {
    fn kind(&self) -> usize {
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
/// Interests are stored as hashes. Watchers whose interests have the same hash are woken for each
/// other's events, and their filters drop these events.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    hasher: RandomState,
    /// The watchers by the hash of their interest; each vector is sorted by id.
    by_hash: HashMap<u64, Vec<Arc<Subscriber>>>,
    /// The number of watchers per kind of interest.
    counts: [usize; KINDS],
}

/// The place of a watcher in [`Interests`], needed to remove it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterestKey {
    hash: u64,
    kind: usize,
}

impl Interests {
    pub(crate) fn add(
        &mut self,
        interest: &Interest<'_>,
        subscriber: Arc<Subscriber>,
    ) -> InterestKey {
        let key = InterestKey {
            hash: self.hasher.hash_one(interest),
            kind: interest.kind(),
        };
        let watchers = self
            .by_hash
            .entry(key.hash)
            .or_insert_with(|| Vec::with_capacity(1));
        let at = watchers.partition_point(|known| known.id < subscriber.id);
        watchers.insert(at, subscriber);
        self.counts[key.kind] += 1;
        key
    }

    pub(crate) fn remove(&mut self, key: InterestKey, id: u64) {
        let Some(watchers) = self.by_hash.get_mut(&key.hash) else {
            return;
        };
        if let Ok(at) = watchers.binary_search_by_key(&id, |subscriber| subscriber.id) {
            watchers.remove(at);
            self.counts[key.kind] -= 1;
        }
        if watchers.is_empty() {
            self.by_hash.remove(&key.hash);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Subscriber>> {
        self.by_hash.values().flatten()
    }

    /// Marks event number `event` as pending for every watcher that it may match, and appends those
    /// that must be woken to `woken`. `versions` are the object before and after the event. Costs a
    /// fixed number of hash lookups, and time linear in the number of interested watchers.
    pub(crate) fn mark_pending(
        &self,
        event: u64,
        versions: [Option<&StoredObject>; 2],
        indexes: &[ResolvedIndex],
        woken: &mut Vec<Arc<Subscriber>>,
    ) {
        // Name and namespace come from the key, which is the same in both versions.
        let Some(object) = versions[1].or(versions[0]) else {
            return;
        };
        if versions
            .iter()
            .flatten()
            .any(|object| object.fault().is_some())
        {
            // The indexed values of an undecodable object are unknown, so all watchers must examine
            // the event (T-34).
            for subscriber in self.all() {
                if subscriber.mark_pending(event) {
                    woken.push(subscriber.clone());
                }
            }
            return;
        }
        self.mark_interest(event, &Interest::All, woken);
        self.mark_interest(event, &Interest::Namespace(object.namespace()), woken);
        self.mark_interest(event, &Interest::Name(object.name()), woken);
        self.mark_interest(
            event,
            &Interest::Object(object.namespace(), object.name()),
            woken,
        );
        for (at, index) in indexes.iter().enumerate() {
            // Both versions count: a watcher also needs the event with which an object leaves its
            // selector (WC-350).
            let [old, new] = versions.map(|version| version.map(|object| value_of(index, object)));
            for value in [old, new.filter(|_| new != old)].into_iter().flatten() {
                self.mark_interest(event, &Interest::Index(at, value), woken);
            }
        }
    }

    fn mark_interest(&self, event: u64, interest: &Interest<'_>, woken: &mut Vec<Arc<Subscriber>>) {
        if self.counts[interest.kind()] == 0 {
            return;
        }
        let watchers = self.by_hash.get(&self.hasher.hash_one(interest));
        for subscriber in watchers.into_iter().flatten() {
            if subscriber.mark_pending(event) {
                woken.push(subscriber.clone());
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
    let by_index = indexes.iter().enumerate().find_map(|(at, index)| {
        index
            .required_value(filter)
            .map(|value| Interest::Index(at, value))
    });
    by_index.unwrap_or(namespace.map_or(Interest::All, Interest::Namespace))
}
