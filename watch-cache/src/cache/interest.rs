//! Who may want an event: watchers by what they watch (WC-121, WC-146).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::cache::objects::index::IndexPlace;
use crate::encode::object::Entry;
use crate::selector::Filter;
use crate::wake::subscriber::Signal;

/// The narrowest description of what a watcher wants that the cache wakes by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Interest<'a> {
    All,
    Namespace(&'a str),
    Name(&'a str),
    Object(&'a str, &'a str),
    Index(usize, &'a str),
}

/// Kinds of [`Interest`] except those by index: which lookups an event needs at all.
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
/// Interests are kept as hashes: watchers whose interests collide are woken for each other's
/// events, and their filters drop them. That costs nothing but the look.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    hasher: RandomState,
    /// Ids only grow, so each list is sorted by id.
    lists: HashMap<u64, Vec<Arc<Signal>>>,
    /// Watchers per kind of interest.
    counts: [usize; KINDS],
}

/// Where a watcher is listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    hash: u64,
    kind: usize,
}

impl Interests {
    pub(crate) fn add(&mut self, interest: &Interest<'_>, signal: Arc<Signal>) -> Listed {
        let listed = Listed {
            hash: self.hasher.hash_one(interest),
            kind: interest.kind(),
        };
        let list = self
            .lists
            .entry(listed.hash)
            .or_insert_with(|| Vec::with_capacity(1));
        let at = list.partition_point(|known| known.id < signal.id);
        list.insert(at, signal);
        self.counts[listed.kind] += 1;
        listed
    }

    pub(crate) fn remove(&mut self, listed: Listed, id: u64) {
        let Some(list) = self.lists.get_mut(&listed.hash) else {
            return;
        };
        if let Ok(at) = list.binary_search_by_key(&id, |signal| signal.id) {
            list.remove(at);
            self.counts[listed.kind] -= 1;
        }
        if list.is_empty() {
            self.lists.remove(&listed.hash);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Signal>> {
        self.lists.values().flatten()
    }

    /// Notes an event with everyone who may want it; appends to `woken` whom to wake. Costs a
    /// fixed number of lookups and the interested.
    pub(crate) fn note(
        &self,
        event: u64,
        states: [Option<&Entry>; 2],
        indexes: &[IndexPlace],
        woken: &mut Vec<Arc<Signal>>,
    ) {
        // Name and namespace come from the key, which is the same before and after.
        let Some(entry) = states[1].or(states[0]) else {
            return;
        };
        if states.iter().flatten().any(|entry| entry.fault().is_some()) {
            // Nobody can tell whose index value it has, so all must come upon it (T-34).
            for signal in self.all() {
                if signal.note(event) {
                    woken.push(signal.clone());
                }
            }
            return;
        }
        self.note_listed(event, &Interest::All, woken);
        self.note_listed(event, &Interest::Namespace(entry.namespace()), woken);
        self.note_listed(event, &Interest::Name(entry.name()), woken);
        self.note_listed(
            event,
            &Interest::Object(entry.namespace(), entry.name()),
            woken,
        );
        for (at, index) in indexes.iter().enumerate() {
            // Both states count: who loses an object must hear of it as well (WC-350).
            let [old, new] = states.map(|state| state.map(|entry| value_of(index, entry)));
            for value in [old, new.filter(|_| new != old)].into_iter().flatten() {
                self.note_listed(event, &Interest::Index(at, value), woken);
            }
        }
    }

    fn note_listed(&self, event: u64, interest: &Interest<'_>, woken: &mut Vec<Arc<Signal>>) {
        if self.counts[interest.kind()] == 0 {
            return;
        }
        let list = self.lists.get(&self.hasher.hash_one(interest));
        for signal in list.into_iter().flatten() {
            if signal.note(event) {
                woken.push(signal.clone());
            }
        }
    }
}

/// What a state is found by; an absent value is found by the empty one, as field selectors have it.
fn value_of<'a>(index: &IndexPlace, entry: &'a Entry) -> &'a str {
    index.value(entry).unwrap_or_default()
}

/// The narrowest interest that covers a filter.
pub(crate) fn interest_of<'a>(
    filter: &'a Filter,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    indexes: &[IndexPlace],
) -> Interest<'a> {
    match (namespace, name) {
        (Some(namespace), Some(name)) => return Interest::Object(namespace, name),
        (None, Some(name)) => return Interest::Name(name),
        _ => {}
    }
    let by_index = indexes
        .iter()
        .enumerate()
        .find_map(|(at, index)| index.wanted(filter).map(|value| Interest::Index(at, value)));
    by_index.unwrap_or(namespace.map_or(Interest::All, Interest::Namespace))
}
