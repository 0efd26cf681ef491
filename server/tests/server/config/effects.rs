//! What the flags do: each changes the configuration, or is declared as a flag without effect or with few
//! supported values (FL-20, FL-21).

use std::collections::BTreeSet;

use revstore::Config;

use super::{check_error, check_warning, print, serve};

/// The names of the flags whose text in the help page begins with one of `openings`.
fn described(openings: &[&str]) -> BTreeSet<String> {
    let page = print("--help");
    let lines: Vec<_> = page.lines().collect();
    let flags = lines.windows(2).filter_map(|pair| {
        let name = pair[0].strip_prefix("  --")?.split(' ').next()?;
        let text = pair[1].trim_start();
        let is_described = openings.iter().any(|opening| text.starts_with(opening));
        is_described.then(|| name.to_owned())
    });
    flags.collect()
}

const HTTPS: &str = "--listen-client-urls=https://127.0.0.1:1 --advertise-client-urls=http://a:1 \
                     --auto-tls";
const CONTROL: &str = "--control-listen-url=http://127.0.0.1:1";
const PEER_HTTPS: &str = "--listen-peer-urls=https://127.0.0.1:1 --peer-auto-tls";

/// A value of each flag with an effect, after the flags that it needs.
const EFFECTS: &[(&str, &str)] = &[
    ("", "--control-listen-url=http://127.0.0.1:1"),
    (CONTROL, "--control-token-file=a"),
    (
        "--control-listen-url=http://127.0.0.1:1 --control-token-file=a",
        "--control-allow-remote",
    ),
    (CONTROL, "--control-memory-limit=1"),
    (CONTROL, "--control-clock=manual"),
    (CONTROL, "--auto-advance-idle=1ms"),
    ("", "--exit-with-stdin"),
    ("", "--name=a"),
    ("", "--data-dir=a"),
    ("--data-dir=a", "--persist"),
    ("--data-dir=a --persist", "--persist-fsync=never"),
    (
        "--data-dir=a --persist --persist-fsync=interval",
        "--persist-fsync-interval=1s",
    ),
    (
        "--advertise-client-urls=http://a:1",
        "--listen-client-urls=http://127.0.0.1:1",
    ),
    ("", "--listen-client-http-urls=http://127.0.0.1:1"),
    ("", "--listen-peer-urls=http://127.0.0.1:1"),
    ("", "--enable-grpc-gateway=false"),
    ("", "--socket-reuse-port"),
    ("", "--advertise-client-urls=http://a:1"),
    ("", "--heartbeat-interval=20"),
    ("", "--election-timeout=2000"),
    ("", "--quota-backend-bytes=1"),
    ("", "--max-txn-ops=1"),
    ("", "--max-request-bytes=1"),
    ("", "--max-concurrent-streams=1"),
    ("", "--grpc-keepalive-min-time=1s"),
    ("", "--grpc-keepalive-interval=1s"),
    ("", "--grpc-keepalive-timeout=1s"),
    (
        "--auto-compaction-retention=1",
        "--auto-compaction-mode=revision",
    ),
    ("", "--auto-compaction-retention=1"),
    (
        "--auto-compaction-retention=1 --auto-compaction-mode=revision",
        "--auto-compaction-interval=1m",
    ),
    ("", "--heavy-workers=7"),
    ("", "--answer-memory-bytes=1"),
    ("", "--watch-progress-notify-interval=1s"),
    ("", "--watch-catch-up-delay=100ms"),
    ("--log-outputs=a", "--enable-log-rotation"),
    (
        "--log-outputs=a --enable-log-rotation",
        "--log-rotation-config-json={\"maxsize\":1}",
    ),
    ("", "--metrics=extensive"),
    ("", "--warning-apply-duration=1s"),
    ("", "--warning-unary-request-duration=1s"),
    ("", "--initial-advertise-peer-urls=http://a:1"),
    (
        "",
        "--initial-cluster=default=http://localhost:2380,b=http://b:1",
    ),
    ("", "--initial-cluster-token=a"),
    (HTTPS, "--cert-file=a --key-file=b"),
    (HTTPS, "--key-file=a --cert-file=b"),
    (HTTPS, "--client-cert-auth"),
    (HTTPS, "--trusted-ca-file=a"),
    (HTTPS, "--client-crl-file=a --client-cert-auth"),
    (HTTPS, "--client-cert-allowed-hostname=a --client-cert-auth"),
    (HTTPS, "--client-cert-allowed-cn=a --client-cert-auth"),
    (
        "",
        "--auto-tls --listen-client-urls=https://127.0.0.1:1 --advertise-client-urls=http://a:1",
    ),
    (HTTPS, "--self-signed-cert-validity=2"),
    (
        HTTPS,
        "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ),
    (HTTPS, "--tls-min-version=TLS1.3"),
    (HTTPS, "--tls-max-version=TLS1.2"),
    (PEER_HTTPS, "--peer-cert-file=a --peer-key-file=b"),
    (PEER_HTTPS, "--peer-key-file=a --peer-cert-file=b"),
    (PEER_HTTPS, "--peer-client-cert-auth"),
    (PEER_HTTPS, "--peer-trusted-ca-file=a"),
    (PEER_HTTPS, "--peer-crl-file=a --peer-client-cert-auth"),
    (
        PEER_HTTPS,
        "--peer-cert-allowed-hostname=a --peer-client-cert-auth",
    ),
    (
        PEER_HTTPS,
        "--peer-cert-allowed-cn=a --peer-client-cert-auth",
    ),
    (
        PEER_HTTPS,
        "--peer-skip-client-san-verification --peer-client-cert-auth",
    ),
    ("", "--peer-auto-tls --listen-peer-urls=https://127.0.0.1:1"),
    ("", "--host-whitelist=a"),
    ("", "--cors=http://a:1"),
    (
        "",
        "--auth-token=jwt,sign-method=RS256,pub-key=a,priv-key=b",
    ),
    ("", "--auth-token-ttl=1"),
    ("", "--bcrypt-cost=4"),
    ("", "--log-level=warn"),
    ("", "--log-outputs=stdout"),
    ("", "--listen-metrics-urls=http://127.0.0.1:1"),
    ("", "--enable-pprof"),
    ("", "--start-revision=2"),
    ("", "--import=a"),
];

/// Flags without effect whose values all ask for what the server does, or for nothing that it could do.
const WITHOUT_OTHER_VALUES: [&str; 5] = [
    "discovery-fallback",
    "initial-corrupt-check",
    "socket-reuse-address",
    "unsafe-no-fsync",
    "v2-deprecation",
];

/// Flags of every program, which do not change the configuration.
const GENERAL: [&str; 3] = ["config-file", "version", "help"];

#[test]
fn fl_20_every_flag_without_a_remark_changes_the_configuration() {
    let config = |line: &str| -> Config { serve(line).0 };
    let mut shown = BTreeSet::from(GENERAL.map(str::to_owned));
    for (base, flag) in EFFECTS {
        assert_ne!(
            config(base),
            config(&format!("{base} {flag}")),
            "{base} {flag}"
        );
        let name = flag.trim_start_matches('-').split([' ', '=']).next();
        shown.extend(name.map(str::to_owned));
    }
    let remarks = described(&["Has no effect: ", "Only ", "The former name of "]);
    let all: BTreeSet<_> = super::names().into_iter().collect();
    let expected: BTreeSet<_> = all.difference(&remarks).cloned().collect();
    assert_eq!(shown, expected);
}

/// The lists of `docs/flags.md`: for each reason the flags that have it.
fn lists(opening: &str) -> String {
    let page = print("--help");
    let lines: Vec<_> = page.lines().map(str::trim).collect();
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for pair in lines.windows(2) {
        if let (Some(flag), Some(reason)) =
            (pair[0].strip_prefix("--"), pair[1].strip_prefix(opening))
        {
            let reason = reason.trim_end_matches('.');
            let name = flag.split(' ').next().unwrap_or(flag);
            let flag = format!("`--{name}`");
            match groups.last_mut().filter(|(last, _)| last == reason) {
                Some((_, flags)) => flags.push(flag),
                None => groups.push((reason.to_owned(), vec![flag])),
            }
        }
    }
    let groups = groups.iter();
    let lines: Vec<_> = groups
        .map(|(reason, flags)| format!("- {reason}: {}\n", flags.join(", ")))
        .collect();
    lines.concat()
}

#[test]
fn fl_21_the_document_lists_the_flags_without_effect_and_with_one_value() {
    let document = include_str!("../../../../docs/flags.md");
    for opening in ["Has no effect: ", "Only "] {
        let expected = format!("\n\n{}", lists(opening));
        let is_current = document.replace("\n  ", " ").contains(&expected);
        assert!(is_current, "docs/flags.md should contain:{expected}");
    }
}

#[test]
fn fl_21_a_flag_without_effect_causes_a_warning_that_names_it() {
    for name in described(&["Has no effect: "]) {
        if WITHOUT_OTHER_VALUES.contains(&name.as_str()) {
            continue;
        }
        // One of these is a value other than the default.
        let values = ["true", "false", "7", "7s", "a", "AllAlpha=true"];
        let warnings = values.iter().filter_map(|value| {
            let (_, warnings) = super::try_serve(&format!("--{name}={value}")).ok()?;
            warnings.first().cloned()
        });
        let expected = format!("--{name} has no effect: ");
        let warnings: Vec<_> = warnings.collect();
        let is_named = warnings
            .iter()
            .all(|warning| warning.starts_with(&expected));
        assert!(is_named && !warnings.is_empty(), "{name}: {warnings:?}");
    }
}

#[test]
fn fl_21_a_value_that_is_not_supported_is_an_error_that_names_its_flag() {
    let values = [
        ("discovery", "http://a:1"),
        ("discovery-endpoints", "http://a:1"),
        ("discovery-srv", "example.com"),
        ("enable-v2", "true"),
        ("enable-v2v3", "a"),
        ("initial-cluster-state", "existing"),
        ("log-format", "console"),
        ("logger", "capnslog"),
        ("proxy", "on"),
    ];
    let names: Vec<_> = described(&["Only "]).into_iter().collect();
    assert_eq!(values.map(|(name, _)| name), *names);
    for (name, value) in values {
        let error = super::try_serve(&format!("--{name}={value}")).unwrap_err();
        let error = (error.exit_code(), error.to_string());
        let expected = format!("--{name}={value} is not supported (only ");
        assert!(error.0 == 1 && error.1.starts_with(&expected), "{error:?}");
    }
}

#[test]
fn fl_21_feature_gates_are_known() {
    let silent = "InitialCorruptCheck=true,TxnModeWriteWithSharedBuffer=T,, FastLeaseKeepAlive = 0";
    let variable = [("ETCD_FEATURE_GATES", silent)];
    match super::invoke("", &variable) {
        Ok(revstore::Invocation::Serve { warnings, .. }) => assert_eq!(warnings, [""; 0]),
        other => panic!("{other:?}"),
    }
    check_warning(
        "--feature-gates=InitialCorruptCheck=true,LeaseCheckpoint=true",
        "--feature-gates has no effect: ",
    );
    for (value, reason) in [
        ("Bogus=true", "unrecognized feature gate: Bogus"),
        (
            "CompactHashCheck",
            "missing bool value for CompactHashCheck",
        ),
        (
            "CompactHashCheck=x",
            "invalid value of CompactHashCheck=x, err: strconv.ParseBool: parsing \"x\": invalid syntax",
        ),
    ] {
        check_error(
            &format!("--feature-gates={value}"),
            2,
            &format!("invalid value \"{value}\" for flag -feature-gates: {reason}"),
        );
    }
}
