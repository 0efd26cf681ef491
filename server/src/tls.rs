//! TLS on the listeners: certificates, who must show one, and what is agreed on.
//!
//! Rustls with ring: in pure Rust and C that any toolchain builds, and read from files once, not
//! per connection, unless they change.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use parking_lot::Mutex;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use revstore_grpc::CertifiedName;
use revstore_host::config::{Certificate, ClientAuth, TlsOptions, TlsVersion};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    SupportedCipherSuite, SupportedProtocolVersion,
    client::{danger::HandshakeSignatureValid, verify_server_name},
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::{
        ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use crate::{common_name::common_name, timestamp::Timestamp};

/// HTTP/2, the only protocol that is ever agreed on (HT-2).
const ALPN_H2: &[u8] = b"h2";

/// Performs the server's side of handshakes.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    /// For clients that offer HTTP/2.
    with_h2: Arc<ServerConfig>,
    /// For all others: agrees on no protocol, and HTTP/1.1 is spoken all the same (HT-2).
    without_alpn: Arc<ServerConfig>,
    names_users: bool,
}

/// Why the TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, unreadable or not PEM of the expected kind.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// A certificate, a key or the choice of versions and suites does not do.
    #[error("{what}: {source}")]
    Rejected {
        /// What was looked at.
        what: String,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// The client authorities or the revocation list do not do.
    #[error("{}: {reason}", path.display())]
    ClientAuthorities {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// `--client-cert-auth` without `--trusted-ca-file`. etcd then takes certificates from anybody
    /// the system trusts to vouch for websites, which no test wants.
    #[error("--client-cert-auth needs --trusted-ca-file to say whose certificates are accepted")]
    NoClientAuthorities,
    /// None of `--cipher-suites` is there.
    #[error("unexpected TLS cipher suite {names:?}; available are {available:?}")]
    CipherSuites {
        /// Those asked for.
        names: Vec<String>,
        /// Those there are.
        available: Vec<&'static str>,
    },
    /// The self-signed certificate could not be made.
    #[error("cannot make a self-signed certificate: {0}")]
    SelfSigned(#[from] rcgen::Error),
}

impl Acceptor {
    /// Reads the files of a configuration, or makes a certificate for `hosts`.
    pub(crate) fn new(tls: &TlsOptions, hosts: &[String]) -> Result<Self, TlsError> {
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
                what: "TLS versions and cipher suites".to_owned(),
                source,
            })?;
        let builder = match &tls.client_auth {
            None => builder.with_no_client_auth(),
            Some(auth) => builder.with_client_cert_verifier(client_verifier(auth, &provider)?),
        };
        let without_alpn = builder.with_cert_resolver(certificate);
        let mut with_h2 = without_alpn.clone();
        with_h2.alpn_protocols = vec![ALPN_H2.to_vec()];
        Ok(Self {
            with_h2: Arc::new(with_h2),
            without_alpn: Arc::new(without_alpn),
            names_users: tls
                .client_auth
                .as_ref()
                .is_some_and(|auth| auth.names_users),
        })
    }

    /// Who the client of a connection is, if certificates say so (TL-2).
    pub(crate) fn user<T>(&self, stream: &TlsStream<T>) -> Option<CertifiedName> {
        let certificates = stream.get_ref().1.peer_certificates();
        let own = certificates.and_then(<[_]>::first);
        let own = own.filter(|_| self.names_users)?;
        // Without a name it still is a certificate, of nobody who is known.
        Some(CertifiedName::new(common_name(own).unwrap_or_default()))
    }

    /// Performs one handshake. Its duration is for the caller to bound.
    pub(crate) async fn accept<T>(&self, io: T) -> io::Result<TlsStream<T>>
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

/// Ring, with those of its TLS 1.2 suites that were asked for. The suites of TLS 1.3 cannot be
/// chosen, as in Go.
fn provider(names: &[String]) -> Result<CryptoProvider, TlsError> {
    let mut provider = rustls::crypto::ring::default_provider();
    if names.is_empty() {
        return Ok(provider);
    }
    let is_asked_for = |suite: &SupportedCipherSuite| {
        let known = suite.suite().as_str().unwrap_or_default();
        // Go has older names for two suites, without the hash at the end.
        let short = known.strip_suffix("_SHA256").unwrap_or(known);
        names.iter().any(|name| name == known || name == short)
    };
    let is_tls13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
    let all = provider.cipher_suites.clone();
    provider
        .cipher_suites
        .retain(|suite| is_tls13(suite) || is_asked_for(suite));
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

/// A certificate in PEM files, read again when they change, as etcd does: certificates are renewed
/// in place.
#[derive(Debug)]
struct CertificateFiles {
    cert_file: PathBuf,
    key_file: PathBuf,
    provider: Arc<CryptoProvider>,
    /// A leaf lock, held to compare two times or to put a new pair in place; no await happens
    /// under it.
    current: Mutex<(Stamp, Arc<CertifiedKey>)>,
}

/// When the two files were last written, as far as can be told.
type Stamp = [Option<SystemTime>; 2];

impl CertificateFiles {
    fn open(
        cert_file: &Path,
        key_file: &Path,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        // Before reading: a change in between is then noticed.
        let stamp = stamp(cert_file, key_file);
        let pair = read_pair(cert_file, key_file, provider)?;
        Ok(Self {
            cert_file: cert_file.to_owned(),
            key_file: key_file.to_owned(),
            provider: provider.clone(),
            current: Mutex::new((stamp, Arc::new(pair))),
        })
    }
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let stamp = stamp(&self.cert_file, &self.key_file);
        let (known, pair) = self.current.lock().clone();
        if stamp == known {
            return Some(pair);
        }
        // Half a renewal does not fit together; the old pair serves until the new one is whole.
        let Ok(renewed) = read_pair(&self.cert_file, &self.key_file, &self.provider) else {
            return Some(pair);
        };
        let renewed = Arc::new(renewed);
        *self.current.lock() = (stamp, renewed.clone());
        Some(renewed)
    }
}

fn stamp(cert_file: &Path, key_file: &Path) -> Stamp {
    [cert_file, key_file].map(|path| fs::metadata(path).and_then(|it| it.modified()).ok())
}

fn read_pair(
    cert_file: &Path,
    key_file: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = read_certificates(cert_file)?;
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|source| TlsError::File {
        path: key_file.to_owned(),
        source,
    })?;
    CertifiedKey::from_der(chain, key, provider).map_err(|source| TlsError::Rejected {
        what: format!("{} with {}", cert_file.display(), key_file.display()),
        source,
    })
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file_error = |source| TlsError::File {
        path: path.to_owned(),
        source,
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(file_error)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(file_error)?;
    if certificates.is_empty() {
        return Err(file_error(pem::Error::NoItemsFound));
    }
    Ok(certificates)
}

/// One certificate for every client, whatever name it asks for.
#[derive(Debug)]
struct SelfSigned(Arc<CertifiedKey>);

impl ResolvesServerCert for SelfSigned {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

fn self_signed(
    hosts: &[String],
    validity_years: u64,
    provider: &CryptoProvider,
) -> Result<SelfSigned, TlsError> {
    let today = Timestamp::from(SystemTime::now());
    let years = i32::try_from(validity_years).unwrap_or(i32::MAX);
    let last_year = today.year.saturating_add(years).min(LAST_CERTIFICATE_YEAR);
    let mut params = CertificateParams::new(hosts)?;
    params.not_before = rcgen::date_time_ymd(today.year, today.month, today.day);
    // The 29th of February is not in every year.
    params.not_after = rcgen::date_time_ymd(last_year, today.month, today.day.min(28));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key_der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    CertifiedKey::from_der(vec![certificate.der().clone()], key_der, provider)
        .map(|pair| SelfSigned(Arc::new(pair)))
        .map_err(|source| TlsError::Rejected {
            what: "the self-signed certificate".to_owned(),
            source,
        })
}

/// What a certificate's date has room for.
const LAST_CERTIFICATE_YEAR: i32 = 9999;

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
        // etcd looks for the client's own certificate in the list, and does not mind who signed it.
        builder = builder
            .with_crls([read_crl(crl_file)?])
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status();
    }
    let verifier = builder.build().map_err(|error| rejected(&error))?;
    let names = &auth.allowed_hostnames;
    if names.is_empty() {
        return Ok(verifier);
    }
    let names = names.iter().map(|name| ServerName::try_from(name.clone()));
    Ok(Arc::new(NamedClients {
        verifier,
        names: names
            .collect::<Result<_, _>>()
            .map_err(|error| rejected(&error))?,
    }))
}

fn read_crl(path: &Path) -> Result<CertificateRevocationListDer<'static>, TlsError> {
    // etcd wants DER here, everybody else writes PEM.
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

/// Accepts what another verifier accepts, if it holds one of some names.
#[derive(Debug)]
struct NamedClients {
    verifier: Arc<dyn ClientCertVerifier>,
    names: Vec<ServerName<'static>>,
}

impl ClientCertVerifier for NamedClients {
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
    fn tl_1_cipher_suites_go_by_their_iana_or_gos_names() {
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
        let refused = suites(&["TLS_NONE"]).unwrap_err();
        assert!(
            refused.starts_with("unexpected TLS cipher suite [\"TLS_NONE\"]"),
            "{refused}"
        );
    }

    #[test]
    fn tl_1_versions() {
        use TlsVersion::{V1_2, V1_3};
        assert_eq!(versions(V1_2, V1_3), [&TLS12, &TLS13]);
        assert_eq!(versions(V1_3, V1_3), [&TLS13]);
        assert_eq!(versions(V1_2, V1_2), [&TLS12]);
    }

    #[test]
    fn tl_1_a_certificate_is_made_for_the_hosts() {
        let provider = provider(&[]).unwrap();
        let hosts = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let pair = self_signed(&hosts, 1, &provider).unwrap().0;
        let certificate = ParsedCertificate::try_from(&pair.cert[0]).unwrap();
        for host in hosts {
            let name = ServerName::try_from(host).unwrap();
            verify_server_name(&certificate, &name).unwrap();
        }
        let other = ServerName::try_from("example.com").unwrap();
        verify_server_name(&certificate, &other).unwrap_err();
        self_signed(&[], u64::MAX, &provider).unwrap();
    }
}
