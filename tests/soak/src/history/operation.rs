//! What the clients of the soak have asked for and what they were told.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of keys that the workers write.
pub(crate) const KEYS: u16 = 48;

/// The prefix of the keys that the workers write.
pub(crate) const PREFIX: &str = "soak/";

/// The number of bytes at the start of each value that identify the write.
const ID_BYTES: usize = 16;

/// A point in the order of the starts and ends of all operations.
pub(crate) type Tick = u64;

/// Numbers the starts and ends of operations.
#[derive(Debug, Default)]
pub(crate) struct Ticks(AtomicU64);

impl Ticks {
    pub(crate) fn next(&self) -> Tick {
        // SeqCst: an operation that ends before another one starts has the lower number, on all threads.
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// A key of the workers, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u16);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name())
    }
}

impl Key {
    pub(crate) fn name(self) -> String {
        format!("{PREFIX}{:03}", self.0)
    }

    /// Returns the key with a name, and `None` for names that are not of workers.
    pub(crate) fn parse(name: &[u8]) -> Option<Self> {
        let number = name.strip_prefix(PREFIX.as_bytes())?;
        Some(Self(str::from_utf8(number).ok()?.parse().ok()?))
    }
}

/// The keys from `first` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) first: Key,
    pub(crate) end: Key,
}

impl Keys {
    pub(crate) fn contain(self, key: Key) -> bool {
        self.first <= key && key < self.end
    }
}

/// The unique number of a write.
pub(crate) type WriteId = u64;

/// Returns a value of about `size` bytes that identifies the write.
pub(crate) fn value(id: WriteId, size: usize) -> Vec<u8> {
    let mut value = format!("{id:0ID_BYTES$x}").into_bytes();
    value.resize(size.max(ID_BYTES), b'.');
    value
}

/// Returns the write that a value identifies.
pub(crate) fn id_of(value: &[u8]) -> Option<WriteId> {
    let id = str::from_utf8(value.get(..ID_BYTES)?).ok()?;
    WriteId::from_str_radix(id, 16).ok()
}

/// A version of a key as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) key: Key,
    pub(crate) value: Option<WriteId>,
    pub(crate) created: i64,
    pub(crate) modified: i64,
    pub(crate) version: i64,
}

impl Seen {
    /// Returns what a key and its value say, and `None` if the key is not of a worker.
    pub(crate) fn of(kv: &etcd_client::KeyValue) -> Option<Self> {
        Some(Self {
            key: Key::parse(kv.key())?,
            value: id_of(kv.value()),
            created: kv.create_revision(),
            modified: kv.mod_revision(),
            version: kv.version(),
        })
    }
}

/// An event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// For a deletion, only the key and the revision.
    pub(crate) kv: Seen,
    pub(crate) is_delete: bool,
    /// The replaced value, if the watch asked for it and it was not compacted.
    pub(crate) replaced: Option<WriteId>,
}

impl Event {
    /// Returns what an event says, and `None` if its key is not of a worker.
    pub(crate) fn of(event: &etcd_client::Event) -> Option<Self> {
        Some(Self {
            kv: Seen::of(event.kv()?)?,
            is_delete: event.event_type() == etcd_client::EventType::Delete,
            replaced: event.prev_kv().and_then(|kv| id_of(kv.value())),
        })
    }
}

/// A request that a server answered.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) start: Tick,
    pub(crate) end: Tick,
    /// The revision of the response.
    pub(crate) revision: i64,
    pub(crate) answer: Answer,
}

/// A request with its answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The revision was observed in some other way.
    Observed,
    /// A key was written.
    Put(Key, WriteId),
    /// A key was deleted, if it existed.
    Delete(Key, bool),
    /// Keys were read, at the given revision or the current one.
    Read(Keys, Option<i64>, Vec<Seen>),
    /// A transaction wrote the keys, the first of which had the modification revision `expected`.
    Swapped(Vec<(Key, WriteId)>, i64),
    /// A transaction found that the key had another modification revision than `expected`, and read it.
    NotSwapped(Key, i64, Vec<Seen>),
}
