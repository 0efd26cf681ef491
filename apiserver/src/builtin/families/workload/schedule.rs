//! When cron jobs run: schedules in the format of cron, and time zones.

use revstore_watch_cache::status::quoted;

use crate::builtin::causes::Causes;
use crate::builtin::field::Field;

/// The names of the time zones of the IANA database, in order.
const ZONES: &str = include_str!("../../../../data/time-zones.txt");
/// The maximum length of a part of the name of a time zone.
const ZONE_PART_BYTES_MAX: usize = 14;

/// Checks the name of a time zone, if there is one.
pub(super) fn check_zone(zone: &Field<'_>, causes: &mut Causes) {
    if !zone.is_set() {
        return;
    }
    let name = zone.text();
    if name.is_empty() {
        causes.invalid(zone, "timeZone must be nil or non-empty string");
        return;
    }
    let unknown = format!("unknown time zone {name}");
    if !name.split('/').all(is_zone_part) {
        causes.invalid(zone, &unknown);
        return;
    }
    if name.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in \
                      https://www.iana.org/time-zones";
        causes.invalid(zone, detail);
    }
    if name.contains("..") {
        causes.invalid(zone, "time: invalid location name");
    } else if name != "Local" && !is_zone(name) {
        causes.invalid(zone, &unknown);
    }
}

fn is_zone_part(part: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    !["", ".", ".."].contains(&part)
        && !part.starts_with('-')
        && part.len() <= ZONE_PART_BYTES_MAX
        && part.bytes().all(is_inner)
}

fn is_zone(name: &str) -> bool {
    ZONES.lines().any(|zone| zone == name)
}

/// The fields of a schedule: their names and ranges.
const FIELDS: [(&str, u64, u64); 5] = [
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 6),
];
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const DESCRIPTORS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// Returns what is wrong with a schedule in the format of cron.
pub(super) fn schedule_error(schedule: &str) -> Option<String> {
    if schedule.is_empty() {
        return Some("empty spec string".to_owned());
    }
    let mut rest = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let (_, after) = schedule.split_once('=').unwrap_or_default();
        let Some((zone, after)) = after.split_once(' ') else {
            // Upstream's parser panics here.
            return Some(
                "invalid schedule format: runtime error: slice bounds out of range".to_owned(),
            );
        };
        if !["", "UTC", "Local"].contains(&zone) && !is_zone(zone) {
            return Some(format!(
                "provided bad location {zone}: unknown time zone {zone}"
            ));
        }
        rest = after.trim();
    }
    if rest.starts_with('@') {
        if let Some(duration) = rest.strip_prefix("@every ") {
            let error = duration_error(duration)?;
            return Some(format!("failed to parse duration {rest}: {error}"));
        }
        let known = DESCRIPTORS.contains(&rest);
        return (!known).then(|| format!("unrecognized descriptor: {rest}"));
    }
    let words: Vec<&str> = rest.split_whitespace().collect();
    if words.len() != FIELDS.len() {
        return Some(format!(
            "expected exactly 5 fields, found {}: [{}]",
            words.len(),
            words.join(" ")
        ));
    }
    words
        .iter()
        .zip(FIELDS)
        .flat_map(|(word, field)| word.split(',').map(move |part| (part, field)))
        .filter(|(part, _)| !part.is_empty())
        .find_map(|(part, field)| check_range(part, field).err())
}

/// Checks one of the ranges of a field, such as `1-5/2`.
fn check_range(part: &str, (name, min, max): (&str, u64, u64)) -> Result<(), String> {
    let parts: Vec<&str> = part.split('/').collect();
    let bounds: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = if ["*", "?"].contains(&bounds[0]) {
        (min, max)
    } else {
        let start = number_or_name(bounds[0], name)?;
        match bounds[..] {
            [_] => (start, start),
            [_, end] => (start, number_or_name(end, name)?),
            _ => return Err(format!("too many hyphens: {part}")),
        }
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            if bounds.len() == 1 {
                end = max;
            }
            step
        }
        _ => return Err(format!("too many slashes: {part}")),
    };
    if start < min {
        Err(format!(
            "beginning of range ({start}) below minimum ({min}): {part}"
        ))
    } else if end > max {
        Err(format!(
            "end of range ({end}) above maximum ({max}): {part}"
        ))
    } else if start > end {
        Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {part}"
        ))
    } else if step == 0 {
        Err(format!("step of range should be a positive number: {part}"))
    } else {
        Ok(())
    }
}

fn number_or_name(text: &str, field: &str) -> Result<u64, String> {
    let named = |names: &[&str], first: u64| {
        let names = names.iter().zip(first..);
        let found = names
            .into_iter()
            .find(|(name, _)| text.eq_ignore_ascii_case(name));
        found.map(|(_, number)| number)
    };
    let of_name = match field {
        "month" => named(&MONTHS, 1),
        "weekday" => named(&WEEKDAYS, 0),
        _ => None,
    };
    of_name.map_or_else(|| number(text), Ok)
}

/// Reads a number as Go does.
fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let shown = quoted(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {shown}: invalid syntax"
        ));
    }
    match text.parse::<i64>() {
        Ok(number) => u64::try_from(number)
            .map_err(|_| format!("negative number ({number}) not allowed: {text}")),
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {shown}: value out of range"
        )),
    }
}

/// The units of durations in nanoseconds.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];
/// The number of nanoseconds that no duration reaches.
const NANOSECONDS_BELOW: f64 = 9_223_372_036_854_775_808.0;

/// Returns what is wrong with a duration of Go, such as `1h30m`.
fn duration_error(text: &str) -> Option<String> {
    let shown = quoted(text);
    let invalid = || Some(format!("time: invalid duration {shown}"));
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return None;
    }
    if rest.is_empty() {
        return invalid();
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
        let end = rest.find(|letter| !is_number(letter)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return invalid();
        }
        let end = after.find(is_number).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Some(format!("time: missing unit in duration {shown}"));
        }
        let Some((_, size)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            let unit = quoted(unit);
            return Some(format!("time: unknown unit {unit} in duration {shown}"));
        };
        total += format!("0{number}").parse::<f64>().unwrap_or_default() * size;
        if total >= NANOSECONDS_BELOW {
            return invalid();
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{ZONES, duration_error, schedule_error};

    #[test]
    fn schedules_are_checked() {
        for good in [
            "*/5 * * * *",
            "0 0 1,15 jan-mar MON",
            "@daily",
            "@every 5m",
            "1/70 * * * *",
            "TZ=UTC 0 0 * * *",
        ] {
            assert_eq!(schedule_error(good), None, "{good}");
        }
        for (bad, error) in [
            ("", "empty spec string"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            (
                "*/0 * * * *",
                "step of range should be a positive number: */0",
            ),
            (
                "5-1 * * * *",
                "beginning of range (5) beyond end of range (1): 5-1",
            ),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("@never", "unrecognized descriptor: @never"),
            (
                "a * * * *",
                "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax",
            ),
            (
                "@every x",
                "failed to parse duration @every x: time: invalid duration \"x\"",
            ),
        ] {
            assert_eq!(schedule_error(bad).as_deref(), Some(error), "{bad}");
        }
    }

    #[test]
    fn durations_are_those_of_go() {
        for good in ["1h30m", "1.5h", "-3s", "0", "100ms", ".5s"] {
            assert_eq!(duration_error(good), None, "{good}");
        }
        for (bad, error) in [
            ("", "time: invalid duration \"\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5y", "time: unknown unit \"y\" in duration \"5y\""),
            ("9999999999h", "time: invalid duration \"9999999999h\""),
        ] {
            assert_eq!(duration_error(bad).as_deref(), Some(error), "{bad}");
        }
    }

    #[test]
    fn time_zones_are_listed_in_order() {
        assert!(ZONES.lines().is_sorted());
        assert!(ZONES.lines().any(|zone| zone == "Europe/Berlin"));
    }
}
