//! Records: one version of one key each, in one heap allocation.

use std::fmt;
use std::num::NonZeroI64;

use bytes::Bytes;
use triomphe::ThinArc;

use crate::entry::Entry;
use crate::revision::{MainRevision, Revision};

/// The name of a lease: any 64-bit number except 0, negative ones included (LE-3).
///
/// ```
/// use revstore_engine::LeaseId;
/// assert!(LeaseId::new(0).is_none());
/// assert_eq!(LeaseId::new(-7).unwrap().get(), -7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(NonZeroI64);

impl LeaseId {
    /// The lease of this number; 0 names none.
    pub fn new(id: i64) -> Option<Self> {
        NonZeroI64::new(id).map(Self)
    }

    /// The number.
    pub fn get(self) -> i64 {
        self.0.get()
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a record says besides its value.
#[derive(Debug)]
struct Header {
    entry: Entry,
    /// With `sub` the position; apart, so that the flag fits beside them and a record of a 256-byte
    /// value takes 320 bytes, which is a size that allocators have.
    main: MainRevision,
    sub: u32,
    tombstone: bool,
    create_revision: MainRevision,
    version: i64,
    lease: Option<LeaseId>,
}

/// One version of one key: a handle on memory that the store shares.
///
/// - A record never changes once it can be read (I2).
/// - Cloning counts a reference; nothing is copied. The memory stays as long as any handle does,
///   also when the version was compacted meanwhile.
/// - A *tombstone* is the record of a deletion. Reads never return one; watchers see it as the
///   record of a delete event, with nothing set but the key and the mod revision (DM-5).
///
/// ```
/// # use revstore_engine::Engine;
/// let engine = Engine::builder().build();
/// engine.put("key", "value")?;
/// let found = engine.get("key").unwrap();
/// assert_eq!((found.key(), found.value()), (&b"key"[..], &b"value"[..]));
/// assert_eq!((found.create_revision().0, found.mod_revision().0, found.version()), (2, 2, 1));
/// # Ok::<(), revstore_engine::PutError>(())
/// ```
#[derive(Clone)]
pub struct KeyValue(ThinArc<Header, u8>);

impl KeyValue {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.header().entry.key()
    }

    /// The value; empty for a tombstone, and an empty value is legal too (DM-9).
    pub fn value(&self) -> &[u8] {
        &self.0.slice
    }

    /// The value as a shared slice that keeps the record alive. Costs one small allocation, and
    /// copies nothing.
    pub fn value_bytes(&self) -> Bytes {
        Bytes::from_owner(ValueOwner(self.clone()))
    }

    /// The key as a shared slice that keeps the record alive; as [`KeyValue::value_bytes`].
    pub fn key_bytes(&self) -> Bytes {
        Bytes::from_owner(KeyOwner(self.header().entry.clone()))
    }

    /// The revision in which the key's present life began (DM-3); 0 for a tombstone.
    pub fn create_revision(&self) -> MainRevision {
        self.header().create_revision
    }

    /// The revision that wrote this version.
    pub fn mod_revision(&self) -> MainRevision {
        self.header().main
    }

    /// The position of the write: its revision, and its place inside it.
    pub fn revision(&self) -> Revision {
        let Header { main, sub, .. } = *self.header();
        Revision { main, sub }
    }

    /// Writes since creation, this one included (DM-3); 0 for a tombstone.
    pub fn version(&self) -> i64 {
        self.header().version
    }

    /// The lease that the key is attached to.
    pub fn lease(&self) -> Option<LeaseId> {
        self.header().lease
    }

    /// Whether this is the record of a deletion.
    pub fn is_tombstone(&self) -> bool {
        self.header().tombstone
    }

    /// Bytes that the record stands for in the size of the history: key, value, and the fixed
    /// [`RECORD_OVERHEAD_BYTES`].
    pub fn size_bytes(&self) -> u64 {
        (self.key().len() + self.value().len()) as u64 + RECORD_OVERHEAD_BYTES
    }

    /// Where the versions of the key are.
    pub(crate) fn entry(&self) -> &Entry {
        &self.header().entry
    }

    /// The record that deletes the key of `entry`.
    pub(crate) fn tombstone(entry: Entry, revision: Revision) -> Self {
        let header = Header {
            entry,
            main: revision.main,
            sub: revision.sub,
            tombstone: true,
            create_revision: MainRevision(0),
            version: 0,
            lease: None,
        };
        Self(ThinArc::from_header_and_slice(header, &[]))
    }

    fn header(&self) -> &Header {
        &self.0.header.header
    }
}

/// What each record costs beside its key and its value: its header, the reference count, the
/// length, and its places in the key's history and in the log.
pub const RECORD_OVERHEAD_BYTES: u64 =
    (size_of::<Header>() + 2 * size_of::<usize>() + 2 * size_of::<KeyValue>()) as u64;

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValue")
            .field("key", &Bytes::copy_from_slice(self.key()))
            .field("revision", &format_args!("{}", self.revision()))
            .field("create_revision", &self.create_revision().0)
            .field("version", &self.version())
            .field("lease", &self.lease().map(LeaseId::get))
            .field("tombstone", &self.is_tombstone())
            .field("value_len", &self.value().len())
            .finish()
    }
}

/// Two handles are equal if they say the same about the same key.
impl PartialEq for KeyValue {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.header(), other.header());
        self.revision() == other.revision()
            && a.entry == b.entry
            && a.create_revision == b.create_revision
            && a.version == b.version
            && a.lease == b.lease
            && a.tombstone == b.tombstone
            && self.value() == other.value()
    }
}
impl Eq for KeyValue {}

struct ValueOwner(KeyValue);
impl AsRef<[u8]> for ValueOwner {
    fn as_ref(&self) -> &[u8] {
        self.0.value()
    }
}

struct KeyOwner(Entry);
impl AsRef<[u8]> for KeyOwner {
    fn as_ref(&self) -> &[u8] {
        self.0.key()
    }
}

/// A record that nobody else can see yet: the value is copied before the sequencer is locked, the
/// numbers are filled in under it.
#[derive(Debug)]
pub(crate) struct Draft(KeyValue);

impl Draft {
    pub(crate) fn new(entry: Entry, value: &[u8]) -> Self {
        let header = Header {
            entry,
            main: MainRevision(0),
            sub: 0,
            tombstone: false,
            create_revision: MainRevision(0),
            version: 0,
            lease: None,
        };
        Self(KeyValue(ThinArc::from_header_and_slice(header, value)))
    }

    /// The entry that the record was made for.
    pub(crate) fn entry(&self) -> &Entry {
        self.0.entry()
    }

    /// Numbers the record and gives it to `entry`, which has the same key: `previous` is the version that it follows, if the key is alive.
    pub(crate) fn finish(
        self,
        entry: &Entry,
        revision: Revision,
        previous: Option<&KeyValue>,
        lease: Option<LeaseId>,
    ) -> KeyValue {
        let Self(KeyValue(mut record)) = self;
        record.with_arc_mut(|record| {
            let record = triomphe::Arc::get_mut(record);
            // A draft is never cloned, so this is the only handle (I2 begins after it).
            let header = record.expect("I2: a draft has one owner").header_mut();
            if !header.entry.is(entry) {
                header.entry = entry.clone();
            }
            header.main = revision.main;
            header.sub = revision.sub;
            header.create_revision = previous.map_or(revision.main, KeyValue::create_revision);
            header.version = previous.map_or(1, |previous| previous.version() + 1);
            header.lease = lease;
        });
        KeyValue(record)
    }
}

#[cfg(test)]
mod tests {
    use super::{Draft, KeyValue, LeaseId};
    use crate::entry::Entry;
    use crate::revision::MainRevision;

    fn record(
        entry: &Entry,
        main: i64,
        previous: Option<&KeyValue>,
        lease: Option<LeaseId>,
    ) -> KeyValue {
        let draft = Draft::new(entry.clone(), b"v");
        draft.finish(entry, MainRevision(main).start(), previous, lease)
    }

    #[test]
    fn dm_3_numbers_follow_the_previous_version() {
        let entry = Entry::new(b"k");
        let first = record(&entry, 5, None, None);
        let second = record(&entry, 9, Some(&first), LeaseId::new(3));
        assert_eq!((first.create_revision().0, first.version()), (5, 1));
        assert_eq!(
            (second.create_revision().0, second.mod_revision().0),
            (5, 9)
        );
        assert_eq!((second.version(), second.lease()), (2, LeaseId::new(3)));
    }

    #[test]
    fn dm_5_a_tombstone_says_nothing_but_its_key_and_revision() {
        let gone = KeyValue::tombstone(Entry::new(b"k"), MainRevision(7).start());
        assert_eq!(
            (gone.key(), gone.mod_revision().0, gone.version()),
            (&b"k"[..], 7, 0)
        );
        assert!(gone.is_tombstone() && gone.value().is_empty() && gone.lease().is_none());
    }

    #[test]
    fn shared_slices_outlive_the_handle() {
        let kv = record(&Entry::new(b"k"), 2, None, None);
        let (key, value) = (kv.key_bytes(), kv.value_bytes());
        drop(kv);
        assert_eq!((&key[..], &value[..]), (&b"k"[..], &b"v"[..]));
    }
}
