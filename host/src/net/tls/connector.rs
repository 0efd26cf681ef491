//! The client side of TLS handshakes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature,
        verify_tls13_signature,
    },
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use thiserror::Error;
use x509_cert::{
    Certificate,
    der::{Decode, oid::ObjectIdentifier},
    ext::pkix::ExtendedKeyUsage,
};

use super::restated_certificate::RestatedCertificate;

/// The purposes of a certificate that a server may have: `serverAuth` and any.
const SERVER_PURPOSES: [ObjectIdentifier; 2] = [
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1"),
    ObjectIdentifier::new_unwrap("2.5.29.37.0"),
];

/// The error of settings for connections to servers.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectorError {
    /// The authorities of a client are not PEM, or none of them is a certificate.
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    Authorities,
    /// The system has no authorities that can be read.
    #[error("no authorities of the system: {0}")]
    System(String),
    /// The library refuses the settings.
    #[error(transparent)]
    Library(#[from] rustls::Error),
}

/// Returns the settings of connections to servers whose certificates are signed by one of `authorities`, in PEM, or by
/// one that the system trusts if there are none. `protocols` are offered by ALPN.
///
/// As with Go, a server may have the certificate of an authority, such as one that it has signed itself, and one that is
/// itself among `authorities`, whoever has signed it.
///
/// # Errors
/// [`ConnectorError`].
pub fn client_tls(
    authorities: Option<&[u8]>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, ConnectorError> {
    let provider = Arc::new(ring::default_provider());
    let (roots, trusted) = match authorities {
        Some(pem) => roots_of(pem)?,
        None => (system_roots()?, Vec::new()),
    };
    let roots = Arc::new(roots);
    let verifier = ServerVerifier {
        inner: WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| ConnectorError::System(error.to_string()))?,
        algorithms: provider.signature_verification_algorithms,
        roots,
        trusted,
    };
    verified_by(provider, Arc::new(verifier), protocols)
}

/// Returns the settings of connections to servers whose certificates are not verified. `protocols` are offered by ALPN.
///
/// # Errors
/// [`ConnectorError`].
pub fn unverified_client_tls(protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, ConnectorError> {
    let provider = Arc::new(ring::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    verified_by(provider, Arc::new(AnyServer { algorithms }), protocols)
}

fn verified_by(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, ConnectorError> {
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Returns the certificates in PEM, as authorities and as they are. Those that cannot be read are left out, as by Go.
fn roots_of(pem: &[u8]) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), ConnectorError> {
    let mut roots = RootCertStore::empty();
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).flatten().collect();
    for certificate in &certificates {
        // An authority that cannot be used signs nothing.
        let _ = roots.add(certificate.clone());
    }
    if roots.is_empty() {
        return Err(ConnectorError::Authorities);
    }
    Ok((roots, certificates))
}

fn system_roots() -> Result<RootCertStore, ConnectorError> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let errors: Vec<_> = loaded.errors.iter().map(ToString::to_string).collect();
        return Err(ConnectorError::System(errors.join(", ")));
    }
    Ok(roots)
}

/// Accepts every certificate of a server that has its key.
#[derive(Debug)]
struct AnyServer {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Verifies the certificates of servers.
struct ServerVerifier {
    inner: Arc<WebPkiServerVerifier>,
    /// The authorities and algorithms of `inner`.
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    /// Certificates that are trusted whoever has signed them.
    trusted: Vec<CertificateDer<'static>>,
}

impl ServerVerifier {
    /// Verifies a certificate that is itself trusted: its time, its name and what it is for.
    fn verify_trusted(
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let decoded = Certificate::from_der(certificate)
            .map_err(|_| rustls::Error::from(CertificateError::BadEncoding))?;
        let fields = decoded.tbs_certificate();
        let now = Duration::from_secs(now.as_secs());
        let validity = fields.validity();
        if now < validity.not_before.to_unix_duration() {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > validity.not_after.to_unix_duration() {
            return Err(CertificateError::Expired.into());
        }
        let usage = fields.get_extension::<ExtendedKeyUsage>();
        let usage = usage.map_err(|_| rustls::Error::from(CertificateError::BadEncoding))?;
        if let Some((_, ExtendedKeyUsage(purposes))) = usage
            && !purposes
                .iter()
                .any(|purpose| SERVER_PURPOSES.contains(purpose))
        {
            return Err(CertificateError::InvalidPurpose.into());
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }
}

impl fmt::Debug for ServerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerVerifier").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.trusted.contains(end_entity) {
            return Self::verify_trusted(end_entity, name, now);
        }
        let Some(restated) = RestatedCertificate::new(end_entity) else {
            return self
                .inner
                .verify_server_cert(end_entity, intermediates, name, ocsp, now);
        };
        let usage = webpki::KeyUsage::server_auth();
        restated.verify(&self.roots, self.algorithms, usage, intermediates, now)?;
        verify_server_name(&ParsedCertificate::try_from(&restated.certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let restated = RestatedCertificate::new(certificate);
        let certificate = restated.as_ref().map_or(certificate, |it| &it.certificate);
        self.inner
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
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
