//! The contents of key files: PEM, and the DER structures of keys.

use rustls_pki_types::pem::{self, SectionKind};
use x509_cert::Certificate;
use x509_cert::der::asn1::{AnyRef, BitStringRef, ContextSpecific, OctetStringRef, UintRef};
use x509_cert::der::{Decode, Encode, Reader, SliceReader, TagNumber};
use x509_cert::spki::{AlgorithmIdentifierRef, ObjectIdentifier, SubjectPublicKeyInfoRef};

/// The kind of the key pair of a signing method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Rsa,
    P256,
    P384,
    P521,
    Ed25519,
}

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// The sizes of RSA keys that ring accepts.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

impl KeyKind {
    /// Returns the algorithm of the key, and the curve of a key that has a choice of curves.
    fn ids(self) -> (ObjectIdentifier, Option<ObjectIdentifier>) {
        match self {
            Self::Rsa => (RSA, None),
            Self::P256 => (EC, Some(P256)),
            Self::P384 => (EC, Some(P384)),
            Self::P521 => (EC, Some(P521)),
            Self::Ed25519 => (ED25519, None),
        }
    }

    /// Returns the length of an uncompressed point on the curve.
    fn point_length(self) -> Option<usize> {
        match self {
            Self::P256 => Some(1 + 2 * 32),
            Self::P384 => Some(1 + 2 * 48),
            Self::P521 => Some(1 + 2 * 66),
            Self::Rsa | Self::Ed25519 => None,
        }
    }
}

/// An elliptic curve's private key, from PKCS #8 or SEC 1.
pub(super) struct EcPrivateKey {
    pub(super) private: Vec<u8>,
    /// The public point, which the file may leave out.
    pub(super) public: Option<Vec<u8>>,
}

/// Returns the DER of the private key in a PEM file.
pub(super) fn private_key(file: &[u8]) -> Result<Vec<u8>, &'static str> {
    section(
        file,
        "the file contains no private key in PEM format",
        |kind| {
            use SectionKind::{EcPrivateKey, PrivateKey, RsaPrivateKey};
            matches!(kind, PrivateKey | RsaPrivateKey | EcPrivateKey)
        },
    )
    .map(|(_, der)| der)
}

/// Returns the private key of an elliptic curve from its DER.
pub(super) fn ec_private_key(der: &[u8]) -> Result<EcPrivateKey, &'static str> {
    let sec1 = pkcs8_key(der).unwrap_or(der);
    read_sec1(sec1).map_err(|_| "the private key is not that of an elliptic curve")
}

/// Returns the public key in a PEM file, which contains a public key or a certificate, in the form
/// that ring reads: the DER of an RSA key, or the bytes of a point.
pub(super) fn public_key(file: &[u8], kind: KeyKind) -> Result<Vec<u8>, &'static str> {
    let missing = "the file contains no public key or certificate in PEM format";
    let (section, der) = section(file, missing, |kind| {
        matches!(kind, SectionKind::PublicKey | SectionKind::Certificate)
    })?;
    let info = if section == SectionKind::Certificate {
        let certificate = Certificate::from_der(&der).map_err(|_| "the certificate is invalid")?;
        let info = certificate.tbs_certificate().subject_public_key_info();
        info.to_der().map_err(|_| "the certificate is invalid")?
    } else {
        der
    };
    let info = SubjectPublicKeyInfoRef::from_der(&info)
        .map_err(|_| "the public key is not in PKIX format")?;
    let (algorithm, curve) = kind.ids();
    let curves_match = curve.is_none() || info.algorithm.parameters_oid().ok() == curve;
    if info.algorithm.oid != algorithm || !curves_match {
        return Err("the public key is of another type");
    }
    let key = info.subject_public_key.as_bytes();
    let key = key.ok_or("the public key is not in PKIX format")?;
    check_public_key(key, kind)?;
    Ok(key.to_vec())
}

/// Checks what ring would otherwise only check when it verifies a signature.
pub(super) fn check_public_key(key: &[u8], kind: KeyKind) -> Result<(), &'static str> {
    match kind.point_length() {
        Some(length) if key.len() != length || key[0] != 4 => {
            return Err("the point of the public key is not an uncompressed one of the curve");
        }
        _ => {}
    }
    match kind {
        KeyKind::Rsa => {
            let bits = modulus_bits(key).map_err(|_| "the public key is not in PKIX format")?;
            if !RSA_BITS.contains(&bits) {
                return Err("RSA keys must have from 2048 to 8192 bits");
            }
        }
        KeyKind::Ed25519 if key.len() != 32 => return Err("an Ed25519 key must have 32 bytes"),
        KeyKind::Ed25519 | KeyKind::P256 | KeyKind::P384 | KeyKind::P521 => {}
    }
    Ok(())
}

type DerResult<T> = Result<T, x509_cert::der::Error>;

/// Returns the size of a key in the form of PKCS #1.
fn modulus_bits(der: &[u8]) -> DerResult<usize> {
    let mut reader = SliceReader::new(der)?;
    reader.sequence(|reader| {
        let modulus = UintRef::decode(reader)?;
        UintRef::decode(reader)?;
        let bytes = modulus.as_bytes();
        let zeros = bytes.first().map_or(0, |byte| byte.leading_zeros());
        Ok((bytes.len() * 8).saturating_sub(zeros as usize))
    })
}

/// Returns the key inside PKCS #8.
fn pkcs8_key(der: &[u8]) -> DerResult<&[u8]> {
    let mut reader = SliceReader::new(der)?;
    reader.sequence(|reader| {
        u8::decode(reader)?;
        AlgorithmIdentifierRef::decode(reader)?;
        let key = <&OctetStringRef>::decode(reader)?;
        while !reader.is_finished() {
            AnyRef::decode(reader)?;
        }
        Ok(key.as_bytes())
    })
}

/// Reads `ECPrivateKey` of RFC 5915.
fn read_sec1(der: &[u8]) -> DerResult<EcPrivateKey> {
    let mut reader = SliceReader::new(der)?;
    reader.sequence(|reader| {
        u8::decode(reader)?;
        let private = <&OctetStringRef>::decode(reader)?.as_bytes().to_vec();
        ContextSpecific::<AnyRef<'_>>::decode_explicit(reader, TagNumber(0))?;
        let public = ContextSpecific::<BitStringRef<'_>>::decode_explicit(reader, TagNumber(1))?;
        let public = public.and_then(|public| public.value.as_bytes().map(<[_]>::to_vec));
        Ok(EcPrivateKey { private, public })
    })
}

/// Returns the first section of a PEM file of a wanted kind.
fn section(
    file: &[u8],
    missing: &'static str,
    is_wanted: impl Fn(SectionKind) -> bool,
) -> Result<(SectionKind, Vec<u8>), &'static str> {
    let mut rest = file;
    while let Ok(Some((kind, der))) = pem::from_buf(&mut rest) {
        if is_wanted(kind) {
            return Ok((kind, der));
        }
    }
    Err(missing)
}
