//! The command line.

use std::path::Path;
use std::time::Duration;

use revstore::{ClockMode, ControlConfig};
use revstore_apiserver::{Config, Invocation, parse, parse_in_place};

/// Returns the configuration and the warnings, or the error.
fn served(line: &str) -> Result<(Config, Vec<String>), String> {
    match parse(line.split_whitespace().map(Into::into), []) {
        Ok(Invocation::Serve { config, warnings }) => Ok((*config, warnings)),
        Ok(Invocation::Print(text)) => Err(text),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn flags_of_kube_apiserver_are_accepted_as_harnesses_give_them() {
    let line = "--advertise-address=127.0.0.1 --allow-privileged=true --authorization-mode=RBAC \
                --disable-admission-plugins=ServiceAccount --enable-aggregator-routing \
                --service-account-lookup --service-account-issuer https://127.0.0.1/ --service-account-key-file sa.pub -v 2 \
                --profiling=false --secure-port 1234";
    let (config, warnings) = served(line).expect("the command line is valid");
    assert_eq!(config.https.map(|address| address.port()), Some(1234));
    for name in [
        "advertise-address",
        "allow-privileged",
        "enable-aggregator-routing",
        "service-account-lookup",
        "v",
        "profiling",
    ] {
        let beginning = format!("--{name} has no effect");
        let count = warnings
            .iter()
            .filter(|it| it.starts_with(&beginning))
            .count();
        assert_eq!(count, 1, "{name}: {warnings:?}");
    }
}

#[test]
fn flags_of_tokens_are_checked() {
    let line = "--service-account-issuer=https://a --service-account-issuer b --service-account-key-file=x,y \
                --service-account-key-file=z --api-audiences=c,d --service-account-signing-key-file=k \
                --service-account-max-token-expiration=2h --service-account-jwks-uri=https://keys \
                --service-account-extend-token-expiration=false";
    let (config, warnings) = served(line).expect("the command line is valid");
    let options = config.service_accounts;
    assert_eq!(options.issuers, ["https://a", "b"]);
    assert_eq!(options.key_files, [Path::new("x,y"), Path::new("z")]);
    assert_eq!(options.audiences, ["c", "d"]);
    assert_eq!(options.signing_key_file.as_deref(), Some(Path::new("k")));
    assert_eq!(options.max_expiration, Some(Duration::from_secs(7200)));
    assert_eq!(options.jwks_uri.as_deref(), Some("https://keys"));
    assert!(
        !options.extend_expiration && warnings.is_empty(),
        "{warnings:?}"
    );
    for line in [
        "--service-account-issuer=a --service-account-issuer=a",
        "--service-account-issuer=http://a:b:c",
        "--service-account-max-token-expiration=59m",
        "--service-account-max-token-expiration=-1h",
        "--service-account-jwks-uri=http://keys",
        "--service-account-jwks-uri=keys",
    ] {
        assert!(served(line).is_err(), "{line}");
    }
}

#[test]
fn flags_of_neither_server_are_errors() {
    for line in [
        "--no-such-flag",
        "--no-such-flag=1",
        "--profiling true",
        "--vmodule",
    ] {
        assert!(served(line).is_err(), "{line}");
    }
}

#[test]
fn names_of_admission_plugins_are_checked() {
    let line = "--enable-admission-plugins=EventRateLimit,LimitRanger \
                --disable-admission-plugins=ServiceAccount,Priority";
    let (_, warnings) = served(line).expect("the names are known");
    assert_eq!(
        warnings,
        [
            "--enable-admission-plugins=EventRateLimit has no effect: this server does not have the plugin",
        ]
    );
    let error = served("--enable-admission-plugins=Foo").unwrap_err();
    assert_eq!(error, "enable-admission-plugins plugin \"Foo\" is unknown");
}

#[test]
fn sizes_of_watch_caches_are_checked() {
    for (value, expected) in [
        ("", Ok(0)),
        ("pods#100,deployments.apps#5", Ok(0)),
        ("pods#0,nodes#0,services#1", Ok(2)),
        ("pods", Err("invalid value of watch cache size: pods")),
        (
            "pods#1#2",
            Err("invalid value of watch cache size: pods#1#2"),
        ),
        ("pods#x", Err("invalid size of watch cache size: pods#x")),
        (
            "pods#-1",
            Err("watch cache size cannot be negative: pods#-1"),
        ),
    ] {
        let warnings = served(&format!("--watch-cache-sizes={value}"));
        let warnings = warnings.map(|(_, warnings)| warnings.len());
        assert_eq!(warnings, expected.map_err(str::to_owned), "{value}");
    }
    let count = |line: &str| served(line).map(|(_, warnings)| warnings.len());
    assert_eq!(
        count("--watch-cache=false --default-watch-cache-size=0"),
        Ok(2)
    );
    assert_eq!(
        count("--watch-cache --default-watch-cache-size=1000"),
        Ok(0)
    );
}

#[test]
fn in_the_place_of_kube_apiserver_unknown_flags_cause_warnings() {
    let line = "--no-such-switch --no-such-value 7 --other=x --etcd-servers=http://127.0.0.1:1 \
                --storage=embedded --secure-port 1234 --last";
    let parsed = parse_in_place(line.split_whitespace().map(Into::into), []);
    let Ok(Invocation::Serve { config, warnings }) = parsed else {
        panic!("{parsed:?}");
    };
    assert_eq!(config.https.map(|address| address.port()), Some(1234));
    assert_eq!(config.etcd, None);
    for name in [
        "no-such-switch",
        "no-such-value",
        "other",
        "last",
        "etcd-servers",
    ] {
        let beginning = format!("--{name} has no effect");
        assert!(
            warnings.iter().any(|it| it.starts_with(&beginning)),
            "{name}: {warnings:?}"
        );
    }
    // Other errors are still errors.
    assert!(parse_in_place(["--secure-port=x".into()], []).is_err());
    assert!(parse_in_place(["stray".into()], []).is_err());
}

#[test]
fn flags_of_control_are_those_of_revstore() {
    let listen = "--control-listen-url http://127.0.0.1:0";
    let (config, _) = served(listen).expect("the command line is valid");
    let mut expected = ControlConfig::default();
    expected.listen_url = config.control.clone().and_then(|it| it.listen_url);
    assert!(expected.listen_url.is_some());
    assert_eq!(config.control, Some(expected));
    let line = format!(
        "{listen} --control-token-file token --control-allow-remote --control-memory-limit 5 \
         --control-clock manual --auto-advance-idle 7ms"
    );
    let (config, _) = served(&line).expect("the command line is valid");
    let control = config.control.expect("control is on");
    assert_eq!(control.token_file.as_deref(), Some(Path::new("token")));
    assert!(control.allow_remote);
    assert_eq!(
        (control.memory_limit, control.clock),
        (5, ClockMode::Manual)
    );
    assert_eq!(control.auto_advance_idle, Duration::from_millis(7));
    for (line, error) in [
        (
            "--control-clock manual",
            "--control-clock requires --control-listen-url",
        ),
        (
            "--control-listen-url http://0.0.0.0:0",
            "is not an address of the loopback interface",
        ),
    ] {
        let refused = served(line).expect_err(line);
        assert!(refused.contains(error), "{line}: {refused}");
    }
}
