//! Why a command line, an environment or a file does not make a configuration.

use std::{io, path::PathBuf};

use revstore_host::config::{EndpointUrl, HostPortError, ListenUrlError, UrlError};

use crate::{auth_token::AuthTokenError, auto_compaction::AutoCompactionError};

/// Everything that can be wrong with a configuration. Where etcd has a text for it, this is it.
///
/// The first group is about single flags and exits with status 2, the rest with status 1 (FL-7):
/// see [`ConfigError::exit_code`].
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Three dashes, a lone `=`, or bytes that are not UTF-8.
    #[error("bad flag syntax: {argument}")]
    BadSyntax {
        /// The argument.
        argument: String,
    },
    /// A flag that does not exist.
    #[error("flag provided but not defined: -{flag}")]
    UnknownFlag {
        /// Its name, without dashes.
        flag: String,
    },
    /// The last argument is a flag that needs a value.
    #[error("flag needs an argument: -{flag}")]
    MissingValue {
        /// Its name, without dashes.
        flag: String,
    },
    /// A value the flag does not take.
    #[error("invalid value {value:?} for flag -{flag}: {reason}")]
    BadValue {
        /// Its name, without dashes.
        flag: String,
        /// The value.
        value: String,
        /// What is wrong with it.
        reason: ValueError,
    },
    /// A value other than true and false.
    #[error("invalid boolean value {value:?} for -{flag}: {reason}")]
    BadBoolean {
        /// The flag's name, without dashes.
        flag: String,
        /// The value.
        value: String,
        /// What is wrong with it.
        reason: ValueError,
    },

    /// An argument that is not a flag, such as the `false` of `--auto-tls false`.
    #[error("'{argument}' is not a valid flag")]
    StrayArgument {
        /// The argument.
        argument: String,
    },
    /// A variable with a value its flag does not take.
    #[error("invalid value {value:?} for {variable}: {reason}")]
    BadVariable {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: ValueError,
    },
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    FileUnreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The configuration file is not YAML.
    #[error("the configuration file {} is not valid YAML: {source}", path.display())]
    FileSyntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: saphyr::ScanError,
    },
    /// The configuration file is YAML of another shape.
    #[error("the configuration file {} does not map flag names to values", path.display())]
    FileShape {
        /// The file.
        path: PathBuf,
    },
    /// The configuration file has a value its flag does not take.
    #[error("invalid value {value:?} for {key} in the configuration file {}: {reason}", path.display())]
    FileValue {
        /// The file.
        path: PathBuf,
        /// The flag's name, which is the key.
        key: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        reason: ValueError,
    },
    /// FL-8.
    #[error("--advertise-client-urls is required when --listen-client-urls is set explicitly")]
    NoAdvertiseClientUrls,
    /// FL-10.
    #[error(transparent)]
    ListenUrl(#[from] ListenUrlError),
    /// A URL that no one could dial (TL-3).
    #[error("--{flag} {urls:?} must be \"host:port\" ({source})")]
    NotDialable {
        /// The flag.
        flag: &'static str,
        /// All URLs given with it.
        urls: String,
        /// What is wrong with one of them.
        source: HostPortError,
    },
    /// A URL for gRPC and HTTP stands also in the list for HTTP alone (HT-13).
    #[error(
        "cannot bind both --listen-client-urls and --listen-client-http-urls on the same url {url}"
    )]
    SharedHttpUrl {
        /// The URL.
        url: EndpointUrl,
    },
    /// `--initial-cluster` has a URL that is none.
    #[error("error setting up initial cluster: {source}")]
    InitialCluster {
        /// What is wrong with it.
        #[from]
        source: UrlError,
    },
    /// `--initial-cluster` does not name this member.
    #[error("couldn't find local name {name:?} in the initial cluster configuration")]
    NotInCluster {
        /// The name of this member.
        name: String,
    },
    /// FL-22.
    #[error("--{flag} must be >0 (set to 0ms)")]
    ZeroTiming {
        /// The flag.
        flag: &'static str,
    },
    /// FL-22.
    #[error(
        "--election-timeout[{election_ms}ms] should be at least as 5 times as \
         --heartbeat-interval[{heartbeat_ms}ms]"
    )]
    ElectionTooShort {
        /// The election timeout.
        election_ms: u64,
        /// The heartbeat interval.
        heartbeat_ms: u64,
    },
    /// FL-22.
    #[error("--election-timeout[{election_ms}ms] is too long, and should be set less than 50000ms")]
    ElectionTooLong {
        /// The election timeout.
        election_ms: u64,
    },
    /// AC-1, AC-2.
    #[error(transparent)]
    AutoCompaction(#[from] AutoCompactionError),
    /// `--auth-token` asks for something unknown.
    #[error(transparent)]
    AuthToken(#[from] AuthTokenError),
    /// `--log-level` names none.
    #[error("unrecognized level: {level:?}")]
    LogLevel {
        /// The level.
        level: String,
    },
    /// `--log-outputs=default` stands for all there is, and goes with nothing else.
    #[error("multi logoutput for \"default\" is not supported yet")]
    DefaultLogOutput,
    /// `--tls-min-version` or `--tls-max-version` names none.
    #[error("unexpected TLS version {version:?} (must be one of: TLS1.2, TLS1.3)")]
    TlsVersion {
        /// The version.
        version: String,
    },
    /// No version is left between the two.
    #[error("min version (TLS1.3) is greater than max version (TLS1.2)")]
    TlsVersions,
    /// TLS 1.3 has suites of its own, which cannot be chosen.
    #[error("cipher suites cannot be configured when only TLS1.3 is enabled")]
    CipherSuites,
    /// A URL needs TLS, and there is no certificate (TL-1).
    #[error(
        "TLS key/cert (--cert-file, --key-file) must be provided for client url {url} with HTTPS \
         scheme"
    )]
    NoCertificate {
        /// The URL.
        url: EndpointUrl,
    },
    /// The same for a metrics URL (HT-12).
    #[error(
        "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url"
    )]
    NoMetricsCertificate,
    /// One half of a certificate (TL-1).
    #[error("KeyFile and CertFile must both be present[key: {key_file}, cert: {cert_file}]")]
    HalfCertificate {
        /// The key file, perhaps empty.
        key_file: String,
        /// The certificate file, perhaps empty.
        cert_file: String,
    },
    /// `--start-revision` out of range.
    #[error("--start-revision must be from 1 to {}", i64::MAX / 2)]
    StartRevision,
    /// A duration of ours that must be above zero.
    #[error("--{flag} must be above 0")]
    NotPositive {
        /// The flag.
        flag: &'static str,
    },
}

impl ConfigError {
    /// The status to exit with: 2 for a flag that Go's parser would refuse, 1 for the rest (FL-7).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BadSyntax { .. }
            | Self::UnknownFlag { .. }
            | Self::MissingValue { .. }
            | Self::BadValue { .. }
            | Self::BadBoolean { .. } => 2,
            _ => 1,
        }
    }
}

/// Why a text is not a value of a flag. The short texts are Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not of the flag's type.
    #[error("parse error")]
    Syntax,
    /// A number beyond the flag's type.
    #[error("value out of range")]
    Range,
    /// Not one of a few words.
    #[error("must be one of: {}", allowed.join(", "))]
    Word {
        /// The words.
        allowed: &'static [&'static str],
    },
    /// Not a list of URLs.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A variable whose value is not UTF-8.
    #[error("not valid UTF-8")]
    Encoding,
    /// A list or a mapping where the configuration file should have a single value.
    #[error("a single value or a list of values is expected")]
    Nested,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: &ConfigError, exit_code: u8, text: &str) {
        assert_eq!(
            (error.exit_code(), error.to_string().as_str()),
            (exit_code, text)
        );
    }

    #[test]
    fn fl_7_exit_codes() {
        check(
            &ConfigError::UnknownFlag {
                flag: "x".to_owned(),
            },
            2,
            "flag provided but not defined: -x",
        );
        check(
            &ConfigError::StrayArgument {
                argument: "x".to_owned(),
            },
            1,
            "'x' is not a valid flag",
        );
    }
}
