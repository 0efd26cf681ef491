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
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
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
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let mut config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => builder
                .with_client_auth_cert(vec![pair.certificate.clone()], pair.key.clone_key())
                .unwrap(),
        };
        config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        Arc::new(config)
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
