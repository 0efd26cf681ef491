//! The kinds of authentication tokens and their options.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr, time::Duration};

use revstore_grpc::{JwtMethod, UnknownJwtMethod};
use revstore_host::config::{ConfigError, GoDuration};

/// The kind of token that Authenticate returns, as `--auth-token` selects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthToken {
    /// Random tokens that the server stores. The default.
    Simple,
    /// Signed tokens, which the server does not store.
    Jwt(JwtOptions),
    /// No tokens: an empty `--auth-token=`.
    Disabled,
}

/// The options of `--auth-token=jwt,...`. The files are read when the server starts, and not again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JwtOptions {
    /// The signing method, such as `RS256`.
    pub sign_method: JwtMethod,
    /// The file of the public key, which verifies signatures.
    pub public_key: Option<PathBuf>,
    /// The file of the private key, which signs. Without it, tokens are only verified. For `HS256`,
    /// `HS384` and `HS512` it contains the secret.
    pub private_key: Option<PathBuf>,
    /// The time to live of a token. Default 5 minutes.
    pub ttl: Duration,
    /// The names of unknown options, sorted. They have no effect.
    pub unknown: Vec<String>,
}

const DEFAULT_JWT_TTL: Duration = Duration::from_secs(300);
const KNOWN_OPTIONS: [&str; 4] = ["sign-method", "pub-key", "priv-key", "ttl"];

impl FromStr for AuthToken {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let invalid = || ConfigError::new("auth: invalid auth options");
        let mut parts = text.split(',');
        let kind = parts.next().unwrap_or_default();
        let mut options = BTreeMap::new();
        for part in parts {
            let (name, value) = part.split_once('=').ok_or_else(invalid)?;
            if value.contains('=') || options.insert(name, value).is_some() {
                return Err(invalid());
            }
        }
        match kind {
            "" => Ok(Self::Disabled),
            "simple" => Ok(Self::Simple),
            "jwt" => JwtOptions::from_options(&options).map(Self::Jwt),
            _ => Err(invalid()),
        }
    }
}

impl JwtOptions {
    fn from_options(options: &BTreeMap<&str, &str>) -> Result<Self, ConfigError> {
        let option = |name| options.get(name).copied().filter(|value| !value.is_empty());
        let sign_method = option("sign-method").unwrap_or_default().parse();
        let unknown = options.keys().filter(|name| !KNOWN_OPTIONS.contains(name));
        Ok(Self {
            sign_method: sign_method
                .map_err(|error: UnknownJwtMethod| ConfigError::new(error.to_string()))?,
            public_key: option("pub-key").map(PathBuf::from),
            private_key: option("priv-key").map(PathBuf::from),
            // Tokens with a time to live of zero or below have expired from the start, as in etcd.
            ttl: match option("ttl") {
                Some(ttl) => GoDuration::parse(ttl)?.positive().unwrap_or_default(),
                None => DEFAULT_JWT_TTL,
            },
            unknown: unknown.map(|name| (*name).to_owned()).collect(),
        })
    }
}

impl JwtOptions {
    /// Returns a warning for each option without effect.
    pub(super) fn warnings(&self) -> Vec<String> {
        let unknown = self.unknown.iter();
        let mut warnings: Vec<_> = unknown
            .map(|name| format!("--auth-token: the unknown JWT option {name:?} has no effect"))
            .collect();
        let method = self.sign_method;
        if method.is_symmetric() && self.public_key.is_some() {
            warnings.push(format!(
                "--auth-token: pub-key has no effect with sign-method={method}"
            ));
        }
        warnings
    }
}
