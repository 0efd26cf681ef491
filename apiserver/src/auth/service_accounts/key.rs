//! Keys of tokens: signatures, their verification, and the keys as clients see them.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::key_file::{self, PublicBytes, Section};

/// The error of a file with keys of tokens of service accounts.
#[derive(Debug, Error)]
#[error("cannot use the key file {}: {reason}", path.display())]
pub struct KeyFileError {
    path: PathBuf,
    reason: String,
}

impl KeyFileError {
    fn new(path: &Path, reason: &(impl ToString + ?Sized)) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// The maximum size of a key file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The smallest and the largest modulus of an RSA key that can be used, in bytes.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

fn read(path: &Path) -> Result<Vec<u8>, KeyFileError> {
    let fail = |error: std::io::Error| KeyFileError::new(path, &error);
    let metadata = path.metadata().map_err(fail)?;
    if !metadata.is_file() {
        return Err(KeyFileError::new(path, "it is no regular file"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(KeyFileError::new(path, "it is larger than 1 MiB"));
    }
    std::fs::read(path).map_err(fail)
}

/// A key that signs tokens.
pub(super) struct SigningKey {
    pair: Pair,
    public: PublicKey,
    random: SystemRandom,
}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ecdsa(Box<EcdsaKeyPair>),
}

/// Does not print the key.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.public.id).finish()
    }
}

impl SigningKey {
    /// Returns a new key of P-256.
    pub(super) fn generate() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random);
        let document = document.expect("the system has random numbers");
        Self::from_der(document.as_ref()).expect("a new key is valid")
    }

    /// Reads the first private key of a file in PEM.
    ///
    /// # Errors
    /// The file cannot be read, or its first private key is not one of RSA, P-256 or P-384.
    pub(super) fn open(path: &Path) -> Result<Self, KeyFileError> {
        let file = read(path)?;
        let mut sections = key_file::sections(&file).into_iter();
        let der = sections.find_map(|section| match section {
            Section::Private(der) => Some(der),
            Section::Public(_) => None,
        });
        let missing = "data does not contain a valid RSA or ECDSA private key";
        let der = der.ok_or_else(|| KeyFileError::new(path, missing))?;
        Self::from_der(&der).map_err(|reason| KeyFileError::new(path, &reason))
    }

    fn from_der(der: &[u8]) -> Result<Self, String> {
        let random = SystemRandom::new();
        if let Some(key) = key_file::ec_private_key(der) {
            let (algorithm, public) = match key.public.len() {
                65 => (
                    &ECDSA_P256_SHA256_FIXED_SIGNING,
                    PublicBytes::P256(&key.public),
                ),
                97 => (
                    &ECDSA_P384_SHA384_FIXED_SIGNING,
                    PublicBytes::P384(&key.public),
                ),
                _ => return Err("the curve must be P-256 or P-384".to_owned()),
            };
            let pair = EcdsaKeyPair::from_private_key_and_public_key(
                algorithm,
                &key.private,
                &key.public,
                &random,
            );
            let pair = pair.map_err(|error| error.to_string())?;
            return Ok(Self {
                public: PublicKey::new(public).ok_or("the public key is invalid")?,
                pair: Pair::Ecdsa(Box::new(pair)),
                random,
            });
        }
        let pair = RsaKeyPair::from_pkcs8(der).or_else(|error| {
            // The first error is that of PKCS #8, which most files have.
            RsaKeyPair::from_der(der).map_err(|_| error)
        });
        let pair = pair.map_err(|error| {
            format!(
                "the private key must be one of RSA with 2048 to 4096 bits, or one of P-256 or P-384 with its public \
                 key: {error}"
            )
        })?;
        let public = PublicKey::new(PublicBytes::Rsa(pair.public_key().as_ref()));
        Ok(Self {
            public: public.ok_or("the public key is invalid")?,
            pair: Pair::Rsa(Box::new(pair)),
            random,
        })
    }

    /// Returns the public half of the key.
    pub(super) fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns a signed token with claims.
    pub(super) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": self.public.algorithm, "kid": self.public.id});
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signature = match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(
                    &RSA_PKCS1_SHA256,
                    &self.random,
                    signed.as_bytes(),
                    &mut signature,
                )
                .map(|()| signature)
            }
            Pair::Ecdsa(pair) => pair
                .sign(&self.random, signed.as_bytes())
                .map(|signature| signature.as_ref().to_vec()),
        };
        let signature = signature.expect("the system has random numbers");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A key that verifies tokens.
#[derive(Clone)]
pub(super) struct PublicKey {
    /// The name of the key, from which it cannot be computed.
    pub(super) id: String,
    /// The only algorithm of its signatures.
    pub(super) algorithm: &'static str,
    key: UnparsedPublicKey<Vec<u8>>,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PublicKey").field(&self.id).finish()
    }
}

impl PublicKey {
    /// Returns a key, unless its size is not one that can be used.
    fn new(bytes: PublicBytes<'_>) -> Option<Self> {
        let (algorithm, verification, key): (_, &'static dyn VerificationAlgorithm, _) = match bytes
        {
            PublicBytes::Rsa(key) => ("RS256", &RSA_PKCS1_2048_8192_SHA256, key),
            PublicBytes::P256(key) => ("ES256", &ECDSA_P256_SHA256_FIXED, key),
            PublicBytes::P384(key) => ("ES384", &ECDSA_P384_SHA384_FIXED, key),
        };
        let is_usable = match bytes {
            PublicBytes::Rsa(key) => {
                let (modulus, _) = key_file::rsa_numbers(key).ok()?;
                MODULUS_BYTES.contains(&modulus.len())
            }
            PublicBytes::P256(key) => key.len() == 65 && key[0] == 4,
            PublicBytes::P384(key) => key.len() == 97 && key[0] == 4,
        };
        let info = key_file::info_of(bytes).filter(|_| is_usable)?;
        Some(Self {
            id: URL_SAFE_NO_PAD.encode(Sha256::digest(info)),
            algorithm,
            key: UnparsedPublicKey::new(verification, key.to_vec()),
        })
    }

    /// Reads all keys of a file in PEM: public and private keys, and those of certificates.
    ///
    /// # Errors
    /// The file cannot be read, or has no key that can be used.
    pub(super) fn open(path: &Path) -> Result<Vec<Self>, KeyFileError> {
        let file = read(path)?;
        let mut keys = Vec::new();
        for section in key_file::sections(&file) {
            let key = match section {
                Section::Public(info) => key_file::public_bytes(&info).and_then(Self::new),
                Section::Private(der) => SigningKey::from_der(&der).ok().map(|key| key.public),
            };
            keys.extend(key);
        }
        if keys.is_empty() {
            let reason = "data does not contain any valid RSA or ECDSA public keys (those of RSA with 2048 to 8192 bits, \
                          P-256 and P-384)";
            return Err(KeyFileError::new(path, reason));
        }
        Ok(keys)
    }

    /// Returns whether a signature is that of the message.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verify(message, signature).is_ok()
    }

    /// Returns the JSON Web Key, with the fields in the order of kube-apiserver.
    pub(super) fn to_jwk(&self) -> String {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (id, algorithm, bytes) = (&self.id, self.algorithm, self.key.as_ref());
        let curve = match algorithm {
            "RS256" => {
                let (modulus, exponent) = key_file::rsa_numbers(bytes).unwrap_or_default();
                return format!(
                    r#"{{"use":"sig","kty":"RSA","kid":"{id}","alg":"{algorithm}","n":"{}","e":"{}"}}"#,
                    encode(&modulus),
                    encode(&exponent)
                );
            }
            "ES256" => "P-256",
            _ => "P-384",
        };
        let (x, y) = bytes[1..].split_at(bytes.len() / 2);
        format!(
            r#"{{"use":"sig","kty":"EC","kid":"{id}","crv":"{curve}","alg":"{algorithm}","x":"{}","y":"{}"}}"#,
            encode(x),
            encode(y)
        )
    }
}
