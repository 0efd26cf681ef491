//! The declarations of all flags, which are those of etcd 3.5 to 3.7 and a few of revstore.
//!
//! Each flag has an effect, or is declared with the values that ask for nothing: other values cause a
//! warning (`@no_effect`, if no client can observe that the effect is missing) or an error (`@only`).
//! All values are checked: an error in etcd is an error here, too (FL-7, FL-21).

use std::path::PathBuf;

use revstore_host::{
    config::{
        ConfigError, FileMapping, FlagSet, FlagValue, ForeignFlags, GoDuration, OneUrl, ValueKind,
    },
    net::EndpointUrl,
};

use super::{
    Config,
    allow_list::{Hosts, Origins},
    feature_gates::FeatureGates,
};
use crate::version;

/// All flags, their variables (FL-2) and their keys in the configuration file (FL-4).
pub(super) const FLAGS: FlagSet<Config> = FlagSet {
    program: "revstore",
    about: "revstore, an in-memory server that behaves like one etcd node.\n\
            \n\
            Usage: revstore [flags]\n\
            \n\
            Flags start with one dash or two, and take their value as '--flag value' or\n\
            '--flag=value', booleans only as '--flag' or '--flag=value'. Every flag is also a\n\
            variable, such as ETCD_MAX_TXN_OPS for --max-txn-ops. A flag takes precedence over\n\
            its variable.\n",
    sections: SECTIONS,
    version: version::text,
    variable_prefix: "ETCD_",
    // etcd reads it on processors that it does not support, and container images for these set it.
    known_variables: &["ETCD_UNSUPPORTED_ARCH"],
    file_mappings: &[
        FileMapping {
            name: "client-transport-security",
            prefix: "",
            other_names: &[
                ("allowed-cn", "client-cert-allowed-cn"),
                ("allowed-hostname", "client-cert-allowed-hostname"),
                ("crl-file", "client-crl-file"),
            ],
        },
        FileMapping {
            name: "peer-transport-security",
            prefix: "peer-",
            other_names: &[
                ("allowed-cn", "peer-cert-allowed-cn"),
                ("allowed-hostname", "peer-cert-allowed-hostname"),
            ],
        },
        FileMapping {
            name: "socket-options",
            prefix: "socket-",
            other_names: &[],
        },
        FileMapping {
            name: "discovery-config",
            prefix: "discovery-",
            other_names: &[("client", "discovery-endpoints")],
        },
    ],
    foreign: ForeignFlags::NONE,
    configure: Config::from_values,
};

/// A flag that etcd 3.5 ignores with a warning. Any text is a value, and none is needed.
#[derive(PartialEq)]
struct Obsolete(String);

impl FlagValue for Obsolete {
    const KIND: ValueKind = ValueKind::Bool;

    fn parse(text: &str) -> Result<Self, ConfigError> {
        Ok(Self(text.to_owned()))
    }
}

revstore_host::flags! {
    pub(super) static SECTIONS;

    "Member" {
        NAME: String = "name", "default", "The name of this member.";
        DATA_DIR: Option<PathBuf> = "data-dir", "",
            "A directory to create. Without --persist nothing is stored in it.";
        PERSIST: bool = "persist", "false",
            "Keep a journal with snapshots in --data-dir, from which a restart brings back revisions, \
             history, leases, users and ids. Without it all data live in memory only.";
        PERSIST_FSYNC: String = "persist-fsync", "always",
            "When the journal is synced: 'always' before the response to a write, 'interval' after \
             --persist-fsync-interval, or 'never', when the system likes.";
        PERSIST_FSYNC_INTERVAL: GoDuration = "persist-fsync-interval", "100ms",
            "The longest time for which --persist-fsync=interval leaves a write unsynced.";
        LISTEN_CLIENT_URLS: Vec<EndpointUrl> = "listen-client-urls", "http://localhost:2379",
            "The URLs to listen on for clients, comma-separated: gRPC, and HTTP unless \
             --listen-client-http-urls is given.";
        LISTEN_CLIENT_HTTP_URLS: Vec<EndpointUrl> = "listen-client-http-urls", "",
            "The URLs to listen on for HTTP only. --listen-client-urls then serve gRPC only.";
        LISTEN_PEER_URLS: Vec<EndpointUrl> = "listen-peer-urls", "http://localhost:2380",
            "The URLs to listen on for peers. Without peers, they serve only /version and /members.";
        ENABLE_GRPC_GATEWAY: bool = "enable-grpc-gateway", "true",
            "Serve JSON requests under /v3/.";
        SOCKET_REUSE_PORT: bool = "socket-reuse-port", "false",
            "Let other processes listen on the same ports.";
        ADVERTISE_CLIENT_URLS: Vec<EndpointUrl> = "advertise-client-urls", "http://localhost:2379",
            "The client URLs to report to clients.";
        HEARTBEAT_INTERVAL: u64 = "heartbeat-interval", "100",
            "The heartbeat interval in milliseconds. Affects only the shortest lease.";
        ELECTION_TIMEOUT: u64 = "election-timeout", "1000",
            "The election timeout in milliseconds. Affects only the shortest lease: this server \
             has no elections.";
    }

    "Limits" {
        QUOTA_BACKEND_BYTES: i64 = "quota-backend-bytes", "0",
            "The size of the data in bytes above which writes are refused. 0 means 2 GiB, a \
             negative number no limit.";
        MAX_TXN_OPS: u64 = "max-txn-ops", "128",
            "The number of operations allowed in a transaction.";
        MAX_REQUEST_BYTES: u64 = "max-request-bytes", "1572864",
            "The size of a write request allowed, in bytes.";
        MAX_CONCURRENT_STREAMS: u32 = "max-concurrent-streams", "4294967295",
            "The number of streams that a connection may have open at a time.";
        KEEPALIVE_MIN_TIME: GoDuration = "grpc-keepalive-min-time", "5s",
            "The shortest interval of a client's pings. The connections of clients that ping more \
             often are closed.";
        KEEPALIVE_INTERVAL: GoDuration = "grpc-keepalive-interval", "2h",
            "The time without activity after which the server pings a client.";
        KEEPALIVE_TIMEOUT: GoDuration = "grpc-keepalive-timeout", "20s",
            "The time to wait for the response to a ping.";
    }

    "History and watches" {
        COMPACTION_MODE: String = "auto-compaction-mode", "periodic",
            "The unit of --auto-compaction-retention: 'periodic' for time, 'revision' for \
             revisions, 'size' (revstore only) for bytes of history.",
            suggestions: &["periodic", "revision", "size"];
        COMPACTION_RETENTION: String = "auto-compaction-retention", "0",
            "The history to keep: hours or a duration such as '5m', revisions such as '1000', or a \
             size such as '512MiB'. 0 keeps everything.";
        PROGRESS_INTERVAL: GoDuration = "watch-progress-notify-interval", "10m",
            "The interval of progress notifications to watchers without events that requested \
             them.", former_prefix: "experimental-";
    }

    "Identity" {
        ADVERTISE_PEER_URLS: Vec<EndpointUrl> = "initial-advertise-peer-urls",
            "http://localhost:2380",
            "The peer URLs to report to clients. Member and cluster ids are derived from them.";
        // The default in effect is this member alone, under its own name and URLs. A duplicate of
        // the flags that it derives from would make every other name an error.
        INITIAL_CLUSTER: String = "initial-cluster", "",
            "The members of the cluster, as 'name=URL,...', for the cluster id. By default this \
             member alone.";
        CLUSTER_TOKEN: String = "initial-cluster-token", "etcd-cluster",
            "A text that makes the ids of clusters with equal URLs different.";
    }

    "Security" {
        CERT_FILE: Option<PathBuf> = "cert-file", "",
            "The server's certificate, for https and unixs URLs.";
        KEY_FILE: Option<PathBuf> = "key-file", "", "The key of the server's certificate.";
        CLIENT_CERT_AUTH: bool = "client-cert-auth", "false", "Require a certificate of clients.";
        TRUSTED_CA_FILE: Option<PathBuf> = "trusted-ca-file", "",
            "Require a certificate of clients, signed by one of these authorities.";
        CLIENT_CRL_FILE: Option<PathBuf> = "client-crl-file", "",
            "The client certificates that are revoked.";
        CLIENT_ALLOWED_HOSTNAMES: Vec<String> = "client-cert-allowed-hostname", "",
            "Names of which a client's certificate must contain one, comma-separated.";
        CLIENT_ALLOWED_CNS: Vec<String> = "client-cert-allowed-cn", "",
            "Common names of which a client's certificate must have one, comma-separated. In etcd only in \
             the configuration file.";
        AUTO_TLS: bool = "auto-tls", "false", "Create a certificate at the start if none is given.";
        PEER_CERT_FILE: Option<PathBuf> = "peer-cert-file", "",
            "The certificate for https and unixs peer URLs.";
        PEER_KEY_FILE: Option<PathBuf> = "peer-key-file", "", "The key of that certificate.";
        PEER_CLIENT_CERT_AUTH: bool = "peer-client-cert-auth", "false",
            "Require a certificate of peers.";
        PEER_TRUSTED_CA_FILE: Option<PathBuf> = "peer-trusted-ca-file", "",
            "Require a certificate of peers, signed by one of these authorities.";
        PEER_CRL_FILE: Option<PathBuf> = "peer-crl-file", "", "The peer certificates that are revoked.";
        PEER_ALLOWED_HOSTNAMES: Vec<String> = "peer-cert-allowed-hostname", "",
            "Names of which a peer's certificate must contain one, comma-separated.";
        PEER_ALLOWED_CNS: Vec<String> = "peer-cert-allowed-cn", "",
            "Common names of which a peer's certificate must have one, comma-separated.";
        PEER_SKIP_SAN_VERIFICATION: bool = "peer-skip-client-san-verification", "false",
            "Accept the certificate of a peer also if the addresses and host names in it are not the peer's.",
            former_prefix: "experimental-";
        PEER_AUTO_TLS: bool = "peer-auto-tls", "false",
            "Create a certificate for peer URLs at the start if none is given.";
        HOST_WHITELIST: Hosts = "host-whitelist", "*",
            "The host names, without ports, that HTTP requests without TLS may be for, comma-separated; '*' \
             for all. Other requests are answered with 421. gRPC calls are not checked.";
        CORS: Origins = "cors", "*",
            "The origins, such as https://example.com:443, whose scripts may read responses, \
             comma-separated; '*' for all.";
        SELF_SIGNED_CERT_VALIDITY: u64 = "self-signed-cert-validity", "1",
            "The validity of the certificates of --auto-tls and --peer-auto-tls in years.";
        CIPHER_SUITES: Vec<String> = "cipher-suites", "",
            "The TLS 1.2 cipher suites to allow, comma-separated.";
        TLS_MIN_VERSION: String = "tls-min-version", "TLS1.2",
            "The lowest TLS version to accept: TLS1.2 or TLS1.3.",
            suggestions: &["TLS1.2", "TLS1.3"];
        TLS_MAX_VERSION: String = "tls-max-version", "",
            "The highest TLS version to accept: TLS1.2 or TLS1.3.",
            suggestions: &["TLS1.2", "TLS1.3"];
        AUTH_TOKEN: String = "auth-token", "simple",
            "The kind of authentication token and its options: 'simple' or \
             'jwt,sign-method=RS256,pub-key=FILE,priv-key=FILE,ttl=5m'.";
        AUTH_TOKEN_TTL: u64 = "auth-token-ttl", "300",
            "The time to live of a simple token in seconds.";
        BCRYPT_COST: u64 = "bcrypt-cost", "10", "The cost of hashing passwords, from 4 to 31.";
    }

    "Logging and monitoring" {
        LOG_LEVEL: String = "log-level", "info",
            "The lowest level to log: debug, info, warn, error, panic or fatal.",
            suggestions: &["debug", "info", "warn", "error", "panic", "fatal"];
        LOG_OUTPUTS: Vec<String> = "log-outputs", "default",
            "'stderr' (the default), 'stdout' or files, comma-separated.";
        ENABLE_LOG_ROTATION: bool = "enable-log-rotation", "false",
            "Replace the file of --log-outputs when it has reached a size.";
        LOG_ROTATION_CONFIG_JSON: String = "log-rotation-config-json",
            "{\"maxsize\": 100, \"maxage\": 0, \"maxbackups\": 0, \"localtime\": false, \"compress\": false}",
            "The size of the file in MiB, and the age in days and the number of old files to keep, with 0 for \
             all.";
        LISTEN_METRICS_URLS: Vec<EndpointUrl> = "listen-metrics-urls", "",
            "More URLs to listen on for /metrics, /health, /livez and /readyz.";
        METRICS: String = "metrics", "basic",
            "The level of detail of /metrics: 'basic', or 'extensive' with the times of calls and \
             executions and the versions of clients.",
            suggestions: &["basic", "extensive"];
        WARNING_APPLY_DURATION: GoDuration = "warning-apply-duration", "100ms",
            "The time of the execution of a request above which it is logged.",
            former_prefix: "experimental-";
        WARNING_UNARY_REQUEST_DURATION: GoDuration = "warning-unary-request-duration", "300ms",
            "The time of a unary call above which it is logged.",
            former_prefix: "experimental-";
        ENABLE_PPROF: bool = "enable-pprof", "false", "Serve profiles under /debug/pprof/.";
    }

    "revstore only (etcd does not have these)" {
        START_REVISION: i64 = "start-revision", "1",
            "The revision of the empty store. After a restart, a number at least two above the \
             last revision of the previous server lets watchers that resume detect the restart.";
        IMPORT: Option<PathBuf> = "import", "",
            "Start with the keys, their history, leases, users and alarms of a file that 'etcdctl snapshot \
             save' of etcd 3.4 to 3.6 has written.";
        HEAVY_WORKERS: u64 = "heavy-workers", "0",
            "The number of threads for heavy requests: ranges and transactions over more than \
             10,000 keys, hashes, snapshots. As many encode the parts of snapshots and large JSON \
             answers. 0 means the number of processors less one.";
        ANSWER_MEMORY_BYTES: u64 = "answer-memory-bytes", "268435456",
            "The memory of large answers that clients have not read yet, in bytes. Further \
             requests wait for it; one that needs more alone is refused.";
        WATCH_CATCH_UP_DELAY: GoDuration = "watch-catch-up-delay", "0s",
            "The time for which a watch stream waits before it sends history, after a watch from a past \
             revision is created. In etcd up to 100ms.";
        COMPACTION_INTERVAL: GoDuration = "auto-compaction-interval", "5m",
            "The interval of compactions in the modes 'revision' and 'size'. In etcd it is always \
             5m.";
    }

    "Control by tests (revstore only)" {
        CONTROL_LISTEN_URL: OneUrl = "control-listen-url", "",
            "The URL to listen on for 'revstore ctl' and other clients of control, such as http://127.0.0.1:2378. By \
             default the server has no control.";
        CONTROL_ALLOW_REMOTE: bool = "control-allow-remote", "false",
            "Let --control-listen-url be an address beyond the loopback interface. Requires --control-token-file.";
        CONTROL_TOKEN_FILE: Option<PathBuf> = "control-token-file", "",
            "A file with a token that requests of control must have. It may change while the server runs.";
        CONTROL_MEMORY_LIMIT: u64 = "control-memory-limit", "1073741824",
            "The bytes that checkpoints may hold. Each counts with its whole history.";
        CONTROL_CLOCK: String = "control-clock", "system",
            "The mode of the clock at the start: 'system', 'manual' or 'auto'.",
            suggestions: &["system", "manual", "auto"];
        AUTO_ADVANCE_IDLE: GoDuration = "auto-advance-idle", "5ms",
            "The time without any activity after which a clock in the mode 'auto' jumps to the next due time.";
        EXIT_WITH_STDIN: bool = "exit-with-stdin", "false",
            "Stop, as after SIGTERM, when standard input ends, so that the server ends with the process that has started \
             it. When it is ready, it prints one line: 'revstore ready CLIENT-URL CONTROL-URL', without the last URL if \
             it has no control.";
    }

    "Without effect in this server" {
        @no_effect "this server runs alone, without Raft and without connections to peers" {
            "compact-hash-check-enabled" ("experimental-"): bool = "false";
            "compact-hash-check-time" ("experimental-"): GoDuration = "1m";
            "corrupt-check-time" ("experimental-"): GoDuration = "0s";
            "downgrade-check-time" ("experimental-"): GoDuration = "5s";
            "force-new-cluster": bool = "false";
            "initial-election-tick-advance": bool = "true";
            "max-learners" ("experimental-"): i64 = "1";
            "peer-client-cert-file": Option<PathBuf> = "";
            "peer-client-key-file": Option<PathBuf> = "";
            "pre-vote": bool = "true";
            "raft-read-timeout": GoDuration = "5s";
            "raft-write-timeout": GoDuration = "5s";
            "snapshot-catchup-entries" ("experimental-"): u64 = "5000";
            "strict-reconfig-check": bool = "true";
        }
        // The defaults of snapshot-count and compaction-sleep-interval differ between versions of etcd. With
        // no files there is nothing to sync, and nothing to check at the start.
        @no_effect "all data live in memory" {
            "backend-batch-interval": GoDuration = "0s";
            "backend-batch-limit": i64 = "0";
            "backend-bbolt-freelist-type": String = "map";
            "bootstrap-defrag-threshold-megabytes" ("experimental-"): u64 = "0";
            "compaction-batch-limit" ("experimental-"): i64 = "1000" | "0";
            "compaction-sleep-interval" ("experimental-"): GoDuration = "10ms" | "0s";
            "enable-lease-checkpoint" ("experimental-"): bool = "false";
            "enable-lease-checkpoint-persist" ("experimental-"): bool = "false";
            "initial-corrupt-check" ("experimental-"): bool = "false" | "true";
            "max-snapshots": u64 = "5";
            "max-wals": u64 = "5";
            "memory-mlock" ("experimental-"): bool = "false";
            "snapshot-count": u64 = "100000" | "10000";
            "stop-grpc-service-on-defrag" ("experimental-"): bool = "false";
            "txn-mode-write-with-shared-buffer" ("experimental-"): bool = "true";
            "unsafe-no-fsync": bool = "false" | "true";
            "wal-dir": Option<PathBuf> = "";
        }
        @no_effect "requests are not traced" {
            "distributed-tracing-address" ("experimental-"): String = "localhost:4317";
            "distributed-tracing-instance-id" ("experimental-"): String = "";
            "distributed-tracing-sampling-rate" ("experimental-"): i64 = "0";
            "distributed-tracing-service-name" ("experimental-"): String = "etcd";
            "enable-distributed-tracing" ("experimental-"): bool = "false";
        }
        @no_effect "the address of a closed connection can always be bound, in etcd too" {
            "socket-reuse-address": bool = "false" | "true";
        }
        @no_effect "the gateway calls the services without a connection" {
            "client-cert-file": Option<PathBuf> = "";
            "client-key-file": Option<PathBuf> = "";
        }
        @no_effect "a gate selects nothing in this server" {
            "feature-gates": FeatureGates = "";
        }
        @no_effect "there is no store of the v2 API, and no proxy for it" {
            "proxy-dial-timeout": u64 = "1000";
            "proxy-failure-wait": u64 = "5000";
            "proxy-read-timeout": u64 = "0";
            "proxy-refresh-interval": u64 = "30000";
            "proxy-write-timeout": u64 = "5000";
            "v2-deprecation": String = "not-yet" | "write-only" | "write-only-drop-data" | "gone"
                in ["gone", "not-yet", "write-only", "write-only-drop-data"];
        }
        @no_effect "there is no discovery of other members" {
            "discovery-cacert": Option<PathBuf> = "";
            "discovery-cert": Option<PathBuf> = "";
            "discovery-dial-timeout": GoDuration = "2s";
            "discovery-fallback": String = "proxy" | "exit" in ["exit", "proxy"];
            "discovery-insecure-skip-tls-verify": bool = "false";
            "discovery-insecure-transport": bool = "true";
            "discovery-keepalive-time": GoDuration = "2s";
            "discovery-keepalive-timeout": GoDuration = "6s";
            "discovery-key": Option<PathBuf> = "";
            "discovery-password": String = "";
            "discovery-proxy": String = "";
            "discovery-request-timeout": GoDuration = "5s";
            "discovery-srv-name": String = "";
            "discovery-token": String = "";
            "discovery-user": String = "";
        }
        @no_effect "etcd 3.5 ignores it, too" {
            "cluster-active-size": Obsolete = "";
            "cluster-remove-delay": Obsolete = "";
            "cluster-sync-interval": Obsolete = "";
            "config": Obsolete = "";
            "force": Obsolete = "";
            "max-result-buffer": Obsolete = "";
            "max-retry-attempts": Obsolete = "";
            "peer-election-timeout": Obsolete = "";
            "peer-heartbeat-interval": Obsolete = "";
            "retry-interval": Obsolete = "";
            "snapshot": Obsolete = "";
            "test.coverprofile": Obsolete = "";
            "test.outputdir": Obsolete = "";
            "v": Obsolete = "";
            "vv": Obsolete = "";
        }
    }

    "With one supported value" {
        @only "this server runs alone and cannot join a cluster" {
            "discovery": String = "";
            "discovery-endpoints": String = "";
            "discovery-srv": String = "";
            "initial-cluster-state": String = "new" in ["existing", "new"];
        }
        @only "there is no v2 API" {
            "enable-v2": bool = "false";
            "enable-v2v3" ("experimental-"): String = "";
            "proxy": String = "off" in ["off", "on", "readonly"];
        }
        @only "the log is written as JSON" {
            "log-format": String = "json" in ["console", "json"];
            "logger": String = "zap";
        }
    }
}
