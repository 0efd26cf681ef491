//! Tests of whole command lines, as harnesses and users write them.

use std::io;

use proptest::prelude::*;
use revstore_host::{
    config::{ConfigError, Declaration},
    logging::{LogLevel, LogOutput},
    net::{Certificate, ClientAuth, TlsVersion, join_urls},
};

use super::{flags::FLAGS, *};
use crate::version;

fn invoke(line: &str, variables: &[(&str, &str)], file: &str) -> Result<Invocation, ConfigError> {
    FLAGS.parse(
        line.split_whitespace().map(Into::into),
        variables
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
        |path| match path.to_str() {
            Some("etcd.yaml") => Ok(file.to_owned()),
            _ => Err(io::ErrorKind::NotFound.into()),
        },
    )
}

fn serve(line: &str) -> (Config, Vec<String>) {
    match invoke(line, &[], "") {
        Ok(Invocation::Serve { config, warnings }) => {
            (*config, warnings.iter().map(ToString::to_string).collect())
        }
        other => panic!("{line}: {other:?}"),
    }
}

/// Checks that a command line sets a field of the configuration to a value, without a warning.
fn check<T: PartialEq + std::fmt::Debug>(line: &str, field: impl Fn(&Config) -> T, expected: T) {
    let (config, warnings) = serve(line);
    assert_eq!((field(&config), warnings), (expected, vec![]), "{line}");
}

/// Checks that a command line causes one warning, whose text contains `expected`.
fn check_warning(line: &str, expected: &str) {
    let (_, warnings) = serve(line);
    assert!(
        warnings.len() == 1 && warnings[0].contains(expected),
        "{line}: {warnings:?}"
    );
}

fn check_error(line: &str, exit_code: u8, expected: &str) {
    let error = invoke(line, &[], "").unwrap_err();
    assert_eq!(
        (error.exit_code(), error.to_string().as_str()),
        (exit_code, expected),
        "{line}"
    );
}

#[test]
fn without_flags_it_is_the_default() {
    check("", Config::clone, Config::default());
    let (client_url, peer_url) = (ListenUrl::localhost(2379), ListenUrl::localhost(2380));
    let expected = Config {
        name: "default".to_owned(),
        data_dir: None,
        advertise_client_urls: vec![client_url.url().clone()],
        advertise_peer_urls: vec![peer_url.url().clone()],
        listen_client_urls: vec![client_url],
        listen_client_http_urls: Vec::new(),
        cluster: Cluster {
            members: vec![Member {
                name: "default".to_owned(),
                peer_urls: vec![peer_url.url().clone()],
            }],
            token: "etcd-cluster".to_owned(),
        },
        listen_peer_urls: vec![peer_url],
        listen_metrics_urls: Vec::new(),
        tls: None,
        heartbeat_interval: Duration::from_millis(100),
        election_timeout: Duration::from_secs(1),
        limits: Limits::default(),
        max_concurrent_streams: None,
        keepalive: Keepalive::default(),
        auto_compaction: None,
        watch_progress_notify_interval: Duration::from_secs(600),
        auth: Auth {
            token: AuthToken::Simple,
            token_ttl: Duration::from_secs(300),
            bcrypt_cost: 10,
        },
        log: LogOptions::default(),
        enable_pprof: false,
        start_revision: 1,
    };
    assert_eq!(Config::default(), expected);
}

#[test]
fn fl_5_and_fl_6_help_and_version() {
    let Ok(Invocation::Print(help)) = invoke("-h", &[], "") else {
        panic!("no help page");
    };
    assert!(help.contains("\nUsage: revstore [flags]\n"), "{help}");
    for (line, expected) in [
        ("--help", help),
        ("--version", version::text()),
        ("--version --name a", version::text()),
    ] {
        assert_eq!(
            invoke(line, &[], "").unwrap(),
            Invocation::Print(expected),
            "{line}"
        );
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
        let Ok(Invocation::Print(script)) = invoke(&format!("completion {shell}"), &[], "") else {
            panic!("no script for {shell}");
        };
        for name in FLAGS.flags().flat_map(Declaration::names) {
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

#[test]
fn fl_8_listening_demands_advertising() {
    let expected =
        "--advertise-client-urls is required when --listen-client-urls is set explicitly";
    check_error("--listen-client-urls http://127.0.0.1:1", 1, expected);
    check(
        "--listen-client-urls http://127.0.0.1:1 --advertise-client-urls http://127.0.0.1:1",
        |config| join_urls(&config.advertise_client_urls),
        "http://127.0.0.1:1".to_owned(),
    );
}

#[test]
fn fl_10_listen_urls_are_addresses() {
    // Before FL-8.
    check_error(
        "--listen-client-urls http://example.com:2379",
        1,
        "expected IP in URL for binding (http://example.com:2379)",
    );
    check_error(
        "--listen-peer-urls http://example.com:2380",
        1,
        "expected IP in URL for binding (http://example.com:2380)",
    );
    check_error(
        "--listen-metrics-urls http://example.com:2381",
        1,
        "expected IP in URL for binding (http://example.com:2381)",
    );
}

#[test]
fn tl_3_an_absolute_socket_path_fails() {
    check_error(
        "--listen-client-urls unix:///run/e.sock --advertise-client-urls unix:///run/e.sock",
        1,
        "--advertise-client-urls \"unix:///run/e.sock\" must be \"host:port\" (missing port in \
         address)",
    );
    check_error(
        "--advertise-client-urls http://:1",
        1,
        "--advertise-client-urls \"http://:1\" must be \"host:port\" (unexpected empty host \
         (http://:1))",
    );
}

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

#[test]
fn ac_1_to_ac_3_auto_compaction() {
    check(
        "--auto-compaction-retention=5m",
        |config| config.auto_compaction,
        Some(AutoCompaction::Periodic {
            period: Duration::from_secs(300),
        }),
    );
    check(
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
fn dm_11_the_cluster_gives_the_ids() {
    let ids = |config: &Config| (config.member_id(), config.cluster_id());
    let default = ids(&Config::default());
    check("--name other", ids, default);
    check(
        "--name a --initial-cluster a=http://localhost:2380",
        ids,
        default,
    );

    let (config, warnings) = serve(
        "--name a --initial-advertise-peer-urls http://localhost:2380 \
         --initial-cluster b=http://localhost:2390,a=http://localhost:2380",
    );
    assert_eq!(config.member_id(), default.0);
    assert_ne!(config.cluster_id(), default.1);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("1 other members"));

    assert_ne!(serve("--initial-cluster-token x").0.member_id(), default.0);
    check_error(
        "--name b --initial-cluster a=http://localhost:2380",
        1,
        "couldn't find local name \"b\" in the initial cluster configuration",
    );
    check_error(
        "--initial-cluster default",
        1,
        "error setting up initial cluster: URL scheme must be http, https, unix, or unixs: ",
    );
    check_warning("--initial-cluster default=http://localhost:1", "differs");
}

const SECURE: &str =
    "--listen-client-urls https://127.0.0.1:0 --advertise-client-urls https://127.0.0.1:1";

#[test]
fn tl_1_certificates() {
    check(
        &format!("{SECURE} --cert-file a.crt --key-file a.key"),
        |config| {
            config
                .tls
                .clone()
                .map(|tls| (tls.certificate, tls.client_auth, tls.min_version))
        },
        Some((
            Certificate::Files {
                cert_file: "a.crt".into(),
                key_file: "a.key".into(),
            },
            None,
            TlsVersion::V1_2,
        )),
    );
    check(
        &format!("{SECURE} --auto-tls"),
        |config| {
            (
                config.tls.clone().map(|tls| tls.certificate),
                config.client_hosts(),
            )
        },
        (
            Some(Certificate::SelfSigned { validity_years: 1 }),
            vec!["127.0.0.1".to_owned()],
        ),
    );
    check_error(
        SECURE,
        1,
        "TLS key/cert (--cert-file, --key-file) must be provided for client url \
         https://127.0.0.1:0 with HTTPS scheme",
    );
    check_error(
        &format!("{SECURE} --cert-file a.crt"),
        1,
        "KeyFile and CertFile must both be present[key: , cert: a.crt]",
    );
    check_warning(
        "--cert-file a.crt --key-file a.key",
        "ignoring key and cert files for http://",
    );
    check_warning(
        &format!("{SECURE} --cert-file a --key-file b --auto-tls"),
        "ignoring --auto-tls",
    );
}

#[test]
fn tl_1_a_ca_alone_demands_client_certificates() {
    for (line, trusted_ca_file, names_users) in [
        ("--client-cert-auth", None, true),
        ("--trusted-ca-file ca.crt", Some("ca.crt".into()), false),
        (
            "--client-cert-auth --trusted-ca-file ca.crt",
            Some("ca.crt".into()),
            true,
        ),
    ] {
        let mut expected = ClientAuth::default();
        expected.trusted_ca_file = trusted_ca_file;
        expected.names_users = names_users;
        check(
            &format!("{SECURE} --auto-tls {line}"),
            |config| config.tls.clone().and_then(|tls| tls.client_auth),
            Some(expected),
        );
    }
}

#[test]
fn tl_1_versions() {
    check_error(
        "--tls-min-version=TLS1.1",
        1,
        "unexpected TLS version \"TLS1.1\" (must be one of: TLS1.2, TLS1.3)",
    );
    check_error(
        "--tls-min-version=TLS1.3 --tls-max-version=TLS1.2",
        1,
        "min version (TLS1.3) is greater than max version (TLS1.2)",
    );
    check_error(
        "--tls-min-version=TLS1.3 --cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        1,
        "cipher suites cannot be configured when only TLS1.3 is enabled",
    );
}

#[test]
fn ht_12_and_ht_13_ports_for_http() {
    check(
        "--listen-metrics-urls http://127.0.0.1:2381,http://127.0.0.1:2382",
        |config| config.listen_metrics_urls.len(),
        2,
    );
    check(
        "--listen-client-http-urls http://127.0.0.1:2378",
        Config::has_separate_http,
        true,
    );
    check(
        "--listen-client-http-urls=",
        Config::has_separate_http,
        false,
    );
    check_error(
        "--listen-client-http-urls http://127.0.0.1:2379",
        1,
        "cannot bind both --listen-client-urls and --listen-client-http-urls on the same url \
         http://127.0.0.1:2379",
    );
}

#[test]
fn fl_12_log() {
    check(
        "--log-outputs=stdout,a.log --log-level=warn",
        |config| (config.log.level, config.log.outputs.clone()),
        (
            LogLevel::Warn,
            vec![LogOutput::File("a.log".into()), LogOutput::Stdout],
        ),
    );
    check(
        "--log-outputs=",
        |config| config.log.outputs.clone(),
        vec![LogOutput::Stderr],
    );
    check_error(
        "--log-outputs=default,stdout",
        1,
        "multi logoutput for \"default\" is not supported yet",
    );
    check_error("--log-level=loud", 1, "unrecognized level: \"loud\"");
    check_warning("--log-outputs=systemd/journal,stderr", "standard error");
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
fn fl_20_the_rest() {
    check(
        "--data-dir d",
        |config| config.data_dir.clone(),
        Some("d".into()),
    );
    check(
        "--auth-token-ttl=0",
        |config| config.auth.token_ttl,
        Duration::from_secs(300),
    );
    check("--bcrypt-cost=4", |config| config.auth.bcrypt_cost, 4);
    check_warning("--bcrypt-cost=99", "--bcrypt-cost 99 is not from 4 to 31");
    check_error("--auth-token=paseto", 1, "auth: invalid auth options");
}

#[test]
fn fl_4_a_file_replaces_flags_and_variables() {
    let outcome = |line, variables: &[_]| {
        let file = "listen-client-urls: http://127.0.0.1:1\nmax-txn-ops: 7\n";
        match invoke(line, variables, file) {
            Ok(Invocation::Serve { config, warnings }) => Ok((
                config.name,
                config.limits.txn_ops_max,
                warnings.iter().map(ToString::to_string).collect(),
            )),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err((error.exit_code(), error.to_string())),
        }
    };
    let expected = |warnings: Vec<String>| Ok(("default".to_owned(), 7, warnings));
    // FL-8 does not hold in a file.
    assert_eq!(outcome("--config-file etcd.yaml", &[]), expected(vec![]));
    assert_eq!(
        outcome("", &[("ETCD_CONFIG_FILE", "etcd.yaml")]),
        expected(vec![])
    );
    assert_eq!(
        outcome(
            "--config-file etcd.yaml --name a",
            &[("ETCD_MAX_TXN_OPS", "x")]
        ),
        expected(vec![
            "a configuration file is given; other flags and environment variables are ignored"
                .to_owned()
        ])
    );
    // The flags must still be well-formed.
    assert_eq!(
        outcome("--config-file etcd.yaml --bogus", &[])
            .unwrap_err()
            .0,
        2
    );
    assert_eq!(outcome("--config-file none.yaml", &[]).unwrap_err().0, 1);
}

#[test]
fn command_lines_of_harnesses() {
    let envtest = "--advertise-client-urls=http://127.0.0.1:40001 --data-dir=/tmp/k8s_test \
        --listen-client-urls=http://127.0.0.1:40001 --listen-peer-urls=http://localhost:0 \
        --unsafe-no-fsync=true";
    check(envtest, |config| config.name.clone(), "default".to_owned());

    let testcontainers = "-advertise-client-urls http://0.0.0.0:2379 \
        -listen-client-urls http://0.0.0.0:2379";
    check(testcontainers, |config| config.listen_client_urls.len(), 1);

    let kubeadm = "--advertise-client-urls=https://172.18.0.2:2379 --cert-file=s.crt \
        --client-cert-auth=true --data-dir=/var/lib/etcd \
        --feature-gates=InitialCorruptCheck=true \
        --initial-advertise-peer-urls=https://172.18.0.2:2380 \
        --initial-cluster=kind=https://172.18.0.2:2380 --key-file=s.key \
        --listen-client-urls=https://127.0.0.1:2379,https://172.18.0.2:2379 \
        --listen-metrics-urls=http://127.0.0.1:2381 --listen-peer-urls=https://172.18.0.2:2380 \
        --name=kind --peer-cert-file=p.crt --peer-client-cert-auth=true --peer-key-file=p.key \
        --peer-trusted-ca-file=ca.crt --snapshot-count=10000 --trusted-ca-file=ca.crt \
        --watch-progress-notify-interval=5s";
    check(kubeadm, |config| config.listen_client_urls.len(), 2);
}

fn check_min_lease_ttl(election_ms: u64, heartbeat_ms: u64, expected_seconds: u64) {
    let config = Config {
        election_timeout: Duration::from_millis(election_ms),
        heartbeat_interval: Duration::from_millis(heartbeat_ms),
        ..Config::default()
    };
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
fn dm_11_ids_of_the_default_member() {
    let config = Config::default();
    assert_eq!(config.member_id(), 0x8e9e_05c5_2164_694d);
    assert_eq!(config.cluster_id(), 0xcdf8_1819_4e3a_8c32);
}

#[test]
fn li_2_messages_may_be_longer_than_requests() {
    assert_eq!(Limits::default().message_bytes_max(), 2_097_152);
}

/// Arguments, many of which have the form of real ones.
fn argument() -> impl Strategy<Value = String> {
    let names: Vec<String> = FLAGS.flags().flat_map(Declaration::names).collect();
    let values = "-?[0-9]{0,20}(s|m|MiB)?|true|https?://(localhost|\\[::1?\\]|1.2.3.4)?:[0-9]{0,6}|\
                  unix://.{0,8}|a=http://b:1,?|jwt,.{0,12}";
    let flag = (prop::sample::select(names), "(-{0,3})", values);
    prop_oneof![
        3 => flag.prop_map(|(name, dashes, value)| format!("{dashes}{name}={value}")),
        1 => values,
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn never_panics_on_any_arguments(
        arguments in prop::collection::vec(argument(), 0..6),
        variables in prop::collection::vec((argument(), argument()), 0..3),
        file in prop_oneof![any::<String>(), argument().prop_map(|a| a.replace('=', ": "))],
    ) {
        let variables = variables.into_iter().map(|(name, value)| {
            let name = name.trim_start_matches('-').replace('-', "_").to_uppercase();
            (format!("ETCD_{name}").into(), value.into())
        });
        let outcome = FLAGS.parse(arguments.into_iter().map(Into::into), variables, |_| Ok(file.clone()));
        if let Ok(Invocation::Serve { config, .. }) = outcome {
            prop_assert!(config.cluster.members.iter().any(|member| member.name == config.name));
            prop_assert!(config.min_lease_ttl() >= Duration::from_secs(1));
        }
    }
}
