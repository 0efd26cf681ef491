//! What the maps hold.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;

use parking_lot::Mutex;
use triomphe::ThinArc;

use crate::sorted_node::Keyed;

/// Bytes in every value, and in what a version says besides.
const VALUE_BYTES: usize = 256;
const VERSION_BYTES: usize = 48;

type Version = ThinArc<[u8; VERSION_BYTES], u8>;

/// A key and its newest version; a handle on it.
#[derive(Clone)]
pub struct Entry(ThinArc<Mutex<Version>, u8>);

impl Entry {
    /// An entry with a version.
    pub fn new(key: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice(Mutex::new(version()), key))
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0.slice
    }

    /// Reads the newest version.
    pub fn read(&self) -> usize {
        let version = self.0.header.header.lock().clone();
        version.slice.len()
    }

    /// Writes a version.
    pub fn write(&self) {
        let version = version();
        let before = std::mem::replace(&mut *self.0.header.header.lock(), version);
        drop(before);
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
