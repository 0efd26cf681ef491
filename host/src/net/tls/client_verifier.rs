//! The verification of client certificates.

use std::{fmt, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::{danger::HandshakeSignatureValid, verify_server_name},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        ParsedCertificate, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use crate::net::{
    ClientAuth, TlsError,
    tls::{
        certificate::{common_name, read_certificates},
        restated_certificate::RestatedCertificate,
    },
};

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
    /// Whether the handshake succeeds with any certificate.
    accept_invalid: bool,
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
            accept_invalid: auth.accept_invalid,
        })
    }

    /// Verifies the certificate of a client.
    pub(super) fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        if let Some(restated) = RestatedCertificate::new(end_entity) {
            let usage = webpki::KeyUsage::client_auth();
            restated.verify(&self.roots, self.algorithms, usage, intermediates, now)?;
            return self.verify_name(&restated.certificate);
        }
        self.verifier
            .verify_client_cert(end_entity, intermediates, now)?;
        self.verify_name(end_entity)
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
        if !self.accept_invalid {
            self.verify(end_entity, intermediates, now)?;
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
