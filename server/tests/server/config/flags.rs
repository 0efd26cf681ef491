//! The flags as a whole: names, values, help page and completion scripts.

use std::collections::BTreeSet;

use revstore::{ETCD_VERSION, REVSTORE_VERSION};

use super::{check_error, invoke, names, print};

fn check(name: &str, value: &str, expected: Result<(), &str>) {
    let actual = match invoke(&format!("--{name}={value}"), &[]) {
        Err(error) if error.exit_code() == 2 => Err(error),
        // The value is valid, even if it does not go with the defaults of the other flags.
        Ok(_) | Err(_) => Ok(()),
    };
    let expected = expected.map_err(|reason| {
        let boolean = format!("invalid boolean value {value:?} for -{name}: {reason}");
        let other = format!("invalid value {value:?} for flag -{name}: {reason}");
        [boolean, other]
    });
    match (actual, expected) {
        (Ok(()), Ok(())) => {}
        (Err(error), Err(expected)) if expected.contains(&error.to_string()) => {}
        outcome => panic!("{name} {value:?}: {outcome:?}"),
    }
}

#[test]
fn names_are_unique_and_are_found() {
    let mut seen = BTreeSet::new();
    for name in names() {
        assert!(seen.insert(name.clone()), "{name} is declared twice");
        if let Err(error) = invoke(&format!("--{name}=x"), &[]) {
            assert!(!error.to_string().contains("not defined"), "{error}");
        }
    }
    for name in ["no-such-flag", "experimental-name"] {
        let error = invoke(&format!("--{name}"), &[]).unwrap_err().to_string();
        assert_eq!(error, format!("flag provided but not defined: -{name}"));
    }
}

#[test]
fn fl_7_values_are_checked_against_their_type() {
    check("max-txn-ops", "0x80", Ok(()));
    check("max-txn-ops", "-1", Err("parse error"));
    check("max-txn-ops", "many", Err("parse error"));
    check("quota-backend-bytes", "-1", Ok(()));
    check(
        "quota-backend-bytes",
        "9223372036854775808",
        Err("value out of range"),
    );
    check("max-concurrent-streams", "4294967295", Ok(()));
    check(
        "max-concurrent-streams",
        "4294967296",
        Err("value out of range"),
    );
    check("grpc-keepalive-timeout", "1.5h", Ok(()));
    check("grpc-keepalive-timeout", "5", Err("parse error"));
    check("auto-tls", "T", Ok(()));
    check("auto-tls", "yes", Err("parse error"));
    check("listen-client-urls", "", Ok(()));
    check(
        "listen-client-urls",
        "localhost:2379",
        Err("URL scheme must be http, https, unix, or unixs: localhost:2379"),
    );
}

#[test]
fn fl_21_values_of_ignored_flags_are_checked_too() {
    check("snapshot-count", "10000", Ok(()));
    check("snapshot-count", "x", Err("parse error"));
    check("unsafe-no-fsync", "true", Ok(()));
    check("unsafe-no-fsync", "maybe", Err("parse error"));
    check("initial-cluster-state", "existing", Ok(()));
    check(
        "initial-cluster-state",
        "old",
        Err("must be one of: existing, new"),
    );
    check("feature-gates", "InitialCorruptCheck=true", Ok(()));
    for name in [
        "initial-corrupt-check",
        "experimental-initial-corrupt-check",
    ] {
        check(name, "true", Ok(()));
    }
}

/// The harness table of section I: what test harnesses pass must be known.
#[test]
fn fl_20_and_fl_21_flags_of_the_harnesses_are_known() {
    let kubeadm = "name feature-gates listen-client-urls advertise-client-urls \
        listen-peer-urls initial-advertise-peer-urls data-dir cert-file key-file \
        trusted-ca-file client-cert-auth peer-cert-file peer-key-file peer-trusted-ca-file \
        peer-client-cert-auth snapshot-count listen-metrics-urls \
        watch-progress-notify-interval initial-cluster experimental-initial-corrupt-check \
        experimental-watch-progress-notify-interval unsafe-no-fsync initial-cluster-state \
        initial-cluster-token";
    let known = names();
    for name in kubeadm.split_whitespace() {
        assert!(known.contains(&name.to_owned()), "{name}");
    }
}

#[test]
fn fl_5_every_flag_starts_a_line_once_and_nothing_else_does() {
    // The script for bash lists the names that are declared.
    let script = print("completion bash");
    let (_, list) = script
        .split_once("return\n    COMPREPLY=($(compgen -W '")
        .unwrap();
    let (list, _) = list.split_once('\'').unwrap();
    let list = list
        .split_whitespace()
        .map(|name| name.trim_start_matches('-').to_owned());
    let mut expected: Vec<String> = list.collect();
    for name in [
        "unsafe-no-fsync",
        "experimental-watch-progress-notify-interval",
        "start-revision",
    ] {
        assert!(expected.contains(&name.to_owned()), "{name}");
    }
    expected.sort();
    let mut listed = names();
    listed.sort();
    assert_eq!(listed, expected);
}

#[test]
fn defaults_are_as_in_etcd() {
    let page = print("--help");
    for (name, default) in [
        ("name", "default"),
        ("listen-client-urls", "http://localhost:2379"),
        ("listen-peer-urls", "http://localhost:2380"),
        ("max-txn-ops", "128"),
        ("auto-compaction-retention", "0"),
        ("tls-min-version", "TLS1.2"),
        ("bcrypt-cost", "10"),
    ] {
        let line = format!("\n  --{name} '{default}'\n");
        assert!(page.contains(&line), "{line}");
    }
}

#[test]
fn fl_5_and_fl_6_help_and_version() {
    let help = print("-h");
    assert!(help.contains("\nUsage: revstore [flags]\n"), "{help}");
    let version = format!("etcd Version: {ETCD_VERSION}\nrevstore Version: {REVSTORE_VERSION}\n");
    for (line, expected) in [
        ("--help", &help),
        ("--version", &version),
        ("--version --name a", &version),
    ] {
        assert_eq!(&print(line), expected, "{line}");
    }
    check_error(
        "--version --bogus",
        2,
        "flag provided but not defined: -bogus",
    );
    check_error("--version stray", 1, "'stray' is not a valid flag");
}

#[test]
fn completion_scripts_contain_every_flag() {
    for shell in ["bash", "fish", "zsh"] {
        let script = print(&format!("completion {shell}"));
        for name in names() {
            assert!(script.contains(&name), "{shell} {name}");
        }
    }
    check_error(
        "completion",
        1,
        "completion needs one shell: bash, fish or zsh (got \"\")",
    );
    check_error(
        "--name a completion bash",
        1,
        "'completion' is not a valid flag",
    );
}
