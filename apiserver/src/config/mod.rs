//! The configuration of the server.

mod command_line;
mod flags;
mod kube_apiserver;
mod service_accounts;
mod storage;
mod watch_cache;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use revstore::ControlConfig;
use revstore_engine::LEASE_TTL_MAX_SECONDS;
use revstore_host::config::{self, ConfigError, Values};
use revstore_host::net::ListenUrl;

use crate::admission::{PluginNames, TolerationSeconds};
use crate::allocation::{AddressRange, ServiceRanges};
use crate::auth::{AuthorizationMode, ServiceAccountOptions};
use crate::catalog::RuntimeConfig;
use crate::components::Components;
use crate::controllers::Controllers;
use crate::webhook::WebhookRoute;

pub use command_line::CommandLine;
pub use storage::EtcdServers;

/// The task that a command line and its environment give to the process.
pub type Invocation = config::Invocation<Config>;

/// Parses the arguments of a process, without the program's name, and its environment.
///
/// # Errors
/// The first error; [`ConfigError::exit_code`] is the exit status for it.
///
/// ```
/// use revstore_apiserver::{Invocation, parse};
/// let arguments = ["--secure-port=0", "--listen-http=127.0.0.1:0"].map(Into::into);
/// let Invocation::Serve { config, .. } = parse(arguments, [])? else { unreachable!() };
/// assert!(config.https.is_none());
/// # Ok::<(), revstore_host::config::ConfigError>(())
/// ```
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, ConfigError> {
    flags::FLAGS.parse(arguments, environment)
}

/// Parses the arguments of a process that was started under the name `kube-apiserver`, as by envtest: flags that are not
/// known, such as those of other versions, cause a warning.
///
/// # Errors
/// As [`parse`].
///
/// ```
/// use revstore_apiserver::{Invocation, parse_in_place};
/// let arguments = ["--secure-port=0", "--insecure-port=0"].map(Into::into);
/// let Invocation::Serve { warnings, .. } = parse_in_place(arguments, [])? else { unreachable!() };
/// assert_eq!(warnings, ["--insecure-port has no effect: it is not known"]);
/// # Ok::<(), revstore_host::config::ConfigError>(())
/// ```
pub fn parse_in_place(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, ConfigError> {
    flags::FLAGS_IN_PLACE.parse(arguments, environment)
}

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The address for plain HTTP, which must be one of the loopback interface.
    pub http: Option<SocketAddr>,
    /// The address for HTTPS.
    pub https: Option<SocketAddr>,
    /// The directory of the certificate and its key, if no files are given.
    pub cert_dir: Option<PathBuf>,
    /// The files of the certificate and of its key.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// The authorities of client certificates.
    pub client_ca_file: Option<PathBuf>,
    /// Whether requests without credentials are those of an anonymous user.
    pub anonymous_auth: bool,
    /// The file of bearer tokens.
    pub token_auth_file: Option<PathBuf>,
    /// The keys, issuers and audiences of the tokens of service accounts.
    pub service_accounts: ServiceAccountOptions,
    /// Which authorizers say that a request is allowed, in the order in which they are asked.
    pub authorization_modes: Vec<AuthorizationMode>,
    /// Which built-in versions and resources are served.
    pub runtime_config: RuntimeConfig,
    /// Which admission plugins are on.
    pub admission_plugins: PluginNames,
    /// For how long pods stay on nodes with a problem.
    pub toleration_seconds: TolerationSeconds,
    /// The file to write the kubeconfig to.
    pub kubeconfig_out: Option<PathBuf>,
    /// The etcd cluster with the objects; `None` for a store in this process.
    pub etcd: Option<EtcdServers>,
    /// Whether [`run_in_place`](crate::run_in_place) lets the etcd run the server in its process, if that can.
    pub may_be_hosted: bool,
    /// The beginning of all keys.
    pub etcd_prefix: String,
    /// The ranges from which services get addresses and ports of the nodes.
    pub service_ranges: ServiceRanges,
    /// The URLs to serve the embedded store on over etcd's API. They must not use TLS.
    pub etcd_listen_urls: Vec<ListenUrl>,
    /// The interval of compactions of the store; `None` for none.
    pub etcd_compaction_interval: Option<Duration>,
    /// How long events are kept after they were written, by leases of the store; `None` for ever.
    pub event_ttl: Option<Duration>,
    /// The controllers that run.
    pub controllers: Controllers,
    /// A directory with manifests, whose objects exist when the server is ready.
    pub load: Option<PathBuf>,
    /// The shortest time after which a watch ends that has no timeout.
    pub min_request_timeout: Duration,
    /// The time limit of other requests.
    pub request_timeout: Duration,
    /// The time for which requests are still accepted after SIGTERM.
    pub shutdown_delay: Duration,
    /// The maximum number of reads in flight, by weight; 0 for no limit.
    pub max_requests_inflight: u32,
    /// The maximum number of writes in flight; 0 for no limit.
    pub max_mutating_requests_inflight: u32,
    /// The part of requests over HTTP/2, from 0 to 0.02, after which the client is told to connect anew.
    pub goaway_chance: Chance,
    /// The addresses of services that webhooks name.
    pub webhook_routes: Vec<WebhookRoute>,
    /// Where the components are whose health `componentstatuses` tells.
    pub components: Components,
    /// Whether [`run`](crate::run) stops when standard input ends.
    pub exit_with_stdin: bool,
    /// The options of control by tests; `None` for none.
    pub control: Option<ControlConfig>,
}

/// A probability in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u32);

impl Chance {
    /// The highest chance of `--goaway-chance`.
    const GOAWAY_MAX: f64 = 0.02;

    /// Parses a chance from 0 to 0.02. Smaller parts than a millionth are rounded.
    ///
    /// # Errors
    /// The text is no number, or not in this range.
    fn parse_goaway(text: &str) -> Result<Self, String> {
        let chance: f64 = text.parse().map_err(|error| format!("{error}"))?;
        Self::try_from(chance)
    }

    /// Returns the probability.
    pub fn probability(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl TryFrom<f64> for Chance {
    type Error = String;

    /// Returns a chance from 0 to 0.02. Smaller parts than a millionth are rounded.
    fn try_from(chance: f64) -> Result<Self, String> {
        if !(0.0..=Self::GOAWAY_MAX).contains(&chance) {
            return Err("can not be less than 0 or greater than 0.02".to_owned());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the number is at most 20,000"
        )]
        Ok(Self((chance * 1e6).round() as u32))
    }
}

impl Default for Config {
    /// Returns the configuration without flags: HTTPS on port 6443 of the loopback interface.
    fn default() -> Self {
        Self::from_values(&mut Values::default()).expect("the defaults of the flags are valid")
    }
}

impl Config {
    fn from_values(values: &mut Values) -> Result<Self, ConfigError> {
        watch_cache::check(values)?;
        let fail = |message: String| Err(ConfigError::new(message));
        let http = http_address(values)?;
        let bind: IpAddr = match values.get(&flags::BIND_ADDRESS).parse() {
            Ok(address) => address,
            Err(error) => return fail(format!("--bind-address: {error}")),
        };
        let port = values.get(&flags::SECURE_PORT);
        let Ok(port) = u16::try_from(port) else {
            return fail(format!("--secure-port={port}: the highest port is 65535"));
        };
        // Port 0 means no HTTPS, as in kube-apiserver, unless it is the only way to reach the server.
        let https = (port != 0 || http.is_none()).then(|| SocketAddr::new(bind, port));
        let tls_files = match (
            values.get(&flags::TLS_CERT_FILE),
            values.get(&flags::TLS_PRIVATE_KEY_FILE),
        ) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                return fail(
                    "--tls-cert-file and --tls-private-key-file must be given together".to_owned(),
                );
            }
        };
        let service_ranges = service_ranges(values)?;
        let seconds = not_negative(
            "min-request-timeout",
            values.get(&flags::MIN_REQUEST_TIMEOUT),
        )?;
        for (name, time) in [
            ("request-timeout", values.get(&flags::REQUEST_TIMEOUT)),
            (
                "shutdown-delay-duration",
                values.get(&flags::SHUTDOWN_DELAY_DURATION),
            ),
        ] {
            not_negative(name, time.0)?;
        }
        let reads = inflight(
            "max-requests-inflight",
            values.get(&flags::MAX_REQUESTS_INFLIGHT),
        )?;
        let writes = inflight(
            "max-mutating-requests-inflight",
            values.get(&flags::MAX_MUTATING_REQUESTS_INFLIGHT),
        )?;
        let control = ControlConfig::of_flags(values)?;
        let etcd = storage::etcd(values)?;
        let etcd_listen_urls = storage::etcd_listen_urls(values, etcd.is_some())?;
        Ok(Self {
            http,
            https,
            tls_files,
            cert_dir: values.get(&flags::CERT_DIR),
            client_ca_file: values.get(&flags::CLIENT_CA_FILE),
            anonymous_auth: values.get(&flags::ANONYMOUS_AUTH),
            token_auth_file: values.get(&flags::TOKEN_AUTH_FILE),
            service_accounts: service_accounts::options(values)?,
            authorization_modes: authorization_modes(values)?,
            runtime_config: runtime_config(values)?,
            admission_plugins: admission_plugins(values)?,
            toleration_seconds: TolerationSeconds {
                not_ready: values.get(&flags::DEFAULT_NOT_READY_TOLERATION_SECONDS),
                unreachable: values.get(&flags::DEFAULT_UNREACHABLE_TOLERATION_SECONDS),
            },
            kubeconfig_out: values.get(&flags::KUBECONFIG_OUT),
            etcd_prefix: format!("/{}", values.get(&flags::ETCD_PREFIX).trim_matches('/')),
            service_ranges,
            etcd_listen_urls,
            etcd,
            may_be_hosted: false,
            etcd_compaction_interval: storage::compaction_interval(values)?,
            event_ttl: event_ttl(values)?,
            load: values.get(&flags::LOAD),
            controllers: controllers(values)?.unwrap_or(Controllers::all()),
            min_request_timeout: Duration::from_secs(seconds.max(1)),
            request_timeout: values
                .get(&flags::REQUEST_TIMEOUT)
                .positive()
                .unwrap_or(Duration::from_secs(60)),
            shutdown_delay: values
                .get(&flags::SHUTDOWN_DELAY_DURATION)
                .positive()
                .unwrap_or_default(),
            max_requests_inflight: reads,
            max_mutating_requests_inflight: writes,
            goaway_chance: goaway_chance(values)?,
            webhook_routes: webhook_routes(values)?,
            components: Components::default(),
            exit_with_stdin: values.get(&flags::EXIT_WITH_STDIN),
            control,
        })
    }

    /// As `from_values`, for a process in the place of kube-apiserver, which has no controllers, and all its plugins.
    fn in_place(values: &mut Values) -> Result<Self, ConfigError> {
        let given = controllers(values)?;
        let mut config = Self::from_values(values)?;
        config.controllers = given.unwrap_or(Controllers::none());
        config.admission_plugins = config.admission_plugins.in_place();
        config.may_be_hosted = config.etcd.is_some()
            && config.control.is_none()
            && values.get(&flags::STORAGE).is_empty();
        // kube-apiserver has no anonymous requests if everything is allowed.
        config.anonymous_auth &=
            !(config.authorization_modes).contains(&AuthorizationMode::AlwaysAllow);
        Ok(config)
    }

    /// Returns the configuration of a server inside a program: plain HTTP and HTTPS on free ports, and no controllers.
    pub(crate) fn embedded() -> Self {
        let free = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        Self {
            http: Some(free),
            https: Some(free),
            controllers: Controllers::none(),
            ..Self::default()
        }
    }
}

/// Returns the address for plain HTTP.
fn http_address(values: &mut Values) -> Result<Option<SocketAddr>, ConfigError> {
    let text = values.get(&flags::LISTEN_HTTP);
    let fail = |message: String| Err(ConfigError::new(message));
    match text.trim_start_matches("http://").parse::<SocketAddr>() {
        _ if text.is_empty() => Ok(None),
        Ok(address) if address.ip().is_loopback() => Ok(Some(address)),
        Ok(address) => fail(format!(
            "--listen-http={address}: only addresses of the loopback interface are allowed, because requests without a \
             token are those of an administrator"
        )),
        Err(error) => fail(format!("--listen-http={text}: {error}")),
    }
}

/// Checks a limit of requests in flight.
fn inflight(name: &str, number: i64) -> Result<u32, ConfigError> {
    let error = |_| ConfigError::new(format!("--{name}={number}: must be from 0 to {}", u32::MAX));
    u32::try_from(number).map_err(error)
}

/// Checks the number of a flag.
fn not_negative(name: &str, number: i64) -> Result<u64, ConfigError> {
    u64::try_from(number)
        .map_err(|_| ConfigError::new(format!("--{name} can not be negative value")))
}

fn controllers(values: &mut Values) -> Result<Option<Controllers>, ConfigError> {
    let text = values.get(&flags::CONTROLLERS);
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = text.parse().map(Some);
    parsed.map_err(|error| ConfigError::new(format!("--controllers={text}: {error}")))
}

fn authorization_modes(values: &mut Values) -> Result<Vec<AuthorizationMode>, ConfigError> {
    let texts = values.get(&flags::AUTHORIZATION_MODE);
    let fail = |message: String| {
        let texts = texts.join(",");
        ConfigError::new(format!("--authorization-mode={texts}: {message}"))
    };
    let mut modes = Vec::new();
    for text in &texts {
        let mode = text.trim().parse().map_err(fail)?;
        if modes.contains(&mode) {
            return Err(fail(format!(
                "the mode {} is given more than once",
                text.trim()
            )));
        }
        modes.push(mode);
    }
    if modes.is_empty() {
        return Err(fail("at least one mode must be given".to_owned()));
    }
    if modes.contains(&AuthorizationMode::Node) {
        values.warn(
            "the mode Node of --authorization-mode allows nothing: this server has no authorizer of nodes",
        );
    }
    Ok(modes)
}

fn runtime_config(values: &mut Values) -> Result<RuntimeConfig, ConfigError> {
    let text = values.get(&flags::RUNTIME_CONFIG);
    let config: RuntimeConfig = text
        .parse()
        .map_err(|error| ConfigError::new(format!("--runtime-config={text}: {error}")))?;
    for warning in config.warnings() {
        values.warn(warning);
    }
    Ok(config)
}

fn admission_plugins(values: &mut Values) -> Result<PluginNames, ConfigError> {
    let enabled = values.get(&flags::ENABLE_ADMISSION_PLUGINS);
    let disabled = values.get(&flags::DISABLE_ADMISSION_PLUGINS);
    let names = PluginNames::new(enabled, disabled).map_err(ConfigError::new)?;
    for name in names.absent() {
        values.warn(format!(
            "--enable-admission-plugins={name} has no effect: this server does not have the plugin"
        ));
    }
    Ok(names)
}

fn goaway_chance(values: &mut Values) -> Result<Chance, ConfigError> {
    let chance = values.get(&flags::GOAWAY_CHANCE);
    let refused = |error| ConfigError::new(format!("--goaway-chance={chance}: {error}"));
    Chance::parse_goaway(&chance).map_err(refused)
}

fn webhook_routes(values: &mut Values) -> Result<Vec<WebhookRoute>, ConfigError> {
    let texts = values.get(&flags::WEBHOOK_RESOLVER);
    let texts = texts.iter().map(|text| text.trim());
    let routes = texts.filter(|text| !text.is_empty()).map(|text| {
        let invalid = |error| ConfigError::new(format!("--webhook-resolver: {error}"));
        text.parse().map_err(invalid)
    });
    routes.collect()
}

/// The longest time for which events are kept: that of a lease.
const EVENT_TTL_MAX: Duration = Duration::from_secs(LEASE_TTL_MAX_SECONDS.unsigned_abs());

fn event_ttl(values: &mut Values) -> Result<Option<Duration>, ConfigError> {
    let ttl = values.get(&flags::EVENT_TTL);
    if ttl.0 < 0 {
        return Err(ConfigError::new("--event-ttl must not be negative"));
    }
    Ok(ttl.positive().map(|ttl| ttl.min(EVENT_TTL_MAX)))
}

/// The shortest prefixes of the ranges of cluster IPs in IPv4 and in IPv6, as in kube-apiserver.
const PREFIX_LENGTHS_MIN: (u8, u8) = (12, 64);
/// How many bits of the addresses of a range must differ at least.
const HOST_BITS_MIN: u8 = 3;

fn service_ranges(values: &mut Values) -> Result<ServiceRanges, ConfigError> {
    let text = values.get(&flags::SERVICE_CLUSTER_IP_RANGE);
    let fail = |message: &str| {
        let name = "--service-cluster-ip-range";
        Err(ConfigError::new(format!("{name}={text}: {message}")))
    };
    let mut addresses: Vec<AddressRange> = Vec::new();
    for part in text.split(',') {
        let range: AddressRange = match part.trim().parse() {
            Ok(range) => range,
            Err(error) => return fail(&format!("{error}")),
        };
        let (bits, length_min) = match range.family() {
            "IPv4" => (32, PREFIX_LENGTHS_MIN.0),
            _ => (128, PREFIX_LENGTHS_MIN.1),
        };
        if range.prefix_length() < length_min {
            return fail(&format!("the shortest prefix is /{length_min}"));
        }
        if bits - range.prefix_length() < HOST_BITS_MIN {
            return fail("the range must have at least 8 addresses");
        }
        if addresses
            .iter()
            .any(|known| known.family() == range.family())
        {
            return fail("there must not be more than one range of a family");
        }
        addresses.push(range);
    }
    let text = values.get(&flags::SERVICE_NODE_PORT_RANGE);
    let ports = match text.parse() {
        Ok(ports) => ports,
        Err(error) => {
            let name = "--service-node-port-range";
            return Err(ConfigError::new(format!("{name}: {error}")));
        }
    };
    Ok(ServiceRanges { addresses, ports })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_run_unless_the_process_stands_in_for_another() {
        let chosen = |parse: fn(Vec<OsString>, Vec<(OsString, OsString)>) -> _, flag: &str| {
            let flags = Some(flag).filter(|flag| !flag.is_empty());
            let flags = flags.map(|list| format!("--controllers={list}").into());
            match parse(flags.into_iter().collect(), Vec::new()) {
                Ok(Invocation::Serve { config, .. }) => Some(config.controllers),
                _ => None,
            }
        };
        let (all, none) = (Some(Controllers::all()), Some(Controllers::none()));
        assert_eq!((chosen(parse, ""), chosen(parse_in_place, "")), (all, none));
        assert_eq!(
            (chosen(parse, "none"), chosen(parse_in_place, "*")),
            (none, all)
        );
        assert_eq!(chosen(parse, "deployment-controller"), None);
    }

    fn parsed(flag: &str) -> Result<(Config, Vec<String>), String> {
        match parse([flag.into()], []) {
            Ok(Invocation::Serve { config, warnings }) => Ok((*config, warnings)),
            Ok(_) => panic!("it does not serve"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn modes_of_authorization_are_a_list() {
        use AuthorizationMode::{AlwaysAllow, AlwaysDeny, Node, Rbac};
        for (flag, modes, warnings) in [
            ("RBAC", vec![Rbac], 0),
            ("AlwaysAllow,RBAC", vec![AlwaysAllow, Rbac], 0),
            ("AlwaysDeny", vec![AlwaysDeny], 0),
            ("RBAC,Node", vec![Rbac, Node], 1),
        ] {
            let (config, given) = parsed(&format!("--authorization-mode={flag}")).unwrap();
            assert_eq!(
                (config.authorization_modes, given.len()),
                (modes, warnings),
                "{flag}"
            );
        }
        for flag in ["", "Nope", "RBAC,Nope", "rbac", "RBAC,RBAC", "Webhook"] {
            assert!(
                parsed(&format!("--authorization-mode={flag}")).is_err(),
                "{flag}"
            );
        }
    }

    #[test]
    fn versions_that_are_not_there_cause_warnings() {
        let (config, warnings) = parsed("--runtime-config=api/beta=true,api/alpha=true").unwrap();
        assert_ne!(config.runtime_config, RuntimeConfig::default());
        assert_eq!(warnings, config.runtime_config.warnings());
        assert_eq!(warnings.len(), 1);
        assert!(parsed("--runtime-config=nope/v1=true").is_err());
    }

    #[test]
    fn negative_times_are_refused() {
        for (name, value) in [
            ("request-timeout", "-5s"),
            ("min-request-timeout", "-5"),
            ("shutdown-delay-duration", "-1ns"),
        ] {
            let error = parsed(&format!("--{name}={value}")).unwrap_err();
            assert_eq!(error, format!("--{name} can not be negative value"));
        }
    }

    #[test]
    fn routes_of_webhooks_are_checked() {
        let flag = "--webhook-resolver=a/b=127.0.0.1:1,a/c:443=[::1]:2";
        let parsed = parse([flag.into()], []).unwrap();
        let Invocation::Serve { config, .. } = parsed else {
            panic!("it does not serve");
        };
        let routes: Vec<_> = config
            .webhook_routes
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(routes, ["a/b=127.0.0.1:1", "a/c:443=[::1]:2"]);
        assert!(parse(["--webhook-resolver=a=127.0.0.1:1".into()], []).is_err());
    }

    #[test]
    fn ranges_of_services_are_checked() {
        let parses = |flag: &str| parse([flag.into()], []).is_ok();
        for range in ["10.0.0.0/24", "10.0.0.0/29,fd00::/112", "fd00::/64"] {
            assert!(
                parses(&format!("--service-cluster-ip-range={range}")),
                "{range}"
            );
        }
        for range in [
            "",
            "x",
            "10.0.0.0/11",
            "10.0.0.0/30",
            "fd00::/63",
            "10.0.0.0/24,10.1.0.0/24",
        ] {
            assert!(
                !parses(&format!("--service-cluster-ip-range={range}")),
                "{range}"
            );
        }
        assert!(parses("--service-node-port-range=1-65535"));
        assert!(!parses("--service-node-port-range=2-1"));
    }
}
