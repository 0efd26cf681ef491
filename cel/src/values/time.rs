//! Points and spans of time.

use std::fmt;

use tz::TimeZone;

/// The number of nanoseconds in a second.
pub(crate) const NANOS: i64 = 1_000_000_000;
/// The first and the last second that a timestamp can have: the years 1 to 9999.
const SECONDS_MIN: i64 = -62_135_596_800;
const SECONDS_MAX: i64 = 253_402_300_799;

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// The seconds since 1970.
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

/// The parts of a point in time in a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    /// From 0.
    pub(crate) year_day: i64,
    /// From Sunday, which is 0.
    pub(crate) week_day: i64,
    pub(crate) second_of_day: i64,
}

/// Returns the number of days from 1970-01-01 to a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

impl Timestamp {
    pub(crate) fn new(seconds: i64, nanos: u32) -> Option<Self> {
        (SECONDS_MIN..=SECONDS_MAX)
            .contains(&seconds)
            .then_some(Self { seconds, nanos })
    }

    pub(crate) fn is_zero(self) -> bool {
        self.seconds == SECONDS_MIN && self.nanos == 0
    }

    /// Returns the time some nanoseconds later, if it is in range.
    pub(crate) fn add(self, nanos: i64) -> Option<Self> {
        let total = i128::from(self.seconds) * i128::from(NANOS)
            + i128::from(self.nanos)
            + i128::from(nanos);
        let seconds = i64::try_from(total.div_euclid(i128::from(NANOS))).ok()?;
        let nanos = u32::try_from(total.rem_euclid(i128::from(NANOS))).ok()?;
        Self::new(seconds, nanos)
    }

    /// Returns the nanoseconds since another time, if they are in range.
    pub(crate) fn since(self, other: Self) -> Option<i64> {
        let seconds = i128::from(self.seconds) - i128::from(other.seconds);
        let nanos = i128::from(self.nanos) - i128::from(other.nanos);
        i64::try_from(seconds * i128::from(NANOS) + nanos).ok()
    }

    /// Returns the parts of the time so many seconds east.
    pub(crate) fn civil(self, offset: i64) -> Civil {
        let seconds = self.seconds + offset;
        let day_number = seconds.div_euclid(86_400);
        let shifted = day_number + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 {
            shifted_month + 3
        } else {
            shifted_month - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Civil {
            year,
            month,
            day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
            year_day: day_number - days(year, 1, 1),
            week_day: (day_number + 4).rem_euclid(7),
            second_of_day: seconds.rem_euclid(86_400),
        }
    }

    /// Returns the seconds to the east of a zone: a name, or hours and minutes.
    pub(crate) fn offset(self, zone: &str) -> Result<i64, String> {
        if let Some((hours, minutes)) = zone.split_once(':') {
            let number = |text: &str| {
                text.parse::<i64>().map_err(|_| {
                    format!(
                        "strconv.Atoi: parsing {}: invalid syntax",
                        super::go_quote(text, false)
                    )
                })
            };
            let (hours, minutes) = (number(hours)?, number(minutes)?);
            let minutes = if zone.starts_with('-') {
                -minutes
            } else {
                minutes
            };
            return Ok(hours
                .saturating_mul(3600)
                .saturating_add(minutes.saturating_mul(60)));
        }
        if zone.is_empty() || zone == "UTC" {
            return Ok(0);
        }
        let unknown = || format!("unknown time zone {zone}");
        // Only the names of zones: no paths outside of their folder, and no rules.
        let is_name = zone.split('/').all(|part| {
            part.starts_with(|letter: char| letter.is_ascii_alphabetic())
                && part
                    .chars()
                    .all(|letter| letter.is_ascii_alphanumeric() || "_+-".contains(letter))
        });
        if !is_name {
            return Err(unknown());
        }
        let zone = TimeZone::from_posix_tz(&format!(":{zone}")).map_err(|_| unknown())?;
        let local = zone
            .find_local_time_type(self.seconds)
            .map_err(|_| unknown())?;
        Ok(i64::from(local.ut_offset()))
    }
}

/// As RFC 3339.
impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let civil = self.civil(0);
        let second = civil.second_of_day;
        write!(
            out,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            civil.year,
            civil.month,
            civil.day,
            second / 3600,
            second / 60 % 60,
            second % 60
        )?;
        if self.nanos > 0 {
            let digits = format!("{:09}", self.nanos);
            write!(out, ".{}", digits.trim_end_matches('0'))?;
        }
        out.write_str("Z")
    }
}

/// Reads a fixed number of digits.
fn digits(text: &mut &str, count: usize) -> Option<i64> {
    let part = text.get(..count)?;
    if !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    *text = &text[count..];
    part.parse().ok()
}

fn letter(text: &mut &str, letters: &str) -> Option<char> {
    let found = text
        .chars()
        .next()
        .filter(|letter| letters.contains(*letter))?;
    *text = &text[1..];
    Some(found)
}

fn date(text: &mut &str) -> Option<i64> {
    let year = digits(text, 4)?;
    letter(text, "-")?;
    let month = digits(text, 2)?;
    letter(text, "-")?;
    let day = digits(text, 2)?;
    if !(1..=12).contains(&month) {
        return None;
    }
    let next = if month == 12 {
        days(year + 1, 1, 1)
    } else {
        days(year, month + 1, 1)
    };
    (1..=next - days(year, month, 1))
        .contains(&day)
        .then(|| days(year, month, day))
}

/// Reads a date without a time. It may be of the year 0, which no conversion in an expression makes.
pub(crate) fn parse_date(text: &str) -> Option<Timestamp> {
    let mut rest = text;
    let seconds = date(&mut rest)? * 86_400;
    rest.is_empty().then_some(Timestamp { seconds, nanos: 0 })
}

/// Reads a time as RFC 3339, as Go does: the letters are large, and the hour may have one digit.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let mut rest = text;
    let local = local_time(&mut rest)?;
    let offset = match letter(&mut rest, "Z+-")? {
        'Z' => 0,
        sign => {
            let hours = digits(&mut rest, 2)?;
            letter(&mut rest, ":")?;
            let minutes = digits(&mut rest, 2)?;
            if hours > 24 || minutes > 60 {
                return None;
            }
            (hours * 3600 + minutes * 60) * if sign == '-' { -1 } else { 1 }
        }
    };
    let seconds = local.seconds - offset;
    rest.is_empty().then_some(Timestamp { seconds, ..local })
}

/// Reads a time without a zone, which is in UTC.
pub(crate) fn parse_local_time(text: &str) -> Option<Timestamp> {
    let mut rest = text;
    local_time(&mut rest).filter(|_| rest.is_empty())
}

/// Reads a date and a time as far as the zone.
fn local_time(text: &mut &str) -> Option<Timestamp> {
    let mut rest = *text;
    let day = date(&mut rest)?;
    letter(&mut rest, "T")?;
    let hour = digits(&mut rest, 2).or_else(|| digits(&mut rest, 1))?;
    letter(&mut rest, ":")?;
    let minute = digits(&mut rest, 2)?;
    letter(&mut rest, ":")?;
    let second = digits(&mut rest, 2)?;
    let mut nanos: u32 = 0;
    if letter(&mut rest, ".,").is_some() {
        let count = rest.bytes().take_while(u8::is_ascii_digit).count();
        let shown: String = rest[..count]
            .chars()
            .chain("000000000".chars())
            .take(9)
            .collect();
        nanos = shown.parse().ok().filter(|_| count > 0)?;
        rest = &rest[count..];
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    *text = rest;
    let seconds = day * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Timestamp { seconds, nanos })
}

/// The units of durations, longest names first.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration such as `1h30m`, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let value: u64 = if whole == 0 {
            0
        } else {
            rest[..whole].parse().ok()?
        };
        rest = &rest[whole..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let count = after.bytes().take_while(u8::is_ascii_digit).count();
            fraction = &after[..count];
            rest = &after[count..];
        }
        if whole == 0 && fraction.is_empty() {
            return None;
        }
        let (name, unit) = UNITS.iter().find(|(name, _)| rest.starts_with(name))?;
        rest = &rest[name.len()..];
        let mut part = value.checked_mul(*unit)?;
        let mut scale = *unit;
        for digit in fraction.bytes() {
            // Digits below a nanosecond are cut, as a whole.
            scale /= 10;
            part = part.checked_add(u64::from(digit - b'0') * scale)?;
        }
        total = total.checked_add(part)?;
    }
    if is_negative {
        0_i64.checked_sub_unsigned(total)
    } else {
        i64::try_from(total).ok()
    }
}

/// Returns the text of a duration in seconds.
pub(crate) fn duration_text(nanos: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "as the specification says")]
    let seconds = (nanos / NANOS) as f64 + (nanos % NANOS) as f64 / 1e9;
    format!("{seconds}s")
}
