//! Warnings about secrets whose certificate and key are not a pair.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring::sign::any_supported_type;
use rustls_pki_types::PrivateKeyDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::AnyRef;
use x509_cert::spki::{ObjectIdentifier, SubjectPublicKeyInfoRef};

use super::{Change, Warnings};
use crate::builtin::pem;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const ELLIPTIC_CURVE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// Warns of a secret for TLS whose key is not that of its certificate, with the texts of Go's `tls.X509KeyPair`.
pub(super) fn secret(change: &Change<'_>, warnings: &mut Warnings) {
    if change.new.child("type").text() != "kubernetes.io/tls" {
        return;
    }
    let data = change.new.child("data");
    let text = |name| {
        let bytes = STANDARD.decode(data.child(name).text()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    if let Err(error) = check_pair(&text("tls.crt"), &text("tls.key")) {
        warnings.add(error);
    }
}

fn check_pair(certificate: &str, key: &str) -> Result<(), String> {
    const NOT_A_KEY: &str = "tls: failed to parse private key";
    let (certificate, key) = (find_certificate(certificate)?, find_key(key)?);
    let certificate =
        Certificate::from_der(&certificate).map_err(|_| "x509: malformed certificate")?;
    let wanted = certificate.tbs_certificate().subject_public_key_info();
    if ![RSA, ELLIPTIC_CURVE, ED25519].contains(&wanted.algorithm.oid) {
        return Err("tls: unknown public key algorithm".to_owned());
    }
    let parsed = PrivateKeyDer::try_from(key.as_slice()).map_err(|_| NOT_A_KEY)?;
    let Ok(signer) = any_supported_type(&parsed) else {
        // A key that ring does not know, such as one of RSA with 1,024 bits, may be that of the certificate.
        return match AnyRef::from_der(&key) {
            Ok(_) => Ok(()),
            Err(_) => Err(NOT_A_KEY.to_owned()),
        };
    };
    let Some(found) = signer.public_key() else {
        return Ok(());
    };
    let Ok(found) = SubjectPublicKeyInfoRef::from_der(&found) else {
        return Ok(());
    };
    if found.algorithm.oid != wanted.algorithm.oid {
        Err("tls: private key type does not match public key type".to_owned())
    } else if found.subject_public_key.raw_bytes() != wanted.subject_public_key.raw_bytes() {
        Err("tls: private key does not match public key".to_owned())
    } else {
        Ok(())
    }
}

/// Returns the first certificate of a text.
fn find_certificate(text: &str) -> Result<Vec<u8>, String> {
    let (found, skipped) = find(text, |kind| kind == "CERTIFICATE");
    match (found, skipped.as_slice()) {
        (Some(found), _) => Ok(found),
        (None, []) => Err("tls: failed to find any PEM data in certificate input".to_owned()),
        (None, [kind]) if kind.ends_with("PRIVATE KEY") => Err(
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs \
             may have been switched"
                .to_owned(),
        ),
        (None, skipped) => Err(format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
             following types: [{}]",
            skipped.join(" ")
        )),
    }
}

/// Returns the first private key of a text.
fn find_key(text: &str) -> Result<Vec<u8>, String> {
    let is_key = |kind: &str| kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY");
    let (found, skipped) = find(text, is_key);
    match (found, skipped.as_slice()) {
        (Some(found), _) => Ok(found),
        (None, []) => Err("tls: failed to find any PEM data in key input".to_owned()),
        (None, ["CERTIFICATE"]) => Err(
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned(),
        ),
        (None, skipped) => Err(format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks \
             of the following types: [{}]",
            skipped.join(" ")
        )),
    }
}

/// Returns the first block of a kind, and the kinds of the blocks before it.
fn find(mut text: &str, is_wanted: impl Fn(&str) -> bool) -> (Option<Vec<u8>>, Vec<&str>) {
    let mut skipped = Vec::new();
    while let Some((block, rest)) = pem::first(text) {
        if is_wanted(block.kind) {
            return (Some(block.content), skipped);
        }
        skipped.push(block.kind);
        text = rest;
    }
    (None, skipped)
}
