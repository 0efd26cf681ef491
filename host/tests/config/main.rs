//! Tests of flags, of the sources of their values, and of what is made from their declarations.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arguments;
mod completion;
mod environment;
mod file;
mod support;
mod values;

use std::path::PathBuf;

use revstore_host::{
    config::{ConfigError, FileMapping, FlagSet, ForeignFlags, GoDuration, Invocation, Values},
    net::EndpointUrl,
};

revstore_host::flags! {
    pub(crate) static SECTIONS;

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
        HOSTNAMES: Vec<String> = "client-cert-allowed-hostname", "", "Names.";
        AUTO_TLS: bool = "auto-tls", "false", "A boolean.";
        OUTPUTS: Vec<String> = "log-outputs", "default", "Outputs.";
        PPROF: bool = "enable-pprof", "false", "A boolean.";
    }
    "Accepted" {
        @no_effect "there are no files" {
            "unsafe-no-fsync": bool = "false" | "true";
            "initial-corrupt-check" ("experimental-"): bool = "false";
            "snapshot-count": u64 = "100000" | "10000";
            "batch-interval": GoDuration = "0s";
            "peer-cert-file": Option<PathBuf> = "";
        }
        @only "there are no other members" {
            "discovery": String = "";
            "initial-cluster-state": String = "new" in ["existing", "new"];
        }
    }
}

pub(crate) const FLAGS: FlagSet<Values> = FlagSet {
    program: "server",
    about: "A server.\n",
    sections: SECTIONS,
    version: || "1.0\n".to_owned(),
    variable_prefix: "ETCD_",
    known_variables: &["ETCD_UNSUPPORTED_ARCH"],
    file_mappings: &[
        FileMapping {
            name: "client-transport-security",
            prefix: "",
            other_names: &[("allowed-hostname", "client-cert-allowed-hostname")],
        },
        FileMapping {
            name: "peer-transport-security",
            prefix: "peer-",
            other_names: &[],
        },
    ],
    foreign: ForeignFlags {
        program: "other",
        switches: &["other-switch", "auto-tls"],
        with_values: &["other-value"],
        accepts_others: false,
    },
    configure: |values| Ok(values.clone()),
};

type Parsed = Result<Invocation<Values>, ConfigError>;

/// Parses a command line, whose arguments are separated by blanks, and an environment.
fn parse(line: &str, variables: &[(&str, &str)]) -> Parsed {
    let variables = variables.iter();
    let variables = variables.map(|(name, value)| (name.into(), value.into()));
    FLAGS.parse(line.split_whitespace().map(Into::into), variables)
}

/// The values and warnings of a server that starts.
fn served(parsed: Parsed) -> Result<(Values, Vec<String>), ConfigError> {
    match parsed? {
        Invocation::Serve { config, warnings } => Ok((*config, warnings)),
        Invocation::Print(text) => panic!("{text}"),
    }
}

fn printed(parsed: Parsed) -> Result<String, ConfigError> {
    match parsed? {
        Invocation::Print(text) => Ok(text),
        served @ Invocation::Serve { .. } => panic!("{served:?}"),
    }
}
