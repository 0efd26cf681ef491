//! The table of flags: every name the command line, the environment and the configuration file
//! know, the type of its value, and what it sets.
//!
//! The table is the union of etcd 3.5 to 3.7. A flag this server has no use for is in it with a
//! setter that does nothing, so that its values are still checked: what etcd would refuse as a
//! typing error is refused here too (FL-7, FL-21).

use revstore_host::config::{EndpointUrl, GoDuration};

use crate::{draft::Draft, error::ValueError, go_value};

/// One flag.
#[derive(Debug)]
pub(crate) struct Flag {
    /// Its name, without dashes.
    pub(crate) name: &'static str,
    /// Whether it also goes by `experimental-` and its name: etcd 3.5 has only that form, 3.6 both,
    /// 3.7 only the short one.
    pub(crate) experimental: bool,
    /// The default as the help shows it.
    pub(crate) default: &'static str,
    /// One sentence for the help; empty for flags that are ignored.
    pub(crate) help: &'static str,
    setter: Setter,
}

/// The type of a flag's value, with what the value does to the draft.
#[derive(Debug)]
enum Setter {
    Bool(fn(&mut Draft, bool)),
    Int(fn(&mut Draft, i64)),
    Uint(fn(&mut Draft, u64)),
    Uint32(fn(&mut Draft, u32)),
    Duration(fn(&mut Draft, GoDuration)),
    Text(fn(&mut Draft, &str)),
    Word(&'static [&'static str]),
    Urls(fn(&mut Draft, Vec<EndpointUrl>)),
}

/// Flags that stand together in the help.
#[derive(Debug)]
pub(crate) struct Section {
    /// The heading.
    pub(crate) title: &'static str,
    /// The flags, in the order of the help.
    pub(crate) flags: &'static [Flag],
}

impl Flag {
    const fn new(
        name: &'static str,
        default: &'static str,
        setter: Setter,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            experimental: false,
            default,
            help,
            setter,
        }
    }

    const fn ignored(name: &'static str, setter: Setter) -> Self {
        Self {
            name,
            experimental: false,
            default: "",
            help: "",
            setter,
        }
    }

    const fn experimental(mut self) -> Self {
        self.experimental = true;
        self
    }

    /// The names of the flag, the current one last: where both are set, it counts.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let former = self
            .experimental
            .then(|| format!("{EXPERIMENTAL}{}", self.name));
        former.into_iter().chain([self.name.to_owned()])
    }

    /// Whether the flag may stand without a value.
    pub(crate) fn is_bool(&self) -> bool {
        matches!(self.setter, Setter::Bool(_))
    }

    /// Reads a value from the command line or the environment into the draft.
    pub(crate) fn set(&'static self, draft: &mut Draft, text: &str) -> Result<(), ValueError> {
        match self.setter {
            Setter::Bool(set) => set(draft, go_value::boolean(text)?),
            Setter::Int(set) => set(draft, go_value::int(text)?),
            Setter::Uint(set) => set(draft, go_value::uint(text)?),
            Setter::Uint32(set) => {
                let wide = go_value::uint(text)?;
                set(draft, u32::try_from(wide).map_err(|_| ValueError::Range)?);
            }
            Setter::Duration(set) => {
                set(
                    draft,
                    GoDuration::parse(text).map_err(|_| ValueError::Syntax)?,
                );
            }
            Setter::Text(set) => set(draft, text),
            Setter::Word(allowed) if allowed.contains(&text) => {}
            Setter::Word(allowed) => return Err(ValueError::Word { allowed }),
            // No URLs at all leave the default in place, as in etcd.
            Setter::Urls(_) if text.is_empty() => {}
            Setter::Urls(set) => set(draft, EndpointUrl::parse_list(text)?),
        }
        draft.mark_given(self.name);
        Ok(())
    }

    /// Reads a value from the configuration file into the draft. There etcd takes durations only
    /// as nanoseconds; we take both.
    pub(crate) fn set_from_file(
        &'static self,
        draft: &mut Draft,
        text: &str,
    ) -> Result<(), ValueError> {
        match (&self.setter, text.parse()) {
            (Setter::Duration(set), Ok(nanoseconds)) => {
                set(draft, GoDuration(nanoseconds));
                draft.mark_given(self.name);
                Ok(())
            }
            _ => self.set(draft, text),
        }
    }
}

const EXPERIMENTAL: &str = "experimental-";

/// All flags.
pub(crate) fn all() -> impl Iterator<Item = &'static Flag> {
    SECTIONS.iter().flat_map(|section| section.flags)
}

/// The flag that goes by a name.
pub(crate) fn find(name: &str) -> Option<&'static Flag> {
    let former = name.strip_prefix(EXPERIMENTAL);
    all().find(|flag| flag.name == name || (flag.experimental && former == Some(flag.name)))
}

/// Whether a flag means nothing inside a configuration file.
pub(crate) fn is_for_command_line_only(flag: &Flag) -> bool {
    matches!(flag.name, CONFIG_FILE | VERSION)
}

const NO_BOOL: Setter = Setter::Bool(|_, _| {});
const NO_INT: Setter = Setter::Int(|_, _| {});
const NO_UINT: Setter = Setter::Uint(|_, _| {});
const NO_DURATION: Setter = Setter::Duration(|_, _| {});
const NO_TEXT: Setter = Setter::Text(|_, _| {});

/// The table.
pub(crate) static SECTIONS: &[Section] = &[
    Section {
        title: "General",
        flags: &[
            Flag::new(
                CONFIG_FILE,
                "",
                Setter::Text(|draft, path| path.clone_into(&mut draft.config_file)),
                "A YAML file with flag names as keys. It replaces all other flags and variables.",
            ),
            Flag::new(
                VERSION,
                "false",
                Setter::Bool(|draft, on| draft.print_version = on),
                "Print the versions and exit.",
            ),
        ],
    },
    Section {
        title: "Member",
        flags: &[
            Flag::new(
                "name",
                "default",
                Setter::Text(|draft, name| name.clone_into(&mut draft.name)),
                "The name of this member.",
            ),
            Flag::new(
                "data-dir",
                "",
                Setter::Text(|draft, path| path.clone_into(&mut draft.data_dir)),
                "A directory to create. Nothing is stored in it: all data live in memory.",
            ),
            Flag::new(
                LISTEN_CLIENT_URLS,
                "http://localhost:2379",
                Setter::Urls(|draft, urls| draft.listen_client_urls = urls),
                "Where to listen for clients, comma-separated: gRPC, and HTTP unless \
                 --listen-client-http-urls is given.",
            ),
            Flag::new(
                "listen-client-http-urls",
                "",
                Setter::Urls(|draft, urls| draft.listen_client_http_urls = urls),
                "Where to listen for HTTP alone. Takes HTTP away from --listen-client-urls.",
            ),
            Flag::new(
                "listen-peer-urls",
                "http://localhost:2380",
                Setter::Urls(|draft, urls| draft.listen_peer_urls = urls),
                "Addresses to occupy as etcd would. This server has no peers.",
            ),
            Flag::new(
                ADVERTISE_CLIENT_URLS,
                "http://localhost:2379",
                Setter::Urls(|draft, urls| draft.advertise_client_urls = urls),
                "The client URLs to report to clients.",
            ),
            Flag::new(
                "heartbeat-interval",
                "100",
                Setter::Uint(|draft, ms| draft.heartbeat_ms = ms),
                "Milliseconds of a heartbeat. Enters the shortest lease only.",
            ),
            Flag::new(
                "election-timeout",
                "1000",
                Setter::Uint(|draft, ms| draft.election_ms = ms),
                "Milliseconds of an election. Enters the shortest lease only: there is no election \
                 to wait for.",
            ),
        ],
    },
    Section {
        title: "Limits",
        flags: &[
            Flag::new(
                "quota-backend-bytes",
                "0",
                Setter::Int(|draft, bytes| draft.quota_backend_bytes = bytes),
                "Bytes of data beyond which writes are refused. 0 stands for 2 GiB, below 0 for no \
                 limit.",
            ),
            Flag::new(
                "max-txn-ops",
                "128",
                Setter::Uint(|draft, count| draft.max_txn_ops = count),
                "Operations permitted in a transaction.",
            ),
            Flag::new(
                "max-request-bytes",
                "1572864",
                Setter::Uint(|draft, bytes| draft.max_request_bytes = bytes),
                "Bytes permitted in a write.",
            ),
            Flag::new(
                "max-concurrent-streams",
                "4294967295",
                Setter::Uint32(|draft, count| draft.max_concurrent_streams = count),
                "Streams that a connection may have open at a time.",
            ),
            Flag::new(
                "grpc-keepalive-min-time",
                "5s",
                Setter::Duration(|draft, time| draft.keepalive_min_time = time),
                "Clients that ping more often are disconnected.",
            ),
            Flag::new(
                "grpc-keepalive-interval",
                "2h",
                Setter::Duration(|draft, time| draft.keepalive_interval = time),
                "After how long without activity to ping a client.",
            ),
            Flag::new(
                "grpc-keepalive-timeout",
                "20s",
                Setter::Duration(|draft, time| draft.keepalive_timeout = time),
                "How long to wait for the answer to a ping.",
            ),
        ],
    },
    Section {
        title: "History and watches",
        flags: &[
            Flag::new(
                "auto-compaction-mode",
                "periodic",
                Setter::Text(|draft, mode| mode.clone_into(&mut draft.compaction_mode)),
                "What --auto-compaction-retention counts: 'periodic' for time, 'revision' for \
                 revisions, and 'size' (revstore only) for bytes of history.",
            ),
            Flag::new(
                "auto-compaction-retention",
                "0",
                Setter::Text(|draft, text| text.clone_into(&mut draft.compaction_retention)),
                "How much history to keep: hours or a duration such as '5m', revisions such as \
                 '1000', or a size such as '512MiB'. 0 keeps everything.",
            ),
            Flag::new(
                "watch-progress-notify-interval",
                "10m",
                Setter::Duration(|draft, time| draft.progress_interval = time),
                "How often quiet watchers hear the current revision, if they asked for it.",
            )
            .experimental(),
        ],
    },
    Section {
        title: "Identity",
        flags: &[
            Flag::new(
                "initial-advertise-peer-urls",
                "http://localhost:2380",
                Setter::Urls(|draft, urls| draft.advertise_peer_urls = urls),
                "The peer URLs to report to clients. Member and cluster ids derive from them.",
            ),
            Flag::new(
                "initial-cluster",
                "default=http://localhost:2380",
                Setter::Text(|draft, text| text.clone_into(&mut draft.initial_cluster)),
                "The members of the cluster, for its id. By default this one alone.",
            ),
            Flag::new(
                "initial-cluster-token",
                "etcd-cluster",
                Setter::Text(|draft, token| token.clone_into(&mut draft.cluster_token)),
                "Distinguishes the ids of clusters with equal URLs.",
            ),
        ],
    },
    Section {
        title: "Security",
        flags: &[
            Flag::new(
                "cert-file",
                "",
                Setter::Text(|draft, path| path.clone_into(&mut draft.cert_file)),
                "The server's certificate, for https and unixs URLs.",
            ),
            Flag::new(
                "key-file",
                "",
                Setter::Text(|draft, path| path.clone_into(&mut draft.key_file)),
                "The key of the server's certificate.",
            ),
            Flag::new(
                "client-cert-auth",
                "false",
                Setter::Bool(|draft, on| draft.client_cert_auth = on),
                "Demand a certificate from clients.",
            ),
            Flag::new(
                "trusted-ca-file",
                "",
                Setter::Text(|draft, path| path.clone_into(&mut draft.trusted_ca_file)),
                "Demand a certificate from clients, signed by one of these authorities.",
            ),
            Flag::new(
                "client-crl-file",
                "",
                Setter::Text(|draft, path| path.clone_into(&mut draft.client_crl_file)),
                "Client certificates that are revoked.",
            ),
            Flag::new(
                "client-cert-allowed-hostname",
                "",
                Setter::Text(|draft, names| names.clone_into(&mut draft.client_allowed_hostnames)),
                "Names of which a client's certificate must hold one, comma-separated.",
            ),
            Flag::new(
                "auto-tls",
                "false",
                Setter::Bool(|draft, on| draft.auto_tls = on),
                "Make a certificate at the start if none is given.",
            ),
            Flag::new(
                "self-signed-cert-validity",
                "1",
                Setter::Uint(|draft, years| draft.self_signed_cert_validity = years),
                "Years for which the certificate of --auto-tls is valid.",
            ),
            Flag::new(
                "cipher-suites",
                "",
                Setter::Text(|draft, names| names.clone_into(&mut draft.cipher_suites)),
                "The TLS 1.2 cipher suites to allow, comma-separated.",
            ),
            Flag::new(
                "tls-min-version",
                "TLS1.2",
                Setter::Text(|draft, text| text.clone_into(&mut draft.tls_min_version)),
                "The lowest TLS version to speak: TLS1.2 or TLS1.3.",
            ),
            Flag::new(
                "tls-max-version",
                "",
                Setter::Text(|draft, text| text.clone_into(&mut draft.tls_max_version)),
                "The highest TLS version to speak: TLS1.2 or TLS1.3.",
            ),
            Flag::new(
                "auth-token",
                "simple",
                Setter::Text(|draft, text| text.clone_into(&mut draft.auth_token)),
                "The kind of authentication token and its options: 'simple' or 'jwt,...'.",
            ),
            Flag::new(
                "auth-token-ttl",
                "300",
                Setter::Uint(|draft, seconds| draft.auth_token_ttl = seconds),
                "Seconds a simple token lives.",
            ),
            Flag::new(
                "bcrypt-cost",
                "10",
                Setter::Uint(|draft, cost| draft.bcrypt_cost = cost),
                "The cost of hashing passwords, from 4 to 31.",
            ),
        ],
    },
    Section {
        title: "Logging and monitoring",
        flags: &[
            Flag::new(
                "log-level",
                "info",
                Setter::Text(|draft, level| level.clone_into(&mut draft.log_level)),
                "debug, info, warn, error, panic or fatal.",
            ),
            Flag::new(
                "log-outputs",
                "default",
                Setter::Text(|draft, text| text.clone_into(&mut draft.log_outputs)),
                "'stderr' (the default), 'stdout' or files, comma-separated.",
            ),
            Flag::new(
                "listen-metrics-urls",
                "",
                Setter::Urls(|draft, urls| draft.listen_metrics_urls = urls),
                "Where to listen for /metrics, /health, /livez and /readyz besides the client URLs.",
            ),
            Flag::new(
                "enable-pprof",
                "false",
                Setter::Bool(|draft, on| draft.enable_pprof = on),
                "Serve profiles under /debug/pprof/.",
            ),
        ],
    },
    Section {
        title: "revstore only (etcd does not have these)",
        flags: &[
            Flag::new(
                "start-revision",
                "1",
                Setter::Int(|draft, revision| draft.start_revision = revision),
                "The revision the empty store starts at. After a restart, a number at least two above \
                 what the last server reached lets resuming watchers notice.",
            ),
            Flag::new(
                COMPACTION_INTERVAL,
                "5m",
                Setter::Duration(|draft, time| draft.compaction_interval = time),
                "How often the modes 'revision' and 'size' compact. In etcd it is 5m, always.",
            ),
        ],
    },
    Section {
        title: IGNORED,
        flags: &[
            // The disk.
            Flag::ignored("unsafe-no-fsync", NO_BOOL),
            Flag::ignored("wal-dir", NO_TEXT),
            Flag::ignored("snapshot-count", NO_UINT),
            Flag::ignored("snapshot-catchup-entries", NO_UINT).experimental(),
            Flag::ignored("max-snapshots", NO_UINT),
            Flag::ignored("max-wals", NO_UINT),
            Flag::ignored("backend-bbolt-freelist-type", NO_TEXT),
            Flag::ignored("backend-batch-interval", NO_DURATION),
            Flag::ignored("backend-batch-limit", NO_INT),
            Flag::ignored("memory-mlock", NO_BOOL).experimental(),
            Flag::ignored("bootstrap-defrag-threshold-megabytes", NO_UINT).experimental(),
            Flag::ignored("stop-grpc-service-on-defrag", NO_BOOL).experimental(),
            Flag::ignored("txn-mode-write-with-shared-buffer", NO_BOOL).experimental(),
            Flag::ignored("compaction-batch-limit", NO_INT).experimental(),
            Flag::ignored("compaction-sleep-interval", NO_DURATION).experimental(),
            Flag::ignored("initial-corrupt-check", NO_BOOL).experimental(),
            Flag::ignored("corrupt-check-time", NO_DURATION).experimental(),
            Flag::ignored("compact-hash-check-enabled", NO_BOOL).experimental(),
            Flag::ignored("compact-hash-check-time", NO_DURATION).experimental(),
            // Peers and elections.
            Flag::ignored("initial-cluster-state", Setter::Word(&["existing", "new"])),
            Flag::ignored("initial-election-tick-advance", NO_BOOL),
            Flag::ignored("pre-vote", NO_BOOL),
            Flag::ignored("strict-reconfig-check", NO_BOOL),
            Flag::ignored("force-new-cluster", NO_BOOL),
            Flag::ignored("max-learners", NO_INT).experimental(),
            Flag::ignored("raft-read-timeout", NO_DURATION),
            Flag::ignored("raft-write-timeout", NO_DURATION),
            Flag::ignored("enable-lease-checkpoint", NO_BOOL).experimental(),
            Flag::ignored("enable-lease-checkpoint-persist", NO_BOOL).experimental(),
            Flag::ignored("downgrade-check-time", NO_DURATION).experimental(),
            Flag::ignored("peer-cert-file", NO_TEXT),
            Flag::ignored("peer-key-file", NO_TEXT),
            Flag::ignored("peer-client-cert-auth", NO_BOOL),
            Flag::ignored("peer-trusted-ca-file", NO_TEXT),
            Flag::ignored("peer-client-cert-file", NO_TEXT),
            Flag::ignored("peer-client-key-file", NO_TEXT),
            Flag::ignored("peer-crl-file", NO_TEXT),
            Flag::ignored("peer-cert-allowed-cn", NO_TEXT),
            Flag::ignored("peer-cert-allowed-hostname", NO_TEXT),
            Flag::ignored("peer-auto-tls", NO_BOOL),
            Flag::ignored("peer-skip-client-san-verification", NO_BOOL).experimental(),
            // The server's own connections to itself.
            Flag::ignored("client-cert-file", NO_TEXT),
            Flag::ignored("client-key-file", NO_TEXT),
            // Discovery.
            Flag::ignored("discovery", NO_TEXT),
            Flag::ignored("discovery-fallback", Setter::Word(&["exit", "proxy"])),
            Flag::ignored("discovery-proxy", NO_TEXT),
            Flag::ignored("discovery-srv", NO_TEXT),
            Flag::ignored("discovery-srv-name", NO_TEXT),
            Flag::ignored("discovery-token", NO_TEXT),
            Flag::ignored("discovery-endpoints", NO_TEXT),
            Flag::ignored("discovery-dial-timeout", NO_DURATION),
            Flag::ignored("discovery-request-timeout", NO_DURATION),
            Flag::ignored("discovery-keepalive-time", NO_DURATION),
            Flag::ignored("discovery-keepalive-timeout", NO_DURATION),
            Flag::ignored("discovery-insecure-transport", NO_BOOL),
            Flag::ignored("discovery-insecure-skip-tls-verify", NO_BOOL),
            Flag::ignored("discovery-cert", NO_TEXT),
            Flag::ignored("discovery-key", NO_TEXT),
            Flag::ignored("discovery-cacert", NO_TEXT),
            Flag::ignored("discovery-user", NO_TEXT),
            Flag::ignored("discovery-password", NO_TEXT),
            // The v2 API and the proxy, gone since 3.6.
            Flag::ignored("enable-v2", NO_BOOL),
            Flag::ignored("enable-v2v3", NO_TEXT).experimental(),
            Flag::ignored(
                "v2-deprecation",
                Setter::Word(&["gone", "not-yet", "write-only", "write-only-drop-data"]),
            ),
            Flag::ignored("proxy", Setter::Word(&["off", "on", "readonly"])),
            Flag::ignored("proxy-failure-wait", NO_UINT),
            Flag::ignored("proxy-refresh-interval", NO_UINT),
            Flag::ignored("proxy-dial-timeout", NO_UINT),
            Flag::ignored("proxy-write-timeout", NO_UINT),
            Flag::ignored("proxy-read-timeout", NO_UINT),
            // What has one answer here.
            Flag::ignored("socket-reuse-port", NO_BOOL),
            Flag::ignored("socket-reuse-address", NO_BOOL),
            Flag::ignored("enable-grpc-gateway", NO_BOOL),
            Flag::ignored("cors", NO_TEXT),
            Flag::ignored("host-whitelist", NO_TEXT),
            Flag::ignored("feature-gates", NO_TEXT),
            Flag::ignored("logger", NO_TEXT),
            Flag::ignored("log-format", NO_TEXT),
            Flag::ignored("enable-log-rotation", NO_BOOL),
            Flag::ignored("log-rotation-config-json", NO_TEXT),
            Flag::ignored("metrics", NO_TEXT),
            Flag::ignored("warning-apply-duration", NO_DURATION).experimental(),
            Flag::ignored("warning-unary-request-duration", NO_DURATION).experimental(),
            Flag::ignored("enable-distributed-tracing", NO_BOOL).experimental(),
            Flag::ignored("distributed-tracing-address", NO_TEXT).experimental(),
            Flag::ignored("distributed-tracing-service-name", NO_TEXT).experimental(),
            Flag::ignored("distributed-tracing-instance-id", NO_TEXT).experimental(),
            Flag::ignored("distributed-tracing-sampling-rate", NO_INT).experimental(),
        ],
    },
];

/// The heading of the flags that change nothing.
pub(crate) const IGNORED: &str =
    "Accepted and ignored (they concern disk, peers, or choices that have one answer here)";

pub(crate) const CONFIG_FILE: &str = "config-file";
pub(crate) const LISTEN_CLIENT_URLS: &str = "listen-client-urls";
pub(crate) const ADVERTISE_CLIENT_URLS: &str = "advertise-client-urls";
pub(crate) const COMPACTION_INTERVAL: &str = "auto-compaction-interval";
/// Not to be set by a variable: `ETCD_VERSION` is what container images call the version they hold.
pub(crate) const VERSION: &str = "version";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn check(name: &str, value: &str, expected: Result<(), &str>) {
        let actual = find(name).unwrap().set(&mut Draft::default(), value);
        assert_eq!(
            actual.map_err(|error| error.to_string()),
            expected.map_err(str::to_owned),
            "{name} {value:?}"
        );
    }

    #[test]
    fn names_are_unique_and_are_found() {
        let mut seen = BTreeSet::new();
        for flag in all() {
            for name in flag.names() {
                assert_eq!(find(&name).map(|found| found.name), Some(flag.name));
                assert!(seen.insert(name.clone()), "{name} is there twice");
            }
        }
        assert!(find("no-such-flag").is_none());
        assert!(find("experimental-name").is_none());
        assert!(find("").is_none());
    }

    #[test]
    fn fl_7_values_are_checked_against_their_type() {
        check("max-txn-ops", "0x80", Ok(()));
        check("max-txn-ops", "-1", Err("parse error"));
        check("max-txn-ops", "many", Err("parse error"));
        check("quota-backend-bytes", "-1", Ok(()));
        check(
            "quota-backend-bytes",
            "9223372036854775808",
            Err("value out of range"),
        );
        check("max-concurrent-streams", "4294967295", Ok(()));
        check(
            "max-concurrent-streams",
            "4294967296",
            Err("value out of range"),
        );
        check("grpc-keepalive-timeout", "1.5h", Ok(()));
        check("grpc-keepalive-timeout", "5", Err("parse error"));
        check("auto-tls", "T", Ok(()));
        check("auto-tls", "yes", Err("parse error"));
        check("listen-client-urls", "", Ok(()));
        check(
            "listen-client-urls",
            "localhost:2379",
            Err("URL scheme must be http, https, unix, or unixs: localhost:2379"),
        );
    }

    #[test]
    fn fl_21_values_of_ignored_flags_are_checked_too() {
        check("snapshot-count", "10000", Ok(()));
        check("snapshot-count", "x", Err("parse error"));
        check("unsafe-no-fsync", "true", Ok(()));
        check("unsafe-no-fsync", "maybe", Err("parse error"));
        check("initial-cluster-state", "existing", Ok(()));
        check(
            "initial-cluster-state",
            "old",
            Err("must be one of: existing, new"),
        );
        check("feature-gates", "InitialCorruptCheck=true", Ok(()));
        for name in [
            "initial-corrupt-check",
            "experimental-initial-corrupt-check",
        ] {
            check(name, "true", Ok(()));
        }
    }

    /// The harness table of section I: what test harnesses pass must be known.
    #[test]
    fn fl_20_and_fl_21_flags_of_the_harnesses_are_known() {
        let kubeadm = "name feature-gates listen-client-urls advertise-client-urls \
            listen-peer-urls initial-advertise-peer-urls data-dir cert-file key-file \
            trusted-ca-file client-cert-auth peer-cert-file peer-key-file peer-trusted-ca-file \
            peer-client-cert-auth snapshot-count listen-metrics-urls \
            watch-progress-notify-interval initial-cluster experimental-initial-corrupt-check \
            experimental-watch-progress-notify-interval unsafe-no-fsync initial-cluster-state \
            initial-cluster-token";
        for name in kubeadm.split_whitespace() {
            assert!(find(name).is_some(), "{name}");
        }
    }
}
