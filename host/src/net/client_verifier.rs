//! The verification of client certificates.

use std::{fmt, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::{danger::HandshakeSignatureValid, verify_server_name},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        ParsedCertificate, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use crate::net::{
    ClientAuth, TlsError,
    certificate::{common_name, read_certificates},
};

/// Verifies the certificates of clients with the authorities of a file, which is read once, as in etcd (TL-6).
#[derive(Debug)]
pub(super) struct ClientVerifier {
    verifier: Arc<dyn ClientCertVerifier>,
    /// The allowed names; empty for any name.
    names: Vec<ServerName<'static>>,
    /// The allowed common names; empty for any name.
    common_names: Vec<String>,
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
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let names = auth.allowed_hostnames.iter();
        let names = names.map(|name| ServerName::try_from(name.clone()));
        Ok(Self {
            verifier: verifier.map_err(|error| rejected(&error))?,
            names: names
                .collect::<Result<_, _>>()
                .map_err(|error| rejected(&error))?,
            common_names: auth.allowed_common_names.clone(),
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
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verifier
            .verify_client_cert(end_entity, intermediates, now)?;
        self.verify_name(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
