//! The entries of the maps.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;

use parking_lot::Mutex;
use triomphe::ThinArc;

use crate::sorted_node::Keyed;

/// The length of every value.
const VALUE_BYTES: usize = 256;
/// The length of the other fields of a version.
const VERSION_BYTES: usize = 48;

type Version = ThinArc<[u8; VERSION_BYTES], u8>;

/// A reference-counted key with its newest version.
#[derive(Clone)]
pub struct Entry(ThinArc<Mutex<Version>, u8>);

impl Entry {
    /// Creates an entry with one version.
    pub fn new(key: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice(Mutex::new(version()), key))
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0.slice
    }

    /// Reads the newest version and returns the length of its value.
    pub fn read(&self) -> usize {
        let version = self.0.header.header.lock().clone();
        version.slice.len()
    }

    /// Replaces the version.
    pub fn write(&self) {
        let version = version();
        let previous = std::mem::replace(&mut *self.0.header.header.lock(), version);
        // Freed after the lock is released.
        drop(previous);
    }
}

fn version() -> Version {
    ThinArc::from_header_and_slice([0; VERSION_BYTES], &[7; VALUE_BYTES])
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
