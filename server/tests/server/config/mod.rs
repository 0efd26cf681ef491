//! Configurations: whole command lines, as harnesses and users write them.

mod auto_compaction;
mod effects;
mod flags;
mod limits;
mod log_and_auth;
mod sources;
mod tls;
mod urls;

use std::{fmt::Debug, time::Duration};

use revstore::{
    AllowList, AuthToken, Config, ConfigError, Invocation, Keepalive, Limits, ListenUrl,
    LogOptions, parse,
};

/// Parses a command line, whose arguments are separated by blanks, and an environment.
fn invoke(line: &str, variables: &[(&str, &str)]) -> Result<Invocation, ConfigError> {
    let variables = variables.iter();
    let variables = variables.map(|(name, value)| (name.into(), value.into()));
    parse(line.split_whitespace().map(Into::into), variables)
}

/// The configuration and the warnings of a command line.
fn serve(line: &str) -> (Config, Vec<String>) {
    try_serve(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn try_serve(line: &str) -> Result<(Config, Vec<String>), ConfigError> {
    match invoke(line, &[])? {
        Invocation::Serve { config, warnings } => Ok((*config, warnings)),
        Invocation::Print(text) => panic!("{line}: {text}"),
    }
}

/// The text that a command line prints.
fn print(line: &str) -> String {
    match invoke(line, &[]) {
        Ok(Invocation::Print(text)) => text,
        other => panic!("{line}: {other:?}"),
    }
}

/// The names of the flags, in the order of the help page. A harness finds them by matching
/// `^\s*--flag\b`.
fn names() -> Vec<String> {
    let page = print("--help");
    let lines = page
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--"));
    lines
        .map(|line| line.split(' ').next().unwrap_or(line).to_owned())
        .collect()
}

/// Checks that a command line sets a field of the configuration to a value, without a warning.
fn check<T: PartialEq + Debug>(line: &str, field: impl Fn(&Config) -> T, expected: T) {
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
    let error = invoke(line, &[]).unwrap_err();
    assert_eq!(
        (error.exit_code(), error.to_string().as_str()),
        (exit_code, expected),
        "{line}"
    );
}

#[test]
fn without_flags_it_is_the_default() {
    check("", Config::clone, Config::default());
    let config = Config::default();
    let (client_url, peer_url) = (ListenUrl::localhost(2379), ListenUrl::localhost(2380));
    assert_eq!(config.name, "default");
    assert_eq!(config.data_dir, None);
    assert_eq!(config.advertise_client_urls, [client_url.url().clone()]);
    assert_eq!(config.advertise_peer_urls, [peer_url.url().clone()]);
    assert_eq!(config.listen_client_urls, [client_url]);
    assert_eq!(config.listen_client_http_urls, []);
    assert_eq!(config.cluster.members.len(), 1);
    assert_eq!(config.cluster.members["default"], [peer_url.url().clone()]);
    assert_eq!(config.cluster.token, "etcd-cluster");
    assert_eq!(config.listen_peer_urls, [peer_url]);
    assert_eq!(config.listen_metrics_urls, []);
    assert_eq!((config.tls, config.peer_tls), (None, None));
    assert_eq!(config.host_whitelist, AllowList::All);
    assert_eq!(config.cors, AllowList::All);
    assert!(config.enable_grpc_gateway && !config.reuse_port);
    assert_eq!(config.heartbeat_interval, Duration::from_millis(100));
    assert_eq!(config.election_timeout, Duration::from_secs(1));
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.max_concurrent_streams, None);
    assert_eq!(config.keepalive, Keepalive::default());
    assert_eq!(config.auto_compaction, None);
    assert_eq!(
        config.watch_progress_notify_interval,
        Duration::from_secs(600)
    );
    assert_eq!(config.watch_catch_up_delay, Duration::ZERO);
    assert_eq!(config.auth.token, AuthToken::Simple);
    assert_eq!(config.auth.token_ttl, Duration::from_secs(300));
    assert_eq!(config.auth.bcrypt_cost, 10);
    assert_eq!(config.log, LogOptions::default());
    assert!(!config.enable_pprof);
    assert_eq!(config.start_revision, 1);
}
