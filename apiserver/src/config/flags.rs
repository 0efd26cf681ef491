//! The declarations of all flags: those of kube-apiserver, as far as they have a meaning here, and a few of our own.

use std::path::PathBuf;

use revstore_host::config::{FlagSet, ForeignFlags, GoDuration, OneUrl, Repeated};
use revstore_host::net::EndpointUrl;

use super::Config;
use super::kube_apiserver::KUBE_APISERVER;
use crate::version::{KUBERNETES_VERSION, REVSTORE_VERSION};

/// All flags.
pub(super) const FLAGS: FlagSet<Config> = FlagSet {
    program: "revstore-apiserver",
    about: "revstore-apiserver, a Kubernetes API server for tests.\n\
            \n\
            Usage: revstore-apiserver [flags]\n\
            \n\
            Flags of kube-apiserver that are not in this list cause a warning.\n\
            When it is ready, it prints one line: 'revstore-apiserver ready URL KUBECONFIG'.\n",
    sections: SECTIONS,
    version: || format!("revstore-apiserver {REVSTORE_VERSION}\nKubernetes {KUBERNETES_VERSION}\n"),
    variable_prefix: "REVSTORE_APISERVER_",
    known_variables: &[],
    file_mappings: &[],
    foreign: KUBE_APISERVER,
    configure: Config::from_values,
};

/// All flags of a process that was started in the place of kube-apiserver.
pub(super) const FLAGS_IN_PLACE: FlagSet<Config> = FlagSet {
    foreign: ForeignFlags {
        accepts_others: true,
        ..KUBE_APISERVER
    },
    configure: Config::in_place,
    ..FLAGS
};

revstore_host::flags! {
    pub(super) static SECTIONS;

    "Serving" {
        LISTEN_HTTP: String = "listen-http", "",
            "An address of the loopback interface, such as 127.0.0.1:0, to serve plain HTTP on. Requests there \
             without a token are those of an administrator.";
        SECURE_PORT: u32 = "secure-port", "6443",
            "The port to serve HTTPS on; 0 for no HTTPS.";
        BIND_ADDRESS: String = "bind-address", "127.0.0.1",
            "The address to serve HTTPS on.";
        CERT_DIR: Option<PathBuf> = "cert-dir", "",
            "The directory of the files apiserver.crt and apiserver.key, which are created if they are missing. \
             Without it a certificate is created in a temporary directory.";
        TLS_CERT_FILE: Option<PathBuf> = "tls-cert-file", "",
            "The certificate chain for HTTPS, in PEM.";
        TLS_PRIVATE_KEY_FILE: Option<PathBuf> = "tls-private-key-file", "",
            "The key of the certificate, in PEM.";
        KUBECONFIG_OUT: Option<PathBuf> = "kubeconfig-out", "",
            "The file to write the kubeconfig to.";
        SHUTDOWN_DELAY_DURATION: GoDuration = "shutdown-delay-duration", "0s",
            "The time for which requests are still accepted after SIGTERM.";
        MAX_REQUESTS_INFLIGHT: i64 = "max-requests-inflight", "400",
            "The maximum number of reads in flight; large lists count up to ten times. Further ones wait, and are \
             refused after a quarter of the request timeout. 0 for no limit.";
        MAX_MUTATING_REQUESTS_INFLIGHT: i64 = "max-mutating-requests-inflight", "200",
            "The maximum number of writes in flight. 0 for no limit.";
        GOAWAY_CHANCE: String = "goaway-chance", "0",
            "The part of requests over HTTP/2, from 0 to 0.02, after which the client is told to connect anew.";
        EXIT_WITH_STDIN: bool = "exit-with-stdin", "false",
            "Stop, as after SIGTERM, when standard input ends, so that the server ends with the process that has started it.";
        REQUEST_TIMEOUT: GoDuration = "request-timeout", "1m0s",
            "The time limit of a request that is not a watch.";
        MIN_REQUEST_TIMEOUT: i64 = "min-request-timeout", "1800",
            "The time in seconds after which a watch ends: a random one from this to twice this.";
    }

    "Resources" {
        RUNTIME_CONFIG: String = "runtime-config", "",
            "The built-in versions that are served, as pairs KEY=true or KEY=false, comma-separated: api/all, api/ga, \
             api/beta, GROUP/VERSION, /v1 for the core group, GROUP/VERSION/RESOURCE. The default are the stable \
             versions.";
    }

    "Access" {
        CLIENT_CA_FILE: Option<PathBuf> = "client-ca-file", "",
            "The authorities of client certificates, in PEM. The common name is the user, the organizations are \
             the groups.";
        ANONYMOUS_AUTH: bool = "anonymous-auth", "true",
            "Whether requests without credentials are those of the user system:anonymous, instead of being refused.";
        TOKEN_AUTH_FILE: Option<PathBuf> = "token-auth-file", "",
            "A file with lines 'token,user,uid,\"group1,group2\"'.";
        AUTHORIZATION_MODE: Vec<String> = "authorization-mode", "AlwaysAllow",
            "Who is asked in turn whether a request is allowed, comma-separated: 'AlwaysAllow', 'AlwaysDeny', 'RBAC', and \
             'Node', which allows nothing here.",
            suggestions: &["AlwaysAllow", "AlwaysDeny", "RBAC", "Node"];
    }

    "Admission" {
        ENABLE_ADMISSION_PLUGINS: Vec<String> = "enable-admission-plugins", "",
            "The admission plugins to turn on beside those that are on by default, comma-separated, in any order.";
        DISABLE_ADMISSION_PLUGINS: Vec<String> = "disable-admission-plugins", "",
            "The admission plugins to turn off that are on by default, comma-separated.";
        DEFAULT_NOT_READY_TOLERATION_SECONDS: i64 = "default-not-ready-toleration-seconds", "300",
            "The seconds for which pods that say nothing about it stay on a node that is not ready.";
        DEFAULT_UNREACHABLE_TOLERATION_SECONDS: i64 = "default-unreachable-toleration-seconds", "300",
            "The seconds for which pods that say nothing about it stay on a node that cannot be reached.";
    }

    "Tokens of service accounts" {
        SERVICE_ACCOUNT_ISSUER: Repeated = "service-account-issuer", "",
            "The issuer of tokens, the default is https://kubernetes.default.svc.cluster.local. Given again, the \
             further ones are issuers whose tokens are accepted.";
        SERVICE_ACCOUNT_SIGNING_KEY_FILE: Option<PathBuf> = "service-account-signing-key-file", "",
            "The private key that signs tokens, in PEM: one of RSA, P-256 or P-384. Without it a new one is made at \
             each start.";
        SERVICE_ACCOUNT_KEY_FILE: Repeated = "service-account-key-file", "",
            "The keys of the tokens that are accepted, in PEM: public or private keys, or certificates. Can be given \
             again. Without it, the key that signs.";
        API_AUDIENCES: Vec<String> = "api-audiences", "",
            "Who tokens are for, comma-separated; the default are the issuers.";
        SERVICE_ACCOUNT_MAX_TOKEN_EXPIRATION: GoDuration = "service-account-max-token-expiration", "0s",
            "The longest lifetime of a token; 0 for no limit.";
        SERVICE_ACCOUNT_EXTEND_TOKEN_EXPIRATION: bool = "service-account-extend-token-expiration", "true",
            "Whether a token of a pod for 3607 seconds, as kubelets ask for it, lives for a year.";
        SERVICE_ACCOUNT_JWKS_URI: String = "service-account-jwks-uri", "",
            "The URL of the public keys in the document about the issuer, instead of that of this server.";
    }

    "Storage" {
        STORAGE: String = "storage", "",
            "Where the objects are: 'embedded', in this process, or 'etcd', in a cluster. The default is 'etcd' if \
             --etcd-servers is given. Without this flag, a process under the name kube-apiserver lets its etcd run the server, \
             if that is a process of this program.",
            suggestions: &["embedded", "etcd"];
        ETCD_SERVERS: Vec<String> = "etcd-servers", "",
            "The client URLs of the etcd cluster, comma-separated.";
        ETCD_CAFILE: Option<PathBuf> = "etcd-cafile", "",
            "The authorities of the certificates of etcd, in PEM, which URLs with https need.";
        ETCD_CERTFILE: Option<PathBuf> = "etcd-certfile", "",
            "The certificate with which etcd knows this server, in PEM.";
        ETCD_KEYFILE: Option<PathBuf> = "etcd-keyfile", "",
            "The key of the certificate, in PEM.";
        ETCD_PREFIX: String = "etcd-prefix", "/registry",
            "The beginning of all keys.";
        ETCD_COMPACTION_INTERVAL: GoDuration = "etcd-compaction-interval", "5m0s",
            "The interval of compactions of the store; 0 for none. Of several API servers over one store one \
             compacts in each interval.";
        EVENT_TTL: GoDuration = "event-ttl", "1h0m0s",
            "The time for which events are kept after they were written; 0 for ever.";
        ETCD_LISTEN_URL: Vec<EndpointUrl> = "etcd-listen-url", "",
            "The URLs, comma-separated, to serve the embedded store on over etcd's API, with its JSON gateway, \
             such as http://127.0.0.1:2379. Everybody who reaches them can read and change everything.";
        LOAD: Option<PathBuf> = "load", "",
            "A directory with manifests, in files *.yaml, *.yml and *.json, whose objects exist when the server is \
             ready: definitions of custom resources first, then namespaces, then all others.";
        CONTROLLERS: String = "controllers", "",
            "The controllers that run: 'none', or a list in which '*' stands for all, 'NAME' switches one on and \
             '-NAME' off. The default is '*', and 'none' under the name kube-apiserver.";
        WATCH_CACHE: bool = "watch-cache", "true",
            "Whether reads are answered by the watch cache. They always are; other values cause a warning.";
        DEFAULT_WATCH_CACHE_SIZE: i64 = "default-watch-cache-size", "100",
            "The number of events that the watch cache keeps. It adapts itself, as that of kube-apiserver does; 0 \
             causes a warning.";
        WATCH_CACHE_SIZES: String = "watch-cache-sizes", "",
            "A list of settings 'resource[.group]#size', for single resources.";
    }

    "Control by tests" {
        CONTROL_LISTEN_URL: OneUrl = "control-listen-url", "",
            "The URL to listen on for 'revstore-apiserver ctl' and other clients of control, such as \
             http://127.0.0.1:0. By default the server has no control.";
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
    }

    "Webhooks" {
        WEBHOOK_RESOLVER: Vec<String> = "webhook-resolver", "",
            "The addresses of services that webhooks name, comma-separated, each as \
             NAMESPACE/NAME[:PORT]=HOST:PORT. Without one the endpoints of the service are used, then its cluster IP.";
    }

    "Services" {
        SERVICE_CLUSTER_IP_RANGE: String = "service-cluster-ip-range", "10.0.0.0/24",
            "The range of the cluster IPs of services in CIDR notation, or one range of each family with a comma \
             between them. The first one is that of the default family.";
        SERVICE_NODE_PORT_RANGE: String = "service-node-port-range", "30000-32767",
            "The range of the ports of nodes for services.";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_readme_has_all_flags() {
        let readme = include_str!("../../README.md");
        let rows = readme.lines().filter_map(|line| line.strip_prefix("| `--"));
        let rows: BTreeSet<_> = rows.filter_map(|row| row.split('`').next()).collect();
        let flags = SECTIONS.iter().flat_map(|section| section.flags);
        let flags: BTreeSet<_> = flags.map(|flag| flag.name).collect();
        assert_eq!(rows, flags);
    }
}
