//! From the values of flags to a [`Config`], with all checks across flags.
//!
//! Errors that etcd has, too, keep its text, and are reported in its order.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use revstore_engine::AutoCompaction;
use revstore_grpc::Limits;
use revstore_host::{
    config::{
        Certificate, ClientAuth, ConfigError, EndpointUrl, Flag, ListenUrl, LogLevel, LogOptions,
        LogOutput, TlsOptions, TlsVersion, Values, Warning, join_urls, parts,
    },
    net::Keepalive,
};

use super::{Auth, AuthToken, Cluster, Config, Member, auto_compaction, flags};

/// The limit that `--quota-backend-bytes=0` means.
const DEFAULT_QUOTA_BYTES: u64 = 2 << 30;
const MIN_PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
const MAX_ELECTION_MS: u64 = 50_000;
const MAX_START_REVISION: i64 = i64::MAX / 2;

type Result<T> = std::result::Result<T, ConfigError>;

impl Config {
    pub(super) fn from_values(values: &Values, warnings: &mut Vec<Warning>) -> Result<Self> {
        let log = log(values, warnings)?;
        let listen_peer_urls = listen_urls(values, &flags::LISTEN_PEER_URLS)?;
        let listen_client_urls = listen_urls(values, &flags::LISTEN_CLIENT_URLS)?;
        let listen_client_http_urls = listen_urls(values, &flags::LISTEN_CLIENT_HTTP_URLS)?;
        let listen_metrics_urls = listen_urls(values, &flags::LISTEN_METRICS_URLS)?;
        let advertise_peer_urls = dialable_urls(values, &flags::ADVERTISE_PEER_URLS)?;
        let advertise_client_urls = dialable_urls(values, &flags::ADVERTISE_CLIENT_URLS)?;
        let mut http_urls = listen_client_http_urls.iter();
        let is_client = |http: &&ListenUrl| {
            let mut urls = listen_client_urls.iter();
            urls.any(|url| url.address() == http.address())
        };
        if let Some(url) = http_urls.find(is_client) {
            return error(format!(
                "cannot bind both --listen-client-urls and --listen-client-http-urls on the same \
                 url {url}"
            ));
        }
        let (heartbeat_interval, election_timeout) = timing(values)?;
        // FL-8. With a configuration file etcd does not check this.
        if !values.is_from_file()
            && values.is_given(&flags::LISTEN_CLIENT_URLS)
            && !values.is_given(&flags::ADVERTISE_CLIENT_URLS)
        {
            return error(
                "--advertise-client-urls is required when --listen-client-urls is set explicitly",
            );
        }
        let start_revision = values.get(&flags::START_REVISION);
        if !(1..=MAX_START_REVISION).contains(&start_revision) {
            return error(format!(
                "--start-revision must be from 1 to {MAX_START_REVISION}"
            ));
        }
        let client_urls = || listen_client_urls.iter().chain(&listen_client_http_urls);
        Ok(Self {
            name: values.get(&flags::NAME),
            data_dir: values.get(&flags::DATA_DIR),
            tls: tls(values, client_urls, &listen_metrics_urls, warnings)?,
            auto_compaction: auto_compaction(values, warnings)?,
            auth: auth(values, warnings)?,
            cluster: cluster(values, &advertise_peer_urls, warnings)?,
            watch_progress_notify_interval: progress_interval(values, warnings),
            limits: limits(values),
            // 0 means no limit to grpc-go, too.
            max_concurrent_streams: match values.get(&flags::MAX_CONCURRENT_STREAMS) {
                0 | u32::MAX => None,
                count => Some(count),
            },
            keepalive: keepalive(values),
            enable_pprof: values.get(&flags::ENABLE_PPROF),
            heartbeat_interval,
            election_timeout,
            log,
            listen_client_urls,
            listen_client_http_urls,
            listen_peer_urls,
            listen_metrics_urls,
            advertise_client_urls,
            advertise_peer_urls,
            start_revision,
        })
    }
}

fn error<T>(message: impl Into<String>) -> Result<T> {
    Err(ConfigError::new(message))
}

fn listen_urls(values: &Values, flag: &Flag<Vec<EndpointUrl>>) -> Result<Vec<ListenUrl>> {
    let urls = values.get(flag).into_iter();
    urls.map(|url| Ok(url.try_into()?)).collect()
}

/// TL-3.
fn dialable_urls(values: &Values, flag: &Flag<Vec<EndpointUrl>>) -> Result<Vec<EndpointUrl>> {
    let urls = values.get(flag);
    for url in &urls {
        url.check_dialable().map_err(|reason| {
            let (name, urls) = (flag.name(), join_urls(&urls));
            ConfigError::new(format!(
                "--{name} {urls:?} must be \"host:port\" ({reason})"
            ))
        })?;
    }
    Ok(urls)
}

/// The heartbeat interval and the election timeout (FL-22).
fn timing(values: &Values) -> Result<(Duration, Duration)> {
    let (heartbeat_ms, election_ms) = (
        values.get(&flags::HEARTBEAT_INTERVAL),
        values.get(&flags::ELECTION_TIMEOUT),
    );
    for (name, ms) in [
        (flags::HEARTBEAT_INTERVAL.name(), heartbeat_ms),
        (flags::ELECTION_TIMEOUT.name(), election_ms),
    ] {
        if ms == 0 {
            return error(format!("--{name} must be >0 (set to 0ms)"));
        }
    }
    if heartbeat_ms.saturating_mul(5) > election_ms {
        return error(format!(
            "--election-timeout[{election_ms}ms] should be at least as 5 times as \
             --heartbeat-interval[{heartbeat_ms}ms]"
        ));
    }
    if election_ms > MAX_ELECTION_MS {
        return error(format!(
            "--election-timeout[{election_ms}ms] is too long, and should be set less than \
             {MAX_ELECTION_MS}ms"
        ));
    }
    Ok((
        Duration::from_millis(heartbeat_ms),
        Duration::from_millis(election_ms),
    ))
}

fn log(values: &Values, warnings: &mut Vec<Warning>) -> Result<LogOptions> {
    let mut names = values.get(&flags::LOG_OUTPUTS);
    names.sort_unstable();
    names.dedup();
    if names.len() > 1 && names.iter().any(|name| name == "default") {
        return error("multi logoutput for \"default\" is not supported yet");
    }
    let mut outputs = Vec::new();
    for name in &names {
        let output = match name.as_str() {
            "default" | "stderr" => LogOutput::Stderr,
            "stdout" => LogOutput::Stdout,
            "systemd/journal" => {
                warnings.push(Warning::new(
                    "--log-outputs=systemd/journal is not supported; the log goes to standard \
                     error",
                ));
                LogOutput::Stderr
            }
            path => LogOutput::File(path.into()),
        };
        // Two names can mean the same output, which must receive each line once.
        if !outputs.contains(&output) {
            outputs.push(output);
        }
    }
    let mut log = LogOptions::default();
    if !outputs.is_empty() {
        log.outputs = outputs;
    }
    log.level = match values.get(&flags::LOG_LEVEL).as_str() {
        "debug" | "DEBUG" => LogLevel::Debug,
        "info" | "INFO" | "" => LogLevel::Info,
        "warn" | "WARN" => LogLevel::Warn,
        "error" | "ERROR" => LogLevel::Error,
        "dpanic" | "DPANIC" | "panic" | "PANIC" => LogLevel::Panic,
        "fatal" | "FATAL" => LogLevel::Fatal,
        level => return error(format!("unrecognized level: {level:?}")),
    };
    Ok(log)
}

/// DM-11: the ids are those of `--initial-cluster`, which by default is this member alone, under its
/// own name and URLs.
fn cluster(
    values: &Values,
    own_urls: &[EndpointUrl],
    warnings: &mut Vec<Warning>,
) -> Result<Cluster> {
    let (name, text) = (
        values.get(&flags::NAME),
        values.get(&flags::INITIAL_CLUSTER),
    );
    let mut members: BTreeMap<&str, Vec<EndpointUrl>> = BTreeMap::new();
    for pair in parts(&text) {
        let (name, url) = pair.split_once('=').unwrap_or((pair, ""));
        let url = EndpointUrl::parse(url).map_err(|reason| {
            ConfigError::new(format!("error setting up initial cluster: {reason}"))
        })?;
        members.entry(name).or_default().push(url);
    }
    if members.is_empty() {
        members.insert(&name, own_urls.to_vec());
    }
    members.values_mut().for_each(|urls| urls.sort());
    let Some(own) = members.get(name.as_str()) else {
        return error(format!(
            "couldn't find local name {name:?} in the initial cluster configuration"
        ));
    };
    // etcd resolves the hosts and refuses to start if the addresses differ.
    if own != own_urls {
        warnings.push(Warning::new(
            "--initial-advertise-peer-urls differs from this member's URLs in --initial-cluster; \
             the member id is that of --initial-cluster",
        ));
    }
    if members.len() > 1 {
        warnings.push(Warning::new(format!(
            "--initial-cluster names {} other members; this server runs alone and only takes the \
             ids from them",
            members.len() - 1
        )));
    }
    let member = |(name, peer_urls): (&str, _)| Member {
        name: name.to_owned(),
        peer_urls,
    };
    Ok(Cluster {
        members: members.into_iter().map(member).collect(),
        token: values.get(&flags::CLUSTER_TOKEN),
    })
}

fn limits(values: &Values) -> Limits {
    let size = |flag| usize::try_from(values.get(flag)).unwrap_or(usize::MAX);
    let quota_bytes = match u64::try_from(values.get(&flags::QUOTA_BACKEND_BYTES)) {
        Ok(0) => Some(DEFAULT_QUOTA_BYTES),
        Ok(bytes) => Some(bytes),
        Err(_) => None,
    };
    Limits::default()
        .txn_ops_max(size(&flags::MAX_TXN_OPS))
        .request_bytes_max(size(&flags::MAX_REQUEST_BYTES))
        .quota_bytes(quota_bytes)
}

/// The defaults of grpc-go replace values that are not positive, as in etcd, whose help says that 0
/// turns pings off.
fn keepalive(values: &Values) -> Keepalive {
    const GRPC_GO_MIN_TIME: Duration = Duration::from_secs(300);
    const GRPC_GO_INTERVAL: Duration = Duration::from_secs(7_200);
    const GRPC_GO_TIMEOUT: Duration = Duration::from_secs(20);
    let min_time = values.get(&flags::KEEPALIVE_MIN_TIME).positive();
    let interval = values.get(&flags::KEEPALIVE_INTERVAL).positive();
    let timeout = values.get(&flags::KEEPALIVE_TIMEOUT).positive();
    let pings = interval.zip(timeout);
    let (interval, timeout) = pings.unwrap_or((GRPC_GO_INTERVAL, GRPC_GO_TIMEOUT));
    Keepalive::default()
        .min_time(min_time.unwrap_or(GRPC_GO_MIN_TIME))
        .interval(interval)
        .timeout(timeout)
}

fn auto_compaction(values: &Values, warnings: &mut Vec<Warning>) -> Result<Option<AutoCompaction>> {
    let Some(interval) = values.get(&flags::COMPACTION_INTERVAL).positive() else {
        return error("--auto-compaction-interval must be above 0");
    };
    let (mode, retention) = (
        values.get(&flags::COMPACTION_MODE),
        values.get(&flags::COMPACTION_RETENTION),
    );
    let policy = auto_compaction::parse(&mode, &retention, interval)?;
    if matches!(policy, Some(AutoCompaction::Periodic { .. }))
        && values.is_given(&flags::COMPACTION_INTERVAL)
    {
        warnings.push(Warning::new(
            "--auto-compaction-interval has no effect in periodic mode, which follows the \
             retention",
        ));
    }
    Ok(policy)
}

/// WA-50.
fn progress_interval(values: &Values, warnings: &mut Vec<Warning>) -> Duration {
    let given = values.get(&flags::PROGRESS_INTERVAL);
    let default = flags::PROGRESS_INTERVAL.default_value();
    let interval = given.positive().or(default.positive()).unwrap_or_default();
    if interval < MIN_PROGRESS_INTERVAL {
        warnings.push(Warning::new(
            "--watch-progress-notify-interval is raised to its minimum of 100ms",
        ));
    }
    interval.max(MIN_PROGRESS_INTERVAL)
}

fn auth(values: &Values, warnings: &mut Vec<Warning>) -> Result<Auth> {
    let mut cost = values.get(&flags::BCRYPT_COST);
    if !(4..=31).contains(&cost) {
        let default = flags::BCRYPT_COST.default_value();
        warnings.push(Warning::new(format!(
            "--bcrypt-cost {cost} is not from 4 to 31; the default {default} is used"
        )));
        cost = default;
    }
    Ok(Auth {
        token: values.get(&flags::AUTH_TOKEN).parse::<AuthToken>()?,
        token_ttl: Duration::from_secs(match values.get(&flags::AUTH_TOKEN_TTL) {
            0 => flags::AUTH_TOKEN_TTL.default_value(),
            seconds => seconds,
        }),
        bcrypt_cost: u32::try_from(cost).unwrap_or(u32::MAX),
    })
}

/// TL-1. The versions and cipher suites are checked even if no URL uses TLS, as in etcd.
fn tls<'a, C: Iterator<Item = &'a ListenUrl>>(
    values: &Values,
    client_urls: impl Fn() -> C,
    metrics_urls: &[ListenUrl],
    warnings: &mut Vec<Warning>,
) -> Result<Option<TlsOptions>> {
    let min_version = tls_version(values, &flags::TLS_MIN_VERSION)?.unwrap_or(TlsVersion::V1_2);
    let max_version = tls_version(values, &flags::TLS_MAX_VERSION)?.unwrap_or(TlsVersion::V1_3);
    let cipher_suites = values.get(&flags::CIPHER_SUITES);
    if min_version > max_version {
        return error("min version (TLS1.3) is greater than max version (TLS1.2)");
    }
    if min_version == TlsVersion::V1_3 && !cipher_suites.is_empty() {
        return error("cipher suites cannot be configured when only TLS1.3 is enabled");
    }
    if values.get(&flags::CERT_FILE).is_some() || values.get(&flags::KEY_FILE).is_some() {
        // Metrics URLs cause no warning: kubeadm uses http for them on purpose.
        warnings.extend(client_urls().filter(|url| !url.is_tls()).map(|url| {
            Warning::new(format!(
                "scheme is http or unix while key and cert files are present; ignoring key and \
                 cert files for {url}"
            ))
        }));
    }
    let secure_url = client_urls().find(|url| url.is_tls());
    if secure_url.is_none() && !metrics_urls.iter().any(ListenUrl::is_tls) {
        return Ok(None);
    }
    let Some(certificate) = certificate(values, warnings)? else {
        return error(match secure_url {
            Some(url) => format!(
                "TLS key/cert (--cert-file, --key-file) must be provided for client url {url} with \
                 HTTPS scheme"
            ),
            None => "client TLS key/cert (--cert-file, --key-file) must be provided for metrics \
                     secure url"
                .to_owned(),
        });
    };
    let mut tls = TlsOptions::new(certificate);
    let trusted_ca_file = values.get(&flags::TRUSTED_CA_FILE);
    if values.get(&flags::CLIENT_CERT_AUTH) || trusted_ca_file.is_some() {
        let mut client_auth = ClientAuth::default();
        client_auth.trusted_ca_file = trusted_ca_file;
        client_auth.crl_file = values.get(&flags::CLIENT_CRL_FILE);
        client_auth.allowed_hostnames = values.get(&flags::CLIENT_ALLOWED_HOSTNAMES);
        client_auth.names_users = values.get(&flags::CLIENT_CERT_AUTH);
        tls.client_auth = Some(client_auth);
    }
    tls.cipher_suites = cipher_suites;
    tls.min_version = min_version;
    tls.max_version = max_version;
    Ok(Some(tls))
}

/// The server's certificate, if one is configured. Files take precedence over `--auto-tls`.
fn certificate(values: &Values, warnings: &mut Vec<Warning>) -> Result<Option<Certificate>> {
    let auto_tls = values.get(&flags::AUTO_TLS);
    match (values.get(&flags::CERT_FILE), values.get(&flags::KEY_FILE)) {
        // etcd refuses a validity of 0 years from a flag and takes it for 1 in a file. Here it is
        // always 1.
        (None, None) => Ok(auto_tls.then(|| Certificate::SelfSigned {
            validity_years: values.get(&flags::SELF_SIGNED_CERT_VALIDITY).max(1),
        })),
        (Some(cert_file), Some(key_file)) => {
            if auto_tls {
                warnings.push(Warning::new(
                    "ignoring --auto-tls since certificates are given",
                ));
            }
            Ok(Some(Certificate::Files {
                cert_file,
                key_file,
            }))
        }
        (cert_file, key_file) => {
            let text = |path: Option<PathBuf>| path.unwrap_or_default().display().to_string();
            let (key, cert) = (text(key_file), text(cert_file));
            error(format!(
                "KeyFile and CertFile must both be present[key: {key}, cert: {cert}]"
            ))
        }
    }
}

fn tls_version(values: &Values, flag: &Flag<String>) -> Result<Option<TlsVersion>> {
    match values.get(flag).as_str() {
        "" => Ok(None),
        "TLS1.2" => Ok(Some(TlsVersion::V1_2)),
        "TLS1.3" => Ok(Some(TlsVersion::V1_3)),
        version => error(format!(
            "unexpected TLS version {version:?} (must be one of: TLS1.2, TLS1.3)"
        )),
    }
}
