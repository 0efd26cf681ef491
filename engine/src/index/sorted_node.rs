//! Sorted: what a tree node holds, laid out so that a search touches few cache lines.

/// Something that has a key.
pub(crate) trait Keyed {
    fn key(&self) -> &[u8];
}

/// Items in ascending key order, without two of one key.
///
/// Keys often share a long prefix (`/registry/pods/default/…`), and following a pointer to each key
/// that a binary search probes costs a cache miss. So the prefix that all keys share is compared
/// once, and the eight bytes behind it stand side by side as numbers, the *heads*; only where heads
/// are equal is a key itself looked at.
#[derive(Debug)]
pub(crate) struct Sorted<T> {
    /// How many bytes all keys share. May be fewer than they could.
    prefix_len: usize,
    /// The bytes behind the prefix of each key, the first in the highest place, zeros at the end.
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

    /// Where the key is, or where it belongs.
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
        // Mostly there is one such head or none.
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

    /// Puts an item where [`Sorted::find`] said that it belongs.
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

    /// Takes over the items of the right neighbour.
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

    /// Makes the prefix as long as it can be.
    fn widen_prefix(&mut self) {
        if let (Some(first), Some(last)) = (self.items.first(), self.items.last()) {
            // What the first and the last share, all between them share.
            self.set_prefix(common(first.key(), last.key()));
        }
    }

    fn set_prefix(&mut self, len: usize) {
        self.prefix_len = len;
        for (slot, item) in self.heads.iter_mut().zip(&self.items) {
            *slot = head(&item.key()[len..]);
        }
    }
}

/// The first eight bytes as a number that orders as they do. Keys that differ only in zeros at
/// their ends have the same head.
fn head(rest: &[u8]) -> u64 {
    if let Some(eight) = rest.first_chunk() {
        return u64::from_be_bytes(*eight);
    }
    let mut bytes = [0; 8];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(bytes)
}

/// How many bytes two keys begin with alike.
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
        fn it_finds_what_a_plain_search_finds(
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
