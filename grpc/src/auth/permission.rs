//! The union of the permissions of a user; etcd's `unifiedRangePermissions`.

use bytes::{BufMut, Bytes, BytesMut};
use revstore_proto::authpb::Permission;
use revstore_proto::authpb::permission::Type;

use crate::request::kv::FROM_KEY_END;

/// The permissions of all roles of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    /// Whether the user has the role `root`, which grants all permissions.
    admin: bool,
    /// The keys that the user may read.
    read: RangeUnion,
    /// The keys that the user may write.
    write: RangeUnion,
}

impl Grants {
    /// Returns the permissions of the role `root`.
    pub(crate) fn of_admin() -> Self {
        Self {
            admin: true,
            ..Self::default()
        }
    }

    /// Returns the union of `permissions` (AU-7). A permission of an unknown type grants nothing.
    pub(crate) fn of<'a>(permissions: impl Iterator<Item = &'a Permission>) -> Self {
        let (mut read, mut write) = (Vec::new(), Vec::new());
        for permission in permissions {
            match Type::try_from(permission.perm_type) {
                Ok(Type::Read) => read.push(range(permission)),
                Ok(Type::Write) => write.push(range(permission)),
                Ok(Type::Readwrite) => {
                    read.push(range(permission));
                    write.push(range(permission));
                }
                Err(_unknown) => {}
            }
        }
        Self {
            admin: false,
            read: RangeUnion::of(read),
            write: RangeUnion::of(write),
        }
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.admin
    }

    /// Returns whether the whole range may be read. `range_end` is as in requests (RG-1 to RG-3).
    pub(crate) fn may_read(&self, key: &[u8], range_end: &[u8]) -> bool {
        self.admin || self.read.contains_range(key, range_end)
    }

    /// Returns whether the whole range may be written.
    pub(crate) fn may_write(&self, key: &[u8], range_end: &[u8]) -> bool {
        self.admin || self.write.contains_range(key, range_end)
    }
}

/// Returns whether the range of a permission is valid: the key is not empty, and the range end, if
/// it is present, is greater than the key.
pub(crate) fn is_valid(permission: &Permission) -> bool {
    if permission.key.is_empty() {
        return false;
    }
    match &*permission.range_end {
        [] | FROM_KEY_END => true,
        end => *end > *permission.key,
    }
}

/// A union of key ranges, stored as sorted ranges that neither overlap nor are adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RangeUnion {
    ranges: Vec<(Bytes, UpperBound)>,
}

/// The upper bound of a range. The order is the order of the bounds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UpperBound {
    /// The range ends before this key.
    Before(Bytes),
    /// The range has no end.
    Unbounded,
}

impl UpperBound {
    /// Returns whether a key at or after the start of the range is in the range.
    fn includes(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => *key < **end,
            Self::Unbounded => true,
        }
    }

    /// Returns whether a range that starts at `key` overlaps this range or is adjacent to it.
    fn reaches(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => *key <= **end,
            Self::Unbounded => true,
        }
    }
}

impl RangeUnion {
    fn of(mut ranges: Vec<(Bytes, UpperBound)>) -> Self {
        ranges.sort_unstable();
        let mut union = Self::default();
        for (start, end) in ranges {
            match union.ranges.last_mut() {
                Some((_, last)) if last.reaches(&start) => *last = end.max(last.clone()),
                _ => union.ranges.push((start, end)),
            }
        }
        union
    }

    /// Returns whether the union contains a whole range. A range that ends before its start is
    /// empty, but its start must still be in the union, as in etcd 3.5.16.
    fn contains_range(&self, key: &[u8], range_end: &[u8]) -> bool {
        let after = self.ranges.partition_point(|(start, _)| **start <= *key);
        let Some((_, end)) = after.checked_sub(1).map(|index| &self.ranges[index]) else {
            return false;
        };
        end.includes(key)
            && match (range_end, end) {
                ([], _) | (_, UpperBound::Unbounded) => true,
                (FROM_KEY_END, UpperBound::Before(_)) => false,
                (range_end, UpperBound::Before(end)) => *range_end <= **end,
            }
    }
}

/// Returns the start and the upper bound of the range of a permission.
fn range(permission: &Permission) -> (Bytes, UpperBound) {
    let start = permission.key.clone();
    let end = match &*permission.range_end {
        [] => {
            let mut next = BytesMut::with_capacity(start.len() + 1);
            next.put_slice(&start);
            // The smallest key that is greater than `start`.
            next.put_u8(0);
            UpperBound::Before(next.freeze())
        }
        FROM_KEY_END => UpperBound::Unbounded,
        _ => UpperBound::Before(permission.range_end.clone()),
    };
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(kind: Type, key: &str, range_end: &str) -> Permission {
        Permission {
            perm_type: kind.into(),
            key: key.to_owned().into(),
            range_end: range_end.to_owned().into(),
        }
    }

    fn reading(ranges: &[(&str, &str)]) -> Grants {
        let permission = |(key, end): &(&str, &str)| permission(Type::Read, key, end);
        let permissions: Vec<_> = ranges.iter().map(permission).collect();
        Grants::of(permissions.iter())
    }

    /// The expected results were recorded with etcd 3.5.16.
    #[test]
    fn au_7_the_union_must_contain_the_whole_range() {
        let grants = reading(&[("a", "c"), ("c", "d"), ("x", "\0"), ("k", ""), ("k\0", "l")]);
        for (key, end, expected) in [
            ("a", "", true),
            ("a", "c", true),
            ("a", "d", true),
            ("a", "e", false),
            ("b", "a", true),
            ("b", "b", true),
            ("c", "a", true),
            ("d", "a", false),
            ("k", "l", true),
            ("q", "b", false),
            ("q", "q", false),
            ("w", "\0", false),
            ("x", "\0", true),
            ("z", "\0", true),
        ] {
            let may = grants.may_read(key.as_bytes(), end.as_bytes());
            assert_eq!(may, expected, "{key:?} {end:?}");
        }
    }

    /// Compares all sets of up to three ranges over a few keys with a check of each key.
    #[test]
    fn au_7_unions_agree_with_a_check_of_every_key() {
        const KEYS: [&str; 4] = ["a", "b", "c", "d"];
        let ends = ["", "b", "c", "d", "\0"];
        let ranges: Vec<_> = KEYS
            .iter()
            .flat_map(|key| ends.map(|end| (*key, end)))
            .filter(|(key, end)| is_valid(&permission(Type::Read, key, end)))
            .collect();
        // The keys between and after the bounds of the ranges represent all others.
        let all_keys: Vec<String> = KEYS
            .iter()
            .flat_map(|key| ["", "\0", "z"].map(|more| format!("{key}{more}")))
            .collect();
        let holds = |(start, end): (&str, &str), key: &str| match end {
            "" => key == start,
            "\0" => key >= start,
            end => (start..end).contains(&key),
        };
        for one in &ranges {
            for two in &ranges {
                for three in &ranges {
                    let granted = [*one, *two, *three];
                    let grants = reading(&granted);
                    for wanted in &ranges {
                        let expected = all_keys
                            .iter()
                            .filter(|key| holds(*wanted, key))
                            .all(|key| granted.iter().any(|range| holds(*range, key)));
                        let may = grants.may_read(wanted.0.as_bytes(), wanted.1.as_bytes());
                        assert_eq!(may, expected, "{granted:?} {wanted:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn au_7_read_and_write_permissions_are_separate() {
        let permissions = [
            permission(Type::Read, "r", ""),
            permission(Type::Write, "w", ""),
            permission(Type::Readwrite, "b", ""),
            Permission {
                perm_type: 9,
                ..permission(Type::Read, "u", "")
            },
        ];
        let grants = Grants::of(permissions.iter());
        let check = |key: &[u8], read, write| {
            assert_eq!(
                (grants.may_read(key, b""), grants.may_write(key, b"")),
                (read, write),
                "{key:?}"
            );
        };
        check(b"r", true, false);
        check(b"w", false, true);
        check(b"b", true, true);
        check(b"u", false, false);
        check(b"x", false, false);
        assert!(
            Grants::of_admin().may_read(b"x", b"\0") && Grants::of_admin().may_write(b"x", b"")
        );
    }

    /// The expected results were recorded with etcd 3.5.16.
    #[test]
    fn au_10_a_permission_needs_a_key_and_a_valid_range_end() {
        for (key, end, expected) in [
            ("k", "", true),
            ("k", "l", true),
            ("k", "\0", true),
            ("", "", false),
            ("", "\0", false),
            ("", "b", false),
            ("b", "a", false),
            ("b", "b", false),
        ] {
            let valid = is_valid(&permission(Type::Read, key, end));
            assert_eq!(valid, expected, "{key:?} {end:?}");
        }
    }
}
