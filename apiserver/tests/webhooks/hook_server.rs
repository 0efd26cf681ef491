//! A webhook with a certificate of its own.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// What a webhook answers.
pub(crate) enum Answer {
    Json(Value),
    /// A status, header fields and a body.
    Raw(u16, Vec<(&'static str, String)>, String),
    /// Nothing, ever.
    Hang,
    /// The end of the connection.
    Close,
    /// A body without an end.
    Stream,
}

type Handler = dyn Fn(&str, &Value) -> Answer + Send + Sync;

/// An authority that signs certificates of webhooks.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key.
pub(crate) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// A webhook, which stops when it is dropped.
pub(crate) struct HookServer {
    pub(crate) address: SocketAddr,
    pub(crate) bundle: String,
    /// The number of connections.
    connections: Arc<AtomicUsize>,
    /// The tasks of connections.
    tasks: Arc<Mutex<Vec<JoinHandle<()>>>>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    runtime: Option<Runtime>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("there is a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("it is signed");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Returns the authority as the field `caBundle`.
    pub(crate) fn bundle(&self) -> String {
        STANDARD.encode(&self.pem)
    }

    /// Returns a certificate for names, changed by `change`.
    pub(crate) fn issue(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Identity {
        let key = KeyPair::generate().expect("there is a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("the names are valid");
        change(&mut params);
        let signed = params.signed_by(&key, &self.issuer).expect("it is signed");
        Identity::new(&signed, &key)
    }
}

impl Identity {
    fn new(certificate: &rcgen::Certificate, key: &KeyPair) -> Self {
        Self {
            chain: vec![certificate.der().clone()],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        }
    }

    /// Returns a certificate that has signed itself, as an authority, and the field `caBundle` with it.
    pub(crate) fn self_signed(names: &[&str]) -> (Self, String) {
        let key = KeyPair::generate().expect("there is a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("the names are valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("it is signed");
        let bundle = STANDARD.encode(certificate.pem());
        (Self::new(&certificate, &key), bundle)
    }

    /// Returns the certificate as the field `caBundle`.
    pub(crate) fn bundle(&self) -> String {
        let body = STANDARD.encode(&self.chain[0]);
        STANDARD.encode(format!(
            "-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
        ))
    }

    fn config(self, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the versions are known");
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(self.chain, self.key)
            .expect("the certificate fits its key");
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

impl HookServer {
    /// Starts a webhook with a certificate for 127.0.0.1, which gets the path and the body of each request.
    pub(crate) fn start(handler: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> Self {
        let authority = Authority::new();
        let identity = authority.issue(&["127.0.0.1", "hooks.system.svc"], |_| {});
        Self::with_identity(identity, authority.bundle(), &[], handler)
    }

    pub(crate) fn with_identity(
        identity: Identity,
        bundle: String,
        protocols: &[&[u8]],
        handler: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("there is a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("there is a port");
        let mut server = Self {
            address: listener.local_addr().expect("it is bound"),
            bundle,
            connections: Arc::default(),
            tasks: Arc::default(),
            requests: Arc::default(),
            config: Arc::new(Mutex::new(identity.config(protocols))),
            runtime: None,
        };
        let (connections, config) = (server.connections.clone(), server.config.clone());
        let (handler, requests): (Arc<Handler>, _) = (Arc::new(handler), server.requests.clone());
        let tasks = server.tasks.clone();
        runtime.spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let acceptor = TlsAcceptor::from(config.lock().expect("no panic").clone());
                let (handler, requests) = (handler.clone(), requests.clone());
                let task = tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else {
                        return;
                    };
                    let service = service_fn(move |request| {
                        answer(handler.clone(), requests.clone(), request)
                    });
                    let builder = auto::Builder::new(TokioExecutor::new());
                    // The client may leave.
                    let _ = builder.serve_connection(TokioIo::new(tls), service).await;
                });
                tasks.lock().expect("no panic").push(task);
            }
        });
        server.runtime = Some(runtime);
        server
    }

    /// Uses another certificate for new connections.
    pub(crate) fn renew(&self, identity: Identity) {
        *self.config.lock().expect("no panic") = identity.config(&[]);
    }

    /// Returns the field `clientConfig` with a URL.
    pub(crate) fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.address), "caBundle": self.bundle})
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Closes all connections.
    pub(crate) fn disconnect(&self) {
        for task in self.tasks.lock().expect("no panic").drain(..) {
            task.abort();
            let runtime = self.runtime.as_ref().expect("it runs");
            // An aborted task has an error.
            let _ = runtime.block_on(task);
        }
    }

    /// Returns the paths and bodies of all requests, and forgets them.
    pub(crate) fn take_requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.requests.lock().expect("no panic"))
    }
}

impl Drop for HookServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn answer(
    handler: Arc<Handler>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, io::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await;
    let body = body.map_err(io::Error::other)?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    requests
        .lock()
        .expect("no panic")
        .push((path.clone(), review.clone()));
    // A handler may make requests that wait.
    let answered = tokio::task::spawn_blocking(move || handler(&path, &review)).await;
    let full = |text: String| AnswerBody::Full(Some(text.into()));
    match answered.map_err(io::Error::other)? {
        Answer::Json(value) => Ok(Response::new(full(value.to_string()))),
        Answer::Raw(status, fields, body) => {
            let mut response = Response::builder().status(status);
            for (name, value) in fields {
                response = response.header(name, value);
            }
            response.body(full(body)).map_err(io::Error::other)
        }
        Answer::Hang => std::future::pending().await,
        Answer::Close => Err(io::Error::other("the end")),
        Answer::Stream => Ok(Response::new(AnswerBody::Endless)),
    }
}

enum AnswerBody {
    Full(Option<Bytes>),
    Endless,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Endless => {
                // The thread is shared.
                thread::yield_now();
                context.waker().wake_by_ref();
                let spaces = Bytes::from(vec![b' '; 64 << 10]);
                Poll::Ready(Some(Ok(Frame::data(spaces))))
            }
        }
    }
}
