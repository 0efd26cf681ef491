//! Certificates for tests, and TLS clients that use them.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, IsCa, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct, RootCertStore,
    SignatureScheme, StreamOwned, SupportedProtocolVersion,
    client::{
        WantsClientCert,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use tonic::transport::{Channel, Endpoint, Uri};

/// A certificate authority with a temporary directory for its files.
pub(crate) struct CertificateAuthority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// A certificate with its private key, in files and in memory.
pub(crate) struct TestCertificate {
    pub(crate) cert_file: PathBuf,
    pub(crate) key_file: PathBuf,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl CertificateAuthority {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(directory.path().join("ca.pem"), certificate.pem()).unwrap();
        Self {
            directory,
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Issues a certificate for a host, with the common name `name`. Its files have the same name.
    pub(crate) fn issue(&self, name: &str, host: &str) -> TestCertificate {
        self.issue_params(name, CertificateParams::new([host.to_owned()]).unwrap())
    }

    /// Issues a certificate with a serial number.
    pub(crate) fn issue_with_serial(&self, name: &str, serial: u64) -> TestCertificate {
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(serial));
        self.issue_params(name, params)
    }

    fn issue_params(&self, name: &str, mut params: CertificateParams) -> TestCertificate {
        let key = KeyPair::generate().unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let cert_file = self.directory.path().join(format!("{name}.pem"));
        let key_file = self.directory.path().join(format!("{name}-key.pem"));
        std::fs::write(&cert_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        TestCertificate {
            cert_file,
            key_file,
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        }
    }

    /// Returns a list of revoked certificates in PEM.
    pub(crate) fn crl(&self, serials: &[u64]) -> String {
        let entries = serials.iter().map(|&serial| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2000, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2000, 1, 1),
            next_update: date_time_ymd(2001, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: entries.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// Returns the configuration of a client that trusts this authority, presents `certificate` and
    /// offers `alpn`.
    pub(crate) fn client(
        &self,
        certificate: Option<&TestCertificate>,
        alpn: &[&str],
    ) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder().with_root_certificates(self.roots());
        let mut config = with_certificate(builder, certificate);
        config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// Returns the configuration of a client that trusts this authority, presents `certificate` and
    /// supports one TLS version.
    pub(crate) fn client_at(
        &self,
        certificate: Option<&TestCertificate>,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_protocol_versions(&[version]);
        let builder = builder.with_root_certificates(self.roots());
        Arc::new(with_certificate(builder, certificate))
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let added = roots.add(self.certificate.clone());
        added.expect("a valid CA certificate");
        roots
    }
}

fn with_certificate(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    certificate: Option<&TestCertificate>,
) -> ClientConfig {
    match certificate {
        None => builder.with_no_client_auth(),
        Some(own) => builder
            .with_client_auth_cert(vec![own.certificate.clone()], own.key.clone_key())
            .unwrap(),
    }
}

/// Returns the configuration of a client that accepts a certificate for the host from any issuer,
/// and offers `alpn`.
pub(crate) fn any_issuer_client(alpn: &[&str]) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder();
    let verifier = AnyIssuerVerifier(builder.crypto_provider().clone());
    let builder = builder.dangerous();
    let mut config = builder
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// A verifier that checks the host name and the handshake signature, but not the issuer.
#[derive(Debug)]
struct AnyIssuerVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyIssuerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Opens a TLS connection and completes its handshake.
pub(crate) fn tls(
    address: SocketAddr,
    config: Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::from(address.ip());
    let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address)?);
    stream.conn.complete_io(&mut stream.sock)?;
    Ok(stream)
}

/// Opens a gRPC channel over TLS.
pub(crate) async fn tls_channel(
    address: SocketAddr,
    config: Arc<ClientConfig>,
) -> Result<Channel, tonic::transport::Error> {
    // The scheme is `http`, because the connector performs the TLS handshake.
    Endpoint::from_shared(format!("http://{address}"))?
        .connect_with_connector(Connector { address, config })
        .await
}

#[derive(Clone)]
struct Connector {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

type TlsIo = TokioIo<tokio_rustls::client::TlsStream<tokio::net::TcpStream>>;

impl tower_service::Service<Uri> for Connector {
    type Response = TlsIo;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsIo>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { address, config } = self.clone();
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            let name = ServerName::from(address.ip());
            let connector = tokio_rustls::TlsConnector::from(config);
            Ok(TokioIo::new(connector.connect(name, stream).await?))
        })
    }
}
