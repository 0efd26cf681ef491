//! A configuration in the making: what the flags say, before it is checked as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use revstore_host::{
    config::{
        Certificate, ClientAuth, EndpointUrl, GoDuration, ListenUrl, LogLevel, LogOptions,
        LogOutput, TlsOptions, TlsVersion, url,
    },
    net::Keepalive,
};

use crate::{
    auth_token::AuthToken,
    auto_compaction::AutoCompaction,
    config::{
        Auth, CLIENT_PORT, Cluster, Config, DEFAULT_BCRYPT_COST, DEFAULT_CLUSTER_TOKEN,
        DEFAULT_ELECTION_MS, DEFAULT_HEARTBEAT_MS, DEFAULT_NAME, DEFAULT_PROGRESS_INTERVAL,
        DEFAULT_QUOTA_BYTES, DEFAULT_TOKEN_TTL, Limits, Member, PEER_PORT,
    },
    error::ConfigError,
    flags,
    warning::Warning,
};

/// One field per flag, of the type the flag's value has. Setting a field cannot fail; what depends
/// on several fields, or needs a text of etcd's, is checked in [`Draft::finish`].
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own, and none a state"
)]
pub(crate) struct Draft {
    /// The flags that were set, by whatever means.
    given: BTreeSet<&'static str>,
    /// Whether they were set by a configuration file.
    is_from_file: bool,
    pub(crate) config_file: String,
    pub(crate) print_version: bool,
    pub(crate) name: String,
    pub(crate) data_dir: String,
    pub(crate) listen_client_urls: Vec<EndpointUrl>,
    pub(crate) listen_client_http_urls: Vec<EndpointUrl>,
    pub(crate) listen_peer_urls: Vec<EndpointUrl>,
    pub(crate) listen_metrics_urls: Vec<EndpointUrl>,
    pub(crate) advertise_client_urls: Vec<EndpointUrl>,
    pub(crate) advertise_peer_urls: Vec<EndpointUrl>,
    pub(crate) initial_cluster: String,
    pub(crate) cluster_token: String,
    pub(crate) heartbeat_ms: u64,
    pub(crate) election_ms: u64,
    pub(crate) quota_backend_bytes: i64,
    pub(crate) max_txn_ops: u64,
    pub(crate) max_request_bytes: u64,
    pub(crate) max_concurrent_streams: u32,
    pub(crate) keepalive_min_time: GoDuration,
    pub(crate) keepalive_interval: GoDuration,
    pub(crate) keepalive_timeout: GoDuration,
    pub(crate) compaction_mode: String,
    pub(crate) compaction_retention: String,
    pub(crate) compaction_interval: GoDuration,
    pub(crate) progress_interval: GoDuration,
    pub(crate) cert_file: String,
    pub(crate) key_file: String,
    pub(crate) client_cert_auth: bool,
    pub(crate) trusted_ca_file: String,
    pub(crate) client_crl_file: String,
    pub(crate) client_allowed_hostnames: String,
    pub(crate) auto_tls: bool,
    pub(crate) self_signed_cert_validity: u64,
    pub(crate) cipher_suites: String,
    pub(crate) tls_min_version: String,
    pub(crate) tls_max_version: String,
    pub(crate) auth_token: String,
    pub(crate) auth_token_ttl: u64,
    pub(crate) bcrypt_cost: u64,
    pub(crate) log_level: String,
    pub(crate) log_outputs: String,
    pub(crate) enable_pprof: bool,
    pub(crate) start_revision: i64,
}

impl Default for Draft {
    fn default() -> Self {
        const SECOND: i64 = 1_000_000_000;
        Self {
            given: BTreeSet::new(),
            is_from_file: false,
            config_file: String::new(),
            print_version: false,
            name: DEFAULT_NAME.to_owned(),
            data_dir: String::new(),
            listen_client_urls: vec![EndpointUrl::localhost(CLIENT_PORT)],
            listen_client_http_urls: Vec::new(),
            listen_peer_urls: vec![EndpointUrl::localhost(PEER_PORT)],
            listen_metrics_urls: Vec::new(),
            advertise_client_urls: vec![EndpointUrl::localhost(CLIENT_PORT)],
            advertise_peer_urls: vec![EndpointUrl::localhost(PEER_PORT)],
            initial_cluster: String::new(),
            cluster_token: DEFAULT_CLUSTER_TOKEN.to_owned(),
            heartbeat_ms: DEFAULT_HEARTBEAT_MS,
            election_ms: DEFAULT_ELECTION_MS,
            quota_backend_bytes: 0,
            max_txn_ops: 128,
            max_request_bytes: 1_572_864,
            max_concurrent_streams: u32::MAX,
            keepalive_min_time: GoDuration(5 * SECOND),
            keepalive_interval: GoDuration(7_200 * SECOND),
            keepalive_timeout: GoDuration(20 * SECOND),
            compaction_mode: "periodic".to_owned(),
            compaction_retention: "0".to_owned(),
            compaction_interval: GoDuration(300 * SECOND),
            progress_interval: GoDuration(600 * SECOND),
            cert_file: String::new(),
            key_file: String::new(),
            client_cert_auth: false,
            trusted_ca_file: String::new(),
            client_crl_file: String::new(),
            client_allowed_hostnames: String::new(),
            auto_tls: false,
            self_signed_cert_validity: 1,
            cipher_suites: String::new(),
            tls_min_version: "TLS1.2".to_owned(),
            tls_max_version: String::new(),
            auth_token: "simple".to_owned(),
            auth_token_ttl: 300,
            bcrypt_cost: u64::from(DEFAULT_BCRYPT_COST),
            log_level: "info".to_owned(),
            log_outputs: "default".to_owned(),
            enable_pprof: false,
            start_revision: 1,
        }
    }
}

impl Draft {
    /// A draft for a configuration file to fill.
    pub(crate) fn for_file() -> Self {
        Self {
            is_from_file: true,
            ..Self::default()
        }
    }

    pub(crate) fn mark_given(&mut self, flag: &'static str) {
        self.given.insert(flag);
    }

    pub(crate) fn is_given(&self, flag: &str) -> bool {
        self.given.contains(flag)
    }

    /// Whether anything was set beside the configuration file.
    pub(crate) fn is_given_beside_file(&self) -> bool {
        self.given.iter().any(|flag| *flag != flags::CONFIG_FILE)
    }

    /// FL-8. Only for flags and variables: with a configuration file etcd advertises its default
    /// URL without a word.
    fn check_advertised(&self) -> Result<(), ConfigError> {
        if !self.is_from_file
            && self.is_given(flags::LISTEN_CLIENT_URLS)
            && !self.is_given(flags::ADVERTISE_CLIENT_URLS)
        {
            return Err(ConfigError::NoAdvertiseClientUrls);
        }
        Ok(())
    }

    /// Checks everything, in the order in which etcd complains, and types it.
    pub(crate) fn finish(self, warnings: &mut Vec<Warning>) -> Result<Config, ConfigError> {
        let log = self.log(warnings)?;
        let listen_peer_urls = listen_urls(&self.listen_peer_urls)?;
        let listen_client_urls = listen_urls(&self.listen_client_urls)?;
        let listen_client_http_urls = listen_urls(&self.listen_client_http_urls)?;
        let listen_metrics_urls = listen_urls(&self.listen_metrics_urls)?;
        check_dialable("initial-advertise-peer-urls", &self.advertise_peer_urls)?;
        check_dialable("advertise-client-urls", &self.advertise_client_urls)?;
        if let Some(shared) = listen_client_http_urls.iter().find(|http| {
            listen_client_urls
                .iter()
                .any(|url| url.address() == http.address())
        }) {
            return Err(ConfigError::SharedHttpUrl {
                url: shared.url().clone(),
            });
        }
        self.check_timing()?;
        self.check_advertised()?;
        if !(1..=i64::MAX / 2).contains(&self.start_revision) {
            return Err(ConfigError::StartRevision);
        }

        Ok(Config {
            tls: self.tls(
                &[&listen_client_urls, &listen_client_http_urls]
                    .map(Vec::as_slice)
                    .concat(),
                &listen_metrics_urls,
                warnings,
            )?,
            auto_compaction: self.auto_compaction(warnings)?,
            auth: self.auth(warnings)?,
            cluster: self.cluster(warnings)?,
            watch_progress_notify_interval: self.progress_interval(warnings),
            limits: self.limits(),
            keepalive: self.keepalive(),
            heartbeat_interval: Duration::from_millis(self.heartbeat_ms),
            election_timeout: Duration::from_millis(self.election_ms),
            log,
            listen_client_urls,
            listen_client_http_urls,
            listen_peer_urls,
            listen_metrics_urls,
            data_dir: path(&self.data_dir),
            name: self.name,
            advertise_client_urls: self.advertise_client_urls,
            advertise_peer_urls: self.advertise_peer_urls,
            enable_pprof: self.enable_pprof,
            start_revision: self.start_revision,
        })
    }

    /// FL-22.
    fn check_timing(&self) -> Result<(), ConfigError> {
        let (heartbeat_ms, election_ms) = (self.heartbeat_ms, self.election_ms);
        if heartbeat_ms == 0 {
            return Err(ConfigError::ZeroTiming {
                flag: "heartbeat-interval",
            });
        }
        if election_ms == 0 {
            return Err(ConfigError::ZeroTiming {
                flag: "election-timeout",
            });
        }
        if heartbeat_ms.saturating_mul(5) > election_ms {
            return Err(ConfigError::ElectionTooShort {
                election_ms,
                heartbeat_ms,
            });
        }
        if election_ms > MAX_ELECTION_MS {
            return Err(ConfigError::ElectionTooLong { election_ms });
        }
        Ok(())
    }

    fn log(&self, warnings: &mut Vec<Warning>) -> Result<LogOptions, ConfigError> {
        let names: BTreeSet<&str> = split(&self.log_outputs).collect();
        if names.len() > 1 && names.contains("default") {
            return Err(ConfigError::DefaultLogOutput);
        }
        let mut outputs = Vec::new();
        for name in names {
            let output = match name {
                "default" | "stderr" => LogOutput::Stderr,
                "stdout" => LogOutput::Stdout,
                "systemd/journal" => {
                    warnings.push(Warning::NoJournal);
                    LogOutput::Stderr
                }
                path => LogOutput::File(path.into()),
            };
            // Two names can stand for one output; its lines must not come twice.
            if !outputs.contains(&output) {
                outputs.push(output);
            }
        }
        if outputs.is_empty() {
            outputs.push(LogOutput::Stderr);
        }
        let level = match self.log_level.as_str() {
            "debug" | "DEBUG" => LogLevel::Debug,
            "info" | "INFO" | "" => LogLevel::Info,
            "warn" | "WARN" => LogLevel::Warn,
            "error" | "ERROR" => LogLevel::Error,
            "dpanic" | "DPANIC" | "panic" | "PANIC" => LogLevel::Panic,
            "fatal" | "FATAL" => LogLevel::Fatal,
            level => {
                return Err(ConfigError::LogLevel {
                    level: level.to_owned(),
                });
            }
        };
        let mut log = LogOptions::default();
        log.level = level;
        log.outputs = outputs;
        Ok(log)
    }

    /// DM-11: the ids are those of `--initial-cluster`, which by default is this member alone,
    /// under its own name and URLs.
    fn cluster(&self, warnings: &mut Vec<Warning>) -> Result<Cluster, ConfigError> {
        let mut members: BTreeMap<&str, Vec<EndpointUrl>> = BTreeMap::new();
        for pair in split(&self.initial_cluster) {
            let (name, url) = pair.split_once('=').unwrap_or((pair, ""));
            members
                .entry(name)
                .or_default()
                .push(EndpointUrl::parse(url)?);
        }
        if members.is_empty() {
            members.insert(&self.name, self.advertise_peer_urls.clone());
        }
        for urls in members.values_mut() {
            urls.sort();
        }
        let own = members
            .get(self.name.as_str())
            .ok_or_else(|| ConfigError::NotInCluster {
                name: self.name.clone(),
            })?;
        if *own != self.advertise_peer_urls {
            warnings.push(Warning::AdvertisedPeerUrlsDiffer);
        }
        if members.len() > 1 {
            warnings.push(Warning::OtherMembers {
                count: members.len() - 1,
            });
        }
        let member = |(name, peer_urls): (&str, _)| Member {
            name: name.to_owned(),
            peer_urls,
        };
        Ok(Cluster {
            members: members.into_iter().map(member).collect(),
            token: self.cluster_token.clone(),
        })
    }

    fn limits(&self) -> Limits {
        Limits {
            quota_backend_bytes: match u64::try_from(self.quota_backend_bytes) {
                Ok(0) => Some(DEFAULT_QUOTA_BYTES),
                Ok(bytes) => Some(bytes),
                // Below zero etcd sets no limit at all.
                Err(_) => None,
            },
            max_txn_ops: usize::try_from(self.max_txn_ops).unwrap_or(usize::MAX),
            max_request_bytes: usize::try_from(self.max_request_bytes).unwrap_or(usize::MAX),
            max_concurrent_streams: match self.max_concurrent_streams {
                // grpc-go takes 0 for "no limit" too.
                0 | u32::MAX => None,
                count => Some(count),
            },
        }
    }

    /// Returns the keepalive settings (LI-5, LI-7). A value of 0 or less falls back to grpc-go's own
    /// default, as in etcd: 5 minutes between the pings of a client, and pings of the server after 2 h
    /// with a timeout of 20 s. So 0 does not disable the server's pings, contrary to etcd's help.
    fn keepalive(&self) -> Keepalive {
        const GRPC_GO_MIN_TIME: Duration = Duration::from_secs(300);
        let min_time = self
            .keepalive_min_time
            .positive()
            .unwrap_or(GRPC_GO_MIN_TIME);
        let keepalive = Keepalive::default().min_time(min_time);
        match (
            self.keepalive_interval.positive(),
            self.keepalive_timeout.positive(),
        ) {
            (Some(interval), Some(timeout)) => keepalive.interval(interval).timeout(timeout),
            _ => keepalive,
        }
    }

    fn auto_compaction(&self, warnings: &mut Vec<Warning>) -> Result<AutoCompaction, ConfigError> {
        let interval = self
            .compaction_interval
            .positive()
            .ok_or(ConfigError::NotPositive {
                flag: flags::COMPACTION_INTERVAL,
            })?;
        let auto_compaction =
            AutoCompaction::parse(&self.compaction_mode, &self.compaction_retention, interval)?;
        if matches!(auto_compaction, AutoCompaction::Periodic { .. })
            && self.is_given(flags::COMPACTION_INTERVAL)
        {
            warnings.push(Warning::CompactionIntervalUnused);
        }
        Ok(auto_compaction)
    }

    fn progress_interval(&self, warnings: &mut Vec<Warning>) -> Duration {
        match self.progress_interval.positive() {
            None => DEFAULT_PROGRESS_INTERVAL,
            Some(interval) if interval < MIN_PROGRESS_INTERVAL => {
                warnings.push(Warning::ProgressIntervalRaised);
                MIN_PROGRESS_INTERVAL
            }
            Some(interval) => interval,
        }
    }

    fn auth(&self, warnings: &mut Vec<Warning>) -> Result<Auth, ConfigError> {
        let bcrypt_cost = if let Ok(cost @ 4..=31) = u32::try_from(self.bcrypt_cost) {
            cost
        } else {
            warnings.push(Warning::BcryptCost {
                given: self.bcrypt_cost,
            });
            DEFAULT_BCRYPT_COST
        };
        Ok(Auth {
            token: AuthToken::parse(&self.auth_token)?,
            token_ttl: match self.auth_token_ttl {
                0 => DEFAULT_TOKEN_TTL,
                seconds => Duration::from_secs(seconds),
            },
            bcrypt_cost,
        })
    }

    /// TL-1. The versions and suites are checked even when nothing speaks TLS, as in etcd.
    fn tls(
        &self,
        client_urls: &[ListenUrl],
        metrics_urls: &[ListenUrl],
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<TlsOptions>, ConfigError> {
        let min_version = tls_version(&self.tls_min_version)?.unwrap_or(TlsVersion::V1_2);
        let max_version = tls_version(&self.tls_max_version)?.unwrap_or(TlsVersion::V1_3);
        if min_version > max_version {
            return Err(ConfigError::TlsVersions);
        }
        if min_version == TlsVersion::V1_3 && !self.cipher_suites.is_empty() {
            return Err(ConfigError::CipherSuites);
        }

        if !self.cert_file.is_empty() || !self.key_file.is_empty() {
            // The metrics are left out: kubeadm probes them in the clear, and rightly so.
            let plain = client_urls.iter().filter(|url| !url.is_tls());
            let plain = plain.map(|url| Warning::PlainUrlBesideTls {
                url: url.url().clone(),
            });
            warnings.extend(plain);
        }
        let secure_client = client_urls.iter().find(|url| url.is_tls());
        if secure_client.is_none() && !metrics_urls.iter().any(ListenUrl::is_tls) {
            return Ok(None);
        }
        let certificate = self
            .certificate(warnings)?
            .ok_or_else(|| match secure_client {
                Some(url) => ConfigError::NoCertificate {
                    url: url.url().clone(),
                },
                None => ConfigError::NoMetricsCertificate,
            })?;
        let trusted_ca_file = path(&self.trusted_ca_file);
        let demands_certificate = self.client_cert_auth || trusted_ca_file.is_some();
        let mut tls = TlsOptions::new(certificate);
        if demands_certificate {
            let mut client_auth = ClientAuth::default();
            client_auth.trusted_ca_file = trusted_ca_file;
            client_auth.crl_file = path(&self.client_crl_file);
            client_auth.allowed_hostnames = owned(split(&self.client_allowed_hostnames));
            client_auth.names_users = self.client_cert_auth;
            tls.client_auth = Some(client_auth);
        }
        tls.cipher_suites = owned(split(&self.cipher_suites));
        tls.min_version = min_version;
        tls.max_version = max_version;
        Ok(Some(tls))
    }

    /// The certificate the flags give, if any. Files win over `--auto-tls`.
    fn certificate(&self, warnings: &mut Vec<Warning>) -> Result<Option<Certificate>, ConfigError> {
        match (path(&self.cert_file), path(&self.key_file)) {
            // etcd refuses a validity of 0 years when it comes to sign, but only from a flag: in
            // the file it reads as 1. One rule will do.
            (None, None) => Ok(self.auto_tls.then(|| Certificate::SelfSigned {
                validity_years: self.self_signed_cert_validity.max(1),
            })),
            (Some(cert_file), Some(key_file)) => {
                if self.auto_tls {
                    warnings.push(Warning::AutoTlsUnused);
                }
                Ok(Some(Certificate::Files {
                    cert_file,
                    key_file,
                }))
            }
            _ => Err(ConfigError::HalfCertificate {
                key_file: self.key_file.clone(),
                cert_file: self.cert_file.clone(),
            }),
        }
    }
}

const MAX_ELECTION_MS: u64 = 50_000;
const MIN_PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

fn listen_urls(urls: &[EndpointUrl]) -> Result<Vec<ListenUrl>, ConfigError> {
    urls.iter()
        .map(|url| Ok(ListenUrl::try_from(url.clone())?))
        .collect()
}

fn check_dialable(flag: &'static str, urls: &[EndpointUrl]) -> Result<(), ConfigError> {
    for url in urls {
        url.check_dialable()
            .map_err(|source| ConfigError::NotDialable {
                flag,
                urls: url::join(urls),
                source,
            })?;
    }
    Ok(())
}

fn tls_version(text: &str) -> Result<Option<TlsVersion>, ConfigError> {
    match text {
        "" => Ok(None),
        "TLS1.2" => Ok(Some(TlsVersion::V1_2)),
        "TLS1.3" => Ok(Some(TlsVersion::V1_3)),
        version => Err(ConfigError::TlsVersion {
            version: version.to_owned(),
        }),
    }
}

/// A path, unless it is empty: etcd's way of saying that there is none.
fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

/// The parts of a comma-separated list that are not empty.
fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|part| !part.is_empty())
}

fn owned<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<String> {
    parts.map(str::to_owned).collect()
}
