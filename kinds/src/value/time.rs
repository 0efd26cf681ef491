//! Times in the format of RFC 3339, without a library: the fields of objects, to seconds or microseconds.

use std::fmt::Write as _;

/// A time in UTC: seconds since 1970 and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timestamp {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

/// The time that is Go's zero value, the beginning of year 1; JSON has `null` for it.
pub(crate) const ZERO: Timestamp = Timestamp {
    seconds: -62_135_596_800,
    nanos: 0,
};

/// The seconds of times from year 1 to year 9999, which are all that JSON has.
pub(crate) const RANGE: std::ops::RangeInclusive<i64> = ZERO.seconds..=253_402_300_799;

/// The layouts of times, as errors name them.
const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Reads a time. Times with `micros` have exactly six digits after the point, others any number of them.
pub(crate) fn parse(text: &str, micros: bool) -> Result<Timestamp, String> {
    Reader { rest: text }
        .timestamp(micros)
        .map_err(|(rest, element)| {
            let layout = if micros { MICROS } else { SECONDS };
            if element.is_empty() {
                format!("parsing time {text:?}: extra text: {rest:?}")
            } else if let Some(range) = element.strip_prefix('!') {
                format!("parsing time {text:?}: {range} out of range")
            } else {
                format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}")
            }
        })
}

/// Checks that a text is a time as fields of metadata have it.
///
/// # Errors
/// The text of Go's error.
///
/// ```
/// use revstore_kinds::check_time;
/// assert_eq!(check_time("2024-02-29T12:00:00Z"), Ok(()));
/// assert!(check_time("2023-02-29T12:00:00Z").is_err());
/// ```
pub fn check_time(text: &str) -> Result<(), String> {
    parse(text, false).map(|_| ())
}

/// What is left of the text, and the element of the layout that it does not match: empty for text behind the time, with
/// `!` for a number out of range.
type Mismatch<'a> = (&'a str, &'static str);

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn timestamp(mut self, micros: bool) -> Result<Timestamp, Mismatch<'a>> {
        let year = self.number(4, "2006")?;
        self.literal("-")?;
        let month = self.number(2, "01")?;
        if !(1..=12).contains(&month) {
            return Err((self.rest, "!month"));
        }
        self.literal("-")?;
        let day = self.number(2, "02")?;
        self.literal("T")?;
        let hour = self.number(2, "15")?;
        if hour > 23 {
            return Err((self.rest, "!hour"));
        }
        self.literal(":")?;
        let minute = self.number(2, "04")?;
        if minute > 59 {
            return Err((self.rest, "!minute"));
        }
        self.literal(":")?;
        let second = self.number(2, "05")?;
        if second > 59 {
            return Err((self.rest, "!second"));
        }
        let nanos = self.fraction(micros)?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err((self.rest, ""));
        }
        if day < 1 || day > days_of_month(year, month) {
            return Err((self.rest, "!day"));
        }
        let seconds =
            days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
                - offset;
        Ok(Timestamp { seconds, nanos })
    }

    fn number(&mut self, digits: usize, element: &'static str) -> Result<i64, Mismatch<'a>> {
        let number = self
            .rest
            .get(..digits)
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let number = number
            .and_then(|text| text.parse().ok())
            .ok_or((self.rest, element))?;
        self.rest = &self.rest[digits..];
        Ok(number)
    }

    fn literal(&mut self, literal: &'static str) -> Result<(), Mismatch<'a>> {
        self.rest = self
            .rest
            .strip_prefix(literal)
            .ok_or((self.rest, literal))?;
        Ok(())
    }

    fn fraction(&mut self, micros: bool) -> Result<u32, Mismatch<'a>> {
        let Some(rest) = self.rest.strip_prefix(['.', ',']) else {
            return if micros {
                Err((self.rest, ".000000"))
            } else {
                Ok(0)
            };
        };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if micros && digits != 6 {
            return Err((self.rest, if digits < 6 { ".000000" } else { "Z07:00" }));
        }
        if digits == 0 {
            return Err((self.rest, "Z07:00"));
        }
        let mut nanos = 0;
        for index in 0..9 {
            let digit = rest
                .as_bytes()
                .get(index)
                .filter(|_| index < digits)
                .map_or(0, |digit| digit - b'0');
            nanos = nanos * 10 + u32::from(digit);
        }
        self.rest = &rest[digits..];
        Ok(nanos)
    }

    /// The offset from UTC in seconds.
    fn offset(&mut self) -> Result<i64, Mismatch<'a>> {
        let before = self.rest;
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let sign = match self.rest.as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err((before, "Z07:00")),
        };
        self.rest = &self.rest[1..];
        let element = |_| (before, "Z07:00");
        let hours = self.number(2, "").map_err(element)?;
        self.literal(":").map_err(element)?;
        let minutes = self.number(2, "").map_err(element)?;
        if hours > 24 || minutes > 60 {
            return Err((before, "!time zone offset hour"));
        }
        Ok(sign * (hours * 3600 + minutes * 60))
    }
}

/// Writes a time in UTC, with or without microseconds. Years beyond 9999 have more digits.
pub(crate) fn format(time: Timestamp, micros: bool) -> String {
    let (year, month, day) = date(time.seconds.div_euclid(86_400));
    let second = time.seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut text = String::with_capacity(27);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
    );
    if micros {
        let _ = write!(text, ".{:06}", time.nanos / 1000);
    }
    text.push('Z');
    text
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the beginning of a year that begins in March to each month. Leap days are then at the end of a year.
fn day_of_year(month: i64, day: i64) -> i64 {
    (153 * ((month + 9) % 12) + 2) / 5 + day - 1
}

/// Days of 400 years.
const ERA: i64 = 146_097;
/// Days from March 1 of year 0 to 1970.
const EPOCH: i64 = 719_468;

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    era * ERA + year * 365 + year / 4 - year / 100 + day_of_year(month, day) - EPOCH
}

fn date(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH;
    let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year + i64::from(month <= 2);
    (year, month, day - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        for (text, micros, expected) in [
            ("2024-02-29T12:00:00Z", false, "2024-02-29T12:00:00Z"),
            ("2024-01-01T00:00:00+02:00", false, "2023-12-31T22:00:00Z"),
            ("2024-01-01T00:00:00.999Z", false, "2024-01-01T00:00:00Z"),
            (
                "2024-01-01T00:00:00.123456Z",
                true,
                "2024-01-01T00:00:00.123456Z",
            ),
            ("1969-12-31T23:59:59Z", false, "1969-12-31T23:59:59Z"),
            ("0001-01-01T00:00:00Z", false, "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59-01:30", false, "10000-01-01T01:29:59Z"),
        ] {
            assert_eq!(format(parse(text, micros).unwrap(), micros), expected);
        }
        assert_eq!(parse("0001-01-01T00:00:00Z", false).unwrap(), ZERO);
    }

    #[test]
    fn every_day_of_four_hundred_years_is_read_as_it_is_written() {
        for day in 0..ERA {
            let time = Timestamp {
                seconds: day * 86_400 + 1,
                nanos: 0,
            };
            assert_eq!(parse(&format(time, false), false).unwrap(), time);
        }
    }

    /// The texts are those of Go.
    #[test]
    fn other_texts_are_errors() {
        for (text, expected) in [
            (
                "x",
                r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
            ),
            (
                "",
                r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#,
            ),
            (
                "2024-01-01",
                r#"parsing time "2024-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            (
                "2024-13-01T00:00:00Z",
                r#"parsing time "2024-13-01T00:00:00Z": month out of range"#,
            ),
            (
                "2023-02-29T00:00:00Z",
                r#"parsing time "2023-02-29T00:00:00Z": day out of range"#,
            ),
            (
                "2024-01-01T00:00:00Zx",
                r#"parsing time "2024-01-01T00:00:00Zx": extra text: "x""#,
            ),
        ] {
            assert_eq!(parse(text, false).unwrap_err(), expected);
        }
        for text in [
            "2024-01-01T00:00:00Z",
            "2024-01-01T00:00:00.12Z",
            "2024-01-01T00:00:00.1234567Z",
            "é",
            "2024-01-0é",
        ] {
            assert!(parse(text, true).is_err(), "{text}");
        }
    }
}
