//! A set of flags for the tests of this folder.

use std::path::PathBuf;

use super::{FlagSet, GoDuration, Kind};
use crate::net::EndpointUrl;

crate::flags! {
    pub(super) static SECTIONS;

    "Member" {
        NAME: String = "name", "default", "The 'name' [of this member].";
        LISTEN_CLIENT_URLS: Vec<EndpointUrl> = "listen-client-urls",
            "http://localhost:2379", "URLs.";
        QUOTA: i64 = "quota-backend-bytes", "0", "A size.";
        MAX_TXN_OPS: u64 = "max-txn-ops", "128", "A number.";
        MAX_STREAMS: u32 = "max-concurrent-streams", "4294967295", "A number.";
        RETENTION: String = "auto-compaction-retention", "0", "A text.";
        TIMEOUT: GoDuration = "grpc-keepalive-timeout", "20s", "A duration.";
        INTERVAL: GoDuration = "watch-progress-notify-interval", "10m", "A duration.",
            former_prefix: "experimental-";
        CERT_FILE: Option<PathBuf> = "cert-file", "", "A certificate.";
        CERT_AUTH: bool = "client-cert-auth", "false", "A boolean.";
        HOSTNAMES: Vec<String> = "client-cert-allowed-hostname", "", "Names.",
            file_key: "allowed-hostname";
        AUTO_TLS: bool = "auto-tls", "false", "A boolean.";
        OUTPUTS: Vec<String> = "log-outputs", "default", "Outputs.";
        PPROF: bool = "enable-pprof", "false", "A boolean.";
    }
    "Accepted" {
        @accept Kind::Bool, "": "unsafe-no-fsync";
        @accept Kind::Bool, "experimental-": "initial-corrupt-check";
        @accept Kind::Uint, "": "snapshot-count";
        @accept Kind::Text, "": "feature-gates";
        @accept Kind::Word(&["existing", "new"]), "": "initial-cluster-state";
    }
}

pub(super) const FLAGS: FlagSet<()> = FlagSet {
    program: "server",
    about: "A server.\n",
    sections: SECTIONS,
    version: || "1.0\n".to_owned(),
    variable_prefix: "ETCD_",
    known_variables: &["ETCD_UNSUPPORTED_ARCH"],
    file_mapping: "client-transport-security",
    ignored_mappings: &["peer-transport-security"],
    configure: |_, _| Ok(()),
};
