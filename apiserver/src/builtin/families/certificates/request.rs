//! The certificate request (PKCS #10) inside an object.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_cert::der::asn1::BitStringRef;
use x509_cert::der::{self, Decode, ErrorKind, Reader, SliceReader, Tag, Tagged};
use x509_cert::request::CertReqInfo;
use x509_cert::spki::{AlgorithmIdentifierRef, ObjectIdentifier};

use crate::builtin::pem;

const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const RSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const RSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12");
const RSA_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13");
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const ECDSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

/// A certificate request.
#[derive(Debug)]
pub(crate) struct CertificateRequest {
    info: CertReqInfo,
    /// The bytes that are signed.
    signed: Vec<u8>,
    algorithm: ObjectIdentifier,
    signature: Vec<u8>,
}

impl CertificateRequest {
    /// Parses a request in PEM in base64, as it is in an object.
    ///
    /// # Errors
    /// The text is none, in the words of Go.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let decoded = STANDARD.decode(text).unwrap_or_default();
        let decoded = String::from_utf8_lossy(&decoded);
        let block = pem::first(&decoded).map(|(block, _)| block);
        let Some(block) = block.filter(|block| block.kind == "CERTIFICATE REQUEST") else {
            return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
        };
        Self::from_der(&block.content).map_err(|error| {
            let text = match error.kind() {
                ErrorKind::Incomplete { .. } => "asn1: syntax error: data truncated",
                ErrorKind::TrailingData { .. } => "asn1: syntax error: trailing data",
                _ => "asn1: structure error: this is no certificate request",
            };
            text.to_owned()
        })
    }

    fn from_der(bytes: &[u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(bytes)?;
        let request = reader.sequence(|reader| {
            let signed = reader.tlv_bytes()?.to_vec();
            let algorithm = AlgorithmIdentifierRef::decode(reader)?.oid;
            let signature = BitStringRef::decode(reader)?.raw_bytes().to_vec();
            Ok::<_, der::Error>(Self {
                info: CertReqInfo::from_der(&signed)?,
                signed,
                algorithm,
                signature,
            })
        })?;
        reader.finish()?;
        Ok(request)
    }

    /// Returns the organizations of the subject, which are the groups of the user.
    pub(crate) fn organizations(&self) -> impl Iterator<Item = String> {
        let attributes = self.info.subject.iter();
        let organizations = attributes.filter(|attribute| attribute.oid == ORGANIZATION);
        organizations.map(|attribute| {
            let value = attribute.value.value();
            if attribute.value.tag() == Tag::BmpString {
                let units = value.chunks_exact(2);
                let units: Vec<u16> = units
                    .map(|unit| u16::from_be_bytes([unit[0], unit[1]]))
                    .collect();
                return String::from_utf16_lossy(&units);
            }
            String::from_utf8_lossy(value).into_owned()
        })
    }

    /// Checks that the owner of the key has signed the request.
    ///
    /// # Errors
    /// It is not signed by the key, or by an algorithm that cannot be checked, in the words of Go.
    pub(super) fn check_signature(&self) -> Result<(), &'static str> {
        let key = &self.info.public_key;
        let curve = key.algorithm.parameters.as_ref();
        let curve = curve.and_then(|it| it.decode_as::<ObjectIdentifier>().ok());
        let rsa = "crypto/rsa: verification error";
        let ecdsa = "x509: ECDSA verification failure";
        let (algorithm, error): (&dyn VerificationAlgorithm, _) = match (self.algorithm, curve) {
            (RSA_SHA256, _) => (&signature::RSA_PKCS1_2048_8192_SHA256, rsa),
            (RSA_SHA384, _) => (&signature::RSA_PKCS1_2048_8192_SHA384, rsa),
            (RSA_SHA512, _) => (&signature::RSA_PKCS1_2048_8192_SHA512, rsa),
            (ECDSA_SHA256, Some(P256)) => (&signature::ECDSA_P256_SHA256_ASN1, ecdsa),
            (ECDSA_SHA384, Some(P256)) => (&signature::ECDSA_P256_SHA384_ASN1, ecdsa),
            (ECDSA_SHA256, Some(P384)) => (&signature::ECDSA_P384_SHA256_ASN1, ecdsa),
            (ECDSA_SHA384, Some(P384)) => (&signature::ECDSA_P384_SHA384_ASN1, ecdsa),
            (ED25519, _) => (&signature::ED25519, "x509: Ed25519 verification failure"),
            _ => return Err("x509: cannot verify signature: algorithm unimplemented"),
        };
        let bytes = key.subject_public_key.raw_bytes();
        UnparsedPublicKey::new(algorithm, bytes)
            .verify(&self.signed, &self.signature)
            .map_err(|_| error)
    }
}
