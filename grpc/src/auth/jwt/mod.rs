//! JWT tokens: signed claims that the server does not store; etcd's `tokenJWT`.
//!
//! | file | contents |
//! |---|---|
//! | `method.rs` | the signing methods |
//! | `key.rs` | signatures and their verification |
//! | `key_file.rs` | the contents of key files |

mod key;
mod key_file;
mod method;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value, json};

use self::key::JwtKey;
pub use self::key::JwtKeyError;
pub use self::method::{JwtMethod, UnknownJwtMethod};
use crate::status::EtcdError;

/// The maximum size of a token. A longer one is invalid, and nothing of it is decoded. Tokens of etcd
/// have less than 2 KiB; those of other issuers may have more claims.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// Base64url without padding. Unused bits of the last letter are ignored, as in Go.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// Signs and verifies JWT tokens with one key and one method.
///
/// A token contains the user, the auth revision and the time at which it expires. Any server with the
/// key accepts it, etcd included, and it cannot be revoked. After a change of users, roles or
/// permissions, requests for keys need a new token.
///
/// ```
/// use std::time::Duration;
/// use revstore_grpc::{AuthOptions, AuthTokens, JwtMethod, JwtTokens};
/// let ttl = Duration::from_secs(300);
/// let tokens = JwtTokens::new(JwtMethod::Hs256, None, Some(b"secret"), ttl)?;
/// let options = AuthOptions::default().tokens(AuthTokens::Jwt(tokens));
/// # Ok::<(), revstore_grpc::JwtKeyError>(())
/// ```
// AU-14
#[derive(Clone)]
pub struct JwtTokens {
    method: JwtMethod,
    key: Arc<JwtKey>,
    ttl: Duration,
    wall_clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

/// What a valid token says about its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JwtUser {
    pub(super) name: String,
    /// The auth revision at which the token was created.
    pub(super) revision: u64,
}

impl JwtTokens {
    /// Creates tokens that are valid for `ttl`. `public` and `private` are the contents of the key
    /// files. Without a private key, tokens are verified but not created.
    ///
    /// For HMAC, the secret is the whole content of the private file. All other keys are in PEM
    /// format: private keys in PKCS #1, PKCS #8 or SEC 1, public keys in PKIX or in a certificate.
    ///
    /// # Errors
    /// [`JwtKeyError`] if there is no key, or if the keys do not fit the method or each other.
    pub fn new(
        method: JwtMethod,
        public: Option<&[u8]>,
        private: Option<&[u8]>,
        ttl: Duration,
    ) -> Result<Self, JwtKeyError> {
        Ok(Self {
            method,
            key: Arc::new(JwtKey::new(method, public, private)?),
            ttl,
            wall_clock: Arc::new(SystemTime::now),
        })
    }

    /// Sets the source of the time of day, for tests. The default is that of the system.
    #[must_use]
    pub fn wall_clock(self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self {
            wall_clock: Arc::new(now),
            ..self
        }
    }

    /// Returns whether tokens can be created.
    pub fn can_sign(&self) -> bool {
        self.key.can_sign()
    }

    /// Creates a token (AU-15).
    pub(super) fn assign(&self, user: &str, revision: u64) -> Result<String, EtcdError> {
        if !self.can_sign() {
            return Err(EtcdError::VerifyOnly);
        }
        let expiry = self.unix_seconds(self.ttl);
        let header = json!({ "alg": self.method.name(), "typ": "JWT" });
        let claims = json!({ "exp": expiry, "revision": revision, "username": user });
        let [header, claims] = [header, claims].map(|part| BASE64.encode(part.to_string()));
        let message = format!("{header}.{claims}");
        let signature = self.key.sign(message.as_bytes());
        let signature = signature.ok_or(EtcdError::Internal)?;
        Ok(format!("{message}.{}", BASE64.encode(signature)))
    }

    /// Returns the user of a token, if the token is valid (AU-15).
    pub(super) fn user_of(&self, token: &str) -> Option<JwtUser> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        // The method of the token must be that of the key. Otherwise a public key could be used as
        // the secret of HMAC.
        if object(header)?.get("alg")?.as_str()? != self.method.name() {
            return None;
        }
        let signature = BASE64.decode(signature).ok()?;
        if !self.key.verifies(message.as_bytes(), &signature) {
            return None;
        }
        let claims = object(claims)?;
        if !is_valid_at(&claims, self.unix_seconds(Duration::ZERO)) {
            return None;
        }
        Some(JwtUser {
            name: claims.get("username")?.as_str()?.to_owned(),
            revision: whole(claims.get("revision")?.as_f64()?).cast_unsigned(),
        })
    }

    /// Returns the time of day after `delay`, in seconds since 1970.
    fn unix_seconds(&self, delay: Duration) -> i64 {
        let now = (self.wall_clock)();
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = now.unwrap_or_default().saturating_add(delay).as_secs();
        i64::try_from(seconds).unwrap_or(i64::MAX)
    }
}

/// Does not print keys.
impl fmt::Debug for JwtTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tokens = formatter.debug_struct("JwtTokens");
        tokens.field("method", &self.method).field("key", &self.key);
        tokens.field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// Decodes a JSON object. `serde_json` limits the depth of its nesting.
fn object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&BASE64.decode(part).ok()?).ok()
}

/// Returns whether the times of a token allow its use. A time that is absent or 0 sets no limit, and
/// a token has expired in the second of `exp`.
fn is_valid_at(claims: &Map<String, Value>, now: i64) -> bool {
    let is_met = |name, condition: fn(i64, i64) -> bool| match claims.get(name) {
        None => true,
        Some(time) => match time.as_f64() {
            Some(0.0) => true,
            Some(time) => condition(now, whole(time)),
            None => false,
        },
    };
    is_met("exp", |now, expiry| now < expiry)
        && is_met("iat", |now, issued| issued <= now)
        && is_met("nbf", |now, start| start <= now)
}

/// Returns a number without its fraction. Numbers out of range become the nearest in range.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the conversion is saturating"
)]
fn whole(number: f64) -> i64 {
    number as i64
}
