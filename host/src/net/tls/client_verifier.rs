//! The verification of client certificates.

use std::{fmt, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore,
    SignatureScheme,
    client::{danger::HandshakeSignatureValid, verify_server_name},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms},
    pki_types::{
        AlgorithmIdentifier, CertificateDer, InvalidSignature, ServerName,
        SignatureVerificationAlgorithm, UnixTime,
    },
    server::{
        ParsedCertificate, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
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

use crate::net::{
    ClientAuth, TlsError,
    tls::certificate::{common_name, read_certificates},
};

/// The object identifier `id-ce-basicConstraints`.
const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");

/// The encoded field for version 3 of a certificate.
const VERSION_3: &[u8] = &[0xa0, 3, 2, 1, 2];

/// Verifies the certificates of clients with the authorities of a file, which is read once, as in etcd (TL-6).
#[derive(Debug)]
pub(super) struct ClientVerifier {
    verifier: Arc<dyn ClientCertVerifier>,
    /// The authorities and algorithms of `verifier`.
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    /// The allowed names; empty for any name.
    names: Vec<ServerName<'static>>,
    /// The allowed common names; empty for any name.
    common_names: Vec<String>,
    /// Whether clients without a certificate are accepted.
    optional: bool,
}

impl ClientVerifier {
    /// Reads the authorities.
    pub(super) fn new(auth: &ClientAuth, provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let path = auth
            .trusted_ca_file
            .as_ref()
            .ok_or(TlsError::NoClientAuthorities)?;
        let rejected = |reason: &dyn fmt::Display| TlsError::ClientAuthorities {
            path: path.clone(),
            reason: reason.to_string(),
        };
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(path)? {
            roots.add(certificate).map_err(|error| rejected(&error))?;
        }
        let roots = Arc::new(roots);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let names = auth.allowed_hostnames.iter();
        let names = names.map(|name| ServerName::try_from(name.clone()));
        Ok(Self {
            verifier: verifier.map_err(|error| rejected(&error))?,
            roots,
            algorithms: provider.signature_verification_algorithms,
            names: names
                .collect::<Result<_, _>>()
                .map_err(|error| rejected(&error))?,
            common_names: auth.allowed_common_names.clone(),
            optional: auth.optional,
        })
    }

    /// Requires that a certificate has one of the allowed common names, and is valid for one of the allowed names.
    fn verify_name(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let name = common_name(certificate).unwrap_or_default();
        if !self.common_names.is_empty() && !self.common_names.contains(&name) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        let certificate = ParsedCertificate::try_from(certificate)?;
        let mut result = Ok(());
        for name in &self.names {
            result = verify_server_name(&certificate, name);
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        !self.optional
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if let Some(restated) = RestatedCertificate::new(end_entity) {
            restated.verify(&self.roots, self.algorithms, intermediates, now)?;
            self.verify_name(&restated.certificate)?;
        } else {
            self.verifier
                .verify_client_cert(end_entity, intermediates, now)?;
            self.verify_name(end_entity)?;
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let restated = RestatedCertificate::new(certificate);
        let certificate = restated.as_ref().map_or(certificate, |it| &it.certificate);
        self.verifier
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let restated = RestatedCertificate::new(certificate);
        let certificate = restated.as_ref().map_or(certificate, |it| &it.certificate);
        self.verifier
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// A client's own certificate that rustls rejects and Go accepts: that of an authority (`CA:TRUE`), or one of
/// X.509 version 1 (TL-6).
///
/// It is stated anew with version 3 and without the extension that makes it an authority, so that rustls
/// applies all its other rules. Its signature is verified over its original bytes.
#[derive(Debug)]
struct RestatedCertificate {
    certificate: CertificateDer<'static>,
    /// The signed part of `certificate`.
    signed: Vec<u8>,
    /// The part that the issuer has signed.
    original: Vec<u8>,
}

impl RestatedCertificate {
    /// Returns `None` if rustls does not reject the certificate for these reasons.
    fn new(certificate: &CertificateDer<'_>) -> Option<Self> {
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

    fn verify(
        &self,
        roots: &RootCertStore,
        algorithms: WebPkiSupportedAlgorithms,
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
                webpki::KeyUsage::client_auth(),
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

/// Returns the error whose alert the client receives.
fn tls_error(error: webpki::Error) -> rustls::Error {
    let error = match error {
        webpki::Error::BadDer => CertificateError::BadEncoding,
        webpki::Error::CertExpired { .. } => CertificateError::Expired,
        webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
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
