//! Environment variables.

use crate::{INTERVAL, NAME, parse, served};

/// Checks the value of a flag and the warnings, or the error.
fn check(line: &str, variables: &[(&str, &str)], expected: Result<(&str, &[&str]), &str>) {
    let actual = served(parse(line, variables))
        .map(|(values, warnings)| (values.get(&NAME), warnings))
        .map_err(|error| format!("{error}; exit {}", error.exit_code()));
    let expected = expected.map(|(name, warnings)| {
        let warnings = warnings.iter().map(ToString::to_string);
        (name.to_owned(), warnings.collect())
    });
    let expected = expected.map_err(str::to_owned);
    assert_eq!(actual, expected, "{line:?} {variables:?}");
}

#[test]
fn fl_2_every_flag_is_a_variable() {
    check("", &[("ETCD_NAME", "a"), ("NAME", "b")], Ok(("a", &[])));
    check("", &[("ETCD_NAME", "")], Ok(("default", &[])));
    check(
        "",
        &[("ETCD_UNSAFE_NO_FSYNC", "true")],
        Ok(("default", &[])),
    );
    check(
        "",
        &[("ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK", "false")],
        Ok(("default", &[])),
    );
    check(
        "",
        &[("ETCD_UNSUPPORTED_ARCH", "riscv64")],
        Ok(("default", &[])),
    );
}

#[test]
fn fl_2_unknown_variables_only_warn() {
    check(
        "",
        &[
            ("ETCD_SERVICE_HOST", "10.0.0.1"),
            ("ETCD_VERSION", "v3.5.30"),
            ("ETCDCTL_API", "3"),
        ],
        Ok((
            "default",
            &[
                "unrecognized environment variable ETCD_SERVICE_HOST",
                "unrecognized environment variable ETCD_VERSION",
            ],
        )),
    );
}

#[test]
fn fl_3_the_flag_takes_precedence_over_the_variable() {
    check(
        "--name a",
        &[("ETCD_NAME", "b")],
        Ok((
            "a",
            &["the variable ETCD_NAME is set as well as --name; the flag is used"],
        )),
    );
}

#[test]
fn bad_values_exit_1() {
    check(
        "",
        &[("ETCD_MAX_TXN_OPS", "x")],
        Err("invalid value \"x\" for ETCD_MAX_TXN_OPS: parse error; exit 1"),
    );
    check(
        "",
        &[("ETCD_AUTO_TLS", "maybe")],
        Err("invalid value \"maybe\" for ETCD_AUTO_TLS: parse error; exit 1"),
    );
}

#[test]
fn the_current_name_takes_precedence_over_the_former_name() {
    let variables = [
        ("ETCD_WATCH_PROGRESS_NOTIFY_INTERVAL", "2s"),
        ("ETCD_EXPERIMENTAL_WATCH_PROGRESS_NOTIFY_INTERVAL", "1s"),
    ];
    let (values, _) = served(parse("", &variables)).unwrap();
    assert_eq!(values.get(&INTERVAL).0, 2_000_000_000);
}
