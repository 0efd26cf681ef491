//! The flags of revstore beside those of a real etcd (FL-20, FL-21).
//!
//! The declarations of the flags (`server/src/config/flags.rs`) state whether each has an effect. These tests
//! hold that the declarations are complete, and that a default of etcd asks for nothing that is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use revstore::{Invocation, parse};
use revstore_tests::tools::{self, Tool};

/// Flags that etcd 3.5 accepts and does not list in its help page.
const HIDDEN: [&str; 17] = [
    "cluster-active-size",
    "cluster-remove-delay",
    "cluster-sync-interval",
    "config",
    "experimental-snapshot-catchup-entries",
    "force",
    "max-result-buffer",
    "max-retry-attempts",
    "peer-election-timeout",
    "peer-heartbeat-interval",
    "retry-interval",
    "snapshot",
    "test.coverprofile",
    "test.outputdir",
    "v",
    "version",
    "vv",
];

/// The flags that etcd 3.5 does not have: those of 3.6 and 3.7, and those of revstore.
const NEWER: &str = "answer-memory-bytes auto-advance-idle auto-compaction-interval bootstrap-defrag-threshold-megabytes client-cert-allowed-cn \
    compact-hash-check-enabled compact-hash-check-time compaction-batch-limit \
    compaction-sleep-interval control-allow-remote control-clock control-listen-url \
    control-memory-limit control-token-file corrupt-check-time discovery-cacert discovery-cert \
    discovery-dial-timeout discovery-endpoints discovery-insecure-skip-tls-verify \
    discovery-insecure-transport discovery-keepalive-time discovery-keepalive-timeout discovery-key \
    discovery-password discovery-request-timeout discovery-token discovery-user \
    distributed-tracing-address distributed-tracing-instance-id distributed-tracing-sampling-rate \
    distributed-tracing-service-name downgrade-check-time enable-distributed-tracing \
    enable-lease-checkpoint enable-lease-checkpoint-persist enable-v2v3 exit-with-stdin experimental-max-learners \
    experimental-warning-unary-request-duration feature-gates heavy-workers import initial-corrupt-check log-format \
    max-learners memory-mlock peer-skip-client-san-verification persist persist-fsync \
    persist-fsync-interval snapshot-catchup-entries start-revision stop-grpc-service-on-defrag \
    txn-mode-write-with-shared-buffer warning-apply-duration warning-unary-request-duration \
    watch-catch-up-delay watch-progress-notify-interval";

/// Returns the flags of a help page with their defaults; `None` for a default that is no value.
fn flags(page: &str) -> BTreeMap<String, Option<String>> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("  --"));
    let flags = lines.map(|line| {
        let (name, default) = line.split_once(' ').unwrap_or((line, ""));
        let text = default
            .strip_prefix('\'')
            .and_then(|it| it.strip_suffix('\''));
        let number = Some(default).filter(|it| it.parse::<u64>().is_ok());
        (name.to_owned(), text.or(number).map(str::to_owned))
    });
    flags.collect()
}

fn page_of_revstore() -> String {
    match parse(["--help".into()], []) {
        Ok(Invocation::Print(page)) => page,
        other => panic!("{other:?}"),
    }
}

fn etcd(arguments: &[&str]) -> (bool, String) {
    let path = Tool::Etcd.locate().expect("etcd is available");
    let output = Command::new(path).args(arguments).env_clear().output();
    let output = output.expect("etcd runs");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Flags of etcd's help page, and those that it hides.
fn flags_of_etcd() -> BTreeMap<String, Option<String>> {
    let mut known = flags(&etcd(&["--help"]).1);
    assert!(known.len() > 100, "{known:?}");
    known.extend(HIDDEN.map(|name| (name.to_owned(), None)));
    known.insert("config-file".to_owned(), None);
    known
}

#[test]
fn fl_21_every_flag_of_etcd_is_declared_and_no_other() {
    if !tools::available("fl_21_every_flag_of_etcd_is_declared", &[Tool::Etcd]) {
        return;
    }
    let ours: BTreeSet<_> = flags(&page_of_revstore()).into_keys().collect();
    let theirs: BTreeSet<_> = flags_of_etcd().into_keys().collect();
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert_eq!(
        missing, [""; 0],
        "flags of etcd that revstore does not know"
    );
    let others = ours.difference(&theirs).map(String::as_str);
    let others: Vec<_> = others.filter(|name| *name != "help").collect();
    let newer: Vec<_> = NEWER.split_whitespace().collect();
    assert_eq!(others, newer, "flags that this etcd does not list");
    for name in HIDDEN.iter().chain(&newer) {
        // A boolean takes no value from the next argument; any other flag takes this one.
        let (_, text) = etcd(&[&format!("--{name}"), "--version"]);
        let is_unknown = text.contains(&format!("flag provided but not defined: -{name}\n"));
        assert_eq!(is_unknown, newer.contains(name), "{name}: {text}");
    }
}

#[test]
fn fl_21_the_defaults_of_etcd_ask_for_nothing_that_is_missing() {
    if !tools::available("fl_21_the_defaults_of_etcd", &[Tool::Etcd]) {
        return;
    }
    let mut tried = 0;
    for (name, default) in flags_of_etcd() {
        // Texts in the help page that are no values, which etcd refuses too.
        let is_value = !matches!(
            name.as_str(),
            "data-dir" | "max-concurrent-streams" | "backend-batch-interval"
        );
        let Some(default) = default.filter(|_| is_value) else {
            continue;
        };
        let argument = format!("--{name}={default}");
        let (is_valid, text) = etcd(&[&argument, "--version"]);
        assert!(is_valid, "{argument}: {text}");
        let line = ["--advertise-client-urls=http://localhost:2379", &argument];
        match parse(line.map(Into::into), []) {
            Ok(Invocation::Serve { warnings, .. }) => assert_eq!(warnings, [""; 0], "{argument}"),
            other => panic!("{argument}: {other:?}"),
        }
        tried += 1;
    }
    assert!(tried > 90, "only {tried} flags have a default");
}
