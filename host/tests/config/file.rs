//! Configuration files.

use std::fs;

use revstore_host::config::Values;

use crate::{
    CERT_AUTH, CERT_FILE, HOSTNAMES, INTERVAL, LISTEN_CLIENT_URLS, MAX_TXN_OPS, NAME, OUTPUTS,
    PPROF, RETENTION, parse, served,
};

/// Parses the text of a file that the command line names. The path in an error is `etcd.yaml`.
fn parse_file(text: &str) -> Result<(Values, Vec<String>), String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("etcd.yaml");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    served(parse(&format!("--config-file={path}"), &[]))
        .map_err(|error| error.to_string().replace(path, "etcd.yaml"))
}

fn check<T: PartialEq + std::fmt::Debug>(
    text: &str,
    field: impl Fn(&Values) -> T,
    expected: impl Into<T>,
) {
    let (values, warnings) = parse_file(text).unwrap();
    assert_eq!(
        (field(&values), warnings),
        (expected.into(), vec![]),
        "{text}"
    );
}

fn check_error(text: &str, expected: &str) {
    let error = parse_file(text).map(drop).unwrap_err();
    assert!(error.contains(expected), "{text:?}: {error}");
}

#[test]
fn fl_4_keys_are_flag_names() {
    check("", |values| values.get(&NAME), "default");
    check(
        "# nothing but a comment",
        |values| values.get(&NAME),
        "default",
    );
    check("name: a", |values| values.get(&NAME), "a");
    check("name:", |values| values.get(&NAME), "default");
    check("max-txn-ops: 7", |values| values.get(&MAX_TXN_OPS), 7_u64);
    check(
        "auto-compaction-retention: 1",
        |values| values.get(&RETENTION),
        "1",
    );
    check(
        "log-outputs: [stdout, a.log]",
        |values| values.get(&OUTPUTS).join(","),
        "stdout,a.log",
    );
    check("enable-pprof: true", |values| values.get(&PPROF), true);
    check(
        "listen-client-urls: http://127.0.0.1:1,http://127.0.0.1:2",
        |values| values.get(&LISTEN_CLIENT_URLS).len(),
        2_usize,
    );
}

#[test]
fn durations_are_nanoseconds_or_gos_form() {
    let interval = |values: &Values| values.get(&INTERVAL).0;
    check(
        "experimental-watch-progress-notify-interval: 5000000000",
        interval,
        5_000_000_000_i64,
    );
    check(
        "watch-progress-notify-interval: 5s",
        interval,
        5_000_000_000_i64,
    );
}

#[test]
fn keys_in_the_mapping_are_flags_too() {
    check(
        "client-transport-security:\n  cert-file: a.crt\n  client-cert-auth: true\n  \
         allowed-hostname: [x, y]\npeer-transport-security:\n",
        |values| {
            let names = values.get(&HOSTNAMES).join(",");
            (values.get(&CERT_FILE), values.get(&CERT_AUTH), names)
        },
        (Some("a.crt".into()), true, "x,y".to_owned()),
    );
}

/// A restriction in a mapping must not be lost silently.
#[test]
fn keys_in_a_mapping_with_a_prefix_are_flags_too() {
    let (_, warnings) =
        parse_file("peer-transport-security:\n  cert-file: b.crt\n  bogus: 1\n").unwrap();
    let expected = [
        "unrecognized key \"bogus\" in the configuration file",
        "--peer-cert-file has no effect: there are no files",
    ];
    assert_eq!(warnings, expected);
    check_error(
        "peer-transport-security: [cert-file]",
        "has no mapping at \"peer-transport-security\"",
    );
}

#[test]
fn an_empty_list_of_urls_replaces_nothing() {
    check(
        "listen-client-urls: ''",
        |values| values.get(&LISTEN_CLIENT_URLS).len(),
        1_usize,
    );
}

#[test]
fn fl_4_unknown_keys_are_ignored() {
    let (values, warnings) = parse_file("name: a\nbogus: {b: 1}\nversion: true\n").unwrap();
    assert_eq!(values.get(&NAME), "a");
    let keys = ["bogus", "version"]
        .map(|key| format!("unrecognized key \"{key}\" in the configuration file"));
    assert_eq!(warnings, keys);
}

#[test]
fn invalid_files() {
    check_error(
        "name: [",
        "the configuration file etcd.yaml is not valid YAML: ",
    );
    check_error(
        "- name",
        "the configuration file etcd.yaml does not map flag names to values",
    );
    check_error("just text", "the configuration file etcd.yaml does not map");
    check_error(
        "max-txn-ops: many",
        "invalid value \"many\" for max-txn-ops in the configuration file etcd.yaml: parse error",
    );
    check_error(
        "name: {a: b}",
        "a single value or a list of values is expected",
    );
}
