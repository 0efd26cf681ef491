//! A webhook over TLS that allows everything at once, in a thread of its own.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, net, thread};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio_rustls::TlsAcceptor;

use crate::BoxError;

/// A running webhook.
#[derive(Debug)]
pub(crate) struct Hook {
    /// Such as `https://127.0.0.1:40123`.
    pub(crate) url: String,
    /// Its authority, as in the field `caBundle`.
    pub(crate) bundle: String,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    calls: AtomicU64,
}

impl Hook {
    /// Starts a webhook that speaks HTTP/1.1 and, if wanted, HTTP/2. It stops with the process.
    ///
    /// A call of it wakes its thread, and the answer wakes another one, as if it were another program, whoever calls it.
    pub(crate) fn start(has_http2: bool) -> Result<Self, BoxError> {
        let key = KeyPair::generate()?;
        let certificate =
            CertificateParams::new(vec!["127.0.0.1".to_owned()])?.self_signed(&key)?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if has_http2 {
            config.alpn_protocols.insert(0, b"h2".to_vec());
        }
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let hook = Self {
            url: format!("https://{}", listener.local_addr()?),
            bundle: STANDARD.encode(certificate.pem()),
            counts: Arc::default(),
        };
        let counts = hook.counts.clone();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let serving = async move {
            let listener = TcpListener::from_std(listener)?;
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), stream, counts.clone()));
            }
            Ok::<_, io::Error>(())
        };
        thread::Builder::new()
            .name("webhook".to_owned())
            .spawn(move || runtime.block_on(serving))?;
        Ok(hook)
    }

    /// Returns the numbers of connections and of calls so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        // Relaxed: they are read when nothing happens.
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.counts.connections), read(&self.counts.calls))
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, counts: Arc<Counts>) {
    // An error ends the connection, and the client reports it.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    counts.connections.fetch_add(1, Ordering::Relaxed);
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(stream);
    let service = service_fn(move |request| answer(request, counts.clone()));
    if is_http2 {
        let _ = http2::Builder::new(TokioExecutor::new())
            .serve_connection(io, service)
            .await;
    } else {
        let _ = http1::Builder::new().serve_connection(io, service).await;
    }
}

/// Allows what a review asks about.
async fn answer(
    request: Request<Incoming>,
    counts: Arc<Counts>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await;
    let review = body.ok().map(Collected::to_bytes);
    let review = review.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let uid = review.map(|review| review["request"]["uid"].clone());
    let uid = uid.unwrap_or_default();
    counts.calls.fetch_add(1, Ordering::Relaxed);
    let body = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":{uid},"allowed":true}}}}"#
    );
    let mut response = Response::new(Full::from(body));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}
