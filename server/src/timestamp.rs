//! Points in time as people and certificates read them: UTC, in the Gregorian calendar.

use std::{fmt, time::SystemTime};

const SECONDS_PER_DAY: u64 = 86_400;

/// A point in time after 1970, in calendar terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamp {
    pub(crate) year: i32,
    pub(crate) month: u8,
    pub(crate) day: u8,
    second_of_day: u64,
    microsecond: u32,
}

impl From<SystemTime> for Timestamp {
    /// Times before 1970 count as 1970.
    fn from(time: SystemTime) -> Self {
        let since = time
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let (year, month, day) = civil_date(since.as_secs() / SECONDS_PER_DAY);
        Self {
            year,
            month,
            day,
            second_of_day: since.as_secs() % SECONDS_PER_DAY,
            microsecond: since.subsec_micros(),
        }
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 with microseconds, as in etcd's log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = self.second_of_day;
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
            self.year,
            self.month,
            self.day,
            second / 3_600,
            second / 60 % 60,
            second % 60,
            self.microsecond
        )
    }
}

/// The date of a day counted from 1970-01-01, by walking the years: some sixty steps for a log line
/// are cheap, and everybody can check them.
fn civil_date(mut day: u64) -> (i32, u8, u8) {
    let mut year = 1970;
    loop {
        let days = if is_leap(year) { 366 } else { 365 };
        if day < days {
            break;
        }
        day -= days;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    // At most 30 is left.
    (year, month, u8::try_from(day + 1).unwrap_or(1))
}

fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn check(microseconds: u64, expected: &str) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(microseconds);
        assert_eq!(Timestamp::from(time).to_string(), expected);
    }

    #[test]
    fn calendar() {
        check(0, "1970-01-01T00:00:00.000000Z");
        check(951_782_399_000_001, "2000-02-28T23:59:59.000001Z");
        check(951_782_400_000_000, "2000-02-29T00:00:00.000000Z");
        check(1_735_689_599_999_999, "2024-12-31T23:59:59.999999Z");
        check(1_735_689_600_000_000, "2025-01-01T00:00:00.000000Z");
        check(4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z");
    }
}
