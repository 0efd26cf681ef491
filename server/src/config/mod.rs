//! The configuration of the server.
//!
//! `flags` declares etcd's flags, and `checks` makes a [`Config`] of their values, with the help of `tls` and
//! of the files for single values: `allow_list`, `auth_token`, `auto_compaction`,
//! `feature_gates` and `log_rotation`. A new
//! flag is a declaration in `flags`, a field of [`Config`] or of one of its parts, and a line in `checks`.

mod allow_list;
mod auth_token;
mod auto_compaction;
mod checks;
mod control;
mod feature_gates;
mod flags;
mod log_rotation;
mod tls;

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, time::Duration};

use revstore_engine::AutoCompaction;
use revstore_grpc::Limits;
use revstore_host::{
    config::{self, ConfigError, Values},
    logging::LogOptions,
    net::{EndpointUrl, Keepalive, ListenUrl, TlsOptions},
};
use revstore_persist::Options as PersistOptions;

use crate::identity;

pub use allow_list::AllowList;
pub use auth_token::{AuthToken, JwtOptions};
pub use control::ControlConfig;

/// The task that a command line and its environment give to the process.
pub type Invocation = config::Invocation<Config>;

/// Parses the arguments of a process, without the program's name, and its environment.
///
/// A flag takes precedence over its variable. A configuration file, named by a flag or a variable,
/// replaces both, but the flags must still be valid. Reads that file; has no other effect, so that
/// a configuration can be tested without starting it.
///
/// # Errors
/// The first error; [`ConfigError::exit_code`] is the exit status for it.
///
/// # Example
/// ```
/// use revstore::{Invocation, parse};
///
/// let arguments = ["--name=a", "--auto-compaction-retention", "5m"].map(Into::into);
/// let Invocation::Serve { config, .. } = parse(arguments, [])? else { unreachable!() };
/// assert_eq!(config.name, "a");
/// # Ok::<(), revstore::ConfigError>(())
/// ```
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, ConfigError> {
    flags::FLAGS.parse(arguments, environment)
}

/// The configuration of a server.
///
/// Made by [`parse`] from flags, environment variables or a configuration file, or in code:
/// [`Config::default`] is the configuration without any of them, and its fields can be changed. The
/// declaration of a flag states its default.
///
/// `parse` guarantees, and code that changes a configuration must preserve:
/// - `listen_client_urls`, `listen_peer_urls` and `advertise_peer_urls` are not empty;
/// - `tls` is present if and only if a client or metrics URL uses TLS;
/// - `peer_tls` is present if a peer URL uses TLS;
/// - `cluster.members` contains `name`;
/// - `5 * heartbeat_interval <= election_timeout <= 50 s`.
///
/// ```
/// use revstore::Config;
///
/// let mut config = Config::default();
/// config.limits.txn_ops_max = 1_000;
/// assert_eq!(config.name, "default");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is the value of a flag, independent of the others"
)]
pub struct Config {
    /// The name of this member, as `MemberList` reports it.
    pub name: String,
    /// A directory to create. Without `persist` nothing is stored in it. Without the flag etcd creates
    /// `default.etcd` in the working directory, and this server nothing.
    pub data_dir: Option<PathBuf>,
    /// The options of the journal in `data_dir`, which must be set then; `None` to keep all data in memory
    /// only.
    pub persist: Option<PersistOptions>,
    /// The URLs for clients: gRPC, and HTTP unless `listen_client_http_urls` has URLs.
    pub listen_client_urls: Vec<ListenUrl>,
    /// The URLs for HTTP. If there are any, `listen_client_urls` serve gRPC only.
    pub listen_client_http_urls: Vec<ListenUrl>,
    /// URLs that are bound as etcd does, so that a second server with the same ports does not start.
    pub listen_peer_urls: Vec<ListenUrl>,
    /// More URLs for metrics and health.
    pub listen_metrics_urls: Vec<ListenUrl>,
    /// The client URLs that `MemberList` reports.
    pub advertise_client_urls: Vec<EndpointUrl>,
    /// The peer URLs that `MemberList` reports.
    pub advertise_peer_urls: Vec<EndpointUrl>,
    /// The members from which the cluster id is derived.
    pub cluster: Cluster,
    /// The options of TLS; `None` if no client or metrics URL uses TLS.
    pub tls: Option<TlsOptions>,
    /// The options of TLS on peer URLs; `None` if there is no certificate for them.
    pub peer_tls: Option<TlsOptions>,
    /// The host names, without ports, that HTTP requests without TLS may be for. gRPC calls are not checked.
    pub host_whitelist: AllowList,
    /// The origins whose scripts may read the responses of client URLs.
    pub cors: AllowList,
    /// Whether JSON requests are served under `/v3/`.
    pub enable_grpc_gateway: bool,
    /// Whether other processes may listen on the same ports.
    pub reuse_port: bool,
    /// The heartbeat interval, which affects only [`Config::min_lease_ttl`].
    pub heartbeat_interval: Duration,
    /// The election timeout, which affects only [`Config::min_lease_ttl`].
    pub election_timeout: Duration,
    /// The limits of requests and of the data.
    pub limits: Limits,
    /// The number of streams that a connection may have open at a time; `None` for no limit.
    pub max_concurrent_streams: Option<u32>,
    /// The intervals of pings.
    pub keepalive: Keepalive,
    /// The policy of automatic compaction; `None` for no automatic compaction.
    pub auto_compaction: Option<AutoCompaction>,
    /// The interval of progress notifications to watchers without events that requested them; at
    /// least 100 ms.
    pub watch_progress_notify_interval: Duration,
    /// The time for which a watch stream waits before it sends history, after a watch from a past revision is
    /// created. etcd sends history every 100 ms.
    pub watch_catch_up_delay: Duration,
    /// The time of an execution of a request above which it is logged.
    pub warning_apply_duration: Duration,
    /// The time of a unary call above which it is logged.
    pub warning_unary_request_duration: Duration,
    /// The options of authentication.
    pub auth: AuthConfig,
    /// The options of the log. Above level info, the line that reports the server ready is missing.
    pub log: LogOptions,
    /// Whether `/metrics` also has the times of calls and of executions, and the versions of clients.
    pub extensive_metrics: bool,
    /// Whether profiles are served under `/debug/pprof/`.
    pub enable_pprof: bool,
    /// The revision of the empty store; the first write gets the next one. etcd starts at 1.
    ///
    /// Watchers that resume after a restart wait if their start revision is in the future. If the
    /// next server starts at least two above the last revision of the previous one, they receive a
    /// *compacted* error instead, and list again.
    pub start_revision: i64,
    /// A file of `etcdctl snapshot save`, with whose contents the store begins, as
    /// [`Image::import`](revstore_grpc::Image::import) reads them. [`start_revision`](Self::start_revision) then has no
    /// effect, and there is no [`persist`](Self::persist).
    pub import: Option<PathBuf>,
    /// The options of control by tests; `None` for none.
    pub control: Option<ControlConfig>,
    /// Whether [`run`](crate::run) stops when standard input ends, and prints a line when it is ready.
    pub exit_with_stdin: bool,
}

/// The cluster that the flags describe. It determines the cluster id; this server runs alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cluster {
    /// The peer URLs of each member, sorted, by its name.
    pub members: BTreeMap<String, Vec<EndpointUrl>>,
    /// A text that makes the ids of clusters with equal URLs different.
    pub token: String,
}

/// Options of authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthConfig {
    /// The kind of token.
    pub token: AuthToken,
    /// The time after which an unused simple token expires.
    pub token_ttl: Duration,
    /// The cost of hashing a password, from 4 to 31; each step doubles it.
    pub bcrypt_cost: u32,
}

impl Default for Config {
    /// The configuration without any flags.
    fn default() -> Self {
        Self::from_values(&mut Values::default()).expect("the defaults are valid")
    }
}

impl Config {
    /// The id of this member.
    pub fn member_id(&self) -> u64 {
        let own_urls = self.cluster.members.get(&self.name);
        let own_urls = own_urls.unwrap_or(&self.advertise_peer_urls);
        identity::member_id(own_urls, &self.cluster.token)
    }

    /// The id of the cluster.
    pub fn cluster_id(&self) -> u64 {
        let members = self.cluster.members.values();
        let ids = members.map(|peer_urls| identity::member_id(peer_urls, &self.cluster.token));
        identity::cluster_id(&ids.collect::<Vec<_>>())
    }

    /// The shortest time to live of a lease, in whole seconds: one and a half election timeouts,
    /// rounded down to heartbeats and then up to seconds. 2 s by default, at least 1 s.
    pub fn min_lease_ttl(&self) -> Duration {
        let heartbeat_ms = self.heartbeat_interval.as_millis().max(1);
        let ticks = self.election_timeout.as_millis() / heartbeat_ms;
        let ttl_ms = 3 * ticks / 2 * heartbeat_ms;
        Duration::from_secs(u64::try_from(ttl_ms.div_ceil(1_000)).unwrap_or(u64::MAX))
    }

    /// Whether HTTP has URLs of its own.
    pub fn has_separate_http(&self) -> bool {
        !self.listen_client_http_urls.is_empty()
    }

    /// The hosts of the client URLs, which a self-signed certificate must contain.
    pub fn client_hosts(&self) -> Vec<String> {
        let (grpc, http) = (&self.listen_client_urls, &self.listen_client_http_urls);
        hosts(grpc.iter().chain(http))
    }

    /// The hosts of the peer URLs, which a self-signed certificate must contain.
    pub fn peer_hosts(&self) -> Vec<String> {
        hosts(&self.listen_peer_urls)
    }
}

fn hosts<'a>(urls: impl IntoIterator<Item = &'a ListenUrl>) -> Vec<String> {
    let urls = urls.into_iter().map(ListenUrl::url);
    let urls = urls.filter(|url| !url.is_unix());
    let hosts = urls.filter_map(|url| Some(url.host_and_port().ok()?.0.to_owned()));
    let mut hosts: Vec<String> = hosts.collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}
