//! From the values of flags to a [`Config`], with all checks across flags.
//!
//! Where etcd has an error, its text is the same here, and so is the order of the checks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use revstore_engine::Revision;
use revstore_grpc::Limits;
use revstore_host::{
    config::{ConfigError, Flag, Values, parts},
    logging::{LogLevel, LogOptions, LogOutput},
    net::{EndpointUrl, Keepalive, ListenUrl, join_urls},
};
use revstore_persist::{Fsync, Options as PersistOptions};

use super::{
    AuthConfig, AuthToken, Cluster, Config, ControlConfig, auto_compaction, flags, log_rotation,
    tls,
};

/// The limit that `--quota-backend-bytes=0` means.
const DEFAULT_QUOTA_BYTES: u64 = 2 << 30;
const MIN_PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// The longest `--watch-catch-up-delay`. A client would take a longer one for a broken stream.
const MAX_CATCH_UP_DELAY: Duration = Duration::from_secs(10);
const PERSIST_INTERVAL_MIN: Duration = Duration::from_millis(1);
const PERSIST_INTERVAL_MAX: Duration = Duration::from_secs(3600);
const MAX_ELECTION_MS: u64 = 50_000;
const MAX_START_REVISION: i64 = Revision::START_MAX.0;
// The defaults of grpc-go, which replace times that are not positive (LI-5, LI-7).
const GRPC_GO_MIN_TIME: Duration = Duration::from_secs(300);
const GRPC_GO_INTERVAL: Duration = Duration::from_secs(7_200);
const GRPC_GO_TIMEOUT: Duration = Duration::from_secs(20);

type Result<T> = std::result::Result<T, ConfigError>;

/// Returns a [`ConfigError`] with a formatted message.
macro_rules! fail {
    ($($message:tt)*) => {
        return Err(ConfigError::new(format!($($message)*)))
    };
}

impl Config {
    pub(super) fn from_values(values: &mut Values) -> Result<Self> {
        let log = log(values)?;
        let listen_peer_urls = listen_urls(values, &flags::LISTEN_PEER_URLS)?;
        let listen_client_urls = listen_urls(values, &flags::LISTEN_CLIENT_URLS)?;
        let listen_client_http_urls = listen_urls(values, &flags::LISTEN_CLIENT_HTTP_URLS)?;
        let listen_metrics_urls = listen_urls(values, &flags::LISTEN_METRICS_URLS)?;
        let advertise_peer_urls = dialable_urls(values, &flags::ADVERTISE_PEER_URLS)?;
        let advertise_client_urls = dialable_urls(values, &flags::ADVERTISE_CLIENT_URLS)?;
        let addresses: Vec<_> = listen_client_urls.iter().map(ListenUrl::address).collect();
        let mut http_urls = listen_client_http_urls.iter();
        if let Some(url) = http_urls.find(|url| addresses.contains(&url.address())) {
            fail!(
                "cannot bind both --listen-client-urls and --listen-client-http-urls on the same \
                 url {url}"
            );
        }
        let (heartbeat_interval, election_timeout) = timing(values)?;
        // FL-8. With a configuration file etcd does not check this.
        let is_checked =
            !values.is_from_file() && values.is_given(&flags::LISTEN_CLIENT_URLS.declaration);
        if is_checked && !values.is_given(&flags::ADVERTISE_CLIENT_URLS.declaration) {
            fail!(
                "--advertise-client-urls is required when --listen-client-urls is set explicitly"
            );
        }
        let start_revision = values.get(&flags::START_REVISION);
        if !(1..=MAX_START_REVISION).contains(&start_revision) {
            fail!("--start-revision must be from 1 to {MAX_START_REVISION}");
        }
        let import = values.get(&flags::IMPORT);
        if import.is_some() {
            let others = [
                &flags::PERSIST.declaration,
                &flags::START_REVISION.declaration,
            ];
            if let Some(other) = others.into_iter().find(|it| values.is_given(it)) {
                fail!("--import cannot be combined with --{}", other.name);
            }
        }
        let mut client_urls = listen_client_urls.clone();
        client_urls.extend_from_slice(&listen_client_http_urls);
        Ok(Self {
            name: values.get(&flags::NAME),
            persist: persist(values)?,
            data_dir: values.get(&flags::DATA_DIR),
            tls: tls::client(values, &client_urls, &listen_metrics_urls)?,
            peer_tls: tls::peer(values, &listen_peer_urls)?,
            host_whitelist: values.get(&flags::HOST_WHITELIST).0,
            cors: values.get(&flags::CORS).0,
            enable_grpc_gateway: values.get(&flags::ENABLE_GRPC_GATEWAY),
            reuse_port: values.get(&flags::SOCKET_REUSE_PORT),
            auto_compaction: auto_compaction::policy(values)?,
            auth: auth(values)?,
            cluster: cluster(values, &advertise_peer_urls)?,
            watch_progress_notify_interval: progress_interval(values),
            watch_catch_up_delay: catch_up_delay(values)?,
            limits: limits(values),
            // LI-4. 0 means no limit to grpc-go, too.
            max_concurrent_streams: match values.get(&flags::MAX_CONCURRENT_STREAMS) {
                0 | u32::MAX => None,
                count => Some(count),
            },
            keepalive: keepalive(values),
            // As in etcd, a negative time is shorter than any request.
            warning_apply_duration: values
                .get(&flags::WARNING_APPLY_DURATION)
                .positive()
                .unwrap_or_default(),
            warning_unary_request_duration: values
                .get(&flags::WARNING_UNARY_REQUEST_DURATION)
                .positive()
                .unwrap_or_default(),
            extensive_metrics: match values.get(&flags::METRICS).as_str() {
                "basic" => false,
                "extensive" => true,
                level => fail!("invalid --metrics {level:?}: must be 'basic' or 'extensive'"),
            },
            enable_pprof: values.get(&flags::ENABLE_PPROF),
            heartbeat_interval,
            election_timeout,
            log,
            listen_client_urls,
            listen_client_http_urls,
            listen_peer_urls,
            listen_metrics_urls,
            control: ControlConfig::of_flags(values)?,
            exit_with_stdin: values.get(&flags::EXIT_WITH_STDIN),
            advertise_client_urls,
            advertise_peer_urls,
            start_revision,
            import,
        })
    }
}

/// FL-17.
fn persist(values: &Values) -> Result<Option<PersistOptions>> {
    let (fsync, interval) = (&flags::PERSIST_FSYNC, &flags::PERSIST_FSYNC_INTERVAL);
    let policy = values.get(fsync);
    if !values.get(&flags::PERSIST) {
        for name in [&fsync.declaration, &interval.declaration] {
            if values.is_given(name) {
                fail!("--{} requires --persist", name.name);
            }
        }
        return Ok(None);
    }
    if values.get(&flags::DATA_DIR).is_none() {
        fail!("--persist requires --data-dir");
    }
    let time = Duration::from_nanos(u64::try_from(values.get(interval).0).unwrap_or(0));
    let range = PERSIST_INTERVAL_MIN..=PERSIST_INTERVAL_MAX;
    if values.is_given(&interval.declaration) && policy != "interval" {
        fail!("--persist-fsync-interval requires --persist-fsync=interval");
    }
    let fsync = match &*policy {
        "always" => Fsync::Always,
        "never" => Fsync::Never,
        "interval" if range.contains(&time) => Fsync::Interval(time),
        "interval" => fail!("--persist-fsync-interval must be from 1ms to 1h"),
        other => {
            fail!("invalid --persist-fsync \"{other}\": it must be never, interval or always")
        }
    };
    Ok(Some(PersistOptions::default().fsync(fsync)))
}

/// FL-10.
fn listen_urls(values: &Values, flag: &Flag<Vec<EndpointUrl>>) -> Result<Vec<ListenUrl>> {
    let urls = values.get(flag).into_iter();
    urls.map(|url| Ok(ListenUrl::try_from(url)?)).collect()
}

/// TL-3.
fn dialable_urls(values: &Values, flag: &Flag<Vec<EndpointUrl>>) -> Result<Vec<EndpointUrl>> {
    let urls = values.get(flag);
    for url in &urls {
        if let Err(reason) = url.check_dialable() {
            let (name, urls) = (flag.declaration.name, join_urls(&urls));
            fail!("--{name} {urls:?} must be \"host:port\" ({reason})");
        }
    }
    Ok(urls)
}

/// Returns the heartbeat interval and the election timeout (FL-22).
fn timing(values: &Values) -> Result<(Duration, Duration)> {
    let heartbeat_ms = values.get(&flags::HEARTBEAT_INTERVAL);
    let election_ms = values.get(&flags::ELECTION_TIMEOUT);
    if heartbeat_ms == 0 {
        fail!("--heartbeat-interval must be >0 (set to 0ms)");
    }
    if election_ms == 0 {
        fail!("--election-timeout must be >0 (set to 0ms)");
    }
    if heartbeat_ms.saturating_mul(5) > election_ms {
        fail!(
            "--election-timeout[{election_ms}ms] should be at least as 5 times as \
             --heartbeat-interval[{heartbeat_ms}ms]"
        );
    }
    if election_ms > MAX_ELECTION_MS {
        fail!(
            "--election-timeout[{election_ms}ms] is too long, and should be set less than \
             {MAX_ELECTION_MS}ms"
        );
    }
    let heartbeat_interval = Duration::from_millis(heartbeat_ms);
    Ok((heartbeat_interval, Duration::from_millis(election_ms)))
}

fn log(values: &mut Values) -> Result<LogOptions> {
    let names = BTreeSet::from_iter(values.get(&flags::LOG_OUTPUTS));
    if names.len() > 1 && names.contains("default") {
        fail!("multi logoutput for \"default\" is not supported yet");
    }
    let texts: Vec<_> = names.iter().map(String::as_str).collect();
    let rotation = log_rotation::rotation(values, &texts)?;
    let mut outputs = Vec::new();
    for name in &names {
        if name == "systemd/journal" {
            values.warn(
                "--log-outputs=systemd/journal is not supported; the log goes to standard error",
            );
        }
        let output = match name.as_str() {
            "default" | "stderr" | "systemd/journal" => LogOutput::Stderr,
            "stdout" => LogOutput::Stdout,
            path => match rotation {
                Some(rotation) => LogOutput::RotatedFile(path.into(), rotation),
                None => LogOutput::File(path.into()),
            },
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
        level => fail!("unrecognized level: {level:?}"),
    };
    Ok(log)
}

/// DM-11: the ids are those of `--initial-cluster`, which by default is this member alone, under its
/// own name and URLs.
fn cluster(values: &mut Values, own_urls: &[EndpointUrl]) -> Result<Cluster> {
    let name = values.get(&flags::NAME);
    let mut members: BTreeMap<String, Vec<EndpointUrl>> = BTreeMap::new();
    for pair in parts(&values.get(&flags::INITIAL_CLUSTER)) {
        let (name, url) = pair.split_once('=').unwrap_or((pair, ""));
        match EndpointUrl::parse(url) {
            Ok(url) => members.entry(name.to_owned()).or_default().push(url),
            Err(reason) => fail!("error setting up initial cluster: {reason}"),
        }
    }
    if members.is_empty() {
        members.insert(name.clone(), own_urls.to_vec());
    }
    for urls in members.values_mut() {
        urls.sort();
    }
    let Some(own) = members.get(&name) else {
        fail!("couldn't find local name {name:?} in the initial cluster configuration");
    };
    // etcd resolves the hosts and refuses to start if the addresses differ.
    if own != own_urls {
        values.warn(
            "--initial-advertise-peer-urls differs from this member's URLs in --initial-cluster; \
             the member id is that of --initial-cluster",
        );
    }
    if members.len() > 1 {
        values.warn(format!(
            "--initial-cluster names {} other members; this server runs alone and only takes the \
             ids from them",
            members.len() - 1
        ));
    }
    let token = values.get(&flags::CLUSTER_TOKEN);
    Ok(Cluster { members, token })
}

fn limits(values: &Values) -> Limits {
    let size = |flag| usize::try_from(values.get(flag)).unwrap_or(usize::MAX);
    let quota_bytes = match u64::try_from(values.get(&flags::QUOTA_BACKEND_BYTES)) {
        Ok(0) => Some(DEFAULT_QUOTA_BYTES),
        bytes => bytes.ok(),
    };
    let limits = Limits::default()
        .txn_ops_max(size(&flags::MAX_TXN_OPS))
        .request_bytes_max(size(&flags::MAX_REQUEST_BYTES))
        .quota_bytes(quota_bytes)
        .answer_bytes_max(values.get(&flags::ANSWER_MEMORY_BYTES));
    match usize::try_from(values.get(&flags::HEAVY_WORKERS)) {
        Ok(0) => limits,
        workers => limits.heavy_workers(workers.unwrap_or(usize::MAX)),
    }
}

/// Returns the intervals of pings. 0 does not turn pings off, although etcd's help says so: as in
/// etcd, grpc-go's default replaces it.
fn keepalive(values: &Values) -> Keepalive {
    let min_time = values.get(&flags::KEEPALIVE_MIN_TIME).positive();
    let interval = values.get(&flags::KEEPALIVE_INTERVAL).positive();
    let timeout = values.get(&flags::KEEPALIVE_TIMEOUT).positive();
    let pings = interval.zip(timeout);
    let (interval, timeout) = pings.unwrap_or((GRPC_GO_INTERVAL, GRPC_GO_TIMEOUT));
    let keepalive = Keepalive::default().min_time(min_time.unwrap_or(GRPC_GO_MIN_TIME));
    keepalive.interval(interval).timeout(timeout)
}

/// WA-18.
fn catch_up_delay(values: &Values) -> Result<Duration> {
    let delay = values.get(&flags::WATCH_CATCH_UP_DELAY);
    let limit = i64::try_from(MAX_CATCH_UP_DELAY.as_nanos()).unwrap_or(i64::MAX);
    if !(0..=limit).contains(&delay.0) {
        fail!("--watch-catch-up-delay must be from 0s to {MAX_CATCH_UP_DELAY:?}");
    }
    Ok(delay.positive().unwrap_or_default())
}

/// WA-50.
fn progress_interval(values: &mut Values) -> Duration {
    let given = values.get(&flags::PROGRESS_INTERVAL).positive();
    let default = || Values::default().get(&flags::PROGRESS_INTERVAL).positive();
    let interval = given.or_else(default).unwrap_or_default();
    if interval < MIN_PROGRESS_INTERVAL {
        values.warn("--watch-progress-notify-interval is raised to its minimum of 100ms");
    }
    interval.max(MIN_PROGRESS_INTERVAL)
}

fn auth(values: &mut Values) -> Result<AuthConfig> {
    let mut cost = values.get(&flags::BCRYPT_COST);
    if !(4..=31).contains(&cost) {
        let default = Values::default().get(&flags::BCRYPT_COST);
        values.warn(format!(
            "--bcrypt-cost {cost} is not from 4 to 31; the default {default} is used"
        ));
        cost = default;
    }
    let token_ttl = match values.get(&flags::AUTH_TOKEN_TTL) {
        0 => Values::default().get(&flags::AUTH_TOKEN_TTL),
        seconds => seconds,
    };
    let token = values.get(&flags::AUTH_TOKEN).parse()?;
    if let AuthToken::Jwt(options) = &token {
        for warning in options.warnings() {
            values.warn(warning);
        }
    }
    Ok(AuthConfig {
        token,
        token_ttl: Duration::from_secs(token_ttl),
        bcrypt_cost: u32::try_from(cost).unwrap_or(u32::MAX),
    })
}
