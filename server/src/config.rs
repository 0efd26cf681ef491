//! The configuration of a server: one value, checked, independent of where it came from.

use std::{path::PathBuf, time::Duration};

use revstore_host::{
    config::{EndpointUrl, ListenAddress, ListenUrl, LogOptions, TlsOptions},
    net::Keepalive,
};

use crate::{auth_token::AuthToken, auto_compaction::AutoCompaction, identity};

/// Everything a server needs to know before it starts.
///
/// Made by [`parse`](crate::parse) from flags, variables or a configuration file, or by hand from
/// [`Config::default`], which is what the binary does without any of them.
///
/// What `parse` promises, and code that builds one by hand must keep:
/// - `listen_client_urls`, `listen_peer_urls` and `advertise_peer_urls` are not empty;
/// - `tls` is present if, and only if, one of the client or metrics URLs speaks TLS;
/// - `cluster.members` holds a member called `name`;
/// - `5 * heartbeat_interval <= election_timeout <= 50 s` (FL-22).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The name of this member, shown by `MemberList`. Default `default`.
    pub name: String,
    /// A directory to create and keep, if one was asked for. Nothing is stored in it: the data
    /// live in memory. A difference from etcd, which without the flag makes `default.etcd` in the
    /// working directory; a tool for tests should not litter.
    pub data_dir: Option<PathBuf>,
    /// Where clients connect: gRPC, and HTTP unless `listen_client_http_urls` takes it over.
    /// Default `http://localhost:2379`.
    pub listen_client_urls: Vec<ListenUrl>,
    /// Where HTTP goes when not empty, leaving gRPC alone on the client URLs (HT-13). Default
    /// empty.
    pub listen_client_http_urls: Vec<ListenUrl>,
    /// Bound like etcd's, so that a second server on the same ports fails, though no peer will ever
    /// come (HT-14). Default `http://localhost:2380`.
    pub listen_peer_urls: Vec<ListenUrl>,
    /// Where metrics and health are served besides the client URLs (HT-12). Default empty.
    pub listen_metrics_urls: Vec<ListenUrl>,
    /// The client URLs that `MemberList` reports. Default `http://localhost:2379`.
    pub advertise_client_urls: Vec<EndpointUrl>,
    /// The peer URLs that `MemberList` reports. Default `http://localhost:2380`.
    pub advertise_peer_urls: Vec<EndpointUrl>,
    /// The members whose URLs make up the cluster id (DM-11).
    pub cluster: Cluster,
    /// Certificates and client authentication; absent if every URL is in the clear.
    pub tls: Option<TlsOptions>,
    /// Half the election's rhythm: enters only the shortest lease (LE-1). Default 100 ms.
    pub heartbeat_interval: Duration,
    /// The other half; there are no elections to wait for. Default 1 s.
    pub election_timeout: Duration,
    /// What a request may cost.
    pub limits: Limits,
    /// Pings on idle connections, and how many a client may send.
    pub keepalive: Keepalive,
    /// When history is dropped without being asked. Default off.
    pub auto_compaction: AutoCompaction,
    /// How often a quiet watcher that asked for it hears the current revision (WA-50). Default
    /// 10 minutes, at least 100 ms.
    pub watch_progress_notify_interval: Duration,
    /// Tokens and passwords.
    pub auth: Auth,
    /// What is logged, and where.
    pub log: LogOptions,
    /// Whether `/debug/pprof/` answers (HT-11). Default no.
    pub enable_pprof: bool,
    /// The revision the empty store starts at; the first write gets the next one. Default 1, as in
    /// etcd (DM-1).
    ///
    /// Our own (FL-17). A server in memory that starts again at 1 strands watchers that resume:
    /// their start revision lies in the future, and they wait in silence. Start the next server
    /// at least two above what the last one reached, and they are told *compacted* and list again.
    pub start_revision: i64,
}

/// The cluster as the flags describe it. Only its ids matter: this server runs alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cluster {
    /// The members, sorted by name.
    pub members: Vec<Member>,
    /// Distinguishes clusters with equal URLs. Default `etcd-cluster`.
    pub token: String,
}

/// One member of a [`Cluster`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Its peer URLs, sorted.
    pub peer_urls: Vec<EndpointUrl>,
}

impl Config {
    /// The id of this member (DM-11).
    pub fn member_id(&self) -> u64 {
        let this = self
            .cluster
            .members
            .iter()
            .find(|member| member.name == self.name);
        let peer_urls = this.map_or(&self.advertise_peer_urls, |member| &member.peer_urls);
        identity::member_id(peer_urls, &self.cluster.token)
    }

    /// The id of the cluster (DM-11).
    pub fn cluster_id(&self) -> u64 {
        let token = &self.cluster.token;
        let ids = self
            .cluster
            .members
            .iter()
            .map(|m| identity::member_id(&m.peer_urls, token));
        identity::cluster_id(&ids.collect::<Vec<_>>())
    }

    /// The shortest time to live a lease gets, in whole seconds (LE-1): one and a half elections,
    /// rounded down to heartbeats and then up to seconds. 2 s by default, 1 s at the least.
    pub fn min_lease_ttl(&self) -> Duration {
        let heartbeat_ms = self.heartbeat_interval.as_millis().max(1);
        let ticks = self.election_timeout.as_millis() / heartbeat_ms;
        let ttl_ms = 3 * ticks / 2 * heartbeat_ms;
        Duration::from_secs(u64::try_from(ttl_ms.div_ceil(1_000)).unwrap_or(u64::MAX))
    }

    /// Whether `/health`, `/version` and the gateway have ports of their own (HT-13).
    pub fn has_separate_http(&self) -> bool {
        !self.listen_client_http_urls.is_empty()
    }

    /// The hosts a self-signed certificate must name (TL-1): those of the client URLs.
    pub fn client_hosts(&self) -> Vec<String> {
        let urls = self
            .listen_client_urls
            .iter()
            .chain(&self.listen_client_http_urls);
        let hosts = urls.filter(|url| matches!(url.address(), ListenAddress::Tcp(_)));
        let hosts = hosts.filter_map(|url| url.url().host_and_port().ok());
        let mut hosts: Vec<String> = hosts.map(|(host, _)| host.to_owned()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}

/// Bounds on what clients may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of data beyond which writes are refused and NOSPACE is raised; `None` for no limit.
    /// Default 2 GiB.
    pub quota_backend_bytes: Option<u64>,
    /// Operations in each list of a transaction (TXN-1). Default 128.
    pub max_txn_ops: usize,
    /// Bytes of one write as it is proposed (LI-1). Default 1.5 MiB. A gRPC message may be 512 KiB
    /// longer (LI-2): [`Limits::max_message_bytes`].
    pub max_request_bytes: usize,
    /// Streams that one connection may have open at a time; more wait (LI-4). Default `None`,
    /// without limit.
    pub max_concurrent_streams: Option<u32>,
}

impl Limits {
    /// The longest gRPC message that reaches a handler (LI-2): a proposal and 512 KiB around it.
    pub fn max_message_bytes(&self) -> usize {
        self.max_request_bytes.saturating_add(512 * 1_024)
    }
}

/// Settings of authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Auth {
    /// The kind of token. Default simple.
    pub token: AuthToken,
    /// How long a simple token lives without being used. Default 300 s.
    pub token_ttl: Duration,
    /// The cost of hashing a password, 4 to 31; each step doubles it. Default 10.
    pub bcrypt_cost: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            data_dir: None,
            listen_client_urls: vec![ListenUrl::localhost(CLIENT_PORT)],
            listen_client_http_urls: Vec::new(),
            listen_peer_urls: vec![ListenUrl::localhost(PEER_PORT)],
            listen_metrics_urls: Vec::new(),
            advertise_client_urls: vec![EndpointUrl::localhost(CLIENT_PORT)],
            advertise_peer_urls: vec![EndpointUrl::localhost(PEER_PORT)],
            cluster: Cluster {
                members: vec![Member {
                    name: DEFAULT_NAME.to_owned(),
                    peer_urls: vec![EndpointUrl::localhost(PEER_PORT)],
                }],
                token: DEFAULT_CLUSTER_TOKEN.to_owned(),
            },
            tls: None,
            heartbeat_interval: Duration::from_millis(DEFAULT_HEARTBEAT_MS),
            election_timeout: Duration::from_millis(DEFAULT_ELECTION_MS),
            limits: Limits::default(),
            keepalive: Keepalive::default(),
            auto_compaction: AutoCompaction::Off,
            watch_progress_notify_interval: DEFAULT_PROGRESS_INTERVAL,
            auth: Auth::default(),
            log: LogOptions::default(),
            enable_pprof: false,
            start_revision: 1,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            quota_backend_bytes: Some(DEFAULT_QUOTA_BYTES),
            max_txn_ops: 128,
            max_request_bytes: 1_572_864,
            max_concurrent_streams: None,
        }
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            token: AuthToken::Simple,
            token_ttl: DEFAULT_TOKEN_TTL,
            bcrypt_cost: DEFAULT_BCRYPT_COST,
        }
    }
}

pub(crate) const DEFAULT_NAME: &str = "default";
pub(crate) const DEFAULT_CLUSTER_TOKEN: &str = "etcd-cluster";
pub(crate) const CLIENT_PORT: u16 = 2379;
pub(crate) const PEER_PORT: u16 = 2380;
pub(crate) const DEFAULT_HEARTBEAT_MS: u64 = 100;
pub(crate) const DEFAULT_ELECTION_MS: u64 = 1_000;
/// What `--quota-backend-bytes=0` stands for.
pub(crate) const DEFAULT_QUOTA_BYTES: u64 = 2 << 30;
/// What `--auth-token-ttl=0` stands for.
pub(crate) const DEFAULT_TOKEN_TTL: Duration = Duration::from_secs(300);
/// What a cost out of range is replaced by.
pub(crate) const DEFAULT_BCRYPT_COST: u32 = 10;
/// What an interval of 0 stands for (WA-50).
pub(crate) const DEFAULT_PROGRESS_INTERVAL: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(Limits::default().max_message_bytes(), 2_097_152);
    }
}
