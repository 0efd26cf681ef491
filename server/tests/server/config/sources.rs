//! Flags, variables and files together.

use std::{ffi::OsString, fs, time::Duration};

use proptest::prelude::*;
use revstore::{AllowList, Invocation, parse};
use tempfile::TempDir;

use super::{check, check_error, invoke, names};

/// Writes a file and returns its path.
fn file(text: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("etcd.yaml");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

#[test]
fn fl_4_a_file_replaces_flags_and_variables() {
    let (_directory, path) = file("listen-client-urls: http://127.0.0.1:1\nmax-txn-ops: 7\n");
    let outcome =
        |line: &str, variables: &[_]| match invoke(&line.replace("etcd.yaml", &path), variables) {
            Ok(Invocation::Serve { config, warnings }) => {
                Ok((config.name, config.limits.txn_ops_max, warnings))
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err((error.exit_code(), error.to_string())),
        };
    let expected = |warnings: Vec<String>| Ok(("default".to_owned(), 7, warnings));
    // FL-8 does not hold in a file.
    assert_eq!(outcome("--config-file etcd.yaml", &[]), expected(vec![]));
    assert_eq!(
        outcome("", &[("ETCD_CONFIG_FILE", path.as_str())]),
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

/// The lists of hosts and of origins that a command line and variables give.
fn restrictions(line: &str, variables: &[(&str, &str)]) -> [AllowList; 2] {
    match invoke(line, variables) {
        Ok(Invocation::Serve { config, .. }) => [config.host_whitelist, config.cors],
        other => panic!("{line} {variables:?}: {other:?}"),
    }
}

fn only(names: &[&str]) -> AllowList {
    AllowList::Only(names.iter().map(|&name| name.to_owned()).collect())
}

#[test]
fn fl_23_restrictions_come_from_flags_variables_and_files() {
    let hosts_of = |line: &str, variables: &[_]| restrictions(line, variables)[0].clone();
    assert_eq!(hosts_of("--host-whitelist a,b", &[]), only(&["a", "b"]));
    assert_eq!(
        hosts_of("--host-whitelist a --host-whitelist b", &[]),
        only(&["b"])
    );
    assert_eq!(hosts_of("--host-whitelist a,*,b", &[]), AllowList::All);
    assert_eq!(hosts_of("--host-whitelist=", &[]), only(&[""]));
    let variables = [("ETCD_HOST_WHITELIST", "a"), ("ETCD_CORS", "http://a:1")];
    assert_eq!(
        restrictions("", &variables),
        [only(&["a"]), only(&["http://a:1"])]
    );
    assert_eq!(
        restrictions("--host-whitelist b --cors *", &variables),
        [only(&["b"]), AllowList::All]
    );
    let empty = [("ETCD_HOST_WHITELIST", ""), ("ETCD_CORS", "")];
    assert_eq!(restrictions("", &empty), [AllowList::All, AllowList::All]);

    let in_file = |text: &str| {
        let (_directory, path) = file(text);
        // The file replaces the flag and the variables.
        restrictions(
            &format!("--config-file {path} --cors http://b:2"),
            &variables,
        )
    };
    assert_eq!(
        in_file("host-whitelist: a,b\ncors: http://a:1,http://b:2\n"),
        [only(&["a", "b"]), only(&["http://a:1", "http://b:2"])]
    );
    assert_eq!(
        in_file("host-whitelist: [a, b]\ncors: '*'\n"),
        [only(&["a", "b"]), AllowList::All]
    );
    for text in ["host-whitelist: ''\ncors: ''\n", "host-whitelist:\n", ""] {
        assert_eq!(in_file(text), [AllowList::All, AllowList::All], "{text:?}");
    }
}

#[test]
fn fl_23_invalid_origins_are_errors() {
    for (value, reason) in [
        ("", "URL scheme must be http, https, unix, or unixs: "),
        ("a", "URL scheme must be http, https, unix, or unixs: a"),
        (
            "*,http://a:1",
            "URL scheme must be http, https, unix, or unixs: *",
        ),
        (
            "http://a",
            "URL address does not have the form \"host:port\": http://a",
        ),
        ("http://a:1/", "URL must not contain a path: http://a:1/"),
    ] {
        check_error(
            &format!("--cors={value}"),
            2,
            &format!("invalid value {value:?} for flag -cors: {reason}"),
        );
    }
    let (_directory, path) = file("cors: a\n");
    let error = invoke(&format!("--config-file {path}"), &[]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("for cors in the configuration file")
    );
}

#[test]
fn fl_23_mappings_of_the_file_have_flags_without_their_prefixes() {
    let (_directory, path) = file(
        "listen-client-urls: https://127.0.0.1:1\n\
         listen-peer-urls: https://127.0.0.1:2\n\
         client-transport-security:\n  auto-tls: true\n  client-cert-auth: true\n  \
         allowed-cn: [a]\n  crl-file: c\n\
         peer-transport-security:\n  auto-tls: true\n  trusted-ca-file: ca\n  allowed-hostname: [b]\n\
         socket-options:\n  reuse-port: true\n",
    );
    check(
        &format!("--config-file {path}"),
        |config| {
            let client = config.tls.clone().and_then(|tls| tls.client_auth).unwrap();
            let peer = config.peer_tls.clone().and_then(|tls| tls.client_auth);
            let names = [client.allowed_common_names, peer.unwrap().allowed_hostnames];
            (names.concat(), client.crl_file, config.reuse_port)
        },
        (vec!["a".to_owned(), "b".to_owned()], Some("c".into()), true),
    );
    let (_directory, path) = file("discovery-config:\n  client:\n    endpoints: [a]\n");
    let error = invoke(&format!("--config-file {path}"), &[]).unwrap_err();
    assert!(error.to_string().contains("discovery-endpoints"), "{error}");
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

/// Arguments, many of which have the form of real ones.
fn argument() -> impl Strategy<Value = String> {
    let values = "-?[0-9]{0,20}(s|m|MiB)?|true|https?://(localhost|\\[::1?\\]|1.2.3.4)?:[0-9]{0,6}|\
                  unix://.{0,8}|a=http://b:1,?|jwt,.{0,12}";
    let flag = (prop::sample::select(names()), "(-{0,3})", values);
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
        reads_file in any::<bool>(),
        file in prop_oneof![any::<String>(), argument().prop_map(|a| a.replace('=', ": "))],
    ) {
        let variables = variables.into_iter().map(|(name, value)| {
            let name = name.trim_start_matches('-').replace('-', "_").to_uppercase();
            (format!("ETCD_{name}").into(), value.into())
        });
        let (_directory, path) = self::file(&file);
        let mut arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        if reads_file {
            arguments.push(format!("--config-file={path}").into());
        }
        let outcome = parse(arguments, variables);
        if let Ok(Invocation::Serve { config, .. }) = outcome {
            prop_assert!(config.cluster.members.contains_key(&config.name));
            prop_assert!(config.min_lease_ttl() >= Duration::from_secs(1));
        }
    }
}
