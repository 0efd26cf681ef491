//! What a user may touch.

use bytes::{BufMut, Bytes, BytesMut};
use revstore_proto::authpb::Permission;
use revstore_proto::authpb::permission::Type;

use crate::request::kv::FROM_KEY_END;

/// Everything that a user's roles allow together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    /// Role `root`: everything.
    admin: bool,
    read: Cover,
    write: Cover,
}

impl Grants {
    /// What an administrator may.
    pub(crate) fn of_admin() -> Self {
        Self {
            admin: true,
            ..Self::default()
        }
    }

    /// What these permissions allow together (AU-7). One of a kind that is unknown allows nothing.
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
            read: Cover::of(read),
            write: Cover::of(write),
        }
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.admin
    }

    /// Whether all of this range may be read; `range_end` as in requests (RG-1 to RG-3).
    pub(crate) fn may_read(&self, key: &[u8], range_end: &[u8]) -> bool {
        self.admin || self.read.holds(key, range_end)
    }

    /// Whether all of this range may be written.
    pub(crate) fn may_write(&self, key: &[u8], range_end: &[u8]) -> bool {
        self.admin || self.write.holds(key, range_end)
    }
}

/// Whether a permission names keys at all: a key, and behind it, if anything, the end of a range.
pub(crate) fn is_valid(permission: &Permission) -> bool {
    if permission.key.is_empty() {
        return false;
    }
    match &*permission.range_end {
        [] | FROM_KEY_END => true,
        end => *end > *permission.key,
    }
}

/// A union of ranges, as ranges that neither overlap nor touch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cover {
    ranges: Vec<(Bytes, End)>,
}

/// Where a range ends. The order is that of the ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// At the last key before this one.
    Before(Bytes),
    /// Nowhere.
    Open,
}

impl End {
    /// Whether a key that is not before the start of the range is in it.
    fn includes(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => *key < **end,
            Self::Open => true,
        }
    }

    /// Whether a range that starts at the key continues the one that ends here.
    fn meets(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => *key <= **end,
            Self::Open => true,
        }
    }
}

impl Cover {
    fn of(mut ranges: Vec<(Bytes, End)>) -> Self {
        ranges.sort_unstable();
        let mut cover = Self::default();
        for (start, end) in ranges {
            match cover.ranges.last_mut() {
                Some((_, last)) if last.meets(&start) => *last = end.max(last.clone()),
                _ => cover.ranges.push((start, end)),
            }
        }
        cover
    }

    /// Whether all of a range is covered. One that ends before it starts has no keys, but its start
    /// must be covered all the same, as etcd 3.5.16 has it.
    fn holds(&self, key: &[u8], range_end: &[u8]) -> bool {
        let behind = self.ranges.partition_point(|(start, _)| **start <= *key);
        let Some((_, end)) = behind.checked_sub(1).map(|at| &self.ranges[at]) else {
            return false;
        };
        end.includes(key)
            && match (range_end, end) {
                ([], _) | (_, End::Open) => true,
                (FROM_KEY_END, End::Before(_)) => false,
                (range_end, End::Before(end)) => *range_end <= **end,
            }
    }
}

fn range(permission: &Permission) -> (Bytes, End) {
    let start = permission.key.clone();
    let end = match &*permission.range_end {
        [] => {
            let mut next = BytesMut::with_capacity(start.len() + 1);
            next.put_slice(&start);
            // The first key that is greater.
            next.put_u8(0);
            End::Before(next.freeze())
        }
        FROM_KEY_END => End::Open,
        _ => End::Before(permission.range_end.clone()),
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

    /// All of these were put to etcd 3.5.16.
    #[test]
    fn au_7_a_range_needs_full_cover_by_the_union() {
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

    /// Every set of up to three ranges over a few keys, against a look at each key.
    #[test]
    fn au_7_covers_agree_with_a_look_at_every_key() {
        const KEYS: [&str; 4] = ["a", "b", "c", "d"];
        let ends = ["", "b", "c", "d", "\0"];
        let ranges: Vec<_> = KEYS
            .iter()
            .flat_map(|key| ends.map(|end| (*key, end)))
            .filter(|(key, end)| is_valid(&permission(Type::Read, key, end)))
            .collect();
        // Keys between and behind those that name ranges stand for all others.
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
    fn au_7_kinds_are_told_apart() {
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

    /// All of these were put to etcd 3.5.16.
    #[test]
    fn au_10_permissions_name_keys() {
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
