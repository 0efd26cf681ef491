//! Flags, variables and files together.

use std::{ffi::OsString, fs, time::Duration};

use proptest::prelude::*;
use revstore::{Invocation, parse};
use tempfile::TempDir;

use super::{check, invoke, names};

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
