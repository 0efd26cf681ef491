//! The entries of the maps.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hint::black_box;
use std::mem::ManuallyDrop;

use crate::memory::{AtomicThin, Thin};
use crate::sorted_node::Keyed;
use crate::sync::epoch::{Guard, pin};

/// The length of every value.
const VALUE_BYTES: usize = 256;

/// The numbers of a version, of the same size as in the engine.
type Numbers = [u64; 2];

/// A reference-counted version with its value.
pub struct Version(Thin<Numbers>);

/// A reference-counted key with its newest version, in allocations of the engine's layout and pool.
#[derive(Clone)]
pub struct Entry(Thin<Content>);

struct Content {
    newest: AtomicThin<Numbers>,
    /// The place of the other versions and of the lock of the writer in the engine.
    _unused: [u64; 2],
}

impl Version {
    fn new() -> Self {
        Self(Thin::new([0; 2], 0, [&[7; VALUE_BYTES], &[]]))
    }

    /// Returns the value.
    pub fn value(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Entry {
    /// Creates an entry with one version.
    pub fn new(key: &[u8]) -> Self {
        let newest = AtomicThin::new();
        // A new cell is empty.
        let _none = newest.replace(Some(Version::new().0));
        let content = Content {
            newest,
            _unused: [0; 2],
        };
        Self(Thin::new(content, 0, [key, &[]]))
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Returns the newest version.
    pub(crate) fn read(&self, guard: &Guard) -> Version {
        let newest = self.0.header().newest.load(guard);
        Version(Thin::clone(&newest.expect("every entry has a version")))
    }

    /// Returns the length of the newest value, without a handle on it.
    pub(crate) fn len(&self, guard: &Guard) -> usize {
        let newest = self.0.header().newest.load(guard);
        newest.map_or(0, |newest| newest.bytes().len())
    }

    /// Prefetches the entry and its key, as the scans of the engine do.
    pub(crate) fn touch(&self) {
        black_box((self.0.header().newest.is_closed(), self.key().last()));
    }

    /// Prefetches the newest version, as the scans of the engine do.
    pub(crate) fn touch_newest(&self, guard: &Guard) {
        let newest = self.0.header().newest.load(guard);
        black_box(newest.map(|newest| newest.header()[0]));
    }

    /// Replaces the version. Any thread may call this.
    pub fn write(&self) {
        let new = Version::new().0;
        let previous = self.0.header().newest.replace(Some(new));
        if let Some(previous) = previous {
            // SAFETY: the cell does not contain the version any more, and handles can be dropped on
            // any thread.
            unsafe { pin().defer(0, move || drop(ManuallyDrop::into_inner(previous))) };
        }
    }
}

impl Keyed for Entry {
    fn key(&self) -> &[u8] {
        self.key()
    }
}

impl Borrow<[u8]> for Entry {
    fn borrow(&self) -> &[u8] {
        self.key()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({})", self.key().escape_ascii())
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}
