//! A set of flags for the tests of this folder.

use std::path::PathBuf;

use super::{EndpointUrl, Flag, FlagSet, GoDuration, Kind};

crate::flags! {
    pub(super) static SECTIONS;

    "General" {
        CONFIG_FILE: Option<PathBuf> = Flag::new("config-file", "", "A file.").not_in_file();
        VERSION: bool = Flag::new("version", "false", "The version.").command_line_only();
        NAME: String = Flag::new("name", "default", "The 'name' [of this member].");
        LISTEN_CLIENT_URLS: Vec<EndpointUrl> = Flag::new("listen-client-urls",
            "http://localhost:2379", "URLs.");
        QUOTA: i64 = Flag::new("quota-backend-bytes", "0", "A size.");
        MAX_TXN_OPS: u64 = Flag::new("max-txn-ops", "128", "A number.");
        MAX_STREAMS: u32 = Flag::new("max-concurrent-streams", "4294967295", "A number.");
        RETENTION: String = Flag::new("auto-compaction-retention", "0", "A text.");
        TIMEOUT: GoDuration = Flag::new("grpc-keepalive-timeout", "20s", "A duration.");
        INTERVAL: GoDuration = Flag::new("watch-progress-notify-interval", "10m", "A duration.")
            .former_prefix("experimental-");
        CERT_FILE: Option<PathBuf> = Flag::new("cert-file", "", "A certificate.");
        CERT_AUTH: bool = Flag::new("client-cert-auth", "false", "A boolean.");
        HOSTNAMES: Vec<String> = Flag::new("client-cert-allowed-hostname", "", "Names.")
            .file_key("allowed-hostname");
        AUTO_TLS: bool = Flag::new("auto-tls", "false", "A boolean.");
        OUTPUTS: Vec<String> = Flag::new("log-outputs", "default", "Outputs.");
        PPROF: bool = Flag::new("enable-pprof", "false", "A boolean.");
    }
    "Accepted" {
        @accept Kind::Bool, "": "unsafe-no-fsync";
        @accept Kind::Bool, "experimental-": "initial-corrupt-check";
        @accept Kind::Uint, "": "snapshot-count";
        @accept Kind::Text, "": "feature-gates";
        @accept Kind::Word(&["existing", "new"]), "": "initial-cluster-state";
    }
}

pub(super) const FLAGS: FlagSet = FlagSet {
    program: "server",
    about: "A server.\n",
    sections: SECTIONS,
    config_file: CONFIG_FILE,
    version: VERSION,
    version_text: || "1.0\n".to_owned(),
    variable_prefix: "ETCD_",
    known_variables: &["ETCD_UNSUPPORTED_ARCH"],
    file_mapping: "client-transport-security",
    ignored_mappings: &["peer-transport-security"],
};
