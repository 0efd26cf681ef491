//! Keys of JWT tokens: signatures and their verification.

use std::fmt;

use p521::ecdsa::signature::{Signer as _, Verifier as _};
use ring::rand::SystemRandom;
use ring::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaEncoding, RsaKeyPair,
    UnparsedPublicKey, VerificationAlgorithm,
};
use ring::{hmac, rand};

use super::key_file::{self, KeyKind};
use super::method::JwtMethod;

/// An error of the keys of JWT tokens. Texts that etcd has are etcd's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtKeyError {
    /// There is no key: a private key for HMAC, or any key for another method.
    #[error("auth: missing key data")]
    Missing,
    /// The public key is not that of the private key.
    #[error("auth: public and private keys don't match")]
    Mismatch,
    /// The private key cannot be used with the method.
    #[error("auth: invalid priv-key for {method}: {reason}")]
    Private {
        /// The signing method.
        method: JwtMethod,
        /// The reason.
        reason: String,
    },
    /// The public key cannot be used with the method.
    #[error("auth: invalid pub-key for {method}: {reason}")]
    Public {
        /// The signing method.
        method: JwtMethod,
        /// The reason.
        reason: String,
    },
}

/// The keys of one signing method. They verify signatures, and sign if there is a private key.
pub(super) struct JwtKey {
    verifier: Verifier,
    signer: Option<Signer>,
}

enum Verifier {
    Hmac(hmac::Key),
    Ring(UnparsedPublicKey<Vec<u8>>),
    P521(Box<p521::ecdsa::VerifyingKey>),
}

enum Signer {
    Hmac(hmac::Key),
    Rsa(Box<RsaKeyPair>, &'static dyn RsaEncoding),
    Ecdsa(Box<EcdsaKeyPair>, SystemRandom),
    P521(Box<p521::ecdsa::SigningKey>),
    Ed25519(Ed25519KeyPair),
}

/// The length of a private key of P-521.
const P521_KEY_BYTES: usize = 66;

/// How ring signs and verifies with a method.
enum Algorithm {
    Hmac(hmac::Algorithm),
    Rsa(&'static dyn VerificationAlgorithm, &'static dyn RsaEncoding),
    Ecdsa(
        KeyKind,
        &'static dyn VerificationAlgorithm,
        &'static EcdsaSigningAlgorithm,
    ),
    P521,
    Ed25519,
}

impl Algorithm {
    fn of(method: JwtMethod) -> Self {
        use JwtMethod as M;
        match method {
            M::Hs256 => Self::Hmac(hmac::HMAC_SHA256),
            M::Hs384 => Self::Hmac(hmac::HMAC_SHA384),
            M::Hs512 => Self::Hmac(hmac::HMAC_SHA512),
            M::Rs256 => Self::Rsa(
                &signature::RSA_PKCS1_2048_8192_SHA256,
                &signature::RSA_PKCS1_SHA256,
            ),
            M::Rs384 => Self::Rsa(
                &signature::RSA_PKCS1_2048_8192_SHA384,
                &signature::RSA_PKCS1_SHA384,
            ),
            M::Rs512 => Self::Rsa(
                &signature::RSA_PKCS1_2048_8192_SHA512,
                &signature::RSA_PKCS1_SHA512,
            ),
            M::Ps256 => Self::Rsa(
                &signature::RSA_PSS_2048_8192_SHA256,
                &signature::RSA_PSS_SHA256,
            ),
            M::Ps384 => Self::Rsa(
                &signature::RSA_PSS_2048_8192_SHA384,
                &signature::RSA_PSS_SHA384,
            ),
            M::Ps512 => Self::Rsa(
                &signature::RSA_PSS_2048_8192_SHA512,
                &signature::RSA_PSS_SHA512,
            ),
            M::Es256 => Self::Ecdsa(
                KeyKind::P256,
                &signature::ECDSA_P256_SHA256_FIXED,
                &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            ),
            M::Es384 => Self::Ecdsa(
                KeyKind::P384,
                &signature::ECDSA_P384_SHA384_FIXED,
                &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            ),
            M::Es512 => Self::P521,
            M::EdDsa => Self::Ed25519,
        }
    }

    /// Returns the kind of the key pair, or `None` for a secret.
    fn kind(&self) -> Option<KeyKind> {
        match self {
            Self::Hmac(_) => None,
            Self::Rsa(..) => Some(KeyKind::Rsa),
            Self::Ecdsa(kind, ..) => Some(*kind),
            Self::P521 => Some(KeyKind::P521),
            Self::Ed25519 => Some(KeyKind::Ed25519),
        }
    }
}

impl JwtKey {
    /// Reads the contents of the key files. As in etcd, an empty file is no key.
    pub(super) fn new(
        method: JwtMethod,
        public: Option<&[u8]>,
        private: Option<&[u8]>,
    ) -> Result<Self, JwtKeyError> {
        let algorithm = Algorithm::of(method);
        let public = public.filter(|file| !file.is_empty());
        let private = private.filter(|file| !file.is_empty());
        let invalid_private = |reason: String| JwtKeyError::Private { method, reason };
        let invalid_public = |reason: &str| JwtKeyError::Public {
            method,
            reason: reason.to_owned(),
        };
        let Some(kind) = algorithm.kind() else {
            return Self::hmac(&algorithm, private.ok_or(JwtKeyError::Missing)?);
        };
        let public = public
            .map(|file| key_file::public_key(file, kind))
            .transpose()
            .map_err(invalid_public)?;
        let Some(private) = private else {
            let public = public.ok_or(JwtKeyError::Missing)?;
            let verifier = Verifier::new(&algorithm, public).map_err(invalid_public)?;
            return Ok(Self {
                verifier,
                signer: None,
            });
        };
        let (signer, own_public) =
            Signer::new(&algorithm, private, public.as_deref()).map_err(invalid_private)?;
        if public.is_some_and(|public| public != own_public) {
            return Err(JwtKeyError::Mismatch);
        }
        let own = key_file::check_public_key(&own_public, kind);
        let verifier = own.and_then(|()| Verifier::new(&algorithm, own_public));
        Ok(Self {
            verifier: verifier.map_err(|reason| invalid_private(reason.to_owned()))?,
            signer: Some(signer),
        })
    }

    fn hmac(algorithm: &Algorithm, secret: &[u8]) -> Result<Self, JwtKeyError> {
        let Algorithm::Hmac(algorithm) = algorithm else {
            return Err(JwtKeyError::Missing);
        };
        let key = hmac::Key::new(*algorithm, secret);
        Ok(Self {
            verifier: Verifier::Hmac(key.clone()),
            signer: Some(Signer::Hmac(key)),
        })
    }

    /// Returns whether the key can sign.
    pub(super) fn can_sign(&self) -> bool {
        self.signer.is_some()
    }

    /// Returns the signature of a message, or `None` if there is no private key or signing fails.
    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.signer.as_ref()?.sign(message)
    }

    /// Returns whether a signature is that of the message.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.verifier {
            Verifier::Hmac(key) => hmac::verify(key, message, signature).is_ok(),
            Verifier::Ring(key) => key.verify(message, signature).is_ok(),
            Verifier::P521(key) => p521::ecdsa::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify(message, &signature).is_ok()),
        }
    }
}

/// Does not print keys.
impl fmt::Debug for JwtKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = formatter.debug_struct("JwtKey");
        key.field("can_sign", &self.can_sign());
        key.finish_non_exhaustive()
    }
}

impl Verifier {
    fn new(algorithm: &Algorithm, public: Vec<u8>) -> Result<Self, &'static str> {
        Ok(match algorithm {
            Algorithm::Rsa(verification, _) | Algorithm::Ecdsa(_, verification, _) => {
                Self::Ring(UnparsedPublicKey::new(*verification, public))
            }
            Algorithm::Ed25519 => Self::Ring(UnparsedPublicKey::new(&signature::ED25519, public)),
            Algorithm::P521 => {
                let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(&public);
                Self::P521(Box::new(key.map_err(|_| "the point is not on the curve")?))
            }
            Algorithm::Hmac(_) => return Err("the method has no public key"),
        })
    }
}

impl Signer {
    /// Returns the signer, and its public key in the form of [`key_file::public_key`]. `public` is
    /// the key of the other file, for private keys that do not contain it.
    fn new(
        algorithm: &Algorithm,
        file: &[u8],
        public: Option<&[u8]>,
    ) -> Result<(Self, Vec<u8>), String> {
        let der = key_file::private_key(file)?;
        let rejected = |error: ring::error::KeyRejected| error.to_string();
        Ok(match algorithm {
            Algorithm::Rsa(_, encoding) => {
                let pair = RsaKeyPair::from_pkcs8(&der).or_else(|error| {
                    // The other error describes PKCS #8, unless the key is in PKCS #1.
                    RsaKeyPair::from_der(&der).map_err(|other| {
                        if other.to_string() == "InvalidEncoding" {
                            error
                        } else {
                            other
                        }
                    })
                });
                let pair = pair.map_err(rejected)?;
                let public = pair.public_key().as_ref().to_vec();
                (Self::Rsa(Box::new(pair), *encoding), public)
            }
            Algorithm::Ecdsa(_, _, signing) => {
                let key = key_file::ec_private_key(&der)?;
                let public = key.public.as_deref().or(public);
                let public =
                    public.ok_or("the file contains no public key, and pub-key is not set")?;
                let random = SystemRandom::new();
                let pair = EcdsaKeyPair::from_private_key_and_public_key(
                    signing,
                    &key.private,
                    public,
                    &random,
                );
                let pair = pair.map_err(rejected)?;
                let public = pair.public_key().as_ref().to_vec();
                (Self::Ecdsa(Box::new(pair), random), public)
            }
            Algorithm::P521 => {
                let key = key_file::ec_private_key(&der)?;
                // `from_slice` also accepts the shorter keys of other curves.
                let bytes = Some(&*key.private).filter(|key| key.len() == P521_KEY_BYTES);
                let bytes = bytes.ok_or("the key is not one of P-521")?;
                let key = p521::ecdsa::SigningKey::from_slice(bytes);
                let key = key.map_err(|_| "the key is not one of P-521")?;
                let public = key.verifying_key().to_sec1_point(false);
                let public = public.as_bytes().to_vec();
                (Self::P521(Box::new(key)), public)
            }
            Algorithm::Ed25519 => {
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(rejected)?;
                let public = pair.public_key().as_ref().to_vec();
                (Self::Ed25519(pair), public)
            }
            Algorithm::Hmac(_) => return Err("the method has no key pair".to_owned()),
        })
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Hmac(key) => Some(hmac::sign(key, message).as_ref().to_vec()),
            Self::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let random: &dyn rand::SecureRandom = &SystemRandom::new();
                pair.sign(*encoding, random, message, &mut signature).ok()?;
                Some(signature)
            }
            Self::Ecdsa(pair, random) => {
                let signature = pair.sign(random, message).ok()?;
                Some(signature.as_ref().to_vec())
            }
            Self::P521(key) => {
                let signature: p521::ecdsa::Signature = key.try_sign(message).ok()?;
                Some(signature.to_bytes().to_vec())
            }
            Self::Ed25519(pair) => Some(pair.sign(message).as_ref().to_vec()),
        }
    }
}
