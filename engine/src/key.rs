//! Ranges of keys.

use bytes::Bytes;

/// A set of adjacent keys.
///
/// The empty key cannot be stored and is in no range. A range that contains no key at all is
/// allowed and has an empty result.
///
/// ```
/// use revstore_engine::KeyRange;
/// let pods = KeyRange::prefix("/pods/");
/// assert!(pods.contains(b"/pods/a"));
/// assert!(!pods.contains(b"/pods0"));
/// assert!(KeyRange::within("b", "a").is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum KeyRange {
    /// One key.
    One(#[cfg_attr(feature = "serde", serde(with = "crate::encoding"))] Bytes),
    /// The keys from `start`, inclusive, to `end`, exclusive.
    Within {
        /// The first key of the range.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding"))]
        start: Bytes,
        /// The first key after the range.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding"))]
        end: Bytes,
    },
    /// The keys from this one on, inclusive. With the empty key, the range contains all keys.
    From(#[cfg_attr(feature = "serde", serde(with = "crate::encoding"))] Bytes),
}

impl KeyRange {
    /// Returns the range of one key.
    pub fn one(key: impl Into<Bytes>) -> Self {
        Self::One(key.into())
    }

    /// Returns the range from `start`, inclusive, to `end`, exclusive.
    pub fn within(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self::Within {
            start: start.into(),
            end: end.into(),
        }
    }

    /// Returns the range of all keys.
    pub fn all() -> Self {
        Self::From(Bytes::new())
    }

    /// Returns the range of the keys that start with `prefix`. With the empty prefix, the range
    /// contains all keys.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start: Bytes = prefix.into();
        match start.iter().rposition(|byte| *byte < u8::MAX) {
            Some(last) => {
                let mut end = start[..=last].to_vec();
                end[last] += 1;
                Self::Within {
                    start,
                    end: end.into(),
                }
            }
            None => Self::From(start),
        }
    }

    /// Returns whether the range contains `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Within { start, end } => **start <= *key && *key < **end,
            Self::From(start) => **start <= *key,
        }
    }

    /// Returns whether the range contains no key.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Within { start, end } if end <= start)
    }

    /// Returns the lowest key that the range may contain.
    pub fn start(&self) -> &[u8] {
        match self {
            Self::One(start) | Self::Within { start, .. } | Self::From(start) => start,
        }
    }

    /// Returns the keys of the range after `key`, which the range contains.
    pub(crate) fn after(&self, key: &[u8]) -> Self {
        let mut next = Vec::with_capacity(key.len() + 1);
        next.extend_from_slice(key);
        next.push(0);
        let start = Bytes::from(next);
        match self {
            Self::One(_) => Self::Within {
                end: start.clone(),
                start,
            },
            Self::Within { end, .. } => Self::Within {
                start,
                end: end.clone(),
            },
            Self::From(_) => Self::From(start),
        }
    }

    /// Returns whether `key` lies after the whole range.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => *key > **one,
            Self::Within { end, .. } => *key >= **end,
            Self::From(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KeyRange;

    fn check(range: &KeyRange, inside: &[&[u8]], outside: &[&[u8]]) {
        for key in inside {
            assert!(range.contains(key), "{range:?} should contain {key:?}");
        }
        for key in outside {
            assert!(!range.contains(key), "{range:?} should not contain {key:?}");
        }
    }

    #[test]
    fn rg_1_to_5_ranges_contain_the_same_keys_as_in_etcd() {
        check(&KeyRange::one("a"), &[b"a"], &[b"", b"a\0", b"b"]);
        check(
            &KeyRange::within("a", "c"),
            &[b"a", b"b\xff"],
            &[b"c", b"A"],
        );
        check(&KeyRange::within("c", "a"), &[], &[b"a", b"b", b"c"]);
        check(&KeyRange::all(), &[b"\0", b"\xff"], &[]);
        check(&KeyRange::From("b".into()), &[b"b", b"\xff"], &[b"a"]);
    }

    #[test]
    fn rg_4_a_prefix_ends_where_its_last_byte_below_255_is_incremented() {
        check(&KeyRange::prefix("k"), &[b"k", b"k\xff\xff"], &[b"l", b"j"]);
        check(
            &KeyRange::prefix(&b"a\xff"[..]),
            &[b"a\xff", b"a\xff\x01"],
            &[b"b", b"a\xfe"],
        );
        assert_eq!(
            KeyRange::prefix(&b"\xff\xff"[..]),
            KeyRange::From((&b"\xff\xff"[..]).into())
        );
        assert_eq!(KeyRange::prefix(""), KeyRange::all());
    }
}
