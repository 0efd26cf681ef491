//! Signing methods of JWT tokens.

use std::fmt;
use std::str::FromStr;

/// A signing method of JWT tokens, by its name in RFC 7518 or RFC 8037.
///
/// ```
/// use revstore_grpc::JwtMethod;
/// assert_eq!("RS256".parse(), Ok(JwtMethod::Rs256));
/// assert!("none".parse::<JwtMethod>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JwtMethod {
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
    /// RSA with PKCS #1 v1.5 and SHA-256.
    Rs256,
    /// RSA with PKCS #1 v1.5 and SHA-384.
    Rs384,
    /// RSA with PKCS #1 v1.5 and SHA-512.
    Rs512,
    /// RSA with PSS and SHA-256.
    Ps256,
    /// RSA with PSS and SHA-384.
    Ps384,
    /// RSA with PSS and SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// Ed25519. etcd has this method from 3.6 on.
    EdDsa,
}

/// The error of the name of an unknown signing method. The text is etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("auth: invalid auth signature method")]
pub struct UnknownJwtMethod;

impl JwtMethod {
    /// All methods.
    pub const ALL: [Self; 13] = [
        Self::Hs256,
        Self::Hs384,
        Self::Hs512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::EdDsa,
    ];

    /// Returns the name, which tokens have in their header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Hs384 => "HS384",
            Self::Hs512 => "HS512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Returns whether the key is a secret that signs and verifies. There is no public key then.
    pub fn is_symmetric(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}

impl fmt::Display for JwtMethod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for JwtMethod {
    type Err = UnknownJwtMethod;

    fn from_str(name: &str) -> Result<Self, UnknownJwtMethod> {
        let mut methods = Self::ALL.into_iter();
        methods
            .find(|method| method.name() == name)
            .ok_or(UnknownJwtMethod)
    }
}
