//! TLS on listeners. This file performs handshakes, with the settings in `options` and the server's `certificate`. A client
//! is checked by `client_verifier`, `revocation_list` and `client_address`; `rejection` logs why it was rejected.
//! `stream` is a connection after its handshake. `connector` has the settings of connections to other servers.
//!
//! Uses rustls with ring, which need only Rust and a C compiler.

mod certificate;
mod client_address;
mod client_verifier;
mod connector;
mod options;
mod rejection;
mod restated_certificate;
mod revocation_list;
mod stream;

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use bytes::Bytes;
use rustls::{
    ServerConfig, SupportedCipherSuite, SupportedProtocolVersion,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, UnixTime, pem},
    server::{NoServerSessionStorage, ResolvesServerCert},
    version::{TLS12, TLS13},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};
use tracing::warn;

use self::{
    certificate::{CertificateFiles, Subject, self_signed},
    client_verifier::ClientVerifier,
    revocation_list::RevocationList,
};
use crate::net::{BoxError, ClientIdentity};

pub use self::connector::{ConnectorError, client_tls, unverified_client_tls};
pub use self::options::{Certificate, ClientAuth, TlsOptions, TlsVersion};
pub(crate) use self::rejection::{NotTls, Rejection, UNNAMED};
pub(crate) use self::stream::SecuredStream;

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
    /// Verifies certificates after the handshake, which accepts all of them.
    late_verifier: Option<Arc<ClientVerifier>>,
    revocation_list: Option<Arc<RevocationList>>,
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
    /// The client authorities or the allowed names were rejected.
    #[error("{}: {reason}", path.display())]
    ClientAuthorities {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// Client certificates are required, but
    /// [`ClientAuth::trusted_ca_file`](crate::net::ClientAuth::trusted_ca_file) is not set.
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
        let auth = tls.client_auth.as_ref();
        let verifier = auth.map(|auth| ClientVerifier::new(auth, &provider).map(Arc::new));
        let verifier = verifier.transpose()?;
        let builder = match &verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
        };
        let mut without_alpn = builder.with_cert_resolver(certificate);
        if auth.is_some() {
            // TL-7: in a resumed session the client's certificate would not be verified again.
            without_alpn.session_storage = Arc::new(NoServerSessionStorage {});
            without_alpn.send_tls13_tickets = 0;
        }
        let mut with_h2 = without_alpn.clone();
        with_h2.alpn_protocols = vec![ALPN_H2.to_vec()];
        let crl_file = auth.and_then(|auth| auth.crl_file.as_deref());
        let revocation_list = crl_file.map(|path| Arc::new(RevocationList::new(path)));
        if let Some(Err(error)) = revocation_list.as_ref().map(|list| list.try_read()) {
            // As in etcd, this is not fatal, because the file is read again at each handshake (TL-5).
            warn!(%error, "refusing all clients until the file of revoked certificates can be read");
        }
        Ok(Self {
            with_h2: Arc::new(with_h2),
            without_alpn: Arc::new(without_alpn),
            names_users: auth.is_some_and(|auth| auth.names_users),
            verify_address: auth.is_some_and(|auth| auth.verify_address),
            late_verifier: verifier.filter(|_| auth.is_some_and(|auth| auth.accept_invalid)),
            revocation_list,
        })
    }

    /// Returns the identity in the certificates of a client (TL-2). If it is required, checks the address of the
    /// client against its own certificate (TL-4), and that none of them is revoked (TL-5).
    pub(super) async fn client(
        &self,
        certificates: &[CertificateDer<'_>],
        address: Option<IpAddr>,
    ) -> Result<ClientIdentity, BoxError> {
        let own = certificates.first();
        if let (Some(verifier), Some((own, others))) =
            (&self.late_verifier, certificates.split_first())
            && verifier.verify(own, others, UnixTime::now()).is_err()
        {
            return Ok(ClientIdentity {
                is_invalid: true,
                ..ClientIdentity::default()
            });
        }
        if let Some(own) = own.filter(|_| self.verify_address) {
            client_address::check(own, address).await?;
        }
        if let Some(list) = &self.revocation_list {
            list.check(certificates).await?;
        }
        let own = own.filter(|_| self.names_users);
        let subject = own.map(Subject::read);
        Ok(ClientIdentity {
            certificate: own.map(|own| Bytes::copy_from_slice(own)),
            is_invalid: false,
            // A certificate without a name is a certificate of an unknown user.
            common_name: subject
                .as_ref()
                .map(|subject| subject.common_name.clone().unwrap_or_default()),
            organizations: subject
                .map(|subject| subject.organizations)
                .unwrap_or_default(),
            address: None,
            connection: None,
        })
    }

    /// Performs one handshake. The caller limits its duration.
    pub(super) async fn accept<T>(&self, io: T) -> Result<TlsStream<T>, Rejection>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), io);
        let start = start.await.map_err(Rejection::of_handshake)?;
        let hello = start.client_hello();
        let server_name = hello.server_name().map(ToOwned::to_owned);
        let offers_h2 = hello
            .alpn()
            .is_some_and(|mut protocols| protocols.any(|protocol| protocol == ALPN_H2));
        let config = if offers_h2 {
            &self.with_h2
        } else {
            &self.without_alpn
        };
        let stream = start.into_stream(config.clone()).await;
        stream.map_err(|error| Rejection::of_handshake(error).server_name(server_name.as_deref()))
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
