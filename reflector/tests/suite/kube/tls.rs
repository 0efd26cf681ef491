//! TLS between client and server.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use revstore_reflector::kube::{ConfigError, KubeListWatch, KubeListWatchBuilder, TimeLimits};
use revstore_watch_cache::RequestError;

use super::fetch_list;
use super::server::{list, runtime};

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn certificate(authority: &Issuer, name: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, authority).unwrap(), key)
}

/// What a client needs to trust a server.
pub(crate) struct Trust(String);

impl Trust {
    pub(crate) fn builder(&self, server: &str, path: &str) -> KubeListWatchBuilder {
        KubeListWatch::builder(server, path).certificate_authority(&*self.0)
    }
}

/// Returns a server's side of TLS that offers protocols, and what its clients trust.
pub(crate) fn acceptor(protocols: &[&[u8]]) -> (Trust, tokio_rustls::TlsAcceptor) {
    let servers = authority();
    let (certificate, key) = certificate(&servers, "127.0.0.1");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    (Trust(servers.pem()), Arc::new(config).into())
}

/// Starts a server that requires a certificate of `clients` and answers each request with an empty
/// list.
fn serve(servers: &Issuer, clients: &Issuer) -> SocketAddr {
    let (certificate, key) = certificate(servers, "127.0.0.1");
    let mut roots = RootCertStore::empty();
    roots.add(clients.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    runtime().spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut connection) = acceptor.accept(tcp).await else {
                    return;
                };
                let mut request = vec![0; 4096];
                while let Ok(1..) = connection.read(&mut request).await {
                    let _ = connection.write_all(&list(5, "", &[]).bytes).await;
                }
            });
        }
    });
    address
}

#[test]
fn server_and_client_verify_each_other() {
    let (servers, clients) = (authority(), authority());
    let address = serve(&servers, &clients);
    let builder = || {
        KubeListWatch::builder(format!("https://{address}/"), "api/v1/pods/")
            .runtime(runtime().clone())
    };
    let (certificate, key) = certificate(&clients, "client");
    let (certificate, key) = (certificate.pem(), key.serialize_pem());
    let trusted = || builder().certificate_authority(servers.pem());
    let source = trusted()
        .client_certificate(certificate.clone(), key.clone())
        .build();
    assert!(fetch_list(&source.unwrap()).unwrap().is_empty());
    let others = [
        // No certificate of the client, another authority, another name.
        trusted(),
        builder()
            .certificate_authority(clients.pem())
            .client_certificate(certificate.clone(), key.clone()),
        trusted()
            .client_certificate(certificate.clone(), key)
            .server_name("kubernetes.default.svc"),
    ];
    for other in others {
        let error = fetch_list(&other.build().unwrap()).unwrap_err();
        assert!(matches!(error, RequestError::Unavailable(_)), "{error}");
    }
    let wrong_key = trusted().client_certificate(certificate, "no key").build();
    assert!(matches!(wrong_key.err(), Some(ConfigError::Tls(_))));
}

#[test]
fn a_server_that_does_not_answer_the_handshake_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let source = KubeListWatch::builder(format!("https://{address}"), "/api/v1/pods")
        .certificate_authority(authority().pem())
        .limits(TimeLimits::default().connect(Duration::from_millis(50)))
        .runtime(runtime().clone())
        .build()
        .unwrap();
    let error = fetch_list(&source).unwrap_err();
    assert_eq!(
        error,
        RequestError::Unavailable("no connection within the time limit".into())
    );
}
