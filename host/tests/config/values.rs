//! The values of flags.

use std::{fmt::Debug, time::Duration};

use revstore_host::config::{FlagValue, GoDuration, parse_byte_size};

/// Go's error for a value of another type.
const SYNTAX: &str = "parse error";
/// Go's error for a number that does not fit in its type.
const RANGE: &str = "value out of range";

fn check<T: FlagValue + Debug + PartialEq>(text: &str, expected: Result<T, &str>) {
    let actual = T::parse(text).map_err(|error| error.to_string());
    assert_eq!(actual, expected.map_err(str::to_owned), "{text:?}");
}

#[test]
fn fl_1_booleans() {
    for (text, expected) in [("true", Ok(true)), ("F", Ok(false)), ("yes", Err(SYNTAX))] {
        check::<bool>(text, expected);
    }
}

#[test]
fn numbers() {
    check::<u64>("0", Ok(0));
    check::<u64>("128", Ok(128));
    check::<u64>("0x10", Ok(16));
    check::<u64>("017", Ok(15));
    check::<u64>("0b11", Ok(3));
    check::<u64>("0o_17", Ok(15));
    check::<u64>("1_000", Ok(1_000));
    check::<u64>("18446744073709551615", Ok(u64::MAX));
    check::<u64>("18446744073709551616", Err(RANGE));
    for bad in [
        "", "-1", "+1", "1_", "_1", "1__0", "0x", "08", "1.5", "1e3", "é", "0é",
    ] {
        check::<u64>(bad, Err(SYNTAX));
    }
    check::<i64>("-9223372036854775808", Ok(i64::MIN));
    check::<i64>("-9223372036854775809", Err(RANGE));
    check::<i64>("+5", Ok(5));
    check::<i64>("9223372036854775808", Err(RANGE));
    check::<i64>("--5", Err(SYNTAX));
}

fn check_size(text: &str, expected: Option<u64>) {
    assert_eq!(parse_byte_size(text).ok(), expected, "{text:?}");
}

#[test]
fn sizes() {
    check_size("0", Some(0));
    check_size("512", Some(512));
    check_size("512B", Some(512));
    check_size("512MiB", Some(512 << 20));
    check_size("2GB", Some(2_000_000_000));
    check_size("", None);
    check_size("MiB", None);
    check_size("1.5GiB", None);
    check_size("1Mb", None);
    check_size("-1", None);
    check_size("99999999999999999999", None);
    check_size("18446744073709551615KiB", None);
}
fn check_duration(text: &str, expected: Result<i64, &str>) {
    let actual = GoDuration::parse(text)
        .map(|d| d.0)
        .map_err(|e| e.to_string());
    assert_eq!(actual, expected.map_err(str::to_owned), "{text:?}");
}

#[test]
fn go_forms() {
    check_duration("0", Ok(0));
    check_duration("-0", Ok(0));
    check_duration("5s", Ok(5_000_000_000));
    check_duration("+5s", Ok(5_000_000_000));
    check_duration("-5s", Ok(-5_000_000_000));
    check_duration("10m", Ok(600_000_000_000));
    check_duration("1.5h", Ok(5_400_000_000_000));
    check_duration("1h30m", Ok(5_400_000_000_000));
    check_duration(".5s", Ok(500_000_000));
    check_duration("5.s", Ok(5_000_000_000));
    check_duration("1us", Ok(1_000));
    check_duration("1µs", Ok(1_000));
    check_duration("0.000000001h", Ok(3_600));
    check_duration("0.9999999999999999999s", Ok(999_999_999));
}

#[test]
fn ac_2_errors_read_like_gos() {
    check_duration("", Err(r#"time: invalid duration """#));
    check_duration("abc", Err(r#"time: invalid duration "abc""#));
    check_duration("..s", Err(r#"time: invalid duration "..s""#));
    check_duration("+", Err(r#"time: invalid duration "+""#));
    check_duration("-5", Err(r#"time: missing unit in duration "-5""#));
    check_duration("0.5", Err(r#"time: missing unit in duration "0.5""#));
    check_duration("1d", Err(r#"time: unknown unit "d" in duration "1d""#));
    check_duration(
        "1h 5m",
        Err(r#"time: unknown unit "h " in duration "1h 5m""#),
    );
    check_duration(
        "1h-5m",
        Err(r#"time: unknown unit "h-" in duration "1h-5m""#),
    );
}

#[test]
fn the_range_is_that_of_64_bits() {
    check_duration("2562047h47m16.854775807s", Ok(i64::MAX));
    check_duration("-2562047h47m16.854775808s", Ok(i64::MIN));
    check_duration(
        "2562047h47m16.854775808s",
        Err(r#"time: invalid duration "2562047h47m16.854775808s""#),
    );
    check_duration(
        "99999999999999999999h",
        Err(r#"time: invalid duration "99999999999999999999h""#),
    );
    check_duration("3000000h", Err(r#"time: invalid duration "3000000h""#));
}

#[test]
fn zero_and_below_are_not_positive() {
    assert_eq!(GoDuration(0).positive(), None);
    assert_eq!(GoDuration(-1).positive(), None);
    assert_eq!(GoDuration(1).positive(), Some(Duration::from_nanos(1)));
}
