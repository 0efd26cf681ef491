//! The kinds of authentication tokens and their options.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr, time::Duration};

use revstore_host::config::{ConfigError, GoDuration};

/// The kind of token that Authenticate returns, as `--auth-token` selects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthToken {
    /// Random tokens that the server stores. The default.
    Simple,
    /// Signed tokens. This server does not start with them.
    Jwt(JwtOptions),
    /// No tokens: an empty `--auth-token=`.
    Disabled,
}

/// The options of `--auth-token=jwt,...`. The files are not read here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JwtOptions {
    /// The signing method, such as `RS256`.
    pub sign_method: String,
    /// The file of the public key, which verifies signatures.
    pub public_key: Option<PathBuf>,
    /// The file of the private key, which signs.
    pub private_key: Option<PathBuf>,
    /// The time to live of a token. Default 5 minutes.
    pub ttl: Duration,
}

const DEFAULT_JWT_TTL: Duration = Duration::from_secs(300);

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
    /// Ignores unknown options, as etcd does.
    fn from_options(options: &BTreeMap<&str, &str>) -> Result<Self, ConfigError> {
        let option = |name| options.get(name).copied().filter(|value| !value.is_empty());
        let sign_method = option("sign-method").unwrap_or_default();
        let (family, bits) = sign_method.split_at_checked(2).unwrap_or_default();
        if !matches!(family, "ES" | "HS" | "PS" | "RS") || !matches!(bits, "256" | "384" | "512") {
            return Err(ConfigError::new("auth: invalid auth signature method"));
        }
        Ok(Self {
            sign_method: sign_method.to_owned(),
            public_key: option("pub-key").map(PathBuf::from),
            private_key: option("priv-key").map(PathBuf::from),
            // Tokens with a time to live of zero or below have expired from the start, as in etcd.
            ttl: match option("ttl") {
                Some(ttl) => GoDuration::parse(ttl)?.positive().unwrap_or_default(),
                None => DEFAULT_JWT_TTL,
            },
        })
    }
}
