//! The formats of texts with times and durations, as the package `strfmt` of kube-openapi reads them.

use super::time::{Timestamp, parse_date, parse_duration, parse_local_time, parse_timestamp};

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;

/// The units of durations in nanoseconds, with their names. A word is the last name of its unit, and what begins with it.
const UNITS: [(i64, &[&str], &str); 8] = [
    (1, &["ns"], "nano"),
    (1_000, &["us", "\u{b5}s"], "micro"),
    (1_000_000, &["ms"], "milli"),
    (SECOND, &["s"], "sec"),
    (60 * SECOND, &["m"], "min"),
    (HOUR, &["h", "hr"], "hour"),
    (24 * HOUR, &["d"], "day"),
    (7 * 24 * HOUR, &["w", "wk"], "week"),
];

/// Returns whether a text has the format `date`.
pub fn is_date(text: &str) -> bool {
    parse_date(text).is_some()
}

/// Returns whether a text has the format `date-time`. Expressions cannot read all such texts: they need large letters, and
/// a point or a comma before a fraction.
pub fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && has_time_and_zone(time)
}

/// Returns whether a text is a time such as `23:59:59.5z`. Any character may stand before the fraction.
fn has_time_and_zone(text: &str) -> bool {
    let Some((time, rest)) = text.split_at_checked(8) else {
        return false;
    };
    let mut parts = time.split(':');
    let is_in_range = ["23", "59", "59"].iter().all(|max| {
        let part = parts.next();
        part.is_some_and(|part| has_digits(part, 2) && part <= *max)
    });
    let fraction = rest.strip_suffix('z').or_else(|| {
        let (fraction, zone) = rest.split_at_checked(rest.len().checked_sub(6)?)?;
        let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
        (has_digits(hours, 2) && has_digits(minutes, 2)).then_some(fraction)
    });
    is_in_range
        && fraction.is_some_and(|fraction| {
            let mut letters = fraction.chars();
            let digits = |rest: &str| !rest.is_empty() && has_digits(rest, rest.len());
            letters
                .next()
                .is_none_or(|first| first != '\n' && digits(letters.as_str()))
        })
}

fn has_digits(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads a text of the format `date-time`, also without a zone. An empty one is the start of 1970.
pub(crate) fn read_date_time(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Timestamp::new(0, 0);
    }
    parse_timestamp(text).or_else(|| parse_local_time(text))
}

/// Returns whether a text has the format `duration`.
pub fn is_duration(text: &str) -> bool {
    read_duration(text).is_ok()
}

/// Reads a text of the format `duration` in nanoseconds: a duration of Go, or the sum of all numbers before units.
///
/// # Errors
/// The text is none, in the words of kube-apiserver.
pub(crate) fn read_duration(text: &str) -> Result<i64, String> {
    if let Some(nanos) = parse_duration(text) {
        return Ok(nanos);
    }
    let mut total = None;
    let mut rest = text;
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (digits, after) = split_where(&rest[start..], |letter| letter.is_ascii_digit());
        let word = after.trim_start_matches([' ', '\t', '\n', '\x0c', '\r']);
        let (word, after) = split_where(word, |letter| {
            letter.is_ascii_alphabetic() || letter == '\u{b5}'
        });
        rest = after;
        if word.is_empty() {
            continue;
        }
        let count: i64 = digits
            .parse()
            .map_err(|_| format!("strconv.Atoi: parsing \"{digits}\": value out of range"))?;
        if let Some(unit) = unit(&word.to_ascii_lowercase()) {
            // Go does not notice that a sum is too large.
            let sum = total
                .unwrap_or(0_i64)
                .wrapping_add(count.wrapping_mul(unit));
            total = Some(sum);
        }
    }
    total.ok_or_else(|| format!("unable to parse {text} as duration"))
}

/// Splits a text before the first character that is not like the others.
fn split_where(text: &str, is_like: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|letter| !is_like(letter)).unwrap_or(text.len()))
}

/// Returns the unit with a name in lower case, in nanoseconds.
fn unit(name: &str) -> Option<i64> {
    let mut units = UNITS.iter();
    let found = units.find(|(_, names, word)| names.contains(&name) || name.starts_with(word));
    found.map(|(nanos, ..)| *nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go_or_numbers_with_units() {
        for (text, expected) in [
            ("1h30m", 90 * 60 * SECOND),
            ("-2s", -2 * SECOND),
            ("1d", 24 * HOUR),
            ("2w", 14 * 24 * HOUR),
            ("1 hour", HOUR),
            ("3 days", 72 * HOUR),
            ("3h 4m", 3 * HOUR + 240 * SECOND),
            ("2 Weeks and 1\tMIN", 14 * 24 * HOUR + 60 * SECOND),
            ("5 \u{b5}s", 5_000),
            // The sign and what stands before the point are ignored.
            ("-5 minutes", 300 * SECOND),
            ("1.5d", 5 * 24 * HOUR),
            ("7 years 1s", SECOND),
            ("200000 wk", (200_000 * 7 * 24_i64).wrapping_mul(HOUR)),
        ] {
            assert_eq!(read_duration(text), Ok(expected), "{text}");
        }
        for (text, error) in [
            ("", "unable to parse  as duration"),
            ("3 lightyears", "unable to parse 3 lightyears as duration"),
            (
                "1s 99999999999999999999 x",
                "strconv.Atoi: parsing \"99999999999999999999\": value out of range",
            ),
        ] {
            assert_eq!(read_duration(text), Err(error.to_owned()));
        }
    }

    #[test]
    fn times_of_the_format_are_not_all_readable() {
        for (text, is_format, seconds) in [
            ("1970-01-02T00:00:01Z", true, Some(86_401)),
            ("1970-01-02T01:00:01,5+01:00", true, Some(86_401)),
            ("1970-01-02t00:00:01z", true, None),
            ("1970-01-02T00:00:01z", true, None),
            ("1970-01-02T00:00:01x5Z", true, None),
            ("1970-01-02T00:00:01", false, Some(86_401)),
            ("1970-01-02T1:00:00Z", false, Some(90_000)),
            ("1970-01-02T00:00:60Z", false, None),
            ("", false, Some(0)),
        ] {
            assert_eq!(is_date_time(text), is_format, "{text}");
            assert_eq!(
                read_date_time(text).map(|time| time.seconds),
                seconds,
                "{text}"
            );
        }
    }
}
