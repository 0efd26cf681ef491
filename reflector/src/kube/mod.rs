//! [`KubeListWatch`]: the collections of an API server over HTTP. Requires the feature `http`.
//!
//! `connection.rs` has requests and their time limits, over the connections of `transport.rs`, `body.rs`
//! bodies in memory, `frames.rs` the documents of a watch, and `decode.rs` what they say.

mod body;
mod connection;
mod decode;
mod frames;
mod transport;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_core::future::BoxFuture;
use http::{HeaderValue, Uri};
use hyper::body::{Body as _, Incoming};
use parking_lot::Mutex;
use revstore_watch_cache::api::{EventStream, ObjectList};
use revstore_watch_cache::encode::Kind;
use revstore_watch_cache::{
    JsonKind, ListOptions, RequestError, Selector, WatchEvent, WatchOptions,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep};

use crate::list_watch::ListWatch;
use connection::Client;
pub use connection::TimeLimits;
pub use frames::EVENT_BYTES_MAX;
use frames::{FrameError, Frames};
use transport::{ALPN_HTTP1, ALPN_HTTP2};

/// The default of the maximum size of a list in bytes.
pub const LIST_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// A collection of an API server, for example of kube-apiserver, over HTTP and TLS.
///
/// - Errors of the server become the [`RequestError`] that the cache in this process would return: 410
///   is [`RequestError::Expired`], and other errors keep their code, reason and message. A server that
///   cannot be reached, or does not answer in time, is [`RequestError::Unavailable`].
/// - A watch that is cut ends, and the reflector continues it after its last event. An event that is no
///   JSON, or is larger than [`EVENT_BYTES_MAX`], ends the watch with an error.
/// - With TLS, the server chooses HTTP/2 or HTTP/1.1, unless
///   [`http1_only`](KubeListWatchBuilder::http1_only) is set; without TLS, it is HTTP/1.1. Over HTTP/2, all
///   requests of this source share a connection, and pings find out within 45 s that the server has
///   vanished. Over HTTP/1.1, each watch has a connection of its own, and lists, one after the other, share
///   one.
/// - Lists are requested with gzip, which API servers use for large ones, and watches without.
/// - Requests run on a tokio runtime. Their results can be awaited on any executor, so an informer may
///   still run on a thread of its own.
///
/// There are no default authorities, also not those of the system: a server with TLS needs
/// [`certificate_authority`](KubeListWatchBuilder::certificate_authority).
///
/// ```no_run
/// use std::sync::Arc;
/// use revstore_reflector::kube::KubeListWatch;
/// use revstore_reflector::{Informer, Reflector};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // The files of a pod's service account.
/// let account = "/var/run/secrets/kubernetes.io/serviceaccount";
/// let token = format!("{account}/token");
/// let pods = KubeListWatch::builder("https://kubernetes.default.svc", "/api/v1/pods")
///     .certificate_authority(std::fs::read(format!("{account}/ca.crt"))?)
///     .bearer_token_with(move || std::fs::read_to_string(&token).map_err(|error| error.to_string()))
///     .selector("app=web", "spec.nodeName=n1")
///     .build()?;
/// let informer = Informer::builder(Reflector::builder(Arc::new(pods)).build()).build();
/// informer.run().await;
/// # Ok(())
/// # }
/// ```
pub struct KubeListWatch {
    client: Arc<Client>,
    /// The path of the collection, below that of the server.
    path: String,
    /// The selectors as parameters, each with a separator before it.
    selector: String,
    kind: Arc<dyn Kind>,
}

/// The configuration of a [`KubeListWatch`], created by [`KubeListWatch::builder`].
#[must_use = "`build` creates the source"]
pub struct KubeListWatchBuilder {
    server: String,
    path: String,
    labels: String,
    fields: String,
    kind: Arc<dyn Kind>,
    authorities: Vec<u8>,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
    http1_only: bool,
    token: Option<Box<dyn Fn() -> Result<String, String> + Send + Sync>>,
    limits: TimeLimits,
    list_bytes_max: usize,
    runtime: Option<Handle>,
}

/// The error of a configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The address of the server is not `http://host[:port][/path]` or the same with `https`.
    #[error("invalid address of a server: {0}")]
    Server(String),
    /// A certificate, a key or the name of the server cannot be used.
    #[error("invalid TLS configuration: {0}")]
    Tls(String),
    /// A selector cannot be parsed.
    #[error("invalid selector: {0}")]
    Selector(String),
    /// The source was built outside of a tokio runtime, and none was set.
    #[error("there is no tokio runtime")]
    NoRuntime,
}

impl fmt::Debug for KubeListWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeListWatch")
            .field("server", &self.client.authority)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for KubeListWatchBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token and the key.
        f.debug_struct("KubeListWatchBuilder")
            .field("server", &self.server)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl KubeListWatchBuilder {
    /// Sets the label selector and the field selector. Empty ones match all objects.
    pub fn selector(self, labels: impl Into<String>, fields: impl Into<String>) -> Self {
        Self {
            labels: labels.into(),
            fields: fields.into(),
            ..self
        }
    }

    /// Sets the kind, which reads the objects. The default is a [`JsonKind`] without selectable fields.
    pub fn kind(self, kind: impl Kind) -> Self {
        Self {
            kind: Arc::new(kind),
            ..self
        }
    }

    /// Sets the certificates of the authorities that sign the server's, as PEM. They are required for
    /// `https`.
    pub fn certificate_authority(self, pem: impl Into<Vec<u8>>) -> Self {
        Self {
            authorities: pem.into(),
            ..self
        }
    }

    /// Sets the certificate of the client, with its chain, and its key, as PEM.
    pub fn client_certificate(
        self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        Self {
            certificate: Some((certificate.into(), key.into())),
            ..self
        }
    }

    /// Sets the name in the server's certificate, if it is not the host of its address.
    pub fn server_name(self, name: impl Into<String>) -> Self {
        Self {
            server_name: Some(name.into()),
            ..self
        }
    }

    /// Does not offer HTTP/2 to the server, for example because a proxy does not support it well.
    pub fn http1_only(self) -> Self {
        Self {
            http1_only: true,
            ..self
        }
    }

    /// Sets the bearer token.
    pub fn bearer_token(self, token: impl Into<String>) -> Self {
        let token = token.into();
        self.bearer_token_with(move || Ok(token.clone()))
    }

    /// Sets a function that returns the bearer token for each request, for example from a file that is
    /// renewed. With its error the request fails, and is tried again later.
    pub fn bearer_token_with(
        self,
        token: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            token: Some(Box::new(token)),
            ..self
        }
    }

    /// Sets the time limits.
    pub fn limits(self, limits: TimeLimits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the maximum size of a list, or of a page of it, in bytes, decompressed. The default is
    /// [`LIST_BYTES_MAX`]. A larger one is an error.
    pub fn list_bytes_max(self, list_bytes_max: usize) -> Self {
        Self {
            list_bytes_max,
            ..self
        }
    }

    /// Sets the runtime, which must have IO and time enabled. The default is that in which
    /// [`build`](Self::build) is called.
    pub fn runtime(self, runtime: Handle) -> Self {
        Self {
            runtime: Some(runtime),
            ..self
        }
    }

    /// Creates the source. It connects with the first request.
    ///
    /// # Errors
    /// [`ConfigError`] if the address, a selector, a certificate or a key cannot be used, or if there is
    /// no runtime.
    pub fn build(self) -> Result<KubeListWatch, ConfigError> {
        Selector::parse(&self.labels, &self.fields)
            .map_err(|error| ConfigError::Selector(error.to_string()))?;
        let invalid = |reason: &str| ConfigError::Server(format!("{reason}: {:?}", self.server));
        let uri: Uri = self.server.parse().map_err(|_| invalid("no URL"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(invalid("neither http nor https")),
        };
        let authority = uri.authority().ok_or_else(|| invalid("no host"))?;
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(invalid("a user or a query"));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let tls = is_tls.then(|| self.tls(&host)).transpose()?;
        let header = HeaderValue::from_str(authority.as_str()).map_err(|_| invalid("no host"))?;
        let mut selector = String::new();
        for (name, value) in [
            ("labelSelector", &self.labels),
            ("fieldSelector", &self.fields),
        ] {
            push_parameter(&mut selector, name, value);
        }
        let runtime = self.runtime.or_else(|| Handle::try_current().ok());
        Ok(KubeListWatch {
            path: format!(
                "{}/{}",
                uri.path().trim_end_matches('/'),
                self.path.trim_matches('/')
            ),
            selector,
            kind: self.kind,
            client: Arc::new(Client {
                port: authority
                    .port_u16()
                    .unwrap_or(if is_tls { 443 } else { 80 }),
                host,
                authority: header,
                tls,
                token: self.token,
                limits: self.limits,
                list_bytes_max: self.list_bytes_max,
                runtime: runtime.ok_or(ConfigError::NoRuntime)?,
                kept: Mutex::new(None),
            }),
        })
    }

    fn tls(
        &self,
        host: &str,
    ) -> Result<(tokio_rustls::TlsConnector, ServerName<'static>), ConfigError> {
        let tls = |error: &dyn fmt::Display| ConfigError::Tls(error.to_string());
        let certificates = |pem: &[u8]| {
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            match found {
                Ok(found) if found.is_empty() => Err(ConfigError::Tls("no certificate".into())),
                Ok(found) => Ok(found.into_iter().map(CertificateDer::into_owned).collect()),
                Err(error) => Err(tls(&error)),
            }
        };
        let mut roots = RootCertStore::empty();
        let authorities: Vec<CertificateDer<'static>> = certificates(&self.authorities)?;
        for authority in authorities {
            roots.add(authority).map_err(|error| tls(&error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| tls(&error))?
            .with_root_certificates(roots);
        let mut config = match &self.certificate {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| tls(&error))?;
                config
                    .with_client_auth_cert(certificates(chain)?, key)
                    .map_err(|error| tls(&error))?
            }
        };
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()];
        if self.http1_only {
            config.alpn_protocols.remove(0);
        }
        let name = self.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(|error| tls(&error))?;
        Ok((Arc::new(config).into(), name))
    }
}

impl KubeListWatch {
    /// Returns the builder of a source of the collection with the path `path`, such as
    /// `/apis/apps/v1/namespaces/ns/deployments`, on the server with the address `server`, such as
    /// `https://10.0.0.1:6443`.
    pub fn builder(server: impl Into<String>, path: impl Into<String>) -> KubeListWatchBuilder {
        KubeListWatchBuilder {
            server: server.into(),
            path: path.into(),
            labels: String::new(),
            fields: String::new(),
            kind: Arc::new(JsonKind::new("", "")),
            authorities: Vec::new(),
            certificate: None,
            server_name: None,
            http1_only: false,
            token: None,
            limits: TimeLimits::default(),
            list_bytes_max: LIST_BYTES_MAX,
            runtime: None,
        }
    }

    /// Returns the target of a request with parameters, and with the selectors of this source.
    fn target<const N: usize>(
        &self,
        selector: &Selector,
        parameters: [(&str, &str); N],
    ) -> Result<String, RequestError> {
        if !selector.is_empty() {
            return Err(RequestError::BadRequest(
                "the selector of a KubeListWatch is set by its builder".into(),
            ));
        }
        let mut target = String::new();
        for (name, value) in parameters {
            push_parameter(&mut target, name, value);
        }
        target.push_str(&self.selector);
        // Each parameter has a separator before it.
        let parameters = target.strip_prefix('&').unwrap_or_default();
        Ok(format!("{}?{parameters}", self.path))
    }
}

/// Adds `&name=value`, unless the value is empty.
fn push_parameter(target: &mut String, name: &str, value: &str) {
    use fmt::Write as _;

    if value.is_empty() {
        return;
    }
    target.push('&');
    target.push_str(name);
    target.push('=');
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                target.push(char::from(byte));
            }
            // Writing into a string does not fail.
            _ => drop(write!(target, "%{byte:02X}")),
        }
    }
}

impl ListWatch for KubeListWatch {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ObjectList, RequestError>> {
        Box::pin(async move {
            let limit = match options.limit {
                1.. => options.limit.to_string(),
                _ => String::new(),
            };
            let target = self.target(
                &options.selector,
                [
                    ("limit", &limit),
                    ("continue", &options.continue_token),
                    ("resourceVersion", &options.resource_version),
                    ("resourceVersionMatch", &options.resource_version_match),
                ],
            )?;
            let body = self.client.list(target).await?;
            decode::list(&body, &*self.kind)
        })
    }

    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>> {
        Box::pin(async move {
            let timeout = options.timeout.map(|timeout| timeout.as_secs().to_string());
            let initial = options.send_initial_events.map(|send| send.to_string());
            let target = self.target(
                &options.selector,
                [
                    ("watch", "true"),
                    ("resourceVersion", &options.resource_version),
                    ("resourceVersionMatch", &options.resource_version_match),
                    (
                        "allowWatchBookmarks",
                        if options.allow_bookmarks { "true" } else { "" },
                    ),
                    ("sendInitialEvents", initial.as_deref().unwrap_or_default()),
                    ("timeoutSeconds", timeout.as_deref().unwrap_or_default()),
                ],
            )?;
            let body = self.client.watch(target).await?;
            let idle = self.client.limits.watch_idle.map(|limit| {
                let _runtime = self.client.runtime.enter();
                (limit, Box::pin(sleep(limit)))
            });
            Ok(Box::pin(WatchBody {
                body,
                frames: Frames::default(),
                kind: self.kind.clone(),
                idle,
                has_ended: false,
            }) as EventStream)
        })
    }
}

/// The number of parts of a body without an event after which other tasks have a turn: a server that sends blanks, or one
/// large event, may be faster than they are read.
const PARTS_MAX: usize = 64;

/// The events of a watch.
struct WatchBody {
    body: Incoming,
    frames: Frames,
    kind: Arc<dyn Kind>,
    /// The time without bytes after which the watch ends.
    idle: Option<(std::time::Duration, Pin<Box<Sleep>>)>,
    has_ended: bool,
}

impl WatchBody {
    /// Returns the next event in the bytes that were received.
    fn decoded(&mut self) -> Option<WatchEvent> {
        let event = match self.frames.next() {
            Ok(None) => return None,
            Ok(Some(json)) => decode::event(&json, &*self.kind),
            Err(FrameError::NotAnObject(byte)) => {
                let byte = char::from(byte);
                let text = format!("unable to decode an event: it starts with {byte:?}");
                WatchEvent::Error(RequestError::Internal(text))
            }
            Err(FrameError::TooLarge) => {
                let text = format!("an event is larger than {EVENT_BYTES_MAX} bytes");
                WatchEvent::Error(RequestError::Internal(text))
            }
        };
        // WC-335.
        self.has_ended = matches!(event, WatchEvent::Error(_));
        Some(event)
    }
}

impl Stream for WatchBody {
    type Item = WatchEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let watch = &mut *self;
        for _ in 0..PARTS_MAX {
            if watch.has_ended {
                return Poll::Ready(None);
            }
            if let Some(event) = watch.decoded() {
                return Poll::Ready(Some(event));
            }
            match Pin::new(&mut watch.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    watch.frames.push(&frame.into_data().unwrap_or_default());
                    if let Some((limit, sleep)) = &mut watch.idle {
                        sleep.as_mut().reset(Instant::now() + *limit);
                    }
                }
                // A watch that is cut is continued after its last event, as one that has ended.
                Poll::Ready(Some(Err(_)) | None) => watch.has_ended = true,
                Poll::Pending => {
                    let idle = watch.idle.as_mut().map(|(_, sleep)| sleep.as_mut());
                    if idle.is_none_or(|sleep| sleep.poll(context).is_pending()) {
                        return Poll::Pending;
                    }
                    watch.has_ended = true;
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
