//! Records: one version of one key each, in one allocation.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::num::NonZeroI64;
use std::ops::Deref;

use crate::history::Entry;
use crate::memory::{BYTES_MAX, Borrowed, Thin};
use crate::revision::{Position, Revision};
use bytes::Bytes;

/// The id of a lease: any 64-bit number except 0. Negative numbers are valid.
///
/// ```
/// use revstore_engine::LeaseId;
/// assert!(LeaseId::new(0).is_none());
/// assert_eq!(LeaseId::new(-7).unwrap().get(), -7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaseId(NonZeroI64);

impl LeaseId {
    /// Returns the id with this number, or `None` for 0, which identifies no lease.
    pub fn new(id: i64) -> Option<Self> {
        NonZeroI64::new(id).map(Self)
    }

    /// Returns the number.
    pub fn get(self) -> i64 {
        self.0.get()
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The part of a record that all shapes have. [`Numbers`] follow as far as the [`Shape`] stores
/// them, then the value.
#[derive(Debug)]
pub(crate) struct Header {
    entry: Entry,
    revision: Revision,
}

/// The numbers of a record except its mod revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    sub: u32,
    create_revision: Revision,
    version: i64,
    lease: Option<LeaseId>,
}

/// Which numbers a record stores in front of its value; the kind of its [`Thin`].
///
/// Most keys are created once, without a lease, by a transaction that changes nothing else. The
/// numbers of such a record follow from its revision and take no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Shape {
    /// None: a creation without a lease that is the first change of its revision.
    First,
    /// `sub` only: a tombstone.
    Tombstone,
    /// `sub`, a version that fits into 32 bits, and the create revision.
    Short,
    /// All of them.
    Full,
}

impl Shape {
    fn of(kind: u8) -> Self {
        match kind {
            0 => Self::First,
            1 => Self::Tombstone,
            2 => Self::Short,
            _ => Self::Full,
        }
    }

    /// Returns the length of the stored numbers, in bytes.
    const fn len(self) -> usize {
        match self {
            Self::First => 0,
            Self::Tombstone => 4,
            Self::Short => 16,
            Self::Full => 28,
        }
    }

    /// Returns the smallest shape that can store these numbers of a put.
    fn for_numbers(numbers: &Numbers, revision: Revision) -> Self {
        let Numbers {
            sub,
            create_revision,
            version,
            lease,
        } = *numbers;
        if lease.is_some() || u32::try_from(version).is_err() {
            Self::Full
        } else if (sub, create_revision, version) == (0, revision, 1) {
            Self::First
        } else {
            Self::Short
        }
    }
}

impl Numbers {
    /// Decodes the numbers. Inlined, so that a caller that needs one number decodes only that one.
    #[inline]
    fn read(shape: Shape, revision: Revision, bytes: &[u8]) -> Self {
        let mut fields = Fields(&bytes[..shape.len()]);
        match shape {
            Shape::First => Self {
                sub: 0,
                create_revision: revision,
                version: 1,
                lease: None,
            },
            Shape::Tombstone => Self {
                sub: u32::from_ne_bytes(fields.next()),
                create_revision: Revision(0),
                version: 0,
                lease: None,
            },
            Shape::Short => Self {
                sub: u32::from_ne_bytes(fields.next()),
                version: u32::from_ne_bytes(fields.next()).into(),
                create_revision: Revision(i64::from_ne_bytes(fields.next())),
                lease: None,
            },
            Shape::Full => Self {
                sub: u32::from_ne_bytes(fields.next()),
                version: i64::from_ne_bytes(fields.next()),
                create_revision: Revision(i64::from_ne_bytes(fields.next())),
                lease: LeaseId::new(i64::from_ne_bytes(fields.next())),
            },
        }
    }

    /// Writes the numbers that the shape stores. The shape must store all numbers that differ from
    /// its implied values.
    fn write(&self, shape: Shape, bytes: &mut [u8]) {
        let sub = self.sub.to_ne_bytes();
        let create_revision = self.create_revision.0.to_ne_bytes();
        let write = |fields: &[&[u8]]| {
            let mut rest = bytes;
            for field in fields {
                let (target, tail) = rest.split_at_mut(field.len());
                target.copy_from_slice(field);
                rest = tail;
            }
        };
        match shape {
            Shape::First => {}
            Shape::Tombstone => write(&[&sub]),
            Shape::Short => {
                let version = u32::try_from(self.version).unwrap_or(u32::MAX);
                write(&[&sub, &version.to_ne_bytes(), &create_revision]);
            }
            Shape::Full => {
                let lease = self.lease.map_or(0, LeaseId::get);
                let version = self.version.to_ne_bytes();
                write(&[&sub, &version, &create_revision, &lease.to_ne_bytes()]);
            }
        }
    }
}

/// Reads fixed-size fields from a slice, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    #[inline]
    fn next<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self
            .0
            .split_first_chunk()
            .expect("the slice is as long as the shape");
        self.0 = rest;
        *field
    }
}

/// One version of one key: a handle on memory that is shared with the store.
///
/// - A version never changes.
/// - Cloning increments a reference count and copies nothing. The memory is kept as long as a
///   handle exists, also if the version is compacted in the meantime.
/// - A *tombstone* is the version that a deletion writes. Reads never return one. Watches deliver
///   it as the version of a delete event, in which only the key and the mod revision are set.
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
pub struct KeyValue(Thin<Header>);

impl KeyValue {
    /// Returns the key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.entry().key()
    }

    /// Returns the value. It is empty for a tombstone; a put may write an empty value too.
    #[inline]
    pub fn value(&self) -> &[u8] {
        &self.0.bytes()[self.shape().len()..]
    }

    /// Returns the value as a shared slice that keeps the version in memory. Takes one small
    /// allocation and copies nothing.
    pub fn value_bytes(&self) -> Bytes {
        Bytes::from_owner(ValueOwner(self.clone()))
    }

    /// Returns the key as a shared slice, as [`KeyValue::value_bytes`] does.
    pub fn key_bytes(&self) -> Bytes {
        Bytes::from_owner(KeyOwner(self.entry().clone()))
    }

    /// Returns the revision in which the key was created, most recently; 0 for a tombstone.
    #[inline]
    pub fn create_revision(&self) -> Revision {
        // DM-3
        self.numbers().create_revision
    }

    /// Returns the revision that wrote this version.
    #[inline]
    pub fn mod_revision(&self) -> Revision {
        self.0.header().revision
    }

    /// Returns the position of the write: its revision, and the order inside the revision.
    #[inline]
    pub fn position(&self) -> Position {
        Position {
            revision: self.mod_revision(),
            sub: self.numbers().sub,
        }
    }

    /// Returns the number of writes since the creation, this one included; 0 for a tombstone.
    #[inline]
    pub fn version(&self) -> i64 {
        self.numbers().version
    }

    /// Returns the lease that this version is attached to.
    #[inline]
    pub fn lease(&self) -> Option<LeaseId> {
        self.numbers().lease
    }

    /// Returns whether a deletion wrote this version.
    #[inline]
    pub fn is_tombstone(&self) -> bool {
        self.shape() == Shape::Tombstone
    }

    /// Returns the size of the version as counted in [`Stats::history_bytes`](crate::Stats), in
    /// bytes: key, value and [`RECORD_OVERHEAD_BYTES`].
    pub fn size_bytes(&self) -> u64 {
        (self.key().len() + self.value().len()) as u64 + RECORD_OVERHEAD_BYTES
    }

    /// Returns the entry that holds the versions of the key.
    #[inline]
    pub(crate) fn entry(&self) -> &Entry {
        &self.0.header().entry
    }

    /// Creates the record that deletes the key of `entry`.
    pub(crate) fn tombstone(entry: Entry, position: Position) -> Self {
        let header = Header {
            entry,
            revision: position.revision,
        };
        Self::new(header, Shape::Tombstone, &position.sub.to_ne_bytes(), &[])
    }

    /// Creates a tombstone that belongs to no store.
    #[cfg(feature = "serde")]
    pub(crate) fn detached_tombstone(key: &[u8], position: Position) -> Self {
        Self::tombstone(Entry::new(key), position)
    }

    /// Creates a version of the key of `entry`, with numbers that another store has assigned. A new
    /// entry makes it one that belongs to no store.
    pub(crate) fn of_entry(
        entry: Entry,
        value: &[u8],
        position: Position,
        create_revision: Revision,
        version: i64,
        lease: Option<LeaseId>,
    ) -> Self {
        let numbers = Numbers {
            sub: position.sub,
            create_revision,
            version,
            lease,
        };
        let shape = Shape::for_numbers(&numbers, position.revision);
        let mut stored = [0; Shape::Full.len()];
        numbers.write(shape, &mut stored);
        let header = Header {
            entry,
            revision: position.revision,
        };
        Self::new(header, shape, &stored[..shape.len()], value)
    }

    fn new(header: Header, shape: Shape, numbers: &[u8], value: &[u8]) -> Self {
        Self(Thin::new(header, shape as u8, [numbers, value]))
    }

    #[inline]
    fn shape(&self) -> Shape {
        Shape::of(self.0.kind())
    }

    #[inline]
    fn numbers(&self) -> Numbers {
        Numbers::read(self.shape(), self.mod_revision(), self.0.bytes())
    }
}

impl From<Thin<Header>> for KeyValue {
    fn from(record: Thin<Header>) -> Self {
        Self(record)
    }
}

impl From<KeyValue> for Thin<Header> {
    fn from(KeyValue(record): KeyValue) -> Self {
        record
    }
}

/// A version that was not counted. A pin protects it.
pub(crate) struct Record<'g>(ManuallyDrop<KeyValue>, PhantomData<&'g KeyValue>);

impl Deref for Record<'_> {
    type Target = KeyValue;
    #[inline]
    fn deref(&self) -> &KeyValue {
        &self.0
    }
}

impl<'g> From<Borrowed<'g, Thin<Header>>> for Record<'g> {
    #[inline]
    fn from(record: Borrowed<'g, Thin<Header>>) -> Self {
        let record = KeyValue(ManuallyDrop::into_inner(record.into_inner()));
        Self(ManuallyDrop::new(record), PhantomData)
    }
}

impl<'g> From<&'g KeyValue> for Record<'g> {
    #[inline]
    fn from(record: &'g KeyValue) -> Self {
        Borrowed::of(&record.0).into()
    }
}

/// The largest length of a key or a value, in bytes: 1 GiB less 64 bytes.
pub const PUT_BYTES_MAX: usize = BYTES_MAX - 64;

/// The size of a version without its key and its value, in bytes: its header and numbers, and the
/// pointers to it in the history of the key and in the log.
pub const RECORD_OVERHEAD_BYTES: u64 =
    (Thin::<Header>::OVERHEAD + 16 + 2 * size_of::<KeyValue>()) as u64;

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValue")
            .field("key", &Bytes::copy_from_slice(self.key()))
            .field("revision", &format_args!("{}", self.position()))
            .field("create_revision", &self.create_revision().0)
            .field("version", &self.version())
            .field("lease", &self.lease().map(LeaseId::get))
            .field("tombstone", &self.is_tombstone())
            .field("value_len", &self.value().len())
            .finish()
    }
}

/// Two versions are equal if their keys, values, numbers and kinds are.
impl PartialEq for KeyValue {
    fn eq(&self, other: &Self) -> bool {
        self.mod_revision() == other.mod_revision()
            && self.numbers() == other.numbers()
            && self.is_tombstone() == other.is_tombstone()
            && self.key() == other.key()
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

/// A record that is not visible to readers yet. Its value is copied before the sequencer is locked,
/// and its numbers are written while it is held.
#[derive(Debug)]
pub(crate) struct PendingRecord {
    record: KeyValue,
    entry_found: bool,
}

impl PendingRecord {
    /// Creates a record for a key whose entry is in the index. `with_lease` reserves room for a
    /// lease.
    #[inline]
    pub(crate) fn for_entry(entry: Entry, value: &[u8], with_lease: bool) -> Self {
        let shape = if with_lease {
            Shape::Full
        } else {
            Shape::Short
        };
        Self {
            record: Self::unnumbered(entry, value, shape),
            entry_found: true,
        }
    }

    /// Creates a record, with a new entry, for a key that is not in the index.
    #[inline]
    pub(crate) fn for_new_key(key: &[u8], value: &[u8], with_lease: bool) -> Self {
        let shape = if with_lease {
            Shape::Full
        } else {
            Shape::First
        };
        Self {
            record: Self::unnumbered(Entry::new(key), value, shape),
            entry_found: false,
        }
    }

    fn unnumbered(entry: Entry, value: &[u8], shape: Shape) -> KeyValue {
        const ROOM: [u8; 28] = [0; 28];
        let header = Header {
            entry,
            revision: Revision(0),
        };
        KeyValue::new(header, shape, &ROOM[..shape.len()], value)
    }

    /// Returns whether the entry was in the index when the record was created.
    #[inline]
    pub(crate) fn entry_found(&self) -> bool {
        self.entry_found
    }

    /// Returns the entry that the record was created for.
    pub(crate) fn entry(&self) -> &Entry {
        self.record.entry()
    }

    /// Numbers the record and makes it one of `entry`, which has the same key. `previous` is the
    /// version that it replaces, if the key is live. If the numbers need more room than was
    /// reserved, the value is copied again.
    pub(crate) fn finish(
        self,
        entry: &Entry,
        position: Position,
        previous: Option<&KeyValue>,
        lease: Option<LeaseId>,
    ) -> KeyValue {
        let numbers = Numbers {
            sub: position.sub,
            create_revision: previous.map_or(position.revision, KeyValue::create_revision),
            version: previous.map_or(1, |previous| previous.version() + 1),
            lease,
        };
        let needed = Shape::for_numbers(&numbers, position.revision);
        let mut record = self.record;
        if record.shape() < needed {
            record = Self::unnumbered(entry.clone(), record.value(), needed);
        }
        let shape = record.shape();
        let only_handle = record.0.get_mut();
        let (header, bytes) = only_handle.expect("I2: a pending record is never cloned");
        if !header.entry.is(entry) {
            header.entry = entry.clone();
        }
        header.revision = position.revision;
        numbers.write(shape, bytes);
        record
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyValue, LeaseId, Numbers, PendingRecord, Shape};
    use crate::history::Entry;
    use crate::revision::{Position, Revision};

    fn pending(entry: &Entry, value: &[u8], shape: Shape) -> PendingRecord {
        PendingRecord {
            record: PendingRecord::unnumbered(entry.clone(), value, shape),
            entry_found: true,
        }
    }

    fn record(
        entry: &Entry,
        revision: i64,
        previous: Option<&KeyValue>,
        lease: Option<LeaseId>,
    ) -> KeyValue {
        let pending = pending(entry, b"v", Shape::First);
        pending.finish(entry, Revision(revision).start(), previous, lease)
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
    fn dm_5_a_tombstone_has_only_a_key_and_a_revision() {
        let tombstone = KeyValue::tombstone(Entry::new(b"k"), Revision(7).start());
        assert_eq!(
            (
                tombstone.key(),
                tombstone.mod_revision().0,
                tombstone.version()
            ),
            (&b"k"[..], 7, 0)
        );
        assert!(
            tombstone.is_tombstone() && tombstone.value().is_empty() && tombstone.lease().is_none()
        );
    }

    #[test]
    fn shared_slices_outlive_the_handle() {
        let kv = record(&Entry::new(b"k"), 2, None, None);
        let (key, value) = (kv.key_bytes(), kv.value_bytes());
        drop(kv);
        assert_eq!((&key[..], &value[..]), (&b"k"[..], &b"v"[..]));
    }

    #[test]
    fn numbers_do_not_depend_on_the_reserved_room() {
        let entry = Entry::new(b"k");
        let position = |revision, sub| Position {
            revision: Revision(revision),
            sub,
        };
        let many = {
            let mut record = record(&entry, 2, None, LeaseId::new(1));
            let mut numbers = record.numbers();
            numbers.version = i64::from(u32::MAX);
            let (_, bytes) = record.0.get_mut().expect("the only handle");
            numbers.write(Shape::Full, bytes);
            record
        };
        let first = record(&entry, 3, None, None);
        assert_eq!(first.shape(), Shape::First);
        for shape in [Shape::First, Shape::Short, Shape::Full] {
            for previous in [None, Some(&first), Some(&many)] {
                for (sub, lease) in [(0, None), (7, None), (0, LeaseId::new(-1))] {
                    let pending = pending(&entry, b"value", shape);
                    let record = pending.finish(&entry, position(9, sub), previous, lease);
                    assert_eq!(record.position(), position(9, sub));
                    assert_eq!(
                        record.numbers(),
                        Numbers {
                            sub,
                            create_revision: Revision(
                                previous.map_or(9, |kv| kv.create_revision().0)
                            ),
                            version: previous.map_or(1, |kv| kv.version() + 1),
                            lease,
                        }
                    );
                    assert_eq!((record.key(), record.value()), (&b"k"[..], &b"value"[..]));
                    assert!(!record.is_tombstone());
                }
            }
        }
    }
}
