//! Ages of objects as `kubectl` shows them.

use crate::builtin::field::Field;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The time of day from which ages are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    now: i64,
}

impl Clock {
    /// Returns a clock that shows a number of seconds since 1970.
    pub(super) fn new(now: i64) -> Self {
        Self { now }
    }

    /// Returns the time since a number of seconds since 1970.
    pub(super) fn ago(self, then: i64) -> String {
        human(self.now.saturating_sub(then))
    }

    /// Returns the time since a timestamp, or `<unknown>` if there is none.
    pub(super) fn since(self, timestamp: &Field<'_>) -> String {
        match seconds(timestamp.text()) {
            Some(then) => self.ago(then),
            None => "<unknown>".to_owned(),
        }
    }
}

/// Returns a duration in seconds in one or two units. Corresponds to `HumanDuration`.
pub(crate) fn human(seconds: i64) -> String {
    let pair = |large: i64, large_unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{large_unit}")
        } else {
            format!("{large}{large_unit}{small}{small_unit}")
        }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => pair(seconds / MINUTE, "m", seconds % MINUTE, "s"),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => pair(seconds / HOUR, "h", seconds % HOUR / MINUTE, "m"),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => pair(seconds / DAY, "d", seconds % DAY / HOUR, "h"),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => pair(seconds / YEAR, "y", seconds % YEAR / DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// Returns the seconds since 1970 of a timestamp such as `2024-01-01T00:00:00.123456+01:00`.
pub(crate) fn seconds(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let is = |at: usize, letters: &[u8]| {
        text.as_bytes()
            .get(at)
            .is_some_and(|byte| letters.contains(byte))
    };
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let days = days_since_1970(number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let time = number(11, 13)? * HOUR + number(14, 16)? * MINUTE + number(17, 19)?;
    let rest = text
        .get(19..)?
        .trim_start_matches(|letter: char| letter == '.' || letter.is_ascii_digit());
    let offset = match rest.as_bytes().first()? {
        b'Z' | b'z' => 0,
        sign @ (b'+' | b'-') => {
            let (hours, minutes) = rest[1..].split_once(':')?;
            let offset = hours.parse::<i64>().ok()? * HOUR + minutes.parse::<i64>().ok()? * MINUTE;
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    Some(days * DAY + time - offset)
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // A year that begins in March has the leap day at its end.
    let (year, month) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let before_year = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    before_year + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::{human, seconds};

    #[test]
    fn durations_have_one_or_two_units() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600 + 60, "3h1m"),
            (47 * 3600, "47h"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (800 * 86400, "2y70d"),
            (3650 * 86400, "10y"),
        ] {
            assert_eq!(human(seconds), text);
        }
    }

    #[test]
    fn timestamps_are_read() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2024-02-29T12:00:00Z"), Some(1_709_208_000));
        assert_eq!(seconds("2024-02-29T12:00:00.123456Z"), Some(1_709_208_000));
        assert_eq!(seconds("2024-02-29T13:00:00+01:00"), Some(1_709_208_000));
        for bad in [
            "",
            "2024",
            "2024-02-29T12:00:00",
            "2024-02-29T12:00:0éZ",
            "yyyy-02-29T12:00:00Z",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
