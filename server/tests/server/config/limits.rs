//! Limits, times and the start revision.

use std::time::Duration;

use revstore::{Config, Keepalive, Limits};

use super::{check, check_error, check_warning};

#[test]
fn fl_22_election_timeout() {
    check_error(
        "--election-timeout=40 --heartbeat-interval=10",
        1,
        "--election-timeout[40ms] should be at least as 5 times as --heartbeat-interval[10ms]",
    );
    check_error(
        "--election-timeout=50001",
        1,
        "--election-timeout[50001ms] is too long, and should be set less than 50000ms",
    );
    check_error(
        "--heartbeat-interval=0",
        1,
        "--heartbeat-interval must be >0 (set to 0ms)",
    );
    check_error(
        "--election-timeout=0",
        1,
        "--election-timeout must be >0 (set to 0ms)",
    );
    let line = "--heartbeat-interval=18446744073709551615 --election-timeout=50000";
    check_error(
        line,
        1,
        "--election-timeout[50000ms] should be at least as 5 times as \
         --heartbeat-interval[18446744073709551615ms]",
    );
    check(
        "--election-timeout=50000",
        |config| config.election_timeout,
        Duration::from_secs(50),
    );
    check(
        "--election-timeout=50 --heartbeat-interval=10",
        Config::min_lease_ttl,
        Duration::from_secs(1),
    );
}

fn check_min_lease_ttl(election_ms: u64, heartbeat_ms: u64, expected_seconds: u64) {
    let mut config = Config::default();
    config.election_timeout = Duration::from_millis(election_ms);
    config.heartbeat_interval = Duration::from_millis(heartbeat_ms);
    let expected = Duration::from_secs(expected_seconds);
    assert_eq!(
        config.min_lease_ttl(),
        expected,
        "{election_ms} {heartbeat_ms}"
    );
}

#[test]
fn le_1_min_lease_ttl() {
    check_min_lease_ttl(1_000, 100, 2);
    check_min_lease_ttl(50, 10, 1);
    // 7 ticks, 10 after the half is cut off, of 300 ms: 3 s; without cutting it would be 4.
    check_min_lease_ttl(2_100, 300, 3);
    check_min_lease_ttl(50_000, 100, 75);
}

#[test]
fn wa_50_progress_interval() {
    let interval = |config: &Config| config.watch_progress_notify_interval;
    check(
        "--watch-progress-notify-interval=5s",
        interval,
        Duration::from_secs(5),
    );
    check(
        "--experimental-watch-progress-notify-interval=5s",
        interval,
        Duration::from_secs(5),
    );
    check(
        "--watch-progress-notify-interval=0",
        interval,
        Duration::from_secs(600),
    );
    check_warning(
        "--watch-progress-notify-interval=1ms",
        "raised to its minimum of 100ms",
    );
}

/// LI-1, LI-4 to LI-7, MT-11, TXN-1 and AU-13: the defaults are those of etcd.
#[test]
fn default_limits() {
    check(
        "",
        |config| config.limits,
        Limits::default()
            .quota_bytes(Some(2_147_483_648))
            .txn_ops_max(128)
            .request_bytes_max(1_572_864),
    );
    check("", |config| config.max_concurrent_streams, None);
    check(
        "",
        |config| config.keepalive,
        Keepalive::default()
            .min_time(Duration::from_secs(5))
            .interval(Duration::from_secs(2 * 60 * 60))
            .timeout(Duration::from_secs(20)),
    );
    check("", |config| config.auth.token_ttl, Duration::from_secs(300));
}

#[test]
fn limits() {
    check(
        // MT-11.
        "--quota-backend-bytes=-1",
        |config| config.limits.quota_bytes,
        None,
    );
    check(
        "--quota-backend-bytes=0",
        |config| config.limits.quota_bytes,
        Some(2_147_483_648),
    );
    check(
        // LI-2.
        "--max-request-bytes=1000",
        |config| config.limits.message_bytes_max(),
        525_288,
    );
    for (count, expected) in [("0", None), ("3", Some(3)), ("4294967295", None)] {
        // LI-4.
        let line = format!("--max-concurrent-streams={count}");
        check(&line, |config| config.max_concurrent_streams, expected);
    }
    check(
        // LI-5 and LI-7.
        "--grpc-keepalive-min-time=1s --grpc-keepalive-interval=10s --grpc-keepalive-timeout=3s",
        |config| config.keepalive,
        Keepalive::default()
            .min_time(Duration::from_secs(1))
            .interval(Duration::from_secs(10))
            .timeout(Duration::from_secs(3)),
    );
    check(
        "--grpc-keepalive-min-time=0 --grpc-keepalive-interval=0",
        |config| config.keepalive,
        Keepalive::default().min_time(Duration::from_secs(300)),
    );
}

#[test]
fn li_2_messages_may_be_longer_than_requests() {
    assert_eq!(Limits::default().message_bytes_max(), 2_097_152);
}

#[test]
fn fl_17_start_revision() {
    check(
        "--start-revision=1000",
        |config| config.start_revision,
        1_000,
    );
    check_error(
        "--start-revision=0",
        1,
        "--start-revision must be from 1 to 4611686018427387903",
    );
}

#[test]
fn wa_18_the_delay_of_history_is_limited() {
    let delay = |config: &revstore::Config| config.watch_catch_up_delay;
    check(
        "--watch-catch-up-delay 100ms",
        delay,
        Duration::from_millis(100),
    );
    for value in ["-1ns", "10s1ns"] {
        check_error(
            &format!("--watch-catch-up-delay={value}"),
            1,
            "--watch-catch-up-delay must be from 0s to 10s",
        );
    }
}
