//! What `--auth-token` asks for.

use std::{path::PathBuf, time::Duration};

use revstore_host::config::{DurationError, GoDuration};

/// The kind of token that Authenticate hands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthToken {
    /// Random tokens that the server remembers. The default.
    Simple,
    /// Signed tokens.
    Jwt(JwtOptions),
    /// None: an empty `--auth-token=`.
    Disabled,
}

/// The options behind `--auth-token=jwt,...`. The key files are not read here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtOptions {
    /// The signing method, such as `RS256`.
    pub sign_method: String,
    /// The file of the public key, to verify with.
    pub public_key: Option<PathBuf>,
    /// The file of the private key, to sign with.
    pub private_key: Option<PathBuf>,
    /// How long a token is valid; default 5 minutes.
    pub ttl: Duration,
}

/// Why a text is not an [`AuthToken`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthTokenError {
    /// An unknown kind, or options that are not `name=value`, each once.
    #[error("auth: invalid auth options")]
    Options,
    /// No signing method, or an unknown one.
    #[error("auth: invalid auth signature method")]
    SignMethod,
    /// A lifetime that is no duration.
    #[error(transparent)]
    Ttl(#[from] DurationError),
}

const SIGN_METHODS: [&str; 12] = [
    "ES256", "ES384", "ES512", "HS256", "HS384", "HS512", "PS256", "PS384", "PS512", "RS256",
    "RS384", "RS512",
];

const DEFAULT_JWT_TTL: Duration = Duration::from_secs(300);

impl AuthToken {
    pub(crate) fn parse(text: &str) -> Result<Self, AuthTokenError> {
        let mut parts = text.split(',');
        let kind = parts.next().unwrap_or_default();
        let mut options: Vec<(&str, &str)> = Vec::new();
        for part in parts {
            match part.split_once('=') {
                Some((name, value))
                    if !value.contains('=') && options.iter().all(|(seen, _)| *seen != name) =>
                {
                    options.push((name, value));
                }
                _ => return Err(AuthTokenError::Options),
            }
        }
        match kind {
            "" => Ok(Self::Disabled),
            "simple" => Ok(Self::Simple),
            "jwt" => JwtOptions::from_options(&options).map(Self::Jwt),
            _ => Err(AuthTokenError::Options),
        }
    }
}

impl JwtOptions {
    /// Unknown options are ignored, as in etcd.
    fn from_options(options: &[(&str, &str)]) -> Result<Self, AuthTokenError> {
        let option = |name| {
            let found = options.iter().find(|(known, _)| *known == name);
            found
                .map(|(_, value)| *value)
                .filter(|value| !value.is_empty())
        };
        let sign_method = option("sign-method")
            .filter(|method| SIGN_METHODS.contains(method))
            .ok_or(AuthTokenError::SignMethod)?;
        let ttl = match option("ttl") {
            // A lifetime of zero or below gives tokens that have expired already; we keep that.
            Some(ttl) => GoDuration::parse(ttl)?.positive().unwrap_or_default(),
            None => DEFAULT_JWT_TTL,
        };
        Ok(Self {
            sign_method: sign_method.to_owned(),
            public_key: option("pub-key").map(PathBuf::from),
            private_key: option("priv-key").map(PathBuf::from),
            ttl,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<AuthToken, &str>) {
        let actual = AuthToken::parse(text).map_err(|error| error.to_string());
        assert_eq!(actual, expected.map_err(str::to_owned), "{text:?}");
    }

    #[test]
    fn fl_20_auth_token() {
        check("simple", Ok(AuthToken::Simple));
        check("", Ok(AuthToken::Disabled));
        check(
            "jwt,pub-key=app.rsa.pub,priv-key=app.rsa,sign-method=RS512,ttl=10m",
            Ok(AuthToken::Jwt(JwtOptions {
                sign_method: "RS512".to_owned(),
                public_key: Some("app.rsa.pub".into()),
                private_key: Some("app.rsa".into()),
                ttl: Duration::from_secs(600),
            })),
        );
        check("jwt", Err("auth: invalid auth signature method"));
        check(
            "jwt,sign-method=none",
            Err("auth: invalid auth signature method"),
        );
        check("jwt,sign-method", Err("auth: invalid auth options"));
        check("jwt,ttl=1s,ttl=2s", Err("auth: invalid auth options"));
        check("paseto", Err("auth: invalid auth options"));
        check(
            "jwt,sign-method=HS256,ttl=5",
            Err("time: missing unit in duration \"5\""),
        );
    }
}
