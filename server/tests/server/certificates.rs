//! Certificates made for a test, and a client that uses them.

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
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned, SupportedProtocolVersion,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use tonic::transport::{Channel, Endpoint, Uri};

/// An authority in a directory of its own.
pub(crate) struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// A certificate with its key, in files and in memory.
pub(crate) struct Pair {
    pub(crate) cert_file: PathBuf,
    pub(crate) key_file: PathBuf,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
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

    /// Issues a certificate for a host, made out to `name` and written to files called after it.
    pub(crate) fn issue(&self, name: &str, host: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let cert_file = self.directory.path().join(format!("{name}.pem"));
        let key_file = self.directory.path().join(format!("{name}-key.pem"));
        std::fs::write(&cert_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        Pair {
            cert_file,
            key_file,
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        }
    }

    /// A client that trusts this authority, shows `pair` if there is one, and offers `alpn`.
    pub(crate) fn client(&self, pair: Option<&Pair>, alpn: &[&str]) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder().with_root_certificates(self.roots());
        let mut config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => builder
                .with_client_auth_cert(vec![pair.certificate.clone()], pair.key.clone_key())
                .unwrap(),
        };
        config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A client that trusts this authority and speaks one version of TLS.
    pub(crate) fn client_at(
        &self,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_protocol_versions(&[version]);
        let builder = builder.with_root_certificates(self.roots());
        Arc::new(builder.with_no_client_auth())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let added = roots.add(self.certificate.clone());
        added.expect("a certificate of an authority");
        roots
    }
}

/// A client that trusts whoever has a certificate for the host, and offers `alpn`.
pub(crate) fn trusting_client(alpn: &[&str]) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder();
    let anybody = Anybody(builder.crypto_provider().clone());
    let builder = builder.dangerous();
    let mut config = builder
        .with_custom_certificate_verifier(Arc::new(anybody))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Looks at names and signatures, and not at who signed.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
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

/// A connection under TLS, with its handshake done.
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

/// A gRPC channel under TLS.
pub(crate) async fn tls_channel(
    address: SocketAddr,
    config: Arc<ClientConfig>,
) -> Result<Channel, tonic::transport::Error> {
    // The connector does what the scheme says.
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
