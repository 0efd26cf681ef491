//! What is odd about a configuration, but no reason not to start.

use std::fmt;

use revstore_host::config::EndpointUrl;

/// Something to tell the user once there is a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A flag and its variable are both set; the flag counts (FL-3). etcd refuses to start.
    ShadowedVariable {
        /// The flag.
        flag: &'static str,
        /// The variable.
        variable: String,
    },
    /// No flag goes by this variable (FL-2).
    UnknownVariable {
        /// The variable.
        variable: String,
    },
    /// No flag goes by this key of the configuration file (FL-4).
    UnknownKey {
        /// The key.
        key: String,
    },
    /// There are flags beside the configuration file, and they do not count (FL-4).
    FlagsReplacedByFile,
    /// `--initial-cluster` names others, which this server cannot talk to.
    OtherMembers {
        /// How many.
        count: usize,
    },
    /// `--initial-cluster` and `--initial-advertise-peer-urls` differ. etcd refuses to start if
    /// they do not resolve to the same addresses; we resolve nothing, and the first one counts.
    AdvertisedPeerUrlsDiffer,
    /// There are certificates, and a URL that does not use them.
    PlainUrlBesideTls {
        /// The URL.
        url: EndpointUrl,
    },
    /// `--auto-tls` beside certificate files, which win.
    AutoTlsUnused,
    /// `--bcrypt-cost` is out of range; the default is used.
    BcryptCost {
        /// The cost asked for.
        given: u64,
    },
    /// `--watch-progress-notify-interval` is below 100 ms and raised to it (WA-50).
    ProgressIntervalRaised,
    /// `--auto-compaction-interval` does nothing in periodic mode.
    CompactionIntervalUnused,
    /// There is no journal to write to; lines go to standard error.
    NoJournal,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShadowedVariable { flag, variable } => {
                write!(
                    f,
                    "the variable {variable} is set as well as --{flag}; the flag is used"
                )
            }
            Self::UnknownVariable { variable } => {
                write!(f, "unrecognized environment variable {variable}")
            }
            Self::UnknownKey { key } => {
                write!(f, "unrecognized key {key:?} in the configuration file")
            }
            Self::FlagsReplacedByFile => f.write_str(
                "a configuration file is given; other flags and environment variables are ignored",
            ),
            Self::OtherMembers { count } => write!(
                f,
                "--initial-cluster names {count} other members; this server runs alone and only \
                 takes the ids from them"
            ),
            Self::AdvertisedPeerUrlsDiffer => f.write_str(
                "--initial-advertise-peer-urls differs from this member's URLs in \
                 --initial-cluster; the member id is that of --initial-cluster",
            ),
            Self::PlainUrlBesideTls { url } => write!(
                f,
                "scheme is http or unix while key and cert files are present; ignoring key and \
                 cert files for {url}"
            ),
            Self::AutoTlsUnused => f.write_str("ignoring --auto-tls since certificates are given"),
            Self::BcryptCost { given } => {
                write!(
                    f,
                    "--bcrypt-cost {given} is not from 4 to 31; the default 10 is used"
                )
            }
            Self::ProgressIntervalRaised => {
                f.write_str("--watch-progress-notify-interval is raised to its minimum of 100ms")
            }
            Self::CompactionIntervalUnused => f.write_str(
                "--auto-compaction-interval has no effect in periodic mode, which follows the \
                 retention",
            ),
            Self::NoJournal => f.write_str(
                "--log-outputs=systemd/journal is not supported; the log goes to standard error",
            ),
        }
    }
}
