//! The content of a tree node: sorted items, laid out so that a search accesses few cache lines.

/// An item with a key.
pub(crate) trait Keyed {
    fn key(&self) -> &[u8];
}

/// Items in ascending order of their keys, each key once.
///
/// Keys often share a long prefix (`/registry/pods/default/…`), and following a pointer to each key
/// that a binary search probes costs a cache miss. So the prefix that all keys share is compared
/// once, and the eight bytes after it are stored side by side as numbers, the *heads*. A key itself
/// is read only if heads are equal.
#[derive(Debug)]
pub(crate) struct Sorted<T> {
    /// The number of leading bytes that searches compare only once. All keys share them; the common
    /// prefix may be longer.
    prefix_len: usize,
    /// The eight bytes after the prefix of each key as a big-endian number, padded with zeros.
    heads: Vec<u64>,
    items: Vec<T>,
}

impl<T: Keyed> Sorted<T> {
    pub(crate) fn new() -> Self {
        Self {
            prefix_len: 0,
            heads: Vec::new(),
            items: Vec::new(),
        }
    }

    pub(crate) fn one(item: T) -> Self {
        let mut sorted = Self::new();
        sorted.insert(0, item);
        sorted
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        &self.items
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the index of the key as `Ok`, or the index at which to insert it as `Err`.
    pub(crate) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let Some(first) = self.items.first() else {
            return Err(0);
        };
        let prefix = &first.key()[..self.prefix_len];
        let Some(rest) = key.strip_prefix(prefix) else {
            return Err(if key < prefix { 0 } else { self.items.len() });
        };
        let head = head(rest);
        let low = self.heads.partition_point(|other| *other < head);
        // Usually there is one such head or none.
        let equal = self.heads[low..]
            .iter()
            .take_while(|other| **other == head)
            .count();
        let alike = &self.items[low..low + equal];
        match alike.binary_search_by(|item| item.key().cmp(key)) {
            Ok(at) => Ok(low + at),
            Err(at) => Err(low + at),
        }
    }

    /// Inserts an item at the index that [`Sorted::find`] returned.
    pub(crate) fn insert(&mut self, at: usize, item: T) {
        let shared = match self.items.first() {
            Some(first) => common(&first.key()[..self.prefix_len], item.key()),
            None => item.key().len(),
        };
        self.heads.insert(at, 0);
        self.items.insert(at, item);
        if shared == self.prefix_len {
            self.heads[at] = head(&self.items[at].key()[shared..]);
        } else {
            self.set_prefix(shared);
        }
    }

    pub(crate) fn remove(&mut self, at: usize) -> T {
        self.heads.remove(at);
        self.items.remove(at)
    }

    /// Splits off the items from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let (heads, items) = (self.heads.split_off(at), self.items.split_off(at));
        let mut right = Self {
            prefix_len: self.prefix_len,
            heads,
            items,
        };
        self.widen_prefix();
        right.widen_prefix();
        right
    }

    /// Appends the items of the right neighbour.
    pub(crate) fn append(&mut self, mut right: Self) {
        self.items.append(&mut right.items);
        self.heads.resize(self.items.len(), 0);
        self.prefix_len = 0;
        self.widen_prefix();
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.heads.pop();
        self.items.pop()
    }

    /// Sets the prefix to all bytes that the keys share.
    fn widen_prefix(&mut self) {
        if let (Some(first), Some(last)) = (self.items.first(), self.items.last()) {
            // All keys between the first and the last one start with the common prefix of these
            // two.
            self.set_prefix(common(first.key(), last.key()));
        }
    }

    fn set_prefix(&mut self, len: usize) {
        self.prefix_len = len;
        for (entry_head, item) in self.heads.iter_mut().zip(&self.items) {
            *entry_head = head(&item.key()[len..]);
        }
    }
}

/// Returns the first eight bytes as a number with the same order. Keys that differ only in trailing
/// zeros have the same head.
fn head(rest: &[u8]) -> u64 {
    if let Some(eight) = rest.first_chunk() {
        return u64::from_be_bytes(*eight);
    }
    let mut bytes = [0; 8];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(bytes)
}

/// Returns the length of the common prefix of two keys.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Keyed, Sorted};
    use proptest::prelude::*;

    impl Keyed for Vec<u8> {
        fn key(&self) -> &[u8] {
            self
        }
    }

    /// Short keys of few bytes, so that prefixes, equal heads and trailing zeros all occur.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0_u8), Just(1), Just(b'a'), Just(0xff)];
        (0..3_usize, proptest::collection::vec(byte, 0..11))
            .prop_map(|(shared, tail)| [&b"/registry/"[..shared * 5], &tail].concat())
    }

    proptest! {
        #[test]
        fn find_agrees_with_a_binary_search(
            keys in proptest::collection::btree_set(key(), 0..40),
            order in any::<u64>(),
            probes in proptest::collection::vec(key(), 20),
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut shuffled: Vec<Vec<u8>> = keys.iter().cloned().collect();
            shuffled.sort_by_key(|key| {
                key.iter().fold(order, |hash, byte| hash.rotate_left(9) ^ (u64::from(*byte) * 0x9e37))
            });
            let mut sorted = Sorted::new();
            for key in shuffled {
                let at = sorted.find(&key).unwrap_err();
                sorted.insert(at, key);
            }
            let plain: Vec<Vec<u8>> = keys.into_iter().collect();
            let check = |sorted: &Sorted<Vec<u8>>, plain: &[Vec<u8>]| {
                assert_eq!(sorted.as_slice(), plain);
                for probe in probes.iter().chain(plain) {
                    assert_eq!(sorted.find(probe), plain.binary_search(probe));
                }
            };
            check(&sorted, &plain);
            let cut = cut.index(plain.len() + 1);
            let right = sorted.split_off(cut);
            check(&sorted, &plain[..cut]);
            check(&right, &plain[cut..]);
            sorted.append(right);
            check(&sorted, &plain);
            if cut < plain.len() {
                sorted.remove(cut);
                let mut plain = plain;
                plain.remove(cut);
                check(&sorted, &plain);
            }
        }
    }
}
