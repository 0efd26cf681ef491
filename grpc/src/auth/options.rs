//! Options of authentication.

use std::time::Duration;

use super::jwt::JwtTokens;

/// The default cost of bcrypt. It also replaces a cost that is out of range.
const BCRYPT_COST_DEFAULT: u32 = 10;

/// Options of authentication.
///
/// ```
/// use revstore_grpc::{AuthOptions, AuthTokens};
/// let options = AuthOptions::default().bcrypt_cost(4);
/// assert!(matches!(options.tokens, AuthTokens::Simple { .. }));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuthOptions {
    /// The kind of tokens. Default [`AuthTokens::Simple`] with a TTL of 300 s.
    pub tokens: AuthTokens,
    /// The cost of hashing a password with bcrypt, from 4 to 31. Each step doubles the time. The
    /// default is 10, which also replaces a number that is out of range.
    pub bcrypt_cost: u32,
}

impl AuthOptions {
    /// Sets the kind of tokens.
    #[must_use]
    pub fn tokens(self, tokens: AuthTokens) -> Self {
        Self { tokens, ..self }
    }

    /// Sets the cost of hashing a password, from 4 to 31.
    #[must_use]
    pub fn bcrypt_cost(self, bcrypt_cost: u32) -> Self {
        Self {
            bcrypt_cost,
            ..self
        }
    }

    /// Returns the cost, or the default if it is out of range.
    pub(super) fn effective_bcrypt_cost(&self) -> u32 {
        match self.bcrypt_cost {
            cost @ 4..=31 => cost,
            _ => BCRYPT_COST_DEFAULT,
        }
    }
}

/// The tokens that Authenticate returns.
// AU-13
#[derive(Clone, Debug)]
pub enum AuthTokens {
    /// Random words that the server keeps in memory.
    Simple {
        /// The time for which a token is valid after its last use.
        ttl: Duration,
    },
    /// Signed claims that the server does not store.
    Jwt(JwtTokens),
    /// No tokens: every Authenticate request fails.
    Disabled,
}

impl Default for AuthOptions {
    /// Returns etcd's defaults.
    fn default() -> Self {
        Self {
            tokens: AuthTokens::Simple {
                ttl: Duration::from_secs(300),
            },
            bcrypt_cost: BCRYPT_COST_DEFAULT,
        }
    }
}
