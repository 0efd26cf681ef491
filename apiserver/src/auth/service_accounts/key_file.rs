//! The contents of key files: PEM, and the DER structures of keys.

use rustls_pki_types::pem::{self, SectionKind};
use x509_cert::Certificate;
use x509_cert::der::asn1::{AnyRef, BitStringRef, ContextSpecific, OctetStringRef, UintRef};
use x509_cert::der::{Decode, Encode, Reader, SliceReader, TagNumber};
use x509_cert::spki::{AlgorithmIdentifierRef, ObjectIdentifier, SubjectPublicKeyInfoRef};

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

/// A section of a key file.
#[derive(Debug)]
pub(super) enum Section {
    /// A private key: PKCS #8, PKCS #1 or SEC 1.
    Private(Vec<u8>),
    /// A public key: the `SubjectPublicKeyInfo`.
    Public(Vec<u8>),
}

/// Returns the keys of a PEM file. Other sections, such as parameters of curves, are skipped.
pub(super) fn sections(file: &[u8]) -> Vec<Section> {
    let mut rest = file;
    let mut found = Vec::new();
    while let Ok(Some((kind, der))) = pem::from_buf(&mut rest) {
        match kind {
            SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
                found.push(Section::Private(der));
            }
            SectionKind::PublicKey => found.push(Section::Public(der)),
            SectionKind::Certificate => {
                found.extend(key_of_certificate(&der).map(Section::Public));
            }
            _ => {}
        }
    }
    found
}

fn key_of_certificate(der: &[u8]) -> Option<Vec<u8>> {
    let certificate = Certificate::from_der(der).ok()?;
    let info = certificate.tbs_certificate().subject_public_key_info();
    info.to_der().ok()
}

/// The kind of a public key with its bytes: the DER of PKCS #1, or an uncompressed point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublicBytes<'a> {
    Rsa(&'a [u8]),
    P256(&'a [u8]),
    P384(&'a [u8]),
}

/// Returns the key in a `SubjectPublicKeyInfo`, if it is one of RSA, P-256 or P-384.
pub(super) fn public_bytes(info: &[u8]) -> Option<PublicBytes<'_>> {
    let info = SubjectPublicKeyInfoRef::from_der(info).ok()?;
    let key = info.subject_public_key.as_bytes()?;
    if info.algorithm.oid == RSA {
        return Some(PublicBytes::Rsa(key));
    }
    let curve = (info.algorithm.oid == EC).then(|| info.algorithm.parameters_oid().ok())?;
    match curve {
        Some(P256) => Some(PublicBytes::P256(key)),
        Some(P384) => Some(PublicBytes::P384(key)),
        _ => None,
    }
}

/// Returns the `SubjectPublicKeyInfo` of a key.
pub(super) fn info_of(key: PublicBytes<'_>) -> Option<Vec<u8>> {
    let (oid, parameters, bytes) = match key {
        PublicBytes::Rsa(bytes) => (RSA, AnyRef::NULL, bytes),
        PublicBytes::P256(bytes) => (EC, AnyRef::from(&P256), bytes),
        PublicBytes::P384(bytes) => (EC, AnyRef::from(&P384), bytes),
    };
    let info = SubjectPublicKeyInfoRef {
        algorithm: AlgorithmIdentifierRef {
            oid,
            parameters: Some(parameters),
        },
        subject_public_key: BitStringRef::from_bytes(bytes).ok()?,
    };
    info.to_der().ok()
}

type DerResult<T> = Result<T, x509_cert::der::Error>;

/// Returns the modulus and the exponent of an RSA key in PKCS #1, without leading zeros.
pub(super) fn rsa_numbers(der: &[u8]) -> DerResult<(Vec<u8>, Vec<u8>)> {
    let mut reader = SliceReader::new(der)?;
    reader.sequence(|reader| {
        let modulus = UintRef::decode(reader)?.as_bytes().to_vec();
        let exponent = UintRef::decode(reader)?.as_bytes().to_vec();
        DerResult::Ok((modulus, exponent))
    })
}

/// An elliptic curve's private key with its public point.
pub(super) struct EcPrivateKey {
    pub(super) private: Vec<u8>,
    pub(super) public: Vec<u8>,
}

/// Returns the private key of an elliptic curve from PKCS #8 or SEC 1, if the file has its public point.
pub(super) fn ec_private_key(der: &[u8]) -> Option<EcPrivateKey> {
    read_sec1(pkcs8_key(der).unwrap_or(der)).ok().flatten()
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
fn read_sec1(der: &[u8]) -> DerResult<Option<EcPrivateKey>> {
    let mut reader = SliceReader::new(der)?;
    reader.sequence(|reader| {
        u8::decode(reader)?;
        let private = <&OctetStringRef>::decode(reader)?.as_bytes().to_vec();
        ContextSpecific::<AnyRef<'_>>::decode_explicit(reader, TagNumber(0))?;
        let public = ContextSpecific::<BitStringRef<'_>>::decode_explicit(reader, TagNumber(1))?;
        let public = public.and_then(|public| public.value.as_bytes().map(<[_]>::to_vec));
        DerResult::Ok(public.map(|public| EcPrivateKey { private, public }))
    })
}
