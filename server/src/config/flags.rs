//! The declarations of all flags, which are those of etcd 3.5 to 3.7 and a few of revstore.
//!
//! A flag that has no effect in this server is accepted, and its values are checked: an error in
//! etcd is an error here, too (FL-7, FL-21).

use std::path::PathBuf;

use revstore_host::{
    config::{FlagSet, GoDuration},
    net::EndpointUrl,
};

use super::Config;
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
    file_mapping: "client-transport-security",
    ignored_mappings: &[
        "peer-transport-security",
        "socket-options",
        "discovery-config",
    ],
    configure: Config::from_values,
};

revstore_host::flags! {
    pub(super) static SECTIONS;

    "Member" {
        NAME: String = "name", "default", "The name of this member.";
        DATA_DIR: Option<PathBuf> = "data-dir", "",
            "A directory to create. Nothing is stored in it: all data live in memory.";
        LISTEN_CLIENT_URLS: Vec<EndpointUrl> = "listen-client-urls", "http://localhost:2379",
            "The URLs to listen on for clients, comma-separated: gRPC, and HTTP unless \
             --listen-client-http-urls is given.";
        LISTEN_CLIENT_HTTP_URLS: Vec<EndpointUrl> = "listen-client-http-urls", "",
            "The URLs to listen on for HTTP only. --listen-client-urls then serve gRPC only.";
        LISTEN_PEER_URLS: Vec<EndpointUrl> = "listen-peer-urls", "http://localhost:2380",
            "The URLs to bind for peers, as etcd does. This server has no peers.";
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
            "The client certificates that are revoked.", file_key: Some("crl-file");
        CLIENT_ALLOWED_HOSTNAMES: Vec<String> = "client-cert-allowed-hostname", "",
            "Names of which a client's certificate must contain one, comma-separated.",
            file_key: Some("allowed-hostname");
        AUTO_TLS: bool = "auto-tls", "false", "Create a certificate at the start if none is given.";
        SELF_SIGNED_CERT_VALIDITY: u64 = "self-signed-cert-validity", "1",
            "The validity of the certificate of --auto-tls in years.";
        CIPHER_SUITES: Vec<String> = "cipher-suites", "",
            "The TLS 1.2 cipher suites to allow, comma-separated.";
        TLS_MIN_VERSION: String = "tls-min-version", "TLS1.2",
            "The lowest TLS version to accept: TLS1.2 or TLS1.3.",
            suggestions: &["TLS1.2", "TLS1.3"];
        TLS_MAX_VERSION: String = "tls-max-version", "",
            "The highest TLS version to accept: TLS1.2 or TLS1.3.",
            suggestions: &["TLS1.2", "TLS1.3"];
        AUTH_TOKEN: String = "auth-token", "simple",
            "The kind of authentication token and its options: 'simple' or 'jwt,...'.";
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
        LISTEN_METRICS_URLS: Vec<EndpointUrl> = "listen-metrics-urls", "",
            "More URLs to listen on for /metrics, /health, /livez and /readyz.";
        ENABLE_PPROF: bool = "enable-pprof", "false", "Serve profiles under /debug/pprof/.";
    }

    "revstore only (etcd does not have these)" {
        START_REVISION: i64 = "start-revision", "1",
            "The revision of the empty store. After a restart, a number at least two above the \
             last revision of the previous server lets watchers that resume detect the restart.";
        COMPACTION_INTERVAL: GoDuration = "auto-compaction-interval", "5m",
            "The interval of compactions in the modes 'revision' and 'size'. In etcd it is always \
             5m.";
    }

    "Accepted and ignored (they concern disk, peers, or choices that have one answer here)" {
        @accept bool, "": "discovery-insecure-skip-tls-verify",
            "discovery-insecure-transport", "enable-grpc-gateway", "enable-log-rotation",
            "enable-v2", "force-new-cluster", "initial-election-tick-advance", "peer-auto-tls",
            "peer-client-cert-auth", "pre-vote", "socket-reuse-address", "socket-reuse-port",
            "strict-reconfig-check", "unsafe-no-fsync";
        @accept bool, "experimental-": "compact-hash-check-enabled",
            "enable-distributed-tracing", "enable-lease-checkpoint",
            "enable-lease-checkpoint-persist", "initial-corrupt-check", "memory-mlock",
            "peer-skip-client-san-verification", "stop-grpc-service-on-defrag",
            "txn-mode-write-with-shared-buffer";
        @accept i64, "": "backend-batch-limit";
        @accept i64, "experimental-": "compaction-batch-limit",
            "distributed-tracing-sampling-rate", "max-learners";
        @accept u64, "": "max-snapshots", "max-wals", "proxy-dial-timeout",
            "proxy-failure-wait", "proxy-read-timeout", "proxy-refresh-interval",
            "proxy-write-timeout", "snapshot-count";
        @accept u64, "experimental-": "bootstrap-defrag-threshold-megabytes",
            "snapshot-catchup-entries";
        @accept GoDuration, "": "backend-batch-interval", "discovery-dial-timeout",
            "discovery-keepalive-time", "discovery-keepalive-timeout", "discovery-request-timeout",
            "raft-read-timeout", "raft-write-timeout";
        @accept GoDuration, "experimental-": "compact-hash-check-time",
            "compaction-sleep-interval", "corrupt-check-time", "downgrade-check-time",
            "warning-apply-duration", "warning-unary-request-duration";
        @accept String, "": "backend-bbolt-freelist-type", "cors", "discovery",
            "discovery-endpoints", "discovery-password", "discovery-proxy", "discovery-srv",
            "discovery-srv-name", "discovery-token", "discovery-user", "feature-gates",
            "host-whitelist", "log-format", "log-rotation-config-json", "logger", "metrics",
            "peer-cert-allowed-cn", "peer-cert-allowed-hostname";
        @accept String, "experimental-": "distributed-tracing-address",
            "distributed-tracing-instance-id", "distributed-tracing-service-name", "enable-v2v3";
        @accept Option<PathBuf>, "": "client-cert-file", "client-key-file", "discovery-cacert",
            "discovery-cert", "discovery-key", "peer-cert-file", "peer-client-cert-file",
            "peer-client-key-file", "peer-crl-file", "peer-key-file", "peer-trusted-ca-file",
            "wal-dir";
        @one_of ["existing", "new"]: "initial-cluster-state";
        @one_of ["exit", "proxy"]: "discovery-fallback";
        @one_of ["gone", "not-yet", "write-only", "write-only-drop-data"]: "v2-deprecation";
        @one_of ["off", "on", "readonly"]: "proxy";
    }
}
