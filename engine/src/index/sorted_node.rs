//! The content of a tree node: sorted items, laid out so that a search accesses few cache lines.

/// An item with a key.
pub(crate) trait Keyed {
    fn key(&self) -> &[u8];
}

/// The items of a node, in ascending order of their keys, each key once.
///
/// Keys often share a long prefix (`/registry/pods/default/…`), and following a pointer to each key
/// that a binary search probes costs a cache miss. So the prefix that all keys share is compared
/// once, and the eight bytes after it are stored side by side as numbers, the *heads*. A key itself
/// is read only if heads are equal.
#[derive(Debug)]
pub(crate) struct Sorted<'a, T> {
    /// The number of leading bytes that searches compare only once. All keys share them; the common
    /// prefix may be longer.
    pub(crate) prefix_len: usize,
    /// The eight bytes after the prefix of each key as a big-endian number, padded with zeros.
    pub(crate) heads: &'a [u64],
    pub(crate) items: &'a [T],
}

impl<T: Keyed> Sorted<'_, T> {
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

    /// Returns the index of the child of an inner node that contains the key, if any does.
    #[inline]
    pub(crate) fn child_of(&self, key: &[u8]) -> usize {
        match self.find(key) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }

    /// Returns the length of the prefix after a key is added.
    pub(crate) fn prefix_with(&self, key: &[u8]) -> usize {
        match self.items.first() {
            Some(first) => common(&first.key()[..self.prefix_len], key),
            None => key.len(),
        }
    }

    /// Returns the length of the longest prefix that all keys share.
    pub(crate) fn longest_prefix(&self) -> usize {
        match self.items {
            // All keys between the first and the last one start with the common prefix of these
            // two.
            [first, .., last] => common(first.key(), last.key()),
            [only] => only.key().len(),
            [] => 0,
        }
    }
}

/// Returns the head of a key in a node with a prefix of this length.
pub(crate) fn head_after(prefix_len: usize, key: &[u8]) -> u64 {
    head(&key[prefix_len..])
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{Keyed, Sorted, head_after};
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
            shorter in any::<proptest::sample::Index>(),
            probes in proptest::collection::vec(key(), 20),
        ) {
            let items: Vec<Vec<u8>> = keys.into_iter().collect();
            let unsearched = Sorted { prefix_len: 0, heads: &[], items: &items };
            // A node that has got a key with another prefix keeps a shorter one after its removal.
            let prefix_len = shorter.index(unsearched.longest_prefix() + 1);
            let heads: Vec<u64> = items.iter().map(|key| head_after(prefix_len, key)).collect();
            let sorted = Sorted { prefix_len, heads: &heads, items: &items };
            for probe in probes.iter().chain(&items) {
                assert_eq!(sorted.find(probe), items.binary_search(probe));
                let prefix = &items.first().unwrap_or(probe)[..sorted.prefix_with(probe)];
                assert!(items.iter().chain([probe]).all(|key| key.starts_with(prefix)));
            }
        }
    }
}
