//! The flags of automatic compaction.

use std::time::Duration;

use revstore_engine::AutoCompaction;
use revstore_host::config::{ConfigError, GoDuration, parse_byte_size};

/// Parses mode and retention; `None` for no automatic compaction. `interval` is for the modes
/// `revision` and `size`. As in etcd, an empty mode means `periodic` and an empty retention `0`.
pub(super) fn parse(
    mode: &str,
    retention: &str,
    interval: Duration,
) -> Result<Option<AutoCompaction>, ConfigError> {
    let retention = if retention.is_empty() { "0" } else { retention };
    let policy = match mode {
        "" | "periodic" => period(retention)
            .map(|period| (!period.is_zero()).then_some(AutoCompaction::Periodic { period })),
        "revision" => revisions(retention).map(|keep| {
            let every = interval;
            (keep > 0).then_some(AutoCompaction::Revisions { keep, every })
        }),
        "size" => parse_byte_size(retention).map(|bytes_max| {
            let every = interval;
            (bytes_max > 0).then_some(AutoCompaction::Size { bytes_max, every })
        }),
        // AC-1.
        mode => {
            return Err(ConfigError::new(format!(
                "unknown auto-compaction-mode {mode:?}"
            )));
        }
    };
    policy
        .map_err(|reason| ConfigError::new(format!("error parsing CompactionRetention: {reason}")))
}

/// AC-2: a plain number counts hours. etcd accepts a negative period, with which it never compacts,
/// and lets numbers of hours overflow.
fn period(retention: &str) -> Result<Duration, ConfigError> {
    let Some(hours) = whole_number(retention) else {
        let GoDuration(nanoseconds) = GoDuration::parse(retention)?;
        let nanoseconds = u64::try_from(nanoseconds);
        let period = nanoseconds.map(Duration::from_nanos);
        let negative = |_| ConfigError::new(format!("the period {retention:?} is negative"));
        return period.map_err(negative);
    };
    let seconds = hours.checked_mul(3_600);
    let seconds = seconds.filter(|&seconds| seconds <= i64::MAX.unsigned_abs() / 1_000_000_000);
    let period = seconds.map(Duration::from_secs);
    period.ok_or_else(|| ConfigError::new(format!("{retention:?} hours are too long")))
}

/// AC-3: etcd takes a duration for its number of nanoseconds, with which it never compacts.
fn revisions(retention: &str) -> Result<u64, ConfigError> {
    if let Some(revisions) = whole_number(retention) {
        return Ok(revisions);
    }
    // A text that is not a duration either has etcd's error.
    GoDuration::parse(retention)?;
    Err(ConfigError::new(format!(
        "{retention:?} is a duration, but --auto-compaction-mode=revision takes a number of \
         revisions"
    )))
}

/// A non-negative decimal number, with Go's optional plus sign.
fn whole_number(text: &str) -> Option<u64> {
    u64::try_from(text.parse::<i64>().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(300);

    fn check(mode: &str, retention: &str, expected: Result<Option<AutoCompaction>, &str>) {
        let actual = parse(mode, retention, INTERVAL).map_err(|error| error.to_string());
        assert_eq!(
            actual,
            expected.map_err(str::to_owned),
            "{mode} {retention}"
        );
    }

    fn periodic(seconds: u64) -> AutoCompaction {
        let period = Duration::from_secs(seconds);
        AutoCompaction::Periodic { period }
    }

    #[test]
    fn ac_1_modes() {
        check("periodic", "0", Ok(None));
        check("revision", "0", Ok(None));
        check("size", "0", Ok(None));
        check("", "", Ok(None));
        check("x", "0", Err("unknown auto-compaction-mode \"x\""));
    }

    #[test]
    fn ac_2_retention() {
        check("periodic", "1", Ok(Some(periodic(3_600))));
        check("periodic", "5s", Ok(Some(periodic(5))));
        check("periodic", "10m", Ok(Some(periodic(600))));
        check("periodic", "1.5h", Ok(Some(periodic(5_400))));
        check(
            "revision",
            "1000",
            Ok(Some(AutoCompaction::Revisions {
                keep: 1_000,
                every: INTERVAL,
            })),
        );
        for mode in ["periodic", "revision"] {
            check(
                mode,
                "abc",
                Err("error parsing CompactionRetention: time: invalid duration \"abc\""),
            );
            check(
                mode,
                "-5",
                Err("error parsing CompactionRetention: time: missing unit in duration \"-5\""),
            );
            check(
                mode,
                "0.5",
                Err("error parsing CompactionRetention: time: missing unit in duration \"0.5\""),
            );
        }
    }

    #[test]
    fn ac_3_no_durations_in_revision_mode() {
        check(
            "revision",
            "10m",
            Err(
                "error parsing CompactionRetention: \"10m\" is a duration, but \
                 --auto-compaction-mode=revision takes a number of revisions",
            ),
        );
    }

    #[test]
    fn periods_that_overflow_in_etcd_are_errors() {
        check(
            "periodic",
            "-5s",
            Err("error parsing CompactionRetention: the period \"-5s\" is negative"),
        );
        check(
            "periodic",
            "9223372036854775807",
            Err("error parsing CompactionRetention: \"9223372036854775807\" hours are too long"),
        );
    }

    #[test]
    fn size_mode() {
        let size = |bytes_max| {
            let every = INTERVAL;
            Ok(Some(AutoCompaction::Size { bytes_max, every }))
        };
        check("size", "512MiB", size(512 << 20));
        check("size", "4096", size(4_096));
        check(
            "size",
            "5s",
            Err(
                "error parsing CompactionRetention: \"5s\" is not a size in bytes such as \
                 1048576, 512MiB or 2GiB",
            ),
        );
    }
}
