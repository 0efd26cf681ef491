//! The indexes of an indexed job in the form of its fields, such as `1,3-5`.

use revstore_watch_cache::status::quoted;

/// Returns the number of indexes, which must be increasing and below `completions`, or what is wrong.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let mut last: Option<i64> = None;
    let mut total = 0;
    for interval in text.split(',') {
        let (first, end) = interval_of(interval, completions)?;
        if let Some(last) = last
            && last >= first
        {
            return Err(format!(
                "non-increasing order, previous: {last}, current: {first}"
            ));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// Returns an index that is in both lists. Intervals that cannot be read are left out.
pub(super) fn overlap(one: &str, two: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        let parts = text.split(',');
        parts
            .filter_map(|part| interval_of(part, completions).ok())
            .collect()
    };
    let (one, two) = (intervals(one), intervals(two));
    let (mut one, mut two) = (one.iter().peekable(), two.iter().peekable());
    while let (Some((first, end)), Some((other_first, other_end))) = (one.peek(), two.peek()) {
        if first <= other_end && other_first <= end {
            return Some(*first.max(other_first));
        }
        if first <= other_first {
            one.next();
        } else {
            two.next();
        }
    }
    None
}

/// Returns the first and the last index of an interval.
fn interval_of(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let number = |text: &str| -> Result<i64, String> {
        let number: i64 = text.parse().map_err(|_| {
            format!(
                "cannot convert string to integer for index: {}",
                quoted(text)
            )
        })?;
        if number >= completions {
            return Err(format!("too large index: {}", quoted(text)));
        }
        Ok(number)
    };
    let mut parts = interval.split('-');
    let (first, end) = (parts.next().unwrap_or_default(), parts.next());
    if parts.next().is_some() {
        return Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts \
             separated by '-'",
            quoted(interval)
        ));
    }
    let first = number(first)?;
    let Some(end) = end else {
        return Ok((first, first));
    };
    let end = number(end)?;
    if first >= end {
        return Err(format!(
            "non-increasing order, previous: {first}, current: {end}"
        ));
    }
    Ok((first, end))
}

#[cfg(test)]
mod tests {
    use super::{count, overlap};

    #[test]
    fn indexes_are_counted() {
        for (text, expected) in [
            ("", Ok(0)),
            ("0", Ok(1)),
            ("1,3-5,7", Ok(5)),
            ("1,1", Err("non-increasing order, previous: 1, current: 1")),
            ("3-2", Err("non-increasing order, previous: 3, current: 2")),
            ("10", Err("too large index: \"10\"")),
            (
                "a",
                Err("cannot convert string to integer for index: \"a\""),
            ),
            (
                "1-2-3",
                Err(
                    "the fragment \"1-2-3\" violates the requirement that an index interval can have \
                     at most two parts separated by '-'",
                ),
            ),
        ] {
            assert_eq!(count(text, 10), expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn overlaps_are_found() {
        for (one, two, expected) in [
            ("0-2,5", "3-4,6", None),
            ("0-2,5", "3-6", Some(5)),
            ("1-4", "0,2", Some(2)),
            ("", "1", None),
            ("x,2", "2", Some(2)),
        ] {
            assert_eq!(overlap(one, two, 10), expected, "{one} {two}");
        }
    }
}
