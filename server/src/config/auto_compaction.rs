//! The flags of automatic compaction.

use std::time::Duration;

use revstore_engine::AutoCompaction;
use revstore_host::config::{ConfigError, GoDuration, Values, parse_byte_size};

use super::flags;

/// Returns the policy; `None` for no automatic compaction. As in etcd, an empty mode means
/// `periodic` and an empty retention `0`.
pub(super) fn policy(values: &mut Values) -> Result<Option<AutoCompaction>, ConfigError> {
    let Some(every) = values.get(&flags::COMPACTION_INTERVAL).positive() else {
        return Err(ConfigError::new(
            "--auto-compaction-interval must be above 0",
        ));
    };
    let retention = match values.get(&flags::COMPACTION_RETENTION) {
        text if text.is_empty() => "0".to_owned(),
        text => text,
    };
    let policy = match values.get(&flags::COMPACTION_MODE).as_str() {
        "" | "periodic" => period(&retention)
            .map(|period| (!period.is_zero()).then_some(AutoCompaction::Periodic { period })),
        "revision" => revisions(&retention)
            .map(|keep| (keep > 0).then_some(AutoCompaction::Revisions { keep, every })),
        "size" => parse_byte_size(&retention)
            .map(|bytes_max| (bytes_max > 0).then_some(AutoCompaction::Size { bytes_max, every })),
        // AC-1.
        mode => {
            let message = format!("unknown auto-compaction-mode {mode:?}");
            return Err(ConfigError::new(message));
        }
    };
    let policy = policy.map_err(|reason| {
        ConfigError::new(format!("error parsing CompactionRetention: {reason}"))
    })?;
    let is_periodic = matches!(policy, Some(AutoCompaction::Periodic { .. }));
    if is_periodic && values.is_given(&flags::COMPACTION_INTERVAL.declaration) {
        values.warn(
            "--auto-compaction-interval has no effect in periodic mode, which follows the \
             retention",
        );
    }
    Ok(policy)
}

/// Parses a period (AC-2); a plain number is a number of hours. A negative period and an overflow
/// are errors. etcd accepts both, and never compacts with a negative period.
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
    period.ok_or_else(|| ConfigError::new(format!("the period of {retention:?} hours is too long")))
}

/// Parses a number of revisions. A duration is an error (AC-3); etcd uses its number of nanoseconds,
/// with which it never compacts.
fn revisions(retention: &str) -> Result<u64, ConfigError> {
    if let Some(revisions) = whole_number(retention) {
        return Ok(revisions);
    }
    // If the text is not a duration either, the error is etcd's.
    GoDuration::parse(retention)?;
    Err(ConfigError::new(format!(
        "{retention:?} is a duration, but --auto-compaction-mode=revision takes a number of \
         revisions"
    )))
}

/// Parses a non-negative decimal number, with Go's optional plus sign.
fn whole_number(text: &str) -> Option<u64> {
    u64::try_from(text.parse::<i64>().ok()?).ok()
}
