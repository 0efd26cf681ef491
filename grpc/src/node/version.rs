//! The versions of the node in responses, and the validation of downgrades.

use crate::status::EtcdError;

/// The first minor version of etcd with a storage version in the Status response (MT-1).
const FIRST_WITH_STORAGE_VERSION: Minor = Minor { major: 3, minor: 6 };

/// The major and minor number of a version. Downgrades ignore the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Minor {
    major: u64,
    minor: u64,
}

impl Minor {
    /// Parses `1.2`, `1.2.3` or `1.2.3-pre+build`.
    fn parse(text: &str) -> Option<Self> {
        fn number(digits: &str) -> Option<u64> {
            let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| all_digits)
        }
        let (major, rest) = text.split_once('.')?;
        let minor = match rest.split_once('.') {
            Some((minor, patch)) => {
                number(patch.split(['-', '+']).next()?)?;
                minor
            }
            None => rest,
        };
        Some(Self {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

/// Returns the cluster version of servers with this version.
pub(crate) fn of_cluster(version: &str) -> String {
    match Minor::parse(version) {
        Some(Minor { major, minor }) => format!("{major}.{minor}.0"),
        None => version.to_owned(),
    }
}

/// Returns the storage version of a server with this version; empty before etcd 3.6.
pub(crate) fn of_storage(version: &str) -> String {
    match Minor::parse(version) {
        Some(own) if own >= FIRST_WITH_STORAGE_VERSION => of_cluster(version),
        _ => String::new(),
    }
}

/// MT-13: the target of a downgrade is the previous minor version.
pub(crate) fn check_downgrade(own: &str, target: &str) -> Result<(), EtcdError> {
    let target = Minor::parse(target).ok_or(EtcdError::WrongDowngradeVersionFormat)?;
    let own = Minor::parse(own).ok_or(EtcdError::ClusterVersionUnavailable)?;
    if target.major == own.major && target.minor.checked_add(1) == Some(own.minor) {
        Ok(())
    } else {
        Err(EtcdError::InvalidDowngradeTargetVersion)
    }
}

#[cfg(test)]
mod tests {
    use super::EtcdError;

    /// The expected results are those of etcd 3.5.16.
    #[test]
    fn mt_13_the_target_is_the_previous_minor_version() {
        let check = |target, expected| {
            assert_eq!(
                super::check_downgrade("3.5.30", target),
                expected,
                "{target}"
            );
        };
        for target in ["3.4", "3.4.0", "3.4.9", "3.4.0-rc.1"] {
            check(target, Ok(()));
        }
        for target in ["3", "x", ""] {
            check(target, Err(EtcdError::WrongDowngradeVersionFormat));
        }
        for target in ["4.4", "3.5.0", "3.6", "3.3"] {
            check(target, Err(EtcdError::InvalidDowngradeTargetVersion));
        }
        check("3.+4", Err(EtcdError::WrongDowngradeVersionFormat));
        check(
            "3.18446744073709551615",
            Err(EtcdError::InvalidDowngradeTargetVersion),
        );
    }

    #[test]
    fn mt_1_servers_have_a_storage_version_since_3_6() {
        assert_eq!(super::of_storage("3.5.30"), "");
        assert_eq!(super::of_storage("3.6.1"), "3.6.0");
        assert_eq!(super::of_cluster("3.5.30"), "3.5.0");
    }
}
