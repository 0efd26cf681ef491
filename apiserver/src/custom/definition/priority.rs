//! The order of versions: stable ones first, then beta and alpha, each with the newest first.

use std::cmp::Ordering;

/// The stage of a version, and its numbers.
type Priority = (u8, u64, u64);

fn priority(version: &str) -> Option<Priority> {
    let rest = version.strip_prefix('v')?;
    let split = rest
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(rest.len());
    let number = |text: &str| {
        let is_number = !text.is_empty()
            && !text.starts_with('0')
            && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number {
            text.parse::<u64>().ok()
        } else {
            None
        }
    };
    let (major, stage) = rest.split_at(split);
    let major = number(major)?;
    if stage.is_empty() {
        return Some((2, major, 0));
    }
    match stage.strip_prefix("beta") {
        Some(minor) => Some((1, major, number(minor)?)),
        None => Some((0, major, number(stage.strip_prefix("alpha")?)?)),
    }
}

/// Compares two versions: the one with the higher priority is greater. Names of another form have the
/// lowest priority, in the order of the alphabet.
pub fn compare(one: &str, other: &str) -> Ordering {
    match (priority(one), priority(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => other.cmp(one),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_ordered_as_in_kubernetes() {
        let mut versions = [
            "foo1",
            "v1beta1",
            "v10",
            "v2",
            "v1",
            "v12alpha1",
            "v11beta2",
            "foo10",
            "v11alpha2",
            "v10beta3",
        ];
        versions.sort_by(|one, other| super::compare(other, one));
        let expected = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v1beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
        ];
        assert_eq!(versions, expected);
    }
}
