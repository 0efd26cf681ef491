//! TLS on listeners: handshakes, and the verification of client certificates.
//!
//! Uses rustls with ring, which need only Rust and a C compiler.

use std::{
    fmt, fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
    client::{danger::HandshakeSignatureValid, verify_server_name},
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, CertificateRevocationListDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::{
        ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::{TLS12, TLS13},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use crate::net::{
    Certificate, ClientAuth, ClientIdentity, TlsOptions, TlsVersion,
    certificate::{CertificateFiles, common_name, read_certificates, self_signed},
    client_address,
};

/// HTTP/2, the only protocol that ALPN selects (HT-2).
const ALPN_H2: &[u8] = b"h2";

/// The server side of TLS handshakes. Clones share the certificates.
#[derive(Clone, Debug)]
pub struct TlsAcceptor {
    /// For clients that offer HTTP/2.
    with_h2: Arc<ServerConfig>,
    /// For all other clients: ALPN selects no protocol, and the protocol is HTTP/1.1 (HT-2).
    without_alpn: Arc<ServerConfig>,
    names_users: bool,
    verify_address: bool,
}

/// An error of TLS settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file is missing, unreadable, or not a PEM file of the expected kind.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: pem::Error,
    },
    /// A certificate, a key, or the selected versions and cipher suites were rejected.
    #[error("{subject}: {source}")]
    Rejected {
        /// The files or settings that were rejected.
        subject: String,
        /// The error.
        source: rustls::Error,
    },
    /// The client authorities or the revocation list were rejected.
    #[error("{}: {reason}", path.display())]
    ClientAuthorities {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// Client certificates are required, but [`ClientAuth::trusted_ca_file`] is not set.
    #[error("client certificates are required, but no file of trusted authorities is given")]
    NoClientAuthorities,
    /// None of the selected cipher suites is available.
    #[error("unexpected TLS cipher suite {names:?}; available are {available:?}")]
    CipherSuites {
        /// The names of the selected suites.
        names: Vec<String>,
        /// The names of the available suites.
        available: Vec<&'static str>,
    },
    /// The self-signed certificate could not be created.
    #[error("cannot create a self-signed certificate: {0}")]
    SelfSigned(#[from] rcgen::Error),
}

impl TlsAcceptor {
    /// Reads the files of `tls`, or creates a self-signed certificate for `hosts`.
    ///
    /// # Errors
    /// A file cannot be read, or the settings cannot be used.
    pub fn new(tls: &TlsOptions, hosts: &[String]) -> Result<Self, TlsError> {
        let provider = Arc::new(provider(&tls.cipher_suites)?);
        let certificate: Arc<dyn ResolvesServerCert> = match &tls.certificate {
            Certificate::Files {
                cert_file,
                key_file,
            } => Arc::new(CertificateFiles::open(cert_file, key_file, &provider)?),
            Certificate::SelfSigned { validity_years } => {
                Arc::new(self_signed(hosts, *validity_years, &provider)?)
            }
        };
        let versions = versions(tls.min_version, tls.max_version);
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|source| TlsError::Rejected {
                subject: "TLS versions and cipher suites".to_owned(),
                source,
            })?;
        let builder = match &tls.client_auth {
            None => builder.with_no_client_auth(),
            Some(auth) => builder.with_client_cert_verifier(client_verifier(auth, &provider)?),
        };
        let without_alpn = builder.with_cert_resolver(certificate);
        let mut with_h2 = without_alpn.clone();
        with_h2.alpn_protocols = vec![ALPN_H2.to_vec()];
        let client_auth = tls.client_auth.as_ref();
        Ok(Self {
            with_h2: Arc::new(with_h2),
            without_alpn: Arc::new(without_alpn),
            names_users: client_auth.is_some_and(|auth| auth.names_users),
            verify_address: client_auth.is_some_and(|auth| auth.verify_address),
        })
    }

    /// Returns the identity in the certificate of a client (TL-2).
    pub(super) fn client<T>(&self, stream: &TlsStream<T>) -> ClientIdentity {
        let certificates = stream.get_ref().1.peer_certificates();
        let certificate = certificates.and_then(<[_]>::first);
        let certificate = certificate.filter(|_| self.names_users);
        ClientIdentity {
            // A certificate without a name is a certificate of an unknown user.
            common_name: certificate.map(|it| common_name(it).unwrap_or_default()),
        }
    }

    /// Checks the address of a client against its certificate, if this is required (TL-4).
    pub(super) fn check_address<T>(
        &self,
        stream: &TlsStream<T>,
        address: Option<IpAddr>,
    ) -> impl Future<Output = io::Result<()>> + use<T> {
        let certificates = stream.get_ref().1.peer_certificates();
        let certificate = certificates.and_then(<[_]>::first);
        let certificate = certificate.filter(|_| self.verify_address).cloned();
        async move {
            match certificate {
                Some(certificate) => client_address::check(&certificate, address).await,
                None => Ok(()),
            }
        }
    }

    /// Performs one handshake. The caller limits its duration.
    pub(super) async fn accept<T>(&self, io: T) -> io::Result<TlsStream<T>>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), io).await?;
        let offers_h2 = start
            .client_hello()
            .alpn()
            .is_some_and(|mut protocols| protocols.any(|protocol| protocol == ALPN_H2));
        let config = if offers_h2 {
            &self.with_h2
        } else {
            &self.without_alpn
        };
        start.into_stream(config.clone()).await
    }
}

/// Returns ring's cryptography with the selected TLS 1.2 suites. The suites of TLS 1.3 cannot be
/// selected, as in Go.
fn provider(names: &[String]) -> Result<CryptoProvider, TlsError> {
    let mut provider = rustls::crypto::ring::default_provider();
    if names.is_empty() {
        return Ok(provider);
    }
    let is_selected = |suite: &SupportedCipherSuite| {
        let known = suite.suite().as_str().unwrap_or_default();
        // Go has older names for two suites, without the name of the hash.
        let short = known.strip_suffix("_SHA256").unwrap_or(known);
        names.iter().any(|name| name == known || name == short)
    };
    let is_tls13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
    let all = provider.cipher_suites.clone();
    provider
        .cipher_suites
        .retain(|suite| is_tls13(suite) || is_selected(suite));
    if provider.cipher_suites.iter().all(is_tls13) {
        let available = all.iter().filter(|suite| !is_tls13(suite));
        return Err(TlsError::CipherSuites {
            names: names.to_vec(),
            available: available.filter_map(|s| s.suite().as_str()).collect(),
        });
    }
    Ok(provider)
}

fn versions(min: TlsVersion, max: TlsVersion) -> Vec<&'static SupportedProtocolVersion> {
    [(TlsVersion::V1_2, &TLS12), (TlsVersion::V1_3, &TLS13)]
        .into_iter()
        .filter(|(version, _)| (min..=max).contains(version))
        .map(|(_, supported)| supported)
        .collect()
}

fn client_verifier(
    auth: &ClientAuth,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
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
    let mut builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    if let Some(crl_file) = &auth.crl_file {
        // As in etcd, only the client's certificate is searched in the list, not the certificates of
        // authorities, and a list of another authority is accepted.
        builder = builder
            .with_crls([read_crl(crl_file)?])
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status();
    }
    let verifier = builder.build().map_err(|error| rejected(&error))?;
    let (names, common_names) = (&auth.allowed_hostnames, &auth.allowed_common_names);
    if names.is_empty() && common_names.is_empty() {
        return Ok(verifier);
    }
    let names = names.iter().map(|name| ServerName::try_from(name.clone()));
    Ok(Arc::new(NameVerifier {
        verifier,
        names: names
            .collect::<Result<_, _>>()
            .map_err(|error| rejected(&error))?,
        common_names: common_names.clone(),
    }))
}

fn read_crl(path: &Path) -> Result<CertificateRevocationListDer<'static>, TlsError> {
    // etcd expects DER; most tools write PEM.
    CertificateRevocationListDer::from_pem_file(path)
        .or_else(|error| match error {
            pem::Error::NoItemsFound => fs::read(path)
                .map(CertificateRevocationListDer::from)
                .map_err(pem::Error::Io),
            error => Err(error),
        })
        .map_err(|source| TlsError::File {
            path: path.to_owned(),
            source,
        })
}

/// A verifier that also requires that a certificate is valid for one of `names`, and has one of
/// `common_names`. An empty list requires nothing.
#[derive(Debug)]
struct NameVerifier {
    verifier: Arc<dyn ClientCertVerifier>,
    names: Vec<ServerName<'static>>,
    common_names: Vec<String>,
}

impl ClientCertVerifier for NameVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self
            .verifier
            .verify_client_cert(end_entity, intermediates, now)?;
        let name = common_name(end_entity).unwrap_or_default();
        if !self.common_names.is_empty() && !self.common_names.contains(&name) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let mut result = Ok(verified);
        for name in &self.names {
            match verify_server_name(&certificate, name) {
                Ok(()) => return Ok(ClientCertVerified::assertion()),
                Err(error) => result = Err(error),
            }
        }
        result
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

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(names: &[&str]) -> Result<Vec<&'static str>, String> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let provider = provider(&names).map_err(|error| error.to_string())?;
        let suites = provider.cipher_suites.iter();
        Ok(suites
            .filter(|suite| suite.tls13().is_none())
            .filter_map(|suite| suite.suite().as_str())
            .collect())
    }

    #[test]
    fn tl_1_cipher_suites_have_the_names_of_iana_or_of_go() {
        assert!(suites(&[]).unwrap().len() > 2);
        assert_eq!(
            suites(&[
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "TLS_RSA_WITH_RC4_128_SHA"
            ]),
            Ok(vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"])
        );
        assert_eq!(
            suites(&["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"]),
            Ok(vec!["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"])
        );
        let error = suites(&["TLS_NONE"]).unwrap_err();
        assert!(
            error.starts_with("unexpected TLS cipher suite [\"TLS_NONE\"]"),
            "{error}"
        );
    }

    #[test]
    fn tl_1_versions_are_between_minimum_and_maximum() {
        use TlsVersion::{V1_2, V1_3};
        assert_eq!(versions(V1_2, V1_3), [&TLS12, &TLS13]);
        assert_eq!(versions(V1_3, V1_3), [&TLS13]);
        assert_eq!(versions(V1_2, V1_2), [&TLS12]);
    }
}
