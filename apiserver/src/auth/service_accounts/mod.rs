//! The tokens of service accounts: JSON Web Tokens that any server with their keys accepts.
//!
//! | file | contents |
//! |---|---|
//! | `options.rs` | the options of the command line |
//! | `claims.rs` | what a token says, and when it is valid |
//! | `lookup.rs` | whether the objects that a token names still exist |
//! | `key.rs` | signatures and their verification |
//! | `key_file.rs` | the contents of key files |

mod claims;
mod key;
mod key_file;
mod lookup;
mod options;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

pub(crate) use claims::Claims;
pub use key::KeyFileError;
use key::PublicKey;
use key::SigningKey;
pub(crate) use lookup::check_objects;
pub use options::ServiceAccountOptions;

/// The issuer of tokens, unless a flag names it.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The path of the document that describes the issuer.
pub(crate) const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
/// The path of the public keys.
pub(crate) const KEYS_PATH: &str = "/openid/v1/jwks";
/// The maximum size of a token. A longer one is unknown, and nothing of it is decoded. Tokens of this server have less
/// than 2 KiB.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// Signs and verifies the tokens of service accounts.
#[derive(Debug)]
pub(crate) struct ServiceAccounts {
    /// The issuers of the tokens that are accepted. The first one is that of new tokens.
    issuers: Vec<String>,
    /// Who new tokens are for, and the server itself.
    pub(crate) audiences: Vec<String>,
    /// The longest lifetime of a token, in seconds.
    pub(crate) max_seconds: Option<i64>,
    /// Whether tokens of pods live longer than asked, as kube-apiserver lets them.
    pub(crate) extends: bool,
    signing_key: SigningKey,
    /// The keys of the tokens that are accepted.
    keys: Vec<PublicKey>,
    /// The documents at [`CONFIGURATION_PATH`] and [`KEYS_PATH`], if the issuer can be described.
    pub(crate) documents: Option<Documents>,
}

/// The documents that describe the issuer of tokens to others.
#[derive(Clone, Debug)]
pub(crate) struct Documents {
    pub(crate) configuration: String,
    pub(crate) keys: String,
}

impl ServiceAccounts {
    /// Reads the keys. Without a file of the key that signs, a new one is made.
    ///
    /// # Errors
    /// A file cannot be read, or has no key that can be used.
    pub(crate) fn open(
        options: &ServiceAccountOptions,
        endpoint: &str,
    ) -> Result<Self, KeyFileError> {
        let signing_key = match &options.signing_key_file {
            Some(path) => SigningKey::open(path)?,
            None => SigningKey::generate(),
        };
        let mut keys = Vec::new();
        for path in &options.key_files {
            keys.extend(PublicKey::open(path)?);
        }
        // As in kube-apiserver, keys of files are all that count: one that signs may be none of them.
        if options.key_files.is_empty() || options.signing_key_file.is_none() {
            keys.push(signing_key.public().clone());
        }
        let mut issuers = options.issuers.clone();
        if issuers.is_empty() {
            issuers.push(ISSUER.to_owned());
        }
        let audiences = match options.audiences.as_slice() {
            [] => issuers.clone(),
            audiences => audiences.to_vec(),
        };
        let keys_url = match &options.jwks_uri {
            Some(url) => url.clone(),
            None => format!("{endpoint}{KEYS_PATH}"),
        };
        Ok(Self {
            documents: documents(&issuers[0], &keys_url, &keys),
            issuers,
            audiences,
            max_seconds: options
                .max_expiration
                .map(|time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX)),
            extends: options.extend_expiration,
            signing_key,
            keys,
        })
    }

    /// Returns the issuer of new tokens.
    pub(crate) fn issuer(&self) -> &str {
        &self.issuers[0]
    }

    /// Returns a signed token with claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.signing_key.sign(claims)
    }

    /// Returns what a token says that one of the keys has signed, and that is valid at `now`, in seconds since 1970, for
    /// one of the audiences. The objects that it names may be gone.
    ///
    /// # Errors
    /// Why the token is invalid; `None` if it is none of a service account.
    pub(crate) fn verify(
        &self,
        token: &str,
        audiences: &[String],
        now: i64,
    ) -> Result<Claims, Option<String>> {
        let Parts {
            signed,
            header,
            payload,
            signature,
        } = Parts::of(token).ok_or(None)?;
        let claims = Claims::parse(&payload).ok_or(None)?;
        if !self.issuers.contains(&claims.issuer) {
            return Err(None);
        }
        let header: Value = serde_json::from_slice(&header).map_err(|_| None)?;
        if !header.is_object() || header.get("crit").is_some() {
            return Err(None);
        }
        let id = header["kid"].as_str().unwrap_or_default();
        let mut keys = self
            .keys
            .iter()
            .filter(|key| id.is_empty() || key.id == id)
            .peekable();
        if keys.peek().is_none() {
            return Err(Some("invalid signature, no keys found".to_owned()));
        }
        // The algorithm is that of the key: a token cannot choose another one, or none.
        let mut keys = keys.filter(|key| header["alg"] == key.algorithm);
        if !keys.any(|key| key.verifies(signed.as_bytes(), &signature)) {
            return Err(Some("the signature is invalid".to_owned()));
        }
        claims.check_audiences(&self.audiences, audiences)?;
        claims.check_time(now)?;
        Ok(claims)
    }
}

/// The parts of a token.
struct Parts<'a> {
    /// What is signed: the first two parts.
    signed: &'a str,
    header: Vec<u8>,
    payload: Vec<u8>,
    signature: Vec<u8>,
}

impl<'a> Parts<'a> {
    fn of(token: &'a str) -> Option<Self> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        Some(Self {
            signed,
            header: decode(header)?,
            payload: decode(payload)?,
            signature: decode(signature)?,
        })
    }
}

/// Returns the documents about an issuer. Clients of others find them only if it is a URL with HTTPS, without a query or a
/// fragment; otherwise there are none, as in kube-apiserver.
fn documents(issuer: &str, keys_url: &str, keys: &[PublicKey]) -> Option<Documents> {
    if !issuer.starts_with("https://") || issuer.contains(['?', '#']) {
        return None;
    }
    let mut algorithms: Vec<_> = keys.iter().map(|key| key.algorithm).collect();
    algorithms.sort_unstable();
    algorithms.dedup();
    let text = |value: &str| Value::from(value).to_string();
    let configuration = format!(
        r#"{{"issuer":{},"jwks_uri":{},"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":{}}}"#,
        text(issuer),
        text(keys_url),
        Value::from(algorithms)
    );
    let keys: Vec<String> = keys.iter().map(PublicKey::to_jwk).collect();
    Some(Documents {
        configuration,
        keys: format!(r#"{{"keys":[{}]}}"#, keys.join(",")),
    })
}
