//! The encodings of objects that were sent in lists and as initial events.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::encode::object::StoredObject;
use crate::encode::sharing::EncodingKey;

/// The memory of all kept encodings of a cache in bytes, with the objects that they keep alive.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// The number of parts of the memory, each with its own lock.
const SHARDS: usize = 8;
/// The memory of a generation of a shard.
const GENERATION_BYTES_MAX: usize = KEPT_BYTES_MAX / SHARDS / 2;

/// The last encodings of objects in lists and initial events, for all resources of a cache: clients that
/// list the same objects at about the same time, as after a restart of a server, share them.
///
/// Each shard has two generations. When the current one is full, it replaces the previous one, which is
/// dropped; an encoding that is used again moves to the current one.
#[derive(Debug, Default)]
pub(crate) struct KeptEncodings {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    current: HashMap<Key, Kept>,
    current_bytes: usize,
    previous: HashMap<Key, Kept>,
}

/// The address of an object, and what is encoded of it. The address is unique, because [`Kept`] keeps the
/// object alive.
type Key = (usize, EncodingKey);

#[derive(Clone, Debug)]
struct Kept {
    /// Keeps the address in use.
    _object: Arc<StoredObject>,
    at: Duration,
    bytes: Arc<OnceLock<Bytes>>,
    size: usize,
}

impl KeptEncodings {
    /// Returns the encoding of an object. Encodes it with `encode` unless it is kept. An encoding that is
    /// older than `shared_for` is not used.
    pub(crate) fn get(
        &self,
        object: &Arc<StoredObject>,
        part: EncodingKey,
        (now, shared_for): (Duration, Option<Duration>),
        encode: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let key = (Arc::as_ptr(object) as usize, part);
        let shard = &self.shards[self.shard(&key)];
        let is_usable =
            |kept: &Kept| shared_for.is_none_or(|limit| now.saturating_sub(kept.at) <= limit);
        let kept = {
            let mut shard = shard.lock();
            shard.find(&key).filter(is_usable).unwrap_or_else(|| {
                let kept = Kept {
                    _object: object.clone(),
                    at: now,
                    bytes: Arc::default(),
                    // That of the encoding is not known yet.
                    size: size_of::<(Key, Kept)>() + object.size_bytes(),
                };
                shard.insert(key, kept.clone());
                kept
            })
        };
        // Encoded without the lock of the shard.
        let mut added = None;
        let bytes = kept.bytes.get_or_init(|| {
            let bytes = encode();
            added = Some(bytes.len());
            bytes
        });
        if let Some(added) = added {
            let dropped = shard.lock().grow(&key, added);
            drop(dropped);
        }
        bytes.clone()
    }

    /// Drops all encodings, because a resource was removed.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let dropped = std::mem::take(&mut *shard.lock());
            drop(dropped);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "below SHARDS")]
    fn shard(&self, key: &Key) -> usize {
        (self.hasher.hash_one(key) % SHARDS as u64) as usize
    }
}

impl Shard {
    fn find(&mut self, key: &Key) -> Option<Kept> {
        if let Some(kept) = self.current.get(key) {
            return Some(kept.clone());
        }
        let kept = self.previous.remove(key)?;
        self.insert(*key, kept.clone());
        Some(kept)
    }

    fn insert(&mut self, key: Key, kept: Kept) {
        self.current_bytes += kept.size;
        if let Some(replaced) = self.current.insert(key, kept) {
            self.current_bytes -= replaced.size;
        }
    }

    /// Accounts for the bytes of an encoding. Returns the previous generation if the current one has
    /// replaced it, which the caller drops without the lock.
    fn grow(&mut self, key: &Key, bytes: usize) -> Option<HashMap<Key, Kept>> {
        if let Some(kept) = self.current.get_mut(key) {
            kept.size += bytes;
            self.current_bytes += bytes;
        }
        if self.current_bytes <= GENERATION_BYTES_MAX {
            return None;
        }
        self.current_bytes = 0;
        let current = std::mem::take(&mut self.current);
        Some(std::mem::replace(&mut self.previous, current))
    }
}

#[cfg(test)]
mod tests {
    use revstore_engine::Revision;

    use super::*;
    use crate::api::event::EventType;
    use crate::api::keys::ObjectRef;
    use crate::encode::json::JsonKind;
    use crate::encode::object::Object;
    use crate::encode::sharing::Part;

    const KEY: EncodingKey = EncodingKey {
        form: 1,
        part: Part::Event(EventType::Added, false),
    };

    fn objects(count: usize) -> Vec<Arc<StoredObject>> {
        let kind = JsonKind::new("v1", "Pod");
        let object = |number| {
            let name = ObjectRef::cluster(format!("p{number}"));
            let value = format!(r#"{{"metadata":{{}},"x":"{}"}}"#, "x".repeat(4000));
            Object::from_parts(&name, Revision(1), value, &kind)
                .stored()
                .clone()
        };
        (0..count).map(object).collect()
    }

    #[test]
    fn the_memory_of_kept_encodings_is_bounded_and_those_in_use_stay() {
        let kept = KeptEncodings::default();
        let get = |object: &Arc<StoredObject>| {
            let mut is_new = false;
            let encode = || {
                is_new = true;
                Bytes::from(vec![0; 4000])
            };
            kept.get(object, KEY, (Duration::ZERO, None), encode);
            is_new
        };
        let count = if cfg!(miri) { 100 } else { 20_000 };
        let all = objects(count);
        assert!(all.iter().all(get));
        assert!(!get(&all[count - 1]), "the last one is kept");
        let alive = all.iter().filter(|object| Arc::strong_count(object) > 1);
        let bytes: usize = alive.map(|object| object.size_bytes() + 4000).sum();
        assert!(bytes <= KEPT_BYTES_MAX, "{bytes}");
        assert!(cfg!(miri) || bytes >= KEPT_BYTES_MAX / 3, "{bytes}");
        assert!(cfg!(miri) || get(&all[0]), "the first one is not kept");
        // Encodings that are used again outlive those that are not.
        for others in all[1..].chunks(100) {
            for other in others {
                get(other);
            }
            assert!(!get(&all[0]));
        }
        kept.clear();
        assert!(all.iter().all(|object| Arc::strong_count(object) == 1));
    }
}
