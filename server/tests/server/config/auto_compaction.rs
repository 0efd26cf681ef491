//! The flags of automatic compaction.

use std::time::Duration;

use revstore::engine::AutoCompaction;

use super::{check_error, check_warning, try_serve};

/// The default of `--auto-compaction-interval`.
const INTERVAL: Duration = Duration::from_secs(300);

fn check(mode: &str, retention: &str, expected: Result<Option<AutoCompaction>, &str>) {
    let line = format!("--auto-compaction-mode={mode} --auto-compaction-retention={retention}");
    let actual = try_serve(&line)
        .map(|(config, _)| config.auto_compaction)
        .map_err(|error| error.to_string());
    assert_eq!(actual, expected.map_err(str::to_owned), "{line}");
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
        Err(
            "error parsing CompactionRetention: the period of \"9223372036854775807\" hours is too long",
        ),
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

#[test]
fn ac_1_to_ac_3_auto_compaction() {
    super::check(
        "--auto-compaction-retention=5m",
        |config| config.auto_compaction,
        Some(AutoCompaction::Periodic {
            period: Duration::from_secs(300),
        }),
    );
    super::check(
        "--auto-compaction-mode=size --auto-compaction-retention=512MiB \
         --auto-compaction-interval=1s",
        |config| config.auto_compaction,
        Some(AutoCompaction::Size {
            bytes_max: 512 << 20,
            every: Duration::from_secs(1),
        }),
    );
    check_error(
        "--auto-compaction-mode=x",
        1,
        "unknown auto-compaction-mode \"x\"",
    );
    check_error(
        "--auto-compaction-retention=abc",
        1,
        "error parsing CompactionRetention: time: invalid duration \"abc\"",
    );
    check_error(
        "--auto-compaction-interval=0",
        1,
        "--auto-compaction-interval must be above 0",
    );
    check_warning(
        "--auto-compaction-retention=1 --auto-compaction-interval=1s",
        "no effect",
    );
}
