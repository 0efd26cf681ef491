//! Ranges of keys.

use bytes::Bytes;

/// The keys that a request is about.
///
/// A range never includes the empty key, which cannot be stored (DM-9); a range that holds no key
/// at all is legal and empty (RG-5).
///
/// ```
/// use revstore_engine::KeyRange;
/// let pods = KeyRange::prefix("/pods/");
/// assert!(pods.contains(b"/pods/a"));
/// assert!(!pods.contains(b"/pods0"));
/// assert!(KeyRange::within("b", "a").is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyRange {
    /// One key (RG-1).
    One(Bytes),
    /// `start`, and every key from it up to but without `end` (RG-2).
    Within {
        /// The first key of the range.
        start: Bytes,
        /// The first key behind the range.
        end: Bytes,
    },
    /// Every key from this one on (RG-3). From the empty key on: all keys.
    From(Bytes),
}

impl KeyRange {
    /// One key.
    pub fn one(key: impl Into<Bytes>) -> Self {
        Self::One(key.into())
    }

    /// The keys from `start` up to but without `end`.
    pub fn within(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self::Within {
            start: start.into(),
            end: end.into(),
        }
    }

    /// All keys.
    pub fn all() -> Self {
        Self::From(Bytes::new())
    }

    /// The keys that begin with `prefix`; the empty prefix means all keys (RG-4).
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

    /// Whether the range holds `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Within { start, end } => **start <= *key && *key < **end,
            Self::From(start) => **start <= *key,
        }
    }

    /// Whether no key can be in the range.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Within { start, end } if end <= start)
    }

    /// The first key that the range could hold.
    pub fn start(&self) -> &[u8] {
        match self {
            Self::One(start) | Self::Within { start, .. } | Self::From(start) => start,
        }
    }

    /// Whether `key` lies behind the whole range.
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
            assert!(range.contains(key), "{range:?} should hold {key:?}");
        }
        for key in outside {
            assert!(!range.contains(key), "{range:?} should not hold {key:?}");
        }
    }

    #[test]
    fn rg_1_to_5_ranges_hold_what_etcd_says() {
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
    fn rg_4_a_prefix_ends_where_its_last_raisable_byte_is_raised() {
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
