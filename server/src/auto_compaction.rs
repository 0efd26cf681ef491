//! When history is compacted without being asked (clauses AC-1 to AC-7).

use std::time::Duration;

use revstore_host::config::{ByteSizeError, DurationError, GoDuration, byte_size};

/// How often the modes that do not follow from a period run: etcd's fixed five minutes (AC-6).
pub const DEFAULT_COMPACTION_INTERVAL: Duration = Duration::from_secs(300);

/// What history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCompaction {
    /// Everything, until a client compacts. The default.
    Off,
    /// The history of a span of time (AC-4).
    Periodic {
        /// The span.
        retention: Duration,
    },
    /// A number of revisions (AC-6).
    Revisions {
        /// The number, above 0.
        retention: u64,
        /// How often to look.
        interval: Duration,
    },
    /// A number of bytes of history: our own mode, for servers that must stay small.
    Size {
        /// The number of bytes, above 0.
        retention: u64,
        /// How often to look.
        interval: Duration,
    },
}

/// Why the flags do not make an [`AutoCompaction`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AutoCompactionError {
    /// AC-1.
    #[error("unknown auto-compaction-mode {mode:?}")]
    UnknownMode {
        /// The mode.
        mode: String,
    },
    /// AC-2.
    #[error("error parsing CompactionRetention: {source}")]
    Duration {
        /// Go's complaint.
        #[from]
        source: DurationError,
    },
    /// A size that is none, in size mode.
    #[error("error parsing CompactionRetention: {source}")]
    Size {
        /// What is wrong with it.
        #[from]
        source: ByteSizeError,
    },
    /// A negative period, which etcd accepts and then never compacts.
    #[error("error parsing CompactionRetention: the period {retention:?} is negative")]
    Negative {
        /// The retention.
        retention: String,
    },
    /// More hours than a duration can hold, which etcd lets overflow.
    #[error("error parsing CompactionRetention: {retention:?} hours are too long")]
    TooLong {
        /// The retention.
        retention: String,
    },
    /// AC-3: etcd would take the number of nanoseconds for a number of revisions, and never
    /// compact.
    #[error(
        "error parsing CompactionRetention: {retention:?} is a duration, but \
         --auto-compaction-mode=revision takes a number of revisions"
    )]
    DurationInRevisionMode {
        /// The retention.
        retention: String,
    },
}

impl AutoCompaction {
    /// Reads the three flags. An empty mode is `periodic` and an empty retention `0`, as in etcd;
    /// retention 0 is off in every mode.
    pub(crate) fn parse(
        mode: &str,
        retention: &str,
        interval: Duration,
    ) -> Result<Self, AutoCompactionError> {
        let retention = if retention.is_empty() { "0" } else { retention };
        match mode {
            "" | "periodic" => Ok(match period(retention)? {
                Duration::ZERO => Self::Off,
                retention => Self::Periodic { retention },
            }),
            "revision" => Ok(match revisions(retention)? {
                0 => Self::Off,
                retention => Self::Revisions {
                    retention,
                    interval,
                },
            }),
            "size" => Ok(match byte_size::parse(retention)? {
                0 => Self::Off,
                retention => Self::Size {
                    retention,
                    interval,
                },
            }),
            mode => Err(AutoCompactionError::UnknownMode {
                mode: mode.to_owned(),
            }),
        }
    }
}

/// AC-2: a plain number counts hours.
fn period(retention: &str) -> Result<Duration, AutoCompactionError> {
    if let Some(hours) = whole_number(retention) {
        return hours
            .checked_mul(3_600)
            .filter(|&seconds| i64::try_from(seconds).is_ok_and(|s| s <= i64::MAX / 1_000_000_000))
            .map(Duration::from_secs)
            .ok_or_else(|| AutoCompactionError::TooLong {
                retention: retention.to_owned(),
            });
    }
    let GoDuration(nanoseconds) = GoDuration::parse(retention)?;
    u64::try_from(nanoseconds)
        .map(Duration::from_nanos)
        .map_err(|_| AutoCompactionError::Negative {
            retention: retention.to_owned(),
        })
}

fn revisions(retention: &str) -> Result<u64, AutoCompactionError> {
    if let Some(revisions) = whole_number(retention) {
        return Ok(revisions);
    }
    // What is no duration either keeps etcd's text.
    GoDuration::parse(retention)?;
    Err(AutoCompactionError::DurationInRevisionMode {
        retention: retention.to_owned(),
    })
}

/// A non-negative decimal number, with Go's optional plus sign.
fn whole_number(text: &str) -> Option<u64> {
    text.parse::<i64>()
        .ok()
        .and_then(|number| u64::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = DEFAULT_COMPACTION_INTERVAL;

    fn check(mode: &str, retention: &str, expected: Result<AutoCompaction, &str>) {
        let actual =
            AutoCompaction::parse(mode, retention, INTERVAL).map_err(|error| error.to_string());
        assert_eq!(
            actual,
            expected.map_err(str::to_owned),
            "{mode} {retention}"
        );
    }

    fn periodic(seconds: u64) -> AutoCompaction {
        AutoCompaction::Periodic {
            retention: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn ac_1_modes() {
        check("periodic", "0", Ok(AutoCompaction::Off));
        check("revision", "0", Ok(AutoCompaction::Off));
        check("size", "0", Ok(AutoCompaction::Off));
        check("", "", Ok(AutoCompaction::Off));
        check("x", "0", Err("unknown auto-compaction-mode \"x\""));
    }

    #[test]
    fn ac_2_retention() {
        check("periodic", "1", Ok(periodic(3_600)));
        check("periodic", "5s", Ok(periodic(5)));
        check("periodic", "10m", Ok(periodic(600)));
        check("periodic", "1.5h", Ok(periodic(5_400)));
        check(
            "revision",
            "1000",
            Ok(AutoCompaction::Revisions {
                retention: 1_000,
                interval: INTERVAL,
            }),
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
    fn periods_that_etcd_lets_overflow_are_refused() {
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
        let size = |retention| {
            Ok(AutoCompaction::Size {
                retention,
                interval: INTERVAL,
            })
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
