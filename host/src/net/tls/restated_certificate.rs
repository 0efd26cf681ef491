//! Certificates that rustls rejects for their form.

use std::sync::Arc;

use rustls::{
    CertificateError, OtherError, RootCertStore,
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{
        AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm,
        UnixTime,
    },
};
use x509_cert::{
    der::{
        self, Decode, Encode, Header, Length, Reader, SliceReader, Tag, TagNumber,
        asn1::{AnyRef, OctetStringRef, SequenceRef},
        oid::ObjectIdentifier,
    },
    ext::pkix::BasicConstraints,
};

/// The object identifier `id-ce-basicConstraints`.
const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");

/// The encoded field for version 3 of a certificate.
const VERSION_3: &[u8] = &[0xa0, 3, 2, 1, 2];

/// A certificate of a client or a server that rustls rejects and Go accepts: that of an authority (`CA:TRUE`), or one of
/// X.509 version 1 (TL-6).
///
/// It is stated anew with version 3 and without the extension that makes it an authority, so that rustls
/// applies all its other rules. Its signature is verified over its original bytes.
#[derive(Debug)]
pub(super) struct RestatedCertificate {
    pub(super) certificate: CertificateDer<'static>,
    /// The signed part of `certificate`.
    signed: Vec<u8>,
    /// The part that the issuer has signed.
    original: Vec<u8>,
}

impl RestatedCertificate {
    /// Returns `None` if rustls does not reject the certificate for these reasons.
    pub(super) fn new(certificate: &CertificateDer<'_>) -> Option<Self> {
        Self::decode(certificate).ok().flatten()
    }

    fn decode(certificate: &[u8]) -> der::Result<Option<Self>> {
        let certificate = <&SequenceRef>::from_der(certificate)?;
        let mut certificate = SliceReader::new(certificate.as_bytes())?;
        let original = certificate.tlv_bytes()?;
        let (algorithm, signature) = (certificate.tlv_bytes()?, certificate.tlv_bytes()?);
        certificate.finish()?;

        let fields = <&SequenceRef>::from_der(original)?;
        let mut fields = SliceReader::new(fields.as_bytes())?;
        let mut restated = VERSION_3.to_vec();
        let mut is_version_3 = false;
        if Tag::peek(&fields)? == context_specific(0) {
            is_version_3 = fields.tlv_bytes()? == VERSION_3;
        }
        let mut authorities = 0;
        while !fields.is_finished() {
            if Tag::peek(&fields)? == context_specific(3) {
                let extensions = AnyRef::decode(&mut fields)?.value();
                let extensions = <&SequenceRef>::from_der(extensions)?;
                let mut extensions = SliceReader::new(extensions.as_bytes())?;
                let mut kept = Vec::new();
                while !extensions.is_finished() {
                    let extension = extensions.tlv_bytes()?;
                    if is_authority(extension)? {
                        authorities += 1;
                    } else {
                        kept.extend_from_slice(extension);
                    }
                }
                let kept = wrap(Tag::Sequence, &[&kept])?;
                restated.extend(wrap(context_specific(3), &[&kept])?);
            } else {
                restated.extend_from_slice(fields.tlv_bytes()?);
            }
        }
        // Two extensions of the same kind are an error, which rustls finds.
        if authorities > 1 || authorities == 0 && is_version_3 {
            return Ok(None);
        }
        let signed = wrap(Tag::Sequence, &[&restated])?;
        let certificate = wrap(Tag::Sequence, &[&signed, algorithm, signature])?;
        Ok(Some(Self {
            certificate: certificate.into(),
            signed,
            original: original.to_vec(),
        }))
    }

    /// Verifies the certificate as one of a client or of a server.
    pub(super) fn verify(
        &self,
        roots: &RootCertStore,
        algorithms: WebPkiSupportedAlgorithms,
        usage: webpki::KeyUsage,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let algorithms: Vec<_> = algorithms
            .all
            .iter()
            .map(|&algorithm| OriginalBytes {
                restated: self,
                algorithm,
            })
            .collect();
        let algorithms: Vec<_> = algorithms
            .iter()
            .map(|algorithm| algorithm as &dyn SignatureVerificationAlgorithm)
            .collect();
        let certificate = webpki::EndEntityCert::try_from(&self.certificate).map_err(tls_error)?;
        certificate
            .verify_for_usage(
                &algorithms,
                &roots.roots,
                intermediates,
                now,
                usage,
                None,
                None,
            )
            .map(|_| ())
            .map_err(tls_error)
    }
}

/// Verifies the signature of a restated certificate over its original bytes, and all other signatures as they
/// are.
#[derive(Debug)]
struct OriginalBytes<'a> {
    restated: &'a RestatedCertificate,
    algorithm: &'static dyn SignatureVerificationAlgorithm,
}

impl SignatureVerificationAlgorithm for OriginalBytes<'_> {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let message = if message == self.restated.signed {
            &self.restated.original
        } else {
            message
        };
        self.algorithm
            .verify_signature(public_key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

/// Returns the error whose alert the other side receives.
fn tls_error(error: webpki::Error) -> rustls::Error {
    let error = match error {
        webpki::Error::BadDer => CertificateError::BadEncoding,
        webpki::Error::CertExpired { time, not_after } => {
            CertificateError::ExpiredContext { time, not_after }
        }
        webpki::Error::CertNotValidYet { time, not_before } => {
            CertificateError::NotValidYetContext { time, not_before }
        }
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        webpki::Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        error => CertificateError::Other(OtherError(Arc::new(error))),
    };
    error.into()
}

/// Returns whether an encoded extension makes its certificate that of an authority.
fn is_authority(extension: &[u8]) -> der::Result<bool> {
    let extension = <&SequenceRef>::from_der(extension)?;
    let mut extension = SliceReader::new(extension.as_bytes())?;
    if ObjectIdentifier::decode(&mut extension)? != BASIC_CONSTRAINTS {
        return Ok(false);
    }
    let _is_critical = Option::<bool>::decode(&mut extension)?;
    let value = <&OctetStringRef>::decode(&mut extension)?;
    Ok(BasicConstraints::from_der(value.as_bytes())?.ca)
}

fn context_specific(number: u32) -> Tag {
    Tag::ContextSpecific {
        constructed: true,
        number: TagNumber(number),
    }
}

/// Returns the encoding of a value that consists of encoded parts.
fn wrap(tag: Tag, parts: &[&[u8]]) -> der::Result<Vec<u8>> {
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    let mut encoded = Header::new(tag, Length::try_from(length)?).to_der()?;
    encoded.extend(parts.iter().copied().flatten());
    Ok(encoded)
}
